//! The table `rows`: every row of the input with the sets of its states.

use crate::cli::{integers, small_lake};
use crate::inside::{InProcess, Schedule, assert_equal_results, run_split};
use crate::lake::{Lake, Rows, Swap, cases, floats, texts_or_null, wait_for, words};
use arrow::array::{Array, ArrayRef, AsArray, Float32Array};
use arrow::datatypes::{DataType, Float64Type};
use gyre::run::workers::SPLIT;
use std::collections::HashMap;
use std::io::BufReader;
use std::process::Stdio;
use std::sync::Arc;

const BINS: &str = r#"
job = { name = "bins", output = "out" }
tables.points.path = "points/"
[transitions]
sql = "SELECT * FROM points"
partition_by = "sea"
trajectory = "id"
time = "t"
lag = [1, 3]
weight = "w"

[transitions.bins]
x = { bounds = [1, 3], step = 0.1 }
y = { step = 0.7, origin = 0.05 }

[output]
rows = ["note", "sea", "t", "x"]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2

[[fit]]
name = "soft"
method = "gpcca"
rank = 2
"#;

/// A row: sea, trajectory, time, x, y.
type Point = (Option<&'static str>, i64, i64, Option<f64>, f64);

/// Points that drift on a ring of boxes, and rows without a state or a partition.
fn points() -> Vec<Point> {
    let mut points = Vec::new();
    for id in 0..12 {
        let sea = ["east", "west"][id as usize % 2];
        for t in 0..150 {
            let k = (id * 31 + t * 7 + t * t / 11) % 20;
            let x = match (id + t) % 37 {
                5 => None,
                6 => Some(f64::NAN),
                7 => Some(3.0),
                8 => Some(7.5),
                _ => Some(1.05 + 0.1 * (k % 5) as f64 + f64::from(k > 9)),
            };
            let sea = (t != 149).then_some(sea);
            points.push((sea, id, t, x, (k % 2) as f64 * 0.7 + 0.1));
        }
    }
    points
}

/// Writes the points to files of different sizes.
fn write_points(lake: &Lake, points: &[Point]) {
    let mut first = 0;
    for (at, n) in [700, 1, points.len()].into_iter().enumerate() {
        let end = points.len().min(first + n);
        let part = &points[first..end];
        let notes = (first..end).map(|k| Some(format!("row {k}")));
        let weights = part.iter().map(|p| 0.5 + (p.2 % 3) as f64);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("sea", texts_or_null(part.iter().map(|p| p.0))),
            ("id", integers(part.iter().map(|p| p.1))),
            ("t", integers(part.iter().map(|p| p.2))),
            ("x", floats(part.iter().map(|p| p.3))),
            ("y", floats(part.iter().map(|p| p.4))),
            ("w", floats(weights)),
            ("note", texts_or_null(notes)),
        ];
        lake.table(&format!("points/{at}.parquet"), columns);
        first = end;
    }
}

fn bytes(lake: &Lake) -> Vec<u8> {
    lake.bytes("out/rows/part-0.parquet")
}

/// A column as text, with lists.
fn shown(rows: &Rows, name: &str) -> Vec<String> {
    let column = rows.column(name);
    let show = |at| arrow::util::display::array_value_to_string(column, at).expect("text");
    (0..column.len()).map(show).collect()
}

#[test]
fn every_row_has_the_sets_of_its_box_at_every_lag() {
    let (lake, points) = (Lake::new(), points());
    write_points(&lake, &points);
    lake.runs_text(BINS).says("rows, ");
    let (rows, sources) = (lake.read("rows"), lake.read("sources"));

    let schema = rows.0.schema();
    let names: Vec<&str> = schema.fields().iter().map(|f| f.name().as_str()).collect();
    let expected = "sea lag note t x dbmr_affiliation dbmr_embedding \
                    soft_affiliation soft_embedding soft_membership";
    assert_eq!(names, words(expected));
    let of_fits = &names[5..];
    for name in of_fits {
        let in_sources = sources.column(name).data_type();
        assert_eq!(rows.column(name).data_type(), in_sources, "{name}");
    }

    // Each row, in the order of the files, at lag 1 and at lag 3.
    assert_eq!(rows.len(), 2 * points.len());
    let notes = (0..points.len()).flat_map(|k| [format!("row {k}"), format!("row {k}")]);
    assert_eq!(rows.texts("note"), notes.collect::<Vec<_>>());
    assert_eq!(rows.integers("lag"), [1, 3].repeat(points.len()));

    // The index of a box joins rows to sources.
    let keys = (shown(&sources, "sea"), sources.integers("lag"));
    let boxes = (sources.integers("x_index"), sources.integers("y_index"));
    let mut by_state = HashMap::new();
    for at in 0..sources.len() {
        let key = (keys.0[at].clone(), keys.1[at], boxes.0[at], boxes.1[at]);
        assert_eq!(by_state.insert(key, at), None);
    }
    let both = |name: &&str| (shown(&rows, name), shown(&sources, name));
    let columns: Vec<_> = of_fits.iter().map(both).collect();
    let (mut with_set, mut without) = (0, 0);
    for (k, &(sea, _, _, x, y)) in points.iter().enumerate() {
        for (l, lag) in [1, 3].into_iter().enumerate() {
            let state = x.filter(|x| (1.0..=3.0).contains(x)).zip(sea);
            let found = state.and_then(|(x, sea)| {
                let box_x = (((x - 1.0) * 20.0 / 2.0) as i64).min(19);
                let box_y = ((y - 0.05) / 0.7).floor() as i64;
                by_state.get(&(sea.to_string(), lag, box_x, box_y))
            });
            for (of_rows, of_sources) in &columns {
                let expected = found.map_or("", |&at| of_sources[at].as_str());
                assert_eq!(of_rows[2 * k + l], expected, "row {k} at lag {lag}");
            }
            with_set += usize::from(found.is_some());
            without += usize::from(found.is_none());
        }
    }
    assert!(with_set > 2000 && without > 200, "{with_set} {without}");

    let before = bytes(&lake);
    for threads in ["1", "2", "5"] {
        let arguments = ["run", "p.toml", "--force", "--threads", threads];
        lake.gyre(&arguments).succeeds();
        assert!(bytes(&lake) == before, "{threads} threads");
    }
    // The record and the pointer list the table.
    let pointer = lake.json("out/current.json");
    assert_eq!(pointer["tables"]["rows"], 2 * points.len());
    // A new list of columns is a new plan, and no list means no table.
    let fewer = ["output.rows=[\"t\"]"];
    lake.runs(&fewer);
    assert_eq!(lake.read("rows").0.num_columns(), 8);
    lake.runs(&["output.rows=[]"]);
    assert!(!lake.path("out/rows").exists());
}

#[test]
fn boxes_have_numbers_and_borders_without_rounding_noise() {
    let lake = Lake::new();
    write_points(&lake, &points());
    lake.file("p.toml", BINS);
    lake.runs(&["output.rows=[]"]);
    for table in ["sources", "targets"] {
        let table = lake.read(table);
        let x = (table.integers("x_index"), table.floats("x"));
        let borders = (table.floats("x_low"), table.floats("x_high"));
        for at in 0..table.len() {
            let tenths = |n: i64| n as f64 / 10.0;
            let index = x.0[at];
            assert_eq!(borders.0[at], tenths(10 + index));
            assert_eq!(borders.1[at], tenths(11 + index));
            assert_eq!(x.1[at], (105 + 10 * index) as f64 / 100.0);
        }
        let y = (table.integers("y_index"), table.floats("y"));
        for (&index, &y) in y.0.iter().zip(&y.1) {
            assert_eq!(y, [0.4, 1.1][index as usize]);
        }
    }
}

/// Numbers −10.0, −9.9 … 9.9 are each on the lower border of a box, whatever their file holds them
/// in.
#[test]
fn decimals_on_borders_are_alone_in_their_boxes() {
    let values: Vec<f64> = (-100..100).map(|k| f64::from(k) / 10.0).collect();
    let n = values.len() as i64;
    let keys = || vec![("id", integers((0..n).map(|_| 0))), ("t", integers(0..n))];
    let with = |y: ArrayRef| [keys(), vec![("y", y)]].concat();
    let double = floats(values.clone());
    let single = Float32Array::from_iter_values(values.iter().map(|&y| y as f32));
    let lines = |line: fn(usize, f64) -> String| {
        let lines = values.iter().enumerate();
        lines.map(|(t, &y)| line(t, y)).collect::<String>()
    };
    let pipeline = |file: &str, rows: &str| {
        format!(
            "[job]\nname = \"b\"\noutput = \"out\"\n[tables.t]\npath = \"{file}\"\n{rows}\n\
             trajectory = \"id\"\ntime = \"t\"\n"
        )
    };
    for (file, is_single) in [
        ("double.parquet", false),
        ("single.parquet", true),
        ("t.csv", false),
        ("t.ndjson", false),
    ] {
        let lake = Lake::new();
        lake.table("double.parquet", with(double.clone()));
        lake.table("single.parquet", with(Arc::new(single.clone())));
        let csv = lines(|t, y| format!("0,{t},{y}\n"));
        lake.file("t.csv", &("id,t,y\n".to_string() + &csv));
        let json = lines(|t, y| format!("{{\"id\": 0, \"t\": {t}, \"y\": {y}}}\n"));
        lake.file("t.ndjson", &json);
        let counted = "[transitions]\nsql = \"SELECT * FROM t\"\nlag = 1\n\
                       bins.y = { bounds = [-10, 10], step = 0.1 }";
        let fit = "[[fit]]\nname = \"d\"\nmethod = \"dbmr\"\nrank = 1\n[output]\nrows = [\"y\"]\n";
        lake.runs_text(&(pipeline(file, counted) + fit));
        let sources = lake.read("sources");
        let expected: Vec<i64> = (0..n - 1).collect();
        assert_eq!(sources.integers("y_index"), expected, "{file}");
        let borders = (sources.floats("y_low"), sources.floats("y_high"));
        for (&y, (&low, &high)) in values.iter().zip(borders.0.iter().zip(&borders.1)) {
            let is_inside = if is_single {
                let (y, low, high) = (y as f32, low as f32, high as f32);
                low <= y && y < high
            } else {
                low <= y && y < high
            };
            assert!(is_inside, "{file}: {y} is not in [{low}, {high})");
        }
        // The last row starts no transition.
        let rows = lake.read("rows");
        assert_eq!(rows.column("d_affiliation").null_count(), 1, "{file}");

        let symbols = "[sequences]\nsql = \"SELECT * FROM t\"\nbins.y = { step = 0.1 }";
        let fit = "[[fit]]\nname = \"h\"\nmethod = \"spectral_hmm\"\nrank = 1\n";
        let words = pipeline(file, symbols).replace("\"out\"", "\"words\"") + fit;
        lake.file("words.toml", &words);
        lake.line("run words.toml").succeeds();
        let symbols = lake.read_at("words/symbols").integers("y_index");
        assert_eq!(symbols, (-100..100).collect::<Vec<i64>>(), "{file}");
    }
}

/// A join has its rows in an order that depends on threads, so the table is sorted.
#[test]
fn rows_of_a_join_are_ordered_by_their_columns() {
    let lake = small_lake();
    let names = (0..6).map(|k| Some(format!("state {k}")));
    let columns: Vec<(&str, ArrayRef)> =
        vec![("state", integers(0..6)), ("name", texts_or_null(names))];
    lake.table("names.parquet", columns);
    let join = "transitions.sql=SELECT r.*, name FROM rows AS r JOIN names USING (state)";
    let set = |more: &[&str]| {
        let names = "run p.toml --set tables.names.path=names.parquet --set";
        let fixed = ["output.rows=[\"t\", \"name\", \"id\"]", "--set", join];
        let fixed = [words(names), fixed.to_vec()].concat();
        lake.gyre(&[&fixed[..], more].concat()).succeeds()
    };
    set(&[]);
    let rows = lake.read("rows");
    assert_eq!(rows.len(), 600);
    let keys = rows.integers("t").into_iter().zip(rows.texts("name"));
    let keys: Vec<_> = keys.zip(rows.integers("id")).collect();
    assert!(keys.is_sorted());
    let before = bytes(&lake);
    for threads in ["1", "4"] {
        set(&["--force", "--threads", threads]);
        assert!(bytes(&lake) == before, "{threads} threads");
    }
}

const PAIRS: &str = r#"
job = { name = "pairs", output = "out" }
tables.flights.path = "flights.parquet"
[transitions]
sql = "SELECT *, n * 2 AS twice FROM flights"
source = "a"
target = "b"
count = "n"
connected = true

[output]
rows = ["a", "b", "twice"]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2

[[check]]
name = "all"
sql = "SELECT * FROM (SELECT count(*) AS n FROM rows) WHERE n <> 62"
"#;

#[test]
fn pairs_have_the_sets_of_their_source_and_their_target() {
    let lake = Lake::new();
    // Two rings of five states with a bridge, a state that is never left, and a null.
    let mut pairs: Vec<(Option<i64>, i64)> = Vec::new();
    for k in 0..60 {
        let ring = 5 * (k / 30);
        pairs.push((Some(ring + k % 5), ring + (k * k + 1) % 5));
    }
    pairs.extend([(Some(0), 99), (None, 1)]);
    for bridge in [(0, 7), (7, 0)] {
        pairs[bridge.0 as usize] = (Some(bridge.0), bridge.1);
    }
    let text = |k: i64| format!("s{k:02}");
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("a", texts_or_null(pairs.iter().map(|p| p.0.map(text)))),
        ("b", texts_or_null(pairs.iter().map(|p| Some(text(p.1))))),
        ("n", integers((0..pairs.len() as i64).map(|k| 1 + k % 3))),
    ];
    lake.table("flights.parquet", columns);
    lake.runs_text(PAIRS);
    let rows = lake.read("rows");
    assert_eq!(rows.len(), pairs.len());
    assert_eq!(rows.integers("twice")[..3], [2, 4, 6]);
    let mut sides = 0;
    for (side, table, key) in [("source", "sources", "a"), ("target", "targets", "b")] {
        let states = lake.read(table);
        for what in ["affiliation", "embedding"] {
            let values = shown(&states, &format!("dbmr_{what}"));
            let of_state: HashMap<String, String> =
                states.texts(key).into_iter().zip(values).collect();
            let expected = rows.texts(key);
            let expected = expected.iter().map(|state| of_state.get(state));
            let expected: Vec<&str> = expected.map(|v| v.map_or("", String::as_str)).collect();
            assert_eq!(shown(&rows, &format!("dbmr_{side}_{what}")), expected);
            sides += usize::from(expected.contains(&""));
        }
    }
    assert_eq!(sides, 4, "both sides have a row without a set");
}

#[test]
fn a_column_that_the_sql_does_not_give_is_an_error() {
    let lake = small_lake();
    let table = r#"
        ["id", "depth"] | `output.rows` names the column `depth`, which the SQL does not give; it gives `id`, `t`, `state`
        ["stat"] | did you mean `state`? it gives `id`, `t`, `state`
        ["id", "id"] | the table `rows` would have two columns `id`
    "#;
    for [rows, message] in cases(table) {
        for command in ["check", "run"] {
            let set = format!("output.rows={rows}");
            lake.gyre(&[command, "p.toml", "--set", &set])
                .fails(2, &message);
        }
    }
    assert!(!lake.path("out").exists());
    let wrong = ["check", "p.toml", "--set", "output.row=[\"id\"]"];
    lake.gyre(&wrong).fails(2, "output.row");
}

#[test]
fn a_plan_says_what_the_second_pass_writes() {
    let lake = small_lake();
    let rows = "output.rows=[\"id\", \"t\"]";
    let plan = lake.call("plan", &[rows]).succeeds();
    let line = "rows   a second pass over the input writes id, t and the sets of each row\n";
    plan.says(line);
    let explained = lake.call("explain", &[rows]);
    let end = "Rows\na second pass over the input writes id, t and the sets of each row\n";
    assert!(explained.succeeds().out.ends_with(end));
    let json = lake.gyre(&["plan", "p.toml", "--json", "--set", rows]);
    let json = json.succeeds().json();
    assert_eq!(json["rows"][1]["name"], "t");
    let tables = json["write"]["tables"].as_array().expect("a list");
    assert!(tables.contains(&"rows".into()));
}

/// The process is killed while it writes the rows. Without a pointer there is no table.
#[test]
fn a_killed_run_leaves_no_table() {
    let lake = Lake::new();
    let n = 2_000_000;
    let rows = (0..n).map(|k| [k / 1000, k % 1000, (k * k + k / 7) % 6]);
    lake.integers("rows.parquet", ["id", "t", "state"], rows);
    lake.file("p.toml", KILLED);
    let mut command = lake.command(&words("run p.toml --log-format json"));
    let command = command.stdout(Stdio::null()).stderr(Stdio::piped());
    let mut process = command.spawn().expect("the program starts");
    let mut log = BufReader::new(process.stderr.take().expect("a log"));
    wait_for(&mut log, "\"stage\":\"write\"");
    process.kill().expect("the process is killed");
    process.wait().expect("the process ends");
    assert!(!lake.path("out/current.json").exists());
    assert!(!lake.path("out/rows").exists());
    lake.line("run p.toml --memory 250MB --threads 2")
        .succeeds();
    let rows = lake.read("rows");
    assert_eq!(rows.len(), n as usize);
    assert_eq!(rows.column("dbmr_affiliation").null_count(), 0);
    assert_eq!(rows.column("x").data_type(), &DataType::Float64);
    let x = rows.column("x").as_primitive::<Float64Type>();
    assert_eq!(x.value(3), 1.5);
}

/// Tasks count and fit, also pass by pass; the process of the run writes the rows.
#[tokio::test(flavor = "multi_thread")]
async fn the_rows_of_a_run_in_tasks_are_those_of_one_process() {
    let lake = small_lake();
    let text = KILLED
        .swap("\"out\"", "\"FOLDER/out\"")
        .swap("\"rows.parquet\"", "\"FOLDER/rows.parquet\"");
    let expected = run_split(&lake, &text, None, SPLIT).await.expect("a run");
    assert_eq!(expected.record["tables"]["rows"], 600);
    for split in [SPLIT, 1] {
        let nodes = InProcess::new(Schedule::Shuffled(3));
        let found = run_split(&lake, &text, Some(nodes), split).await;
        assert_equal_results(&expected, &found.expect("a run"), &split);
    }
}

const KILLED: &str = r#"
job = { name = "killed", output = "out" }
tables.rows.path = "rows.parquet"
[transitions]
sql = "SELECT *, t / 2.0 AS x FROM rows"
trajectory = "id"
time = "t"
state = "state"
lag = 1

[output]
rows = ["id", "t", "x"]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"#;
