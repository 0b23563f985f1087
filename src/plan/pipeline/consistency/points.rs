//! Checks of rows with coordinates: points without time, pairs of points, and pairs to score.

use crate::error::{Result, counted};
use crate::plan::pipeline::consistency::errors::not_blank;
use crate::plan::pipeline::consistency::rows::{interval, lags, time_and_lag};
use crate::plan::pipeline::content::Input;
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::keys::{Densities, PointsText, TransitionsText, Window};
use crate::read::rows::coordinates::Scale;

/// Points without time.
pub(super) fn points(text: PointsText, document: &Document<'_>) -> Result<Input> {
    Ok(Input::Points {
        id: text.id,
        scale: scale("points", text.scale.0, &text.coordinates, document)?,
        coordinates: text.coordinates,
        weight: text.weight,
    })
}

/// Rows of trajectories with coordinates.
pub(super) fn point_pairs(mut text: TransitionsText, document: &Document<'_>) -> Result<Input> {
    let (time, times) = time_and_lag(&mut text, document)?;
    let fail = |key: &str, message: &str| Err(document.error_at(&["transitions", key], message));
    if !text.state.is_empty() || !text.bins.0.is_empty() {
        let key = if text.state.is_empty() {
            "bins"
        } else {
            "state"
        };
        return fail(
            key,
            "`transitions.coordinates` is in place of `state` and `bins`; keep one of them",
        );
    }
    if text.connected {
        let what = "is about states, and points have none";
        return document.wrong(&["transitions", "connected"], what);
    }
    lags(&text.lag, document)?;
    let window = text.window.unwrap_or_default();
    if window == Window::Effective {
        return fail(
            "window",
            "`window = \"effective\"` divides counts, and points are not counted; use \"sliding\" or \"strided\"",
        );
    }
    interval(window, &text.lag, text.interval.as_ref(), document)?;
    Ok(Input::PointPairs {
        trajectory: text.trajectory,
        time,
        times,
        scale: scale("transitions", text.scale.0, &text.coordinates, document)?,
        coordinates: text.coordinates,
        weight: text.weight,
        lags: text.lag,
        window,
    })
}

/// Checks that the numbers of `scale` are positive and belong to coordinates.
fn scale(
    section: &str,
    scale: Scale,
    coordinates: &[String],
    document: &Document<'_>,
) -> Result<Scale> {
    let Scale::By(divisors) = &scale else {
        return Ok(scale);
    };
    for (column, divisor) in divisors {
        let fault = if !coordinates.contains(column) {
            "is no column of `coordinates`".to_string()
        } else if *divisor > 0.0 && divisor.is_finite() {
            continue;
        } else {
            format!("must be positive and finite, not {divisor}")
        };
        return document.wrong(&[section, "scale", column], fault);
    }
    Ok(scale)
}

/// Checks the section `[densities]` of pairs of points. Other rows have an error of their own.
pub(super) fn densities(keys: &Densities, input: &Input, document: &Document<'_>) -> Result<()> {
    let Input::PointPairs { coordinates, .. } = input else {
        return Ok(());
    };
    not_blank(&keys.sql, &["densities", "sql"], document)?;
    for (key, columns) in [("from", &keys.from), ("to", &keys.to)] {
        if columns.len() != coordinates.len() {
            let what = format!(
                "names {}, but `transitions.coordinates` names {}; keep one per coordinate, in the same order",
                counted(columns.len(), "column"),
                counted(coordinates.len(), "column")
            );
            return document.wrong(&["densities", key], what);
        }
    }
    let all: Vec<&String> = keys.from.iter().chain(&keys.to).collect();
    let is_repeated = |(at, name): &(usize, &&String)| all[..*at].contains(*name);
    if let Some((_, name)) = all.iter().enumerate().find(is_repeated) {
        let message = format!(
            "`[densities]` names the column `{name}` twice; select it twice in the SQL, with two names"
        );
        return Err(document.error_at(&["densities", "to"], &message));
    }
    Ok(())
}
