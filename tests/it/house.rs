//! The layout of the source code: the order of the rooms of `src`, imports without circles, the
//! purity of the middle rooms, the files that name a kind of evidence, the number of public items,
//! the width of comments and the list of test files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms from the lowest to the highest. A file imports from its own room and from lower ones.
const ROOMS: [&str; 14] = [
    "error", "memory", "store", "math", "evidence", "methods", "assess", "read", "output",
    "report", "plan", "run", "cluster", "cli",
];

/// Public items of the library, most of them for the tests and benches of this crate.
const PUBLIC_ITEMS: usize = 900;

/// Rooms without I/O, async code and tables.
const PURE: [&str; 4] = ["math", "evidence", "methods", "assess"];

/// What a file of a pure room must not name.
const IMPURE: [&str; 7] = [
    "arrow::",
    "datafusion::",
    "tokio::",
    "object_store::",
    "std::fs",
    "std::env",
    "parquet::",
];

/// A kind of evidence beside counts: the names of its folders and files, which may end in `_` and
/// more; the modules that only it has; and the words with which the names of its types begin.
struct Kind {
    own: &'static [&'static str],
    modules: &'static [&'static str],
    types: &'static [&'static str],
}

const KINDS: [Kind; 3] = [
    Kind {
        own: &["points", "state_embedding", "heat_kernel"],
        modules: &["points", "points_memory"],
        types: &["Point", "Points"],
    },
    Kind {
        own: &["symbols", "hmm"],
        modules: &["symbols", "symbols_memory", "hmm"],
        types: &["Sequence", "Symbol", "Symbols", "Hmm"],
    },
    Kind {
        own: &["observations", "filter"],
        modules: &["observations", "observations_memory", "filter"],
        types: &["Observation", "Observations"],
    },
];

/// The largest number of files outside the folders of a kind that name it.
const FILES_PER_KIND: usize = 8;

/// The largest number of characters in a line with a comment.
const COMMENT_COLUMNS: usize = 100;

/// For each file, the files that it imports, each with the first line that imports it.
type Imports<'a> = BTreeMap<&'a Path, BTreeMap<&'a Path, usize>>;

fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All Rust files below a folder of the package, by their paths in that folder.
fn rust_files(folder: &str) -> BTreeMap<PathBuf, String> {
    let root = package().join(folder);
    let mut found = BTreeMap::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let relative = path.strip_prefix(&root).expect("a file of the folder");
                found.insert(relative.to_path_buf(), text);
            }
        }
    }
    found
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// All files of `src` without their tests. Comment lines are empty, so that line numbers hold.
fn sources() -> BTreeMap<PathBuf, String> {
    let mut files = rust_files("src");
    assert!(files.len() > 200, "{}", files.len());
    for text in files.values_mut() {
        let code = text.lines().map(|l| if is_comment(l) { "" } else { l });
        let code = code.collect::<Vec<_>>().join("\n");
        let end = code.find("#[cfg(test)]\nmod tests").unwrap_or(code.len());
        *text = code[..end].to_string();
    }
    files
}

/// The first component of a path: a room, or a file of `src` itself.
fn room(path: &Path) -> String {
    let first = path.iter().next().and_then(|name| name.to_str());
    first
        .unwrap_or_default()
        .trim_end_matches(".rs")
        .to_string()
}

/// Every `crate::…` path in a text with its line number, `use` trees expanded.
fn crate_paths(code: &str) -> Vec<(usize, String)> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let line = code[..at].lines().count().max(1);
        for path in expand_use_tree(&code[at + "crate::".len()..]) {
            paths.push((line, path));
        }
    }
    paths
}

/// The paths of the `use` tree at the start of a text.
fn expand_use_tree(text: &str) -> Vec<String> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let head: String = text.chars().take_while(|&c| is_path(c)).collect();
    let Some(tree) = text[head.len()..].strip_prefix('{') else {
        return vec![head];
    };
    let mut paths = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (at, c) in tree.char_indices() {
        if depth == 0 && (c == ',' || c == '}') {
            let branches = expand_use_tree(tree[start..at].trim());
            paths.extend(branches.iter().map(|branch| format!("{head}{branch}")));
            start = at + 1;
        }
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    paths
}

/// The file that a path leads to: that of its longest prefix that is a module.
fn file_of<'a>(path: &str, files: &'a BTreeMap<PathBuf, String>) -> Option<&'a Path> {
    let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    (1..=parts.len()).rev().find_map(|n| {
        let module: PathBuf = parts[..n].iter().collect();
        let candidates = [module.with_extension("rs"), module.join("mod.rs")];
        let file = candidates.iter().find_map(|name| files.get_key_value(name));
        file.map(|(file, _)| file.as_path())
    })
}

fn imports(files: &BTreeMap<PathBuf, String>) -> Imports<'_> {
    let mut all = Imports::new();
    for (file, code) in files {
        let found = all.entry(file).or_default();
        for (line, path) in crate_paths(code) {
            if let Some(other) = file_of(&path, files)
                && other != file
            {
                found.entry(other).or_insert(line);
            }
        }
    }
    all
}

/// Whether a chain of imports leads from one file to another.
fn leads_to(imports: &Imports, from: &Path, to: &Path) -> bool {
    let mut seen = BTreeSet::from([from]);
    let mut open = vec![from];
    while let Some(file) = open.pop() {
        if file == to {
            return true;
        }
        open.extend(imports[file].keys().filter(|other| seen.insert(**other)));
    }
    false
}

#[test]
fn rooms_import_lower_rooms_only() {
    let files = sources();
    let level = |file: &Path| ROOMS.iter().position(|name| *name == room(file));
    let loose: Vec<_> = files
        .keys()
        .filter(|file| level(file).is_none())
        .filter(|file| !["lib", "main", "guide"].contains(&room(file).as_str()))
        .collect();
    assert!(loose.is_empty(), "files outside the rooms: {loose:?}");
    let mut wrong = Vec::new();
    for (file, others) in imports(&files) {
        for (other, line) in others {
            if let (Some(own), Some(level)) = (level(file), level(other))
                && level > own
            {
                wrong.push(import_text(file, line, other));
            }
        }
    }
    assert_none(&wrong, "imports of higher rooms");
}

#[track_caller]
fn assert_none(wrong: &[String], what: &str) {
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

fn import_text(file: &Path, line: usize, other: &Path) -> String {
    format!(
        "src/{}:{line} imports src/{}",
        file.display(),
        other.display()
    )
}

#[test]
fn files_do_not_import_in_a_circle() {
    let files = sources();
    let imports = imports(&files);
    let mut wrong = Vec::new();
    for (file, others) in &imports {
        let closing = others
            .iter()
            .filter(|(other, _)| leads_to(&imports, other, file));
        wrong.extend(closing.map(|(other, line)| import_text(file, *line, other)));
    }
    assert_none(&wrong, "circles of imports");
}

impl Kind {
    fn owns(&self, file: &Path) -> bool {
        file.with_extension("").iter().any(|name| {
            let name = name.to_str().unwrap_or_default();
            let is_own = |own: &&str| {
                let rest = name.strip_prefix(own);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
            };
            self.own.iter().any(is_own)
        })
    }

    /// Whether a text names a module or a type of the kind.
    fn is_named(&self, code: &str) -> bool {
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let mut rest = code;
        while let Some(start) = rest.find(is_name) {
            rest = &rest[start..];
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            rest = &rest[name.len()..];
            let is_path = rest.starts_with("::") && !rest.starts_with("::<");
            let follows = |word: &&str| {
                let end = name.strip_prefix(word);
                end.is_some_and(|end| end.starts_with(|c: char| c.is_ascii_uppercase()))
            };
            if is_path && self.modules.contains(&name) || self.types.iter().any(follows) {
                return true;
            }
        }
        false
    }
}

#[test]
fn few_files_name_a_kind_of_evidence() {
    let files = sources();
    for kind in &KINDS {
        let is_test = |file: &Path| {
            file.iter()
                .any(|name| name == "tests" || name == "tests.rs")
        };
        let names = |(file, code): &(&PathBuf, &String)| {
            !is_test(file) && !kind.owns(file) && kind.is_named(code)
        };
        let found: Vec<_> = files.iter().filter(names).map(|(file, _)| file).collect();
        assert!(!found.is_empty(), "no file names {:?}", kind.own);
        assert!(
            found.len() <= FILES_PER_KIND,
            "{} files outside {:?} name its modules or types: {found:#?}",
            found.len(),
            kind.own
        );
    }
}

#[test]
fn few_items_are_public() {
    let is_public = |line: &&str| {
        let item = line.trim_start().strip_prefix("pub ");
        item.is_some_and(|item| {
            let kinds = [
                "fn", "async fn", "const", "struct", "enum", "trait", "type", "mod",
            ];
            kinds
                .iter()
                .any(|kind| item.starts_with(&format!("{kind} ")))
        })
    };
    let files = rust_files("src");
    let public = files.values().flat_map(|text| text.lines());
    let public = public.filter(is_public).count();
    assert!(
        (1..=PUBLIC_ITEMS).contains(&public),
        "{public} public items"
    );
}

#[test]
fn middle_rooms_are_pure() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        if PURE.contains(&room(&file).as_str()) {
            for (i, line) in code.lines().enumerate() {
                let named = IMPURE.iter().filter(|name| line.contains(**name));
                let place = format!("src/{}:{}", file.display(), i + 1);
                wrong.extend(named.map(|name| format!("{place} names {name}")));
            }
        }
    }
    assert_none(&wrong, "impure middle rooms");
}

/// What these files write is free of characters that a terminal obeys.
#[test]
fn two_files_write_to_the_terminal() {
    let mut found = BTreeSet::new();
    for (file, code) in sources() {
        let writes = ["println!", "print!(", "dbg!", "stdout()", "stderr()"];
        if writes.iter().any(|write| code.contains(write)) {
            found.insert(file.display().to_string());
        }
    }
    assert_eq!(found, ["cli/sink.rs", "main.rs"].map(String::from).into());
}

#[test]
fn comment_lines_are_short() {
    let mut wrong = Vec::new();
    for folder in ["src", "tests", "benches"] {
        for (file, text) in rust_files(folder) {
            let name = format!("{folder}/{}", file.display());
            for (i, line) in text.lines().enumerate() {
                let columns = line.chars().count();
                if is_comment(line) && columns > COMMENT_COLUMNS {
                    wrong.push(format!("{name}:{} has {columns} columns", i + 1));
                }
            }
        }
    }
    assert_none(
        &wrong,
        &format!("comment lines over {COMMENT_COLUMNS} columns"),
    );
}

#[test]
fn every_test_file_is_listed() {
    let folder = package().join("tests/it");
    let main = fs::read_to_string(folder.join("main.rs")).expect("the root of the tests");
    for entry in fs::read_dir(folder).expect("the folder of the tests") {
        let path = entry.expect("an entry").path();
        let is_test = path.extension().is_some_and(|e| e == "rs") && !path.ends_with("main.rs");
        if is_test {
            let name = path
                .file_stem()
                .and_then(|name| name.to_str())
                .unwrap_or_default();
            assert!(
                main.contains(&format!("mod {name};\n")),
                "mod {name}; is missing"
            );
            assert!(
                main.contains(&format!("//! - `{name}`")),
                "`{name}` is not described"
            );
        }
    }
}
