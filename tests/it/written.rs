//! The tables that a run writes: `output.tables`, `output.without`, `--only` and `--without`.

use crate::lake::{Lake, Swap, cases};
use std::collections::BTreeSet;

const PIPELINE: &str = r#"
job = { name = "walks", output = "out" }
tables.rows.path = "rows.parquet"
[ROWS]

[output]
OUTPUT

[[fit]]
name = "one"
FIT
"#;

/// The kinds of rows: sections, fits, the optional tables, and some that are always written.
pub const KINDS: [(&str, &str, &[&str], &[&str]); 4] = [
    (
        "transitions]\nsql = \"SELECT id, t, s FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nlag = 1",
        "method = \"dbmr\"\nrank = 2",
        &["coarse", "certificates", "restarts", "counts"],
        &[
            "sources", "targets", "latent", "fits", "spectrum", "sets", "changes",
        ],
    ),
    (
        "points]\nsql = \"SELECT id * 100 + t AS key, t, s, id FROM rows\"\nid = \"key\"\ncoordinates = [\"t\", \"s\", \"id\"]",
        "method = \"diffusion_map\"\ndimension = 2",
        &["spectrum", "certificates", "distortion"],
        &["points", "features", "landmarks", "fits"],
    ),
    (
        "sequences]\nsql = \"SELECT id, t, s FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nsymbol = \"s\"",
        "method = \"spectral_hmm\"\nrank = 2",
        &["hidden_transitions", "triples", "certificates"],
        &["symbols", "operators", "vectors", "trajectories", "fits"],
    ),
    (
        "sequences]\nsql = \"SELECT id, t, s, s + t % 3 AS x FROM rows\"\ntrajectory = \"id\"\ntime = \"t\"\nstate = \"s\"\nobservation = \"x\"",
        "method = \"kalman\"",
        &["tuning", "certificates"],
        &["factors", "trajectories", "fits"],
    ),
];

/// Twelve walks of 40 steps among five states.
pub fn lake() -> Lake {
    let lake = Lake::new();
    let rows = (0..12 * 40).map(|row| (row / 40, row % 40));
    let rows = rows.map(|(id, t)| [id, t, (id * 7 + t * t + t / 5) % 5]);
    lake.integers("rows.parquet", ["id", "t", "s"], rows);
    lake
}

pub fn pipeline(lake: &Lake, kind: usize, output: &str) {
    let (rows, fit, ..) = KINDS[kind];
    let text = PIPELINE
        .swap("[ROWS]", &format!("[{rows}"))
        .swap("OUTPUT", output)
        .swap("FIT", fit);
    lake.file("p.toml", &text);
}

/// The tables of the result.
fn tables(lake: &Lake) -> BTreeSet<String> {
    lake.tables_of("out/current").into_keys().collect()
}

fn names(tables: &[&str]) -> BTreeSet<String> {
    tables.iter().map(ToString::to_string).collect()
}

#[test]
fn tables_are_left_out_of_results_of_every_kind() {
    for (kind, (_, _, optional, needed)) in KINDS.iter().enumerate() {
        let lake = lake();
        pipeline(&lake, kind, "");
        lake.runs(&[]);
        let all = tables(&lake);
        assert!(all.is_superset(&names(optional)), "{kind}: {all:?}");
        assert!(all.is_superset(&names(needed)), "{kind}: {all:?}");

        let first = optional[0];
        pipeline(&lake, kind, &format!("without = [\"{first}\"]"));
        let plan = lake.call("plan", &[]).succeeds();
        let mut lines = plan.out.lines();
        let line = lines.find(|line| line.trim().starts_with("write"));
        let line = line.unwrap_or_else(|| panic!("{}", plan.out));
        assert!(!line.contains(first) && line.contains("fits"), "{line}");
        lake.runs(&[]);
        let mut others = all.clone();
        others.remove(first);
        assert_eq!(tables(&lake), others, "{kind}");
        let again = lake.runs(&[]);
        let said = again.out + &again.err;
        assert!(said.contains("Nothing to do."), "{said}");

        // The command line comes before the file.
        pipeline(&lake, kind, "");
        let only = format!("--only={first}");
        lake.gyre(&["run", "p.toml", &only]).succeeds();
        let found = tables(&lake);
        assert!(found.contains(first), "{found:?}");
        assert!(found.is_superset(&names(needed)), "{found:?}");
        let rest = names(&optional[1..]);
        assert!(found.is_disjoint(&rest), "{kind}: {found:?}");
        let without = format!("--without={}", optional.join(","));
        lake.gyre(&["run", "p.toml", &without]).succeeds();
        assert!(tables(&lake).is_disjoint(&names(optional)), "{kind}");
    }
}

/// A result without its optional tables serves all later commands.
#[test]
fn later_commands_need_no_optional_table() {
    for kind in 0..KINDS.len() {
        let lake = lake();
        pipeline(&lake, kind, "tables = []");
        lake.runs(&[]);
        lake.line("run p.toml --seed 2").succeeds();
        let assigned = ["assign", "p.toml", "--model", "out", "--output", "new"];
        lake.gyre(&assigned).succeeds();
        // New rows have keys of their own, which may be called like columns of the model.
        let (key, table) = [
            ("transitions", "trajectories"),
            ("one_embedding", "points"),
            ("rows", "trajectories"),
            ("rows", "trajectories"),
        ][kind];
        let text = lake.text("p.toml");
        let id = ["trajectory = \"id\"", "id = \"key\""];
        let id = id.into_iter().find(|id| text.contains(id)).expect("a key");
        let name = id.split('"').nth(1).expect("a name");
        let other = format!("sql = \"SELECT id * 100 + t AS {key}, ");
        let text = text
            .replace(id, &id.replace(name, key))
            .replace("sql = \"SELECT ", &other);
        // The fits of points are those of the model, whatever the pipeline calls its own.
        let text = if kind == 1 {
            text.replace("\"one\"", "\"two\"")
        } else {
            text
        };
        lake.file("q.toml", &text);
        let message = format!("the table `{table}` would have two columns `{key}`");
        lake.line("assign q.toml --model out --output newer")
            .fails(2, &message);
        assert!(!lake.path("newer/current.json").exists());
        // Rows that were assigned are no model, and a run may replace them.
        let no_models = "has assigned rows and no models; name the output of a run";
        lake.line("assign p.toml --model new --output newer")
            .fails(2, no_models);
        lake.line("compare out new").fails(2, no_models);
        lake.runs(&["job.output=new"]);
        lake.line("compare out out").succeeds();
        #[cfg(feature = "report")]
        {
            lake.line("inspect out").succeeds();
            lake.line("report out").succeeds();
        }
    }
}

#[test]
fn counts_of_counts_are_written_if_they_are_asked_for() {
    let lake = lake();
    let rows = "transitions]\nsql = \"SELECT s AS a, id % 3 AS b, t + 1 AS n FROM rows\"\nsource = \"a\"\ntarget = \"b\"\nMEASURE";
    let run = |measure: &str, output: &str| {
        let text = PIPELINE
            .swap("[ROWS]", &format!("[{}", rows.replace("MEASURE", measure)))
            .swap("OUTPUT", output)
            .swap("FIT", "method = \"dbmr\"\nrank = 1");
        lake.runs_text(&text);
        tables(&lake)
    };
    assert!(run("", "").contains("counts"));
    for measure in ["count = \"n\"", "weight = \"n\""] {
        let found = run(measure, "");
        assert!(!found.contains("counts"), "{found:?}");
        assert!(found.contains("coarse"), "{found:?}");
        let found = run(measure, "tables = [\"counts\"]");
        assert!(found.contains("counts"), "{found:?}");
        assert!(!found.contains("coarse"), "{found:?}");
    }
}

/// A run without fits writes the counts of a run with fits, to the byte, and their totals.
#[test]
fn a_run_without_fits_counts() {
    let lake = lake();
    let pairs = "transitions]\nsql = \"SELECT s AS a, id % 3 AS b, t + 0.25 AS w, t + 1 AS n FROM rows\"\nsource = \"a\"\ntarget = \"b\"\n";
    let rows = [
        KINDS[0].0.to_string(),
        pairs.to_string(),
        pairs.to_string() + "count = \"n\"",
        pairs.to_string() + "weight = \"w\"",
    ];
    for rows in rows {
        let fitted = PIPELINE
            .swap("[ROWS]", &format!("[{rows}"))
            .swap("OUTPUT", "tables = [\"counts\"]")
            .swap("FIT", "method = \"dbmr\"\nrank = 1");
        lake.runs_text(&fitted);
        let counts = || lake.bytes("out/counts/part-0.parquet");
        let (written, expected) = (tables(&lake), counts());
        let totals = |side| {
            ["count", "weight", "probability"].map(|name| {
                let table = lake.read(side);
                let is_there = table.0.column_by_name(name).is_some();
                is_there.then(|| table.texts(name))
            })
        };
        let (sources, targets) = (totals("sources"), totals("targets"));
        assert!(sources.iter().flatten().count() == 2, "{sources:?}");

        let text = &fitted[..fitted.find("[[fit]]").expect("a fit")];
        let text = text.replace("tables = [\"counts\"]", "");
        lake.runs_text(&text);
        assert_eq!(tables(&lake), written, "{rows}");
        assert!(counts() == expected, "{rows}");
        assert_eq!((totals("sources"), totals("targets")), (sources, targets));
        assert_eq!(lake.read("fits").len(), 0);
    }

    let none = "has no fit with sets to compare";
    lake.line("compare out out").fails(2, none);
    let assign = ["assign", "p.toml", "--model", "out", "--output", "assigned"];
    lake.gyre(&assign).fails(1, "have no sets to assign");
}

#[test]
fn only_transitions_need_no_fit() {
    let lake = lake();
    let without_fit = |kind: usize| {
        pipeline(&lake, kind, "");
        let text = lake.text("p.toml");
        text[..text.find("[[fit]]").expect("a fit")].to_string()
    };
    for kind in 1..KINDS.len() {
        lake.file("p.toml", &without_fit(kind));
        let missing = "p.toml: the pipeline needs at least one `[[fit]]`: only the counts of `[transitions]` are a result without fits";
        lake.call("check", &[]).fails(2, missing);
    }
    let validated = without_fit(0) + "[validation]\nbootstrap = 2\n";
    lake.file("p.toml", &validated);
    let resampled = "`[validation]` resamples sets of states, and no fit of this pipeline has sets";
    lake.call("check", &[]).fails(2, resampled);
}

#[test]
fn wrong_names_of_tables_are_errors() {
    let lake = lake();
    let table = r#"
        0 | without = ["sources"] | later commands read the table `sources`
        0 | without = ["rows"] | is not written unless other keys ask for it
        0 | tables = ["restart"] | there is no table `restart`
        2 | tables = ["coarse"] | the tables of this run are symbols, operators
        3 | without = ["factors"] | these can be left out: tuning, certificates
    "#;
    for [kind, output, message] in cases(table) {
        pipeline(&lake, kind.parse().expect("a kind"), &output);
        lake.call("check", &[]).fails(2, &message);
    }
    pipeline(&lake, 0, "");
    lake.line("run p.toml --without sets_")
        .fails(2, "`output.without`: there is no table `sets_`");
}

/// A check that reads a table that is not written fails before the run.
#[test]
fn checks_need_written_tables() {
    let lake = lake();
    let check = "[[check]]\nname = \"pairs\"\nsql = \"SELECT * FROM counts WHERE count > 1e9\"\n";
    pipeline(&lake, 0, "");
    let text = lake.text("p.toml");
    lake.file("p.toml", &format!("{text}{check}"));
    lake.call("check", &[]).succeeds();
    let left_out = lake.line("plan p.toml --without counts");
    left_out.fails(2, "check `pairs`");
    left_out.fails(2, "the run does not write the table `counts`");
}

/// The plan of a kind of rows, with a partition column or another key.
async fn planned(
    lake: &Lake,
    text: &str,
) -> gyre::Result<Vec<(&'static str, arrow::datatypes::SchemaRef)>> {
    let path = lake.path("rows.parquet").display().to_string();
    let text = text.replace("rows.parquet", &path);
    let pipeline = gyre::Pipeline::parse(&text, "p.toml", &[], &|_: &str| None)?;
    let inputs = pipeline.open().await?;
    Ok(inputs.plan_any(None).await?.schemas())
}

/// Every table begins with the partition, so no column of any table can be one.
#[tokio::test]
async fn a_partition_has_no_name_of_another_column() {
    for kind in 0..KINDS.len() {
        let lake = lake();
        pipeline(&lake, kind, "");
        let text = lake.text("p.toml");
        let schemas = planned(&lake, &text).await.expect("a plan");
        let fields = schemas.iter().flat_map(|(_, schema)| schema.fields());
        let names: BTreeSet<&String> = fields.map(|field| field.name()).collect();
        assert!(names.len() > 20, "{names:?}");
        let of = |name: &str| {
            let sql = format!("SELECT id % 2 AS \\\"{name}\\\", ");
            let sql = text.replace("sql = \"SELECT ", &format!("sql = \"{sql}"));
            let (head, rest) = sql.split_once("\n\n[output]").expect("a section");
            format!("{head}\npartition_by = \"{name}\"\n\n[output]{rest}")
        };
        let free = planned(&lake, &of("model")).await.expect("a plan");
        for (table, schema) in &free {
            assert_eq!(schema.field(0).name(), "model", "{table}");
        }
        // A key of the rows already has another role.
        let is_own = |name: &&str| ["id", "t", "s", "x", "key"].contains(name);
        let names = names.into_iter().map(String::as_str).chain(["lag"]);
        for name in names.filter(|name| !is_own(name)) {
            let e = planned(&lake, &of(name)).await.expect_err(name);
            assert!(e.to_string().contains(&format!("`{name}`")), "{kind}: {e}");
        }
    }
}

/// Fits and keys that would write one column twice.
#[tokio::test]
async fn no_fit_writes_a_column_of_another() {
    let map = "method = \"diffusion_map\"\ndimension = 2\n";
    let sketch = "method = \"heat_sketch\"\ndimension = 2\n";
    let fit = |name: &str, of: &str| format!("[[fit]]\nname = \"{name}\"\n{of}\n");
    let twice = |column: &str, table: &str| {
        format!("the table `{table}` would have two columns `{column}`")
    };
    let cases = [
        (
            1,
            "key",
            fit("map", &format!("{map}time = [1, 8]")) + &fit("map_t1", map),
            twice("map_t1_embedding", "points"),
        ),
        (
            1,
            "key",
            fit("map", &format!("{map}time = [1, 1.0]")),
            "`fit.map.time` has 1 twice".to_string(),
        ),
        (
            1,
            "map_p2_embedding",
            fit("map", &format!("{sketch}power = [2, 4]")),
            twice("map_p2_embedding", "points"),
        ),
        (
            0,
            "id",
            fit("map", &format!("{map}time = [1, 8]")) + &fit("map_t8", map),
            twice("map_t8_embedding", "sources"),
        ),
    ];
    let lake = lake();
    for (kind, key, fits, message) in cases {
        pipeline(&lake, kind, "");
        let text = lake.text("p.toml");
        let text = text.split("[[fit]]").next().expect("a head");
        let text = text
            .replace("AS key", &format!("AS {key}"))
            .replace("\"key\"", &format!("\"{key}\""));
        let e = planned(&lake, &(text + &fits)).await.expect_err(&message);
        assert!(e.to_string().contains(&message), "{e}");
    }
}

/// A result of other rows is replaced, whatever kind it is, and is no source of names.
#[test]
fn a_result_of_every_kind_replaces_one_of_every_other() {
    let lake = lake();
    let checks = "[checks]\nmax_drift = 0.5\n";
    // Every ordered pair of kinds once.
    let mut before: Option<usize> = None;
    for kind in [0, 1, 0, 2, 0, 3, 1, 2, 1, 3, 2, 3, 0] {
        pipeline(&lake, kind, "");
        if kind == 0 {
            let text = lake.text("p.toml");
            // No walk has 50 steps, so that a model is empty.
            let text = text.replace("lag = 1", "lag = [1, 50]");
            lake.file("p.toml", &(text.clone() + checks));
            if before.is_some() {
                let named = text + "[names]\nfrom = \"out\"\n";
                let run = ["run", "q.toml", "--set", "job.output=other"];
                let message =
                    "and has no sets of states; name the output of a run with `[transitions]`";
                lake.file("q.toml", &named).gyre(&run).fails(2, message);
            }
        }
        let ran = lake.runs(&[]);
        let is_anew = kind == 0 && before.is_some();
        let is_said = ran.err.contains("sets get new names");
        assert_eq!(is_said, is_anew, "{}", ran.err);
        before = Some(kind);
    }
}
