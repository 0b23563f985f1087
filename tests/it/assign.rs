//! `gyre assign`: new rows and the model of an earlier run.

use crate::cli::{integers, small_lake, small_pipeline};
use crate::lake::{Lake, ProgramRun, Rows, cases, texts, words};
use arrow::array::{Array, AsArray, Float64Array};
use arrow::datatypes::{DataType, Float64Type};
use std::collections::HashMap;
use std::sync::Arc;

/// Assigns the rows of a pipeline to the model `out`.
fn assign(lake: &Lake, pipeline: &str, more: &[&str]) -> ProgramRun {
    let fixed = ["assign", pipeline, "--model", "out", "--output", "new"];
    lake.gyre(&[&fixed[..], more].concat())
}

fn bytes(lake: &Lake) -> Vec<Vec<u8>> {
    let tables = ["sources", "targets", "trajectories"].iter();
    tables
        .map(|t| lake.bytes(&format!("new/{t}/part-0.parquet")))
        .collect()
}

fn embedding(rows: &Rows, fit: &str) -> Vec<f64> {
    let column = rows.column(&format!("{fit}_embedding"));
    let lists = column.as_fixed_size_list();
    lists
        .values()
        .as_primitive::<Float64Type>()
        .values()
        .to_vec()
}

/// An assignment of the rows of a model returns the sets and points of the model. ℓ̂ is the same as
/// a sum over states and as a sum over trajectories.
#[test]
fn assigning_the_rows_of_a_model_returns_its_sets() {
    let lake = Lake::new();
    small_pipeline(&lake).runs(&[]);
    let ran = assign(&lake, "p.toml", &[]).succeeds();
    let expected_text = "small: 600 rows, assigned by the model out";
    ran.says(expected_text);
    let expected_text =
        "lag 1: 597 transitions, 6 sources (0 new), 6 targets (0 unseen), 3 trajectories";
    ran.says(expected_text);

    let (model, fits) = (lake.read("sources"), lake.read("fits"));
    let (sources, trajectories) = (
        lake.read_at("new/sources"),
        lake.read_at("new/trajectories"),
    );
    assert_eq!(sources.texts("is_new"), ["false"; 6]);
    assert_eq!(sources.integers("unseen"), [0; 6]);
    assert_eq!(trajectories.integers("id"), [0, 1, 2]);
    assert_eq!(trajectories.integers("t"), [199; 3]);
    assert_eq!(trajectories.integers("transitions"), [199; 3]);
    let set_of: HashMap<i64, usize> = model.integers("state").into_iter().zip(0..).collect();
    for (position, fit) in fits.texts("fit").iter().enumerate() {
        let column = |what: &str| format!("{fit}_{what}");
        let sets = model.integers(&column("affiliation"));
        assert_eq!(sources.integers(&column("affiliation")), sets);
        assert_eq!(embedding(&sources, fit), embedding(&model, fit));
        assert_eq!(sources.integers(&column("impossible")), [0; 6]);
        // The fit is a fixed point: no source has a larger likelihood in another set.
        if fit == "dbmr" {
            let leads = sources.floats(&column("lead"));
            assert!(leads.iter().all(|&lead| lead > 0.0));
        }
        let expected = fits.floats("log_likelihood")[position];
        for table in [&sources, &trajectories] {
            let sum: f64 = table.floats(&column("log_likelihood")).iter().sum();
            assert!((sum / expected - 1.0).abs() < 1e-12, "{sum} {expected}");
        }
        let now = trajectories.integers("state");
        let now: Vec<i64> = now.iter().map(|state| sets[set_of[state]]).collect();
        assert_eq!(trajectories.integers(&column("affiliation")), now);
        let mean = trajectories.floats(&column("mean_log_likelihood"))[0];
        let sum = trajectories.floats(&column("log_likelihood"))[0];
        assert_eq!(mean, sum / 199.0);
        assert_eq!(trajectories.integers(&column("left_out")), [0; 3]);
    }
    let [old, new] = ["out/targets", "new/targets"].map(|targets| lake.read_at(targets));
    let sets = "dbmr_affiliation";
    assert_eq!(new.integers(sets), old.integers(sets));

    // A new smoothing requires a new assignment, and so does a new model.
    assign(&lake, "p.toml", &["--smoothing", "2"])
        .succeeds()
        .says("trajectories)");
    assign(&lake, "p.toml", &[]).succeeds();
    lake.line("run p.toml --seed 5").succeeds();
    let again = assign(&lake, "p.toml", &[]).succeeds();
    again.says("assigned");
}

#[test]
fn the_order_of_rows_does_not_change_an_assignment() {
    let lake = Lake::new();
    small_pipeline(&lake).runs(&[]);
    assign(&lake, "p.toml", &[]).succeeds();
    let before = bytes(&lake);
    let rows = "transitions.sql=SELECT * FROM rows ORDER BY";
    for order in ["t, id", "id, t DESC", "state, t % 7, id, t"] {
        assign(&lake, "p.toml", &["--set", &format!("{rows} {order}")]).succeeds();
        assert!(bytes(&lake) == before, "bytes differ by {order}");
    }
}

const PLANTED: &str = r#"
job = { name = "planted", output = "out" }
tables.rows.path = "rows.parquet"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
state = "word"
lag = [1, 2]
partition_by = ["p"]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2

[[fit]]
name = "svd"
method = "svd"
rank = 2
"#;

/// Writes trajectories of words in a partition. Each letter of a text is one word.
fn write_words(lake: &Lake, name: &str, rows: &[(&str, i64, &str)]) {
    let letters = || {
        rows.iter().flat_map(|(p, id, text)| {
            let times = (0..text.len()).map(move |t| (*p, *id, t));
            times.map(move |(p, id, t)| (p, id, t as i64, &text[t..t + 1]))
        })
    };
    let columns = vec![
        ("p", texts(letters().map(|l| l.0))),
        ("id", integers(letters().map(|l| l.1))),
        ("t", integers(letters().map(|l| l.2))),
        ("word", texts(letters().map(|l| l.3))),
    ];
    lake.table(name, columns);
}

/// A model with the sets {a, b, c} and {x, y, z}. Partition A has these words. Partition B replaces
/// the letters of both sets by other words.
fn planted_model(lake: &Lake) {
    // All pairs inside a set occur. Changes between the sets are rare.
    let left = "aabbccacba".repeat(8);
    let right = "xxyyzzxzyx".repeat(8);
    let text = format!("{left}{right}{left}{right}");
    let rows = [("A", 1, &text[..]), ("A", 2, &text), ("B", 1, &text)];
    write_words(lake, "rows.parquet", &rows);
    lake.runs_text(PLANTED);
}

#[test]
fn new_states_get_the_planted_set_and_unseen_targets_are_reported() {
    let lake = Lake::new();
    planted_model(&lake);
    // d occurs among a, b and c only, and w among x, y and z. q is followed by q only. The model
    // does not have the partition C.
    let texts = [
        ("A", 7, "adbadcadbadcdadbdcdab"),
        ("A", 8, "xwywzwxwywzwxyz"),
        ("A", 9, "abcqqqq"),
        ("C", 1, "abcabc"),
    ];
    write_words(&lake, "new.parquet", &texts);
    let ran = assign(&lake, "p.toml", &["--set", "tables.rows.path=new.parquet"]);
    ran.fails(1, "the model at out does not have it");
    ran.says("2 of 4 models failed: ");
    let expected_text = "p A, lag 1: 40 transitions, 9 sources (3 new), 9 targets (3 unseen with ";
    ran.says(expected_text);

    let model = lake.read("sources");
    let sources = lake.read_at("new/sources");
    let position = |rows: &Rows, lag: i64, word: &str| {
        let (lags, words) = (rows.integers("lag"), rows.texts("word"));
        let place =
            (0..rows.len()).find(|&position| lags[position] == lag && words[position] == word);
        place.unwrap_or_else(|| panic!("no {word} at lag {lag}"))
    };
    for fit in ["dbmr", "svd"] {
        let sets = |rows: &Rows| rows.texts(&format!("{fit}_affiliation"));
        let (known, new) = (sets(&model), sets(&sources));
        for lag in [1, 2] {
            for (word, like) in [("a", "a"), ("d", "a"), ("w", "x"), ("x", "x")] {
                let set = &new[position(&sources, lag, word)];
                assert_eq!(
                    *set,
                    known[position(&model, lag, like)],
                    "{fit}, lag {lag}, {word}"
                );
            }
            let q = position(&sources, lag, "q");
            assert_eq!(new[q], "null");
            assert!(sources.column(&format!("{fit}_embedding")).is_null(q));
            assert!(sources.column(&format!("{fit}_log_likelihood")).is_null(q));
        }
    }
    let is_new = |word: &str| sources.texts("is_new")[position(&sources, 1, word)] == "true";
    assert!(is_new("d") && is_new("w") && is_new("q") && !is_new("a"));
    let amount = |column: &str, word: &str| sources.integers(column)[position(&sources, 1, word)];
    assert_eq!((amount("count", "q"), amount("unseen", "q")), (3, 3));
    assert_eq!((amount("count", "x"), amount("unseen", "x")), (3, 2));
    let targets = lake.read_at("new/targets");
    let unseen = position(&targets, 1, "d");
    assert_eq!(targets.texts("is_new")[unseen], "true");
    assert_eq!(targets.texts("dbmr_affiliation")[unseen], "null");

    let trajectories = lake.read_at("new/trajectories");
    assert_eq!(trajectories.integers("lag"), [1, 1, 1, 2, 2, 2]);
    assert_eq!(trajectories.integers("id"), [7, 8, 9, 7, 8, 9]);
    assert_eq!(trajectories.texts("word")[..3], ["b", "z", "q"]);
    assert_eq!(trajectories.integers("transitions"), [20, 14, 6, 19, 13, 5]);
    // Left out of abcqqqq: one transition c → q and three transitions q → q.
    assert_eq!(trajectories.integers("dbmr_left_out")[2], 4);
    let sets = trajectories.texts("dbmr_affiliation");
    assert_eq!(sets[2], "null");
    let known = model.texts("dbmr_affiliation");
    assert_eq!(sets[0], known[position(&model, 1, "b")]);

    // The record contains the same numbers. The next call repeats the failed models.
    let second = assign(&lake, "p.toml", &["--set", "tables.rows.path=new.parquet"]);
    second.fails(1, "does not have it");
    let record = lake.records_of("new").remove(0);
    assert_eq!(record["models"][0]["unseen_targets"], 3);
    assert_eq!(record["models"][0]["new_sources"], 3);
    assert_eq!(record["failures"].as_array().map(Vec::len), Some(2));
    write_words(&lake, "new.parquet", &texts[3..]);
    assign(&lake, "p.toml", &["--set", "tables.rows.path=new.parquet"])
        .fails(1, "rows belongs to a partition that the model at out has");
}

/// The row number of each partition, lag and word.
fn places(rows: &Rows) -> HashMap<[String; 3], usize> {
    let [p, lag, word] = ["p", "lag", "word"].map(|name| rows.texts(name));
    let keys = p.into_iter().zip(lag).zip(word);
    keys.map(|((p, lag), word)| [p, lag, word])
        .zip(0..)
        .collect()
}

/// Asserts that an assignment returns the sets and points of the states of the model. If the model
/// has all states, its log-likelihoods are returned as well.
#[track_caller]
fn check_known_states(lake: &Lake, has_all: bool) {
    let (model, sources, fits) = (
        lake.read("sources"),
        lake.read_at("new/sources"),
        lake.read("fits"),
    );
    let (known, new) = (places(&model), places(&sources));
    let [p, lag, fit] = ["p", "lag", "fit"].map(|name| fits.texts(name));
    for position in 0..fits.len() {
        let column = |what: &str| format!("{}_{what}", fit[position]);
        let (mut sum, mut scored) = (0.0, 0.0);
        for (key, &old) in known
            .iter()
            .filter(|(key, _)| key[..2] == [&p[position][..], &lag[position]])
        {
            let new = new[key];
            let place = format!("{} of {key:?}", fit[position]);
            let sets = |rows: &Rows, row: usize| rows.texts(&column("affiliation"))[row].clone();
            assert_eq!(sets(&sources, new), sets(&model, old), "{place}");
            let point = |rows: &Rows, row: usize| {
                let column = rows.column(&column("embedding"));
                let list = column.as_fixed_size_list().value(row);
                list.as_primitive::<Float64Type>().values().to_vec()
            };
            assert_eq!(point(&sources, new), point(&model, old), "{place}");
            sum += sources.floats(&column("log_likelihood"))[new];
            scored += sources.floats("count")[new];
        }
        let expected =
            fits.floats("log_likelihood")[position] / fits.floats("transitions")[position];
        let mean = sum / scored;
        let is_equal = (mean / expected - 1.0).abs() < 1e-12;
        assert!(!has_all || is_equal, "{mean} {expected}");
    }
}

/// An assignment depends on which pairs occur in a run, not on how the run counts them.
#[test]
fn assigned_states_get_back_their_sets_under_every_option() {
    let lake = Lake::new();
    let inside = ["aabbccacba", "xxyyzzxzyx"].map(|side| side.repeat(6));
    let text = format!("{}{}{}", inside[0], inside[1], inside[0]);
    // Both partitions have four trajectories. The first starts with s and ends with e.
    let whole = format!("s{text}e");
    let texts = [("A", &whole), ("B", &whole)].map(|(p, first)| {
        let others = [&text[..], &text[7..], &text[3..]];
        let texts = std::iter::once(&first[..]).chain(others).zip(1..);
        texts.map(move |(text, id)| (p, id, text))
    });
    write_words(
        &lake,
        "rows.parquet",
        &texts.into_iter().flatten().collect::<Vec<_>>(),
    );
    lake.file("p.toml", PLANTED);
    let auto = [
        "fit.svd.rank=auto",
        "fit.svd.ranks=[3, 2, 5]",
        "fit.svd.rule=gap",
        "fit.dbmr.rank=auto",
        "fit.dbmr.ranks=[2, 6]",
        "fit.dbmr.rule=bic",
    ];
    let effective = [
        "transitions.window=effective",
        "transitions.lag=[\"1 step\", \"3 steps\"]",
    ];
    for keys in [
        &["validation.bootstrap=4", "validation.folds=2"][..],
        &["validation.markov=true", "names.from=none"],
        &["transitions.window=strided"],
        &auto,
        &effective,
        &["transitions.connected=true"],
    ] {
        let sets: Vec<&str> = keys.iter().flat_map(|key| ["--set", *key]).collect();
        lake.gyre(&[&["run", "p.toml"][..], &sets].concat())
            .succeeds();
        // Names and fits come from the model, so the assignment ignores those of the pipeline.
        let other = words("--set names.from=nowhere --set fit.dbmr.restarts=3");
        assign(&lake, "p.toml", &[&sets[..], &other].concat()).succeeds();
        let is_connected = keys[0].ends_with("connected=true");
        check_known_states(&lake, !is_connected);
        assert_eq!(lake.read_at("new/trajectories").len(), 16);
        assign(&lake, "p.toml", &sets)
            .succeeds()
            .prints("Nothing to do.\n");
        if keys[0].ends_with("effective") {
            // In an assignment every pair has the weight one. In the run it had the weight one
            // third.
            let sources = lake.read_at("new/sources");
            assert_eq!(sources.column("count").data_type(), &DataType::UInt64);
            let counted: i64 = sources.integers("count").iter().sum();
            let followed = lake.read_at("new/trajectories").integers("transitions");
            assert_eq!(counted, followed.iter().sum::<i64>());
        }
        if is_connected {
            // s and e are unknown to the model. s is followed by a.
            let (sources, targets) = (lake.read_at("new/sources"), lake.read_at("new/targets"));
            let position = places(&sources);
            let row = |word: &str| position[&["A", "1", word].map(String::from)];
            for fit in ["dbmr", "svd"] {
                let sets = sources.texts(&format!("{fit}_affiliation"));
                assert_eq!(sets[row("s")], sets[row("a")]);
            }
            assert_eq!(sources.texts("is_new")[row("s")], "true");
            let unseen = places(&targets)[&["A", "1", "e"].map(String::from)];
            assert_eq!(targets.texts("is_new")[unseen], "true");
        }
    }
}

const SOFT: &str = r#"
[[fit]]
name = "seba"
method = "svd"
clusters = "seba"
rank = 2

[[fit]]
name = "pcca"
method = "svd"
clusters = "pcca"
rank = "auto"
ranks = [2, 4]
rule = "gap"

[[fit]]
name = "gpcca"
method = "gpcca"
rank = 2
"#;

/// Memberships as text, so that a null can be compared as well.
fn memberships(rows: &Rows, fit: &str) -> Vec<Option<Vec<f64>>> {
    let column = rows.column(&format!("{fit}_membership"));
    let lists = column.as_fixed_size_list().iter();
    lists
        .map(|list| Some(list?.as_primitive::<Float64Type>().values().to_vec()))
        .collect()
}

#[test]
fn new_states_get_soft_memberships() {
    let lake = Lake::new();
    planted_model(&lake);
    lake.runs_text(&(PLANTED.to_string() + SOFT));
    assign(&lake, "p.toml", &[]).succeeds();
    for fit in ["seba", "pcca", "gpcca"] {
        for table in ["sources", "targets"] {
            let (own, of_model) = (lake.read_at(&format!("new/{table}")), lake.read(table));
            assert_eq!(memberships(&own, fit), memberships(&of_model, fit), "{fit}");
        }
    }
    let mut columns = String::new();
    for table in ["sources", "targets", "trajectories"] {
        columns += &format!("{table}\n");
        for field in lake.read_at(&format!("new/{table}")).0.schema().fields() {
            let null = if field.is_nullable() { " null" } else { "" };
            columns += &format!("  {} {}{null}\n", field.name(), field.data_type());
        }
    }
    insta::assert_snapshot!("columns", columns);

    // d is like b, w is like z, m belongs to both sides, and q is followed by q only.
    let left = "aabbccacba".repeat(8);
    let texts = [
        ("A", 7, left.replace('b', "d")),
        ("A", 8, "xxyywwxwyx".repeat(8)),
        ("A", 9, "amamxmxmamaxmxm".to_string()),
        ("A", 10, "abcqqqq".to_string()),
    ];
    let texts: Vec<_> = texts.iter().map(|(p, id, t)| (*p, *id, &t[..])).collect();
    write_words(&lake, "new.parquet", &texts);
    assign(&lake, "p.toml", &["--set", "tables.rows.path=new.parquet"]).succeeds();
    let (sources, targets) = (lake.read_at("new/sources"), lake.read_at("new/targets"));
    let (position, at_target) = (places(&sources), places(&targets));
    let key = |word: &str| ["A", "1", word].map(String::from);
    for fit in ["seba", "pcca", "gpcca"] {
        let all = memberships(&sources, fit);
        let of = |word: &str| all[position[&key(word)]].clone();
        let (a, d, w, m) = (of("a"), of("d"), of("w"), of("m"));
        let (a, d, w, m) = (a.expect("a"), d.expect("d"), w.expect("w"), m.expect("m"));
        let own = usize::from(a[1] > a[0]);
        assert!(d[own] > 0.8 && d[1 - own] < 0.2, "{fit}: {d:?}");
        assert!(w[1 - own] > 0.8 && w[own] < 0.2, "{fit}: {w:?}");
        assert!(m[own] < 0.8 && m[1 - own] < 0.8, "{fit}: {m:?}");
        assert_eq!(of("q"), None);
        assert_eq!(memberships(&targets, fit)[at_target[&key("q")]], None);
        for row in all.iter().flatten() {
            let sum: f64 = row.iter().sum();
            assert!(row.iter().all(|x| (0.0..=1.0).contains(x)) && sum < 1.0 + 1e-12);
            assert!(fit == "seba" || (sum - 1.0).abs() < 1e-12, "{fit}: {row:?}");
        }
    }
}

/// Pairs with weights have sources and targets, but no trajectories.
#[test]
fn pairs_are_assigned() {
    let lake = Lake::new();
    let pairs = |name: &str, rows: &[(&str, &str, f64)]| {
        let weights = Float64Array::from_iter_values(rows.iter().map(|r| r.2));
        lake.table(
            name,
            vec![
                ("from", texts(rows.iter().map(|r| r.0))),
                ("to", texts(rows.iter().map(|r| r.1))),
                ("w", Arc::new(weights)),
            ],
        );
    };
    let mut rows_of_model = Vec::new();
    for side in [["a", "b", "c"], ["x", "y", "z"]] {
        for from in side {
            rows_of_model.extend(side.map(|to| (from, to, 2.5)));
        }
    }
    pairs("rows.parquet", &rows_of_model);
    lake.runs_text(
        r#"
        job = { name = "pairs", output = "out" }
        tables.rows.path = "rows.parquet"
        transitions = { sql = "SELECT * FROM rows", source = "from", target = "to", weight = "w" }
        fit = [{ name = "dbmr", method = "dbmr", rank = 2 }]
        "#,
    );
    // n is like x and y. The targets of m are in both sets, so both are impossible. The target of o
    // is new.
    let new = [
        ("m", "a", 1.0),
        ("m", "x", 1.0),
        ("n", "x", 0.5),
        ("n", "y", 1.5),
        ("o", "o", 3.0),
    ];
    pairs("new.parquet", &new);
    let more = ["--set", "tables.rows.path=new.parquet"];
    let ran = assign(&lake, "p.toml", &more).succeeds();
    let expected_text =
        "7 transitions, 3 sources (3 new), 4 targets (1 unseen with 3 transitions, 42.86 %)\n";
    ran.says(expected_text);
    let sources = lake.read_at("new/sources");
    let model = lake.read("sources");
    let x = &model.texts("dbmr_affiliation")[3];
    assert_eq!(sources.texts("from"), ["m", "n", "o"]);
    assert_eq!(sources.texts("dbmr_affiliation"), ["null", x, "null"]);
    assert_eq!(sources.floats("unseen"), [0.0, 0.0, 3.0]);
    let log_likelihood = sources.floats("dbmr_log_likelihood")[1];
    assert!((log_likelihood - 2.0 * (1.0f64 / 3.0).ln()).abs() < 1e-12);
    assert!(!lake.path("new/trajectories").exists());
    // With smoothing, m has a set.
    let smoothed = [&more[..], &["--smoothing", "0.1"]].concat();
    assign(&lake, "p.toml", &smoothed).succeeds();
    let sets = lake.read_at("new/sources").texts("dbmr_affiliation");
    assert_eq!(sets[..2], ["0", x.as_str()]);
}

#[test]
fn input_that_does_not_fit_the_model_is_refused() {
    let lake = small_lake();
    assign(&lake, "p.toml", &[]).fails(1, "no finished result at out");
    lake.runs(&[]);
    let table = r#"
        transitions.sql=SELECT id, t, state::int AS state FROM rows | `state` Int32 in the pipeline, but `state` Int64 in the model at out
        transitions.lag=7 | lag 7, but the model at out has lag 1
        transitions.sql=SELECT *, 'x' AS p FROM rows ; transitions.partition_by=["p"] | partition_by are `p` Utf8 in the pipeline, but none in the model
        transitions.sql=SELECT id AS transitions, t, state FROM rows ; transitions.trajectory=transitions | the table `trajectories` would have two columns `transitions`
    "#;
    for [sets, message] in cases(table) {
        lake.assign(&sets.split(" ; ").collect::<Vec<_>>())
            .fails(2, &message);
    }
    let same = lake.line("assign p.toml --model out");
    same.fails(2, "out holds the models of a run");
    assert!(!lake.path("new").exists());

    let binned = r#"
        job = { name = "binned", output = "out" }
        tables.rows.path = "rows.parquet"
        transitions = { sql = "SELECT * FROM rows", trajectory = "id", time = "t", lag = 1, bins = { state = { step = 1.0 } } }
        fit = [{ name = "dbmr", method = "dbmr", rank = 2 }]
    "#;
    lake.file("b.toml", binned)
        .line("run b.toml --force")
        .succeeds();
    let wider = ["--set", "transitions.bins.state.step=2.0"];
    let message = "a box of `state` lies around 0.5, which is the middle of no box";
    assign(&lake, "b.toml", &wider).fails(2, message);
    assign(&lake, "b.toml", &[]).succeeds();
}
