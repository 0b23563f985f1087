//! What a test needs beside Rust: packages and programs that `.ci/run` installs, and abilities of
//! the machine.
//!
//! If something is missing, the test prints that it is skipped. With `GYRE_REQUIRE_PEERS=1` it
//! fails. Only a missing ability that `GYRE_CANNOT` names is then skipped.

use std::env;
use std::path::PathBuf;
use std::process::Command;

#[derive(Debug, PartialEq)]
enum Verdict {
    Run,
    Skip(String),
    Fail(String),
}

/// The values of the two variables.
#[derive(Debug, Clone, Copy)]
struct Rule<'a> {
    require: Option<&'a str>,
    cannot: Option<&'a str>,
}

impl Rule<'_> {
    /// What to do with a test. `missing` says what is missing and how to get it. `word` names the
    /// ability in `GYRE_CANNOT`, and is `None` for what `.ci/run` installs.
    fn verdict(self, word: Option<&str>, missing: Option<&str>) -> Verdict {
        let Some(missing) = missing else {
            return Verdict::Run;
        };
        let requires = !matches!(self.require, None | Some("" | "0"));
        let mut named = self.cannot.unwrap_or_default().split(',').map(str::trim);
        match word {
            _ if !requires => Verdict::Skip(missing.to_string()),
            Some(word) if named.any(|name| name == word) => {
                Verdict::Skip(format!("GYRE_CANNOT names {word}: {missing}"))
            }
            Some(word) => Verdict::Fail(format!(
                "{missing}; if this machine cannot do it, put the word {word} into GYRE_CANNOT"
            )),
            None => Verdict::Fail(format!("{missing} (GYRE_REQUIRE_PEERS is set)")),
        }
    }
}

#[track_caller]
fn decide<T>(word: Option<&str>, found: Result<T, String>) -> Option<T> {
    let [require, cannot] = ["GYRE_REQUIRE_PEERS", "GYRE_CANNOT"].map(|name| env::var(name).ok());
    let rule = Rule {
        require: require.as_deref(),
        cannot: cannot.as_deref(),
    };
    let missing = found.as_ref().err().map(String::as_str);
    match rule.verdict(word, missing) {
        Verdict::Run => (),
        Verdict::Skip(why) => eprintln!("skipped: {why}"),
        Verdict::Fail(why) => panic!("{why}"),
    }
    found.ok()
}

/// Whether to run tests that take minutes.
pub fn is_slow() -> bool {
    let is_wanted = env::var_os("GYRE_SLOW_TESTS").is_some();
    if !is_wanted {
        eprintln!("skipped: GYRE_SLOW_TESTS is not set");
    }
    is_wanted
}

/// The Python of `GYRE_PYTHON`, if it can import the modules.
#[track_caller]
pub fn python(modules: &[&str]) -> Option<String> {
    let unset = |_| "set GYRE_PYTHON to a Python with the packages of .ci/run".to_string();
    let has = |python: String| {
        let ran = Command::new(&python)
            .args(["-c", MISSING])
            .args(modules)
            .output();
        let ran = ran.map_err(|e| format!("GYRE_PYTHON={python} does not start: {e}"))?;
        let missing = String::from_utf8_lossy(&ran.stdout);
        match (ran.status.success(), missing.trim()) {
            (true, "") => Ok(python),
            (true, missing) => Err(format!("GYRE_PYTHON={python} has no {missing}")),
            _ => Err(format!("GYRE_PYTHON={python} runs no script: {ran:?}")),
        }
    };
    decide(None, env::var("GYRE_PYTHON").map_err(unset).and_then(has))
}

/// Prints those of the modules that Python does not find. To import them takes seconds.
const MISSING: &str = r#"
import importlib.util, sys
def has(module):
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False
print(", ".join(module for module in sys.argv[1:] if not has(module)))
"#;

/// The first of these programs that is installed.
#[cfg(feature = "report")]
#[track_caller]
pub fn program(names: &[&str]) -> Option<PathBuf> {
    decide(None, installed(names))
}

/// The program that a variable names.
#[track_caller]
pub fn program_of(variable: &str, name: &str) -> Option<PathBuf> {
    let path = env::var_os(variable).map(PathBuf::from);
    let found = path.filter(|path| path.exists());
    decide(
        None,
        found.ok_or_else(|| format!("{variable} names no {name}")),
    )
}

/// What a machine may be unable to do, under its word in `GYRE_CANNOT`.
#[track_caller]
pub fn ability<T>(word: &str, found: Result<T, String>) -> Option<T> {
    decide(Some(word), found)
}

/// The path of the first of these programs that is installed.
///
/// # Errors
/// If none is.
pub fn installed(names: &[&str]) -> Result<PathBuf, String> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = env::split_paths(&folders).collect();
    let paths = names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let found = paths.into_iter().find(|path| path.is_file());
    found.ok_or_else(|| format!("install {}", names.join(" or ")))
}

#[test]
fn only_named_abilities_are_skipped_if_peers_are_required() {
    use Verdict::{Fail, Run, Skip};
    let missing = Some("install x");
    let skip = |why: &str| Skip(why.to_string());
    let fail = |why: &str| Fail(why.to_string());
    let named = || skip("GYRE_CANNOT names netns: install x");
    let unnamed =
        || fail("install x; if this machine cannot do it, put the word netns into GYRE_CANNOT");
    let required = || fail("install x (GYRE_REQUIRE_PEERS is set)");
    // GYRE_REQUIRE_PEERS, GYRE_CANNOT, the verdict on a peer and that on the ability netns.
    let cases = [
        (None, None, skip("install x"), skip("install x")),
        (Some(""), None, skip("install x"), skip("install x")),
        (
            Some("0"),
            Some("netns"),
            skip("install x"),
            skip("install x"),
        ),
        (Some("1"), None, required(), unnamed()),
        (Some("1"), Some(""), required(), unnamed()),
        (Some("1"), Some("mount,net"), required(), unnamed()),
        (Some("1"), Some("netns"), required(), named()),
        (Some("yes"), Some("mount, netns"), required(), named()),
    ];
    for (require, cannot, of_peer, of_ability) in cases {
        let rule = Rule { require, cannot };
        assert_eq!(rule.verdict(None, missing), of_peer, "{rule:?}");
        assert_eq!(rule.verdict(Some("netns"), missing), of_ability, "{rule:?}");
        for word in [None, Some("netns")] {
            assert_eq!(rule.verdict(word, None), Run, "{rule:?}");
        }
    }
}
