//! What changed since an earlier result: an alluvial picture of the sets.

use crate::error::Result;
use crate::report::figure::{Figure, HEIGHT, draw, layout};
use crate::report::model::{Model, column};
use crate::report::style::{label, number, set_colour};
use kuva::plot::sankey::SankeyPlot;
use kuva::render::plots::Plot;
use polars::prelude::{DataType, JoinArgs, JoinType, lit};

/// At most this number of streams.
const MOST: usize = 60;

const CAPTION: &str = "Streams lead from the sets of the earlier result (left) to the sets of \
    this one (right). Their width is the number of transitions of this result from the states \
    that both sets have. New states and states that are gone are left out, so the picture \
    misleads when there are many of them.";

/// One picture per fit that both results have.
///
/// # Errors
/// If `sources` of one of the results cannot be read.
pub(crate) fn figures(
    model: &Model<'_>,
    earlier: &Model<'_>,
    fits: &[String],
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    let (now, before) = (model.columns("sources")?, earlier.columns("sources")?);
    let n_keys = model.keys.len();
    // The columns between the keys of the model and the count name a state.
    let states = now.iter().skip(n_keys).take_while(|name| *name != "count");
    let states = states.cloned().collect::<Vec<_>>();
    for fit in fits {
        let set = format!("{fit}_affiliation");
        let known = |columns: &[String]| {
            columns.contains(&set) && states.iter().all(|name| columns.contains(name))
        };
        if !states.is_empty() && known(&now) && known(&before) {
            figures.extend(of_fit(model, earlier, &states, fit)?);
        }
    }
    Ok(figures)
}

fn of_fit(
    model: &Model<'_>,
    earlier: &Model<'_>,
    states: &[String],
    fit: &str,
) -> Result<Option<Figure>> {
    let set = format!("{fit}_affiliation");
    let keys = || states.iter().map(|name| column(name)).collect::<Vec<_>>();
    let side = |model: &Model<'_>, name: &str| {
        let own = column(&set).cast(DataType::Int64).fill_null(lit(-1));
        let mut wanted = keys();
        wanted.extend([own.alias(name), column("count").cast(DataType::Float64)]);
        Ok::<_, crate::Error>(model.scan("sources")?.select(wanted))
    };
    let (now, before) = (side(model, "now")?, side(earlier, "before")?);
    let joined = now.join(before, keys(), keys(), JoinArgs::new(JoinType::Inner));
    let flows = joined
        .group_by([column("before"), column("now")])
        .agg([column("count").sum()])
        .sort(["before", "now"], Default::default());
    let rows = model.collect("sources", flows)?;
    let (before, now, counts) = (rows.sets("before"), rows.sets("now"), rows.floats("count"));
    if rows.is_empty() || rows.len() > MOST {
        return Ok(None);
    }
    let mut plot = SankeyPlot::new().with_node_gap(6.0);
    let name = |side: &str, set: i64| match set {
        ..0 => format!("{side} none"),
        _ => format!("{side} {set}"),
    };
    for at in 0..rows.len() {
        let (from, to) = (name("was", before[at]), name("is", now[at]));
        let colour = set_colour(now[at]);
        plot = plot
            .with_node_color(from.as_str(), set_colour(before[at]))
            .with_node_color(to.as_str(), colour.as_str())
            .with_link_colored(from, to, counts[at], colour);
    }
    let moved = (0..rows.len()).filter(|at| before[*at] != now[*at]);
    let moved = moved.map(|at| counts[at]).sum::<f64>();
    let [moved, all] = [moved, counts.iter().sum::<f64>()].map(number);
    let alt = format!(
        "Streams between the sets of {fit} in the earlier result and in this one. {moved} of {all} \
         transitions start in a state whose set has another number."
    );
    let plain = layout((0.0, 1.0), (0.0, 1.0), ["", ""]).with_height(HEIGHT);
    let svg = draw(vec![Plot::Sankey(plot)], plain);
    let title = format!("{}: what changed", label(fit));
    let figure = Figure::new(["changes", fit], &title, &alt, CAPTION, svg);
    Ok(Some(figure))
}
