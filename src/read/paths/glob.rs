//! Glob patterns, the same on every store: `*` and `?` match within a folder, `**` across folders;
//! `[..]` and `{a,b}` also work.
//!
//! gyre matches patterns itself on the names that a store lists. Folders that cannot contain a
//! match are not listed.

use crate::read::paths::lakehouse;
use crate::read::paths::lakehouse::Marks;
use futures::{StreamExt, TryStreamExt, stream};
use glob::MatchOptions;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Folders that are listed concurrently.
const CONCURRENT_LISTS: usize = 32;

/// Most patterns that the braces of one pattern may expand to.
const MAX_PATTERNS: usize = 1000;

/// Names with a leading dot are handled by `is_hidden`.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A glob below a folder, as one pattern per choice of its braces.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    choices: Vec<Choice>,
    /// The pattern ends with a slash: it matches folders and every file in them.
    pub is_of_folders: bool,
}

/// A pattern without braces.
#[derive(Debug, Clone)]
struct Choice {
    whole: glob::Pattern,
    /// One pattern per folder level; `None` is `**`, which matches this level and all below it.
    levels: Vec<Option<glob::Pattern>>,
}

/// Position of the first wildcard character; `None` for a plain path.
pub(crate) fn special(path: &str) -> Option<usize> {
    path.find(['*', '?', '[', '{'])
}

/// End of the character class that starts with the `[` at the front of `text`.
fn class_end(text: &str) -> Option<usize> {
    let first = text[1..].trim_start_matches('!');
    let begin = text.len() - first.len();
    // A `]` directly after the opening bracket is a literal.
    let from = begin + first.chars().next()?.len_utf8();
    text[from..].find(']').map(|at| from + at)
}

/// Expands braces, which may be nested.
fn choices(text: &str) -> Result<Vec<String>, String> {
    let (mut depth, mut open, mut cuts) = (0usize, None, Vec::new());
    let mut at = 0;
    while let Some(c) = text[at..].chars().next() {
        match c {
            '[' => at += class_end(&text[at..]).unwrap_or(0),
            '{' => {
                depth += 1;
                open.get_or_insert(at);
            }
            ',' if depth == 1 => cuts.push(at),
            '}' if depth == 1 => {
                let open: usize = open.unwrap_or(at);
                let (head, tail) = (&text[..open], &text[at + 1..]);
                let mut all = Vec::new();
                let mut from = open + 1;
                for to in cuts.into_iter().chain([at]) {
                    all.extend(choices(&format!("{head}{}{tail}", &text[from..to]))?);
                    from = to + 1;
                    if all.len() > MAX_PATTERNS {
                        return Err(format!(
                            "its braces expand to more than {MAX_PATTERNS} patterns"
                        ));
                    }
                }
                return Ok(all);
            }
            '}' => depth = depth.saturating_sub(1),
            _ => (),
        }
        at += text[at..].chars().next().map_or(1, char::len_utf8);
    }
    match depth {
        0 => Ok(vec![text.to_string()]),
        _ => Err("a `{` has no `}`".into()),
    }
}

impl Choice {
    fn new(text: &str, is_of_folders: bool) -> Result<Choice, String> {
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .chain(is_of_folders.then_some("**/*"))
            .collect();
        if parts.is_empty() {
            return Err("one of its choices is empty".into());
        }
        let wrong = |e: glob::PatternError| e.msg.to_string();
        let whole = glob::Pattern::new(&parts.join("/")).map_err(wrong)?;
        let level = |part: &&str| {
            if part.starts_with("**") {
                Ok(None)
            } else {
                glob::Pattern::new(part).map(Some).map_err(wrong)
            }
        };
        let levels = parts.iter().map(level).collect::<Result<_, String>>()?;
        Ok(Choice { whole, levels })
    }

    /// Whether the pattern names files with this first character explicitly; hidden names are
    /// skipped otherwise.
    fn names(&self, first: char) -> bool {
        let mut levels = self.levels.iter().flatten();
        levels.any(|level| level.as_str().starts_with(first))
    }

    /// Whether the pattern matches a file, given relative to its folder.
    fn matches(&self, below: &str) -> bool {
        let is_match = self.whole.matches_with(below, OPTIONS);
        is_match && !is_hidden(below, Some(self))
    }
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub(crate) fn new(text: &str) -> Result<Pattern, String> {
        let is_of_folders = text.ends_with('/');
        let choices = choices(text)?;
        let choices = choices.iter().map(|text| Choice::new(text, is_of_folders));
        Ok(Pattern {
            choices: choices.collect::<Result<_, String>>()?,
            is_of_folders,
        })
    }

    /// Whether the pattern matches a file, given relative to its folder.
    pub(crate) fn matches(&self, below: &str) -> bool {
        self.choices.iter().any(|choice| choice.matches(below))
    }

    /// Whether the pattern may match a file somewhere below a folder, given as folder names
    /// relative to the folder of the pattern.
    pub(crate) fn may_match_below(&self, folders: &[&str]) -> bool {
        let may_match = |choice: &Choice| {
            let mut folders = folders.iter();
            for level in &choice.levels {
                match (level, folders.next()) {
                    (None, _) | (_, None) => return true,
                    (Some(level), Some(folder)) if !level.matches_with(folder, OPTIONS) => {
                        return false;
                    }
                    _ => (),
                }
            }
            // All levels of the pattern are above the files of the folder.
            false
        };
        self.choices.iter().any(may_match)
    }
}

/// Whether a file or one of its folders is hidden: its name starts with `_` or `.`, which Spark and
/// Hive use for unfinished files and metadata. `_year=2024/` is a Hive folder and not hidden. Names
/// that the pattern spells out are data.
fn is_hidden(below: &str, pattern: Option<&Choice>) -> bool {
    let is_named = |first| pattern.is_some_and(|pattern| pattern.names(first));
    below.split('/').any(|part| {
        let is_underlined = part.starts_with('_') && !part.contains('=') && !is_named('_');
        part.starts_with('.') && !is_named('.') || is_underlined
    })
}

/// The content of a folder in a store.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// The files, without hidden ones.
    pub files: Vec<ObjectMeta>,
    /// A folder that the pattern matches.
    pub folder: Option<Path>,
    /// Folders that belong to lakehouse tables or outputs.
    pub marks: Marks,
}

/// `path` relative to `folder` as text; `None` if it is not below.
pub(crate) fn below<'a>(folder: &Path, path: &'a Path) -> Option<&'a str> {
    let rest = path.as_ref().strip_prefix(folder.as_ref())?;
    if folder.as_ref().is_empty() {
        Some(rest)
    } else {
        rest.strip_prefix('/')
    }
}

/// The files below a folder that match a pattern, or all files without a pattern.
///
/// # Errors
/// The store cannot list a folder.
pub(crate) async fn list(
    store: &Arc<dyn ObjectStore>,
    folder: &Path,
    pattern: Option<&Pattern>,
) -> Result<Found> {
    let mut found = Found::default();
    let add = |found: &mut Found, meta: ObjectMeta| {
        found.marks.record(&meta.location);
        let below = below(folder, &meta.location);
        let is_match = below.is_some_and(|below| match pattern {
            Some(pattern) => pattern.matches(below),
            None => !is_hidden(below, None),
        });
        found.files.extend(is_match.then_some(meta));
    };
    let all = pattern.map_or(&[][..], |pattern| &pattern.choices);
    // Folders of one level, each with the choices that may match below it.
    let mut folders = BTreeMap::from([(folder.clone(), all.iter().collect::<Vec<_>>())]);
    for level in 0.. {
        let deep = |choices: &[&Choice]| choices.iter().any(|c| c.levels[level].is_none());
        let (whole, listed): (Vec<_>, Vec<_>) =
            (folders.iter()).partition(|(_, choices)| choices.is_empty() || deep(choices));
        for (folder, _) in whole {
            let mut all = store.list(prefix(folder));
            while let Some(meta) = all.try_next().await? {
                add(&mut found, meta);
            }
        }
        let listed: Vec<_> = stream::iter(listed)
            .map(|(folder, choices)| async move {
                let inside = store.list_with_delimiter(prefix(folder)).await?;
                Ok::<_, object_store::Error>((choices, inside))
            })
            .buffered(CONCURRENT_LISTS)
            .try_collect()
            .await?;
        let mut next = BTreeMap::new();
        for (choices, inside) in listed {
            for folder in inside.common_prefixes {
                found.marks.record(&folder);
                if folder.filename() == Some("metadata")
                    && let Some(file) = lakehouse::probe(store, folder.clone()).await?
                {
                    found.marks.record(&file);
                }
                let name = folder.filename().unwrap_or_default();
                let enters = |choice: &&&Choice| {
                    let level = choice.levels[level].as_ref();
                    level.is_some_and(|level| level.matches_with(name, OPTIONS))
                };
                let entered: Vec<&Choice> = choices.iter().filter(enters).copied().collect();
                let (deeper, ended): (Vec<_>, Vec<_>) =
                    (entered.into_iter()).partition(|c| c.levels.len() > level + 1);
                if !deeper.is_empty() {
                    next.insert(folder, deeper);
                } else if !ended.is_empty() {
                    found.folder.get_or_insert(folder);
                }
            }
            for meta in inside.objects {
                add(&mut found, meta);
            }
        }
        if next.is_empty() {
            break;
        }
        folders = next;
    }
    Ok(found)
}

fn prefix(folder: &Path) -> Option<&Path> {
    Some(folder).filter(|folder| !folder.as_ref().is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::testing::cases;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;
    use proptest::prelude::*;

    const NAMES: [&str; 9] = [
        "t/a.parquet",
        "t/b.csv",
        "t/2024/a.parquet",
        "t/2024/deep/c.parquet",
        "t/2025/b.parquet",
        "t/year=1/m=2/x.parquet",
        "t/_tmp/a.parquet",
        "t/.x.parquet",
        "t/a[1].parquet",
    ];

    async fn store() -> Arc<dyn ObjectStore> {
        let store = InMemory::new();
        for name in NAMES {
            let name = Path::parse(name).expect("a name");
            store.put(&name, "1".into()).await.expect("a file");
        }
        Arc::new(store)
    }

    #[tokio::test]
    async fn patterns_match_as_in_a_shell() {
        let store = store().await;
        let patterns = "
            *.parquet => a.parquet a[1].parquet
            */*.parquet => 2024/a.parquet 2025/b.parquet
            202?/* => 2024/a.parquet 2025/b.parquet
            202[!4]/* => 2025/b.parquet
            **/a*.parquet => 2024/a.parquet a.parquet a[1].parquet
            2024/** => 2024/a.parquet 2024/deep/c.parquet
            {a,b}.* => a.parquet b.csv
            {2024/a,2025/b}.parquet => 2024/a.parquet 2025/b.parquet
            year=*/*/*.parquet => year=1/m=2/x.parquet
            _*/* => _tmp/a.parquet
            .* => .x.parquet
            a[[]* => a[1].parquet
            [a{]*.{parquet,csv} => a.parquet a[1].parquet
            {202{4,5}/*,b*} => 2024/a.parquet 2025/b.parquet b.csv
            ./2024//* => 2024/a.parquet
            202*/ => 2024/a.parquet 2024/deep/c.parquet 2025/b.parquet
        ";
        for (text, expected) in cases(patterns) {
            let pattern = Pattern::new(text).expect(text);
            let found = list(&store, &"t".into(), Some(&pattern)).await;
            let files = found.expect("a list").files;
            let mut names: Vec<_> = files.iter().map(|f| &f.location.as_ref()[2..]).collect();
            names.sort_unstable();
            assert_eq!(names.join(" "), expected, "{text}");
        }
        for wrong in [
            "a[",
            "{a,b",
            "a**",
            "{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}{a,b}",
        ] {
            assert!(Pattern::new(wrong).is_err(), "{wrong}");
        }
        let folder = Pattern::new("202?").expect("a pattern");
        let found = list(&store, &"t".into(), Some(&folder)).await;
        assert_eq!(found.expect("a list").folder, Some("t/2024".into()));
    }

    fn segment() -> impl Strategy<Value = String> {
        let parts = ["a", "b", "*", "?", "[ab]", "{a,bb}", "{a/b,b}"];
        let parts = proptest::collection::vec(proptest::sample::select(parts.to_vec()), 1..3);
        prop_oneof![4 => parts.prop_map(|parts| parts.concat()), 1 => Just("**".to_string())]
    }

    proptest! {
        /// The pruned walk finds the same files as matching every name.
        #[test]
        fn pruning_misses_no_match(
            segments in proptest::collection::vec(segment(), 1..4),
            files in proptest::collection::btree_set("[ab]{1,2}(/[ab]{1,2}){0,3}", 1..12),
        ) {
            let pattern = Pattern::new(&segments.join("/")).expect("a pattern");
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a thread");
            let found = runtime.block_on(async {
                let store = InMemory::new();
                for file in &files {
                    store.put(&Path::from(format!("t/{file}")), "1".into()).await.expect("a file");
                }
                let store: Arc<dyn ObjectStore> = Arc::new(store);
                list(&store, &"t".into(), Some(&pattern)).await.expect("a list")
            });
            let found: std::collections::BTreeSet<String> =
                found.files.iter().map(|f| f.location.as_ref()[2..].to_string()).collect();
            let expected = files.iter().filter(|file| pattern.matches(file)).cloned().collect();
            prop_assert_eq!(&found, &expected);
            for file in found {
                let parts: Vec<&str> = file.split('/').collect();
                for n in 0..parts.len() {
                    prop_assert!(pattern.may_match_below(&parts[..n]), "{} below {:?}", file, &parts[..n]);
                }
            }
        }
    }
}
