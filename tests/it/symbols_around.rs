//! Around the fits of sequences: `gyre assign`, `gyre compare`, runs that do nothing or continue,
//! increments with resamples, checks, metrics, events and partitions without windows.

use crate::lake::{Lake, Rows};
use crate::symbols::{PIPELINE, Visit, lake, table, visits};
use arrow::array::{Array, AsArray};
use arrow::datatypes::{DataType, Float64Type};

#[track_caller]
fn assert_near(name: &str, a: &[f64], b: &[f64]) {
    assert_eq!(a.len(), b.len(), "{name}");
    for (at, (a, b)) in a.iter().zip(b).enumerate() {
        let is_near = (a - b).abs() <= 1e-12 * (1.0 + a.abs());
        assert!(is_near, "{name} {at}: {a} {b}");
    }
}

/// Checks that two tables are equal, and that their numbers differ by rounding at most.
#[track_caller]
pub fn assert_equal(expected: &Rows, found: &Rows) {
    assert_eq!(expected.0.schema(), found.0.schema());
    assert_eq!(expected.len(), found.len());
    for field in expected.0.schema().fields() {
        let name = field.name();
        let (a, b) = (expected.column(name), found.column(name));
        assert_eq!(a.nulls(), b.nulls(), "{name}");
        match field.data_type() {
            DataType::Float64 => {
                let [a, b] = [a, b].map(|column| column.as_primitive::<Float64Type>());
                assert_near(name, a.values(), b.values());
            }
            DataType::FixedSizeList(..) => {
                let [a, b] = [a, b].map(|column| column.as_fixed_size_list());
                for row in (0..a.len()).filter(|&row| a.is_valid(row)) {
                    let [a, b] = [a, b].map(|lists| lists.value(row));
                    let [a, b] = [&a, &b].map(|list| list.as_primitive::<Float64Type>());
                    assert_near(name, a.values(), b.values());
                }
            }
            DataType::List(_) => {
                let [a, b] = [a, b].map(|column| column.as_list::<i32>());
                assert_eq!(a.offsets(), b.offsets(), "{name}");
                let [a, b] = [a, b].map(|lists| lists.values().as_primitive::<Float64Type>());
                assert_near(name, a.values(), b.values());
            }
            _ => assert_eq!(a, b, "{name}"),
        }
    }
}

/// Two partitions, some rare symbols, and fits that pool them, refine and choose a rank.
fn around() -> String {
    let sql = "SELECT *, id % 2 AS part, CASE WHEN (7 * id + t) % 41 = 0 THEN 'z' || (t % 4) \
               ELSE symbol END AS page FROM visits";
    PIPELINE
        .replace("SELECT * FROM visits", sql)
        .replace(
            "symbol = \"symbol\"",
            "symbol = \"page\"\nsplit = \"split\"\npartition_by = \"part\"",
        )
        .replace(
            "[output]\nrows = \"all\"",
            "min_count = 12\n\n[[fit]]\nname = \"em\"\nmethod = \"spectral_hmm\"\nrank = 2\n\
             refine = \"em\"\nn_iter = 5\nunigram = 0.0\n\n[[fit]]\nname = \"auto\"\n\
             method = \"spectral_hmm\"\nrank = \"auto\"\nranks = [1, 2, 3]\nfloor = 1e-9\n\n\
             [output]\nrows = \"all\"\ndistribution = true",
        )
}

#[test]
fn the_rows_of_a_run_come_back() {
    let mut visits = visits(24, 80, 21);
    let lake = lake(&visits);
    lake.file("p.toml", &around());
    lake.run(&[]).succeeds();
    let symbols = lake.read("symbols");
    let pooled = symbols.column("is_pooled").as_boolean();
    assert!(pooled.true_count() > 2 && pooled.true_count() < symbols.len());
    // The rows may come in any order.
    visits.reverse();
    table(&lake, "new.parquet", &visits);
    let new = ["tables.visits.path=new.parquet"];
    lake.assign(&new)
        .succeeds()
        .says("rows, assigned by the model ")
        .says("nats per symbol");
    for table in ["predictions", "trajectories"] {
        assert_equal(&lake.read(table), &lake.read_at(&format!("new/{table}")));
    }
    assert_eq!(lake.tables_of("new").len(), 2);

    // The model needs no rows of its run, and the new rows no split.
    lake.run(&["output.rows=none", "output.distribution=false"])
        .succeeds();
    assert!(!lake.path("out/predictions").exists());
    lake.file("p.toml", &around().replace("split = \"split\"\n", ""));
    lake.assign(&[]).succeeds();
    let all = lake.read_at("new/trajectories");
    let columns = lake.read("trajectories").0.num_columns();
    assert_eq!((all.len(), all.0.num_columns()), (24, columns - 1));
}

#[test]
fn a_distribution_of_too_many_symbols_is_refused() {
    let lake = lake(&visits(12, 600, 20));
    let sql = "sequences.sql=\"SELECT id, t, 1000 * (id % 2) + t AS symbol FROM visits\"";
    lake.run(&[sql, "output.distribution=true"])
        .fails(2, "the limit is 1000 symbols");
    let half = "sequences.sql=\"SELECT id, t, t % 100 AS symbol FROM visits\"";
    lake.run(&[half, "output.distribution=true"]).succeeds();
    let lists = lake.read("predictions").lists("hmm_r2_next_distribution");
    assert!(lists.iter().all(|list| list.len() == 100));
    let mut sums = lists.iter().map(|list| list.iter().sum::<f64>());
    assert!(sums.all(|sum| (sum - 1.0).abs() < 1e-9));
}

#[test]
fn unseen_symbols_are_scored_by_the_floor() {
    let old = visits(12, 60, 22);
    let lake = lake(&old);
    lake.run(&[]).succeeds();
    let new: Vec<Visit> = old
        .iter()
        .filter(|v| v.2.is_some())
        .map(|&(id, t, symbol, split)| {
            let symbol = if t % 20 == 7 { Some("new") } else { symbol };
            (id, t, symbol, split)
        })
        .collect();
    let unseen = new.iter().filter(|v| v.2 == Some("new")).count();
    table(&lake, "new.parquet", &new);
    let ran = lake.assign(&["tables.visits.path=new.parquet"]).succeeds();
    let line = format!("{unseen} rows with an unseen symbol");
    ran.says(&line);
    let rows = lake.read_at("new/predictions");
    let (symbols, is_unseen) = (rows.texts("symbol"), rows.column("is_unseen").as_boolean());
    let likelihoods = rows.floats("hmm_r2_log_likelihood");
    let resets = rows.column("hmm_r2_was_reset").as_boolean();
    for at in 0..rows.len() {
        assert_eq!(is_unseen.value(at), symbols[at] == "new");
        if is_unseen.value(at) {
            assert!((likelihoods[at] - 1e-12f64.ln()).abs() < 1e-12 && resets.value(at));
        }
    }
    let counted: i64 = lake
        .read_at("new/trajectories")
        .integers("unseen")
        .iter()
        .sum();
    assert_eq!(counted, unseen as i64);
}

#[test]
fn rows_that_do_not_fit_the_model_are_refused_by_name() {
    let lake = lake(&visits(12, 60, 23));
    let sql = "sequences.sql=\"SELECT *, id % 3 AS part FROM visits WHERE PART\"";
    let of = |parts: &str| sql.replace("PART", parts);
    let by = "sequences.partition_by=part";
    lake.run(&[&of("id % 3 < 2"), by]).succeeds();
    lake.assign(&[&of("true"), by]).fails(1, "part=2");
    let rows = lake.read_at("new/predictions");
    let parts = rows.integers("part");
    let likelihoods = rows.column("hmm_r3_log_likelihood");
    assert!((0..rows.len()).all(|at| likelihoods.is_null(at) == (parts[at] == 2)));

    lake.run(&[]).succeeds();
    let renamed = "sequences.sql=\"SELECT id, t, symbol AS page FROM visits\"";
    let page = "sequences.symbol=page";
    lake.assign(&[renamed, page])
        .fails(2, "the columns of the symbol are `page` Utf8");
    let integer = "sequences.sql=\"SELECT id, t, t % 5 AS symbol FROM visits\"";
    lake.assign(&[integer])
        .fails(2, "`symbol` Int64 in the pipeline");
}

#[test]
fn two_results_are_compared_by_spectra_and_likelihoods() {
    let old = visits(15, 80, 24);
    let lake = lake(&old);
    lake.run(&[]).succeeds();
    let same = lake.compare(&["out", "out"]);
    let model = &same["models"][0];
    assert_eq!(model["symbols"], 5);
    assert_eq!(model["trajectories"], 15);
    assert_eq!(model["total_variation"], 0.0);
    for fit in model["fits"].as_array().expect("fits") {
        assert_eq!(fit["singular_values_a"], fit["singular_values_b"]);
        let own = &fit["likelihoods"];
        assert_eq!(own["difference"], 0.0);
        assert_eq!(own["error"], 0.0);
    }
    // A model without the last trajectories and the symbol e.
    let fewer = "sequences.sql=\"SELECT * FROM visits WHERE id < 12 AND symbol <> 'e' OR id = 14\"";
    lake.run(&[fewer, "job.output=b"]).succeeds();
    let found = lake.compare(&["out", "b"]);
    let model = &found["models"][0];
    let count = |key: &str| model[key].as_u64().expect("a number");
    assert_eq!((count("symbols"), count("symbols_only_a")), (5, 0));
    assert_eq!((count("trajectories"), count("other_rows")), (1, 12));
    assert!(model["total_variation"].as_f64().expect("a number") > 0.05);
    let ranks = lake.compare(&["out", "out", "--fit", "hmm_r2=hmm_r3"]);
    let fit = &ranks["models"][0]["fits"][0];
    assert_eq!((&fit["rank_a"], &fit["rank_b"]), (&2.into(), &3.into()));
    let own = &fit["likelihoods"];
    let means = lake.read("trajectories");
    let total = |fit: &str| {
        means
            .floats(&format!("{fit}_log_likelihood"))
            .iter()
            .sum::<f64>()
    };
    let rows: i64 = means.integers("rows").iter().sum();
    let difference = (total("hmm_r3") - total("hmm_r2")) / rows as f64;
    let own = |key: &str| own[key].as_f64().expect("a number");
    assert!((own("difference") - difference).abs() < 1e-12 && own("error") > 0.0);
    assert!((own("b") - own("a") - difference).abs() < 1e-12);
    let text = lake.line("compare out out --fit hmm_r2=hmm_r3");
    let text = text.succeeds().out;
    assert!(text.contains("15 common trajectories"), "{text}");
    assert!(text.contains("nats per symbol, difference "), "{text}");
    assert!(text.contains("largest difference "), "{text}");
    lake.line("compare out b --lag 1=2")
        .fails(2, "--lag: out has no lag `1`; it has none");
}

const VALIDATED: [&str; 5] = [
    "validation.bootstrap=4",
    "validation.folds=3",
    "validation.groups=6",
    "fit.hmm.rank=auto",
    "fit.hmm.ranks=[1,2,3]",
];

#[test]
fn resamples_and_folds_do_not_depend_on_threads_files_or_increments() {
    let visits = visits(18, 60, 27);
    let whole = lake(&visits);
    let text = format!("{PIPELINE}\n[validation]\nbootstrap = 1\n");
    whole.file("p.toml", &text);
    whole.run(&VALIDATED).succeeds();
    let expected = whole.tables_of("out");
    let bootstrap = whole.read("bootstrap");
    let metrics = bootstrap.texts("metric");
    assert!(metrics.iter().all(|name| name == "singular_value"));
    assert_eq!(bootstrap.integers("resamples"), vec![4; bootstrap.len()]);
    assert_eq!(bootstrap.integers("groups"), vec![6; bootstrap.len()]);
    let ranks = whole.read("ranks");
    assert_eq!(ranks.integers("rank"), [1, 2, 3]);
    let chosen = ranks.column("is_chosen").as_boolean();
    assert_eq!(chosen.true_count(), 1);
    let fits = whole.read("fits");
    let at = (0..3).find(|&at| chosen.value(at)).expect("a rank");
    assert_eq!(fits.floats("held_out")[0], ranks.floats("held_out")[at]);
    assert!(fits.floats("held_out")[0] > fits.floats("held_out_unigram")[0]);
    assert_eq!(fits.integers("rank")[0], at as i64 + 1);
    let rows: i64 = whole.read("trajectories").integers("rows").iter().sum();
    assert_eq!(fits.integers("held_out_rows"), [rows]);

    let sets: Vec<&str> = VALIDATED.iter().flat_map(|set| ["--set", *set]).collect();
    let forced = ["run", "p.toml", "--force", "--threads"];
    for threads in ["1", "2"] {
        let arguments = [&forced[..], &[threads], &sets].concat();
        whole.gyre(&arguments).succeeds();
        assert!(whole.tables_of("out") == expected, "{threads} threads");
    }
    // Each file has whole trajectories, and the later files have the earlier ones.
    let grown = Lake::new();
    grown.file("p.toml", &text);
    for file in 0..3 {
        let part: Vec<Visit> = visits
            .iter()
            .filter(|v| v.0 / 6 == 2 - file)
            .copied()
            .collect();
        table(&grown, &format!("visits/{}.parquet", 2 - file), &part);
        let sets = [&VALIDATED[..], &["job.incremental=true"]].concat();
        let ran = grown.run(&sets).succeeds();
        assert!(file == 0 || ran.out.contains("1 new file"), "{}", ran.out);
    }
    for (name, bytes) in grown.tables_of("out") {
        assert!(bytes == expected[&name], "{name}");
    }
}
