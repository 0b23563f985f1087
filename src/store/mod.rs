//! A location → the object store that it names. Nothing else in gyre creates stores.
//!
//! In: a path, or a URL with one of [`SCHEMES`], and the options of the pipeline. Out: a store and
//! a path in it. The credentials of a cloud come from its own environment variables and from
//! `[store.options]`, which has the same names in lower case and takes precedence. No message shows
//! their values: a location that holds credentials is refused without being repeated, values are
//! checked before a client is built from them, and a guard wraps every remote store.

pub(crate) mod forward;
pub(crate) mod guard;
pub(crate) mod local;
pub(crate) mod location;
pub(crate) mod no_links;
pub(crate) mod options;
pub mod parameter;
pub(crate) mod parquet;
pub(crate) mod seal;
pub mod secrets;
pub mod shared_options;

use crate::error::{Error, Kind, Result};
use crate::store::guard::{Guard, redacted};
use crate::store::location::{SCHEMES, is_http};
use crate::store::options::{is_host_part, is_host_word};
use crate::store::parameter::{Parameter, Store};
use crate::store::secrets::learn_environment;
use object_store::aws::{AmazonS3Builder, S3ConditionalPut};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    BackoffConfig, ClientConfigKey, ClientOptions, Error as StoreError, ObjectStore, RetryConfig,
};
use std::collections::BTreeMap;
use std::path::{Component, PathBuf};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use url::{Position, Url};

/// Names of options, for suggestions. [`is_option`] decides, and accepts further aliases.
pub(crate) const OPTIONS: &str = "aws_access_key_id aws_secret_access_key aws_session_token aws_region aws_default_region aws_endpoint_url \
    aws_endpoint_url_s3 aws_endpoint_url_sts aws_virtual_hosted_style_request aws_s3_express aws_imdsv1_fallback aws_metadata_endpoint \
    aws_unsigned_payload aws_checksum_algorithm aws_container_credentials_relative_uri aws_container_credentials_full_uri \
    aws_container_authorization_token_file aws_web_identity_token_file aws_role_arn aws_role_session_name aws_skip_signature \
    aws_disable_tagging aws_request_payer aws_server_side_encryption aws_sse_kms_key_id aws_sse_bucket_key_enabled \
    aws_sse_customer_key_base64 aws_allow_http google_service_account google_service_account_key google_application_credentials \
    google_base_url google_skip_signature google_allow_http azure_storage_account_name azure_storage_account_key \
    azure_storage_client_id azure_storage_client_secret azure_storage_tenant_id azure_storage_authority_host azure_storage_sas_key \
    azure_storage_token azure_storage_use_emulator azure_storage_endpoint azure_use_fabric_endpoint azure_msi_endpoint azure_object_id \
    azure_msi_resource_id azure_federated_token_file azure_use_azure_cli azure_skip_signature azure_disable_tagging azure_allow_http \
    allow_http allow_invalid_certificates connect_timeout http1_only http2_only pool_idle_timeout pool_max_idle_per_host proxy_url \
    proxy_ca_certificate proxy_excludes randomize_addresses timeout user_agent";

/// The store of `memory://`, one per process.
static MEMORY: LazyLock<Arc<InMemory>> = LazyLock::new(Arc::default);

/// The stores of a run, each created when it is first needed. Without options, only the environment
/// configures them.
#[derive(Clone, Default)]
pub struct Stores(Arc<Inner>);

#[derive(Default)]
struct Inner {
    options: BTreeMap<String, String>,
    /// By scheme, host and port.
    opened: Mutex<BTreeMap<String, Arc<dyn ObjectStore>>>,
}

/// The stores of a pipeline's options.
impl From<&Store> for Stores {
    fn from(written: &Store) -> Stores {
        let text = |value: &Parameter| match value {
            Parameter::Boolean(value) => value.to_string(),
            Parameter::Integer(value) => value.to_string(),
            Parameter::Float(value) => value.to_string(),
            Parameter::String(value) => value.clone(),
        };
        let options = written.options.iter();
        Stores::new(
            options
                .map(|(key, value)| (key.clone(), text(value)))
                .collect(),
        )
    }
}

/// A path in a store.
pub struct Place {
    /// The store.
    pub store: Arc<dyn ObjectStore>,
    /// The path in the store.
    pub path: Path,
    /// The same place as a path of the file system, if it is local.
    pub folder: Option<PathBuf>,
}

/// Checks that a location is a path or a URL that gyre supports. The error does not repeat the
/// location, which may hold a secret.
pub(crate) fn check(location: &str) -> Result<(), String> {
    let Some((scheme, rest)) = location.split_once("://") else {
        let scheme = location.split(':').next().unwrap_or_default();
        let is_url = SCHEMES
            .iter()
            .any(|known| scheme.len() < location.len() && known.eq_ignore_ascii_case(scheme));
        if is_url {
            return Err(format!(
                "two slashes follow the colon of a URL, as in {scheme}://; write `./` before the name of a file"
            ));
        }
        return Ok(());
    };
    if !SCHEMES.contains(&scheme) {
        let is_word =
            (1..10).contains(&scheme.len()) && scheme.bytes().all(|b| b.is_ascii_alphanumeric());
        let unknown = if is_word { scheme } else { "these" };
        let known = SCHEMES.map(|scheme| format!("{scheme}://")).join(", ");
        return Err(format!(
            "`{unknown}` locations are not supported; write a path, or a URL that begins with {known}"
        ));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let is_http = is_http(scheme);
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    let has_port = port.is_some_and(|port| is_http && port.parse::<u16>().is_ok());
    if authority.contains('@') || (port.is_some() && !has_port) {
        return Err(format!(
            "a {scheme}:// URL must not hold credentials; give them by environment variables or `[store.options]`"
        ));
    }
    let is_query = if is_http {
        rest.contains(['?', '#'])
    } else {
        // In other schemes `?` and `#` belong to a name, and `?` is a wildcard of a glob.
        has_query(rest)
    };
    if is_query {
        return Err(format!(
            "a {scheme}:// URL cannot have a query; give credentials by environment variables or `[store.options]`"
        ));
    }
    match (scheme, authority.is_empty()) {
        ("file" | "memory", false) => Err(format!(
            "a {scheme}:// URL has three slashes before its first folder, as {scheme}:///a/b"
        )),
        ("file" | "memory", true) | (_, false) => Ok(()),
        (_, true) => Err(format!(
            "a {scheme}:// URL needs the name of {} after the slashes",
            if is_http { "a host" } else { "a bucket" }
        )),
    }
}

/// Whether `?name=` follows a name, as in the query of a signed URL.
fn has_query(rest: &str) -> bool {
    rest.match_indices('?').any(|(at, _)| {
        let query = rest[at + 1..].split_once('=');
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.~%".contains(c);
        query.is_some_and(|(name, _)| !name.is_empty() && name.chars().all(is_name))
    })
}

/// Parses a location that [`check`] accepts; `None` for a path. `?` and `#` are ordinary characters
/// of a name.
pub(crate) fn url(location: &str) -> Result<Option<Url>, url::ParseError> {
    if !location.contains("://") {
        return Ok(None);
    }
    let names = location.replace('?', "%3F").replace('#', "%23");
    Url::parse(&names).map(Some)
}

/// Whether `[store.options]` may hold a key. Keys that the URL sets, and keys that outputs rely on,
/// are not allowed.
pub(crate) fn is_option(key: &str) -> bool {
    let names = [
        "aws_bucket",
        "aws_conditional_put",
        "aws_copy_if_not_exists",
        "google_bucket",
        "azure_container_name",
    ];
    options::canonical(key).is_some_and(|name| !names.contains(&name.as_str()))
}

/// Whether an option configures the connections to any store.
fn is_client_option(key: &str) -> bool {
    key.parse::<ClientConfigKey>().is_ok()
}

/// Retries lost requests and those to a busy store, after growing random waits, so that many runs
/// do not retry at the same moment. One minute in total outlasts a throttled bucket or a restart.
/// Longer outages end the run with an error that says it can be repeated.
///
/// Requests are signed once and the signature holds for five minutes. A request without an answer
/// for 30 seconds (the option `timeout`) counts as lost, so a store that never answers ends a run
/// after 90 seconds. The clients repeat only idempotent requests. A conditional put is not one of
/// them: the run reads the pointer to see what became of it.
fn retry() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(10),
            base: 2.0,
        },
        max_retries: 10,
        retry_timeout: Duration::from_secs(60),
    }
}

/// A builder of a cloud's store, configured by the environment and then by the options. An
/// `$endpoint` without encryption must be allowed explicitly.
macro_rules! cloud {
    ($builder:ty, $options:expr, $root:expr, $endpoint:expr) => {{
        let mut builder = <$builder>::from_env();
        for (key, value) in $options {
            builder = builder.with_config(key.parse()?, value);
        }
        let configured = |key: &str| builder.get_config_value(&key.parse().ok()?);
        let is_plain = |key: &&str| configured(key).is_some_and(|url| url.starts_with("http://"));
        if $endpoint.iter().any(is_plain) && configured("allow_http").as_deref() != Some("true") {
            let cloud = $endpoint[0].split('_').next().unwrap_or_default();
            return Err(format!(
                "its endpoint is http://, which is not encrypted; `allow_http = true` in `[store.options]` allows it, and for executors of a cluster {}_ALLOW_HTTP=true in their environment",
                cloud.to_uppercase()
            )
            .into());
        }
        builder.with_url($root).with_retry(retry())
    }};
}

impl Stores {
    /// Stores with these options, which [`is_option`] accepts.
    pub fn new(options: BTreeMap<String, String>) -> Stores {
        for (key, value) in &options {
            secrets::learn(key, value);
        }
        Stores(Arc::new(Inner {
            options,
            opened: Mutex::default(),
        }))
    }

    /// Uses `store` for a URL such as `memory:///`, behind the same guard as any other store. For
    /// tests and embedders.
    pub fn put(&self, url: &Url, store: Arc<dyn ObjectStore>) {
        let guarded = Guard::new(store, url.scheme());
        let root = url[..Position::BeforePath].to_string();
        let mut opened = self.0.opened.lock().unwrap_or_else(PoisonError::into_inner);
        opened.insert(root, Arc::new(guarded));
    }

    /// Opens the place that a location names. A relative path starts at the current folder.
    ///
    /// # Errors
    /// If the location is not valid or its store cannot be set up.
    pub fn open(&self, location: &str) -> Result<Place> {
        check(location).map_err(Error::spec)?;
        let wrong = |e: Box<dyn std::error::Error + Send + Sync>| {
            Error::with_source(Kind::Spec, format!("{location} is not a path or URL"), e)
        };
        let url = url(location).map_err(|e| wrong(e.into()))?;
        let Some(url) = url.filter(|url| url.scheme() != "file") else {
            let folder = match location.strip_prefix("file://") {
                Some(_) => file_path(location).ok_or_else(|| wrong("it names no file".into()))?,
                None => PathBuf::from(location),
            };
            let folder = canonical(&folder).map_err(|e| wrong(e.into()))?;
            let path = Path::from_absolute_path(&folder).map_err(|e| wrong(e.into()))?;
            let files = LocalFileSystem::new();
            return Ok(Place {
                store: Arc::new(files),
                path,
                folder: Some(folder),
            });
        };
        Ok(Place {
            store: self.store(&url)?,
            path: Path::from_url_path(url.path()).map_err(|e| wrong(e.into()))?,
            folder: None,
        })
    }

    /// The store of a URL that is not a local file.
    ///
    /// # Errors
    /// If the store cannot be set up.
    pub(crate) fn store(&self, url: &Url) -> Result<Arc<dyn ObjectStore>> {
        let root = &url[..Position::BeforePath];
        let mut opened = self.0.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(store) = opened.get(root) {
            return Ok(Arc::clone(store));
        }
        let store = self.make(url.scheme(), root).map_err(|e| {
            let message = format!("the store {root} cannot be set up");
            Error::with_source(Kind::Spec, message, e)
        })?;
        opened.insert(root.to_string(), Arc::clone(&store));
        Ok(store)
    }

    fn make(
        &self,
        scheme: &str,
        root: &str,
    ) -> Result<Arc<dyn ObjectStore>, Box<dyn std::error::Error + Send + Sync>> {
        let cloud = match scheme {
            "s3" => Some("aws_"),
            "gs" => Some("google_"),
            "az" => Some("azure_"),
            _ => None,
        };
        let is_own = |key: &str| cloud.is_some_and(|cloud| key.starts_with(cloud));
        let all = self.0.options.iter();
        let options = all.filter(|(key, _)| is_own(key) || is_client_option(key));
        learn_environment();
        cloud.map_or(Ok(()), |cloud| self.check_values(cloud))?;
        self.check_values("")?;
        type Made = Result<Arc<dyn ObjectStore>, StoreError>;
        let made: Made = match scheme {
            "memory" => return Ok(MEMORY.clone()),
            "s3" => {
                let endpoints = ["aws_endpoint_url", "aws_endpoint_url_s3"];
                let builder = cloud!(AmazonS3Builder, options, root, endpoints);
                // Decides between two runs that end at the same time.
                builder
                    .with_conditional_put(S3ConditionalPut::ETagMatch)
                    .build()
                    .map(|s| Arc::new(s) as _)
            }
            "gs" => {
                let endpoints = ["google_base_url"];
                cloud!(GoogleCloudStorageBuilder, options, root, endpoints)
                    .build()
                    .map(|s| Arc::new(s) as _)
            }
            "az" => {
                let endpoints = ["azure_storage_endpoint"];
                cloud!(MicrosoftAzureBuilder, options, root, endpoints)
                    .build()
                    .map(|s| Arc::new(s) as _)
            }
            _ => {
                let mut client = ClientOptions::new().with_allow_http(scheme == "http");
                for (key, value) in options {
                    client = client.with_config(key.parse()?, value);
                }
                HttpBuilder::new()
                    .with_url(root)
                    .with_retry(retry())
                    .with_client_options(client)
                    .build()
                    .map(|s| Arc::new(s) as _)
            }
        };
        match made {
            Ok(inner) => Ok(Arc::new(Guard::new(inner, scheme))),
            Err(e) => Err(redacted(e).into()),
        }
    }

    /// Checks the values of a cloud, or those of all connections, because the clients panic on
    /// values that cannot be sent. A variable of the environment is not checked if an option
    /// overrides it.
    fn check_values(&self, cloud: &str) -> Result<(), String> {
        let belongs = |key: &str| {
            if cloud.is_empty() {
                is_client_option(key)
            } else {
                key.starts_with(cloud) && options::canonical(key).is_some()
            }
        };
        let options = || self.0.options.iter().filter(|(key, _)| belongs(key));
        for (key, value) in options() {
            check_value(key, value)
                .map_err(|what| format!("`{key}` of `[store.options]` {what}"))?;
        }
        if cloud.is_empty() {
            return Ok(());
        }
        for (name, value) in std::env::vars_os() {
            let Some(name) = name.to_str() else { continue };
            let key = name.to_ascii_lowercase();
            let is_overridden =
                || options().any(|(k, _)| options::canonical(k) == options::canonical(&key));
            if !belongs(&key) || is_overridden() {
                continue;
            }
            let checked = match value.to_str() {
                Some(value) => check_value(&key, value),
                None => Err("is not valid UTF-8".into()),
            };
            checked.map_err(|what| format!("the environment variable {name} {what}"))?;
        }
        Ok(())
    }
}

/// Checks that a value can be sent, and that it is a URL if it must be one. The message does not
/// repeat it.
fn check_value(key: &str, value: &str) -> Result<(), String> {
    let name = options::canonical(key).unwrap_or_default();
    let is_whole_text = ["google_service_account_key", "proxy_ca_certificate"];
    if is_whole_text.contains(&name.as_str()) {
        return Ok(());
    }
    if value.contains(char::is_control) {
        return Err("holds a line break or another control character; take it out".into());
    }
    let is_place = ["_file", "_path", "service_account", "_credentials"];
    if !value.is_ascii() && !is_place.iter().any(|end| name.ends_with(end)) {
        return Err("holds a character that is not ASCII, which cannot be sent".into());
    }
    if is_host_part(&name) && !is_host_word(value) {
        return Err(
            "must hold only letters, digits and `-`: it becomes a part of a host name".into(),
        );
    }
    let is_url = [
        "endpoint",
        "endpoint_url",
        "endpoint_url_s3",
        "endpoint_url_sts",
        "base_url",
    ];
    let is_url = is_url.iter().any(|end| name.ends_with(end)) && !name.starts_with("azure_use");
    if is_url {
        let url = Url::parse(value).ok();
        let is_fine = url.is_some_and(|url| is_http(url.scheme()) && url.host().is_some());
        if !is_fine || !value.contains("://") {
            return Err("is not a URL; write one such as https://host:9000".into());
        }
    }
    Ok(())
}

/// The absolute path without links, `.` and `..`. Components that do not exist keep their names.
pub(crate) fn canonical(name: &std::path::Path) -> std::io::Result<PathBuf> {
    let mut at = PathBuf::new();
    for component in std::path::absolute(name)?.components() {
        match component {
            Component::CurDir => (),
            Component::ParentDir => {
                at.pop();
            }
            part => {
                at.push(part);
                if let Ok(real) = std::fs::canonicalize(&at) {
                    at = real;
                }
            }
        }
    }
    Ok(at)
}

/// The path of a `file://` URL, with `%20` and the like decoded.
fn file_path(location: &str) -> Option<PathBuf> {
    url(location).ok()??.to_file_path().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::{ObjectStoreExt, PutMode, PutPayload};

    pub(crate) fn stores(options: &[(&str, &str)]) -> Stores {
        let options = options.iter();
        Stores::new(
            options
                .map(|(k, v)| (k.to_string(), v.to_string()))
                .collect(),
        )
    }

    #[test]
    fn options_are_the_keys_of_the_stores() {
        for option in OPTIONS.split_whitespace() {
            assert!(is_option(option), "{option}");
        }
        for none in [
            "aws_bucket",
            "bucket",
            "google_bucket_name",
            "azure_container_name",
            "AWS_REGION",
            "region",
            "aws_regio",
            "",
            "gcs_key",
            "aws_conditional_put",
        ] {
            assert!(!is_option(none), "{none}");
        }
    }

    /// No message repeats the location.
    #[test]
    fn locations_are_checked_before_they_are_opened() {
        for fine in [
            "out",
            "/a b/ü",
            "a:b",
            "file:///a/b",
            "s3://lake",
            "s3://lake/a@b:c?d*",
            "s3://lake/part-?/year=2024/*.parquet",
            "./s3:a",
            "gs://a/b/",
            "az://c/d",
            "https://h:8080/f.csv",
            "memory:///a",
            "memory://",
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        let cases = [
            ("s3://AKIA:hidden@lake/a", "must not hold credentials"),
            ("s3://AKIA:hid/den@lake/a", "must not hold credentials"),
            ("az://hidden@account/a", "must not hold credentials"),
            ("https://me:hidden@host/a", "must not hold credentials"),
            ("https://host:hidden/a", "must not hold credentials"),
            ("https://host/a?sig=hidden", "cannot have a query"),
            ("s3://lake/a?sig=hidden", "cannot have a query"),
            (
                "gs://lake/a/?X-Goog-Signature=hidden",
                "cannot have a query",
            ),
            ("az://lake/a?sv=2024&sig=hidden", "cannot have a query"),
            ("file:///a?token=hidden", "cannot have a query"),
            ("https:me:hidden@host/a", "two slashes"),
            ("S3:me:hidden@host/a", "two slashes"),
            ("http:/me:hidden@host/a", "two slashes"),
            ("ftp://host/hidden", "`ftp` locations are not supported"),
            ("hid:den://x", "`these` locations are not supported"),
            ("s3:///hidden", "needs the name of a bucket"),
            ("file://hidden/b", "three slashes"),
            ("memory://hidden/b", "three slashes"),
        ];
        for (location, message) in cases {
            let error = check(location).expect_err(location);
            assert!(error.contains(message), "{location}: {error}");
            assert!(!error.contains("hid"), "{location}: {error}");
        }
    }

    #[test]
    fn a_place_is_a_store_and_a_path() {
        let stores = stores(&[
            ("aws_access_key_id", "id"),
            ("aws_secret_access_key", "key"),
        ]);
        let cases = [
            ("s3://lake/a b/100%25 ü?#/", "a b/100% ü?#"),
            ("memory:///x/y", "x/y"),
            ("http://host:81/x%20y", "x y"),
            ("/tmp/a b%20", "tmp/a b%20"),
            ("file:///tmp/a%20b", "tmp/a b"),
        ];
        for (location, path) in cases {
            let place = stores.open(location).expect(location);
            let is_local = location.contains("tmp");
            assert_eq!(place.folder.is_some(), is_local, "{location}");
            assert_eq!(place.path, Path::parse(path).expect("a path"), "{location}");
        }
        let [one, other] = ["s3://lake/a", "s3://lake/b"].map(|at| stores.open(at).expect(at));
        assert!(Arc::ptr_eq(&one.store, &other.store));
    }

    #[tokio::test]
    async fn memory_is_one_store() {
        let put = Stores::default()
            .open("memory:///stores/a")
            .expect("memory");
        let payload = PutPayload::from_static(b"1");
        put.store.put(&put.path, payload).await.expect("a value");
        let got = Stores::default()
            .open("memory:///stores/a")
            .expect("memory");
        let got = got.store.get(&got.path).await.expect("the value");
        assert_eq!(got.bytes().await.expect("bytes"), "1");
    }

    /// Without these limits a store that never answers would block a run for ever.
    #[test]
    fn requests_time_out() {
        let client = ClientOptions::new();
        let limit = |key: ClientConfigKey| client.get_config_value(&key);
        assert_eq!(limit(ClientConfigKey::Timeout).as_deref(), Some("30s"));
        assert_eq!(
            limit(ClientConfigKey::ConnectTimeout).as_deref(),
            Some("5s")
        );
        assert_eq!(retry().retry_timeout, Duration::from_secs(60));
    }

    /// The clients panic on these values.
    #[test]
    fn values_that_cannot_be_sent_are_named_and_not_repeated() {
        let keys = [
            ("aws_access_key_id", "an-id"),
            ("aws_secret_access_key", "a-key"),
        ];
        let of_s3 = "aws_access_key_id aws_secret_access_key aws_session_token aws_region \
            aws_endpoint_url aws_role_session_name user_agent";
        for key in of_s3.split(' ') {
            for value in ["hid\nden", "hidden\r", "hid\u{7f}den", "hiddén"] {
                let options = keys.iter().filter(|(k, _)| *k != key).copied();
                let options: Vec<_> = options.chain([(key, value)]).collect();
                let opened = stores(&options).open("s3://lake/a");
                let e = opened.err().unwrap_or_else(|| panic!("{key} = {value:?}"));
                let error = e.full();
                assert_eq!(e.kind(), Kind::Spec, "{error}");
                assert!(error.contains(&format!("`{key}`")), "{error}");
                assert!(!error.contains("hid"), "{error}");
            }
        }
        for value in ["hidden/", "hid den", "%hidden", "[hidden", "hidden@x", ""] {
            let opened = stores(&[("aws_region", value)]).open("s3://lake/a");
            let error = opened.err().expect(value).full();
            assert!(
                error.contains("`aws_region`") && !error.contains("hid"),
                "{error}"
            );
        }
        for (cloud, key) in [
            ("s3", "aws_endpoint_url"),
            ("s3", "aws_endpoint"),
            ("gs", "google_base_url"),
            ("az", "azure_storage_endpoint"),
        ] {
            for value in [
                "hidden:9000",
                "hidden",
                "//hidden",
                "ftp://hidden",
                "http:hidden",
                "",
            ] {
                let opened = stores(&[(key, value)]).open(&format!("{cloud}://lake/a"));
                let error = opened.err().expect(key).full();
                assert!(
                    error.contains("is not a URL; write one such as"),
                    "{value}: {error}"
                );
                assert!(error.contains(&format!("`{key}`")), "{error}");
                assert!(!error.contains("hidden"), "{error}");
            }
        }
    }

    #[tokio::test]
    async fn http_is_read_only() {
        let place = Stores::default()
            .open("http://127.0.0.1:9/a")
            .expect("a store");
        let create = PutMode::Create.into();
        let written = place.store.put_opts(&place.path, "1".into(), create).await;
        let error = written.expect_err("read only").to_string();
        assert!(error.contains("are read-only"), "{error}");
        place
            .store
            .delete(&place.path)
            .await
            .expect_err("read only");
    }

    #[test]
    fn set_up_errors_show_no_secrets() {
        let fails = |options: &[(&str, &str)], location: &str| {
            let opened = stores(options).open(location);
            let e = opened.err().expect(location);
            assert_eq!(e.kind(), Kind::Spec);
            e.full()
        };
        let plain = fails(&[("aws_endpoint_url", "http://127.0.0.1:9")], "s3://lake/a");
        assert!(
            plain.contains("s3://lake cannot be set up (its endpoint is http://"),
            "{plain}"
        );
        let wrong = fails(
            &[
                ("aws_access_key_id", "a"),
                ("aws_secret_access_key", "b"),
                ("aws_allow_http", "perhaps"),
            ],
            "s3://lake",
        );
        assert!(wrong.contains("perhaps"), "{wrong}");
        let key = fails(
            &[("google_service_account_key", "\"hidden-in-the-key\"")],
            "gs://lake/a",
        );
        assert!(
            key.contains("gs://lake cannot be set up") && !key.contains("hidden"),
            "{key}"
        );
        let options = [
            ("azure_storage_account_name", "a"),
            ("azure_storage_account_key", "hidden-in-the-key!"),
        ];
        let key = fails(&options, "az://lake/a");
        assert!(
            key.contains("az://lake cannot be set up") && !key.contains("hidden"),
            "{key}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn spellings_of_one_folder_are_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let base = std::fs::canonicalize(folder.path()).expect("a folder");
        std::fs::create_dir_all(base.join("a/b")).expect("a folder");
        std::os::unix::fs::symlink(base.join("a"), base.join("link")).expect("a link");
        for spelling in [
            "a/b",
            "a/b/",
            "./a//b",
            "a/../a/b",
            "link/b",
            "link/../a/b/.",
        ] {
            assert_eq!(
                canonical(&base.join(spelling)).expect("a path"),
                base.join("a/b"),
                "{spelling}"
            );
        }
        // A path that does not exist yet has a canonical name too.
        let new = canonical(&base.join("link/new/./x/../y")).expect("a path");
        assert_eq!(new, base.join("a/new/y"));
    }
}
