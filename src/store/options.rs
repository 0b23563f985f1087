//! Classifies store options: which of them may be sent to other machines.
//!
//! A store that answers a request has seen a token or a signature. Each machine therefore takes its
//! credentials, its endpoints and its proxies from its own environment. Other machines may only
//! tell it how to make requests; it accepts nothing else from them.

use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

/// How to make requests, by the canonical names of the clients.
const REQUEST: [&str; 23] = [
    "aws_checksum_algorithm",
    "aws_disable_tagging",
    "aws_request_payer",
    "aws_s3_express",
    "aws_server_side_encryption",
    "aws_skip_signature",
    "aws_sse_bucket_key_enabled",
    "aws_sse_kms_key_id",
    "aws_unsigned_payload",
    "aws_virtual_hosted_style_request",
    "azure_disable_tagging",
    "azure_skip_signature",
    "connect_timeout",
    "google_skip_signature",
    "http1_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "randomize_addresses",
    "timeout",
    "user_agent",
];

/// Which of a cloud's own hosts to ask. The values become part of a host name.
const HOST_PARTS: [&str; 3] = [
    "aws_default_region",
    "aws_region",
    "azure_storage_account_name",
];

/// Options that send requests to a host of the user's choice.
const ENDPOINTS: [&str; 6] = [
    "aws_endpoint",
    "aws_endpoint_url_s3",
    "azure_storage_endpoint",
    "azure_storage_use_emulator",
    "azure_use_fabric_endpoint",
    "google_base_url",
];

/// Who may set an option.
pub(crate) enum Class {
    /// May be sent: how to make requests.
    Request,
    /// May be sent if it is a plain word: which of a cloud's own hosts to ask.
    HostPart,
    /// Must be set by each machine for itself, if the pipeline sets it.
    Endpoint,
    /// Private to each machine: credentials and the route of requests.
    Private,
}

impl Class {
    pub(crate) fn of(key: &str) -> Class {
        let name = canonical(key).unwrap_or_default();
        let is_in = |names: &[&str]| names.contains(&name.as_str());
        if is_in(&REQUEST) {
            Class::Request
        } else if is_in(&HOST_PARTS) {
            Class::HostPart
        } else if is_in(&ENDPOINTS) {
            Class::Endpoint
        } else {
            Class::Private
        }
    }
}

/// Whether an option selects one of a cloud's own hosts.
pub(crate) fn is_host_part(name: &str) -> bool {
    HOST_PARTS.contains(&name)
}

/// Whether a value can be part of a host name.
pub(crate) fn is_host_word(value: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    !value.is_empty() && value.bytes().all(letter)
}

/// The canonical name of an option that may have aliases.
pub(crate) fn canonical(key: &str) -> Option<String> {
    let name = match key.split('_').next()? {
        "aws" => key.parse::<AmazonS3ConfigKey>().ok()?.as_ref().to_string(),
        "google" => key.parse::<GoogleConfigKey>().ok()?.as_ref().to_string(),
        "azure" => key.parse::<AzureConfigKey>().ok()?.as_ref().to_string(),
        _ => key.parse::<ClientConfigKey>().ok()?.as_ref().to_string(),
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::shared_options::SharedOptions;
    use crate::store::tests::stores;
    use crate::store::{OPTIONS, is_option};
    use std::collections::BTreeMap;

    #[test]
    fn only_harmless_options_are_shared() {
        let secret = "access_key account_key certificate client_ credentials customer_key emulator \
            endpoint file authority http proxy role sas_key secret service_account token \
            url";
        let others = ["aws_token", "azure_endpoint", "azure_storage_access_key"];
        let planted = OPTIONS.split_whitespace().chain(others).map(|key| {
            let is_how = key == "http1_only" || key == "http2_only";
            let is_secret = !is_how && secret.split(' ').any(|word| key.contains(word));
            (key, if is_secret { "planted" } else { "other" })
        });
        let shared = stores(&planted.collect::<Vec<_>>()).shared();
        assert!(
            !shared.values.values().any(|value| value == "planted"),
            "{shared:?}"
        );
        for key in [
            "aws_region",
            "aws_sse_kms_key_id",
            "aws_virtual_hosted_style_request",
            "timeout",
        ] {
            assert!(shared.values.contains_key(key), "{key}");
        }
        for key in ["aws_endpoint_url", "azure_endpoint", "google_base_url"] {
            assert!(shared.local_keys.contains(key), "{key}");
        }
        shared.check(|_| true).expect("what is shared is taken");
        // Each name is a canonical name of a client.
        for key in REQUEST.iter().chain(&HOST_PARTS).chain(&ENDPOINTS) {
            assert_eq!(canonical(key).as_deref(), Some(*key));
            assert!(is_option(key), "{key}");
        }
    }

    #[test]
    fn endpoints_must_be_set_on_each_machine() {
        let shared =
            stores(&[("aws_endpoint_url", "http://planted"), ("aws_region", "eu")]).shared();
        assert!(!format!("{shared:?}").contains("planted"));
        shared
            .check(|key| key == "aws_endpoint_url")
            .expect("it is");
        let e = shared.check(|_| false).expect_err("it is not");
        assert!(e.full().contains("`aws_endpoint_url`"), "{}", e.full());
        assert!(
            e.full().contains("AWS_ENDPOINT_URL in its environment"),
            "{}",
            e.full()
        );
    }

    /// Anyone who can connect to a cluster may send it anything.
    #[test]
    fn forbidden_options_are_refused() {
        for (key, value) in [
            ("aws_endpoint_url", "http://elsewhere"),
            ("aws_allow_http", "true"),
            ("allow_invalid_certificates", "true"),
            ("proxy_url", "http://elsewhere"),
            ("aws_container_credentials_full_uri", "http://elsewhere"),
            ("azure_storage_authority_host", "http://elsewhere"),
            ("aws_region", "x@elsewhere/"),
            ("azure_storage_account_name", "elsewhere/#"),
            ("nothing", "known"),
        ] {
            let values = BTreeMap::from([(key.to_string(), value.to_string())]);
            let shared = SharedOptions {
                values,
                ..SharedOptions::default()
            };
            let e = shared.stores().err().expect(key);
            assert!(e.full().contains(&format!("`{key}`")), "{}", e.full());
        }
    }
}
