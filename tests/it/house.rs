//! The order of the rooms of `src`, the purity of those in the middle, and the list of test files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Rooms from the lowest to the highest. A file imports from its own room and from lower ones.
const ROOMS: [&str; 13] = [
    "error", "memory", "store", "math", "evidence", "methods", "assess", "read", "output", "plan",
    "run", "cluster", "cli",
];

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

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// All source files with their texts, without comments and tests.
fn sources() -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).expect("a source file");
                let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
                let code = code.collect::<Vec<_>>().join("\n");
                let end = code.find("#[cfg(test)]\nmod tests").unwrap_or(code.len());
                let relative = path.strip_prefix(root()).expect("a file of src");
                found.insert(relative.to_path_buf(), code[..end].to_string());
            }
        }
    }
    assert!(found.len() > 200, "{}", found.len());
    found
}

/// The first component of a path: a room, or a file of `src` itself.
fn room(path: &Path) -> String {
    let first = path.iter().next().and_then(|name| name.to_str());
    first
        .unwrap_or_default()
        .trim_end_matches(".rs")
        .to_string()
}

/// Every `crate::…` path in a text, `use` trees expanded.
fn crate_paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let head: String = rest.chars().take_while(|&c| is_path(c)).collect();
        match rest[head.len()..].strip_prefix('{') {
            Some(tree) => {
                let tree = tree.split('}').next().unwrap_or_default();
                let names = tree
                    .split(',')
                    .map(str::trim)
                    .filter(|name| !name.is_empty());
                paths.extend(names.map(|name| format!("{head}{name}")));
            }
            None => paths.push(head),
        }
    }
    paths
}

/// The file that a path leads to: that of its longest prefix that is a module.
fn file_of(path: &str, files: &BTreeMap<PathBuf, String>) -> Option<PathBuf> {
    let parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
    (1..=parts.len()).rev().find_map(|n| {
        let module: PathBuf = parts[..n].iter().collect();
        let candidates = [module.with_extension("rs"), module.join("mod.rs")];
        candidates.into_iter().find(|file| files.contains_key(file))
    })
}

/// The files that each file imports.
fn imports(files: &BTreeMap<PathBuf, String>) -> BTreeMap<&PathBuf, BTreeSet<PathBuf>> {
    let of_file = |(file, code): (_, &String)| {
        let found = crate_paths(code);
        let found = found.iter().filter_map(|path| file_of(path, files));
        (file, found.filter(|other| other != file).collect())
    };
    files.iter().map(of_file).collect()
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
    assert!(loose.is_empty(), "in no room: {loose:?}");
    let mut wrong = Vec::new();
    for (file, others) in imports(&files) {
        for other in others {
            if let (Some(own), Some(level)) = (level(file), level(&other))
                && level > own
            {
                wrong.push(format!("{} imports {}", file.display(), other.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_middle_is_pure() {
    let mut wrong = Vec::new();
    for (file, code) in sources() {
        if PURE.contains(&room(&file).as_str()) {
            let named = IMPURE.iter().filter(|name| code.contains(**name));
            wrong.extend(named.map(|name| format!("{} names {name}", file.display())));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn every_test_file_is_listed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
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
