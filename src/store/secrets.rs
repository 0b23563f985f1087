//! Hides the credentials of stores. Everything that the process prints, logs or writes about a run
//! goes through [`hide`]. Tables do not, because they hold only data.
//!
//! Secrets are recognised by the names of their options and variables. The user info before the `@`
//! of a URL, and signatures in its query, are hidden whether they are known or not.

use crate::store::location::SCHEMES;
use serde_json::Value;
use std::borrow::Cow;
use std::sync::{Once, PoisonError, RwLock};
use url::{Url, form_urlencoded};

const HIDDEN: &str = "***";

/// Shorter values are not hidden, because that would hide ordinary words.
const SHORTEST: usize = 8;

/// All spellings of the known secrets, longest first.
static KNOWN: RwLock<Vec<String>> = RwLock::new(Vec::new());

/// Words in the names of secrets.
const WORDS: [&str; 9] = [
    "key",
    "secret",
    "token",
    "password",
    "passwd",
    "sas",
    "credential",
    "signature",
    "connection_string",
];

/// Endings of names that only say where a secret is or how to use one.
const NO_SECRETS: [&str; 8] = [
    "_file",
    "_path",
    "_uri",
    "_url",
    "_kms_key_id",
    "_key_enabled",
    "application_credentials",
    "_config_file",
];

/// Learns the secrets in the environment. Only the first call has an effect.
pub fn learn_environment() {
    static LEARNED: Once = Once::new();
    LEARNED.call_once(|| {
        for (name, value) in std::env::vars_os() {
            let (Some(name), Some(value)) = (name.to_str(), value.to_str()) else {
                continue;
            };
            let name = name.to_ascii_lowercase();
            let clouds = ["aws_", "azure_", "google_"];
            if clouds.iter().any(|cloud| name.starts_with(cloud)) || name.ends_with("_proxy") {
                learn(&name, value);
            }
        }
    });
}

/// Learns the value of an option or variable if its name marks it as secret, and any credentials in
/// it if it is a URL.
pub(crate) fn learn(name: &str, value: &str) {
    let name = name.to_ascii_lowercase();
    let mut found = Vec::new();
    if is_secret(&name) {
        found.push(value.to_string());
        found.extend(value.lines().map(String::from));
        // A shared access signature, or the JSON of a service account.
        found.extend(signatures(value.trim_start_matches('?')));
        if let Ok(Value::Object(fields)) = serde_json::from_str(value) {
            let fields = fields.iter().filter(|(key, _)| is_secret(key));
            let texts = fields.filter_map(|(_, value)| value.as_str());
            found.extend(
                texts
                    .flat_map(|text| text.lines().chain([text]))
                    .map(String::from),
            );
        }
    }
    if let Ok(url) = Url::parse(value) {
        found.push(url.username().to_string());
        found.extend(url.password().map(String::from));
        found.extend(url.query().into_iter().flat_map(signatures));
    }
    let found = found.iter().map(|secret| secret.trim());
    let new: Vec<String> = found
        .flat_map(spellings)
        .filter(|secret| secret.len() >= SHORTEST)
        .collect();
    if new.is_empty() {
        return;
    }
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    known.extend(new);
    known.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    known.dedup();
}

fn is_secret(name: &str) -> bool {
    WORDS.iter().any(|word| name.contains(word))
        && !NO_SECRETS.iter().any(|end| name.ends_with(end))
}

/// The values of the parameters of a query that hold a signature.
fn signatures(query: &str) -> Vec<String> {
    let signatures =
        form_urlencoded::parse(query.as_bytes()).filter(|(name, _)| is_signature(name));
    signatures.map(|(_, value)| value.into_owned()).collect()
}

/// Whether a query parameter holds a signature.
fn is_signature(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "sig" || is_secret(&name)
}

/// The spellings of a secret in a URL, in JSON and in debug output.
fn spellings(secret: &str) -> [String; 6] {
    let encoded = |plain: &str| {
        let bytes = plain.bytes().map(|b| match b {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'_' | b'.' | b'~' => {
                (b as char).to_string()
            }
            b => format!("%{b:02X}"),
        });
        bytes.collect::<String>()
    };
    // The form parser also reads `+` as a space, which is right only in forms.
    let decoded = form_urlencoded::parse(secret.replace('+', "%2B").as_bytes())
        .map(|(name, value)| {
            if value.is_empty() {
                name.into_owned()
            } else {
                format!("{name}={value}")
            }
        })
        .collect::<Vec<_>>()
        .join("&");
    let json = Value::from(secret).to_string();
    let debug = format!("{secret:?}");
    [
        secret.to_string(),
        encoded(secret),
        form_urlencoded::byte_serialize(secret.as_bytes()).collect(),
        decoded,
        json[1..json.len() - 1].to_string(),
        debug[1..debug.len() - 1].to_string(),
    ]
}

/// The text without secrets. JSON stays valid JSON: in objects and lists only strings change.
pub fn hide(text: &str) -> Cow<'_, str> {
    let hidden = hide_text(text);
    if matches!(hidden, Cow::Borrowed(_)) || !text.starts_with(['{', '[']) {
        return hidden;
    }
    let Ok(mut value) = serde_json::from_str(text) else {
        return hidden;
    };
    hide_texts(&mut value);
    let end = if text.ends_with('\n') { "\n" } else { "" };
    if text.trim_end().contains('\n') {
        format!("{value:#}{end}").into()
    } else {
        format!("{value}{end}").into()
    }
}

fn hide_texts(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Cow::Owned(hidden) = hide_text(text) {
                *text = hidden;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide_texts),
        Value::Object(fields) => {
            let all = std::mem::take(fields);
            fields.extend(all.into_iter().map(|(key, mut value)| {
                hide_texts(&mut value);
                (hide_text(&key).into_owned(), value)
            }));
        }
        _ => (),
    }
}

fn hide_text(text: &str) -> Cow<'_, str> {
    let mut text = Cow::Borrowed(text);
    {
        let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
        for secret in known.iter() {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), HIDDEN).into();
            }
        }
    }
    for range in credentials_in_urls(&text).into_iter().rev() {
        text.to_mut().replace_range(range, HIDDEN);
    }
    text
}

/// The ranges of user info before the `@` of URLs, and of signatures in queries: sorted and
/// disjoint.
fn credentials_in_urls(text: &str) -> Vec<std::ops::Range<usize>> {
    let ends = |rest: &str, more: &[char]| {
        let is_end = |c: char| c.is_whitespace() || "\"'`<>\\)".contains(c) || more.contains(&c);
        rest.find(is_end).unwrap_or(rest.len())
    };
    let mut found = Vec::new();
    for (at, _) in text.match_indices(':') {
        let rest = &text[at + 1..];
        let slashes = rest.len() - rest.trim_start_matches('/').len();
        let before = text[..at]
            .rsplit(|c: char| !c.is_ascii_alphanumeric())
            .next();
        let is_scheme = SCHEMES
            .iter()
            .any(|known| before.is_some_and(|word| word.eq_ignore_ascii_case(known)));
        // A known scheme counts as a URL even without slashes.
        if slashes < 2 && !is_scheme {
            continue;
        }
        let start = at + 1 + slashes;
        let rest = &text[start..];
        let authority = &rest[..ends(rest, &['/', '?', '#'])];
        if let Some(at) = authority.rfind('@') {
            found.push(start..start + at);
        }
    }
    for (at, _) in text.match_indices(['?', '&']) {
        let rest = &text[at + 1..];
        let Some((name, value)) = rest.split_once('=') else {
            continue;
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || !name.chars().all(is_name) || !is_signature(name) {
            continue;
        }
        let start = at + 1 + name.len() + 1;
        let end = start + ends(value, &['&', '#']);
        found.push(start..end);
    }
    found.retain(|range| !range.is_empty() && &text[range.clone()] != HIDDEN);
    found.sort_by_key(|range| range.start);
    // Drop ranges of a URL inside the query of another.
    let mut last = 0;
    found.retain(|range| {
        let is_apart = range.start >= last;
        last = last.max(range.end);
        is_apart
    });
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn credentials_in_urls_are_hidden_known_or_not() {
        for (text, expected) in [
            (
                "GET http://me:pw@host:9000/b?list=2 failed",
                "GET http://***@host:9000/b?list=2 failed",
            ),
            (
                "pipeline https:me:pw@host is gone",
                "pipeline https:***@host is gone",
            ),
            ("(http://p@ss:w@rd@host)", "(http://***@host)"),
            (
                "https://host/a?sv=1&sig=ab%2Fc&se=2 gone",
                "https://host/a?sv=1&sig=***&se=2 gone",
            ),
            (
                "\"s3://b/x?X-Amz-Signature=0a1b\"",
                "\"s3://b/x?X-Amz-Signature=***\"",
            ),
            ("s3://lake/a@b and file:///a", "s3://lake/a@b and file:///a"),
            (
                "SELECT a FROM t WHERE b = '?' AND c = 1",
                "SELECT a FROM t WHERE b = '?' AND c = 1",
            ),
        ] {
            assert_eq!(hide(text), expected);
            assert_eq!(hide(expected), expected);
        }
    }

    #[test]
    fn secrets_are_recognised_by_name() {
        let secret = "aws_access_key_id aws_secret_access_key aws_session_token aws_sse_customer_key_base64 \
            azure_storage_account_key azure_storage_sas_key azure_storage_sas_token \
            azure_client_secret google_service_account_key azure_storage_connection_string";
        for name in secret.split(' ') {
            assert!(is_secret(name), "{name}");
        }
        let open = "aws_region aws_endpoint_url aws_web_identity_token_file aws_sse_kms_key_id \
            aws_sse_bucket_key_enabled aws_container_credentials_relative_uri \
            google_application_credentials google_service_account \
            azure_storage_account_name";
        for name in open.split(' ') {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn signatures_and_service_accounts_are_parsed() {
        learn(
            "azure_storage_sas_key",
            "sv=2024-01-01&sp=r&sig=Pl4nted%2FSignature%3D",
        );
        assert_eq!(hide("it was Pl4nted/Signature= there"), "it was *** there");
        assert_eq!(hide("it was Pl4nted%2FSignature%3D"), "it was ***");
        let account =
            r#"{"client_email": "a@b.example", "private_key": "-----BEGIN\nPlantedLineOfAKey\n"}"#;
        learn("google_service_account_key", account);
        assert_eq!(
            hide("PlantedLineOfAKey of a@b.example"),
            "*** of a@b.example"
        );
    }

    #[test]
    fn json_stays_json() {
        learn("aws_secret_access_key", "9081726354");
        let text = r#"{"rows":9081726354,"of":"key 9081726354","9081726354":[1]}"#;
        assert_eq!(
            hide(text),
            r#"{"rows":9081726354,"of":"key ***","***":[1]}"#
        );
        assert_eq!(hide("9081726354 rows"), "*** rows");
    }

    proptest! {
        /// A secret is found in text, in JSON, in a URL and in debug output, with any characters.
        #[test]
        fn secrets_are_hidden_in_every_spelling(tail in "[ -~]{0,16}", unicode in "\\PC{0,4}") {
            let secret = format!("Planted7{tail}{unicode}z");
            learn("aws_secret_access_key", &secret);
            let encoded: String = form_urlencoded::byte_serialize(secret.as_bytes()).collect();
            let json = serde_json::json!({ "message": format!("got {secret}") });
            for text in [
                format!("got {secret}."),
                format!("{:?}", format!("got {secret}.")),
                format!("http://host/a?x={encoded}."),
                json.to_string(),
                format!("{json:#}"),
            ] {
                let hidden = hide(&text);
                prop_assert!(!hidden.contains("Planted7"), "{} of {}", hidden, text);
            }
        }
    }
}
