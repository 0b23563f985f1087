//! One picture: an SVG with a title, a description and what it must not be taken for.

use crate::error::escaped;
use crate::report::style;
use kuva::backend::svg::SvgBackend;
use kuva::plot::legend::{LegendEntry, LegendPosition, LegendShape};
use kuva::plot::scatter::ScatterPlot;
use kuva::render::layout::{ComputedLayout, Layout};
use kuva::render::plots::Plot;
use kuva::render::render::{PathData, Primitive, Scene, render_multiple};
use std::fmt::Write;

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
    svg(&render_multiple(plots, layout))
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
}

/// Draws rectangles of few colours as one path per set, each with a tooltip.
pub(crate) fn mosaic(cells: &[Cell], layout: Layout, tip: impl Fn(i64) -> String) -> String {
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
        let mut path = String::new();
        for cell in cells.iter().filter(|cell| cell.set == set) {
            let (left, right) = (computed.map_x(cell.x[0]), computed.map_x(cell.x[1]));
            let (low, high) = (computed.map_y(cell.y[0]), computed.map_y(cell.y[1]));
            // Writing to a string cannot fail.
            let _ = write!(path, "M{left:.1} {high:.1}H{right:.1}V{low:.1}H{left:.1}z");
        }
        let colour = style::set_colour(set);
        scene.add(Primitive::GroupStart {
            transform: None,
            title: Some(tip(set)),
            extra_attrs: None,
        });
        scene.add(Primitive::Path(Box::new(PathData {
            d: path,
            fill: Some(colour.as_str().into()),
            stroke: colour.as_str().into(),
            // Covers the seams between rectangles.
            stroke_width: 0.2,
            opacity: None,
            stroke_dasharray: None,
        })));
        scene.add(Primitive::GroupEnd);
    }
    svg(&scene)
}

fn svg(scene: &Scene) -> String {
    let drawn = SvgBackend::new().with_pretty(false).render_scene(scene);
    let drawn = drawn.replace("<!-- Generated by kuva 0.6.0 -->", "");
    // The width follows the page.
    let size = format!("viewBox=\"0 0 {} {}\" ", scene.width, scene.height);
    if drawn.contains("viewBox") {
        drawn
    } else {
        drawn.replacen("<svg ", &format!("<svg {size}"), 1)
    }
}
