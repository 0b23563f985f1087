//! Results that earlier programs wrote, in `results`, whose README says how. New rows are assigned
//! by them, new runs are compared with them, and runs with one more file replace them.

use crate::buckets::bucket;
use crate::clouds::gyre;
use crate::lake::{Lake, Rows, words};
use crate::symbols_around::assert_equal;
use crate::wire::{Protocol, Server};
use arrow::array::RecordBatch;
use futures::TryStreamExt;
use object_store::path::Path as Key;
use object_store::{ObjectStore, ObjectStoreExt};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// The results of one kind of evidence, before and after outputs had `files.json`.
const STORED: [&str; 2] = ["without_hashes", "with_hashes"];

/// What holds for the results of one kind of evidence.
struct Case {
    kind: &'static str,
    /// A table that an assignment writes, and its columns that the result also has.
    assigned: (&'static str, &'static str),
    /// What a comparison with a new run over the same rows prints.
    compared: &'static [&'static str],
    /// What a run with one more file prints.
    continued: &'static [&'static str],
}

fn folder(kind: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/results")
        .join(kind)
}

fn json(path: &Path) -> Value {
    let text = fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).expect("JSON")
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key]
        .as_str()
        .unwrap_or_else(|| panic!("no {key} in {value}"))
}

/// Puts the file or all files below the folder at `from` into the bucket.
#[tokio::main(flavor = "current_thread")]
async fn put(server: &Server, from: &Path, to: &str) {
    let mut left = vec![(from.to_path_buf(), to.to_string())];
    while let Some((path, key)) = left.pop() {
        if !path.is_dir() {
            let bytes = fs::read(&path).expect("a file");
            let key = Key::from(key);
            let put = server.store.put(&key, bytes.into()).await;
            put.expect("the object is put");
            continue;
        }
        for entry in fs::read_dir(&path).expect("a folder") {
            let name = entry.expect("an entry").file_name();
            let name = name.to_str().expect("a name");
            left.push((path.join(name), format!("{key}/{name}")));
        }
    }
}

/// The tables of the current result of an output in the bucket.
#[tokio::main(flavor = "current_thread")]
async fn tables(server: &Server, output: &str) -> BTreeMap<String, Vec<u8>> {
    let get = async |key: &Key| {
        let got = server.store.get(key).await.expect("an object");
        got.bytes().await.expect("bytes").to_vec()
    };
    let pointer = get(&Key::from(format!("{output}/current.json"))).await;
    let pointer: Value = serde_json::from_slice(&pointer).expect("JSON");
    let version = format!("{output}/{}", text(&pointer, "folder"));
    let prefix = Key::from(version.clone());
    let listed = server.store.list(Some(&prefix));
    let listed: Vec<_> = listed.try_collect().await.expect("a list");
    let mut tables = BTreeMap::new();
    for meta in listed {
        let name = meta.location.to_string().replace(&version, "");
        if name.ends_with(".parquet") {
            tables.insert(name, get(&meta.location).await);
        }
    }
    assert!(tables.len() > 3, "{:?}", tables.keys());
    tables
}

fn columns(rows: &Rows, names: &[&str]) -> Rows {
    let columns = names
        .iter()
        .map(|name| (*name, rows.column(name).clone(), true));
    Rows(RecordBatch::try_from_iter_with_nullable(columns).expect("columns of one length"))
}

/// Whether and how a run counts new files only after a result: a ledger of another version of gyre
/// has all files counted again.
fn increment(version: &Path) -> Option<&'static str> {
    let ledger = version.join("ledger.json");
    let ledger = ledger.exists().then(|| json(&ledger))?;
    Some(match text(&ledger["basis"], "gyre") {
        env!("CARGO_PKG_VERSION") => "  1 new file\n",
        _ => "another version of gyre counted",
    })
}

fn check(case: &Case) {
    let lake = Lake::new();
    let (server, options, _) = bucket(Protocol::S3);
    let root = folder(case.kind);
    fs::copy(root.join("pipeline.toml"), lake.path("p.toml")).expect("a pipeline");
    put(&server, &root.join("rows/0.csv"), "rows/0.csv");
    let gyre = |arguments: &[&str]| gyre(&lake, &options, arguments).succeeds().out;
    let run = |output: &str, more: &[&str]| {
        let output = format!("job.output=s3://lake/{output}");
        gyre(&[&["run", "p.toml", "--set", &output], more].concat())
    };
    run("new", &[]);
    for stored in STORED {
        let (result, copy) = (root.join(stored), format!("{stored}_copy"));
        put(&server, &result, stored);
        put(&server, &result, &copy);
        let model = format!("s3://lake/{stored}");

        let (table, names) = case.assigned;
        let names = &words(names);
        gyre(&["assign", "p.toml", "--model", &model, "--output", stored]);
        let assigned = lake.read_at(&format!("{stored}/{table}"));
        let version = result.join(text(&json(&result.join("current.json")), "folder"));
        let expected = Rows::open(&version.join(table).join("part-0.parquet"));
        assert_equal(&columns(&expected, names), &columns(&assigned, names));

        let compared = gyre(&["compare", &model, "s3://lake/new"]);
        for line in case.compared {
            assert!(compared.contains(line), "{stored}: {line:?} in {compared}");
        }
    }

    put(&server, &root.join("rows/1.csv"), "rows/1.csv");
    let names = ["--set", "names.from=s3://lake/with_hashes"];
    run("whole", if case.kind == "counts" { &names } else { &[] });
    let whole = tables(&server, "whole");
    for stored in STORED {
        let copy = format!("{stored}_copy");
        let result = json(&root.join(stored).join("current.json"));
        let version = root.join(stored).join(text(&result, "folder"));
        let continued = run(&copy, &[]);
        for line in case.continued.iter().copied().chain(increment(&version)) {
            assert!(
                continued.contains(line),
                "{stored}: {line:?} in {continued}"
            );
        }
        assert!(tables(&server, &copy) == whole, "{stored}");
        // The earlier result is kept.
        gyre(&[
            "restore",
            &format!("s3://lake/{copy}"),
            text(&result, "run"),
        ]);
        assert!(
            tables(&server, &copy) == tables(&server, stored),
            "{stored}"
        );
    }
}

#[test]
fn earlier_counts_are_read() {
    check(&Case {
        kind: "counts",
        assigned: (
            "sources",
            "state count dbmr_affiliation dbmr_embedding svd_affiliation svd_embedding",
        ),
        compared: &[
            "dbmr: sets 2 kept; 0 of 6 states changed set",
            "svd: sets 2 kept; 0 of 6 states changed set",
        ],
        continued: &[
            "after the earlier result:",
            "dbmr: sets 2 kept; 0 of 6 states changed set",
            "svd: sets 2 kept; 0 of 6 states changed set",
        ],
    });
}

#[test]
fn earlier_points_are_read() {
    check(&Case {
        kind: "points",
        assigned: ("points", "id t states_affiliation states_embedding"),
        compared: &["90 common rows", "100.00 % in matched clusters"],
        continued: &["120 points in 120 rows"],
    });
}

#[test]
fn earlier_symbols_are_read() {
    check(&Case {
        kind: "symbols",
        assigned: (
            "predictions",
            "id t symbol hmm_log_likelihood hmm_next_symbol hmm_next_probability hmm_embedding",
        ),
        compared: &[
            "4 common symbols, 0 only in A, 0 only in B",
            "4 common trajectories",
            "hmm  rank 2 → 2",
        ],
        continued: &["232 windows in 240 rows"],
    });
}

#[test]
fn earlier_observations_are_read() {
    check(&Case {
        kind: "observations",
        assigned: (
            "estimates",
            "id t known_state kalman_mean kalman_variance kalman_log_score kernel_mean kernel_variance kernel_decoded",
        ),
        compared: &[
            "60 common rows with estimates",
            "\n  kalman\n",
            "\n  kernel\n",
        ],
        continued: &["57 transitions in 80 rows"],
    });
}
