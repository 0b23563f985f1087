//! Checks of rows with symbols, and of the fits to them.

use crate::error::Result;
use crate::methods::{AnyMethod, SymbolMethod};
use crate::plan::pipeline::consistency::rows::{TimeTexts, bins};
use crate::plan::pipeline::content::Input;
use crate::plan::pipeline::document::Document;
use crate::plan::pipeline::fits::FitEntry;
use crate::plan::pipeline::keys::SequencesText;

/// Rows with symbols.
pub(super) fn symbols(text: SequencesText, document: &Document<'_>) -> Result<Input> {
    let hidden = "cannot be used with `symbol`: the states of a hidden Markov model are not given; for filters, give `state` and `observation` in place of `symbol` and `bins`";
    let ordered = "cannot be used with `symbol`: rows with symbols follow each other in time; name the column of a trajectory as `sequences.trajectory`";
    for (key, names, what) in [
        ("state", &text.state, hidden),
        ("observation", &text.observation, hidden),
        ("id", &text.id, ordered),
    ] {
        if !names.is_empty() {
            return document.wrong(&["sequences", key], what);
        }
    }
    let (time, times) = TimeTexts {
        time: text.time,
        duplicates: text.duplicates,
        max_gap: text.max_gap,
        tolerance: text.tolerance,
        interval: text.interval.clone(),
        fitted: ("interval", text.interval.iter().cloned().collect()),
    }
    .checked("sequences", document)?;
    Ok(Input::Symbols {
        trajectory: text.trajectory,
        time,
        times,
        interval: text.interval,
        symbol: text.symbol,
        bins: bins("sequences", text.bins, document)?,
        weight: text.weight,
        split: text.split,
    })
}

/// Checks that there are rows to hold out if a rank is chosen by them.
pub(super) fn held_out(
    fits: &[FitEntry<AnyMethod>],
    has_folds: bool,
    input: &Input,
    document: &Document<'_>,
) -> Result<()> {
    let Input::Symbols {
        trajectory, split, ..
    } = input
    else {
        return Ok(());
    };
    // The folds have an error of their own.
    if split.is_some() || !trajectory.is_empty() || has_folds {
        return Ok(());
    }
    let is_auto = |fit: &FitEntry<AnyMethod>| {
        fit.rule.is_some() && matches!(fit.method, AnyMethod::OfSymbols(_))
    };
    let Some(n) = fits.iter().position(is_auto) else {
        return Ok(());
    };
    let message = format!(
        "`fit.{}.rank` = \"auto\" scores ranks by rows that are held out; mark rows with `sequences.split`, or name the column `sequences.trajectory` for folds of trajectories",
        fits[n].name
    );
    Err(document.error_at(&["fit", &n.to_string(), "rank"], &message))
}

/// Checks that all fits count the same windows.
pub(super) fn one_window(fits: &[FitEntry<AnyMethod>], document: &Document<'_>) -> Result<()> {
    let own = |fit: &FitEntry<AnyMethod>| match &fit.method {
        AnyMethod::OfSymbols(SymbolMethod::SpectralHmm(own)) => Some((own.block, own.windows)),
        _ => None,
    };
    let mut fits = fits.iter().enumerate();
    let first = fits.find_map(|(_, fit)| Some((fit, own(fit)?)));
    let Some((first, (block, windows))) = first else {
        return Ok(());
    };
    for (n, fit) in fits {
        let key = match own(fit) {
            Some(other) if other.0 != block => "block",
            Some(other) if other.1 != windows => "windows",
            _ => continue,
        };
        let message = format!(
            "the fits `{}` and `{}` have different `{key}`, but the windows of a pipeline are counted once; write two pipeline files, or give both fits the same `{key}`",
            first.name, fit.name
        );
        return Err(document.error_at(&["fit", &n.to_string(), key], &message));
    }
    Ok(())
}
