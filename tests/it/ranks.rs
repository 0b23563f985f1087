//! The choice of the rank: the table that compares ranks and the rules that select one, on chains
//! with planted sets.

use crate::lake::{Lake, Rows, integer_columns, texts};
use arrow::array::{Array, AsArray};
use arrow::datatypes::Float64Type;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Writes three sets of 4 states in `north` and two sets of 6 states in `south`, with 40
/// trajectories of 120 rows each. A trajectory leaves its set with probability 1/12 per step.
fn basins(lake: &Lake) {
    let mut random = Pcg64::seed_from_u64(5);
    let (mut basin, mut rows) = (Vec::new(), Vec::new());
    for (name, size) in [("north", 4), ("south", 6)] {
        for trajectory in 0..40i64 {
            let mut at = random.random_range(0..12i64);
            for t in 0..120i64 {
                basin.push(name);
                rows.push([trajectory, t, at, at / size]);
                at = match random.random_range(0..12) {
                    0 => random.random_range(0..12),
                    _ => at / size * size + random.random_range(0..size),
                };
            }
        }
    }
    let mut columns = integer_columns(["id", "t", "state", "region"], rows);
    columns.push(("basin", texts(basin)));
    lake.table("tracks.parquet", columns);
}

const BASINS: &str = r#"
job = { name = "basins", output = "out" }
tables.tracks.path = "tracks.parquet"
[transitions]
sql = "SELECT * FROM tracks"
trajectory = "id"
time = "t"
state = "state"
lag = 1
partition_by = ["basin"]

[validation]
folds = 4

[[fit]]
name = "sweep"
method = "dbmr"
rank = [2, 3]

[[fit]]
name = "auto"
method = "dbmr"
rank = "auto"
ranks = [5, 2, 3, 4, 40]
rule = "held-out"

[[fit]]
name = "gap"
method = "svd"
rank = "auto"
ranks = [2, 3, 4]
rule = "gap"

[[fit]]
name = "truth"
method = "given"
affiliation = "region"
"#;

/// Row numbers of a fit in a partition.
fn rows_of(rows: &Rows, basin: &str, fit: &str) -> Vec<usize> {
    let (basins, fits) = (rows.texts("basin"), rows.texts("fit"));
    let is = |&at: &usize| basins[at] == basin && fits[at] == fit;
    (0..rows.len()).filter(is).collect()
}

#[test]
fn ranks_are_compared_and_selected_per_partition() {
    let lake = Lake::new();
    basins(&lake);
    let ran = lake.runs_text(BASINS);
    let ranks = lake.read("ranks");
    let mut columns = String::new();
    for field in ranks.0.schema().fields() {
        let null = if field.is_nullable() { " null" } else { "" };
        columns += &format!("{} {}{null}\n", field.name(), field.data_type());
    }
    insta::assert_snapshot!("columns", columns);
    let (rank, chosen) = (ranks.integers("rank"), ranks.texts("is_chosen"));
    let (reason, held_out) = (ranks.texts("reason"), ranks.floats("held_out"));
    let fits = lake.read("fits");
    for (basin, planted) in [("north", 3), ("south", 2)] {
        for (fit, tried) in [
            ("auto", &[2, 3, 4, 5][..]),
            ("gap", &[2, 3, 4]),
            ("sweep", &[2, 3]),
            ("truth", &[3]),
        ] {
            let rows = rows_of(&ranks, basin, fit);
            let own: Vec<i64> = rows.iter().map(|&at| rank[at]).collect();
            assert_eq!(own, tried, "{basin} {fit}");
            for &at in &rows {
                let is_chosen = matches!(fit, "auto" | "gap") && rank[at] == planted;
                let place = format!("{basin} {fit} {}", rank[at]);
                assert_eq!(chosen[at], is_chosen.to_string(), "{place}");
                assert_eq!(reason[at] != "null", is_chosen);
                assert!(!is_chosen || ran.out.contains(&reason[at]), "{}", ran.out);
            }
            if matches!(fit, "auto" | "gap") {
                let written = rows_of(&fits, basin, fit);
                assert_eq!(fits.integers("rank")[written[0]], planted);
            }
        }
        // If DBMR finds the planted sets in every fold, it has the same score.
        let auto = rows_of(&ranks, basin, "auto");
        let best = auto.iter().find(|&&at| rank[at] == planted).expect("a row");
        let truth = rows_of(&ranks, basin, "truth")[0];
        assert!((held_out[*best] - held_out[truth]).abs() < 1e-9);
    }
    assert_eq!(ranks.integers("folds"), vec![4; ranks.len()]);
    ran.says("auto: rank 3 of 2, 3, 4, 5 by held-out: ");

    // The embedding has the size of the largest candidate. For a smaller rank, the remaining values
    // are zero.
    let sources = lake.read("sources");
    let embedding = sources.column("auto_embedding").as_fixed_size_list();
    assert_eq!(embedding.value_length(), 40);
    let numbers = embedding.values().as_primitive::<Float64Type>().values();
    for (row, basin) in numbers.chunks(40).zip(sources.texts("basin")) {
        let planted = if basin == "north" { 3 } else { 2 };
        assert!((row[0] - 1.0).abs() < 1e-9 && row[..planted].iter().all(|x| *x != 0.0));
        assert!(row[planted..].iter().all(|x| *x == 0.0));
    }

    // Threads and a second run do not change a byte.
    let before = lake.bytes("out/ranks/part-0.parquet");
    lake.line("run p.toml --force --threads 3").succeeds();
    let after = lake.bytes("out/ranks/part-0.parquet");
    assert!(before == after);
}

#[test]
fn ranks_without_folds_and_of_counts() {
    let lake = Lake::new();
    // Two sets of three states, without counts between them.
    let pairs = (0..36).map(|at| (at / 6, at % 6));
    let pairs = pairs.filter(|(j, i)| j / 3 == i / 3);
    let pairs = pairs.map(|(j, i)| [j, i, 20 + j + 2 * i]);
    lake.integers("pairs.parquet", ["a", "b", "n"], pairs);
    let pipeline = |rank: &str| {
        let text = format!(
            "[job]\nname = \"pairs\"\noutput = \"out\"\n[tables.pairs]\npath = \"pairs.parquet\"\n[transitions]\nsql = \"SELECT * FROM pairs\"\nsource = \"a\"\ntarget = \"b\"\ncount = \"n\"\n[[fit]]\nname = \"dbmr\"\nmethod = \"dbmr\"\n{rank}\n"
        );
        lake.file("p.toml", &text);
    };
    pipeline("rank = 2");
    lake.runs(&[]);
    assert!(!lake.path("out/ranks").exists(), "nothing is compared");

    pipeline("rank = \"auto\"\nranks = [1, 2, 3, 6]\nrule = \"bic\"");
    let plan = lake.call("plan", &[]).succeeds().out;
    let fit = "DBMR, rank one of 1 2 3 6 by bic, ";
    assert!(plan.contains(fit), "{plan}");
    assert!(plan.contains(", ranks"), "{plan}");
    lake.runs(&[]);
    let ranks = lake.read("ranks");
    let expected = ["false", "true", "false", "false"];
    assert_eq!(ranks.texts("is_chosen"), expected);
    assert_eq!(ranks.column("held_out").null_count(), 4);
    // P̃ has two blocks: σ = 1, 1 and smaller values from the uneven counts. There is no seventh
    // value.
    let gap = ranks.floats("gap");
    assert!(gap[0].abs() < 1e-8 && gap[1] > 0.9, "{gap:?}");
    assert_eq!(ranks.floats("next_singular_value")[3], 0.0);
    // With three targets per set there are 2 · (3 − 1) free parameters, and with one set 6 − 1.
    assert_eq!(ranks.integers("parameters")[..2], [5, 4]);

    let validation = "[validation]\nfolds = 3\nbootstrap = 10";
    let auto = "rank = \"auto\"\nranks = [1, 2, 3]\nrule = \"held-out\"";
    pipeline(&format!("{auto}\n{validation}"));
    lake.runs(&[]);
    let ranks = lake.read("ranks");
    assert_eq!(ranks.texts("is_chosen"), ["false", "true", "false"]);
    assert_eq!(ranks.floats("held_out_unseen"), [0.0; 3]);
    // Every resample finds the two blocks.
    assert_eq!(ranks.floats("stability")[..2], [1.0, 1.0]);

    pipeline("rank = \"auto\"\nranks = [8, 9]\nrule = \"bic\"");
    let message = "fit `dbmr`: all of its `ranks` are larger than the number of states (6 sources, 6 targets)";
    lake.run(&[]).fails(1, message);
}
