//! The files that a path selects: separation of input and output, outputs as input, patterns,
//! tables of other formats, values of Hive folders, relative paths, spellings, and the detection of
//! changed files.

use crate::lake::{Lake, ProgramRun, Swap, cases, words};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const PIPELINE: &str = r#"
job = { name = "rows", output = "OUTPUT" }
tables.rows.path = PATH
[transitions]
sql = "SELECT a, b, n FROM rows"
source = "a"
target = "b"
count = "n"

[output]
tables = ["counts"]

[[fit]]
name = "one"
method = "dbmr"
rank = 1
"#;

/// The query of the pipeline.
pub const ROWS: &str = "SELECT a, b, n FROM rows";

pub fn text(path: &str, output: &str) -> String {
    PIPELINE.swap("PATH", path).swap("OUTPUT", output)
}

/// Writes a pipeline that reads a quoted path or a list, and writes to an output.
fn pipeline<'a>(lake: &'a Lake, path: &str, output: &str) -> &'a Lake {
    lake.file("p.toml", &text(path, output))
}

/// Writes a table with one row.
pub fn write_pair(lake: &Lake, name: &str, a: i64, b: i64, n: i64) {
    lake.integers(name, ["a", "b", "n"], [[a, b, n]]);
}

/// Writes a file with one row.
fn write_row(lake: &Lake, name: &str, n: i64) {
    write_pair(lake, name, n, n + 1, n);
}

/// The counts of the files that a path selects. Each file has a different count.
fn read(lake: &Lake, path: &str) -> Vec<i64> {
    pipeline(lake, path, "out")
        .line("run p.toml --force")
        .succeeds();
    lake.read("counts").integers("count")
}

fn quoted(path: &str) -> String {
    format!("{path:?}")
}

const OVERLAPS: [&str; 2] = ["reads files below the output", "is in the output"];

/// Combines inputs with outputs in several spellings. If `check` accepts a combination, repeated
/// runs find an up-to-date result.
#[test]
fn the_output_of_a_job_is_never_its_input() {
    let paths = [
        ("lake", "lake/"),
        ("lake/in", "lake/in/"),
        ("lake/*.parquet", "lake/"),
        ("lake/*/*.parquet", "lake/*/"),
        ("lake/**/*.parquet", "**"),
        ("lake/in/**", "lake/in/"),
        ("lake/{in,old}/*.parquet", "{in,old}"),
        ("link/*.parquet", "link/"),
        ("link", "lake/"),
    ];
    let outputs = words("out lake/out lake/in/out lake lake/in lake2 other link/out");
    // Whether a file of the output could match the path.
    let overlaps = |path: &str, output: &str| -> bool {
        let output = output.replace("link", "lake");
        let path = path.replace("link", "lake");
        let within = |folder: &str| output == folder || output.starts_with(&format!("{folder}/"));
        let reverse = |folder: &str| folder.starts_with(&format!("{output}/"));
        match path.as_str() {
            "lake" => within("lake") || reverse("lake"),
            "lake/in" | "lake/in/**" => within("lake/in") || reverse("lake/in") || output == "lake",
            "lake/*.parquet" => output == "lake",
            "lake/*/*.parquet" => ["lake", "lake/out", "lake/in"].contains(&output.as_str()),
            "lake/**/*.parquet" => within("lake"),
            "lake/{in,old}/*.parquet" => ["lake", "lake/in"].contains(&output.as_str()),
            _ => unreachable!("{path}"),
        }
    };
    let mut refused = 0;
    for (path, _) in paths {
        for output in outputs.clone() {
            let lake = Lake::new();
            write_row(&lake, "lake/in/a.parquet", 1);
            write_row(&lake, "lake/b.parquet", 2);
            symlink("lake", lake.path("link")).expect("a link");
            let absolute = lake.path(output).display().to_string();
            let spellings = [
                output.to_string(),
                format!("./{output}/"),
                format!("other/../{output}"),
                absolute,
            ];
            for output_as in &spellings {
                pipeline(&lake, &quoted(path), output_as);
                let what = format!("{path} and {output_as}");
                for command in ["check", "plan", "run"] {
                    let ran = lake.gyre(&[command, "p.toml"]);
                    if overlaps(path, output) {
                        assert_eq!(ran.code, Some(2), "{what}: {}", ran.err);
                        assert!(
                            OVERLAPS.iter().any(|o| ran.err.contains(o)),
                            "{what}: {}",
                            ran.err
                        );
                        refused += 1;
                    } else {
                        assert_eq!(ran.code, Some(0), "{what}: {}", ran.err);
                        if command == "run" {
                            let is_first = output_as == &spellings[0];
                            let is_up_to_date = ran.out.contains("Nothing to do.");
                            assert_eq!(is_up_to_date, !is_first, "{what}: {}", ran.out);
                        }
                    }
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

#[test]
fn a_link_to_the_output_is_not_an_input() {
    let lake = Lake::new();
    write_row(&lake, "lake/a.parquet", 1);
    pipeline(&lake, "\"lake/\"", "out").runs(&[]);
    symlink("../out/sources", lake.path("lake/more")).expect("a link");
    let message = "is in the output out of the same job, which a link leads to";
    lake.call("check", &[]).fails(2, message);
}

/// The tables of another job's output are read once, from its current result, for every spelling of
/// the path.
#[test]
fn a_table_of_an_output_is_read_once() {
    let lake = Lake::new();
    write_row(&lake, "lake/a.parquet", 1);
    write_row(&lake, "lake/b.parquet", 2);
    pipeline(&lake, "\"lake/\"", "first/taxi").runs(&[]);
    pipeline(&lake, "\"lake/\"", "first/taxi")
        .line("run p.toml --force")
        .succeeds();
    let second = |path: &str| -> ProgramRun {
        let text = text(&quoted(path), "out")
            .replace("name = \"rows\"", "name = \"second\"")
            .replace("a, b, n", "a, b, count AS n");
        lake.file("second.toml", &text);
        lake.line("run second.toml --force")
    };
    for path in [
        "first/taxi/counts",
        "./first/taxi/counts/",
        "first/taxi/current/counts",
        "first/taxi/counts/part-0.parquet",
        "first/taxi/counts/*.parquet",
    ] {
        second(path).succeeds().says("3 transitions in 2 rows");
    }
    for path in [
        "first/taxi",
        "first/taxi/",
        "first",
        "first/taxi/versions",
        "first/**",
        "first/taxi/*/*.parquet",
    ] {
        let ran = second(path);
        ran.fails(2, "output");
        assert!(ran.err.contains("first/taxi/counts"), "{path}: {}", ran.err);
        ran.logs("name one of its tables");
    }
    // Folders below the tables of an output do not belong to the output.
    assert!(
        second("first/*.parquet").err.contains("no file at"),
        "no file"
    );
}

#[test]
fn a_file_with_several_paths_is_read_once() {
    let lake = Lake::new();
    write_row(&lake, "lake/a.parquet", 1);
    write_row(&lake, "lake/b.parquet", 2);
    symlink("a.parquet", lake.path("lake/c.parquet")).expect("a link");
    symlink("lake", lake.path("link")).expect("a link");
    for path in [
        "\"lake\"",
        "[\"lake\", \"link\", \"lake/a.parquet\"]",
        "[\"lake/*.parquet\", \"./lake/../link/a.parquet\"]",
        "\"lake/**\"",
    ] {
        assert_eq!(read(&lake, path), [1, 2], "{path}");
    }
    // A file with two values of a Hive column is refused.
    std::fs::create_dir_all(lake.path("hive/x=1")).expect("a folder");
    write_row(&lake, "hive/x=1/a.parquet", 1);
    symlink("x=1", lake.path("hive/x=2")).expect("a link");
    let ran = pipeline(&lake, "\"hive\"", "out").call("check", &[]);
    ran.fails(1, "is reached through two Hive folders");
}

#[test]
fn patterns_do_not_leave_their_folder() {
    let lake = Lake::new();
    write_row(&lake, "gl/a.parquet", 1);
    write_row(&lake, "gl/sub/b.parquet", 2);
    write_row(&lake, "gl/archive/old/c.parquet", 3);
    write_row(&lake, "gl/[x].parquet", 4);
    write_row(&lake, "gl/_tmp/d.parquet", 5);
    let cases: [(&str, &[i64]); 9] = [
        ("gl/*.parquet", &[1, 4]),
        ("gl/*/*.parquet", &[2]),
        ("gl/**/*.parquet", &[1, 2, 3, 4]),
        ("gl/{a,sub/b}.parquet", &[1, 2]),
        ("gl/s?b/[!a].parquet", &[2]),
        ("gl/s*/", &[2]),
        ("gl/a*/", &[3]),
        // An existing file takes precedence over the pattern.
        ("gl/[x].parquet", &[4]),
        ("gl/_*/*.parquet", &[5]),
    ];
    for (path, expected) in cases {
        assert_eq!(read(&lake, &quoted(path)), expected, "{path}");
        let url = format!("file://{}/{path}", lake.folder.path().display());
        assert_eq!(read(&lake, &quoted(&url)), expected, "{url}");
    }
    let ran = pipeline(&lake, "\"gl/s*\"", "out").call("check", &[]);
    ran.fails(1, "it matches the folder ");
    let ran = pipeline(&lake, "\"gl/[a\"", "out").call("check", &[]);
    ran.fails(1, "gl/[a is neither a file nor a pattern: ");
}

#[test]
fn hive_folders_in_a_pattern_are_columns() {
    let lake = Lake::new();
    for (year, month) in [(2024, 1), (2024, 2), (2025, 1)] {
        write_row(
            &lake,
            &format!("in/year={year}/month={month}/a.parquet"),
            year % 100 * 10 + month,
        );
    }
    for path in ["in/year=*/*/*.parquet", "in/**/*.parquet", "in/"] {
        let text = text(&quoted(path), "out").replace("a, b, n", "year AS a, month AS b, n");
        lake.file("p.toml", &text)
            .line("run p.toml --force")
            .succeeds();
        let counts = lake.read("counts");
        assert_eq!(counts.integers("a"), [2024, 2024, 2025], "{path}");
        assert_eq!(counts.integers("b"), [1, 2, 1], "{path}");
        assert_eq!(counts.integers("count"), [241, 242, 251], "{path}");
    }
    let text = text("\"in/year=2024/*/*.parquet\"", "out").replace("a, b, n", "month AS a, b, n");
    lake.file("p.toml", &text)
        .line("run p.toml --force")
        .succeeds();
    assert_eq!(lake.read("counts").integers("count"), [241, 242]);
}

/// All formats, and every path to a table in these formats.
#[test]
fn tables_of_other_formats_are_refused_with_a_command_that_exports_them() {
    let table = r#"
        _delta_log/00000000000000000000.json | a Delta table | delta_scan('
        metadata/v1.metadata.json | an Iceberg table | iceberg_scan('
        metadata/00001-9c12.metadata.json | an Iceberg table | iceberg_scan('
        .hoodie/hoodie.properties | a Hudi table | spark.read.format('hudi')
    "#;
    for [mark, name, export] in cases(table) {
        let lake = Lake::new();
        write_row(&lake, "lake/t/data/a.parquet", 1);
        let mark = lake.path("lake/t").join(mark);
        std::fs::create_dir_all(mark.parent().expect("a folder")).expect("a folder");
        std::fs::write(mark, "{}").expect("a file");
        symlink("lake/t/data", lake.path("up")).expect("a link");
        for path in words("t t/ t/data t/data/*.parquet t/*/*.parquet t/** */data/* ../up") {
            let path = format!("lake/{path}");
            let ran = pipeline(&lake, &quoted(&path), "out").call("check", &[]);
            ran.fails(2, &name);
            assert!(ran.err.contains(&export), "{path}: {}", ran.err);
            let real = std::fs::canonicalize(lake.path("lake/t")).expect("a folder");
            ran.logs(&format!("('{}')", real.display()));
        }
        // A path to a single file is read.
        assert_eq!(read(&lake, "\"lake/t/data/a.parquet\""), [1]);
    }
}

#[test]
fn a_hive_folder_without_a_value_is_null() {
    for null in ["__HIVE_DEFAULT_PARTITION__", ""] {
        for incremental in ["false", "true"] {
            let lake = Lake::new();
            for month in ["1", "2"] {
                write_row(&lake, &format!("in/month={month}/a.parquet"), 1);
            }
            let text = text("\"in/\"", "out")
                .swap(ROWS, "SELECT * FROM rows")
                .swap("count = \"n\"", "count = \"n\"\npartition_by = \"month\"");
            let job = format!("job = {{ incremental = {incremental}, ");
            lake.runs_text(&text.swap("job = { ", &job));
            write_row(&lake, &format!("in/month={null}/a.parquet"), 5);
            let ran = lake.runs(&[]);
            ran.says("2 transitions in 3 rows");
            assert!(
                ran.out.contains("1 dropped: 1 null partition") || ran.out.contains("null"),
                "{}",
                ran.out
            );
            // The column is an integer, as without the null.
            assert_eq!(lake.read("counts").integers("month"), [1, 2]);
            let plan = lake.line("plan p.toml --json").succeeds().out;
            let plan: serde_json::Value = serde_json::from_str(&plan).expect("JSON");
            let columns = plan["read"][0]["columns"].as_array().expect("columns");
            let month = columns
                .iter()
                .find(|c| c["name"] == "month")
                .expect("month");
            assert_eq!(month["type"], "Int64");
            let cases = [
                ("month = 1", "1 of 3 files", Some(1)),
                ("month <> 1", "1 of 3 files", Some(1)),
                ("NOT month = 1", "1 of 3 files", Some(1)),
                ("month IS NULL", "1 of 3 files", None),
                ("month IS NOT NULL", "2 of 3 files", Some(2)),
                ("coalesce(month, 9) > 1", "2 of 3 files", Some(1)),
                ("month IN (1, 2)", "2 of 3 files", Some(2)),
                ("month NOT IN (2)", "1 of 3 files", Some(1)),
            ];
            for (filter, files, transitions) in cases {
                let sql = format!("transitions.sql=SELECT * FROM rows WHERE {filter}");
                let explained = lake.call("explain", &[&sql]).succeeds().out;
                assert!(explained.contains(files), "{filter}: {explained}");
                let ran = lake.run(&[&sql]);
                match transitions {
                    Some(n) => {
                        ran.succeeds().says(&format!("{n} transition"));
                    }
                    None => ran.fails(1, "null"),
                }
            }
        }
    }
}

#[test]
fn relative_paths_start_at_the_pipeline_and_then_at_the_current_folder() {
    let lake = Lake::new();
    std::fs::create_dir_all(lake.path("jobs/sql")).expect("a folder");
    std::fs::create_dir_all(lake.path("sql")).expect("a folder");
    write_row(&lake, "jobs/lake/a.parquet", 1);
    write_row(&lake, "lake/a.parquet", 2);
    write_row(&lake, "here/x.parquet", 3);
    let sql = "SELECT a, b, n FROM rows";
    lake.file("jobs/sql/q.sql", sql)
        .file("sql/here.sql", &format!("{sql} WHERE n > 0"));
    lake.file("jobs/sql/c.sql", "SELECT * FROM rows WHERE n > 100");
    let run = |path: &str, file: &str| {
        let text =
            text(path, "out").replace(&format!("sql = \"{sql}\""), &format!("file = {file:?}"));
        let check = "\n[[check]]\nname = \"few\"\nfile = \"sql/c.sql\"\n";
        lake.file("jobs/p.toml", &(text + check));
        lake.line("run jobs/p.toml --force")
    };
    for (path, file, expected) in [
        ("\"lake\"", "sql/q.sql", 1),
        ("\"lake/*.parquet\"", "sql/here.sql", 1),
        ("\"./lake/a.parquet\"", "sql/q.sql", 1),
        ("\"here\"", "sql/q.sql", 3),
        ("\"here/*.parquet\"", "sql/q.sql", 3),
        ("\"../lake/a.parquet\"", "sql/q.sql", 2),
    ] {
        run(path, file).succeeds();
        assert_eq!(lake.read("counts").integers("count"), [expected], "{path}");
    }
    // The output is always relative to the current folder.
    assert!(!lake.path("jobs/out").exists());
    for path in ["\"gone\"", "\"gone/*.parquet\""] {
        let ran = run(path, "sql/q.sql");
        ran.fails(1, "neither beside the pipeline file (jobs/gone");
        ran.fails(1, "nor in the current folder (");
    }
    run("\"lake\"", "sql/gone.sql").fails(2, "SQL file sql/gone.sql cannot be read: neither beside the pipeline file (jobs/sql/gone.sql)");
}

#[test]
fn spellings_of_input_and_sql_do_not_change_the_plan() {
    let lake = Lake::new();
    write_row(&lake, "lake/a.parquet", 1);
    symlink("lake", lake.path("link")).expect("a link");
    pipeline(&lake, "\"lake\"", "out").runs(&[]);
    let absolute = quoted(&lake.path("lake").display().to_string());
    for path in [
        "\"lake/\"",
        "\"./lake\"",
        "\"link\"",
        "\"lake/*.parquet\"",
        "[\"lake/a.parquet\", \"link\"]",
        &absolute,
    ] {
        for output in ["out", "./out", "out/", "link/../out"] {
            pipeline(&lake, path, output)
                .runs(&[])
                .says("Nothing to do.");
        }
    }
    write_row(&lake, "lake/b.parquet", 2);
    let ran = lake.runs(&[]);
    assert!(!ran.out.contains("Nothing to do."), "{}", ran.out);
}

#[test]
fn the_result_of_another_job_is_not_replaced() {
    let lake = Lake::new();
    write_row(&lake, "lake/a.parquet", 1);
    pipeline(&lake, "\"lake\"", "out").runs(&[]);
    let other = text("\"lake\"", "./out/").replace("name = \"rows\"", "name = \"other\"");
    lake.file("other.toml", &other);
    let before = lake.bytes("out/current.json");
    for command in ["check", "plan", "run"] {
        let message = "holds the result of the job `rows`, which the job `other` would replace";
        lake.gyre(&[command, "other.toml"]).fails(2, message);
    }
    assert_eq!(lake.bytes("out/current.json"), before);
    lake.line("run other.toml --force").succeeds();
    lake.line("run other.toml")
        .succeeds()
        .says("Nothing to do.");
    lake.run(&[]).fails(2, "the job `other`");
}

/// Writes other content of the same length to a file and restores its time of change.
fn rewrite(path: &Path, from: &str, to: &str) {
    let times = std::fs::metadata(path)
        .and_then(|m| m.modified())
        .expect("a time");
    let text = std::fs::read_to_string(path)
        .expect("a file")
        .replace(from, to);
    let mut file = std::fs::File::options()
        .write(true)
        .open(path)
        .expect("a file");
    std::io::Write::write_all(&mut file, text.as_bytes()).expect("the file is written");
    file.set_modified(times).expect("an own file");
}

#[test]
fn a_change_of_content_alone_is_detected() {
    for incremental in [false, true] {
        let lake = Lake::new();
        lake.file("rows.csv", "a,b,n\n1,2,3\n");
        pipeline(&lake, "\"rows.csv\"", "out");
        let incremental = format!("job.incremental={incremental}");
        let run = |fingerprint: &str| {
            let fingerprint = format!("job.fingerprint={fingerprint}");
            lake.runs(&[&incremental, &fingerprint])
        };
        run("content");
        assert_eq!(lake.read("counts").integers("count"), [3]);
        rewrite(&lake.path("rows.csv"), "1,2,3", "1,2,4");
        let ran = run("content");
        assert_eq!(lake.read("counts").integers("count"), [4], "{}", ran.out);
        assert!(run("content").out.contains("Nothing to do."));
        // A new time of change without new content is not a change.
        let file = std::fs::File::options()
            .write(true)
            .open(lake.path("rows.csv"));
        file.and_then(|file| file.set_modified(std::time::UNIX_EPOCH))
            .expect("an own file");
        assert!(run("content").out.contains("Nothing to do."));
        // The default compares the time of change and not the content.
        run("metadata");
        rewrite(&lake.path("rows.csv"), "1,2,4", "1,2,5");
        assert!(run("metadata").out.contains("Nothing to do."));
        run("content");
        assert_eq!(lake.read("counts").integers("count"), [5]);
    }
}

/// The exit code must not make a job scheduler retry forever.
#[test]
fn unreadable_input_ends_with_code_1() {
    let lake = Lake::new();
    write_row(&lake, "in/a.parquet", 1);
    let mode = |name: &str, mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(lake.path(name), mode).expect("an own file");
    };
    pipeline(&lake, "\"in/\"", "out");
    let is_root = std::fs::metadata(lake.folder.path()).is_ok_and(|found| found.uid() == 0);
    let program = lake.command(&[]).get_program().to_owned();
    let program = std::fs::File::open(program).expect("the program");
    mode("", 0o755);
    for (name, closed, open) in [("in/a.parquet", 0o000, 0o644), ("in", 0o000, 0o755)] {
        mode(name, closed);
        for path in ["\"in/\"", "\"in/*.parquet\"", "\"in/a.parquet\""] {
            pipeline(&lake, path, "out");
            let mut command = lake.command(&["check", "p.toml"]);
            if is_root {
                // Root may read every file. Another user may have no access to the folder of the
                // program, so the program is an open file.
                command = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()));
                command.args(["check", "p.toml"]).uid(65534);
                command.current_dir(lake.folder.path());
            }
            let ran = ProgramRun::of(command.output().expect("the program starts"));
            ran.fails(1, "table `rows`");
        }
        mode(name, open);
    }
}
