//! Reports in Chromium: pictures with marks, no text over text or under 9 pixels, no requests, no
//! scripts.

use crate::lake::{Lake, ProgramRun};
use crate::needs;
use crate::nightly::routes;
use crate::pictures::assert_xml;
use crate::pipelines::words;
use gyre::report::style::number;
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

/// The names under which Chromium is installed.
const NAMES: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
                     --disable-background-networking --disable-component-update --disable-sync \
                     --enable-logging=stderr";

/// The time that a page may take. A browser that hangs is started again.
const PATIENCE: Duration = Duration::from_secs(90);

/// A browser with a profile of its own, or nothing where none is installed.
pub fn browse(lake: &Lake, page: &Path, more: &[&str]) -> Option<Output> {
    let browser = needs::program(&NAMES)?;
    let profile = lake.path("profile");
    for _ in 0..3 {
        let out = assert_cmd::Command::new(&browser)
            .args(FLAGS.split(' '))
            .arg(format!("--user-data-dir={}", profile.display()))
            .args(more)
            .arg(format!("file://{}", page.display()))
            .timeout(PATIENCE)
            .output()
            .expect("the browser starts");
        if out.status.code().is_some() {
            return Some(out);
        }
        _ = std::fs::remove_dir_all(&profile);
    }
    let page = page.display();
    panic!("the browser did not show {page} in {PATIENCE:?}");
}

/// What a browser measures in a page that is `width` pixels wide.
pub fn measure(lake: &Lake, page: &Path, width: u32) -> Option<Value> {
    let html = std::fs::read_to_string(page).expect("a page");
    let policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";
    assert!(html.contains(policy), "the page has a policy");
    // The policy would stop the measurement, too.
    let style = format!("<style>html {{ width: {width}px }}</style></head>");
    let script = include_str!("browser_measure.js");
    let script = format!("<script>{script}</script></body>");
    let html = html
        .replacen(policy, "default-src 'unsafe-inline' data:", 1)
        .replacen("</head>", &style, 1)
        .replacen("</body>", &script, 1);
    let copy = lake.path("measured.html");
    std::fs::write(&copy, html).expect("a copy");
    let out = browse(lake, &copy, &["--dump-dom", "--virtual-time-budget=5000"])?;
    let dom = String::from_utf8_lossy(&out.stdout).into_owned();
    let text = dom.split_once("id=\"measured\">").map(|(_, rest)| rest);
    let text = text.and_then(|rest| rest.split_once('<'));
    let errors = String::from_utf8_lossy(&out.stderr);
    let (text, _) = text.unwrap_or_else(|| panic!("no measurement: {dom:.500} {errors}"));
    let bytes = base64(text);
    Some(serde_json::from_slice(&bytes).expect("JSON"))
}

fn base64(text: &str) -> Vec<u8> {
    let value = |b: u8| match b {
        b'A'..=b'Z' => Some(b - b'A'),
        b'a'..=b'z' => Some(b - b'a' + 26),
        b'0'..=b'9' => Some(b - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let (mut bits, mut n, mut out) = (0u32, 0, Vec::new());
    for v in text.bytes().filter_map(value) {
        bits = bits << 6 | u32::from(v);
        n += 6;
        if n >= 8 {
            n -= 8;
            out.push((bits >> n) as u8);
        }
    }
    out
}

/// A command that runs a pipeline of the repository on tables of the expected form.
pub fn command(lake: &Lake, name: &str, more: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("gyre"));
    command
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .args(["run", "--report", &format!("pipelines/{name}.toml")])
        .args(more)
        .env("OUT", lake.path("out"));
    match name {
        "routes" | "nightly" => {
            routes(lake, 1);
            command.env("ROUTES", lake.path("lake/routes.parquet"));
        }
        "words" => {
            words(lake);
            command.env("WORDS", lake.path("words.parquet"));
            // The table has fewer words than the pipeline has sets.
            command.args(["--set", "fit.dbmr.rank=[2, 3]", "--set", "fit.svd.rank=2"]);
        }
        _ => {}
    }
    command
}

pub fn run(lake: &Lake, name: &str, more: &[&str]) -> std::path::PathBuf {
    let ran = command(lake, name, more).output();
    ProgramRun::of(ran.expect("the program starts")).succeeds();
    let folder = name.replace('_', "-");
    lake.path(&format!("out/{folder}/current/report.html"))
}

/// Asserts what holds for every report.
fn check(lake: &Lake, page: &Path) -> Option<Value> {
    let size = std::fs::metadata(page).expect("a page").len();
    assert!(size < 5_000_000, "{size} bytes");
    let html = std::fs::read_to_string(page).expect("a page");
    let mut pictures = 0;
    for from in html.split("<svg ").skip(1) {
        let (picture, _) = from.split_once("</svg>").expect("the end of a picture");
        let picture = format!("<svg {picture}</svg>");
        assert_xml(&picture, &format!("{} {pictures}", page.display()));
        pictures += 1;
    }
    assert!(pictures > 0, "no picture in {}", page.display());
    let out = browse(lake, page, &["--dump-dom"])?;
    let errors = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!errors.contains("CONSOLE"), "{errors}");
    let mut last = None;
    for width in [360, 800, 1400] {
        let measured = measure(lake, page, width)?;
        assert_eq!(measured["scripts"], 1, "only the measurement");
        assert_eq!(measured["active"], 0);
        let requests = measured["resources"].as_array().map(Vec::len);
        assert_eq!(requests, Some(0), "{}", measured["resources"]);
        assert_eq!(measured["run"], false);
        assert!(measured["wide"].as_i64() <= Some(0), "{width}: too wide");
        let figures = measured["figures"].as_array().expect("figures");
        assert!(!figures.is_empty(), "no picture in {}", page.display());
        for figure in figures {
            let label = figure["label"].as_str().unwrap_or_default();
            assert!(label.len() > 10, "no description: {figure}");
            assert!(figure["area"].as_f64() > Some(5000.0), "{width}: {figure}");
            assert!(figure["marks"].as_u64() > Some(3), "{width}: {figure}");
            for key in ["overlaps", "outside", "small"] {
                let n = figure[key].as_array().map(Vec::len);
                assert_eq!(n, Some(0), "{width}: {key} in {figure}");
            }
        }
        last = Some(measured);
    }
    last
}

/// The pipelines of the repository, by name.
pub fn pipelines() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("pipelines");
    let files = std::fs::read_dir(folder).expect("a folder");
    let files = files.map(|file| file.expect("an entry").path());
    let files = files.filter(|file| file.extension().is_some_and(|e| e == "toml"));
    let names = files.filter_map(|file| Some(file.file_stem()?.to_str()?.to_string()));
    let mut names = names.collect::<Vec<_>>();
    names.sort();
    assert!(names.len() > 10, "{names:?}");
    names
}

#[test]
fn the_reports_of_all_pipelines_can_be_read() {
    for name in pipelines() {
        let lake = Lake::new();
        let page = run(&lake, &name, &[]);
        check(&lake, &page);
    }
}

/// Tooltips say what the tables say.
#[test]
fn tooltips_equal_the_tables() {
    let lake = Lake::new();
    let page = run(&lake, "double_gyre", &[]);
    let Some(measured) = check(&lake, &page) else {
        return;
    };
    let tips = measured["tips"].as_array().expect("tips");
    let has = |tip: &str| tips.iter().any(|t| t.as_str() == Some(tip));
    let fits = lake.read_at("out/double-gyre/fits");
    let sizes = fits.lists("source_sizes");
    for (set, size) in sizes[0].iter().enumerate() {
        let size = if *size < 1000.0 {
            format!("{size}")
        } else {
            format!("{},{:03}", *size as u64 / 1000, *size as u64 % 1000)
        };
        for tip in [format!("states {size}"), format!("{size} states")] {
            assert!(has(&format!("set {set}: {tip}")), "{set} {tip} {tips:?}");
        }
    }
    let coarse = lake.read_at("out/double-gyre/coarse");
    let share = coarse.floats("probability")[0];
    let tip = format!("set 0 → set 0: {share:.5}");
    assert!(has(&tip), "{tip}: {tips:?}");
}

/// Known states stand beside the estimates, and say what the table says.
#[test]
fn known_states_are_drawn_beside_estimates() {
    let lake = Lake::new();
    let page = run(&lake, "tracking", &[]);
    let estimates = lake.read_at("out/tracking/estimates");
    let known = estimates.lists("known_state");
    let times = estimates.integers("time");
    let Some(measured) = check(&lake, &page) else {
        return;
    };
    let tips = measured["tips"].as_array().expect("tips");
    for fit in ["exact", "fitted", "kernel"] {
        let means = estimates.lists(&format!("{fit}_mean"));
        let variances = estimates.lists(&format!("{fit}_variance"));
        for row in 0..5 {
            let [state, mean] = [&known, &means].map(|of| number(of[row][0]));
            let two = number(2.0 * variances[row][0].sqrt());
            let time = times[row];
            let tip = format!("time {time}: known state {state}, estimate {mean} ± {two}");
            let is_shown = tips.iter().any(|t| t.as_str() == Some(&tip));
            assert!(is_shown, "{tip}: {tips:?}");
        }
    }
}

/// The picture of the README is what the program draws.
#[test]
fn the_picture_of_the_readme_is_drawn() {
    let lake = Lake::new();
    run(&lake, "double_gyre", &[]);
    let drawn = lake.line("report out/double-gyre --format svg -o pictures");
    drawn.succeeds();
    let file = lake.path("pictures/map-dbmr_r3-sources-x-y.svg");
    let found = std::fs::read_to_string(file).expect("a picture");
    let shown = include_str!("../../src/guide/double_gyre.svg");
    if std::env::var_os("GYRE_UPDATE_PAGES").is_some() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/src/guide/double_gyre.svg");
        std::fs::write(page, &found).expect("the picture can be written");
    } else {
        assert_eq!(found, shown, "GYRE_UPDATE_PAGES=1 draws it again");
    }
}

/// Names are shown as text and never run.
#[test]
fn hostile_names_are_shown_as_text() {
    let lake = Lake::new();
    let long = "x".repeat(5000);
    let names = [
        "<script>window.pwned = 1</script>",
        "\"><img src=x onerror=window.pwned=1>",
        "' or 1=1 --",
        "two\nlines",
        "\u{202e}reversed",
        "$x^2$ $y$",
        long.as_str(),
    ];
    let mut rows = "part,source,target\n".to_string();
    for part in names {
        let part = part.replace('"', "\"\"");
        for at in 0..40 {
            let [from, to] =
                [at * at % 7, (at * 3 + at / 7) % 7].map(|k| names[k].replace('"', "\"\""));
            rows += &format!("\"{part}\",\"{from}\",\"{to}\"\n");
        }
    }
    lake.file("rows.csv", &rows);
    lake.runs_text(
        r#"
job = { name = "hostile", output = "out", seed = 1 }
tables.rows.path = "rows.csv"
[transitions]
sql = "SELECT * FROM rows"
source = "source"
target = "target"
partition_by = ["part"]

[[fit]]
name = "dbmr"
method = "dbmr"
rank = 2
"#,
    );
    let overview = lake.line("inspect out").succeeds().out;
    assert!(!overview.contains('\u{202e}'), "{overview}");
    let shown = lake.line("inspect out sources").succeeds().out;
    assert!(shown.contains("two\\nlines"), "{shown}");
    let is_short = |line: &str| line.chars().count() < 400;
    assert!(shown.lines().all(is_short), "{shown}");
    lake.line("report out -o report.html").succeeds();
    let Some(measured) = check(&lake, &lake.path("report.html")) else {
        return;
    };
    let text = measured["text"].as_str().expect("text");
    assert!(text.contains(names[0]), "{text:.900}");
}

/// Fits of 3 and 14 sets with one beginning of their names, on angles, at two lags. At the second
/// lag, the sets that the input gives have all boxes again.
#[test]
fn pictures_of_many_sets_and_long_names_can_be_read() {
    let lake = Lake::new();
    let mut rows = "id,t,phi,psi,side\n".to_string();
    for t in 0..3000u32 {
        // A walk through all boxes, which turns round with the low bits of a generator.
        let noise = t.wrapping_mul(1_103_515_245).wrapping_add(12_345) >> 16;
        let [phi, psi] = [t / 40 % 12, (t + noise % 3) % 12].map(|k| 30.0 * f64::from(k) - 165.0);
        let side = u8::from(phi > 0.0);
        rows += &format!("1,{t},{phi},{psi},{side}\n");
    }
    lake.file("rows.csv", &rows);
    lake.runs_text(
        r#"
job = { name = "angles", output = "out", seed = 1 }
tables.rows.path = "rows.csv"
[transitions]
sql = "SELECT * FROM rows"
trajectory = "id"
time = "t"
lag = [1, 2]

[transitions.bins]
phi = { periodic = [-180, 180], boxes = 12 }
psi = { periodic = [-180, 180], boxes = 12 }

[[fit]]
name = "a_beginning_that_all_names_of_fits_have"
method = "dbmr"
rank = [3, 14]

[[fit]]
name = "given"
method = "given"
affiliation = "side"
"#,
    );
    lake.line("report out -o report.html").succeeds();
    let page = lake.path("report.html");
    let Some(measured) = check(&lake, &page) else {
        return;
    };
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(html.contains("given: sets of sources and targets"));
    assert!(!html.contains("given: sets of targets"));
    assert!(!html.contains(">-200</text>"), "angles end at -180");
    // The page begins with the picture of one fit, so that the table of fits shows their order.
    let (_, fits) = html.split_once("<h3>Fits</h3>").expect("a table of fits");
    let [third, last] = ["_r3<", "_r14<"].map(|name| fits.find(name).expect(name));
    assert!(third < last, "fits by rank");
    assert!(html.contains("of an earlier lag would be the same here"));
    // The legends keep the ends of the names.
    for rank in [3, 14] {
        let end = format!("_of_fits_have_r{rank}</text>");
        assert!(html.contains(&end), "{end}");
    }
    let tips = measured["tips"].as_array().expect("tips");
    let stays = tips.iter().filter_map(|tip| tip.as_str());
    let stays = stays.filter(|tip| tip.starts_with("set 13 → set 13: "));
    assert_eq!(stays.count(), 2, "a matrix at each lag");
}

/// A map of a million boxes has a pixel per few boxes.
#[test]
fn a_report_of_a_million_states_is_small() {
    let lake = Lake::new();
    lake.runs_text(
        r#"
job = { name = "million", output = "out", seed = 1 }
[transitions]
sql = """
WITH p AS (SELECT value AS id, value % 1000 AS i, value / 1000 AS j FROM generate_series(0, 999999)),
q AS (SELECT id, 0 AS t, i, j FROM p UNION ALL SELECT id, 1, (i + j) % 1000, j FROM p)
SELECT id, t, i + 0.5 AS x, j + 0.5 AS y,
  CASE WHEN power(i - 500, 2) + power(j - 500, 2) < 90000 THEN 1 ELSE 0 END AS side FROM q
"""
trajectory = "id"
time = "t"
lag = 1

[transitions.bins]
x = { bounds = [0, 1000], boxes = 1000 }
y = { bounds = [0, 1000], boxes = 1000 }

[[fit]]
name = "given"
method = "given"
affiliation = "side"
"#,
    );
    lake.line("report out -o report.html").succeeds();
    let page = lake.path("report.html");
    let size = std::fs::metadata(&page).expect("a page").len();
    assert!(size < 1_000_000, "{size} bytes");
    let Some(measured) = check(&lake, &page) else {
        return;
    };
    let tips = measured["tips"].as_array().expect("tips");
    // States with the set of the disc, counted here.
    let inside = (0..1000i64).flat_map(|i| (0..1000i64).map(move |j| [i - 500, j - 500]));
    let inside = inside.filter(|[x, y]| x * x + y * y < 90_000).count();
    let tip = format!("set 1: {} states", number(inside as f64));
    let is_shown = tips.iter().any(|t| t.as_str() == Some(&tip));
    assert!(is_shown, "{tip}: {tips:?}");
}
