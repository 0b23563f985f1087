//! Sets of boxes as maps: every pair of binned columns, sources beside targets.

use crate::error::Result;
use crate::report::figure::{Cell, Figure, HEIGHT, OPACITIES, WIDTH, layout, mosaic, with_sets};
use crate::report::model::{Model, ResultRows, column};
use crate::report::style;
use kuva::render::layout::Layout;
use polars::prelude::{DataType, Expr, LazyFrame, len, lit};
use std::collections::{BTreeMap, BTreeSet};

/// At most this number of pixels on each side of a map.
const PIXELS: i64 = 160;

/// At most this number of pairs of columns.
const MOST_PAIRS: usize = 3;

const CAPTION: &str = "Each box of the grid has the colour of its set. Boxes without data are \
    empty, and faint boxes have few transitions: less than a tenth, a hundredth or a thousandth of \
    those of a full box (the 95th percentile). If the grid is larger than the picture, a pixel has \
    the set of most of its boxes. If sources and targets have the same sets, there is one map of \
    both. The picture misleads about sizes: a large area can have few transitions.";

/// Two binned columns, and the borders of their boxes.
struct Grid {
    names: [String; 2],
    low: [f64; 2],
    high: [f64; 2],
    first: [i64; 2],
    count: [i64; 2],
}

impl Grid {
    /// The lower border of a box, or the upper one of the last box.
    fn border(&self, axis: usize, at: i64) -> f64 {
        let width = (self.high[axis] - self.low[axis]) / self.count[axis] as f64;
        self.low[axis] + width * at as f64
    }

    /// The grid around both. The boxes of all tables have the same borders.
    fn with(&self, other: &Grid) -> Grid {
        let axes = [0, 1];
        let last = |grid: &Grid, axis: usize| grid.first[axis] + grid.count[axis];
        let first = axes.map(|axis| self.first[axis].min(other.first[axis]));
        let end = axes.map(|axis| last(self, axis).max(last(other, axis)));
        Grid {
            names: self.names.clone(),
            low: axes.map(|axis| self.low[axis].min(other.low[axis])),
            high: axes.map(|axis| self.high[axis].max(other.high[axis])),
            first,
            count: axes.map(|axis| end[axis] - first[axis]),
        }
    }
}

/// The maps of all fits with sets.
///
/// # Errors
/// If `sources` or `targets` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let columns = model.columns("sources")?;
    let binned = columns
        .iter()
        .filter_map(|name| name.strip_suffix("_index"))
        .filter(|name| columns.iter().any(|c| *c == format!("{name}_low")))
        .collect::<Vec<_>>();
    let mut pairs = Vec::new();
    for (at, first) in binned.iter().enumerate() {
        pairs.extend(
            binned[at + 1..]
                .iter()
                .map(|second| oriented(first, second)),
        );
    }
    pairs.truncate(MOST_PAIRS);
    for fit in fits {
        for pair in &pairs {
            figures.extend(of_pair(model, fit, pair)?);
        }
    }
    Ok(figures)
}

/// Longitude goes to the right.
fn oriented(first: &str, second: &str) -> [String; 2] {
    let is_longitude = second.to_lowercase().starts_with("lon");
    let pair = if is_longitude {
        [second, first]
    } else {
        [first, second]
    };
    pair.map(str::to_string)
}

/// What a map shows of a table.
struct SetMap {
    /// The number of states of each set.
    states: BTreeMap<i64, u64>,
    /// The set of each pixel and its transitions, by its row and column.
    pixels: BTreeMap<(i64, i64), Pixel>,
}

#[derive(Clone, Copy, Default)]
struct Pixel {
    set: i64,
    /// The number of states of this set.
    states: f64,
    transitions: f64,
}

/// The maps of sources and targets; one for both if they have the same sets.
fn of_pair(model: &Model<'_>, fit: &str, names: &[String; 2]) -> Result<Vec<Figure>> {
    let affiliation = format!("{fit}_affiliation");
    let mut tables = Vec::new();
    for table in ["sources", "targets"] {
        if model.columns(table)?.contains(&affiliation) {
            tables.push(table);
        }
    }
    let Some(grid) = grid(model, &tables, names)? else {
        return Ok(Vec::new());
    };
    let step = grid
        .count
        .map(|n| (n as u64).div_ceil(PIXELS as u64) as i64);
    let mut maps = Vec::new();
    for table in &tables {
        let rows = pixels(model, table, &affiliation, &grid, step)?;
        maps.push(SetMap::of(&rows));
    }
    if let [sources, targets] = maps.as_slice()
        && sources.has_sets_of(targets)
    {
        let both = [("source ", sources), ("target ", targets)];
        let figure = figure(fit, "sources", &both, &grid, step);
        return Ok(figure.into_iter().collect());
    }
    let all = tables.iter().zip(&maps);
    let all = all.filter_map(|(table, map)| figure(fit, table, &[("", map)], &grid, step));
    Ok(all.collect())
}

/// The picture of one map, or of two with the same sets: each with what its states are.
fn figure(
    fit: &str,
    table: &str,
    maps: &[(&str, &SetMap)],
    grid: &Grid,
    step: [i64; 2],
) -> Option<Figure> {
    let mut pixels = BTreeMap::new();
    for (_, map) in maps.iter().rev() {
        pixels.extend(map.pixels.iter().map(|(at, pixel)| (*at, *pixel)));
    }
    let cells = cells(&pixels, grid, step);
    if cells.is_empty() {
        return None;
    }
    let sets = maps.iter().flat_map(|(_, map)| map.states.keys().copied());
    let sets = sets
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect::<Vec<_>>();
    let [x, y] = [0, 1].map(|axis| [grid.low[axis], grid.high[axis]]);
    let labels = [grid.names[0].as_str(), grid.names[1].as_str()];
    let drawn =
        layout((x[0], x[1]), (y[0], y[1]), labels).with_height(height(grid, [x, y], sets.len()));
    let tip = |set: i64| {
        let of = |(of, map): &(&str, &SetMap)| {
            let n = map.states.get(&set).copied().unwrap_or_default();
            format!("{} {of}states", style::number(n as f64))
        };
        format!(
            "{}: {}",
            style::set_name(set),
            style::listed(maps.iter().map(of))
        )
    };
    let svg = mosaic(&cells, with_sets(exact(drawn, [x, y]), &sets), tip);
    let what = match maps {
        [_] => table,
        _ => "sources and targets",
    };
    let title = format!("{fit}: sets of {what}");
    let parts = style::listed(sets.iter().map(|set| tip(*set)).take(12));
    let [x, y] = &grid.names;
    let alt = format!("Map of the sets of {what} of {fit} over {x} and {y}. {parts}.");
    let name = format!("{fit}-{table}-{x}-{y}");
    Some(Figure::new(["map", &name], &title, &alt, CAPTION, svg))
}

/// A layout whose axes end where the boxes end: a period has no values beyond it. Ticks of a circle
/// of degrees are its quarters.
fn exact(layout: Layout, [x, y]: [[f64; 2]; 2]) -> Layout {
    let mut layout = layout
        .with_x_axis_min(x[0])
        .with_x_axis_max(x[1])
        .with_y_axis_min(y[0])
        .with_y_axis_max(y[1]);
    let is_circle = |[low, high]: [f64; 2]| high - low == 360.0 && low % 90.0 == 0.0;
    if is_circle(x) {
        layout = layout.with_x_tick_step(90.0);
    }
    if is_circle(y) {
        layout = layout.with_y_tick_step(90.0);
    }
    layout
}

/// The height of a map, with the aspect of the earth for longitude and latitude.
fn height(grid: &Grid, [x, y]: [[f64; 2]; 2], n_sets: usize) -> f64 {
    let names = grid.names.clone().map(|name| name.to_lowercase());
    let is_earth = names[0].starts_with("lon") && names[1].starts_with("lat");
    let stretch = if is_earth {
        f64::midpoint(y[0], y[1]).to_radians().cos().max(0.2)
    } else {
        1.0
    };
    let ratio = (y[1] - y[0]) / ((x[1] - x[0]) * stretch);
    // Columns of other units have no aspect; extreme ones would not fit on a page.
    let is_plain = (0.2..=2.0).contains(&ratio);
    let ratio = if is_plain { ratio } else { 0.7 };
    let legend = 18.0 * (n_sets.min(24) as f64 / 4.0).ceil();
    ((WIDTH - 70.0) * ratio + 60.0 + legend).clamp(HEIGHT * 0.6, 2.0 * HEIGHT)
}

/// The boxes of all tables.
fn grid(model: &Model<'_>, tables: &[&str], names: &[String; 2]) -> Result<Option<Grid>> {
    let mut all: Option<Grid> = None;
    for table in tables {
        let Some(own) = grid_of(model, table, names)? else {
            continue;
        };
        all = Some(match all {
            Some(grid) => grid.with(&own),
            None => own,
        });
    }
    Ok(all)
}

fn grid_of(model: &Model<'_>, table: &str, names: &[String; 2]) -> Result<Option<Grid>> {
    let mut wanted: Vec<Expr> = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let of = |part: &str| column(&format!("{name}_{part}"));
        let border = |part: &str| of(part).cast(DataType::Float64);
        wanted.push(of("index").min().alias(format!("first{at}")));
        wanted.push(of("index").max().alias(format!("last{at}")));
        wanted.push(border("low").min().alias(format!("low{at}")));
        wanted.push(border("high").max().alias(format!("high{at}")));
    }
    let found = model.collect(table, model.scan(table)?.select(wanted))?;
    let one = |name: &str| found.floats(name).first().copied().unwrap_or(f64::NAN);
    let of = |what: &str| [one(&format!("{what}0")), one(&format!("{what}1"))];
    let (first, last, low, high) = (of("first"), of("last"), of("low"), of("high"));
    let mut all = [first, last, low, high].into_iter().flatten();
    if all.any(|x| !x.is_finite()) {
        return Ok(None);
    }
    let count = [0, 1].map(|at| (last[at] - first[at]) as i64 + 1);
    Ok(Some(Grid {
        names: names.clone(),
        low,
        high,
        first: first.map(|x| x as i64),
        count,
    }))
}

/// The number of states and transitions of each set in each pixel.
fn pixels(
    model: &Model<'_>,
    table: &str,
    affiliation: &str,
    grid: &Grid,
    step: [i64; 2],
) -> Result<ResultRows> {
    let pixel = |at: usize| {
        let index = column(&format!("{}_index", grid.names[at])).cast(DataType::Int64);
        (index - lit(grid.first[at])).floor_div(lit(step[at]))
    };
    let set = column(affiliation).cast(DataType::Int64).fill_null(lit(-1));
    let [px, py, set] = [pixel(0).alias("px"), pixel(1).alias("py"), set.alias("set")];
    let has_counts = model.columns(table)?.iter().any(|name| name == "count");
    let transitions = if has_counts {
        column("count").cast(DataType::Float64)
    } else {
        lit(1.0)
    };
    let query: LazyFrame = model
        .scan(table)?
        .select([px, py, set, transitions.alias("transitions")])
        .group_by([column("px"), column("py"), column("set")])
        .agg([len().alias("n"), column("transitions").sum()])
        .sort(["px", "py", "set"], Default::default());
    model.collect(table, query)
}

impl SetMap {
    /// The map of rows of pixels.
    fn of(rows: &ResultRows) -> SetMap {
        let (xs, ys) = (rows.floats("px"), rows.floats("py"));
        let (sets, counts) = (rows.sets("set"), rows.floats("n"));
        let transitions = rows.floats("transitions");
        let mut map = SetMap {
            states: BTreeMap::new(),
            pixels: BTreeMap::new(),
        };
        for at in 0..rows.len() {
            *map.states.entry(sets[at]).or_default() += counts[at] as u64;
            let place = (ys[at] as i64, xs[at] as i64);
            let pixel = map.pixels.entry(place).or_default();
            pixel.transitions += transitions[at];
            if counts[at] > pixel.states {
                pixel.states = counts[at];
                pixel.set = sets[at];
            }
        }
        map
    }

    /// Whether the pixels that both maps have are of the same sets.
    fn has_sets_of(&self, other: &SetMap) -> bool {
        let both = self.pixels.iter();
        let both = both.filter_map(|(at, own)| Some((own.set, other.pixels.get(at)?.set)));
        let both = both.collect::<Vec<_>>();
        !both.is_empty() && both.iter().all(|(own, other)| own == other)
    }
}

/// How many transitions a full pixel has: all but a twentieth of the pixels have fewer.
fn full(pixels: &BTreeMap<(i64, i64), Pixel>) -> f64 {
    let all = pixels.values().map(|pixel| pixel.transitions);
    let mut all = all.collect::<Vec<_>>();
    all.sort_by(f64::total_cmp);
    let at = (all.len() * 95 / 100).min(all.len().saturating_sub(1));
    all.get(at).copied().unwrap_or(1.0)
}

/// How faint a pixel is: by the powers of ten between its transitions and those of a full one.
fn level(transitions: f64, full: f64) -> usize {
    let levels = (full / transitions).log10().floor();
    // A weight that is no number is drawn as a full one.
    (levels.max(0.0) as usize).min(OPACITIES.len() - 1)
}

/// One rectangle per row of neighbouring pixels of a set.
fn cells(pixels: &BTreeMap<(i64, i64), Pixel>, grid: &Grid, step: [i64; 2]) -> Vec<Cell> {
    let border =
        |axis: usize, pixel: i64| grid.border(axis, (pixel * step[axis]).min(grid.count[axis]));
    let full = full(pixels);
    let mut cells: Vec<Cell> = Vec::new();
    let mut last: Option<(i64, i64)> = None;
    for ((py, px), pixel) in pixels {
        let right = border(0, px + 1);
        let level = level(pixel.transitions, full);
        let is_same = |cell: &Cell| cell.set == pixel.set && cell.level == level;
        match cells.last_mut() {
            Some(cell) if is_same(cell) && last == Some((*py, px - 1)) => cell.x[1] = right,
            _ => cells.push(Cell {
                x: [border(0, *px), right],
                y: [border(1, *py), border(1, py + 1)],
                set: pixel.set,
                level,
            }),
        }
        last = Some((*py, *px));
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pixels: &[((i64, i64), i64)]) -> SetMap {
        let pixel = |set: i64| Pixel {
            set,
            states: 1.0,
            transitions: 1.0,
        };
        let pixels = pixels.iter().map(|(at, set)| (*at, pixel(*set)));
        SetMap {
            states: BTreeMap::from([(0, 1), (1, 1)]),
            pixels: pixels.collect(),
        }
    }

    fn degrees() -> Grid {
        Grid {
            names: ["phi", "psi"].map(str::to_string),
            low: [-180.0, -180.0],
            high: [180.0, 180.0],
            first: [0, 0],
            count: [6, 6],
        }
    }

    /// With 1,000 transitions in a full pixel, 101 are more than a tenth, and 99 are less.
    #[test]
    fn boxes_with_few_transitions_are_faint() {
        assert_eq!([1000.0, 101.0, 2000.0].map(|n| level(n, 1000.0)), [0; 3]);
        assert_eq!(
            [99.0, 9.9, 0.5, 0.0].map(|n| level(n, 1000.0)),
            [1, 2, 3, 3]
        );
        assert_eq!(level(f64::NAN, 1000.0), 0);
        let mut few = map(&[((0, 0), 0), ((0, 1), 0), ((0, 2), 0)]).pixels;
        few.insert(
            (0, 1),
            Pixel {
                transitions: 0.05,
                ..few[&(0, 0)]
            },
        );
        let levels = cells(&few, &degrees(), [1, 1]);
        let levels = levels.iter().map(|cell| cell.level).collect::<Vec<_>>();
        assert_eq!(levels, [0, 1, 0]);
    }

    /// A target at (1, 1) has no source, and the others are of the same sets.
    #[test]
    fn one_partition_has_one_map() {
        let sources = map(&[((0, 0), 0), ((0, 1), 1)]);
        let targets = map(&[((0, 0), 0), ((0, 1), 1), ((1, 1), 1)]);
        assert!(sources.has_sets_of(&targets));
        assert!(!sources.has_sets_of(&map(&[((0, 0), 1), ((0, 1), 1)])));
        assert!(
            !sources.has_sets_of(&map(&[((5, 5), 0)])),
            "no pixel of both"
        );
        let both = [("source ", &sources), ("target ", &targets)];
        let figure = figure("pcca", "sources", &both, &degrees(), [1, 1]).expect("a picture");
        assert_eq!(figure.title, "pcca: sets of sources and targets");
        let tip = "set 1: 1 source states, 1 target states";
        assert!(figure.svg.contains(tip), "{}", figure.svg);
    }

    /// The axes of angles end at ±180°, and have ticks at their quarters.
    #[test]
    fn axes_of_angles_end_with_the_period() {
        let map = map(&[((0, 0), 0), ((5, 5), 1)]);
        let figure = figure("dbmr", "sources", &[("", &map)], &degrees(), [1, 1]);
        let svg = figure.expect("a picture").svg;
        for tick in ["-180", "-90", "0", "90", "180"] {
            let n = svg.matches(&format!(">{tick}</text>")).count();
            assert_eq!(n, 2, "{tick}: {svg}");
        }
        assert!(!svg.contains("200</text>"), "{svg}");
    }

    #[test]
    fn a_grid_is_around_sources_and_targets() {
        let other = Grid {
            low: [0.0, -240.0],
            high: [360.0, 120.0],
            first: [3, -1],
            ..degrees()
        };
        let both = degrees().with(&other);
        assert_eq!((both.low, both.first), ([-180.0, -240.0], [0, -1]));
        assert_eq!((both.count, both.high), ([9, 7], [360.0, 180.0]));
        assert!((both.border(1, 3) + 60.0).abs() < 1e-9);
    }
}
