//! The pictures of the guide, which the program draws, and the meanings of all columns.

use crate::browser::{pipelines, run};
use crate::lake::Lake;
use crate::nightly::routes;
use crate::pipelines::words;
use gyre::Pipeline;
use gyre::report::meanings::Meanings;
use quick_xml::Reader;
use quick_xml::events::Event;
use std::collections::BTreeSet;

/// A picture of the guide is at most this large.
const MOST_BYTES: usize = 60_000;

/// Asserts that a picture is one element of well-formed XML.
pub fn assert_xml(picture: &str, name: &str) {
    let mut reader = Reader::from_str(picture);
    let (mut depth, mut roots) = (0, 0);
    loop {
        let event = reader.read_event();
        let event = event.unwrap_or_else(|e| panic!("{name}: {e}"));
        match &event {
            Event::Start(element) | Event::Empty(element) => {
                for attribute in element.attributes() {
                    let attribute = attribute.unwrap_or_else(|e| panic!("{name}: {e}"));
                    let value = attribute.unescape_value();
                    value.unwrap_or_else(|e| panic!("{name}: {e}"));
                }
                roots += usize::from(depth == 0);
                depth += usize::from(matches!(event, Event::Start(_)));
            }
            // The reader compares the names of both ends.
            Event::End(_) => depth -= 1,
            Event::GeneralRef(entity) => {
                let is_known = ["amp", "lt", "gt", "quot", "apos"].map(str::as_bytes);
                let is_known = is_known.contains(&&entity[..]) || entity.starts_with(b"#");
                assert!(is_known, "{name}: {entity:?}");
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(
        (depth, roots),
        (0, 1),
        "{name}: open and outermost elements"
    );
}

#[test]
fn the_pictures_in_the_guide_are_xml() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let files = std::fs::read_dir(folder).expect("the guide");
    let files = files.map(|file| file.expect("an entry").path());
    let files = files.filter(|file| file.extension().is_some_and(|e| e == "svg"));
    let mut n = 0;
    for file in files {
        let picture = std::fs::read_to_string(&file).expect("a picture");
        assert_xml(&picture, &file.display().to_string());
        n += 1;
    }
    assert!(n > 10, "{n} pictures");
}

/// Draws the pictures of an output, and compares some of them with the guide.
fn compare(lake: &Lake, output: &str, pictures: &[[&str; 2]]) {
    let drawn = ["report", output, "--format", "svg", "-o", "pictures"];
    lake.gyre(&drawn).succeeds();
    for file in std::fs::read_dir(lake.path("pictures")).expect("pictures") {
        let file = file.expect("an entry").path();
        let picture = std::fs::read_to_string(&file).expect("a picture");
        assert_xml(&picture, &file.display().to_string());
    }
    for [name, shown] in pictures {
        let file = lake.path(&format!("pictures/{name}.svg"));
        let found =
            std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        assert!(found.len() <= MOST_BYTES, "{shown}: {} bytes", found.len());
        let page = format!("{}/src/guide/{shown}.svg", env!("CARGO_MANIFEST_DIR"));
        if std::env::var_os("GYRE_UPDATE_PAGES").is_some() {
            std::fs::write(page, &found).expect("the picture can be written");
        } else {
            let shown = std::fs::read_to_string(page).expect("a picture");
            assert_eq!(found, shown, "{name}: GYRE_UPDATE_PAGES=1 draws it again");
        }
    }
}

/// A double gyre with an eighth of the boxes, and its particles by a seed.
fn small(seed: u32) -> [String; 3] {
    [
        format!(
            "transitions.sql=SELECT trajectory, time, x, y FROM double_gyre(32, 16, 20, {seed})"
        ),
        "transitions.bins.x.boxes=32".to_string(),
        "transitions.bins.y.boxes=16".to_string(),
    ]
}

#[test]
fn the_pictures_of_sets_in_the_guide_are_drawn() {
    let lake = Lake::new();
    for seed in [1, 2] {
        let sets = small(seed);
        let sets = sets.iter().flat_map(|set| ["--set", set.as_str()]);
        run(&lake, "double_gyre", &sets.collect::<Vec<_>>());
    }
    let pictures = [
        ["embedding-svd_r5-2-3", "embedding"],
        ["spectrum-all", "spectrum"],
        ["gaps-all", "gaps"],
        ["transitions-dbmr_r5", "transitions"],
        ["weights-dbmr_r5", "weights"],
        ["changes-dbmr_r5", "alluvial"],
    ];
    compare(&lake, "out/double-gyre", &pictures);
}

#[test]
fn the_pictures_of_lags_in_the_guide_are_drawn() {
    let lake = Lake::new();
    run(&lake, "timescales", &[]);
    let pictures = [
        ["0-timescales-dbmr", "timescales"],
        ["0-chapman-kolmogorov-dbmr", "chapman_kolmogorov"],
        ["0-bootstrap-dbmr-weight", "bootstrap"],
    ];
    compare(&lake, "out/timescales", &pictures);
}

#[test]
fn the_pictures_of_rows_in_the_guide_are_drawn() {
    let lake = Lake::new();
    run(&lake, "hidden_world", &[]);
    let pictures = [
        ["ranks-spectral-held_out", "held_out"],
        ["trajectories-em-mean_log_likelihood", "trajectories"],
    ];
    compare(&lake, "out/hidden-world", &pictures);
    run(&lake, "tracking", &["--set", "output.errors=true"]);
    let pictures = [["estimates-kernel-0", "estimates"]];
    compare(&lake, "out/tracking", &pictures);
    for name in ["running_mse", "running_mse_decoded", "histogram"] {
        let file = lake.path(&format!("pictures/errors-{name}.svg"));
        let picture = std::fs::read_to_string(&file).expect("a picture");
        assert!(picture.contains("kernel"), "{name} has no legend");
    }
    run(&lake, "torus", &[]);
    compare(&lake, "out/torus", &[["distortion-all", "distortion"]]);
    run(&lake, "point_clouds", &[]);
    let trials = "distortion-trials-euclidean-time-2";
    compare(&lake, "out/point-clouds", &[[trials, "distortion_trials"]]);
    let bars = std::fs::read_to_string(lake.path("pictures/distortion-fits.svg"));
    let bars = bars.expect("a picture of fits with one power");
    assert!(bars.contains("gpsbs at 2: "), "{bars}");
}

/// Columns whose names come from the SQL of the pipelines.
const OWN: &str = "airline example id page run scene session source speech split symbol target \
                   time trajectory word x x0 x1 y y0 y1";

/// The kinds of rows, each with a pipeline that writes all of its tables.
const WHOLE: [(&str, &[&str]); 5] = [
    ("timescales", &["output.rows=[\"x\"]"]),
    ("wells", &[]),
    (
        "hidden_world",
        &["output.rows=all", "output.distribution=true"],
    ),
    ("tracking", &["output.rows=all", "output.errors=true"]),
    ("kernel_toy", &["fit.kregbayes.objective=true"]),
];

/// The names of all fits. A fit with several ranks has one name per rank.
fn fits(pipeline: &Pipeline) -> Vec<String> {
    let mut names = Vec::new();
    names.extend(pipeline.fits.iter().map(|fit| &fit.name));
    names.extend(pipeline.embeddings.iter().map(|fit| &fit.name));
    names.extend(pipeline.point_fits.iter().map(|fit| &fit.name));
    names.extend(pipeline.sequence_fits.iter().map(|fit| &fit.name));
    names.extend(pipeline.filter_fits.iter().map(|fit| &fit.name));
    let of_ranks = |name: &&String| {
        let ranks = (1..=40).map(|rank| format!("{name}_r{rank}"));
        ranks.chain([name.to_string()]).collect::<Vec<_>>()
    };
    names.iter().flat_map(of_ranks).collect()
}

#[tokio::test]
async fn every_column_has_a_meaning() {
    let lake = Lake::new();
    routes(&lake, 1);
    words(&lake);
    let plain = pipelines().into_iter().map(|name| (name, Vec::new()));
    let whole = WHOLE.iter().map(|(name, sets)| {
        let sets = sets.iter().map(|set| set.to_string());
        (name.to_string(), sets.collect::<Vec<_>>())
    });
    let mut tables = BTreeSet::new();
    for (name, sets) in plain.chain(whole) {
        let file = format!("{}/pipelines/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&file).expect("a pipeline");
        let variable = |name: &str| {
            let path = match name {
                "ROUTES" => "lake/routes.parquet",
                "WORDS" => "words.parquet",
                "OUT" => "out",
                _ => return None,
            };
            Some(lake.path(path).display().to_string())
        };
        let pipeline = Pipeline::parse(&text, &file, &sets, &variable).expect("a pipeline");
        let partition = pipeline.transitions.partition_by.clone();
        let fits = fits(&pipeline);
        let inputs = pipeline.open().await.expect("tables");
        let schemas = inputs.plan_any(None).await.expect("a plan").schemas();
        let has = |table: &str, column: &str| {
            let fits = schemas.iter().find(|(name, _)| *name == table);
            fits.is_some_and(|(_, schema)| schema.field_with_name(column).is_ok())
        };
        let kind = match () {
            () if has("fits", "n_symbols") => "Sequences",
            () if has("fits", "rule") => "Filters",
            () if has("fits", "kernel_points") => "Points",
            () => "Transitions",
        };
        let meanings = Meanings::new(kind);
        for (table, schema) in &schemas {
            tables.insert(table.to_string());
            assert!(
                meanings.table(table).is_some(),
                "{name}: `{table}` has no meaning"
            );
            for field in schema.fields() {
                let column = field.name();
                let found = meanings.column(table, column, &fits, &partition);
                let found = found.unwrap_or_else(|| panic!("{name}: {table}.{column}"));
                assert!(!found.text.is_empty(), "{name}: {table}.{column}");
                // Such a pattern is for names of the SQL alone.
                let is_own = found.pattern == "<column>";
                let is_of_sql = OWN.split(' ').any(|own| own == column);
                let shown = format!("{name}: {table}.{column} is like {}", found.pattern);
                assert!(!is_own || is_of_sql, "{shown}");
            }
        }
    }
    for table in "chapman_kolmogorov predictions estimates points rows".split(' ') {
        assert!(tables.contains(table), "{table}: {tables:?}");
    }
}
