//! Logs, metrics, lineage events and records of a run, and data values in all of them.

use crate::cli::{integers, small_lake};
use crate::lake::{Lake, ProgramRun, TABLES, files_below, floats, texts, words};
use crate::needs;
use arrow::array::ArrayRef;
use gyre::cli::prometheus;
use gyre::error::{printable, printable_json};
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

type Labels = BTreeMap<String, String>;

/// Parses a page of metrics as strictly as the format requires: every family once, its help and
/// type before its samples, and no duplicate sample.
fn samples(page: &str) -> Vec<(String, Labels, f64)> {
    assert!(page.ends_with('\n'), "the last line has no end");
    let is_name = |name: &str| {
        let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        name.starts_with(letter) && name.chars().all(|c| letter(c) || c.is_ascii_digit())
    };
    let (mut families, mut family, mut typed) = (BTreeSet::new(), String::new(), false);
    let (mut seen, mut samples) = (BTreeSet::new(), Vec::new());
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help text");
            assert!(is_name(name) && !help.is_empty(), "{line}");
            assert!(families.insert(name.to_string()), "{name} is duplicated");
            (family, typed) = (name.to_string(), false);
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            assert_eq!(rest, format!("{family} gauge"));
            typed = true;
            continue;
        }
        assert!(typed, "a sample before its type: {line}");
        let (name, rest) = line.split_once('{').expect("labels");
        assert_eq!(name, family);
        let (mut labels, mut chars) = (Labels::new(), rest.chars());
        loop {
            let label: String = chars.by_ref().take_while(|c| *c != '=').collect();
            assert!(is_name(&label), "{label:?} in {line}");
            assert_eq!(chars.next(), Some('"'), "{line}");
            let mut value = String::new();
            loop {
                match chars.next().expect("a closing quote") {
                    '"' => break,
                    '\\' => value.push(match chars.next() {
                        Some('n') => '\n',
                        Some(c @ ('\\' | '"')) => c,
                        other => panic!("\\{other:?} in {line}"),
                    }),
                    c => value.push(c),
                }
            }
            assert!(labels.insert(label, value).is_none(), "{line}");
            match chars.next() {
                Some(',') => (),
                Some('}') => break,
                other => panic!("{other:?} after a label in {line}"),
            }
        }
        let value = chars.as_str().strip_prefix(' ').expect("a space");
        let value: f64 = value
            .parse()
            .unwrap_or_else(|_| panic!("{value:?} in {line}"));
        assert!(
            seen.insert((name.to_string(), labels.clone())),
            "twice: {line}"
        );
        samples.push((name.to_string(), labels, value));
    }
    samples
}

/// The values of a family of samples, by the given label.
fn values_of(page: &str, family: &str, label: &str) -> BTreeMap<String, f64> {
    let all = samples(page).into_iter();
    let own = all.filter(|(name, _, _)| name == family);
    own.map(|(_, labels, value)| (labels.get(label).cloned().unwrap_or_default(), value))
        .collect()
}

fn lines(text: &str) -> Vec<Value> {
    let line = |line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"));
    text.lines().map(line).collect()
}

/// Prometheus' own parser reads the metrics, and OpenLineage's own client builds the events. An
/// unknown or missing field is an error there.
const CLIENTS: &str = r##"
import json, inspect
import openlineage.client.facet_v2 as modules
from openlineage.client import event_v2
from openlineage.client.generated.base import EventType
from prometheus_client.parser import text_string_to_metric_families

page = open("gyre.prom").read()
families = {family.name: family for family in text_string_to_metric_families(page)}
samples = [sample for family in families.values() for sample in family.samples]
assert len(samples) == sum(not line.startswith("#") for line in page.splitlines()), page
assert all(family.type == "gauge" and family.documentation for family in families.values())

known = {name: cls for _, module in inspect.getmembers(modules, inspect.ismodule) for name, cls in inspect.getmembers(module, inspect.isclass)}

def facets(of):
    made = {}
    for key, facet in (of or {}).items():
        url = facet["_schemaURL"]
        cls = known[url.rsplit("/", 1)[1]]
        strip = lambda url: url.rsplit("/", 3)[-3:]
        assert strip(url) == strip(cls._get_schema()), (url, cls._get_schema())
        fields = {name: value for name, value in facet.items() if not name.startswith("_")}
        if key == "schema":
            fields["fields"] = [known["SchemaDatasetFacetFields"](**field) for field in fields["fields"]]
        made[key] = cls(**fields, producer=facet["_producer"])
    return made

def dataset(cls, of):
    more = {key: facets(of.pop(key)) for key in ("facets", "inputFacets", "outputFacets") if key in of}
    return cls(**of, **more)

for line in open("lineage.jsonl"):
    event = json.loads(line)
    assert event.pop("schemaURL") == event_v2.RunEvent._get_schema()
    run, job = event.pop("run"), event.pop("job")
    run["facets"], job["facets"] = facets(run.get("facets")), facets(job.get("facets"))
    inputs = [dataset(event_v2.InputDataset, of) for of in event.pop("inputs")]
    outputs = [dataset(event_v2.OutputDataset, of) for of in event.pop("outputs")]
    event["eventType"] = EventType[event["eventType"]]
    made = event_v2.RunEvent(**event, run=event_v2.Run(**run), job=event_v2.Job(**job), inputs=inputs, outputs=outputs)
    assert not outputs or len(outputs) > 5
print("read", len(samples))
"##;

/// Asserts that the clients can read the output of a run, if they are installed.
#[track_caller]
fn check_clients(lake: &Lake) {
    let Some(python) = needs::python(&["openlineage.client", "prometheus_client"]) else {
        return;
    };
    let read = lake.script(&python, CLIENTS, &[]).out;
    assert!(read.starts_with("read "), "{read}");
}

const REPORTS: [&str; 8] = [
    "run",
    "p.toml",
    "--log-format",
    "json",
    "--metrics",
    "gyre.prom",
    "--lineage",
    "lineage.jsonl",
];

#[test]
fn a_run_writes_logs_metrics_and_events() {
    let lake = small_lake();
    let text = lake.text("p.toml");
    lake.file("p.toml", &format!("{text}\n[checks]\nmin_rows = 10\n"));
    let ran = lake.gyre(&REPORTS).succeeds();
    let record = lake.record();

    let events = lines(&ran.err);
    let of = |key: &str| -> Vec<Value> { events.iter().map(|e| e[key].clone()).collect() };
    let stages = ["count", "fit", "write", "check", "promote"];
    let messages = of("message");
    assert_eq!((messages.len(), &messages[0]), (7, &"run begins".into()));
    assert_eq!(messages[1..6], ["stage done"; 5]);
    assert_eq!(messages[6], "run ends");
    assert_eq!(of("stage")[1..6], stages);
    let is_own = |run: &Value| *run == record["id"];
    assert!(of("run").iter().all(is_own), "{events:?}");
    let bytes: u64 = TABLES
        .iter()
        .map(|t| record["table_bytes"][t].as_u64().expect("bytes"))
        .sum();
    assert_eq!(events[1]["rows"], 600);
    assert_eq!(events[1]["bytes"], record["input_bytes"]);
    assert_eq!(events[3]["bytes"], bytes);
    assert_eq!(events[6]["exit_code"], 0);

    for table in TABLES {
        let size = std::fs::metadata(lake.path(&format!("out/{table}/part-0.parquet")))
            .expect("a table")
            .len();
        assert_eq!(record["table_bytes"][table], size);
        assert_eq!(record["tables"][table], lake.read(table).len() as u64);
    }
    let size = std::fs::metadata(lake.path("rows.parquet"))
        .expect("rows")
        .len();
    assert_eq!(record["input_bytes"], size);
    for key in ["pipeline", "sql", "inputs"] {
        let hash = record["hashes"][key].as_str();
        assert_eq!(hash.map(str::len), Some(32), "{key}");
    }
    let lock = include_str!("../../Cargo.lock");
    for library in ["arrow", "datafusion"] {
        let version = record["versions"][library].as_str().expect("a version");
        assert!(lock.contains(&format!("name = \"{library}\"\nversion = \"{version}\"")));
    }

    let page = lake.text("gyre.prom");
    let one = |family: &str| values_of(&page, family, "")[""];
    assert_eq!(one("gyre_run_success"), 1.0);
    assert_eq!(one("gyre_run_exit_code"), 0.0);
    assert_eq!(one("gyre_run_nothing_to_do"), 0.0);
    assert_eq!(one("gyre_rows_read"), 600.0);
    assert_eq!(one("gyre_transitions"), 597.0);
    assert_eq!(one("gyre_models"), 1.0);
    assert!(one("gyre_peak_memory_bytes") > 1e6 && one("gyre_run_duration_seconds") > 0.0);
    let now = jiff::Timestamp::now().as_second() as f64;
    assert!((one("gyre_run_finished_timestamp_seconds") - now).abs() < 600.0);
    let found = values_of(&page, "gyre_stage_seconds", "stage");
    let expected = BTreeSet::from(stages.map(String::from));
    assert_eq!(found.into_keys().collect::<BTreeSet<_>>(), expected);
    let fits = &record["models"][0]["fits"];
    let likelihood = values_of(&page, "gyre_fit_log_likelihood", "fit");
    for (at, fit) in ["dbmr", "svd"].into_iter().enumerate() {
        assert_eq!(Some(likelihood[fit]), fits[at]["log_likelihood"].as_f64());
    }
    let nonzeros = values_of(&page, "gyre_model_nonzeros", "lag")["1"];
    assert_eq!(Some(nonzeros), record["models"][0]["nonzeros"].as_f64());
    let passed = values_of(&page, "gyre_check_passed", "check");
    assert_eq!(passed["min_rows"], 1.0);
    let bytes = values_of(&page, "gyre_table_bytes", "table")["counts"];
    assert_eq!(Some(bytes), record["table_bytes"]["counts"].as_f64());

    // Without new work, the numbers are those of the current result, and there is no event.
    let second = lake.gyre(&REPORTS).succeeds();
    assert_eq!(second.out, "Nothing to do.\n");
    let ends = lines(&second.err);
    assert_eq!((ends.len(), &ends[0]["nothing_to_do"]), (1, &true.into()));
    let skipped = lake.text("gyre.prom");
    assert_eq!(values_of(&skipped, "gyre_run_nothing_to_do", "")[""], 1.0);
    assert_eq!(values_of(&skipped, "gyre_run_success", "")[""], 1.0);
    let [now, before] = [&skipped, &page].map(|page| values_of(page, "gyre_table_rows", "table"));
    assert_eq!(now, before);

    // A failed check appears in the metrics and events, and the record contains the finished
    // stages.
    let ran = lake.gyre(&[&REPORTS[..], &["--set", "checks.min_rows=601"]].concat());
    assert_eq!(ran.code, Some(3));
    let last = lines(&ran.err).pop().expect("an event");
    assert_eq!(last["kind"], "Check");
    assert_eq!(last["exit_code"], 3);
    let page = lake.text("gyre.prom");
    assert_eq!(values_of(&page, "gyre_run_success", "")[""], 0.0);
    assert_eq!(values_of(&page, "gyre_run_exit_code", "")[""], 3.0);
    let passed = values_of(&page, "gyre_check_passed", "check");
    assert_eq!(passed["min_rows"], 0.0);
    let limits = values_of(&page, "gyre_check_limit", "check");
    assert_eq!(limits["min_rows"], 601.0);
    assert!(!values_of(&page, "gyre_stage_seconds", "stage").contains_key("promote"));

    // A run that cannot start appears there as well.
    lake.gyre(&[&REPORTS[..], &["--set", "tables.rows.path=gone.parquet"]].concat())
        .fails(1, "gone.parquet");
    let page = lake.text("gyre.prom");
    let ended = samples(&page)
        .into_iter()
        .find(|s| s.0 == "gyre_run_exit_code")
        .expect("a sample");
    assert_eq!((ended.1["pipeline"].as_str(), ended.2), ("small", 1.0));
    let expected = "--metrics none/gyre.prom: name a file in an existing folder";
    lake.line("run p.toml --metrics none/gyre.prom")
        .fails(2, expected);

    check_clients(&lake);
    let events = lines(&lake.text("lineage.jsonl"));
    let kinds: Vec<&str> = events
        .iter()
        .map(|e| e["eventType"].as_str().expect("a type"))
        .collect();
    let expected = ["START", "COMPLETE", "START", "FAIL", "START", "FAIL"];
    assert_eq!(kinds, expected);
    let run = |at: usize| events[at]["run"]["runId"].as_str().expect("an id");
    assert_eq!((run(0), run(2), run(4)), (run(1), run(3), run(5)));
    assert_ne!(run(0), run(2));
    for event in &events {
        // The fields and formats that RunEvent of the specification requires.
        for key in ["eventTime", "producer", "schemaURL"] {
            assert!(event[key].is_string(), "{key} in {event}");
        }
        event["eventTime"]
            .as_str()
            .expect("a time")
            .parse::<jiff::Timestamp>()
            .expect("a time");
        let expected = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent";
        assert_eq!(event["schemaURL"], expected);
        let id = event["run"]["runId"].as_str().expect("an id");
        let hex: Vec<&str> = id.split('-').collect();
        assert!(
            hex.iter().all(|h| h.chars().all(|c| c.is_ascii_hexdigit())),
            "{id}"
        );
        let expected = [8, 4, 4, 4, 12];
        assert_eq!(hex.iter().map(|h| h.len()).collect::<Vec<_>>(), expected);
        assert_eq!(event["job"]["namespace"], "gyre");
        assert_eq!(event["job"]["name"], "small");
        let datasets = ["inputs", "outputs"].map(|key| event[key].as_array().expect("datasets"));
        for dataset in datasets.into_iter().flatten() {
            assert_eq!(dataset["namespace"], "file");
            assert!(dataset["name"].as_str().expect("a name").starts_with('/'));
            let fields = dataset["facets"]["schema"]["fields"]
                .as_array()
                .expect("fields");
            let is_whole = |f: &Value| f["name"].is_string() && f["type"].is_string();
            assert!(fields.iter().all(is_whole));
        }
        let facets = [&event["run"]["facets"], &event["job"]["facets"]];
        for facet in facets
            .into_iter()
            .flat_map(|f| f.as_object().expect("facets").values())
        {
            assert!(
                facet["_producer"].is_string() && facet["_schemaURL"].is_string(),
                "{facet}"
            );
        }
    }
    let complete = &events[1];
    let input = &complete["inputs"][0];
    let file = lake.path("rows.parquet").canonicalize();
    let file = file.expect("a path").display().to_string();
    assert_eq!(input["name"], file);
    assert_eq!(input["facets"]["schema"]["fields"][2]["name"], "state");
    let outputs = complete["outputs"].as_array().expect("outputs");
    assert_eq!(outputs.len(), TABLES.len());
    for output in outputs {
        let table = output["name"]
            .as_str()
            .and_then(|name| name.rsplit('/').next())
            .expect("a name");
        let statistics = &output["outputFacets"]["outputStatistics"];
        assert_eq!(statistics["rowCount"], record["tables"][table]);
        assert_eq!(statistics["size"], record["table_bytes"][table]);
    }
    let message = &events[3]["run"]["facets"]["errorMessage"]["message"];
    let text = message.as_str().unwrap_or_default();
    let expected = "min_rows: 600 rows were read, fewer than 601";
    assert!(text.contains(expected), "{message}");
}

/// Data values that would change a path, a line, a label or a command.
const HOSTILE: [&str; 9] = [
    "../../x",
    "a%2Fb",
    "/etc/passwd",
    "new\nline",
    "say \"hi\"",
    "",
    "\u{1b}[31mred",
    "日本–ü",
    "a=1,b\\",
];

#[test]
fn values_cannot_inject_paths_lines_or_labels() {
    let lake = small_lake();
    let n = 600 * HOSTILE.len() as i64;
    let part = texts((0..n).map(|k| HOSTILE[k as usize / 600]));
    let state: ArrayRef =
        texts((0..n).map(|k| HOSTILE[(3 * (k / 23 % 2) + (k * k + k / 7) % 3) as usize]));
    let columns = vec![
        ("part", part),
        ("t", integers((0..n).map(|k| k % 600))),
        ("state", state),
    ];
    lake.table("rows.parquet", columns);
    let text = lake
        .text("p.toml")
        .replace("trajectory = \"id\"\n", "partition_by = \"part\"\n");
    let check = "[[check]]\nname = \"all\"\nsql = \"SELECT DISTINCT part FROM sources ORDER BY part\"\non = \"warn\"\n";
    lake.file("p.toml", &format!("{text}\n{check}"));
    let ran = lake.gyre(&REPORTS).succeeds();
    let before: BTreeSet<PathBuf> = files(lake.folder.path());
    let run = lake.record()["id"].as_str().expect("an id").to_string();
    let expected = TABLES.iter().flat_map(|t| {
        ["part-0.parquet", "_SUCCESS"].map(|f| format!("out/versions/{run}/{t}/{f}"))
    });
    let beside = "p.toml rows.parquet gyre.prom lineage.jsonl out/.lock out/current.json";
    let beside = words(beside).into_iter().map(String::from);
    let records = [
        format!("out/runs/{run}.json"),
        format!("out/versions/{run}/run.json"),
        format!("out/versions/{run}/files.json"),
    ];
    let expected = expected.chain(beside).chain(records);
    assert_eq!(before, expected.map(PathBuf::from).collect());

    check_clients(&lake);
    let parts: BTreeSet<String> = lake.read("fits").texts("part").into_iter().collect();
    assert_eq!(parts, HOSTILE.map(String::from).into());
    let states: BTreeSet<String> = lake.read("sources").texts("state").into_iter().collect();
    assert_eq!(states, HOSTILE[..6].iter().map(|s| s.to_string()).collect());
    // A value cannot start a new line of the summary or the log, and it cannot send control
    // characters to the terminal.
    ran.says("part new\\nline, lag 1: ");
    ran.says("part \\u{1b}[31mred, lag 1: ");
    for event in lines(&ran.err) {
        let text = event["message"].as_str().expect("a message");
        assert!(!text.contains("new\nline"), "{text}");
        assert!(!text.contains('\u{1b}'), "{text}");
    }
    let label = |part: &str| format!("part={}", part.replace('\\', "\\\\").replace(',', "\\,"));
    let values_by_part = values_of(
        &lake.text("gyre.prom"),
        "gyre_model_transitions",
        "partition",
    );
    assert_eq!(
        values_by_part.into_keys().collect::<BTreeSet<_>>(),
        HOSTILE.map(label).into()
    );
    let record = lake.record();
    let models = record["models"].as_array().expect("models").iter();
    let recorded: BTreeSet<&str> = models
        .map(|m| m["partition"]["part"].as_str().expect("text"))
        .collect();
    assert_eq!(recorded, HOSTILE.into());
    // The names of sets are found again for all of these keys.
    lake.line("run p.toml --seed 1").succeeds();
    let events: BTreeSet<String> = lake.read("sets").texts("event").into_iter().collect();
    assert_eq!(events, ["kept".to_string()].into());

    // A failed partition is named in one line.
    let small = "SELECT * FROM rows WHERE part <> 'new\nline' OR t < 2";
    let ran = lake.run(&[
        &format!("transitions.sql={small}"),
        "transitions.empty=fail",
    ]);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    ran.says("1 of 9 models failed: part=new\\nline, lag 1; see out/runs/");
}

/// Clears the screen, reverses text, changes colours and writes over its line.
const OBEYED: &str = "\u{1b}[2J\u{202e}\u{9b}1m\u{7f}\rx";

/// Rows whose names and values hold such characters, as states, coordinates, points, symbols and
/// observations. Every command is run on them, and so that it succeeds and that it fails.
/// `ProgramRun` looks at all that is printed.
#[test]
fn no_command_prints_what_a_terminal_obeys() {
    let lake = Lake::new();
    let name = |what: &str| format!("{what}\n{OBEYED}");
    let toml = |text: &str| printable_json(&Value::from(text).to_string()).into_owned();
    let n = 240i64;
    let texts = |of: &dyn Fn(i64) -> String| texts((0..n).map(of));
    let floats = |of: fn(f64) -> f64| floats((0..n).map(|k| of(k as f64)));
    let (id, state, x, part) = (name("id"), name("state"), name("x"), name("part"));
    let columns = vec![
        ("k", integers(0..n)),
        (&id, texts(&|k| format!("\n{OBEYED}{}", k / 60))),
        ("t", integers((0..n).map(|k| k % 60))),
        (
            &state,
            texts(&|k| format!("\n{OBEYED}{}", (k * k + k / 7) % 3)),
        ),
        (&x, floats(|k| (1.7 * k).sin() + (0.3 * k * k).cos())),
        ("y", floats(|k| (0.9 * k * k).sin())),
        (
            "split",
            texts(&|k| if k % 120 < 60 { "train" } else { "test" }.into()),
        ),
        (&part, texts(&|k| format!("\n{OBEYED}{}", k / 120))),
    ];
    lake.table("rows.parquet", columns);
    let ordered = format!("trajectory = {}\ntime = \"t\"", toml(&id));
    let [state, x, part] = [&state, &x, &part].map(|text| toml(text));
    let kinds = [
        format!(
            "[transitions]\n{ordered}\nlag = 1\nstate = {state}\nSQL\n[[fit]]\nname = \"one\"\nmethod = \"dbmr\"\nrank = 2\nrestarts = 2"
        ),
        format!(
            "[transitions]\n{ordered}\nlag = 1\ncoordinates = [{x}, \"y\"]\nSQL\n[[fit]]\nname = \"one\"\nmethod = \"state_embedding\"\nrank = 2\nfeatures = 20\nbandwidth = 1.0"
        ),
        format!(
            "[points]\nid = \"k\"\ncoordinates = [{x}, \"y\"]\nSQL\n[[fit]]\nname = \"one\"\nmethod = \"diffusion_map\"\ndimension = 2"
        ),
        format!(
            "[sequences]\n{ordered}\ninterval = 1\nsymbol = {state}\nSQL\n[[fit]]\nname = \"one\"\nmethod = \"spectral_hmm\"\nrank = 2\n[output]\nrows = \"all\""
        ),
        format!(
            "[sequences]\n{ordered}\ninterval = 1\nstate = [{x}]\nobservation = [\"y\"]\nsplit = \"split\"\nSQL\n[[fit]]\nname = \"one\"\nmethod = \"kalman\"\n[output]\nrows = \"all\""
        ),
    ];
    let mut exact = 0;
    for (at, kind) in kinds.iter().enumerate() {
        let file = format!("{at}.toml");
        let [out, assigned] = ["out", "new"].map(|folder| format!("{folder}{at}"));
        let job = format!(
            "[job]\nname = \"job\"\noutput = \"{out}\"\n[tables.rows]\npath = \"rows.parquet\"\n"
        );
        let sql = format!("sql = \"SELECT * FROM rows\"\npartition_by = {part}");
        lake.file(&file, &(job + &kind.replace("SQL", &sql)));
        lake.gyre(&["check", &file]).succeeds();
        lake.gyre(&["plan", &file]).succeeds();
        lake.gyre(&["plan", &file, "--json"]).succeeds();
        lake.gyre(&["explain", &file]).succeeds();
        lake.gyre(&["run", &file, "-v"])
            .succeeds()
            .says("\\n\\u{1b}[2J\\u{202e}\\u{9b}1m\\u{7f}\\rx0");
        let reports = "--metrics /dev/null --lineage /dev/stderr";
        lake.line(&format!("run {file} --force --seed 2 {reports}"))
            .succeeds();
        lake.gyre(&["assign", &file, "--model", &out, "--output", &assigned])
            .succeeds();
        lake.gyre(&["compare", &out, &out]).succeeds();
        lake.gyre(&["compare", &out, &out, "--json"]).succeeds();
        lake.gyre(&["restore", &out]).succeeds();
        lake.gyre(&["restore", &out, OBEYED]);
        lake.gyre(&["clean", &file, "--dry-run"]).succeeds();
        let table = ["sources", "points", "points", "symbols", "trajectories"][at];
        lake.gyre(&["inspect", &out]);
        lake.gyre(&["inspect", &out, table]);
        let rows = lake.gyre(&["inspect", &out, table, "--format", "json"]);
        for row in rows.out.lines() {
            let row: Value = serde_json::from_str(row).expect("JSON");
            assert!(row.to_string().contains('\u{202e}'), "{row}");
        }
        lake.gyre(&["report", &out]);
        // Each of these fails, and its message holds the name or the value.
        let section = words("transitions transitions points sequences sequences")[at];
        for (key, value) in [
            ("sql", toml(&format!("SELECT \"{OBEYED}\" FROM rows"))),
            ("sql", toml(&format!("SELECT * FROM \"{OBEYED}\""))),
            (
                "sql",
                toml(&format!(
                    "SELECT CAST('{OBEYED}' AS BIGINT) AS k, * FROM rows"
                )),
            ),
            ("partition_by", toml(OBEYED)),
            (
                ["state", "coordinates", "coordinates", "symbol", "state"][at],
                toml(OBEYED),
            ),
            ("split", state.clone()),
            ("weight", state.clone()),
            ("count", state.clone()),
            ("time", state.clone()),
            ("interval", toml(OBEYED)),
            ("lag", toml(OBEYED)),
            (OBEYED, toml(OBEYED)),
        ]
        .into_iter()
        .enumerate()
        .filter(|(k, _)| at == 0 || k % kinds.len() == at)
        .map(|(_, wrong)| wrong)
        {
            let set = format!("{section}.{key}={value}");
            let failed = lake.gyre(&["run", &file, "--set", &set]);
            let is_known = matches!(failed.code, Some(1 | 2));
            assert!(is_known, "{set}: {}", failed.err);
            if at > 0 {
                continue;
            }
            // The values of logs are exact.
            let logged = lake.gyre(&["run", &file, "--set", &set, "--log-format", "json"]);
            let events = lines(&logged.err);
            let message = events.last().expect("an error")["message"].as_str();
            let message = message.expect("a message");
            let line = format!("error: {}\n", printable(message));
            assert!(failed.err.contains(&line), "{line}{}", failed.err);
            exact += u32::from(message.contains(OBEYED));
        }
        let path = format!("tables.rows.path={}", toml(OBEYED));
        lake.call_on(&file, "run", &[&path]).fails(1, "\\u{202e}");
    }
    assert!(exact > 0);
    lake.line("init rows.parquet").succeeds();
    // Files and folders with such names, as far as stores take them, and cells of text.
    let folder = "in/hive\u{202e}=1";
    fs::create_dir_all(lake.path(folder)).expect("a folder");
    let cells = format!("a,t{OBEYED}\n1,2\n{OBEYED},{OBEYED}\n");
    let csv = format!("{folder}/file\u{202e}.csv");
    lake.file(&csv, &cells.replace('\r', ""));
    for place in ["in", folder, &csv, OBEYED] {
        lake.gyre(&["init", place]);
        let table = format!("tables.rows={{path={}, format=\"csv\"}}", toml(place));
        let [id, state, part] = ["id", "state", "part"].map(name);
        let sql = format!(
            "transitions.sql=SELECT a AS \"{id}\", 1 AS t, CAST(a AS BIGINT) AS \"{state}\", 1 AS \"{part}\" FROM rows"
        );
        let failed = lake.gyre(&["run", "0.toml", "--set", &table, "--set", &sql]);
        assert_eq!(failed.code, Some(1), "{}", failed.err);
    }
    let failing: [&[&str]; 9] = [
        &[OBEYED],
        &["run", OBEYED],
        &["run", "0.toml", OBEYED],
        &["run", "0.toml", "--memory", OBEYED],
        &["compare", "out0", OBEYED],
        &["inspect", "out0", OBEYED],
        &["inspect", "out0", "--sql", OBEYED],
        &["report", OBEYED],
        &["restore", OBEYED],
    ];
    for command in failing {
        assert_ne!(lake.gyre(command).code, Some(0), "{command:?}");
    }
}

/// All files below a folder, by their paths in that folder.
fn files(folder: &Path) -> BTreeSet<PathBuf> {
    let inside = |path: PathBuf| {
        path.strip_prefix(folder)
            .expect("a path inside")
            .to_path_buf()
    };
    files_below(folder).into_iter().map(inside).collect()
}

/// A parameter from the environment is bound to the query and appears in no file of a run.
#[test]
fn parameters_appear_in_no_file_of_a_run() {
    const SECRET: &str = "planted-4f1c9a";
    let lake = small_lake();
    let new = "SELECT * FROM rows WHERE $token <> ''";
    let text = lake.text("p.toml").replace("SELECT * FROM rows", new);
    let new = "[transitions.parameters]\ntoken = \"${TOKEN}\"\n\n[[fit]]\nname = \"dbmr\"";
    let text = text.replace("[[fit]]\nname = \"dbmr\"", new);
    let check = "[[check]]\nname = \"mine\"\nsql = \"SELECT * FROM fits WHERE fit = $token\"\nparameters = { token = \"${TOKEN}\" }\n";
    lake.file("p.toml", &format!("{text}\n{check}"));
    let run = |more: &[&str], code: i32| {
        let mut command = lake.command(&[&REPORTS[..], &["-v"], more].concat());
        let ran = command.env("TOKEN", SECRET).output();
        let ran = ProgramRun::of(ran.expect("the program starts"));
        assert_eq!(ran.code, Some(code), "{}", ran.err);
        let printed = ran.out + &ran.err;
        assert!(!printed.contains(SECRET), "{printed}");
    };
    run(&[], 0);
    run(&["--force", "--set", "checks.min_rows=1000"], 3);
    for (column, code) in [("1 / (rank - rank)", 1), ("nothing", 2)] {
        let sql = format!("SELECT {column} FROM fits WHERE $token <> ''");
        run(&["--set", &format!("check.mine.sql={sql}")], code);
    }
    for file in files(lake.folder.path()) {
        let bytes = lake.bytes(&file.display().to_string());
        let has = bytes.windows(SECRET.len()).any(|w| w == SECRET.as_bytes());
        assert!(!has, "{} has the secret", file.display());
    }
}

proptest! {
    /// A reader recovers every label value.
    #[test]
    fn escaped_labels_are_read_back(value in "\\PC*|[\\n\\\\\", =}a]*") {
        let page = format!("# HELP g x\n# TYPE g gauge\ng{{a=\"{}\",b=\"\"}} 1\n", prometheus::label(&value));
        prop_assert_eq!(&samples(&page)[0].1["a"], &value);
    }
}
