//! One picture: an SVG with a title, a description and what it must not be taken for.

use crate::error::escaped;
use crate::report::style;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::scatter::ScatterPlot;
use kuva::render::layout::{ComputedLayout, Layout, TickFormat};
use kuva::render::plots::Plot;
use kuva::render::render::{PathData, Primitive, Scene, render_multiple};
use kuva::render::render_utils::{generate_ticks, generate_ticks_with_step};
use std::fmt::Write;
use std::sync::Arc;

/// Width of a figure in pixels, so that its text can be read on a telephone.
pub(crate) const WIDTH: f64 = 420.0;

/// Height of most figures.
pub(crate) const HEIGHT: f64 = 300.0;

/// A picture of a result.
pub(crate) struct Figure {
    /// Name for a file: letters, digits, `-` and `_`.
    pub name: String,
    /// What is drawn.
    pub title: String,
    /// What the picture shows, for people who cannot see it.
    pub alt: String,
    /// How to read the picture, and how it misleads.
    pub caption: &'static str,
    /// The drawing, in colours of [`style`].
    pub svg: String,
}

impl Figure {
    /// Names a drawing.
    pub(crate) fn new(
        [kind, of]: [&str; 2],
        title: &str,
        alt: &str,
        caption: &'static str,
        svg: String,
    ) -> Figure {
        Figure {
            name: style::file_name(&format!("{kind}-{of}")),
            title: escaped(title),
            alt: escaped(alt),
            caption,
            svg,
        }
    }

    /// The drawing as a file of its own, in fixed colours on white.
    pub(crate) fn standalone(&self) -> String {
        let paper = "height=\"100%\" fill=\"#ffffff\"";
        let svg = style::fixed(&self.svg).replacen("height=\"100%\" fill=\"none\"", paper, 1);
        let (head, rest) = svg.split_once('>').unwrap_or((&svg, ""));
        let title = style::escape(&self.title);
        let alt = style::escape(&self.alt);
        format!("{head} role=\"img\"><title>{title}</title><desc>{alt}</desc>{rest}")
    }
}

/// A layout with the theme, the size and the axis labels of a figure.
pub(crate) fn layout(x: (f64, f64), y: (f64, f64), labels: [&str; 2]) -> Layout {
    framed(Layout::new(x, y), labels)
}

/// The layout of a figure around some plots.
pub(crate) fn around(plots: &[Plot], labels: [&str; 2]) -> Layout {
    framed(Layout::auto_from_plots(plots), labels)
}

fn framed(layout: Layout, labels: [&str; 2]) -> Layout {
    layout
        .with_width(WIDTH)
        .with_height(HEIGHT)
        .with_theme(style::theme())
        .with_x_label(style::label(labels[0]))
        .with_y_label(style::label(labels[1]))
        .with_tick_size(11)
        .with_label_size(12)
        .with_body_size(11)
}

/// Draws plots.
pub(crate) fn draw(plots: Vec<Plot>, layout: Layout) -> String {
    svg(&render_multiple(plots, with_digits(layout)))
}

/// A layout whose ticks have the digits by which they differ: three decimals are too few for
/// numbers that are close together.
fn with_digits(mut layout: Layout) -> Layout {
    let computed = ComputedLayout::from_layout(&layout);
    let ticks = |range: (f64, f64), step: Option<f64>, n: usize| match step {
        Some(step) => generate_ticks_with_step(range.0, range.1, step),
        None => generate_ticks(range.0, range.1, n),
    };
    let x = ticks(computed.x_range, computed.x_tick_step, computed.x_ticks);
    let y = ticks(computed.y_range, computed.y_tick_step, computed.y_ticks);
    if !layout.log_x
        && layout.x_categories.is_none()
        && let Some(format) = format_of(&x)
    {
        layout = layout.with_x_tick_format(format);
    }
    if !layout.log_y
        && layout.y_categories.is_none()
        && let Some(format) = format_of(&y)
    {
        layout = layout.with_y_tick_format(format);
    }
    layout
}

/// The format of ticks that the usual one would not show to a tenth of their distance.
fn format_of(ticks: &[f64]) -> Option<TickFormat> {
    let step = ticks.get(1)? - ticks.first()?;
    let is_near = |tick: &f64| {
        let shown = TickFormat::Auto.format(*tick);
        let is_short = shown.len() <= 8;
        is_short
            && shown
                .parse::<f64>()
                .is_ok_and(|x| (x - tick).abs() <= step / 10.0)
    };
    if step <= 0.0 || ticks.iter().all(is_near) {
        return None;
    }
    let digits = (1.0 - step.log10().floor()).max(0.0) as usize;
    Some(match digits {
        0..=9 => TickFormat::Custom(Arc::new(move |tick: f64| decimals(tick, digits))),
        _ => TickFormat::Custom(Arc::new(|tick: f64| format!("{tick:.3e}"))),
    })
}

/// A number with at most some decimals.
fn decimals(x: f64, digits: usize) -> String {
    let text = format!("{x:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_string()
    } else {
        text
    }
}

/// The legend of numbered sets below a figure.
pub(crate) fn with_sets(layout: Layout, sets: &[i64]) -> Layout {
    let entry = |set: &i64| LegendEntry {
        label: style::set_name(*set),
        color: style::set_colour(*set),
        shape: LegendShape::Rect,
        dasharray: None,
    };
    with_entries(layout, sets.iter().take(24).map(entry).collect())
}

/// A legend below a figure.
pub(crate) fn with_entries(layout: Layout, entries: Vec<LegendEntry>) -> Layout {
    layout
        .with_legend_entries(entries)
        .with_legend_position(LegendPosition::OutsideBottomColumns)
        .with_legend_box(false)
}

/// A rectangle in the units of the axes, with the index of its colour.
#[derive(Clone, Copy)]
pub(crate) struct Cell {
    /// Left and right border.
    pub x: [f64; 2],
    /// Lower and upper border.
    pub y: [f64; 2],
    /// The set.
    pub set: i64,
    /// How faint its colour is: an index of [`OPACITIES`].
    pub level: usize,
}

/// How opaque rectangles are, from those with much weight to those with little.
pub(crate) const OPACITIES: [f64; 4] = [1.0, 0.75, 0.5, 0.3];

/// Draws rectangles of few colours as one path per set and level, with a tooltip per set.
pub(crate) fn mosaic(cells: &[Cell], layout: Layout, tip: impl Fn(i64) -> String) -> String {
    let layout = with_digits(layout);
    let computed = ComputedLayout::from_layout(&layout);
    // Axes are drawn around plots only.
    let corners = [layout.x_range, layout.y_range];
    let corners = [(corners[0].0, corners[1].0), (corners[0].1, corners[1].1)];
    let none = ScatterPlot::new().with_data(corners).with_size(0.0);
    let mut scene = render_multiple(vec![Plot::Scatter(none)], layout);
    let mut sets = cells.iter().map(|cell| cell.set).collect::<Vec<_>>();
    sets.sort_unstable();
    sets.dedup();
    for set in sets {
        scene.add(Primitive::GroupStart {
            transform: None,
            title: Some(tip(set)),
            extra_attrs: None,
        });
        for (level, opacity) in OPACITIES.iter().enumerate() {
            let mut path = String::new();
            let own = |cell: &&Cell| cell.set == set && cell.level == level;
            for cell in cells.iter().filter(own) {
                let (left, right) = (computed.map_x(cell.x[0]), computed.map_x(cell.x[1]));
                let (low, high) = (computed.map_y(cell.y[0]), computed.map_y(cell.y[1]));
                // Writing to a string cannot fail.
                let _ = write!(path, "M{left:.1} {high:.1}H{right:.1}V{low:.1}H{left:.1}z");
            }
            if path.is_empty() {
                continue;
            }
            let colour = style::set_colour(set);
            // The stroke covers the seams between rectangles. Faint ones would show it.
            let is_full = level == 0;
            scene.add(Primitive::Path(Box::new(PathData {
                d: path,
                fill: Some(colour.as_str().into()),
                stroke: colour.as_str().into(),
                stroke_width: if is_full { 0.2 } else { 0.0 },
                opacity: (!is_full).then_some(*opacity),
                stroke_dasharray: None,
            })));
        }
        scene.add(Primitive::GroupEnd);
    }
    svg(&scene)
}

fn svg(scene: &Scene) -> String {
    let drawn = SvgBackend::new().with_pretty(false).render_scene(scene);
    let drawn = with_own_ids(&drawn.replace("<!-- Generated by kuva 0.6.0 -->", ""));
    // The width follows the page.
    let size = format!("viewBox=\"0 0 {} {}\" ", scene.width, scene.height);
    if drawn.contains("viewBox") {
        drawn
    } else {
        drawn.replacen("<svg ", &format!("<svg {size}"), 1)
    }
}

/// A drawing whose ids are counted from 0. Kuva counts the drawings of a process in them, so that
/// two drawings of the same numbers would differ.
fn with_own_ids(drawn: &str) -> String {
    let mut out = drawn.to_string();
    let ids = drawn.split("id=\"kuva-clip-").skip(1);
    let ids = ids.filter_map(|rest| Some(rest.split_once('"')?.0));
    for (at, id) in ids.enumerate() {
        out = out.replace(&format!("\"kuva-clip-{id}\""), &format!("\"clip-{at}\""));
        out = out.replace(&format!("#kuva-clip-{id})"), &format!("#clip-{at})"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_counts_its_own_ids() {
        let drawn = |a: u8, b: u8| {
            format!(
                "<clipPath id=\"kuva-clip-{a}\"/><g clip-path=\"url(#kuva-clip-{a})\"/>\
                 <clipPath id=\"kuva-clip-{b}\"/><g clip-path=\"url(#kuva-clip-{b})\"/>"
            )
        };
        let own = with_own_ids(&drawn(1, 10));
        assert_eq!(own, with_own_ids(&drawn(7, 2)));
        assert_eq!(own, drawn(0, 1).replace("kuva-", ""));
    }

    #[test]
    fn ticks_that_are_close_have_more_digits() {
        let shown = |ticks: &[f64]| {
            let format = format_of(ticks).unwrap_or(TickFormat::Auto);
            let texts = ticks.iter().map(|tick| format.format(*tick));
            texts.collect::<Vec<_>>()
        };
        assert_eq!(shown(&[0.0, 0.5, 1.0]), ["0", "0.5", "1"]);
        assert!(format_of(&[0.0, 0.05, 0.1]).is_none());
        let close = [0.0431, 0.0432, 0.0433];
        assert_eq!(shown(&close), ["0.0431", "0.0432", "0.0433"]);
        let close = [12.3451, 12.3452, 12.3453];
        assert_eq!(shown(&close), ["12.3451", "12.3452", "12.3453"]);
        // One tick has no distance.
        assert!(format_of(&[0.0431]).is_none());
    }
}
