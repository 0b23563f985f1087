//! Sets keep their names from run to run. Tables, the summary and `gyre compare` report the
//! changes.

use crate::cli::integers;
use crate::lake::{Lake, Rows, Swap, floats, texts};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{Int32Type, UInt32Type, UInt64Type};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::collections::BTreeSet;
use std::ops::Range;

const PIPELINE: &str = r#"
job = { name = "blocks", output = "out" }
tables.pairs.path = "pairs.parquet"
[transitions]
sql = "SELECT * FROM pairs"
source = "a"
target = "b"
count = "n"
partition_by = "part"

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3

[[fit]]
name = "svd"
method = "svd"
rank = 3
"#;

/// Writes a table of pairs. In each part, states of one block have 9 transitions to each other and
/// 1 to every other state.
fn blocks(lake: &Lake, parts: &[(&str, &[Range<i64>])]) {
    let mut rows: Vec<(&str, i64, i64, i64)> = Vec::new();
    for (part, blocks) in parts {
        let states = || {
            let blocks = blocks.iter().enumerate();
            blocks.flat_map(|(k, block)| block.clone().map(move |state| (state, k)))
        };
        for (a, k) in states() {
            rows.extend(states().map(|(b, l)| (*part, a, b, if k == l { 9 } else { 1 })));
        }
    }
    let part = texts(rows.iter().map(|r| r.0));
    let columns = vec![
        ("part", part),
        ("a", integers(rows.iter().map(|r| r.1))),
        ("b", integers(rows.iter().map(|r| r.2))),
        ("n", integers(rows.iter().map(|r| r.3))),
    ];
    lake.table("pairs.parquet", columns);
}

/// The rows of `sets` of a fit as text: `id number event previous [parents]`, with `-` for null.
fn sets(lake: &Lake, part: &str, fit: &str) -> Vec<String> {
    let rows = lake.read("sets");
    let (parts, fits, events) = (rows.texts("part"), rows.texts("fit"), rows.texts("event"));
    let ids = rows.integers("set_id");
    let number = |column: &str, at: usize| {
        let column = rows.column(column).as_primitive::<Int32Type>();
        let value = column.is_valid(at).then(|| column.value(at).to_string());
        value.unwrap_or("-".into())
    };
    let own = (0..rows.len()).filter(|&at| parts[at] == part && fits[at] == fit);
    own.map(|at| {
        let parents = rows.column("parents").as_list::<i32>().value(at);
        let parents = parents.as_primitive::<UInt32Type>().values().to_vec();
        let (new, old) = (number("latent", at), number("previous_latent", at));
        format!("{} {new} {} {old} {parents:?}", ids[at], events[at])
    })
    .collect()
}

/// The set of a state.
fn set_of(rows: &Rows, part: &str, fit: &str, state: i64) -> i64 {
    let (parts, states) = (rows.texts("part"), rows.integers("a"));
    let at = (0..rows.len()).find(|&at| parts[at] == part && states[at] == state);
    rows.integers(&format!("{fit}_affiliation"))[at.expect("the row of the state")]
}

#[test]
fn splits_merges_ends_and_starts_of_sets_are_recorded() {
    let lake = Lake::new();
    lake.file("p.toml", PIPELINE);
    blocks(&lake, &[("x", &[0..18, 18..30, 30..40])]);
    let ran = lake.runs(&[]);
    assert!(!ran.out.contains("earlier"), "{}", ran.out);
    for fit in ["dbmr", "svd"] {
        let first = ["0 0 null - []", "1 1 null - []", "2 2 null - []"];
        assert_eq!(sets(&lake, "x", fit), first, "{fit}");
    }
    assert!(lake.read("changes").column("shared_states").is_null(0));

    // The first set splits in two, and the other two merge. The merged set is now the heaviest, but
    // it keeps the number of its larger part.
    blocks(&lake, &[("x", &[0..10, 10..18, 18..43])]);
    let ran = lake.runs(&[]);
    for fit in ["dbmr", "svd"] {
        let second = [
            "0 0 split 0 [0]",
            "1 1 merged 1 [1, 2]",
            "2 - merged 2 []",
            "3 2 split - [0]",
        ];
        assert_eq!(sets(&lake, "x", fit), second, "{fit}");
        let sources = lake.read("sources");
        let found = [5, 15, 20, 35, 41].map(|state| set_of(&sources, "x", fit, state));
        assert_eq!(found, [0, 2, 1, 1, 1], "{fit}");
    }
    // All tables use the new number of a set.
    let fits = lake.read("fits");
    let sizes = fits.column("source_sizes").as_list::<i32>().value(0);
    assert_eq!(sizes.as_primitive::<UInt64Type>().values(), &[10, 25, 8]);
    let coarse = lake.read("coarse");
    let own = coarse
        .integers("latent")
        .into_iter()
        .zip(coarse.integers("target_set"));
    let counts: Vec<i64> = own
        .zip(coarse.integers("count"))
        .filter(|((k, l), _)| k == l)
        .map(|(_, n)| n)
        .collect();
    assert_eq!(counts[..3], [900, 9 * 25 * 25, 9 * 8 * 8]);
    let changes = lake.read("changes");
    let numbers = |column: &str| changes.integers(column)[0];
    let states = [
        "shared_states",
        "new_states",
        "gone_states",
        "changed_states",
    ];
    assert_eq!(states.map(numbers), [40, 3, 0, 18]);
    let report = ran.out.split("after the earlier result:").nth(1);
    insta::assert_snapshot!(
        "names_summary",
        report
            .and_then(|t| t.split("\nseconds").next())
            .expect("changes")
    );

    // The first part disappears and a new set appears. It reuses the free number, but not the id.
    blocks(&lake, &[("x", &[10..18, 18..43, 50..60])]);
    lake.runs(&[]);
    let third = [
        "0 - died 0 []",
        "1 1 kept 1 [1]",
        "3 2 kept 2 [2]",
        "4 0 born - []",
    ];
    assert_eq!(sets(&lake, "x", "dbmr"), third);

    // A repeated run without changes writes the same bytes, including the changes of the first of
    // the two runs.
    let before = lake.tables();
    lake.line("run p.toml --force").succeeds();
    assert!(lake.tables() == before, "the same plan gives other bytes");

    // With fewer sets, the larger ones keep their numbers.
    lake.runs(&["fit.dbmr.rank=2"]);
    assert_eq!(lake.read("changes").integers("next_id"), [5, 5]);
    let of_larger = set_of(&lake.read("sources"), "x", "dbmr", 20);
    assert_eq!(of_larger, 1);
}

#[test]
fn partitions_may_appear_and_disappear() {
    let lake = Lake::new();
    lake.file("p.toml", PIPELINE);
    let three: &[Range<i64>] = &[0..6, 6..11, 11..15];
    blocks(&lake, &[("x", three), ("y", three)]);
    lake.runs(&[]);
    blocks(&lake, &[("y", &[6..11, 0..6, 11..19]), ("z", three)]);
    lake.runs(&[])
        .says("in the earlier result and not in this one: part=x\n");
    let kept = ["0 0 kept 0 [0]", "1 1 kept 1 [1]", "2 2 kept 2 [2]"];
    assert_eq!(sets(&lake, "y", "dbmr"), kept);
    let first = ["0 0 null - []", "1 1 null - []", "2 2 null - []"];
    assert_eq!(sets(&lake, "z", "dbmr"), first);

    // By weight, the set of eight states is the first.
    lake.runs(&["names.from=none"]);
    assert_eq!(set_of(&lake.read("sources"), "y", "dbmr", 12), 0);
    assert_eq!(sets(&lake, "y", "dbmr"), first);
}

#[test]
fn names_are_taken_from_another_output() {
    let lake = Lake::new();
    lake.file("p.toml", PIPELINE);
    blocks(&lake, &[("x", &[0..9, 9..17, 17..24])]);
    lake.runs(&["job.output=model"]);
    blocks(&lake, &[("x", &[0..4, 9..14, 17..26])]);
    let run = ["run", "p.toml", "--set", "names.from=model"];
    lake.gyre(&run).succeeds();
    let sources = lake.read("sources");
    let found = [0, 10, 20].map(|state| set_of(&sources, "x", "svd", state));
    assert_eq!(found, [0, 1, 2]);
    lake.run(&["names.from=modle"])
        .fails(2, "`names.from`: there is no output of gyre at modle");

    // States of another type cannot give names. This is an error if the pipeline requires names
    // from that output, and a warning otherwise.
    let texts = "transitions.sql=SELECT part, CAST(a AS VARCHAR) AS a, CAST(b AS VARCHAR) AS b, n FROM pairs";
    let message = "the result at model has source states by `a` (Int64), not by `a` (Utf8)";
    lake.run(&["names.from=model", texts]).fails(1, message);
    lake.runs(&[texts])
        .logs("sets get new names: the result at out has source states by `a` (Int64)");
    let first = ["0 0 null - []", "1 1 null - []", "2 2 null - []"];
    assert_eq!(sets(&lake, "x", "dbmr"), first);
    let message = "the result at model has source states by `a` (Int64), not by `a` (Utf8)";
    lake.line("compare model out").fails(1, message);
}

/// The heaviest set differs from that of the model, so names by weight would differ.
#[test]
fn names_of_weighted_pairs_are_taken_from_another_output() {
    let lake = Lake::new();
    let weights = "SELECT part, a, b, n / 8.0 AS w FROM pairs";
    let pipeline = PIPELINE.swap("SELECT * FROM pairs", weights);
    let pipeline = pipeline.replace("count = \"n\"", "weight = \"w\"");
    lake.file("p.toml", &pipeline);
    blocks(&lake, &[("x", &[0..9, 9..17, 17..24])]);
    lake.runs(&["job.output=model"]);
    blocks(&lake, &[("x", &[0..4, 9..14, 17..26])]);
    let named = |from: &str| {
        let from = format!("names.from={from}");
        lake.runs(&[&from]);
        let sources = lake.read("sources");
        ["dbmr", "svd"].map(|fit| [0, 10, 20].map(|state| set_of(&sources, "x", fit, state)))
    };
    assert_eq!(named("model"), [[0, 1, 2]; 2]);
    let kept = ["0 0 kept 0 [0]", "1 1 kept 1 [1]", "2 2 kept 2 [2]"];
    assert_eq!(sets(&lake, "x", "dbmr"), kept);
    // Each of nine states of 18 has 9/8 to every state of its set and 1/8 to every other state.
    let counts = lake.read("sets").floats("count");
    assert_eq!(counts[2], 9.0 * (9.0 * 9.0 + 9.0) / 8.0);
    assert_eq!(named("none"), [[2, 1, 0]; 2]);
}

const BINNED: &str = r#"
job = { name = "boxes", output = "out" }
tables.points.path = "points.parquet"
[transitions]
sql = "SELECT * FROM points"
trajectory = "id"
time = "t"
lag = 1

[transitions.bins]
x = { step = 0.5 }
y = { bounds = [0, 2], boxes = 2 }

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3

[[fit]]
name = "svd"
method = "svd"
rank = 3
"#;

/// Writes points that jump inside one of three adjacent squares of edge 2 on the x axis. A point
/// changes the square with probability 0.004. The argument is the number of trajectories that start
/// in each square.
fn points(lake: &Lake, trajectories: [i64; 3]) {
    let mut random = Pcg64::seed_from_u64(5);
    let (mut ids, mut times, mut at) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
    let starts = trajectories.iter().enumerate();
    let starts = starts.flat_map(|(square, &n)| (0..n).map(move |_| square));
    for (id, mut square) in starts.enumerate() {
        for t in 0..100 {
            ids.push(id as i64);
            times.push(t);
            at[0].push(2.0 * (square as f64 + random.random::<f64>()));
            at[1].push(2.0 * random.random::<f64>());
            square = (square + usize::from(random.random::<f64>() < 0.004)) % 3;
        }
    }
    let [x, y] = at.map(|values| -> ArrayRef { floats(values) });
    let columns = vec![
        ("id", integers(ids)),
        ("t", integers(times)),
        ("x", x),
        ("y", y),
    ];
    lake.table("points.parquet", columns);
}

#[test]
fn names_of_boxes_are_taken_from_another_output() {
    let lake = Lake::new();
    lake.file("p.toml", BINNED);
    points(&lake, [50, 30, 10]);
    lake.runs(&["job.output=model"]);
    points(&lake, [10, 30, 50]);
    let named = |from: &str| {
        let from = format!("names.from={from}");
        lake.runs(&[&from]);
        let sources = lake.read("sources");
        assert_eq!(sources.len(), 24);
        ["dbmr", "svd"].map(|fit| {
            let sets = sources.integers(&format!("{fit}_affiliation"));
            let squares = sources.floats("x").into_iter().map(|x| (x / 2.0) as usize);
            let mut of_square = [-1; 3];
            for (square, set) in squares.zip(sets) {
                let first = &mut of_square[square];
                assert!(*first < 0 || *first == set, "{fit}: square {square}");
                *first = set;
            }
            of_square
        })
    };
    let (by_weight, kept) = (named("none"), named("model"));
    assert_eq!((kept, by_weight), ([[0, 1, 2]; 2], [[2, 1, 0]; 2]));
    let events = lake.read("sets").texts("event");
    assert_eq!(events, ["kept"; 6]);
}

#[test]
fn two_outputs_are_compared() {
    let lake = Lake::new();
    lake.file("p.toml", PIPELINE);
    let run = |output: &str, rank: &str| {
        let output = format!("job.output={output}");
        let rank = format!("fit.dbmr.rank={rank}");
        lake.runs(&[&output, &rank]);
    };
    let three: &[Range<i64>] = &[0..9, 9..17, 17..24];
    blocks(&lake, &[("x", three), ("y", three)]);
    run("one", "[2, 3]");
    blocks(&lake, &[("x", &[0..9, 9..11, 11..26]), ("z", three)]);
    run("two", "[3, 4]");
    let report = lake.line("compare one two").succeeds();
    insta::assert_snapshot!("compare", report.out);
    let report = lake.compare(&["one", "one", "--fit", "dbmr_r2=dbmr_r3"]);
    let fit = &report["models"][0]["fits"][0];
    assert_eq!(fit["fit_a"], "dbmr_r2");
    assert_eq!(fit["fit_b"], "dbmr_r3");
    assert_eq!(fit["changes"]["shared_states"], 24);
    assert_eq!(fit["sets"].as_array().map(Vec::len), Some(3));
    // Within one output, the report uses the numbers of the sets in that output.
    let sets = lake.read_at("one/sets");
    let own = sets.texts("fit").into_iter().zip(sets.integers("set_id"));
    let own: BTreeSet<i64> = own
        .filter_map(|(fit, id)| (fit == "dbmr_r3").then_some(id))
        .collect();
    let named = fit["sets"].as_array().into_iter().flatten();
    let named = named.filter(|set| !set["number"].is_null());
    let named: BTreeSet<i64> = named.filter_map(|set| set["id"].as_i64()).collect();
    assert_eq!(named, own);
    lake.line("compare one one --fit svd")
        .succeeds()
        .says("sets 3 kept; 0 of 24 states changed set");

    // Lags, on trajectories.
    crate::cli::small_pipeline(&lake);
    lake.runs(&["transitions.lag=[1, 2]"]);
    let lags = ["compare", "out", "out", "--fit", "dbmr", "--lag", "1=2"];
    let report = lake.gyre(&lags).succeeds().out;
    let begin = "out, lag 1 → out, lag 2\n\n6 common states\n  dbmr: sets 2 kept; 0 of 6 states";
    assert!(report.starts_with(begin), "{report}");
    lake.line("compare out out --lag 3")
        .fails(2, "--lag: out has no lag `3`; it has `1`, `2`");
    lake.line("compare one two --lag 1")
        .fails(2, "--lag: one has no lag `1`; it has none");

    let message = "there is no output of gyre at tow: give the output of a run";
    lake.line("compare one tow").fails(1, message);
    let message = "--fit: two has no fit `dbmr_r2`; it has `dbmr_r3`, `dbmr_r4`, `svd`";
    lake.line("compare one two --fit dbmr_r2").fails(2, message);
}

/// Two independent lags: pairs one step apart, and other pairs two steps apart. The blocks form a
/// hierarchy of regions. A state has `near` transitions to every state of its own block, a third of
/// that to the other block of its region, and one to every other state.
fn hierarchy(lake: &Lake, lags: [&[(i64, Range<i64>, i64)]; 2]) {
    let mut rows: Vec<[i64; 3]> = Vec::new();
    let mut id = 0;
    for (lag, blocks) in [1, 2].into_iter().zip(lags) {
        let states = || {
            let states = blocks.iter().enumerate();
            states.flat_map(|(k, (region, own, near))| {
                own.clone().map(move |state| (k, *region, *near, state))
            })
        };
        for (k, region, near, a) in states() {
            for (l, of, _, b) in states() {
                let n = match (k == l, region == of) {
                    (true, _) => near,
                    (_, true) => near / 3,
                    _ => 1,
                };
                for _ in 0..n {
                    rows.extend([[id, 0, a], [id, lag, b]]);
                    id += 1;
                }
            }
        }
    }
    lake.integers("rows.parquet", ["id", "t", "a"], rows);
}

const HIERARCHY: &str = r#"
job = { name = "hierarchy", output = "out" }
tables.rows.path = "rows.parquet"
[transitions]
sql = "SELECT 'x' AS part, * FROM rows"
trajectory = "id"
time = "t"
state = "a"
lag = [1, 2]
partition_by = "part"

[[fit]]
name = "dbmr"
method = "dbmr"
rank = [3, 5]
"#;

/// The rows of `sets` of a fit at a lag, as text: `id number event previous [parents]
/// compared_with`.
fn sets_at(lake: &Lake, lag: i64, fit: &str) -> Vec<String> {
    let rows = lake.read("sets");
    let (lags, fits, with) = (
        rows.integers("lag"),
        rows.texts("fit"),
        rows.texts("compared_with"),
    );
    let other = lags.iter().filter(|&&l| l < lag).count();
    let own = (0..rows.len()).filter(|&at| lags[at] == lag && fits[at] == fit);
    let own: Vec<usize> = own.collect();
    // `sets` contains both lags, one after the other.
    let all = sets(lake, "x", fit);
    let before = (0..other).filter(|&at| fits[at] == fit).count();
    own.iter()
        .zip(&all[before..])
        .map(|(&at, row)| format!("{row} {}", with[at]))
        .collect()
}

/// The sets of some states at a lag.
fn numbers_at(lake: &Lake, lag: i64, fit: &str, of: &[i64]) -> Vec<i64> {
    let rows = lake.read("sources");
    let (lags, states) = (rows.integers("lag"), rows.integers("a"));
    let sets = rows.integers(&format!("{fit}_affiliation"));
    let find = |state: &i64| (0..rows.len()).find(|&at| lags[at] == lag && states[at] == *state);
    of.iter()
        .map(|state| sets[find(state).expect("the row of the state")])
        .collect()
}

// The regions are A = 0..7 + 7..13, B = 13..18 + 18..22 and C = 22..30. At lag 1, a state in a
// block of n states and a region of m states has 27 n + 9 (m − n) + 30 − m transitions, so the
// blocks have 1820 + 1452, 960 + 696 and 1904.
// By weight, three sets are A 0, C 1, B 2. Of five sets, C would be the first, then the blocks of
// A, then those of B. At lag 2, transitions inside B count three times, so B has the largest
// weight.
#[test]
fn names_agree_across_ranks_and_lags() {
    let lake = Lake::new();
    lake.file("p.toml", HIERARCHY);
    let one = [
        (0, 0..7, 27),
        (0, 7..13, 27),
        (1, 13..18, 27),
        (1, 18..22, 27),
        (2, 22..30, 27),
    ];
    let two = [
        (0, 0..7, 27),
        (0, 7..13, 27),
        (1, 13..18, 81),
        (1, 18..22, 81),
        (2, 22..30, 27),
    ];
    hierarchy(&lake, [&one, &two]);
    let ran = lake.runs(&[]);
    let first = [
        "0 0 null - [] null",
        "1 1 null - [] null",
        "2 2 null - [] null",
    ];
    assert_eq!(sets_at(&lake, 1, "dbmr_r3"), first);
    let pieces = [
        "0 0 split 0 [0] rank 3",
        "1 1 kept 1 [1] rank 3",
        "2 2 split 2 [2] rank 3",
        "3 3 split - [0] rank 3",
        "4 4 split - [2] rank 3",
    ];
    assert_eq!(sets_at(&lake, 1, "dbmr_r5"), pieces);
    let kept = |n: usize, with: &str| -> Vec<String> {
        (0..n)
            .map(|k| format!("{k} {k} kept {k} [{k}] {with}"))
            .collect()
    };
    assert_eq!(sets_at(&lake, 2, "dbmr_r3"), kept(3, "lag 1"));
    assert_eq!(sets_at(&lake, 2, "dbmr_r5"), kept(5, "lag 1"));
    let states = [0, 7, 13, 18, 22];
    for lag in [1, 2] {
        assert_eq!(numbers_at(&lake, lag, "dbmr_r3", &states), [0, 0, 2, 2, 1]);
        assert_eq!(numbers_at(&lake, lag, "dbmr_r5", &states), [0, 3, 2, 4, 1]);
    }
    let changes = lake.read("changes");
    let expected = ["null", "rank 3", "lag 1", "lag 1"];
    assert_eq!(changes.texts("compared_with"), expected);
    assert_eq!(changes.integers("next_id"), [5; 4]);
    // The smaller blocks, of 6 and 4 states.
    assert_eq!(changes.texts("changed_states"), ["null", "10", "0", "0"]);
    for line in [
        "\n  dbmr_r5 after rank 3: sets 1 kept, 4 split; 10 of 30 states changed set",
        "\n  dbmr_r3 after lag 1: sets 3 kept; 0 of 30 states changed set",
    ] {
        ran.says(line);
    }

    // A repeated run writes the same bytes and reports no changes.
    let before = lake.tables();
    let second = lake.line("run p.toml --force").succeeds();
    assert!(lake.tables() == before, "the same plan gives other bytes");
    assert!(!second.out.contains(" after "), "{}", second.out);

    // C disappears and D appears in new states. It is the same new set in all ranks and at all
    // lags, and the other names come from the earlier result.
    let one = [&one[..4], &[(3, 40..48, 27)]].concat();
    let two = [&two[..4], &[(3, 40..48, 27)]].concat();
    hierarchy(&lake, [&one, &two]);
    lake.runs(&[]);
    for lag in [1, 2] {
        let three = [
            "0 0 kept 0 [0] earlier",
            "1 - died 1 [] earlier",
            "2 2 kept 2 [2] earlier",
            "5 1 born - [] earlier",
        ];
        assert_eq!(sets_at(&lake, lag, "dbmr_r3"), three);
        let five = [
            "0 0 kept 0 [0] earlier",
            "1 - died 1 [] earlier",
            "2 2 kept 2 [2] earlier",
            "3 3 kept 3 [3] earlier",
            "4 4 kept 4 [4] earlier",
            "5 1 born - [] earlier",
        ];
        assert_eq!(sets_at(&lake, lag, "dbmr_r5"), five);
    }

    // A new rank takes its names from the next larger rank at its first lag. Its other lag takes
    // them from the first.
    lake.runs(&["fit.dbmr.rank=[2, 3, 5]"]);
    let changes = lake.read("changes");
    let with = [
        "rank 3", "earlier", "earlier", "lag 1", "earlier", "earlier",
    ];
    assert_eq!(changes.texts("compared_with"), with);
    assert_eq!(changes.integers("next_id"), [6; 6]);
    for lag in [1, 2] {
        let alive = sets_at(&lake, lag, "dbmr_r2")
            .into_iter()
            .filter(|row| !row.contains(" - merged "));
        let ids: Vec<String> = alive.map(|row| row[..1].to_string()).collect();
        assert!(
            ids.len() == 2 && ids.iter().all(|id| ["0", "2", "5"].contains(&id.as_str())),
            "{ids:?}"
        );
    }

    // Without an earlier result, numbers follow the weights in each fit, and ids still agree.
    hierarchy(&lake, [&one, &two]);
    lake.runs(&["names.from=none", "job.output=out"]);
    assert_eq!(sets_at(&lake, 1, "dbmr_r3"), first);
    let found = numbers_at(&lake, 1, "dbmr_r5", &[0, 7, 13, 18, 40]);
    assert_eq!(found, [1, 2, 3, 4, 0]);
    let by_weight = [
        "0 1 split 0 [0] rank 3",
        "1 0 kept 1 [1] rank 3",
        "2 3 split 2 [2] rank 3",
        "3 2 split - [0] rank 3",
        "4 4 split - [2] rank 3",
    ];
    assert_eq!(sets_at(&lake, 1, "dbmr_r5"), by_weight);
    assert_eq!(numbers_at(&lake, 2, "dbmr_r3", &[0, 13, 40]), [1, 0, 2]);
    assert_eq!(sets_at(&lake, 2, "dbmr_r3")[2], "2 0 kept 2 [2] lag 1");
}
