//! A lake is a temporary folder with Parquet tables and a pipeline. The tests run the program on
//! it.

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use arrow::compute::{cast, concat_batches};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::prelude::SessionContext;
use gyre::error::is_hidden;
use parquet::arrow::ArrowWriter;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

pub struct Lake {
    pub folder: tempfile::TempDir,
}

/// Output and exit code of one run of the program.
#[derive(Debug)]
pub struct ProgramRun {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl ProgramRun {
    pub fn of(output: Output) -> ProgramRun {
        let text = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).expect("the program prints UTF-8");
            let is_raw = |c: char| is_hidden(c) && !matches!(c, '\n' | '\t');
            assert!(!text.contains(is_raw), "a terminal obeys {text:?}");
            let is_begun = |line: &str| line.starts_with("\\u{1b}[2J");
            assert!(!text.lines().any(is_begun), "data begins a line of {text}");
            text
        };
        ProgramRun {
            code: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        }
    }

    /// Asserts that the program ended with exit code 0.
    #[track_caller]
    pub fn succeeds(self) -> ProgramRun {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        self
    }

    /// Asserts the exit code and a part of the message of a failed run.
    #[track_caller]
    pub fn fails(&self, code: i32, message: &str) {
        assert_eq!(self.code, Some(code), "{}\n{}", self.out, self.err);
        assert!(
            self.err.contains(message),
            "expected {message:?} in:\n{}",
            self.err
        );
        assert!(!self.err.contains("panicked"), "{}", self.err);
    }

    /// Asserts a part of the standard output.
    #[track_caller]
    pub fn says(&self, text: &str) -> &ProgramRun {
        assert!(self.out.contains(text), "no {text:?} in:\n{}", self.out);
        self
    }

    /// Asserts the whole standard output.
    #[track_caller]
    pub fn prints(&self, text: &str) {
        assert_eq!(self.out, text);
    }

    /// Asserts a part of the log.
    #[track_caller]
    pub fn logs(&self, text: &str) -> &ProgramRun {
        assert!(self.err.contains(text), "no {text:?} in:\n{}", self.err);
        self
    }

    /// The standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).expect("JSON")
    }
}

/// A text of a pipeline.
pub trait Swap {
    /// The text with `new` in place of every `old`. Panics if there is none.
    fn swap(&self, old: &str, new: &str) -> String;
}

impl Swap for str {
    #[track_caller]
    fn swap(&self, old: &str, new: &str) -> String {
        assert!(self.contains(old), "no {old:?} in:\n{self}");
        self.replace(old, new)
    }
}

/// The names of what a folder holds. None if there is no folder.
pub fn names_in(folder: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let names = entries.map(|entry| entry.expect("an entry").file_name().into_string());
    names.map(|name| name.expect("a name")).collect()
}

/// The words of a line.
pub fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// The rows of a table of cases, whose cells ` | ` separates. In a cell, `\n`, `\t`, `\s` and `\\`
/// are a line break, a tab, a blank at its end or start, and a backslash.
#[track_caller]
pub fn cases<const N: usize>(table: &str) -> Vec<[String; N]> {
    const ESCAPES: [(&str, &str); 5] = [
        ("\\\\", "\0"),
        ("\\n", "\n"),
        ("\\t", "\t"),
        ("\\s", " "),
        ("\0", "\\"),
    ];
    let cell = |cell: &str| {
        let replace = |cell: String, (from, to): &(&str, &str)| cell.replace(from, to);
        ESCAPES.iter().fold(cell.trim().to_string(), replace)
    };
    let row = |row: &str| -> [String; N] {
        let row = format!(" {} ", row.trim());
        let cells: Vec<String> = row.split(" | ").map(cell).collect();
        cells.try_into().expect("a row with all cells")
    };
    table.trim().lines().map(row).collect()
}

impl Lake {
    pub fn new() -> Lake {
        Lake {
            folder: tempfile::tempdir().expect("a temporary folder"),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a table of columns as a Parquet file.
    pub fn table(&self, name: &str, columns: Vec<(&str, ArrayRef)>) -> &Lake {
        let batch = RecordBatch::try_from_iter_with_nullable(
            columns.into_iter().map(|(n, c)| (n, c, true)),
        )
        .expect("columns of one length");
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder for the table");
        let mut writer =
            ArrowWriter::try_new(File::create(path).expect("a file"), batch.schema(), None)
                .expect("a writer");
        writer.write(&batch).expect("rows are written");
        writer.close().expect("the file is closed");
        self
    }

    /// Writes a table of integers as a Parquet file.
    pub fn integers<const N: usize>(
        &self,
        name: &str,
        columns: [&str; N],
        rows: impl IntoIterator<Item = [i64; N]>,
    ) -> &Lake {
        self.table(name, integer_columns(columns, rows))
    }

    pub fn file(&self, name: &str, text: &str) -> &Lake {
        std::fs::write(self.path(name), text).expect("a file is written");
        self
    }

    /// The program with this folder as its working directory.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gyre"));
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_remove("OUT")
            // Help must not depend on the width of the terminal that runs the tests.
            .stdin(Stdio::null());
        command
    }

    pub fn gyre(&self, arguments: &[&str]) -> ProgramRun {
        ProgramRun::of(
            self.command(arguments)
                .output()
                .expect("the program starts"),
        )
    }

    /// Calls the program with the words of a line.
    pub fn line(&self, line: &str) -> ProgramRun {
        self.gyre(&words(line))
    }

    /// Calls a command with `p.toml` and assignments to its keys.
    pub fn call(&self, command: &str, sets: &[&str]) -> ProgramRun {
        self.call_on("p.toml", command, sets)
    }

    /// As `call`, with another pipeline.
    pub fn call_on(&self, file: &str, command: &str, sets: &[&str]) -> ProgramRun {
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        let arguments = [command, file].into_iter().chain(sets);
        self.gyre(&arguments.collect::<Vec<_>>())
    }

    /// Runs `p.toml` with assignments to its keys.
    pub fn run(&self, sets: &[&str]) -> ProgramRun {
        self.call("run", sets)
    }

    /// As `run`. Asserts that the run succeeds.
    #[track_caller]
    pub fn runs(&self, sets: &[&str]) -> ProgramRun {
        self.run(sets).succeeds()
    }

    /// Writes `p.toml` and asserts that it runs.
    #[track_caller]
    pub fn runs_text(&self, text: &str) -> ProgramRun {
        self.file("p.toml", text).runs(&[])
    }

    /// Assigns the rows of `p.toml` to the model in `out`. The result is in `new`.
    pub fn assign(&self, sets: &[&str]) -> ProgramRun {
        let fixed = ["assign", "p.toml", "--model", "out", "--output", "new"];
        let sets = sets.iter().flat_map(|set| ["--set", *set]);
        self.gyre(&fixed.into_iter().chain(sets).collect::<Vec<_>>())
    }

    /// What `gyre compare` says as JSON.
    #[track_caller]
    pub fn compare(&self, arguments: &[&str]) -> Value {
        let ran = self.gyre(&[&["compare"][..], arguments, &["--json"]].concat());
        ran.succeeds().json()
    }

    /// Runs a script of Python in this folder.
    #[track_caller]
    pub fn script(&self, python: &str, script: &str, arguments: &[&str]) -> ProgramRun {
        let mut command = Command::new(python);
        command.args(["-c", script]).args(arguments);
        command.env("OPENBLAS_NUM_THREADS", "1");
        let ran = command.current_dir(self.folder.path()).output();
        ProgramRun::of(ran.expect("Python starts")).succeeds()
    }

    /// Runs a pipeline of the repository with assignments. Its output is in `out`.
    pub fn run_of_repository(&self, name: &str, sets: &[&str]) -> ProgramRun {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gyre"));
        command
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .args(["run", &format!("pipelines/{name}.toml")])
            .args(sets.iter().flat_map(|set| ["--set", *set]))
            .env("OUT", self.path("out"));
        ProgramRun::of(command.output().expect("the program starts"))
    }

    #[track_caller]
    pub fn bytes(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    #[track_caller]
    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.bytes(name)).expect("UTF-8")
    }

    #[track_caller]
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&self.bytes(name)).expect("JSON")
    }

    /// As `names_in`, of a folder of the lake.
    pub fn names(&self, folder: &str) -> BTreeSet<String> {
        names_in(&self.path(folder))
    }

    /// The records of all runs into an output, the oldest first.
    pub fn records_of(&self, output: &str) -> Vec<Value> {
        let names = self.names(&format!("{output}/runs")).into_iter();
        let records = names.map(|name| self.json(&format!("{output}/runs/{name}")));
        records.collect()
    }

    pub fn records(&self) -> Vec<Value> {
        self.records_of("out")
    }

    /// The record of the last run into `out`, which may have failed.
    pub fn last_record(&self) -> Value {
        self.records().pop().expect("a record")
    }

    /// The record of the run that made the current result of `out`.
    pub fn record(&self) -> Value {
        let current = self.json("out/current.json");
        let run = current["run"].as_str().expect("a run");
        self.json(&format!("out/runs/{run}.json"))
    }

    /// The bytes of each table of an output.
    pub fn tables_of(&self, output: &str) -> BTreeMap<String, Vec<u8>> {
        assert!(self.path(output).is_dir(), "no output {output}");
        let names = self.names(output).into_iter();
        let tables = names.filter_map(|name| {
            let table = self.path(&format!("{output}/{name}/part-0.parquet"));
            Some((name, std::fs::read(table).ok()?))
        });
        tables.collect()
    }

    /// Reads one table of the output `out`.
    pub fn read(&self, table: &str) -> Rows {
        self.read_at(&format!("out/{table}"))
    }

    /// Reads the table in a folder.
    pub fn read_at(&self, folder: &str) -> Rows {
        Rows::open(&self.path(&format!("{folder}/part-0.parquet")))
    }

    /// Reads every table of the output as bytes. `counts` may be left out.
    pub fn tables(&self) -> Vec<(String, Vec<u8>)> {
        let path = |t: &str| self.path(&format!("out/{t}/part-0.parquet"));
        let tables = TABLES.into_iter();
        let tables = tables.filter(|t| *t != "counts" || path(t).exists());
        tables
            .map(|t| (t.to_string(), std::fs::read(path(t)).expect("a table")))
            .collect()
    }
}

pub const TABLES: [&str; 11] = [
    "certificates",
    "changes",
    "coarse",
    "counts",
    "fits",
    "latent",
    "restarts",
    "sets",
    "sources",
    "spectrum",
    "targets",
];

/// The columns of rows of integers.
pub fn integer_columns<const N: usize>(
    names: [&str; N],
    rows: impl IntoIterator<Item = [i64; N]>,
) -> Vec<(&str, ArrayRef)> {
    let rows: Vec<[i64; N]> = rows.into_iter().collect();
    let column = |at: usize| Int64Array::from_iter_values(rows.iter().map(|row| row[at]));
    let columns = names.into_iter().enumerate();
    let columns = columns.map(|(at, name)| (name, Arc::new(column(at)) as ArrayRef));
    columns.collect()
}

pub fn integers_or_null(values: impl Iterator<Item = Option<i64>>) -> ArrayRef {
    Arc::new(values.collect::<Int64Array>())
}

pub fn floats(values: impl IntoIterator<Item = impl Into<Option<f64>>>) -> ArrayRef {
    Arc::new(values.into_iter().map(Into::into).collect::<Float64Array>())
}

pub fn texts_or_null(values: impl Iterator<Item = Option<impl AsRef<str>>>) -> ArrayRef {
    Arc::new(values.collect::<StringArray>())
}

pub fn texts(values: impl IntoIterator<Item = impl AsRef<str>>) -> ArrayRef {
    Arc::new(values.into_iter().map(Some).collect::<StringArray>())
}

/// The rows of a query.
pub async fn collect(context: &SessionContext, sql: &str) -> Rows {
    let frame = context.sql(sql).await.expect("a query");
    let batches = frame.collect().await.expect("rows");
    Rows(concat_batches(&batches[0].schema(), &batches).expect("one schema"))
}

/// Reads a log until a line contains a text.
#[track_caller]
pub fn wait_for(log: &mut impl BufRead, text: &str) {
    let mut all = String::new();
    while !all.lines().last().is_some_and(|line| line.contains(text)) {
        let read = log.read_line(&mut all).expect("a line");
        assert_ne!(read, 0, "never {text:?} in\n{all}");
    }
}

/// The files below a folder. Links are left out.
pub fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let paths = paths.filter(|path| !path.is_symlink());
    let files = paths.flat_map(|path| {
        if path.is_dir() {
            files_below(&path)
        } else {
            vec![path]
        }
    });
    files.filter(|path| path.is_file()).collect()
}

/// All rows of a table.
pub struct Rows(pub RecordBatch);

impl Rows {
    pub fn open(path: &Path) -> Rows {
        let file = File::open(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let reader = ParquetRecordBatchReaderBuilder::try_new(file)
            .expect("a Parquet file")
            .build()
            .expect("a reader");
        let schema = arrow::record_batch::RecordBatchReader::schema(&reader);
        let batches: Vec<RecordBatch> = reader.collect::<Result<_, _>>().expect("rows");
        Rows(concat_batches(&schema, &batches).expect("one schema"))
    }

    pub fn len(&self) -> usize {
        self.0.num_rows()
    }

    pub fn column(&self, name: &str) -> &ArrayRef {
        self.0
            .column_by_name(name)
            .unwrap_or_else(|| panic!("no column {name} in {:?}", self.0.schema()))
    }

    pub fn texts(&self, name: &str) -> Vec<String> {
        let column = cast(self.column(name), &DataType::Utf8).expect("text");
        column
            .as_string::<i32>()
            .iter()
            .map(|v| v.unwrap_or("null").to_string())
            .collect()
    }

    pub fn integers(&self, name: &str) -> Vec<i64> {
        let column = cast(self.column(name), &DataType::Int64).expect("integers");
        assert_eq!(column.null_count(), 0, "{name} has nulls");
        column.as_primitive::<Int64Type>().values().to_vec()
    }

    pub fn lists(&self, name: &str) -> Vec<Vec<f64>> {
        let column = self.column(name);
        let row = |list: Option<ArrayRef>| {
            let list = list.unwrap_or_else(|| panic!("{name} has nulls"));
            let list = cast(&list, &DataType::Float64).expect("numbers");
            list.as_primitive::<Float64Type>().values().to_vec()
        };
        match column.data_type() {
            DataType::List(_) => column.as_list::<i32>().iter().map(row).collect(),
            _ => column.as_fixed_size_list().iter().map(row).collect(),
        }
    }

    pub fn floats(&self, name: &str) -> Vec<f64> {
        let column = cast(self.column(name), &DataType::Float64).expect("floats");
        column.as_primitive::<Float64Type>().values().to_vec()
    }
}
