//! What other machines are told of the options of a pipeline.
//!
//! Who answers a request has been shown a token or a signature. So each machine says by its own environment how it signs in, where to its
//! requests go and by what way; others may only tell it how to ask. It takes nothing else from them, whoever they are.

use object_store::ClientConfigKey;
use object_store::aws::AmazonS3ConfigKey;
use object_store::azure::AzureConfigKey;
use object_store::gcp::GoogleConfigKey;

/// How to ask, by the names that the clients have for it.
const HOW: [&str; 23] = [
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

/// Which one of a cloud's own hosts to ask: words, that become a part of its name.
const WHICH: [&str; 3] = [
    "aws_default_region",
    "aws_region",
    "azure_storage_account_name",
];

/// What sends requests to a host of its own.
const WHERE: [&str; 6] = [
    "aws_endpoint",
    "aws_endpoint_url_s3",
    "azure_storage_endpoint",
    "azure_storage_use_emulator",
    "azure_use_fabric_endpoint",
    "google_base_url",
];

pub(crate) enum Class {
    How,
    Which,
    Where,
    /// How a machine signs in, and the way that its requests take.
    Own,
}

impl Class {
    pub(crate) fn of(key: &str) -> Class {
        let name = canonical(key).unwrap_or_default();
        let is_in = |names: &[&str]| names.contains(&name.as_str());
        match () {
            () if is_in(&HOW) => Class::How,
            () if is_in(&WHICH) => Class::Which,
            () if is_in(&WHERE) => Class::Where,
            () => Class::Own,
        }
    }
}

/// Whether an option says which of a cloud's own hosts to ask.
pub(crate) fn is_which(name: &str) -> bool {
    WHICH.contains(&name)
}

/// Whether a value can be a part of the name of a host.
pub(crate) fn is_word(value: &str) -> bool {
    let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    !value.is_empty() && value.bytes().all(letter)
}

/// The name that the clients have for an option, which has others too.
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
    use crate::store::shared_options::Told;
    use crate::store::tests::stores;
    use crate::store::{OPTIONS, is_option};
    use std::collections::BTreeMap;

    #[test]
    fn others_are_told_how_to_ask_and_nothing_else() {
        let secret = [
            "access_key",
            "account_key",
            "certificate",
            "client_",
            "credentials",
            "customer_key",
            "emulator",
            "endpoint",
            "file",
            "authority",
            "http",
            "proxy",
            "role",
            "sas_key",
            "secret",
            "service_account",
            "token",
            "url",
        ];
        let others = ["aws_token", "azure_endpoint", "azure_storage_access_key"];
        let planted = OPTIONS.split_whitespace().chain(others).map(|key| {
            let is_how = key == "http1_only" || key == "http2_only";
            let is_secret = !is_how && secret.iter().any(|word| key.contains(word));
            (key, if is_secret { "planted" } else { "other" })
        });
        let told = stores(&planted.collect::<Vec<_>>()).told();
        assert!(
            !told.how.values().any(|value| value == "planted"),
            "{told:?}"
        );
        for key in [
            "aws_region",
            "aws_sse_kms_key_id",
            "aws_virtual_hosted_style_request",
            "timeout",
        ] {
            assert!(told.how.contains_key(key), "{key}");
        }
        for key in ["aws_endpoint_url", "azure_endpoint", "google_base_url"] {
            assert!(told.own.contains(key), "{key}");
        }
        told.check(|_| true).expect("what is told is taken");
        // Each is a name that some client knows.
        for key in HOW.iter().chain(&WHICH).chain(&WHERE) {
            assert_eq!(canonical(key).as_deref(), Some(*key));
            assert!(is_option(key), "{key}");
        }
    }

    #[test]
    fn where_a_store_is_must_be_known_here() {
        let told = stores(&[("aws_endpoint_url", "http://planted"), ("aws_region", "eu")]).told();
        assert!(!format!("{told:?}").contains("planted"));
        told.check(|key| key == "aws_endpoint_url").expect("it is");
        let e = told.check(|_| false).expect_err("it is not");
        assert!(e.full().contains("`aws_endpoint_url`"), "{}", e.full());
        assert!(
            e.full().contains("AWS_ENDPOINT_URL in its environment"),
            "{}",
            e.full()
        );
    }

    /// Whoever reaches a cluster may send it anything.
    #[test]
    fn what_nobody_may_tell_is_not_taken() {
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
            let how = BTreeMap::from([(key.to_string(), value.to_string())]);
            let told = Told {
                how,
                ..Told::default()
            };
            let e = told.stores().err().expect(key);
            assert!(e.full().contains(&format!("`{key}`")), "{}", e.full());
        }
    }
}
