//! The error type of the crate: a kind that decides what the caller can do, a sentence that names
//! the culprit, and the cause.

use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::error::Error as StdError;

/// The result of a fallible gyre function.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. Two kinds differ if the caller's next step differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Kind {
    /// The pipeline file or the command line is wrong.
    Spec,
    /// The data cannot be used as the pipeline asks.
    Input,
    /// A check on the result failed; nothing was promoted.
    Check,
    /// The object store refused or failed.
    Store,
    /// Another run holds or has changed the output, or the input changed while it was read.
    Conflict,
    /// Memory, disk or another resource ran out.
    Resources,
    /// The user stopped the run.
    Cancelled,
    /// gyre violated one of its own guarantees.
    Bug,
}

impl Kind {
    /// The name of the kind in run records.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Spec => "spec",
            Kind::Input => "input",
            Kind::Check => "check",
            Kind::Store => "store",
            Kind::Conflict => "conflict",
            Kind::Resources => "resources",
            Kind::Cancelled => "cancelled",
            Kind::Bug => "bug",
        }
    }

    /// The process exit code; 0 is success. `main.rs` is the only place that exits.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Input | Kind::Bug => 1,
            Kind::Spec => 2,
            Kind::Check => 3,
            Kind::Store | Kind::Conflict | Kind::Resources => 75,
            Kind::Cancelled => 130,
        }
    }

    /// Whether the same command may succeed later without any change by the user.
    pub(crate) fn is_retryable(self) -> bool {
        matches!(self, Kind::Store | Kind::Conflict | Kind::Resources)
    }
}

/// An error of gyre. `message` is one sentence for a person, without a full stop. Only an error
/// that lists others has further lines: a line break that comes from data is an escape.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: Kind,
    message: String,
    #[source]
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error without a cause. The message is one line: its line breaks and tabs are escapes.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self::restored(kind, in_one_line(&message.into()))
    }

    /// An error whose message is the [`full`](Self::full) text of another error.
    pub(crate) fn restored(kind: Kind, message: impl Into<String>) -> Self {
        Error {
            kind,
            message: message.into(),
            source: None,
        }
    }

    /// An error with further lines under its message, such as the [`full`](Self::full) texts of
    /// others. Their line breaks stay.
    pub(crate) fn with_lines(kind: Kind, message: &str, lines: &[String]) -> Self {
        let lines = lines.iter().map(|line| line.replace('\n', "\n  "));
        let lines = lines.map(|line| format!("\n  {line}")).collect::<String>();
        Self::restored(kind, in_one_line(message) + &lines)
    }

    /// An error with its cause.
    pub fn with_source(
        kind: Kind,
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        Error {
            source: Some(source.into()),
            ..Self::new(kind, message)
        }
    }

    /// An operation that a store or a file system failed to do: [`Kind::Resources`] if the disk or
    /// the quota is full, [`Kind::Spec`] if something is [in the way](InTheWay), else
    /// [`Kind::Store`].
    pub(crate) fn store(
        message: impl Into<String>,
        source: impl Into<Box<dyn StdError + Send + Sync>>,
    ) -> Self {
        let source = source.into();
        let kind = if is_full(source.as_ref()) {
            Kind::Resources
        } else if is_in_the_way(source.as_ref()) {
            Kind::Spec
        } else {
            Kind::Store
        };
        Self::with_source(kind, message, source)
    }

    /// An error of kind [`Kind::Spec`].
    pub(crate) fn spec(message: impl Into<String>) -> Self {
        Self::new(Kind::Spec, message)
    }

    /// An error of kind [`Kind::Input`].
    pub(crate) fn input(message: impl Into<String>) -> Self {
        Self::new(Kind::Input, message)
    }

    /// Joins several errors of a pipeline file into one, one line per distinct error. Returns
    /// `None` for an empty list.
    pub(crate) fn all(mut errors: Vec<Error>) -> Option<Self> {
        let mut lines: Vec<String> = Vec::new();
        for e in &errors {
            let line = e.full();
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
        match lines.len() {
            0 => None,
            1 => Some(errors.swap_remove(0)),
            n => Some(Error::with_lines(
                Kind::Spec,
                &format!("{n} errors"),
                &lines,
            )),
        }
    }

    /// An error of kind [`Kind::Bug`].
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(Kind::Bug, message)
    }

    /// The kind of the error.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Prefixes the message with the place where the error happened.
    pub(crate) fn at(mut self, place: impl std::fmt::Display) -> Self {
        self.message = format!("{}: {}", in_one_line(&place.to_string()), self.message);
        self
    }

    /// The message, followed in brackets by each cause that adds information.
    pub fn full(&self) -> String {
        causes(self).skip(1).fold(self.message.clone(), |text, e| {
            let more = match e.downcast_ref::<Error>() {
                Some(e) => e.message.clone(),
                None => in_one_line(&e.to_string()),
            };
            if text.contains(&more) {
                text
            } else {
                format!("{text} ({more})")
            }
        })
    }
}

/// A path inside an output leads through a link, or to something else that gyre never makes, such
/// as a pipe, or to a folder in place of a file. What a link leads to may not belong to gyre.
#[derive(Debug, thiserror::Error)]
#[error("{} is {what}{}", .path.display(), if *.is_folder { REMOVE } else { REPLACE })]
pub(crate) struct InTheWay {
    path: std::path::PathBuf,
    what: &'static str,
    is_folder: bool,
}

const REMOVE: &str = " where gyre needs a file; remove or rename the folder";
const REPLACE: &str =
    ", and no result is read, written or removed through it; put the file or folder itself there";

impl InTheWay {
    /// What is in the way at a path, if anything. Nothing is, if nothing is there.
    pub(crate) fn at(path: &std::path::Path) -> Option<InTheWay> {
        let found = std::fs::symlink_metadata(path).ok()?.file_type();
        let what = match (found.is_symlink(), found.is_file() || found.is_dir()) {
            (true, _) => "a link",
            (false, false) => "neither a file nor a folder",
            (false, true) => return None,
        };
        Some(InTheWay {
            path: path.to_path_buf(),
            what,
            is_folder: false,
        })
    }

    /// The folder at a path, if there is one.
    pub(crate) fn folder(path: &std::path::Path) -> Option<InTheWay> {
        let is_folder = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
        is_folder.then(|| InTheWay {
            path: path.to_path_buf(),
            what: "a folder",
            is_folder,
        })
    }

    /// What is in the way of a file at a path, if anything.
    pub(crate) fn of_file(path: &std::path::Path) -> Option<InTheWay> {
        InTheWay::at(path).or_else(|| InTheWay::folder(path))
    }
}

/// Whether the error was caused by something [in the way](InTheWay).
pub(crate) fn is_in_the_way(e: &(dyn StdError + 'static)) -> bool {
    causes(e).any(|e| e.is::<InTheWay>())
}

/// An error and its causes.
fn causes<'e>(
    e: &'e (dyn StdError + 'static),
) -> impl Iterator<Item = &'e (dyn StdError + 'static)> {
    std::iter::successors(Some(e), |&e| e.source())
}

/// Whether an error is one of the system of such a kind, or was caused by one.
fn is_of_system(
    e: &(dyn StdError + 'static),
    is_wanted: impl Fn(std::io::ErrorKind) -> bool,
) -> bool {
    let mut found = causes(e).filter_map(|e| e.downcast_ref::<std::io::Error>());
    found.any(|e| is_wanted(e.kind()))
}

/// Whether the error was caused by missing permission for a file.
pub(crate) fn is_denied(e: &(dyn StdError + 'static)) -> bool {
    is_of_system(e, |kind| kind == std::io::ErrorKind::PermissionDenied)
}

/// Whether the error was caused by a full disk, an exhausted quota or a file size limit.
pub(crate) fn is_full(e: &(dyn StdError + 'static)) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    is_of_system(e, |kind| {
        matches!(kind, StorageFull | QuotaExceeded | FileTooLarge)
    })
}

/// The candidate that is closest to `word`, if any is within a third of its length in edits.
pub(crate) fn nearest<'c>(word: &str, candidates: &[&'c str]) -> Option<&'c str> {
    let word = word.to_lowercase();
    candidates
        .iter()
        .map(|c| (strsim::damerau_levenshtein(&word, &c.to_lowercase()), *c))
        .filter(|(distance, c)| *distance <= (c.chars().count() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, c)| c)
}

/// The end of a message about an unknown `word`: the nearest candidate if there is one, else all
/// candidates.
pub(crate) fn hint(word: &str, candidates: &[&str]) -> String {
    if let Some(near) = nearest(word, candidates) {
        return format!("; did you mean `{near}`?");
    }
    match candidates {
        [] => String::new(),
        [only] => format!("; there is `{only}`"),
        _ => format!("; there are `{}`", candidates.join("`, `")),
    }
}

/// Whether a terminal obeys a character instead of showing it, or shows the text around it in
/// another order.
pub fn is_hidden(c: char) -> bool {
    let reorders = matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2066}'..='\u{2069}'
    );
    // From the separators of lines and paragraphs to the right-to-left override.
    c.is_control() || reorders || matches!(c, '\u{2028}'..='\u{202e}' | '\u{feff}')
}

/// A value as a message shows it: in one line, with escapes for characters that are not shown.
pub fn escaped(text: &str) -> String {
    text.chars()
        .fold(String::with_capacity(text.len()), |mut shown, c| {
            if is_hidden(c) {
                shown.extend(c.escape_default());
            } else {
                shown.push(c);
            }
            shown
        })
}

/// A text with escapes for the line breaks and tabs in it, which [`printable`] leaves. JSON has the
/// values of all other characters.
fn in_one_line(text: &str) -> String {
    text.replace('\n', "\\n").replace('\t', "\\t")
}

/// Lines of text as a terminal may get them: [`escaped`] except for line breaks and tabs.
pub fn printable(text: &str) -> Cow<'_, str> {
    without_hidden(text, |c| c.escape_default().to_string())
}

/// JSON as a terminal may get it. Its strings have the same values, because the escapes are those
/// of JSON.
pub fn printable_json(json: &str) -> Cow<'_, str> {
    without_hidden(json, |c| format!("\\u{:04x}", u32::from(c)))
}

fn without_hidden(text: &str, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    let is_hidden = |c: char| is_hidden(c) && c != '\n' && c != '\t';
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) {
            shown.push_str(&escape(c));
        } else {
            shown.push(c);
        }
    }
    Cow::Owned(shown)
}

/// A number and a noun: `1 table`, `2 tables`, `3 trajectories`. The number may be text, such as
/// `1,000`.
pub(crate) fn counted(n: impl std::fmt::Display, one: &str) -> String {
    let n = n.to_string();
    match (n.as_str(), one.strip_suffix('y')) {
        ("1", _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        (_, None) => format!("{n} {one}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_are_not_shown_are_escaped() {
        let hidden = "\u{1b}[2J\u{202e}\u{9b}1m\u{7f}\r\0\u{200f}\u{2069}\u{61c}\u{feff}\u{2028}";
        let text = format!("é 日本\t{hidden}\n");
        let all = [escaped(&text), printable(&text).into_owned()];
        assert_eq!(
            all[0],
            "é 日本\\t\\u{1b}[2J\\u{202e}\\u{9b}1m\\u{7f}\\r\\u{0}\\u{200f}\\u{2069}\\u{61c}\\u{feff}\\u{2028}\\n"
        );
        assert_eq!(all[0].replace("\\t", "\t").replace("\\n", "\n"), all[1]);
        // JSON has the same values.
        let json = serde_json::json!({ (hidden): [text] });
        for json in [json.to_string(), format!("{json:#}\n")] {
            let shown = printable_json(&json);
            assert!(!shown.contains(|c| is_hidden(c) && c != '\n'), "{shown}");
            let [shown, json]: [serde_json::Value; 2] =
                [&*shown, &*json].map(|text| serde_json::from_str(text).expect("JSON"));
            assert_eq!(shown, json);
        }
    }

    #[test]
    fn line_breaks_of_data_are_escapes_in_errors() {
        let cell = "a\nb\r\tc\u{1b}";
        let shown = r"a\nb\r\tc\u{1b}";
        let plain = || Error::input(format!("no `{cell}`"));
        let listed = || Error::all(vec![plain(), Error::spec(cell)]).expect("an error");
        let list = format!("2 errors\n  no `{shown}`\n  {shown}");
        let check = |e: Error, expected: String| assert_eq!(printable(&e.full()), expected);
        check(plain(), format!("no `{shown}`"));
        check(plain().at(cell), format!("{shown}: no `{shown}`"));
        let caused =
            Error::with_source(Kind::Store, cell, std::io::Error::other(format!("{cell}!")));
        check(caused, format!("{shown} ({shown}!)"));
        check(listed(), list.clone());
        check(listed().at("x"), format!("x: {list}"));
        check(Error::restored(Kind::Spec, listed().full()), list.clone());
        check(
            Error::with_source(Kind::Store, "x", listed()),
            format!("x ({list})"),
        );
        let nested = Error::with_lines(Kind::Check, cell, &[listed().full()]);
        check(nested, format!("{shown}\n  {}", list.replace('\n', "\n  ")));
    }

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(counted(1, "table"), "1 table");
        assert_eq!(counted(0, "table"), "0 tables");
        assert_eq!(counted("1,000", "row"), "1,000 rows");
        assert_eq!(counted("1", "trajectory"), "1 trajectory");
        assert_eq!(counted(2, "trajectory"), "2 trajectories");
    }
}
