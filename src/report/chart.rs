//! The four kinds of charts: lines with errors, bars, matrices and clouds of points.

use crate::report::figure::{HEIGHT, WIDTH, around, draw, with_entries, with_sets};
use crate::report::labels::apart;
use crate::report::style;
use kuva::plot::LabelStyle;
use kuva::plot::band::BandPlot;
use kuva::plot::bar::BarPlot;
use kuva::plot::heatmap::{ColorMap, Heatmap};
use kuva::plot::legend::{LegendEntry, LegendShape};
use kuva::plot::line::LinePlot;
use kuva::plot::scatter::{MarkerShape, ScatterPlot};
use kuva::render::layout::AxisLabelOverlap;
use kuva::render::plots::Plot;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// At most this number of series share a chart.
pub(crate) const MOST_SERIES: usize = 8;

/// The height of a row with a name.
const ROW: f64 = 14.0;

/// The width below which the names of bars are beside each other.
const NAMES: f64 = 345.0;

/// A point of a line chart.
pub(crate) struct Mark {
    /// Where it is.
    pub at: [f64; 2],
    /// Ends of its interval, if both are numbers.
    pub interval: [f64; 2],
    /// Its tooltip.
    pub tip: String,
}

impl Mark {
    /// A point without an interval.
    pub(crate) fn new(at: [f64; 2], tip: String) -> Mark {
        let interval = [f64::NAN; 2];
        Mark { at, interval, tip }
    }
}

/// A line of a chart.
pub(crate) struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points, by the first coordinate.
    pub marks: Vec<Mark>,
    /// Whether intervals are a band; else they are error bars.
    pub is_band: bool,
    /// Whether the points are drawn, and not only the line.
    pub has_points: bool,
    /// Whether a line joins the points. No line joins points of categories.
    pub has_line: bool,
    /// How far the series stands to the right of its points, in units of the axis. So errors of
    /// several series at one place do not cover each other.
    pub shift: f64,
}

impl Series {
    /// Points that a line joins.
    pub(crate) fn new(name: &str, marks: Vec<Mark>) -> Series {
        Series {
            name: name.to_string(),
            marks,
            is_band: false,
            has_points: true,
            has_line: true,
            shift: 0.0,
        }
    }

    /// A line without its points.
    pub(crate) fn line(name: &str, marks: Vec<Mark>) -> Series {
        Series {
            has_points: false,
            ..Series::new(name, marks)
        }
    }

    /// Points alone.
    pub(crate) fn points(name: &str, marks: Vec<Mark>) -> Series {
        Series {
            has_line: false,
            ..Series::new(name, marks)
        }
    }
}

/// Draws lines; nothing if no series has a point.
pub(crate) fn lines(series: &[Series], labels: [&str; 2], log: bool) -> Option<String> {
    let is_shown = |m: &&Mark| m.at.iter().all(|x| x.is_finite()) && (!log || m.at[1] > 0.0);
    let mut plots = Vec::new();
    let mut entries = Vec::new();
    let names = series.iter().take(MOST_SERIES).map(|one| one.name.clone());
    let names = style::labels(&names.collect::<Vec<_>>());
    for (at, one) in series.iter().take(MOST_SERIES).enumerate() {
        let marks = one.marks.iter().filter(is_shown).collect::<Vec<_>>();
        if marks.is_empty() {
            continue;
        }
        let colour = style::set_colour(at as i64);
        let places = || marks.iter().map(|m| (m.at[0] + one.shift, m.at[1]));
        let has = |m: &&&Mark| m.interval.iter().all(|x| x.is_finite());
        if one.is_band {
            let known = || marks.iter().filter(has);
            let band = BandPlot::new(
                known().map(|m| m.at[0] + one.shift),
                known().map(|m| m.interval[0]),
                known().map(|m| m.interval[1]),
            );
            let band = band.with_color(colour.as_str()).with_opacity(0.25);
            plots.push(Plot::Band(band));
        }
        if one.has_line {
            let line = LinePlot::new().with_data(places());
            let line = line.with_color(colour.as_str()).with_stroke_width(1.5);
            plots.push(Plot::Line(line));
        }
        if one.has_points {
            let errors = marks.iter().map(|m| {
                let [low, high] = m.interval;
                if low.is_finite() && high.is_finite() && !one.is_band {
                    ((m.at[1] - low).max(0.0), (high - m.at[1]).max(0.0))
                } else {
                    (0.0, 0.0)
                }
            });
            let mut points = ScatterPlot::new()
                .with_data(places())
                .with_color(colour.as_str())
                .with_size(if one.has_line { 3.0 } else { 2.5 })
                .with_tooltip_labels(marks.iter().map(|m| tip(&m.tip)));
            // Errors of 0 would be drawn as short bars.
            if marks.iter().any(|m| has(&m)) {
                points = points.with_y_err_asymmetric(errors);
            }
            plots.push(Plot::Scatter(points));
        }
        let shape = if one.has_line {
            LegendShape::Line
        } else {
            LegendShape::Circle
        };
        entries.push(LegendEntry {
            label: names[at].clone(),
            color: colour,
            shape,
            dasharray: None,
        });
    }
    if plots.is_empty() {
        return None;
    }
    let mut layout = around(&plots, labels);
    let values = series.iter().flat_map(|one| &one.marks).filter(is_shown);
    let ends = values.flat_map(|m| [m.at[1], m.interval[0], m.interval[1]]);
    if let Some(y) = constant(ends).filter(|_| !log) {
        let space = y.abs().max(1.0) / 2.0;
        layout = layout.with_y_axis_min(y - space).with_y_axis_max(y + space);
    }
    if let Some(step) = whole(series) {
        layout = layout.with_x_tick_step(step);
    }
    if log {
        layout = layout.with_log_y();
    }
    if entries.len() > 1 {
        layout = with_entries(layout, entries);
    }
    Some(draw(plots, layout))
}

/// The distance of ticks if the first coordinates are a few whole numbers, such as ranks.
fn whole(series: &[Series]) -> Option<f64> {
    let marks = series.iter().flat_map(|one| &one.marks);
    let values = marks.map(|m| m.at[0]).filter(|x| x.is_finite());
    let values = values.collect::<Vec<_>>();
    let [low, high] = range(values.iter().copied());
    let is_whole = values.iter().all(|x| x.fract() == 0.0) && high - low <= 40.0;
    (is_whole && high > low).then(|| ((high - low) / 10.0).ceil())
}

/// A tooltip: one short line.
pub(crate) fn tip(text: &str) -> String {
    style::short(text, 200)
}

/// A bar.
pub(crate) struct Bar {
    /// Its name below or beside it.
    pub name: String,
    /// Its length.
    pub value: f64,
    /// Its colour.
    pub colour: String,
    /// Its tooltip.
    pub tip: String,
}

/// Draws bars, those with long names from the left to the right; nothing if there is none.
pub(crate) fn bars(bars: &[Bar], labels: [&str; 2]) -> Option<String> {
    if bars.is_empty() || bars.iter().any(|bar| !bar.value.is_finite()) {
        return None;
    }
    let names = bars.iter().map(|bar| bar.name.clone());
    let names = style::distinct(&names.collect::<Vec<_>>(), 24);
    let longest = names.iter().map(|name| name.chars().count()).max()?;
    let is_wide = (6.4 * longest as f64 + 2.0) * bars.len() as f64 > NAMES;
    let is_horizontal = is_wide && longest > 4;
    let mut all = bars.iter().zip(names).collect::<Vec<_>>();
    if is_horizontal {
        // Heights grow upwards.
        all.reverse();
    }
    let tips = all.iter().map(|(bar, _)| tip(&bar.tip));
    let tips = tips.collect::<Vec<_>>();
    let data = all
        .into_iter()
        .map(|(bar, name)| (name, bar.value, bar.colour.as_str()));
    let plot = BarPlot::new()
        .with_colored_bars(data)
        // Without this, the plot opens a group per label and never closes it.
        .with_tooltips()
        .with_tooltip_labels(tips);
    if is_horizontal {
        let plots = vec![Plot::Bar(plot.with_horizontal(true))];
        let n = bars.len() as f64;
        let layout = around(&plots, [labels[1], labels[0]]);
        let layout = layout.with_height((1.4 * ROW * n + 70.0).max(HEIGHT * 0.6));
        let layout = layout.with_y_axis_min(0.5).with_y_axis_max(n + 0.5);
        return Some(draw(plots, layout));
    }
    let plots = vec![Plot::Bar(plot)];
    let mut layout = around(&plots, labels);
    if is_wide {
        layout = layout.with_x_label_overlap(AxisLabelOverlap::Thin);
    }
    Some(draw(plots, layout))
}

/// Draws a matrix of shares between 0 and 1, the first row on top.
pub(crate) fn matrix(
    rows: &[Vec<f64>],
    names: [&[String]; 2],
    labels: [&str; 2],
) -> Option<String> {
    if rows.is_empty() || rows[0].is_empty() {
        return None;
    }
    // Heights grow upwards.
    let order = (0..rows.len()).rev().collect::<Vec<_>>();
    let tips = order.iter().flat_map(|i| {
        rows[*i].iter().enumerate().map(move |(j, x)| {
            let [from, to] = [&names[0][*i], &names[1][j]];
            tip(&format!("{from} → {to}: {}", style::number(*x)))
        })
    });
    let tips = tips.collect::<Vec<_>>();
    let is_small = rows.len() <= 6 && rows[0].len() <= 6;
    // Numbers alone have space for more rows.
    let axis = |name: &String| {
        let number = name.strip_prefix("set ").filter(|_| !is_small);
        number.unwrap_or(name).to_string()
    };
    let n = order.iter().map(|i| axis(&names[0][*i]));
    let m = names[1].iter().map(axis);
    let n = style::distinct(&n.collect::<Vec<_>>(), 16);
    let m = style::distinct(&m.collect::<Vec<_>>(), 8);
    // The map of colours gets places between the least and the largest share.
    let [low, high] = range(rows.iter().flatten().copied());
    let colour = move |place: f64| shade(low + place * (high - low));
    let plot = Heatmap::new()
        .with_data(order.iter().map(|i| rows[*i].iter().copied()))
        .with_labels(n.clone(), m.clone())
        .with_color_map(ColorMap::Custom(Arc::new(colour)))
        .with_tooltip_labels(tips);
    let plot = if is_small { plot.with_values() } else { plot };
    let plots = vec![Plot::Heatmap(plot)];
    // Each row has a line of text. An axis of numbers would count cells from below and from 1.
    let height = (WIDTH * 0.85).max(ROW * n.len() as f64 + 70.0);
    let layout = around(&plots, labels).with_height(height);
    let layout = layout.with_y_categories(n).with_x_categories(m);
    let layout = layout.with_x_label_overlap(AxisLabelOverlap::Thin);
    Some(draw(plots, layout))
}

/// A colour that leaves text readable on light and dark pages.
fn shade(share: f64) -> String {
    let opacity = 0.04 + 0.76 * share.clamp(0.0, 1.0);
    format!("rgba(59,125,216,{opacity:.2})")
}

/// A point of a cloud that has a tooltip.
pub(crate) struct NamedPoint {
    /// Where it is.
    pub at: [f64; 2],
    /// Its set.
    pub set: i64,
    /// Its tooltip.
    pub tip: String,
    /// Its name in the picture, if there is space for it; else empty.
    pub label: String,
}

/// Draws points in the colours of their sets, some of them with names, the first ones beside the
/// points; and centres of sets as crosses with tooltips.
pub(crate) fn cloud(
    unnamed: &[([f64; 2], i64)],
    named: &[NamedPoint],
    centres: &[([f64; 2], String)],
    labels: [&str; 2],
) -> Option<String> {
    let points = named.iter().map(|one| (one.at, one.set));
    let points = points.chain(unnamed.iter().copied()).collect::<Vec<_>>();
    let points = points.as_slice();
    let mut sets = points.iter().map(|(_, set)| *set).collect::<Vec<_>>();
    sets.sort_unstable();
    sets.dedup();
    let pixel = pixels(points);
    let places = points.iter().map(|(at, _)| pixel(*at));
    // Few points stay visible, and many stay apart.
    let size = match places.collect::<HashSet<_>>().len() {
        0..=50 => 5.0,
        51..=500 => 3.0,
        _ => 1.6,
    };
    let plots = sets.iter().flat_map(|set| {
        let with_tips = by_pixel(named, *set, &pixel);
        let seen = with_tips.iter().map(|all| pixel(all[0].at));
        let mut seen = seen.collect::<HashSet<_>>();
        let mut is_new = |at: [f64; 2], own: i64| {
            own == *set && at.iter().all(|x| x.is_finite()) && seen.insert(pixel(at))
        };
        let own = unnamed.iter().filter(|(at, own)| is_new(*at, *own));
        let own = own.map(|(at, _)| (at[0], at[1])).collect::<Vec<_>>();
        let plot = |data: Vec<(f64, f64)>| {
            ScatterPlot::new()
                .with_data(data)
                .with_color(style::set_colour(*set))
                .with_size(size)
                // A number without a rounding error is short in the file.
                .with_marker_opacity(0.75)
        };
        let tips = with_tips.iter().map(|all| {
            let tips = all.iter().map(|one| one.tip.as_str());
            tip(&tips.collect::<Vec<_>>().join("; "))
        });
        let places = with_tips.iter().map(|all| (all[0].at[0], all[0].at[1]));
        let places = places.collect::<Vec<_>>();
        let above = plot(places).with_tooltip_labels(tips);
        let both = [(own.is_empty(), plot(own)), (with_tips.is_empty(), above)];
        both.into_iter()
            .filter(|(is_empty, _)| !is_empty)
            .map(|(_, plot)| Plot::Scatter(plot))
    });
    let mut plots = plots.collect::<Vec<_>>();
    if plots.is_empty() {
        return None;
    }
    // Large points on an axis would be cut, and so would names above the highest ones; an axis of
    // one value would repeat its label.
    let has_names = named.iter().any(|one| !one.label.is_empty());
    let margin = if has_names { 0.1 } else { 0.04 };
    let [x, y] = [0, 1].map(|axis| {
        let values = || points.iter().map(|(at, _)| at[axis]);
        let [low, high] = range(values());
        match constant(values()) {
            Some(x) => [x - 1.0, x + 1.0],
            None => [low - margin * (high - low), high + margin * (high - low)],
        }
    });
    plots.extend(names([x, y], named));
    let is_known = |centre: &&([f64; 2], String)| centre.0.iter().all(|x| x.is_finite());
    let centres = centres.iter().filter(is_known).collect::<Vec<_>>();
    if !centres.is_empty() {
        let plot = ScatterPlot::new()
            .with_data(centres.iter().map(|(at, _)| (at[0], at[1])))
            .with_color(style::INK)
            .with_marker(MarkerShape::Plus)
            .with_size(7.0)
            .with_marker_stroke_width(2.0)
            .with_tooltip_labels(centres.iter().map(|(_, text)| tip(text)));
        plots.push(Plot::Scatter(plot));
    }
    let mut layout = around(&plots, labels).with_height(WIDTH * 0.8);
    layout = layout.with_x_axis_min(x[0]).with_x_axis_max(x[1]);
    layout = layout.with_y_axis_min(y[0]).with_y_axis_max(y[1]);
    if sets.len() > 1 {
        layout = with_sets(layout, &sets);
    }
    Some(draw(plots, layout))
}

/// The area inside the axes of a cloud, in pixels, with some space to spare.
const AREA: [f64; 2] = [300.0, 190.0];

/// The points of a set that have names, those of one pixel together.
fn by_pixel(
    named: &[NamedPoint],
    set: i64,
    pixel: impl Fn([f64; 2]) -> [i64; 2],
) -> Vec<Vec<&NamedPoint>> {
    let mut groups: Vec<Vec<&NamedPoint>> = Vec::new();
    let mut known = HashMap::new();
    let finite = |one: &&NamedPoint| one.set == set && one.at.iter().all(|x| x.is_finite());
    for one in named.iter().filter(finite) {
        let group = *known.entry(pixel(one.at)).or_insert(groups.len());
        if group == groups.len() {
            groups.push(Vec::new());
        }
        groups[group].push(one);
    }
    groups
}

/// The names of points that have space between the ends of the axes: a plot of invisible points.
fn names(ranges: [[f64; 2]; 2], named: &[NamedPoint]) -> Option<Plot> {
    let place = |at: [f64; 2]| {
        let [x, y] = [0, 1].map(|axis| {
            let [low, high] = ranges[axis];
            (at[axis] - low) / (high - low).max(f64::MIN_POSITIVE)
        });
        [x * AREA[0], (1.0 - y) * AREA[1]]
    };
    let finite = |one: &&NamedPoint| one.at.iter().all(|x| x.is_finite());
    let named = named.iter().filter(finite).collect::<Vec<_>>();
    let places = named.iter().map(|one| place(one.at)).collect::<Vec<_>>();
    let labels = named
        .iter()
        .map(|one| one.label.clone())
        .collect::<Vec<_>>();
    let kept = apart(&places, &labels, AREA);
    if kept.is_empty() {
        return None;
    }
    let own = kept.iter().map(|at| (named[*at].at[0], named[*at].at[1]));
    let plot = ScatterPlot::new()
        .with_data(own.collect::<Vec<_>>())
        .with_size(0.0)
        .with_labels(kept.iter().map(|at| style::label(&labels[*at])))
        .with_label_style(LabelStyle::Exact);
    Some(Plot::Scatter(plot))
}

/// The smallest and the largest of some numbers.
fn range(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let values = values.filter(|x| x.is_finite());
    values.fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], x| {
        [low.min(x), high.max(x)]
    })
}

/// The only one of some numbers, up to rounding.
pub(crate) fn constant(values: impl Iterator<Item = f64>) -> Option<f64> {
    let [low, high] = range(values);
    (high - low <= 1e-9 * low.abs().max(high.abs())).then_some(low)
}

/// The pixel of a point. Two points of a set in one pixel look like one.
fn pixels(points: &[([f64; 2], i64)]) -> impl Fn([f64; 2]) -> [i64; 2] {
    let ranges = [0, 1].map(|axis| range(points.iter().map(|(at, _)| at[axis])));
    move |at| {
        [0, 1].map(|axis| {
            let [low, high] = ranges[axis];
            ((at[axis] - low) / (high - low).max(f64::MIN_POSITIVE) * WIDTH) as i64
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of an attribute of the first element after a text of a picture.
    fn attribute(svg: &str, after: &str, name: &str) -> f64 {
        let (_, rest) = svg
            .split_once(after)
            .unwrap_or_else(|| panic!("{after}: {svg}"));
        let (_, rest) = rest.split_once(&format!(" {name}=\"")).expect(name);
        let (number, _) = rest.split_once('"').expect("the end of an attribute");
        number.parse().expect("a number")
    }

    /// The height of the middle of a name beside the first axis.
    fn name_at(svg: &str, name: &str) -> f64 {
        let end = format!(" text-anchor=\"end\">{name}</text>");
        let (before, _) = svg
            .split_once(&end)
            .unwrap_or_else(|| panic!("{name}: {svg}"));
        let (_, element) = before.rsplit_once("<text").expect("a text");
        // The baseline is below the middle.
        attribute(element, "", "y") - 4.0
    }

    /// The height of the middle of the rectangle with a tooltip.
    fn middle(svg: &str, tip: &str) -> f64 {
        let title = format!("<title>{tip}</title>");
        attribute(svg, &title, "y") + attribute(svg, &title, "height") / 2.0
    }

    /// Fourteen classes, each in a cluster of its own: more than numbers have space for.
    #[test]
    fn names_of_many_rows_are_beside_their_cells() {
        let rows = (0..14).map(|i| (0..14).map(|j| f64::from(i == j)).collect());
        let rows = rows.collect::<Vec<Vec<f64>>>();
        let classes = (0..14).map(|i| format!("class {i}")).collect::<Vec<_>>();
        let sets = (0..14).map(style::set_name).collect::<Vec<_>>();
        let svg = matrix(&rows, [&classes, &sets], ["cluster", "given class"]);
        let svg = svg.expect("a picture");
        for i in 0..14 {
            let cell = middle(&svg, &format!("class {i} → set {i}: 1"));
            let name = name_at(&svg, &format!("class {i}"));
            assert!((cell - name).abs() < 3.0, "class {i}: {name} beside {cell}");
        }
        assert!(name_at(&svg, "class 0") < name_at(&svg, "class 13"));
    }

    /// Ids of 30 characters that differ at their ends alone.
    #[test]
    fn bars_with_long_names_are_beside_them() {
        let name = |at: usize| format!("a-common-beginning-of-ids-{at:04}");
        let bar = |at: usize| Bar {
            name: name(at),
            value: 1.0 + at as f64,
            colour: style::set_colour(0),
            tip: format!("bar {at}"),
        };
        let svg = bars(
            &(0..15).map(bar).collect::<Vec<_>>(),
            ["trajectory", "error"],
        );
        let svg = svg.expect("a picture");
        for at in 0..15 {
            // The first 7 and the last 16 characters.
            let shown = format!("a-commo…ning-of-ids-{at:04}");
            let [bar, name] = [middle(&svg, &format!("bar {at}")), name_at(&svg, &shown)];
            assert!((bar - name).abs() < 4.0, "{at}: {name} beside {bar}");
        }
        let lengths = [0, 14].map(|at| format!("<title>bar {at}</title>"));
        let [first, last] = lengths.map(|title| attribute(&svg, &title, "width"));
        assert!((last / first - 15.0).abs() < 0.1, "{first} and {last}");
    }

    /// Names of one digit are below their bars.
    #[test]
    fn bars_with_short_names_are_above_them() {
        let bar = |at: usize| Bar {
            name: at.to_string(),
            value: 1.0 + at as f64,
            colour: style::set_colour(0),
            tip: format!("bar {at}"),
        };
        let svg = bars(&[bar(0), bar(1)], ["set", "states"]).expect("a picture");
        let heights = [0, 1].map(|at| format!("<title>bar {at}</title>"));
        let [first, second] = heights.map(|title| attribute(&svg, &title, "height"));
        assert!((second / first - 2.0).abs() < 0.01, "{first} and {second}");
    }
}
