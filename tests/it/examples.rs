//! Every example that the pages print runs: pipelines on small tables with the columns that they
//! name, commands up to their files, Python scripts, and queries of results in DuckDB.

use crate::lake::{Lake, ProgramRun, words};
use crate::needs;
use crate::pages::{PAGES, block, blocks, particles, prose, routes};
use std::f64::consts::TAU;
use std::process::Command;

/// Number k of a sequence of numbers from 0 to 1 that look random.
fn random(k: usize) -> f64 {
    let mut h = (k as u32 + 1).wrapping_mul(2_654_435_761);
    h = (h ^ (h >> 15)).wrapping_mul(2_246_822_519);
    h = (h ^ (h >> 13)).wrapping_mul(3_266_489_917);
    f64::from(h ^ (h >> 16)) / 4_294_967_296.0
}

/// A random number below n.
fn below(n: usize, k: usize) -> usize {
    (n as f64 * random(k)) as usize
}

/// A place from 0 to 1 that stays in one half for 29 rows.
fn place(k: usize) -> f64 {
    (below(2, k / 29 * 31) as f64 + random(k)) / 2.0
}

fn split(k: usize, fitted: usize) -> &'static str {
    if k < fitted { "train" } else { "test" }
}

/// Writes a CSV file.
fn table(lake: &Lake, name: &str, header: &str, n: usize, row: impl Fn(usize) -> String) {
    let rows: Vec<String> = (0..n).map(row).collect();
    let path = lake.path(name);
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    lake.file(name, &format!("{header}\n{}\n", rows.join("\n")));
}

/// Writes the tables of trajectories, pairs and points that the examples read.
fn write_tables(lake: &Lake) {
    table(lake, "pairs.csv", "a,b,c", 1200, |k| {
        let near = k % 8 / 4 * 4 + below(4, k);
        let to = if k % 10 == 0 { below(8, k) } else { near };
        format!("{},{to},{}", k % 8, ["AA", "UA"][k / 600])
    });
    // Two angles, each of which is near one of two values.
    table(lake, "frames.csv", "simulation,frame,phi,psi", 8000, |k| {
        let near = |half: usize, at: usize| 180.0 * half as f64 - 90.0 + 20.0 * random(at);
        let phi = near(below(2, k / 97), k + 5);
        let psi = near(below(2, k / 151 + 999), k + 77_777);
        format!("{},{},{phi},{psi}", k / 2000, k % 2000)
    });
    lake.file("points.csv", &particles());
    lake.file("routes.dat", &routes());
    for run in 1..3 {
        table(lake, &format!("runs/{run}.csv"), "frame,x,y", 300, |k| {
            format!("{k},{},{}", 2.0 * place(k), random(k + run))
        });
    }
    table(lake, "casts/1.csv", "a,b,temp", 300, |k| {
        let temp = if k % 9 == 0 { "-9999" } else { "1.5" };
        format!("{},{},{temp}", k % 6, below(6, k))
    });
    table(lake, "stations.csv", "station;n;x;t", 300, |k| {
        let (n, day) = (below(6, k), 1 + k % 28);
        format!("s{};{n};{},5;{day:02}.01.2026 10:00", k % 6, k % 5)
    });
    let header = "basin,drifter,time,lon,lat,w";
    table(lake, "lake/tracks/a.csv", header, 1600, |k| {
        let (month, day) = (1 + k % 200 / 28, 1 + k % 200 % 28);
        let lon = -180.0 + 2.0 * (180.0 * place(k)).floor() / 100.0;
        let (basin, drifter) = (["N", "S"][k / 400 % 2], k / 200);
        let (lat, w) = (place(k + 5), 1 + k % 3);
        format!("{basin},{drifter},2026-{month:02}-{day:02}T00:00:00,{lon},{lat},{w}")
    });
    table(lake, "tracks.csv", "id,time,x,y,well", 2000, |k| {
        let (x, y) = (2.0 * place(k), random(k + 3));
        format!("{},{},{x},{y},{}", k / 200, k % 200, k / 29 % 2)
    });
    table(lake, "shapes.csv", "id,x,y,z", 400, |k| {
        let (z, angle) = (2.0 * random(k) - 1.0, TAU * random(k + 1));
        let r = (1.0 - z * z).sqrt();
        format!("{k},{},{},{z}", r * angle.cos(), r * angle.sin())
    });
    table(lake, "visits.csv", "id,time,page", 1000, |k| {
        format!("{},{},p{}", k / 50, k % 50, below(9, k))
    });
}

/// Writes the tables of sequences that the examples read.
fn write_sequences(lake: &Lake) {
    let header = "flight,t,x,y,radar,beacon,split";
    table(lake, "flights.csv", header, 240, |k| {
        let (flight, t) = (k / 40, k % 40);
        let (x, y) = (t as f64 / 5.0 + flight as f64).sin_cos();
        let (radar, beacon) = (x + 0.1 * random(k), y + 0.1 * random(k + 7));
        let split = split(flight, 4);
        format!("{flight},2026-01-01T00:00:{t:02},{x},{y},{radar},{beacon},{split}")
    });
    let camera = (0..60).map(|k| {
        let (y, x) = (0.2 * k as f64).sin_cos();
        let image = format!("[{:?},{y:?},{:?}]", x + 0.1 * random(k), x * y);
        let split = split(k, 40);
        format!(r#"{{"t":{k},"x":{x:?},"y":{y:?},"image":{image},"split":"{split}"}}"#) + "\n"
    });
    lake.file("camera.json", &camera.collect::<String>());
    table(lake, "circle.csv", "x,y", 60, |k| {
        let (y, x) = (0.1 * k as f64).sin_cos();
        format!("{x},{y}")
    });
    let header = "id,disease,test_a,test_b,split";
    table(lake, "patients.csv", header, 200, |k| {
        let ill = k % 2;
        let a = random(k) < 0.2 + 0.6 * ill as f64;
        let b = random(k + 9) < 0.3 + 0.4 * ill as f64;
        format!(
            "{k},{ill},{},{},{}",
            u8::from(a),
            u8::from(b),
            split(k, 150)
        )
    });
    lake.file("prevalence.csv", "disease,weight\n0,0.9\n1,0.1\n");
    table(lake, "clicks.csv", "session,n,page", 2000, |k| {
        let page = if k % 3 > 0 { below(3, k) } else { k / 7 % 3 };
        format!("{},{},{}", k / 40, k % 40, ["walk", "shop", "clean"][page])
    });
    let shown = [("rain", [0.1, 0.4, 0.5]), ("sun", [0.6, 0.3, 0.1])];
    let rows = shown.iter().flat_map(|(state, shares)| {
        let pages = ["walk", "shop", "clean"].into_iter().zip(shares);
        pages.map(move |(page, share)| format!("{state},{page},{share}\n"))
    });
    let rows: String = rows.collect();
    lake.file("shown.csv", &format!("state,page,probability\n{rows}"));
}

/// The rows of an example that has none.
fn rows_of(page: &str, example: &str) -> &'static str {
    if page.ends_with("points.md") {
        "sql = \"SELECT * FROM tracks\"\ntrajectory = \"id\"\ntime = \"time\"\nlag = 1\ncoordinates = [\"x\"]"
    } else if ["markov.md", "ranks.md", "trust.md"]
        .iter()
        .any(|own| page.ends_with(own))
        || example.contains("rows = [")
    {
        "sql = \"SELECT id, t, floor(8 * x) AS box FROM points\"\ntrajectory = \"id\"\ntime = \"t\"\nlag = [1, 2]\nstate = \"box\""
    } else if example.contains("[tables.casts]") {
        "sql = \"SELECT a, b FROM casts\"\nsource = \"a\"\ntarget = \"b\""
    } else if example.contains("[tables.stations]") {
        "sql = \"SELECT station, n FROM stations\"\nsource = \"station\"\ntarget = \"n\""
    } else if example.contains("since = ") {
        "sql = \"SELECT drifter, time, basin FROM drifters WHERE time >= $since AND NOT array_has($ids, drifter)\"\ntrajectory = \"drifter\"\ntime = \"time\"\nlag = \"1d\"\nstate = \"basin\""
    } else {
        "sql = \"SELECT * FROM pairs\"\nsource = \"a\"\ntarget = \"b\"\npartition_by = \"c\""
    }
}

/// An example with the sections that it lacks. Its own text stays, except that files are CSV.
fn completed(lake: &Lake, page: &str, example: &str, at: usize) -> String {
    let mut text = example.replace(".parquet\"", ".csv\"");
    for folder in ["runs/", "casts/", "lake/tracks/"] {
        let path = format!("path = \"{folder}\"");
        text = text.replace(&path, &format!("format = \"csv\"\n{path}"));
    }
    if !text.contains("[job]") {
        text += &format!("\n[job]\nname = \"base\"\noutput = \"out/{at}\"\n");
    }
    let has_rows = ["[transitions]", "[points]", "[sequences]"];
    if !has_rows.iter().any(|section| text.contains(section)) {
        text += &format!("\n[transitions]\n{}\n", rows_of(page, example));
    }
    if !text.contains("[[fit]]") {
        let method = if text.contains("coordinates = ") {
            "state_embedding"
        } else {
            "svd"
        };
        text += &format!("\n[[fit]]\nname = \"extra\"\nmethod = \"{method}\"\nrank = 2\n");
    }
    if text.contains("FROM drifters") {
        text += "\n[tables.drifters]\npath = \"lake/tracks/\"\nformat = \"csv\"\n";
    }
    let queries = text.clone();
    for rest in queries.split("FROM ").skip(1) {
        let name = rest.split(|c: char| !c.is_alphanumeric()).next();
        let name = name.expect("a name");
        let mut files = ["csv", "json"]
            .map(|ending| format!("{name}.{ending}"))
            .into_iter();
        let file = files.find(|file| lake.path(file).exists());
        let header = format!("[tables.{name}]");
        if let Some(file) = file.filter(|_| !text.contains(&header)) {
            text += &format!("\n{header}\npath = \"{file}\"\n");
        }
    }
    text
}

/// Every pipeline and every part of one runs. Outputs in stores need servers: `clouds` runs these.
#[test]
fn every_pipeline_of_the_pages_runs() {
    let lake = Lake::new();
    write_tables(&lake);
    write_sequences(&lake);
    let examples = blocks("toml").into_iter().enumerate();
    let local = examples.filter(|(_, (_, example))| !example.contains("s3://"));
    let mut n = 0;
    for (at, (page, example)) in local {
        let text = completed(&lake, page, example, at);
        let ran = lake.file("p.toml", &text).line("run p.toml --force");
        assert_eq!(ran.code, Some(0), "{page}\n{text}\n{}", ran.err);
        n += 1;
    }
    assert!(n > 30, "{n} examples");
}

/// The words of a line of a shell, without comments and without what follows a pipe or `&&`.
fn shell_words(line: &str) -> Vec<String> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => all.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    let end = all
        .iter()
        .position(|word| word.starts_with('#') || ["|", "&&", ">", "&"].contains(&word.as_str()));
    all.truncate(end.unwrap_or(all.len()));
    all
}

/// The arguments of a line that runs gyre.
fn arguments(line: &str) -> Option<Vec<String>> {
    let mut words = shell_words(line);
    if words.first()? == "cargo" && words.get(1)? == "run" {
        let at = words.iter().position(|word| word == "--")?;
        return Some(words.split_off(at + 1));
    }
    (words.remove(0) == "gyre").then_some(words)
}

/// The program understands every command of a block and of a sentence, except for placeholders
/// such as FILE. `--help` comes last, so nothing is run.
#[test]
fn every_command_of_the_pages_is_understood() {
    let mut lines: Vec<(&str, String)> = Vec::new();
    for (page, text) in blocks("sh") {
        let text = text.replace("\\\n", " ");
        lines.extend(text.lines().map(|line| (page, line.to_string())));
    }
    for (page, text) in blocks("console") {
        let text = text.replace("\\\n", " ");
        let typed = text.lines().filter_map(|line| line.strip_prefix("$ "));
        lines.extend(typed.map(|line| (page, line.to_string())));
    }
    for page in PAGES {
        let text = prose(page);
        let quoted = text.split('`').skip(1).step_by(2);
        let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_uppercase());
        let is_placeholder = |word: &str| word.split(|c: char| !c.is_alphanumeric()).any(is_name);
        let is_whole = |line: &&str| {
            !line.contains(['…', '[', '<', '\n']) && !words(line).iter().any(|w| is_placeholder(w))
        };
        let whole = quoted
            .filter(|line| line.starts_with("gyre "))
            .filter(is_whole);
        lines.extend(whole.map(|line| (page.path, line.to_string())));
    }
    let has = |command: &str| match command {
        "report" | "inspect" => cfg!(feature = "report"),
        "scheduler" | "executor" => cfg!(feature = "cluster"),
        _ => true,
    };
    let lake = Lake::new();
    let mut n = 0;
    for (page, line) in lines {
        let Some(given) = arguments(&line) else {
            continue;
        };
        let mut given: Vec<&str> = given.iter().map(String::as_str).collect();
        let is_there = |option: &str, is_built: bool| is_built || !given.contains(&option);
        let has_options = is_there("--cluster", cfg!(feature = "cluster"))
            && is_there("--report", cfg!(feature = "report"));
        if has_options && given.first().copied().is_some_and(has) {
            given.push("--help");
            let ran = lake.gyre(&given);
            assert_eq!(ran.code, Some(0), "{page}: {line}\n{}", ran.err);
            n += 1;
        }
    }
    assert!(n > 60, "{n} commands");
}

/// The scripts of the guide to Python run in their order, on the first file of the guide.
#[test]
fn the_python_of_the_guide_runs() {
    let modules = ["duckdb", "matplotlib", "pandas", "polars", "pyarrow"];
    let Some(python) = needs::python(&modules) else {
        return;
    };
    let lake = Lake::new();
    lake.file("points.csv", &particles());
    lake.file("first.toml", block("toml", "[job]\nname = \"first\"\n"));
    let folder = assert_cmd::cargo::cargo_bin!("gyre").parent();
    let folder = folder.expect("a folder").to_path_buf();
    let others = std::env::var_os("PATH").unwrap_or_default();
    let folders = [folder].into_iter().chain(std::env::split_paths(&others));
    let path = std::env::join_paths(folders);
    let path = path.expect("a path");
    let scripts = blocks("python");
    assert!(scripts.len() > 5);
    for (page, script) in scripts {
        let mut command = Command::new(&python);
        command.args(["-c", script]).env("PATH", &path);
        command.env("OPENBLAS_NUM_THREADS", "1");
        let ran = command.current_dir(lake.path(".")).output();
        let ran = ProgramRun::of(ran.expect("Python starts"));
        assert_eq!(ran.code, Some(0), "{page}\n{script}\n{}", ran.err);
    }
    assert!(lake.path("sets.png").exists());
}

/// Examples of the repository on fewer rows, with the columns that their SQL gives.
const SMALL: [(&str, &str); 6] = [
    (
        "double_gyre",
        "transitions.sql=SELECT * FROM double_gyre(16, 8, 20)",
    ),
    (
        "kernel_toy",
        "sequences.sql=SELECT * FROM kernel_toy(60, 20)",
    ),
    (
        "sessions",
        "sequences.sql=SELECT trajectory AS session, time AS click, concat('/page/', symbol) AS page FROM hmm_world(6, 60, 100, 40, 0, 10)",
    ),
    ("low_rank_dummy", ""),
    (
        "convergence",
        "sequences.sql=WITH sizes AS (SELECT column1 AS n FROM (VALUES (20), (40))), training AS (SELECT trajectory / 40 AS world, trajectory % 40 AS id, state, observation FROM linear_gaussian(80, 1, 0, 2, 0.5)) SELECT world, n, id, state, observation, 'train' AS split FROM training JOIN sizes ON id < n UNION ALL SELECT world, n, trajectory + 40, exact_mean, observation, 'test' FROM linear_gaussian(10, 1, 0, 0.5, 0.5, 1) CROSS JOIN sizes CROSS JOIN (SELECT DISTINCT world FROM training)",
    ),
    (
        "camera",
        "sequences.sql=SELECT scene, trajectory, time, x, y, image, split FROM camera(0, 20, 10, 4) WHERE split <> 'circle'",
    ),
];

/// Every query of the pages that reads results gives rows.
#[test]
fn every_query_of_results_gives_rows() {
    let Some(python) = needs::python(&["duckdb"]) else {
        return;
    };
    let lake = Lake::new();
    for (name, sql) in SMALL {
        let small = "fit.kregbayes.supervision.sql=SELECT scene, x, y, image FROM camera(0, 1, 1, 4) WHERE split = 'circle'";
        let sets: &[&str] = match name {
            "low_rank_dummy" => &[],
            "camera" => &[sql, small],
            _ => &[sql],
        };
        lake.run_of_repository(name, sets).succeeds();
    }
    lake.file("points.csv", &particles());
    lake.file("routes.dat", &routes());
    lake.file("first.toml", block("toml", "[job]\nname = \"first\"\n"));
    lake.file(
        "airports.toml",
        block("toml", "[job]\nname = \"airports\"\n"),
    );
    lake.gyre(&["run", "first.toml", "--set", "output.rows=[\"id\",\"t\"]"])
        .succeeds();
    lake.line("run airports.toml").succeeds();
    let script = r#"
import duckdb, sys
duckdb.sql("""CREATE TABLE routes AS SELECT column2 AS source, column4 AS target
    FROM read_csv('routes.dat', header = false, names = ['column0', 'column1', 'column2', 'column3', 'column4', 'column5', 'column6', 'column7', 'column8'])""")
duckdb.sql("""CREATE TABLE airports AS SELECT DISTINCT source AS iata, 10.0 AS latitude, 20.0 AS longitude
    FROM 'out/airports/sources/*.parquet'""")
print(len(duckdb.sql(sys.argv[1]).fetchall()))
"#;
    let queries = blocks("sql").into_iter();
    let of_results = queries.filter(|(_, sql)| sql.contains("'out/"));
    let mut n = 0;
    for (page, sql) in of_results {
        // The guide to sequences has its own example of a known model, which has distances.
        let sql = sql.replace("out/sessions/distances", "out/low-rank-dummy/distances");
        let ran = lake.script(&python, script, &[&sql]);
        let rows: usize = ran.out.trim().parse().expect("a number");
        assert!(rows > 0, "{page}: {sql}");
        n += 1;
    }
    assert!(n > 9, "{n} queries");
}
