//! The answer that a page begins with: a few sentences made from the numbers of a result.

use crate::assess::thin_sets::thin_sets;
use crate::error::{Result, counted};
use crate::report::facts::warnings;
use crate::report::model::{Model, ResultRows};
use crate::report::style::{listed, number, short};
use serde_json::Value;
use std::collections::BTreeMap;

/// What a page says before it shows anything.
#[derive(Default)]
pub(crate) struct Answer {
    /// What was found, one sentence each.
    pub sentences: Vec<String>,
    /// What makes it doubtful.
    pub warnings: Vec<String>,
    /// The fit to look at first.
    pub fit: Option<String>,
}

/// At most this number of sets with a number each.
const MOST_SETS: usize = 6;

/// At most this number of warnings.
const MOST_WARNINGS: usize = 12;

/// What the record says of the whole run.
pub(crate) fn of_run(record: &Value) -> Answer {
    let mut answer = Answer::default();
    if let Some(rows) = record["rows_read"].as_f64() {
        let read = counted(number(rows), "row");
        let reasons = record["rows_dropped"].as_object().into_iter().flatten();
        let dropped = reasons.filter_map(|(_, n)| n.as_f64()).sum::<f64>();
        answer.sentences.push(match dropped {
            n if n > 0.0 => format!("{read} were read, and {} of them dropped.", number(n)),
            _ => format!("{read} were read."),
        });
    }
    let texts = |key: &str| {
        let all = record[key].as_array().into_iter().flatten();
        all.filter_map(Value::as_str).map(str::to_string)
    };
    answer.warnings.extend(texts("warnings"));
    let checks = record["checks"].as_array().into_iter().flatten();
    let failed = checks.filter(|check| check["passed"] == false);
    let failed = failed.filter_map(|check| check["name"].as_str());
    let failed = failed.map(|name| format!("the check {name} failed"));
    answer.warnings.extend(failed);
    let failures = record["failures"].as_array().map_or(0, Vec::len);
    if failures > 0 {
        let what = counted(failures, "model");
        answer.warnings.push(format!("{what} could not be fitted"));
    }
    answer.warnings.truncate(MOST_WARNINGS);
    answer
}

/// What the tables say of one model.
///
/// # Errors
/// If a table cannot be read.
pub(crate) fn of_model(model: &Model<'_>) -> Result<Answer> {
    let candidates = candidates(model)?;
    let mut answer = Answer::default();
    answer.sentences.extend(evidence(model)?);
    if let Some((at, why)) = choice(&candidates) {
        let best = &candidates[at];
        let name = short(&best.name, 60);
        let rank = best.numbers.get("rank").filter(|rank| rank.is_finite());
        let rank = rank.map(|rank| format!(" (rank {})", number(*rank)));
        let rank = rank.unwrap_or_default();
        let sentence = format!("Look at {name}{rank} first: {why}.");
        answer.sentences.push(sentence);
        answer.sentences.extend(quality(model, &best.name)?);
        answer.fit = Some(best.name.clone());
    }
    for (fit, own) in warnings(model)? {
        let fit = short(&fit, 60);
        let own = own.into_iter().map(|warning| format!("{fit}: {warning}"));
        answer.warnings.extend(own);
    }
    if answer.warnings.is_empty() && !candidates.is_empty() {
        let sentence = "No fit has a warning.";
        answer.sentences.push(sentence.to_string());
    }
    let more = answer.warnings.len().saturating_sub(MOST_WARNINGS);
    answer.warnings.truncate(MOST_WARNINGS);
    if more > 0 {
        let what = format!("{more} more are in the table of the fits");
        answer.warnings.push(what);
    }
    Ok(answer)
}

/// What the fits of a model were made from.
fn evidence(model: &Model<'_>) -> Result<Option<String>> {
    let columns = [
        "transitions",
        "n_sources",
        "n_targets",
        "triples",
        "n_symbols",
        "points",
        "kernel_points",
        "dimension",
        "test_rows",
    ];
    let fits = model.rows("fits", &columns)?;
    let largest = |name: &str| {
        let all = fits.floats(name).into_iter();
        all.filter(|x| x.is_finite()).reduce(f64::max)
    };
    let count = |n: f64, what: &str| counted(number(n), what);
    let lag = model.keys.iter().find(|(name, _)| name == "lag");
    let lag = lag.and_then(|(_, lag)| lag.as_ref());
    let lag = lag.map(|lag| format!(" at lag {}", short(lag, 40)));
    let lag = lag.unwrap_or_default();
    let sentence = match (
        largest("transitions"),
        largest("n_sources"),
        largest("n_targets"),
    ) {
        (Some(n), Some(from), Some(to)) => {
            let states = if from.to_bits() == to.to_bits() {
                format!("between {}", count(from, "state"))
            } else {
                format!("from {} to {}", count(from, "source"), count(to, "target"))
            };
            Some(format!(
                "The fits are to {}{lag} {states}.",
                count(n, "transition")
            ))
        }
        (Some(n), ..) if largest("test_rows").is_some() || model.has("estimates") => {
            let rows = model.rows("trajectories", &["rows"])?.floats("rows");
            let all = rows.iter().sum::<f64>();
            let filtered = match rows.len() {
                0 => String::new(),
                k => format!(
                    ", and filtered {} in {}",
                    count(all, "row"),
                    counted(number(k as f64), "trajectory")
                ),
            };
            Some(format!(
                "The fits are to {}{filtered}.",
                count(n, "training row")
            ))
        }
        _ => match (largest("triples"), largest("n_symbols")) {
            (Some(n), Some(symbols)) => Some(format!(
                "The fits are to {} of {}.",
                count(n, "window"),
                count(symbols, "symbol")
            )),
            _ => {
                let n = largest("points").or(largest("kernel_points"));
                let width = largest("dimension").map(|d| count(d, "coordinate"));
                n.map(|n| {
                    let width = width.map(|width| format!(" with {width}"));
                    let width = width.unwrap_or_default();
                    format!("The fits are to {}{width}{lag}.", count(n, "point"))
                })
            }
        },
    };
    Ok(sentence)
}

/// A fit that can be the one to look at.
struct Candidate {
    name: String,
    /// Its numbers, by the names of their columns.
    numbers: BTreeMap<&'static str, f64>,
    /// Whether a set holds hardly any transition.
    is_thin: bool,
    /// Why its rank was chosen, if a rule chose it.
    reason: Option<String>,
}

/// A number by which fits are compared, whether the least one is best, and its name.
static CRITERIA: [(&str, bool, &str); 7] = [
    ("test_mse", true, "the least error on test rows"),
    ("mean_log_score", false, "the highest log score"),
    ("held_out", false, "the highest held-out score"),
    ("bic", true, "the lowest BIC"),
    ("log_likelihood", false, "the highest log-likelihood"),
    (
        "misclassification",
        true,
        "the least share of rows outside their given set",
    ),
    ("vamp_2", false, "the highest VAMP-2 score"),
];

/// The first criteria are of rows that a fit has not seen.
const TESTS: usize = 3;

/// The fits of a model with their numbers; those of `ranks` stand beside those of `fits`.
fn candidates(model: &Model<'_>) -> Result<Vec<Candidate>> {
    let criteria = CRITERIA.map(|(column, ..)| column);
    let columns = [&["fit", "rank", "weights"][..], &criteria].concat();
    let rows = model.rows("fits", &columns)?;
    let columns = ["fit", "rank", "bic", "held_out", "is_chosen", "reason"];
    let ranks = model.rows("ranks", &columns)?;
    let (names, weights) = (rows.texts("fit"), rows.lists("weights"));
    let mut all = Vec::new();
    for (at, name) in names.into_iter().enumerate() {
        let name = name.unwrap_or_default();
        let numbers = ["rank"].into_iter().chain(criteria);
        let numbers = numbers.map(|column| (column, rows.floats(column)[at]));
        let mut candidate = Candidate {
            name,
            numbers: numbers.collect(),
            is_thin: !thin_sets(&weights[at]).is_empty(),
            reason: None,
        };
        candidate.take(&ranks);
        all.push(candidate);
    }
    Ok(all)
}

impl Candidate {
    /// Takes the numbers of the own rank.
    fn take(&mut self, ranks: &ResultRows) {
        let rank = self.number("rank");
        let (names, values) = (ranks.texts("fit"), ranks.floats("rank"));
        let own = names.iter().zip(values).position(|(name, r)| {
            let name = name.as_deref().unwrap_or_default();
            let is_own = self.name == name || self.name == format!("{name}_r{rank}");
            is_own && r.to_bits() == rank.to_bits()
        });
        let Some(at) = own else {
            return;
        };
        for column in ["bic", "held_out"] {
            let x = ranks.floats(column)[at];
            if x.is_finite() {
                self.numbers.insert(column, x);
            }
        }
        if ranks.texts("is_chosen")[at].as_deref() == Some("true") {
            let reason = ranks.texts("reason")[at].clone();
            self.reason = Some(reason.unwrap_or_default());
        }
    }

    fn number(&self, name: &str) -> f64 {
        self.numbers.get(name).copied().unwrap_or(f64::NAN)
    }
}

/// The fit to look at first, and why.
fn choice(all: &[Candidate]) -> Option<(usize, String)> {
    let mut left = (0..all.len()).collect::<Vec<_>>();
    if let [only] = left[..] {
        let why = match &all[only].reason {
            Some(reason) if !reason.is_empty() => of_rule(reason),
            _ => "it is the only fit".to_string(),
        };
        return Some((only, why));
    }
    let mut why = Vec::new();
    if all.iter().any(|one| one.is_thin) && all.iter().any(|one| !one.is_thin) {
        left.retain(|at| !all[*at].is_thin);
        why.push("its sets all hold a thousandth of the transitions or more".to_string());
    }
    let is_scored = |at: &usize| {
        let mut numbers = CRITERIA.iter().map(|(column, ..)| all[*at].number(column));
        numbers.any(f64::is_finite)
    };
    // A score on other rows compares any fits. Else a rank that a rule chose comes first.
    let scored = left.iter().copied().filter(is_scored).collect::<Vec<_>>();
    let is_known = |column: &str| scored.iter().all(|at| all[*at].number(column).is_finite());
    let mut tests = CRITERIA[..TESTS].iter();
    let is_tested = !scored.is_empty() && tests.any(|(column, ..)| is_known(column));
    if !is_tested && left.iter().any(|at| all[*at].reason.is_some()) {
        left.retain(|at| all[*at].reason.is_some());
        if let [one] = left[..] {
            let reason = all[one].reason.as_deref().unwrap_or_default();
            why.push(of_rule(reason));
        }
    }
    // Maps have no score, and do not compete.
    left.retain(is_scored);
    if left.len() == 1 && why.is_empty() {
        why.push("it is the only fit with a score".to_string());
    }
    if left.len() > 1 {
        let is_known = |column: &str| left.iter().all(|at| all[*at].number(column).is_finite());
        let known = CRITERIA.iter().find(|(column, ..)| is_known(column));
        let (column, is_least, name) = known?;
        let sign = if *is_least { -1.0 } else { 1.0 };
        let value = |at: &usize| sign * all[*at].number(column);
        // The first of equal ones.
        let best = left.iter().copied().reduce(|best, at| {
            let is_better = value(&at) > value(&best);
            if is_better { at } else { best }
        })?;
        let shown = number(all[best].number(column));
        let n = left.len();
        why.push(format!("it has {name} of {n} fits, {shown}"));
        left = vec![best];
    }
    let best = *left.first()?;
    Some((best, why.join(", and ")))
}

/// Why the rule of the pipeline chose a rank.
fn of_rule(reason: &str) -> String {
    match reason {
        "" => "a rule chose its rank".to_string(),
        reason => format!("a rule chose its rank ({})", short(reason, 160)),
    }
}

/// How well the sets, states or estimates of a fit hold.
fn quality(model: &Model<'_>, fit: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let columns = ["fit", "latent", "target_set", "count", "probability"];
    let coarse = model.rows("coarse", &columns)?.having("fit", fit);
    if !coarse.is_empty() {
        let (from, to) = (coarse.sets("latent"), coarse.sets("target_set"));
        let cells = from.into_iter().zip(to).collect::<Vec<_>>();
        found.extend(kept(
            &cells,
            &coarse.floats("probability"),
            &coarse.floats("count"),
        ));
    }
    let columns = ["fit", "from_state", "to_state", "probability"];
    let hidden = model.rows("hidden_transitions", &columns)?;
    let hidden = hidden.having("fit", fit);
    if hidden.has("from_state") {
        let (from, to) = (hidden.sets("from_state"), hidden.sets("to_state"));
        let stays = from.iter().zip(&to).zip(hidden.floats("probability"));
        let stays = stays.filter(|((from, to), _)| from == to).map(|(_, x)| x);
        found.extend(shares(&stays.collect::<Vec<_>>()).map(|shares| {
            format!("Its hidden states are followed by themselves in {shares} % of the rows.")
        }));
    }
    let columns = ["fit", "weight", "exit_probability"];
    let clusters = model.rows("centroids", &columns)?.having("fit", fit);
    found.extend(shares(&clusters.floats("weight")).map(|weights| {
        let left = shares(&clusters.floats("exit_probability"));
        let left = left.map(|left| format!("; {left} % of the pairs leave them"));
        let left = left.unwrap_or_default();
        format!("Its clusters hold {weights} % of the rows{left}.")
    }));
    let columns = ["fit", "test_mse", "test_rows"];
    let fits = model.rows("fits", &columns)?;
    let others = fits.texts("fit").into_iter().zip(fits.floats("test_mse"));
    let others = others.filter(|(name, x)| x.is_finite() && name.as_deref() != Some(fit));
    let others = others.take(MOST_SETS).map(|(name, x)| {
        let name = name.as_deref().map(|name| short(name, 40));
        format!("{} of {}", number(x), name.unwrap_or_default())
    });
    let others = listed(others);
    let own = fits.having("fit", fit);
    if let (Some(mse), Some(rows)) = (
        own.floats("test_mse").first(),
        own.floats("test_rows").first(),
    ) && mse.is_finite()
    {
        let beside = match others.as_str() {
            "" => String::new(),
            others => format!(", beside {others}"),
        };
        let rows = counted(number(*rows), "test row");
        let mse = number(*mse);
        found.push(format!(
            "Its mean squared error on {rows} is {mse}{beside}."
        ));
    }
    Ok(found)
}

/// How much of the transitions from each set ends in the set of targets of the same number, and
/// how much would if ends did not depend on starts.
fn kept(cells: &[(i64, i64)], probabilities: &[f64], counts: &[f64]) -> Option<String> {
    let total = counts.iter().sum::<f64>();
    let sets = cells.iter().map(|(from, _)| *from).max()? + 1;
    let (mut stays, mut chance) = (Vec::new(), Vec::new());
    for set in 0..sets {
        let at = cells.iter().position(|cell| *cell == (set, set));
        let into = cells.iter().zip(counts).filter(|((_, to), _)| *to == set);
        let into = into.map(|(_, n)| n).sum::<f64>();
        let is_empty = cells.iter().all(|(from, _)| *from != set);
        if !is_empty {
            stays.push(at.map_or(0.0, |at| probabilities[at]));
            chance.push(into / total);
        }
    }
    let (stays, chance) = (shares(&stays)?, shares(&chance)?);
    Some(format!(
        "Of the transitions from its sets, {stays} % end in their own set; by chance it would be \
         {chance} %."
    ))
}

/// Shares in per cent: one per set, or the least and the largest of many.
fn shares(values: &[f64]) -> Option<String> {
    if values.is_empty() || values.iter().any(|x| !x.is_finite()) {
        return None;
    }
    let percent = |x: f64| format!("{:.1}", 100.0 * x);
    if let [one] = values {
        return Some(percent(*one));
    }
    if values.len() > MOST_SETS {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        return Some(format!("{} to {}", percent(low), percent(high)));
    }
    let (last, first) = values.split_last()?;
    let first = listed(first.iter().map(|x| percent(*x)));
    Some(format!("{first} and {}", percent(*last)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, numbers: &[(&'static str, f64)]) -> Candidate {
        Candidate {
            name: name.to_string(),
            numbers: numbers.iter().copied().collect(),
            is_thin: false,
            reason: None,
        }
    }

    #[test]
    fn the_chosen_rank_comes_first() {
        let mut all = [("a", 1.0), ("b", 2.0), ("c", 3.0)]
            .map(|(name, x)| candidate(name, &[("log_likelihood", x)]));
        let (at, why) = choice(&all).expect("a choice");
        assert_eq!(
            (at, why.as_str()),
            (2, "it has the highest log-likelihood of 3 fits, 3")
        );
        all[0].reason = Some("largest gap".to_string());
        let (at, why) = choice(&all).expect("a choice");
        assert_eq!(
            (at, why.as_str()),
            (0, "a rule chose its rank (largest gap)")
        );
        let mut tested = [("held", 1.0), ("out", 2.0)]
            .map(|(name, x)| candidate(name, &[("held_out", x), ("log_likelihood", -x)]));
        tested[0].reason = Some("best held-out log-likelihood".to_string());
        let (at, why) = choice(&tested).expect("a choice");
        assert_eq!(
            (at, why.as_str()),
            (1, "it has the highest held-out score of 2 fits, 2")
        );
        all[0].is_thin = true;
        let (at, why) = choice(&all).expect("a choice");
        assert_eq!(at, 2);
        assert!(why.starts_with("its sets all hold a thousandth"), "{why}");
    }

    #[test]
    fn a_criterion_is_known_for_all_fits() {
        let all = [
            candidate("a", &[("bic", 5.0), ("log_likelihood", 1.0)]),
            candidate("b", &[("bic", 4.0), ("log_likelihood", 0.0)]),
        ];
        assert_eq!(choice(&all).map(|(at, _)| at), Some(1));
        let all = [
            all,
            [
                candidate("c", &[("log_likelihood", 0.5)]),
                candidate("d", &[]),
            ],
        ];
        assert_eq!(choice(&all[0]).map(|(at, _)| at), Some(1));
        let (at, why) = choice(&all[1]).expect("a choice");
        assert_eq!((at, why.as_str()), (0, "it is the only fit with a score"));
    }

    /// Two sets of 60 and 40 transitions; 70 of 100 end in the first set of targets.
    #[test]
    fn sets_are_compared_with_chance() {
        let cells = [(0, 0), (0, 1), (1, 0), (1, 1)];
        let text = kept(&cells, &[0.9, 0.1, 0.4, 0.6], &[54.0, 6.0, 16.0, 24.0]);
        let expected = "Of the transitions from its sets, 90.0 and 60.0 % end in their own set; by \
                        chance it would be 70.0 and 30.0 %.";
        assert_eq!(text.as_deref(), Some(expected));
    }

    #[test]
    fn many_shares_are_a_range() {
        assert_eq!(shares(&[0.5; 3]).as_deref(), Some("50.0, 50.0 and 50.0"));
        let many = (1..=8).map(|k| f64::from(k) / 10.0).collect::<Vec<_>>();
        assert_eq!(shares(&many).as_deref(), Some("10.0 to 80.0"));
        assert_eq!(shares(&[f64::NAN]), None);
    }
}
