//! The README, the guides and the other pages, for tests that run or compare their contents.
//!
//! `PAGES` contains every Markdown file of the repository. `src/guide/keys.md` is generated from
//! the schema of pipeline files: `GYRE_UPDATE_PAGES=1` writes it again.

use crate::lake::{Lake, ProgramRun, files_below, words};
use crate::needs;
use serde_json::Value;
use std::fmt::Write;
use std::path::{Path, PathBuf};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub struct Page {
    /// Relative to the root of the repository.
    pub path: &'static str,
    pub text: &'static str,
}

macro_rules! pages {
    ($($path:literal),* $(,)?) => {
        &[$(Page { path: $path, text: include_str!(concat!("../../", $path)) }),*]
    };
}

pub const PAGES: &[Page] = pages![
    "README.md",
    "benches/README.md",
    "benches/peers/README.md",
    "pipelines/README.md",
    "pipelines/deploy/README.md",
    "sql/README.md",
    "src/guide/assign.md",
    "src/guide/changes.md",
    "src/guide/checks.md",
    "src/guide/cluster.md",
    "src/guide/columns.md",
    "src/guide/commands.md",
    "src/guide/filters.md",
    "src/guide/increments.md",
    "src/guide/keys.md",
    "src/guide/limits.md",
    "src/guide/markov.md",
    "src/guide/memory.md",
    "src/guide/methods.md",
    "src/guide/other_programs.md",
    "src/guide/own_data.md",
    "src/guide/pipeline.md",
    "src/guide/points.md",
    "src/guide/python.md",
    "src/guide/ranks.md",
    "src/guide/report.md",
    "src/guide/sequences.md",
    "src/guide/set_names.md",
    "src/guide/sql.md",
    "src/guide/stores.md",
    "src/guide/tables.md",
    "src/guide/trust.md",
    "src/guide/versions.md",
];

/// The fenced blocks of a language, each with the path of its page.
pub fn blocks(language: &str) -> Vec<(&'static str, &'static str)> {
    let fence = format!("\n```{language}\n");
    let of_page = |page: &Page| {
        let (path, parts) = (page.path, page.text.split(&fence).skip(1));
        let parts: Vec<&'static str> = parts.collect();
        let ends = parts.into_iter().map(move |rest| {
            let end = rest.find("```").expect("a fence that ends the block");
            (path, &rest[..end])
        });
        ends.collect::<Vec<_>>()
    };
    PAGES.iter().flat_map(of_page).collect()
}

/// The only block of a language that begins with a text.
#[track_caller]
pub fn block(language: &str, begins: &str) -> &'static str {
    let mut found = blocks(language);
    found.retain(|(_, text)| text.starts_with(begins));
    assert_eq!(found.len(), 1, "blocks of {language} begin with {begins:?}");
    found[0].1
}

/// Asserts that each of the pieces is on some page.
#[track_caller]
pub fn assert_shown(pieces: &[String]) {
    let is_missing = |piece: &&String| !PAGES.iter().any(|page| page.text.contains(*piece));
    let missing: Vec<&String> = pieces.iter().filter(is_missing).collect();
    assert!(missing.is_empty(), "no page has these lines: {missing:#?}");
}

/// Asserts that a page shows the output of a command, except for seconds, memory and the width of
/// columns.
#[track_caller]
pub fn assert_output_shown(out: &str) {
    let out = stable_words(out);
    let of_output = blocks("text")
        .into_iter()
        .chain(blocks("console"))
        .any(|(_, text)| stable_words(without_command(text)) == out);
    assert!(of_output, "no page shows this:\n{}", out.join("\n"));
}

/// A console block without its first command.
fn without_command(text: &str) -> &str {
    let mut rest = text;
    let mut is_command = rest.starts_with("$ ");
    while is_command {
        let end = rest.find('\n').map_or(rest.len(), |at| at + 1);
        is_command = rest[..end].ends_with("\\\n");
        rest = &rest[end..];
    }
    rest
}

/// The lines of an output as words, without values that differ between runs: seconds, memory and
/// the folder of the output.
fn stable_words(out: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut is_timed = false;
    for line in out.lines() {
        let mut words: Vec<&str> = line.split_whitespace().collect();
        let Some((&first, &last)) = words.first().zip(words.last()) else {
            is_timed = false;
            continue;
        };
        match first {
            "seconds:" => words.truncate(1),
            "written:" => {
                words.remove(1);
            }
            "fit" => is_timed = last == "seconds",
            _ => {
                // The rows of the table of fits end with seconds. The lines below the table have a
                // colon.
                is_timed &= !line.contains(':');
                if is_timed {
                    words.pop();
                }
            }
        }
        lines.push(words.join(" "));
    }
    lines
}

/// Collects the Markdown files below a folder.
fn markdown(folder: &Path, found: &mut Vec<String>) {
    let files = files_below(folder).into_iter();
    for path in files.filter(|path| path.extension().is_some_and(|ending| ending == "md")) {
        let path = path.strip_prefix(ROOT).expect("a path below the root");
        found.push(path.display().to_string());
    }
}

#[test]
fn every_page_is_in_the_guide() {
    let mut found = vec!["README.md".to_string()];
    for folder in ["benches", "pipelines", "sql", "src"] {
        markdown(&Path::new(ROOT).join(folder), &mut found);
    }
    found.sort();
    let listed: Vec<&str> = PAGES.iter().map(|page| page.path).collect();
    assert_eq!(found, listed, "add a new page to PAGES");

    let guide = include_str!("../../src/guide/mod.rs");
    let links = include_str!("../../src/guide/links.txt");
    for page in PAGES {
        if let Some(name) = page.path.strip_prefix("src/guide/") {
            let name = name.strip_suffix(".md").expect("a page");
            assert!(guide.contains(&format!("    {name},\n")), "{name}");
            let label = format!("[{name}]: crate::guide::{name}\n");
            assert!(links.contains(&label), "{label}");
        }
    }
    let readme = PAGES[0].text.lines().count();
    assert!(readme <= 200, "the README has {readme} lines");
}

/// Every block needs a language, because rustdoc compiles blocks without one.
#[test]
fn every_block_has_a_language() {
    for page in PAGES {
        let mut is_open = false;
        for (at, line) in page.text.lines().enumerate() {
            let Some(language) = line.strip_prefix("```") else {
                continue;
            };
            let place = format!("{}:{}", page.path, at + 1);
            if is_open {
                assert_eq!(language, "", "{place}");
            } else {
                let known = ["console", "python", "r", "sh", "sql", "text", "toml"];
                assert!(known.contains(&language), "{place}: {language:?}");
            }
            is_open = !is_open;
        }
        assert!(!is_open, "{}", page.path);
    }
}

/// The text outside fenced blocks: every second piece between fences.
pub fn prose(page: &Page) -> String {
    page.text.split("```").step_by(2).collect()
}

#[test]
fn every_link_has_a_target() {
    for page in PAGES {
        let folder = Path::new(ROOT).join(page.path);
        let folder = folder.parent().expect("a folder");
        let text = prose(page);
        let inline = text.split("](").skip(1).filter_map(|rest| {
            let (target, _) = rest.split_once(')')?;
            Some(target)
        });
        let labels: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
            .collect();
        let targets = inline.chain(labels.iter().map(|(_, target)| *target));
        for target in targets.filter(|target| !target.starts_with("https://")) {
            let file: PathBuf = folder.join(target);
            assert!(file.exists(), "{} links to {target}", page.path);
        }
        let used = text.split("][").skip(1).filter_map(|rest| {
            let (label, _) = rest.split_once(']')?;
            Some(label)
        });
        let used: Vec<&str> = used.collect();
        for label in &used {
            let is_defined = labels.iter().any(|(name, _)| name == label);
            assert!(is_defined, "{} has no link {label}", page.path);
        }
        for (label, _) in &labels {
            assert!(used.contains(label), "{} does not use {label}", page.path);
        }
    }
}

/// The five papers that the methods follow.
const PAPERS: [&str; 5] = [
    "](https://arxiv.org/abs/1607.02011)",
    "](https://arxiv.org/abs/1906.00302)",
    "](https://arxiv.org/abs/2308.07663)",
    "](https://arxiv.org/abs/2403.07929)",
    "](https://proceedings.mlr.press/v33/kulesza14.html)",
];

/// A page that speaks of a paper links to one, and the README links to all.
#[test]
fn papers_have_a_link() {
    for page in PAGES {
        let linked = PAPERS.iter().filter(|link| page.text.contains(**link));
        let linked = linked.count();
        if page.path == "README.md" || page.path == "pipelines/README.md" {
            assert_eq!(linked, PAPERS.len(), "{}", page.path);
        }
        let text = prose(page).replace("paper-", "");
        let mut words = text.split(|c: char| !c.is_alphabetic());
        let speaks = words.any(|word| matches!(word, "paper" | "papers"));
        assert!(
            !speaks || linked > 0,
            "{} has no link to a paper",
            page.path
        );
    }
}

/// The guide to SQL has every table function with its arguments and columns.
#[test]
fn table_functions_are_in_the_guide() {
    let page = PAGES.iter().find(|page| page.path == "src/guide/sql.md");
    let page = page.expect("the page").text;
    let signature = |line: &'static str| {
        let call = line.strip_prefix("| `")?.split_once('`').expect("an end").0;
        call.strip_suffix(')')?.split_once('(')
    };
    let functions: Vec<(&str, &str)> = page.lines().filter_map(signature).collect();

    let mut known = Vec::new();
    for file in files_below(&Path::new(ROOT).join("src/read")) {
        let text = std::fs::read_to_string(file).expect("a file");
        let names = text.split("const NAME: &'static str = \"").skip(1);
        known.extend(names.map(|rest| rest.split('"').next().expect("a name").to_string()));
    }
    let mut names: Vec<&str> = functions.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    known.sort_unstable();
    assert_eq!(names, known);

    let lake = Lake::new();
    for (name, arguments) in functions {
        let n = arguments.split(", ").count();
        let call = |n: usize| format!("{name}({})", vec!["1"; n].join(", "));
        let text = |sql: &str| {
            let text = "job = { name = \"a\", output = \"out\" }\n\
                 transitions = { sql = \"SQL\", source = \"trajectory\", target = \"time\" }\n\
                 fit = [{ name = \"svd\", method = \"svd\", rank = 1 }]\n";
            text.replace("SQL", sql)
        };
        lake.file("p.toml", &text(&format!("SELECT * FROM {}", call(n + 1))));
        let known = format!("{name}: at most {n} arguments are possible ({arguments})");
        lake.line("check p.toml").fails(2, &known);
        // A column that is not there: the message lists the columns.
        lake.file(
            "p.toml",
            &text(&format!("SELECT no_such_column FROM {name}()")),
        );
        let ran = lake.line("check p.toml");
        let listed = ran.err.split('`').skip(1).step_by(2);
        for column in listed.filter(|column| *column != "no_such_column") {
            let shown = column
                .split(", ")
                .all(|own| page.contains(&format!("`{own}`")));
            assert!(shown, "{name}: {column}");
        }
    }
}

/// A small file of the kind of the README's: six groups of airports in a ring, and a null code.
pub fn routes() -> String {
    let mut rows = String::from("ZZ,1,\\N,\\N,A0,1,,0,CR2\n");
    for group in 0..6_usize {
        for source in 0..5 {
            for target in (0..5).filter(|&target| target != source) {
                for _ in 0..1 + (7 * group + 3 * source + target) % 4 {
                    let (from, to) = (["A", "B", "C", "D", "E", "F"][group], target);
                    writeln!(rows, "ZZ,1,{from}{source},1,{from}{to},1,,0,CR2").expect("a line");
                }
            }
        }
        let (from, to) = (
            ["A", "B", "C", "D", "E", "F"][group],
            ["B", "C", "D", "E", "F", "A"][group],
        );
        writeln!(rows, "ZZ,1,{from}0,1,{to}0,1,,0,CR2").expect("a line");
    }
    rows
}

/// Runs the README's pipeline on a small file of the same kind.
#[test]
fn the_pipeline_of_the_readme_runs() {
    let lake = Lake::new();
    let example = block("toml", "[job]\nname = \"airports\"\n");
    assert!(PAGES[0].text.contains(example));
    lake.file("routes.dat", &routes())
        .file("airports.toml", example);
    lake.line("check airports.toml").succeeds();
    lake.line("run airports.toml").succeeds();
    let sources = lake.read_at("out/airports/sources");
    assert_eq!(sources.len(), 30);
    let (names, sets) = (
        sources.texts("source"),
        sources.integers("dbmr_affiliation"),
    );
    for (name, set) in names.iter().zip(&sets) {
        let group = names.iter().position(|other| other[..1] == name[..1]);
        assert_eq!(*set, sets[group.expect("a group")], "{name}");
    }
    let second = lake.line("run airports.toml").succeeds();
    assert_eq!(second.out, "Nothing to do.\n");
}

/// Particles in the boxes of the guide to first files. They rarely change between the two halves.
pub fn particles() -> String {
    let mut rows = String::from("id,t,x,y\n");
    for k in 0..5000_u64 {
        let (id, t) = (k / 100, k % 100);
        let part = |by: u64| (k * by + k * k / 7) % 97;
        let half = (id + t / 31) % 2;
        let (x, y) = (half * 97 + part(13), part(29));
        writeln!(rows, "{id},{t},{},{}", x as f64 / 97.0, y as f64 / 97.0).expect("a line");
    }
    rows
}

#[test]
fn the_first_file_of_the_guide_runs() {
    let lake = Lake::new();
    lake.file("points.csv", &particles());
    lake.file("first.toml", block("toml", "[job]\nname = \"first\"\n"));
    for line in block("sh", "gyre check first.toml\n").lines() {
        lake.gyre(&words(line)[1..]).succeeds();
    }
    let sources = lake.read_at("out/first/sources");
    assert_eq!(sources.len(), 32);
    let (x, sets) = (sources.floats("x"), sources.integers("dbmr_affiliation"));
    for (x, set) in x.iter().zip(&sets) {
        assert_eq!(*set == sets[0], *x < 1.0);
    }
    // The join in the guide finds a set for every row.
    let Some(python) = needs::python(&["duckdb"]) else {
        return;
    };
    let script =
        "import duckdb, sys\nprint([row[-1] for row in duckdb.sql(sys.argv[1]).fetchall()])";
    let ran = lake.script(&python, script, &[block("sql", "SELECT p.*")]);
    assert_eq!(ran.out.matches(['0', '1']).count(), 5000, "{}", ran.out);
}

#[test]
fn documented_keys_are_those_of_the_schema() {
    let printed: ProgramRun = Lake::new().line("schema").succeeds();
    let schema = printed.json();
    let text = keys(&schema);
    let path = Path::new(ROOT).join("src/guide/keys.md");
    if std::env::var_os("GYRE_UPDATE_PAGES").is_some() {
        std::fs::write(path, text).expect("the page is written");
        return;
    }
    let page = std::fs::read_to_string(path).expect("the page");
    let how = "set GYRE_UPDATE_PAGES=1 to write src/guide/keys.md again; it would be";
    assert!(page == text, "{how}\n{text}");
}

const BEFORE_KEYS: &str = r#"# Keys

After this page you know every key of a pipeline file, with its type and default.

```toml
[job]
name = "small"
output = "out/small"

[tables.pairs]
path = "pairs.parquet"

[transitions]
sql = "SELECT a, b FROM pairs"
source = "a"
target = "b"

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
```

A test builds this page from the JSON Schema that `gyre schema` prints.
`gyre schema > pipeline.schema.json` gives the schema to an editor.
Every text may hold `${VAR}` or `${VAR:-default}`, except in SQL.
An empty default means that the key is absent, and the description says what happens then.
"#;

const AFTER_KEYS: &str = "
## Limits

A key that is not on this page is an error, and `gyre check` names the key that comes closest.
";

/// The reference of all keys, in the order of the schema.
fn keys(schema: &Value) -> String {
    let of = |name: &str| resolve(&schema["properties"][name], schema);
    let mut page = BEFORE_KEYS.to_string();
    section(&mut page, "`[job]`", of("job"), schema);
    section(&mut page, "`[store]`", of("store"), schema);
    let table = &schema["properties"]["tables"]["additionalProperties"];
    let table = resolve(table, schema);
    section(&mut page, "`[tables.NAME]`", table, schema);
    section(&mut page, "`[transitions]`", of("transitions"), schema);
    let bin = &of("transitions")["properties"]["bins"]["additionalProperties"];
    let title = "`[transitions.bins]`, per coordinate";
    section(&mut page, title, resolve(bin, schema), schema);
    section(&mut page, "`[points]`", of("points"), schema);
    section(&mut page, "`[sequences]`", of("sequences"), schema);
    let methods = &resolve(&of("fit")["items"], schema)["oneOf"];
    fits(&mut page, methods.as_array().expect("methods"), schema);
    section(&mut page, "`[validation]`", of("validation"), schema);
    section(&mut page, "`[names]`", of("names"), schema);
    section(&mut page, "`[output]`", of("output"), schema);
    section(&mut page, "`[densities]`", of("densities"), schema);
    section(&mut page, "`[checks]`", of("checks"), schema);
    let check = resolve(&of("check")["items"], schema);
    section(&mut page, "`[[check]]`", check, schema);
    page + AFTER_KEYS
}

/// The common keys of the methods, then every method.
fn fits(page: &mut String, methods: &[Value], schema: &Value) {
    let number = |key: &str, value: &Value| {
        let same = |method: &&Value| method["properties"][key] == *value;
        methods.iter().filter(same).count()
    };
    let is_common = |key: &str, value: &Value| number(key, value) > methods.len() / 2;
    let mut common = methods[0].clone();
    common["description"] = "Most methods have these keys.".into();
    let properties = common["properties"].as_object_mut().expect("keys");
    properties.retain(|key, value| is_common(key, value));
    section(page, "`[[fit]]`", &common, schema);
    for method in methods {
        let title = method["title"].as_str().expect("a name");
        let mut own = method.clone();
        let properties = own["properties"].as_object_mut().expect("keys");
        properties.retain(|key, value| key != "method" && !is_common(key, value));
        let title = format!("`[[fit]]` with `method = \"{title}\"`");
        section(page, &title, &own, schema);
    }
}

fn section(page: &mut String, title: &str, of: &Value, schema: &Value) {
    let properties = of["properties"].as_object().expect("keys");
    let required = of["required"].as_array();
    let is_required = |key: &str| required.is_some_and(|keys| keys.iter().any(|k| k == key));
    *page += &format!("\n## {title}\n\n{}\n", line(&of["description"]));
    *page += "\n| key | type | default |\n|---|---|---|\n";
    for (key, value) in properties {
        let default = match &value["default"] {
            _ if is_required(key) => "required".to_string(),
            Value::Null | Value::Object(_) => String::new(),
            default => code(default),
        };
        *page += &format!("| `{key}` | {} | {default} |\n", kind(value, schema, false));
    }
    *page += "\n";
    for (key, value) in properties {
        let meant = resolve(value, schema);
        let described = match &value["description"] {
            Value::Null => &meant["description"],
            own => own,
        };
        *page += &format!("- **`{key}`**: {}\n", line(described));
        let choices = meant["oneOf"].as_array();
        for choice in choices.into_iter().flatten() {
            if choice["description"].is_string() {
                let (name, text) = (code(&choice["const"]), line(&choice["description"]));
                *page += &format!("  - {name}: {text}\n");
            }
        }
    }
}

/// The schema that a reference points to.
fn resolve<'a>(value: &'a Value, schema: &'a Value) -> &'a Value {
    let name = value["$ref"]
        .as_str()
        .and_then(|name| name.strip_prefix("#/$defs/"));
    name.map_or(value, |name| &schema["$defs"][name])
}

/// A description on one line.
fn line(description: &Value) -> String {
    let text = description.as_str().expect("a description");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A value in TOML syntax.
fn code(value: &Value) -> String {
    match value {
        Value::Array(values) => {
            let values: Vec<String> = values.iter().map(Value::to_string).collect();
            format!("`[{}]`", values.join(", "))
        }
        value => format!("`{value}`"),
    }
}

/// The type of a value, or of several values.
fn kind(value: &Value, schema: &Value, is_many: bool) -> String {
    let value = resolve(value, schema);
    let range = match (&value["minimum"], &value["maximum"]) {
        (Value::Null, Value::Null) => match &value["exclusiveMinimum"] {
            Value::Null => String::new(),
            least => format!(" above {least}"),
        },
        (least, Value::Null) => format!(" from {least}"),
        (Value::Null, most) => format!(" up to {most}"),
        (least, most) => format!(" from {least} to {most}"),
    };
    let several = |values: &[Value]| {
        let mut kinds: Vec<String> = Vec::new();
        for value in values {
            let kind = kind(value, schema, is_many);
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        join_names(&kinds)
    };
    if let Some(values) = value["oneOf"].as_array().or(value["anyOf"].as_array()) {
        return several(values);
    }
    if let Some(values) = value["enum"].as_array() {
        return join_names(&values.iter().map(code).collect::<Vec<_>>());
    }
    if !value["const"].is_null() {
        return code(&value["const"]);
    }
    let plural = if is_many { "s" } else { "" };
    let named = |name: &str| match name {
        "string" => format!("text{plural}"),
        "array" => {
            let count = match (&value["minItems"], &value["maxItems"]) {
                (least, most) if least == most && !least.is_null() => format!("{least} "),
                _ => "list of ".to_string(),
            };
            count + &kind(&value["items"], schema, true)
        }
        "object" if value["properties"]["on"].is_object() => {
            "table with `value` and `on`".to_string()
        }
        "object" => format!("table{plural}"),
        name => format!("{name}{plural}{range}"),
    };
    match &value["type"] {
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str);
            // The type `number` includes integers.
            let names = names.filter(|name| *name != "integer");
            join_names(&names.map(named).collect::<Vec<_>>())
        }
        name => named(name.as_str().expect("a type")),
    }
}

/// `a, b or c`.
fn join_names(names: &[String]) -> String {
    match names {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
