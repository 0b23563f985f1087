//! Sets of boxes as maps: every pair of binned columns, sources beside targets.

use crate::error::Result;
use crate::report::figure::{Cell, Figure, HEIGHT, WIDTH, layout, mosaic, with_sets};
use crate::report::model::{Model, ResultRows, column};
use crate::report::style;
use polars::prelude::{DataType, Expr, LazyFrame, len, lit};
use std::collections::BTreeMap;

/// At most this number of pixels on each side of a map.
const PIXELS: i64 = 160;

/// At most this number of pairs of columns.
const MOST_PAIRS: usize = 3;

const CAPTION: &str = "Each box of the grid has the colour of its set. Boxes without data are \
    empty. If the grid is larger than the picture, a pixel has the set of most of its boxes. \
    The picture misleads about sizes: a large area can have few transitions.";

/// Two binned columns, and the borders of their boxes.
struct Grid {
    names: [String; 2],
    low: [f64; 2],
    width: [f64; 2],
    first: [i64; 2],
    count: [i64; 2],
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
            for table in ["sources", "targets"] {
                figures.extend(figure(model, table, fit, pair)?);
            }
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

fn figure(
    model: &Model<'_>,
    table: &str,
    fit: &str,
    names: &[String; 2],
) -> Result<Option<Figure>> {
    let affiliation = format!("{fit}_affiliation");
    if !model.columns(table)?.contains(&affiliation) {
        return Ok(None);
    }
    let Some(grid) = grid(model, table, names)? else {
        return Ok(None);
    };
    let step = |n: i64| (n as u64).div_ceil(PIXELS as u64) as i64;
    let step = grid.count.map(step);
    let rows = pixels(model, table, &affiliation, &grid, step)?;
    let states = states_of(&rows);
    let cells = cells(&rows, &grid, step);
    if cells.is_empty() {
        return Ok(None);
    }
    let sets = states.keys().copied().collect::<Vec<_>>();
    let end = |axis: usize| grid.low[axis] + grid.width[axis] * grid.count[axis] as f64;
    let (x, y) = ([grid.low[0], end(0)], [grid.low[1], end(1)]);
    let labels = [grid.names[0].as_str(), grid.names[1].as_str()];
    let drawn = layout((x[0], x[1]), (y[0], y[1]), labels)
        .with_height(height(&grid, [x, y], sets.len()))
        .with_clamp_axis();
    let tip = |set: i64| {
        let n = states.get(&set).copied().unwrap_or_default();
        let (name, n) = (style::set_name(set), style::number(n as f64));
        format!("{name}: {n} states")
    };
    let svg = mosaic(&cells, with_sets(drawn, &sets), tip);
    let title = format!("{fit}: sets of {table}");
    let parts = style::listed(sets.iter().map(|set| tip(*set)).take(12));
    let [x, y] = names;
    let alt = format!("Map of the sets of {table} of {fit} over {x} and {y}. {parts}.");
    let name = format!("{fit}-{table}-{x}-{y}");
    let figure = Figure::new(["map", &name], &title, &alt, CAPTION, svg);
    Ok(Some(figure))
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

fn grid(model: &Model<'_>, table: &str, names: &[String; 2]) -> Result<Option<Grid>> {
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
    let width = [0, 1].map(|at| (high[at] - low[at]) / count[at] as f64);
    Ok(Some(Grid {
        names: names.clone(),
        low,
        width,
        first: first.map(|x| x as i64),
        count,
    }))
}

/// The number of states of each set in each pixel.
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
    let query: LazyFrame = model
        .scan(table)?
        .select([px, py, set])
        .group_by([column("px"), column("py"), column("set")])
        .agg([len().alias("n")])
        .sort(["px", "py", "set"], Default::default());
    model.collect(table, query)
}

fn states_of(rows: &ResultRows) -> BTreeMap<i64, u64> {
    let mut states = BTreeMap::new();
    for (set, n) in rows.sets("set").into_iter().zip(rows.floats("n")) {
        *states.entry(set).or_default() += n as u64;
    }
    states
}

/// One rectangle per row of neighbouring pixels of a set.
fn cells(rows: &ResultRows, grid: &Grid, step: [i64; 2]) -> Vec<Cell> {
    let mut pixels: BTreeMap<(i64, i64), (f64, i64)> = BTreeMap::new();
    let (xs, ys) = (rows.floats("px"), rows.floats("py"));
    let (sets, counts) = (rows.sets("set"), rows.floats("n"));
    for at in 0..rows.len() {
        let best = pixels.entry((ys[at] as i64, xs[at] as i64));
        let best = best.or_insert((0.0, -1));
        if counts[at] > best.0 {
            *best = (counts[at], sets[at]);
        }
    }
    let border = |axis: usize, pixel: i64| {
        let boxes = (pixel * step[axis]).min(grid.count[axis]);
        grid.low[axis] + grid.width[axis] * boxes as f64
    };
    let mut cells: Vec<Cell> = Vec::new();
    let mut last: Option<(i64, i64)> = None;
    for ((py, px), (_, set)) in pixels {
        let right = border(0, px + 1);
        match cells.last_mut() {
            Some(cell) if cell.set == set && last == Some((py, px - 1)) => cell.x[1] = right,
            _ => cells.push(Cell {
                x: [border(0, px), right],
                y: [border(1, py), border(1, py + 1)],
                set,
            }),
        }
        last = Some((py, px));
    }
    cells
}
