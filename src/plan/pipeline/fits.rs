//! `[[fit]]` tables: a name, a method and the keys of that method.

use crate::assess::ranks::Rule;
use crate::methods::estimator::Parameters;
use crate::methods::spectral::svd::Clusters;
use crate::methods::{AnyMethod, FilterMethod, GivenHmm, Method, PointMethod, SymbolMethod};
use crate::plan::pipeline::deserializer::{KeyError, KeyErrorKind, read, required};
use crate::plan::pipeline::document::{Content, Entry, Node};
use crate::plan::pipeline::shape::{OneOrMany, inline_schema, one_or_many};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use serde::de::Error as _;
use serde_json::json;
use std::borrow::Cow;

/// One `[[fit]]`: a name for its columns, a method, and the keys of the method.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FitEntry<M = Method> {
    /// The prefix of the names of its output columns, unique in the file.
    pub name: String,
    /// For `rank = "auto"`: the rule that picks one of `ranks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    /// The ranks in the order of the file; empty for a method without rank.
    pub ranks: Vec<usize>,
    /// The method at the first of the ranks.
    #[serde(flatten)]
    pub method: M,
}

impl FitEntry<AnyMethod> {
    /// A method with its rank, if it has one.
    pub(crate) fn of(name: &str, method: AnyMethod) -> FitEntry<AnyMethod> {
        FitEntry {
            name: name.to_string(),
            rule: None,
            ranks: method.rank().into_iter().collect(),
            method,
        }
    }
}

impl<M> FitEntry<M> {
    /// The same entry with a method of another type.
    pub(crate) fn with<N: Clone>(&self, method: &N) -> FitEntry<N> {
        FitEntry {
            name: self.name.clone(),
            rule: self.rule,
            ranks: self.ranks.clone(),
            method: method.clone(),
        }
    }

    /// The fits of this entry, each with its rank (if the method has one) and the prefix of its
    /// output columns, which contains the rank if there are several (`dbmr_r3`). With a rule, there
    /// is one fit with the largest rank.
    pub fn expanded(&self) -> Vec<(Option<usize>, String)> {
        match self.ranks.as_slice() {
            [] => vec![(None, self.name.clone())],
            [rank] => vec![(Some(*rank), self.name.clone())],
            ranks if self.rule.is_some() => {
                vec![(ranks.iter().max().copied(), self.name.clone())]
            }
            ranks => {
                let named = |r: &usize| (Some(*r), format!("{}_r{r}", self.name));
                ranks.iter().map(named).collect()
            }
        }
    }
}

/// The default candidates of `rank = "auto"` for sets.
const RANKS: [i64; 7] = [2, 3, 4, 5, 6, 7, 8];

/// The default candidates of `rank = "auto"` for hidden Markov models. Rank 1 is the independent
/// model.
const SEQUENCE_RANKS: [i64; 8] = [1, 2, 3, 4, 6, 8, 12, 16];

/// The default candidates of a method.
fn default_ranks(method: &str) -> &'static [i64] {
    if SymbolMethod::NAMES.contains(&method) {
        &SEQUENCE_RANKS
    } else {
        &RANKS
    }
}

/// The only rule of a method that has no counts of transitions, and why.
fn only_rule(method: &str) -> Option<(Rule, &'static str)> {
    if PointMethod::NAMES.contains(&method) {
        return Some((Rule::Vamp2, "points have no counts"));
    }
    let why = "the rank of a hidden Markov model is that of the best held-out log-likelihood";
    let is_of_sequences = SymbolMethod::NAMES.contains(&method);
    is_of_sequences.then_some((Rule::HeldOut, why))
}

/// One rank or a list of ranks.
#[derive(serde::Deserialize)]
#[serde(transparent)]
struct Ranks(#[serde(deserialize_with = "one_or_many")] Vec<usize>);

/// The keys of a method, from its schema.
fn keys(method: &str) -> Vec<String> {
    let schema = AnyMethod::schema(method, &mut SchemaGenerator::default());
    let schema = schema.unwrap_or_default();
    let properties = schema.get("properties").and_then(|p| p.as_object());
    properties.map_or_else(Vec::new, |p| p.keys().cloned().collect())
}

fn has_rank(method: &str) -> bool {
    keys(method).iter().any(|key| key == "rank")
}

/// Reads all fits of a file. There may be none.
pub(crate) fn fits(root: &Node) -> Result<Vec<FitEntry<AnyMethod>>, KeyError> {
    let Some(node) = root.get("fit") else {
        return Ok(Vec::new());
    };
    let Content::Array(items) = &node.content else {
        let message = "must be a list of tables, each under the header `[[fit]]`";
        return Err(KeyError::wrong(message).at(node));
    };
    // Held-out data decide better than a gap, if there are any.
    let folds = root.get("validation").and_then(|table| table.get("folds"));
    let default_rule = match folds.map(|folds| &folds.content) {
        None | Some(Content::Integer(0)) => Rule::Gap,
        Some(_) => Rule::HeldOut,
    };
    let fits = items.iter().map(|item| fit(item, default_rule));
    fits.collect()
}

/// Reads a rule; an error lists all rules.
fn read_rule(node: &Node) -> Result<Rule, KeyError> {
    read(node).map_err(|error: KeyError| {
        let known = Rule::NAMES.map(|name| format!("\"{name}\"")).join(", ");
        let found = node.as_str().map(|word| format!(", not {word:?}"));
        let message = format!("must be one of {known}{}", found.unwrap_or_default());
        KeyError {
            kind: KeyErrorKind::Wrong(message),
            ..error
        }
    })
}

/// Reads one `[[fit]]`. `default_rule` picks the rank if the table has no rule.
fn fit(item: &Node, default_rule: Rule) -> Result<FitEntry<AnyMethod>, KeyError> {
    if !matches!(item.content, Content::Table(_)) {
        return Err(KeyError::wrong("must be a table").at(item));
    }
    let name = required(item, "name")?;
    let kind: String = required(item, "method")?;
    let kind = kind.as_str();
    if !AnyMethod::NAMES.contains(&kind) {
        let node = item.get("method").unwrap_or(item);
        return Err(KeyError::unknown_variant(kind, AnyMethod::NAMES).at(node));
    }
    let has_rank = has_rank(kind);
    let is_auto = has_rank && is_auto(item)?;
    let mut rule = None;
    if is_auto {
        rule = Some(rule_of(item, kind, default_rule)?);
    }
    let own = item.entries().iter();
    let mut own: Vec<Entry> = own
        .filter(|e| e.key != "name" && e.key != "method")
        .cloned()
        .collect();
    if is_auto {
        candidates(&mut own, default_ranks(kind));
    } else if has_rank && item.get("rank").is_none() {
        // The missing rank is the error to report, not the keys that depend on it.
        own.retain(|e| !KEYS_OF_AUTO.contains(&e.key.as_str()));
    } else if has_rank
        && let Some(entry) = own.iter().find(|e| KEYS_OF_AUTO.contains(&e.key.as_str()))
    {
        return Err(KeyError::wrong("goes with `rank = \"auto\"` alone").at_key(entry));
    }
    // A method has one rank; the entry has all ranks.
    let mut ranks = Vec::new();
    if let Some(entry) = own.iter_mut().find(|e| has_rank && e.key == "rank") {
        ranks = read::<Ranks>(&entry.node)?.0;
        entry.node.content = Content::Integer(ranks.first().map_or(0, |&rank| rank as i64));
    }
    let parameters = Node {
        path: item.path.clone(),
        ..Node::new(item.position, Content::Table(own))
    };
    let method = AnyMethod::read(kind, &parameters).map_err(|error| explain_key(error, kind))?;
    let method = method.ok_or_else(|| KeyError::unknown_variant(kind, AnyMethod::NAMES))?;
    if let AnyMethod::OfCounts(Method::Svd(svd)) = &method
        && svd.clusters != Clusters::KMeans
        && let Some(entry) = item.entries().iter().find(|e| is_of_kmeans(&e.key))
    {
        let (key, clusters) = (&entry.key, svd.clusters.name());
        let message =
            format!("goes with `clusters = \"kmeans\"` alone: \"{clusters}\" takes no `{key}`");
        return Err(KeyError::wrong(message).at_key(entry));
    }
    Ok(FitEntry {
        name,
        rule,
        ranks,
        method,
    })
}

/// Whether `rank` is `"auto"`, the only word that it may be.
fn is_auto(item: &Node) -> Result<bool, KeyError> {
    let word = item.get("rank").and_then(|node| match &node.content {
        Content::Filled(filled) if filled.scalar().is_some() => None,
        _ => Some((node, node.as_str()?)),
    });
    let Some((node, word)) = word.filter(|(_, word)| *word != "auto") else {
        return Ok(word.is_some());
    };
    let wanted = "must be a whole number, a list of them, or \"auto\"";
    let message = match &node.content {
        Content::Filled(filled) => {
            format!("{wanted}, which the value of {} is not", filled.variables)
        }
        _ => format!("{wanted}, not {word:?}"),
    };
    Err(KeyError::wrong(message).at(node))
}

/// The rule that picks the rank of a method.
fn rule_of(item: &Node, method: &str, default: Rule) -> Result<Rule, KeyError> {
    let only = only_rule(method);
    let Some(node) = item.get("rule") else {
        return Ok(only.map_or(default, |(rule, _)| rule));
    };
    let rule = read_rule(node)?;
    match only {
        Some((only, why)) if rule != only => {
            let message = format!(
                "must be \"{}\" for the method \"{method}\", not \"{}\": {why}",
                only.name(),
                rule.name()
            );
            Err(KeyError::wrong(message).at(node))
        }
        _ => Ok(rule),
    }
}

/// Whether a key of `svd` is a parameter of k-means.
fn is_of_kmeans(key: &str) -> bool {
    matches!(key, "restarts" | "max_iterations")
}

/// Keys that need `rank = "auto"`.
const KEYS_OF_AUTO: [&str; 2] = ["ranks", "rule"];

/// Replaces `rank = "auto"` by the list of candidates.
fn candidates(own: &mut Vec<Entry>, default: &[i64]) {
    let written = own.iter().find(|e| e.key == "ranks");
    let written = written.map(|e| e.node.clone());
    own.retain(|e| !KEYS_OF_AUTO.contains(&e.key.as_str()));
    for rank in own.iter_mut().filter(|e| e.key == "rank") {
        let position = rank.node.position;
        rank.node = written.clone().unwrap_or_else(|| {
            let ranks = default.iter();
            let ranks = ranks.map(|&rank| Node::new(position, Content::Integer(rank)));
            Node::new(position, Content::Array(ranks.collect()))
        });
    }
}

/// What a key of another program, such as hmmlearn, is called in a hidden Markov model.
fn of_hmm_programs(key: &str) -> Option<&'static str> {
    Some(match key {
        "n_components" | "n_states" | "states" | "k" | "dim" => "write `rank`",
        "n_symbols" | "n_features" => "the symbols are those of the rows",
        "algorithm" | "params" | "init_params" | "em" => "write `refine = \"em\"`",
        "max_iterations" | "maxiter" | "max_iter" | "iterations" => "write `n_iter`",
        "tolerance" | "thresh" => "write `tol`",
        "pool" | "min_df" => "write `min_count`",
        "smoothing" | "alpha" | "pseudocount" => {
            "write `unigram`, the share of the symbols' own frequencies in every prediction"
        }
        "random_state" | "seed" => "write `seed` in the section `[job]`",
        "lag" | "lagtime" | "tau" | "interval" => {
            "write `interval` in the section `[sequences]`, the time between rows"
        }
        _ => return None,
    })
}

/// What a key of hmmlearn is called in a given hidden Markov model.
fn of_known_hmm(key: &str) -> Option<&'static str> {
    Some(match key {
        "startprob" | "startprob_" | "start" | "initial" | "pi" => {
            "write rows of `transition` with a null `state`"
        }
        "transmat" | "transmat_" | "transitions" => "write `transition`",
        "emissionprob" | "emissionprob_" | "emissions" => "write `emission`",
        "n_components" | "n_states" | "states" => "the states are those of `transition`",
        _ => return None,
    })
}

/// What a key of another program, such as filterpy, pykalman or scikit-learn, is called in a
/// filter.
fn of_filter_programs(method: &str, key: &str) -> Option<&'static str> {
    let of_kernels = match key {
        "gamma" => "write `bandwidth` = { state = s, observation = s } with gamma = 1/(2 s²)",
        "sigma" | "length_scale" | "epsilon" => {
            "write `bandwidth`, the s of exp(−d²/(2 s²)), for states and observations"
        }
        "alpha" | "reg" | "regularization" => "write `lambda`, and `delta` for the posterior",
        "n_landmarks" => "write `landmarks`",
        "random_state" | "seed" => "write `seed` in the section `[job]`",
        _ => "",
    };
    let of_kalman = match key {
        "transition_matrices" | "A" => "write `F`",
        "observation_matrices" | "C" => "write `H`",
        "transition_covariance" => "write `Q`",
        "observation_covariance" => "write `R`",
        "initial_state_mean" | "x" => "write `x0`",
        "initial_state_covariance" | "P" => "write `P0`",
        "dim_x" | "dim_z" => "the columns of [sequences] say how many numbers there are",
        "dt" => "write the time between rows as `interval` in the section `[sequences]`",
        "f" | "h" if method == "kalman" => {
            "write the matrices `F` and `H`; functions are for the methods \"ekf\" and \"ukf\""
        }
        "F" | "H" => {
            "write the functions `f` and `h` as SQL; matrices are for the method \"kalman\""
        }
        "fx" => "write `f`",
        "hx" => "write `h`",
        "q" | "r" | "p0" => "write `Q`, `R` and `P0` in capitals",
        _ => "",
    };
    let meaning = match method {
        "kernel_bayes" => of_kernels,
        _ => of_kalman,
    };
    (!meaning.is_empty()).then_some(meaning)
}

/// What a key of another program, such as scikit-learn, deeptime or pydiffmap, is called in a
/// method of points.
fn of_other_programs(method: &str, key: &str) -> Option<&'static str> {
    if method == GivenHmm::NAME {
        return of_known_hmm(key);
    }
    if SymbolMethod::NAMES.contains(&method) {
        return of_hmm_programs(key);
    }
    if FilterMethod::NAMES.contains(&method) {
        return of_filter_programs(method, key);
    }
    let is_state_embedding = method == "state_embedding";
    if !is_state_embedding && !matches!(method, "diffusion_map" | "heat_sketch") {
        return None;
    }
    let is_sketch = method == "heat_sketch";
    Some(match (key, is_state_embedding) {
        ("n_components" | "dim" | "n_evecs" | "k", true) => {
            "write `rank`, which counts the constant function too"
        }
        ("n_components" | "dim" | "n_evecs" | "k", false) => "write `dimension`",
        ("gamma", true) => "write `bandwidth = s` with gamma = 1/(2 s²)",
        ("gamma", false) => "write `epsilon` = 1/gamma",
        ("epsilon", true) => "write `bandwidth = s` with epsilon = 2 s²",
        ("sigma" | "length_scale", true) => "write `bandwidth`",
        ("sigma" | "length_scale" | "bandwidth", false) => "write `epsilon` = 2 sigma²",
        ("n_neighbors" | "k_neighbors", false) => "write `neighbours`",
        ("t" | "diffusion_time", false) if !is_sketch => "write `time`",
        ("t" | "diffusion_time", false) => "write `power`",
        ("n_clusters" | "k_clusters", true) => "write `clusters`",
        ("n_init", true) => "write `restarts`",
        ("random_state" | "seed", _) => "write `seed` in the section `[job]`",
        ("lagtime" | "lag" | "tau", true) => "write `lag` in the section `[transitions]`",
        _ => return None,
    })
}

/// The error of an unknown key, which is no misspelling if another method has such a key.
fn explain_key(mut error: KeyError, kind: &str) -> KeyError {
    if let KeyErrorKind::UnknownKey { key, .. } = &error.kind
        && let Some(meaning) = of_other_programs(kind, key)
    {
        let message = format!("is no key of method \"{kind}\": {meaning}");
        error.path.push(key.clone());
        error.kind = KeyErrorKind::Wrong(message);
        return error;
    }
    if let KeyErrorKind::UnknownKey { key, known } = &mut error.kind {
        let taken = |other: &&&str| keys(other).contains(key);
        match AnyMethod::NAMES.iter().find(taken) {
            Some(_) => {
                let message = format!("cannot be used here: method \"{kind}\" takes no `{key}`");
                error.path.push(std::mem::take(key));
                error.kind = KeyErrorKind::Wrong(message);
            }
            None => {
                known.extend(["name".to_string(), "method".to_string()]);
                if has_rank(kind) {
                    known.extend(KEYS_OF_AUTO.map(str::to_string));
                }
            }
        }
    }
    error
}

impl JsonSchema for FitEntry<AnyMethod> {
    fn schema_name() -> Cow<'static, str> {
        "Fit".into()
    }

    /// One alternative per method, each with `name` and `method`.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let alternatives = AnyMethod::NAMES.iter().map(|&method| {
            let own = AnyMethod::schema(method, generator)
                .unwrap_or_default()
                .to_value();
            let name = json!({
                "description": "The first part of the fit's column names, unique in the file.",
                "type": "string",
                "pattern": "^[A-Za-z][A-Za-z0-9_]*$"
            });
            let mut properties = serde_json::Map::from_iter([
                ("name".into(), name),
                ("method".into(), json!({ "const": method })),
            ]);
            if let Some(more) = own["properties"].as_object() {
                properties.extend(more.clone());
            }
            if let Some(rank) = properties.get_mut("rank") {
                automatic(rank, generator);
                properties.extend(keys_of_auto(generator, default_ranks(method)));
                // Points have no likelihood.
                let of_points = "the smallest rank after which the next one raises the held-out VAMP-2 score by at most one standard error";
                let of_sequences = "the smallest rank within one standard error of the best held-out log-likelihood";
                if let Some((only, _)) = only_rule(method) {
                    let what = if only == Rule::Vamp2 { of_points } else { of_sequences };
                    properties["rule"] = json!({
                        "description": format!("The rule that picks the rank, with `rank = \"auto\"`: {what}."),
                        "const": only.name(),
                    });
                }
            }
            let mut required = vec![json!("name"), json!("method")];
            required.extend(own["required"].as_array().into_iter().flatten().cloned());
            json!({
                "title": method,
                "description": own["description"],
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false
            })
        });
        let alternatives: Vec<_> = alternatives.collect();
        json_schema!({
            "description": "One model to fit.",
            "oneOf": alternatives,
            "examples": [{ "name": "dbmr", "method": "dbmr", "rank": [3, 5] }]
        })
    }
}

/// Allows a list of ranks, or `"auto"`.
fn automatic(rank: &mut serde_json::Value, generator: &mut SchemaGenerator) {
    if let Some(description) = rank["description"].as_str() {
        rank["description"] =
            format!("{description} Or \"auto\": `rule` picks one of `ranks` for every model.")
                .into();
    }
    let description = rank["description"].clone();
    let mut shapes = OneOrMany::<Rank>::json_schema(generator).to_value();
    shapes["description"] = description;
    if let Some(shapes) = shapes["anyOf"].as_array_mut() {
        shapes.push(json!({ "const": "auto" }));
    }
    *rank = shapes;
}

/// The schemas of the keys that need `rank = "auto"`.
fn keys_of_auto(
    generator: &mut SchemaGenerator,
    default: &[i64],
) -> [(String, serde_json::Value); 2] {
    let mut rule = generator.subschema_for::<Rule>().to_value();
    rule["description"] = "The rule that picks the rank, with `rank = \"auto\"`. By default `held-out` if `[validation]` has `folds`, else `gap`.".into();
    let ranks = json!({
        "description": "The candidates of `rank = \"auto\"`. Candidates above the number of states are left out.",
        "type": "array",
        "items": { "type": "integer", "minimum": 1 },
        "minItems": 1,
        "default": default,
    });
    [("ranks".into(), ranks), ("rule".into(), rule)]
}

/// A rank in the schema.
struct Rank;

inline_schema!(Rank, |_| json_schema!({ "type": "integer", "minimum": 1 }));
