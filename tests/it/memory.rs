//! Runs with a memory limit.

use crate::cli::integers;
use crate::lake::{Lake, Swap, cases, floats, texts, words};
use arrow::array::{ArrayRef, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::fs;

/// Seven million pairs, almost all different, so that counts and shards need most of the memory.
/// Resamples need several times as much.
const PIPELINE: &str = r#"
job = { name = "large", output = "out" }
tables.rows.path = "rows.csv"
[transitions]
sql = "SELECT value % 5003 AS a, (value * 7919 + value / 5003 * 31) % 4999 AS b, value % 3 + 1 AS n FROM range(0, 7000000)"
source = "a"
target = "b"
count = "n"

[[fit]]
name = "svd"
method = "svd"
rank = 3
restarts = 1

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 3
restarts = 2

[validation]
bootstrap = 2
"#;

#[test]
fn rows_that_exceed_memory_spill_to_disk_without_changing_the_result() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", PIPELINE);
    let mut seen = Vec::new();
    for options in [
        &["--threads", "2"][..],
        &["--threads", "2", "--memory", "210MB"],
    ] {
        lake.gyre(&[&["run", "p.toml", "--force"], options].concat())
            .succeeds();
        let record = lake.last_record();
        let bytes = |key: &str| record[key].as_u64();
        let peak = bytes("peak_memory_bytes").expect("a peak");
        seen.push((peak, bytes("scratch_bytes"), lake.tables()));
        fs::remove_dir_all(lake.path("out")).expect("the output is removed");
    }
    let [(plain, None, expected), (bounded, Some(scratch), tables)] = &seen[..] else {
        panic!("a run spills to disk exactly if its memory is limited");
    };
    assert_eq!(tables, expected, "the bytes of all tables");
    if cfg!(target_os = "linux") {
        assert!(*plain > 300_000_000, "{plain}");
        assert!(*bounded <= 210_000_000, "{bounded}");
        assert!(*scratch > 64 << 20, "{scratch}");
    }
}

#[test]
fn a_memory_limit_that_is_too_small_is_refused_with_the_smallest_that_works() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", PIPELINE);
    let run =
        |options: &[&str]| lake.gyre(&[&["run", "p.toml", "--threads", "2"], options].concat());
    let message = "--memory 100MB is too small: the program and 2 threads need 168MB";
    run(&["--memory", "100MB"]).fails(2, message);
    let many = ["--memory", "280MB", "--set", "fit.dbmr.rank=2000"];
    run(&many).fails(2, "fit `dbmr` needs 328MB in memory (this part cannot be on disk) for 5003 sources, 4999 targets, rank 2000 and 2 threads; --memory is 280MB: give at least 328MB");
    assert!(!lake.path("out/current.json").exists());
}

/// Very many small models. The data of each model is too small to be spilled to disk.
const MANY: &str = r#"
job = { name = "many", output = "out" }
tables.rows.path = "rows.csv"
[transitions]
sql = "SELECT value % MODELS AS p, value / MODELS % 61 AS a, value * 7919 / MODELS % 59 AS b, 1 AS n FROM range(0, 3000 * MODELS)"
source = "a"
target = "b"
count = "n"
partition_by = ["p"]

[[fit]]
name = "svd"
method = "svd"
rank = 1
"#;

#[test]
#[cfg(target_os = "linux")]
fn a_run_that_cannot_spill_stops_and_keeps_the_earlier_result() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", &MANY.swap("MODELS", "2"));
    lake.runs(&[]);
    let before = lake.tables();
    lake.file("p.toml", &MANY.swap("MODELS", "5000"));
    let stopped = lake.line("run p.toml --threads 2 --memory 175MB");
    stopped.fails(75, "");
    let megabytes = |text: Option<&str>| text.and_then(|text| text.parse::<usize>().ok());
    let error = stopped.err.strip_prefix("error: --memory is too small: ");
    let error =
        error.and_then(|rest| rest.split_once("MB are in use that cannot be moved to disk; "));
    let (in_use, rest) = error.unwrap_or_else(|| panic!("{}", stopped.err));
    let enough = rest.strip_prefix("give at least ");
    let enough = enough.and_then(|rest| rest.strip_suffix("MB\n"));
    let numbers = (megabytes(Some(in_use)), megabytes(enough));
    let (Some(in_use), Some(enough)) = numbers else {
        panic!("{}", stopped.err);
    };
    // The run stops above its limit and proposes at least a quarter more.
    assert!(in_use >= 175 && enough > in_use, "{}", stopped.err);
    assert!(lake.tables() == before);
    lake.line("clean p.toml --older-than 0s").succeeds();
    let entries = |folder: &str| fs::read_dir(lake.path(folder)).expect("a folder").count();
    // The stopped run leaves only its record.
    assert_eq!((entries("out/versions"), entries("out/runs")), (1, 2));
    assert!(!lake.path("out/work").exists());
}

#[test]
fn a_plan_estimates_the_memory_of_a_run() {
    let lake = Lake::new();
    lake.file("rows.csv", "unused\n1\n")
        .file("p.toml", PIPELINE);
    let shown = lake.line("plan p.toml --threads 2").succeeds().out;
    let last = shown.lines().last();
    let expected = "  memory grows with rows, and nothing says how many there are";
    assert_eq!(last, Some(expected), "{shown}");
}

/// Jobs of all kinds: the table, its section, a fit, and more keys. All points of the first kernel
/// are within its radius, and the last kernel has too many coordinates for a tree.
const JOBS: &str = r#"
    [points]\nid = "k"\ncoordinates = ["x", "y"] | method = "diffusion_map"\ndimension = 2\nradius = 1000.0\nepsilon = 1.0
    [points]\nid = "k"\ncoordinates = ["x", "y"] | method = "heat_sketch"\ndimension = 16\npower = [1, 2, 4]\nneighbours = "all"
    [points]\nid = "k"\ncoordinates = ["x", "y", "c0", "c1", "c2", "c3", "c4", "c5", "c6"] | method = "diffusion_map"\ndimension = 3\nneighbours = 30
    [transitions]\ntrajectory = "id"\ntime = "t"\nlag = [1, 2]\ncoordinates = ["x", "y"]\npartition_by = "part" | method = "state_embedding"\nrank = 2\nfeatures = 100
    [transitions]\ntrajectory = "id"\ntime = "t"\nlag = 1\nstate = "s" | method = "dbmr"\nrank = 2\nrestarts = 2
    [sequences]\ntrajectory = "id"\ntime = "t"\ninterval = 1\nsymbol = "s" | method = "spectral_hmm"\nrank = 3
    [sequences]\ntrajectory = "id"\ntime = "t"\ninterval = 1\nstate = ["x"]\nobservation = ["y"]\nsplit = "split"\npartition_by = "part" | method = "kernel_bayes"\nbandwidth = "median"\nlambda = 0.001
    [sequences]\ntrajectory = "id"\ntime = "t"\ninterval = 1\nstate = ["x"]\nobservation = ["y"]\nsplit = "split" | method = "kalman"
"#;

/// Writes random rows in two partitions, and a pipeline on them.
fn write_job(lake: &Lake, n: i64, [section, fit]: &[String; 2]) {
    let mut random = Pcg64::seed_from_u64(n as u64);
    let mut floats = || -> ArrayRef {
        let values = (0..n).map(|_| random.random_range(-1.0..1.0));
        floats(values)
    };
    let split = |k| if k % 400 < 100 { "train" } else { "test" };
    let mut columns = vec![
        ("k", integers(0..n)),
        ("id", integers((0..n).map(|k| k / 100))),
        ("t", integers((0..n).map(|k| k % 100))),
        ("part", integers((0..n).map(|k| k / 100 % 2))),
        ("s", integers((0..n).map(|k| (k * k + k / 7) % 5))),
        ("split", texts((0..n).map(split))),
    ];
    for name in ["x", "y", "c0", "c1", "c2", "c3", "c4", "c5", "c6"] {
        columns.push((name, floats()));
    }
    lake.table("rows.parquet", columns);
    let text = format!(
        "[job]\nname = \"job\"\noutput = \"out\"\n[tables.rows]\npath = \"rows.parquet\"\n{section}\nsql = \"SELECT * FROM rows\"\n[[fit]]\nname = \"one\"\n{fit}\n"
    );
    lake.file("p.toml", &text);
}

#[test]
#[cfg(target_os = "linux")]
fn a_run_needs_at_most_what_its_plan_says() {
    let mut random = Pcg64::seed_from_u64(11);
    for job in cases(JOBS) {
        let lake = Lake::new();
        let n = 100 * random.random_range(5..9);
        write_job(&lake, n, &job);
        let plan = lake.line("plan p.toml --threads 2 --json");
        let plan = plan.succeeds().json();
        let of = |key: &str| plan["memory"][key].as_u64();
        let of_pairs = of("bytes_per_pair").unwrap_or(0) * (n * n) as u64;
        let of_partitions = of("bytes_per_partition").unwrap_or(0);
        let bytes = ["bytes", "count_bytes", "fit_bytes"].map(of);
        let bytes = bytes.into_iter().flatten().max().expect("a bound");
        let most = bytes + of_pairs + of_partitions;
        lake.line("run p.toml --threads 2").succeeds();
        let peak = lake.last_record()["peak_memory_bytes"].as_u64();
        let peak = peak.expect("a peak");
        assert!(peak <= most, "{peak} > {most}: {job:?}, {n} rows");
    }
}

/// The pairs within a radius are counted before they are listed.
#[test]
fn a_radius_that_holds_too_many_pairs_is_refused() {
    let lake = Lake::new();
    write_job(&lake, 1000, &cases(JOBS)[0]);
    let bounded = ["run", "p.toml", "--threads", "2", "--memory", "180MB"];
    let pairs = "of 2 coordinates with 1000000 pairs within `radius` and 2 threads; --memory is 180MB: give at least ";
    let refused = lake.gyre(&bounded);
    refused.fails(2, pairs);
    refused.fails(2, "or set a smaller `radius`, or `landmarks`");
    let near = [&bounded[..], &["--set", "fit.one.radius=0.5"]].concat();
    lake.gyre(&near).succeeds();
}

/// Of several partitions, the one with the largest need is named.
#[test]
fn the_largest_need_of_all_partitions_is_named() {
    let lake = Lake::new();
    let all = "method = \"diffusion_map\"\ndimension = 2\nneighbours = \"all\"";
    let jobs = cases::<2>(JOBS);
    let points = jobs[0][0].clone() + "\npartition_by = \"p\"";
    let bayes = jobs[6][0].replace("\"part\"", "\"p\"");
    let words = jobs[5][0].replace("\"s\"", "\"k\"") + "\npartition_by = \"p\"";
    for (section, fit, set) in [
        (points, all, "fit.one.dimension=2"),
        (bayes, jobs[6][1].as_str(), "fit.one.exact=100000"),
        (words, jobs[5][1].as_str(), "fit.one.refine=\"em\""),
    ] {
        write_job(&lake, 24_000, &[section, fit.to_string()]);
        // The second of three partitions is the largest.
        let text = lake.text("p.toml");
        let other =
            "SELECT *, CASE WHEN k < 3000 THEN 1 WHEN k < 17000 THEN 2 ELSE 3 END AS p FROM rows";
        let text = text.replace("SELECT * FROM rows", other);
        lake.file("p.toml", &text);
        let run = |memory: &str| {
            let run = ["run", "p.toml", "--threads", "2", "--memory", memory];
            lake.gyre(&[&run[..], &["--set", set]].concat())
        };
        let refused = run("169MB");
        refused.fails(2, "p=2");
        let enough = refused.err.split_once("give at least ");
        let (_, enough) = enough.unwrap_or_else(|| panic!("{}", refused.err));
        let (enough, _) = enough.split_once("MB").expect("a size");
        let less: usize = enough.parse().expect("a number");
        run(&format!("{}MB", less - 1)).fails(2, "p=2");
    }
}

/// A page that is small on disk and large in memory is refused before it is decompressed, if its
/// column is read.
#[test]
fn a_page_that_becomes_too_large_is_refused() {
    let lake = Lake::new();
    let text = |k: i64| {
        char::from(b'a' + (k % 20) as u8)
            .to_string()
            .repeat(1 << 20)
            + &k.to_string()
    };
    let n = 150;
    let texts = texts((0..n).map(text));
    let columns = [
        ("t", integers(0..n)),
        ("s", integers((0..n).map(|k| k % 3))),
        ("text", texts),
    ];
    let rows = RecordBatch::try_from_iter(columns).expect("columns");
    for dictionary in [true, false] {
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_dictionary_enabled(dictionary)
            .set_dictionary_page_size_limit(1 << 30)
            .set_data_page_size_limit(1 << 30)
            .build();
        let file = fs::File::create(lake.path("rows.parquet")).expect("a file");
        let writer = ArrowWriter::try_new(file, rows.schema(), Some(properties));
        let mut writer = writer.expect("a writer");
        writer.write(&rows).expect("rows");
        writer.close().expect("a file");
        let bytes = fs::metadata(lake.path("rows.parquet"))
            .expect("a file")
            .len();
        assert!(bytes < 1_000_000, "{bytes}");
        let pipeline = "[job]\nname = \"job\"\noutput = \"out\"\n[tables.rows]\npath = \"rows.parquet\"\n[transitions]\ntime = \"t\"\nstate = \"s\"\nlag = 1\nsql = \"SELECT t, s FROM rows\"\n[[fit]]\nname = \"one\"\nmethod = \"svd\"\nrank = 2\n";
        lake.file("p.toml", pipeline);
        let bounded = words("run p.toml --threads 2 --memory 300MB --force");
        lake.gyre(&bounded).succeeds();
        let all = "transitions.sql=SELECT t, length(text) AS s FROM rows";
        let refused = lake.gyre(&[&bounded[..], &["--set", all]].concat());
        refused.fails(2, "column `text` of ");
        refused.fails(2, "rows.parquet has a page that becomes 158MB when it is decompressed, and there is room for 30MB; give at least 1427MB with --memory");
        lake.line("init rows.parquet")
            .fails(2, "has a page that becomes 158MB when it is decompressed");
    }
}

#[test]
fn a_first_pipeline_is_proposed_from_the_rows_that_fit() {
    let lake = Lake::new();
    let texts = |group: i64| -> ArrayRef {
        let text = |k: i64| format!("{}{k}", "a".repeat(200_000));
        texts((0..50).map(move |k| text(50 * group + k)))
    };
    let rows = |group: i64| {
        let times = 50 * group..50 * (group + 1);
        let columns = [
            ("t", integers(times.clone())),
            ("s", integers(times.map(|k| k % 3))),
            ("text", texts(group)),
        ];
        RecordBatch::try_from_iter(columns).expect("columns")
    };
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_dictionary_enabled(false)
        .build();
    let file = fs::File::create(lake.path("rows.parquet")).expect("a file");
    let writer = ArrowWriter::try_new(file, rows(0).schema(), Some(properties));
    let mut writer = writer.expect("a writer");
    for group in 0..40 {
        writer.write(&rows(group)).expect("rows");
        writer.flush().expect("a row group");
    }
    writer.close().expect("a file");
    // 2,000 rows have 400 MB.
    lake.line("init rows.parquet --to p.toml").succeeds();
    let text = lake.text("p.toml");
    let said = text
        .lines()
        .find_map(|line| line.strip_prefix("# The first "));
    let said = said.and_then(|line| line.strip_suffix(" rows were looked at."));
    let n: u32 = said.and_then(|n| n.parse().ok()).expect(&text);
    assert!((300..600).contains(&n), "{n}");
}
