//! `[[fit]]` tables: a name, a method and the keys of that method. Comments here are descriptions in the JSON Schema.

use crate::plan::pipeline::document::{Content, Entry, Node};
use crate::plan::pipeline::read::{Fault, What, read, required};
use crate::plan::pipeline::shape::{OneOrMany, one_or_many};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::Serialize;
use std::borrow::Cow;

/// One `[[fit]]`: a name for its columns, a method, and the method's own keys.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fit {
    pub name: String,
    /// For `rank = "auto"`: what picks one of the method's ranks, which then are the candidates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<Rule>,
    #[serde(flatten)]
    pub method: Method,
}

impl Fit {
    /// The ranks to fit; empty for a method without a rank.
    pub fn ranks(&self) -> &[usize] {
        match &self.method {
            Method::Dbmr(parameters) => &parameters.rank,
            Method::Svd(parameters) => &parameters.rank,
            Method::Cocluster(parameters) => &parameters.rank,
            Method::Metastable(parameters) => &parameters.rank,
            Method::Gpcca(parameters) => &parameters.rank,
            Method::Given(_) => &[],
        }
    }

    /// The fits this stands for: a rank where the method has one, and the name that output columns begin with, which holds the
    /// rank if there are several (`dbmr_r3`). Where one is to be picked, it is the largest that may be.
    pub fn expanded(&self) -> Vec<(Option<usize>, String)> {
        match self.ranks() {
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

/// What picks one of several ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(inline)]
pub enum Rule {
    /// The largest gap between a singular value of P̃ and the next.
    Gap,
    /// The smallest Akaike information criterion.
    Aic,
    /// The smallest Bayesian information criterion.
    Bic,
    /// The smallest rank within one standard error of the best held-out likelihood; needs the folds of `[validation]`.
    HeldOut,
    /// The smallest rank whose cross-validated VAMP-2 score the next one does not raise by more than one standard error; needs the folds of `[validation]`.
    Vamp2,
}

impl Rule {
    const NAMES: [&str; 5] = ["gap", "held-out", "vamp2", "bic", "aic"];

    pub fn needs_folds(self) -> bool {
        matches!(self, Rule::HeldOut | Rule::Vamp2)
    }
}

/// The candidates of `rank = "auto"` unless they are given.
const RANKS: [i64; 7] = [2, 3, 4, 5, 6, 7, 8];

/// A method with what was written for it; ranks are listed in the order of the file.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "method", rename_all = "lowercase")]
pub enum Method {
    Dbmr(Dbmr),
    Svd(Svd),
    Cocluster(Cocluster),
    Metastable(Metastable),
    Gpcca(Gpcca),
    Given(Given),
}

/// Direct Bayesian model reduction: the low-rank chain of largest relaxed likelihood, the best of several starts.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dbmr {
    /// The number of latent states, or a list of numbers to fit one by one.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Rank>")]
    pub rank: Vec<usize>,
    /// Independent starts, of which the best is kept. With `polish` no more are made once four have found it.
    #[serde(default = "Dbmr::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// How a start begins.
    #[serde(default)]
    pub init: Init,
    /// Move single states while that gains, and split and merge sets anew. With `init = "random"` and `polish = false` this is the algorithm of the paper.
    #[serde(default = "Dbmr::polish")]
    pub polish: bool,
    /// Sweeps after which a start is given up as not converged.
    #[serde(default = "Dbmr::max_iterations")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
    /// A start has converged when a sweep gains no more likelihood than this, relative to its size. 0: until no affiliation changes, which is the default without `polish`. With it the default is 0.001, and it matters only where starts are made on a sample of many states.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub tolerance: Option<f64>,
}

/// The beginning of a start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Init {
    /// Independent uniform affiliations.
    Random,
    /// Sets grown around states that are far apart in Kullback-Leibler divergence.
    #[default]
    Kl,
    /// The sets of the truncated singular value decomposition.
    Svd,
}

impl Dbmr {
    fn restarts() -> usize {
        10
    }

    fn polish() -> bool {
        true
    }

    fn max_iterations() -> usize {
        1000
    }

    /// What `tolerance` is or stands for.
    pub fn tolerance(&self) -> f64 {
        let default = if self.polish { 1e-3 } else { 0.0 };
        self.tolerance.unwrap_or(default)
    }
}

/// Coherent pairs from the truncated singular value decomposition.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Svd {
    /// The number of coherent pairs, or a list of numbers to fit one by one.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Rank>")]
    pub rank: Vec<usize>,
    /// What makes sets of the singular vectors.
    #[serde(default)]
    pub clusters: Clusters,
    /// Independent starts of k-means, of which the best is kept; with `clusters = "kmeans"` alone.
    #[serde(default = "Svd::restarts")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// The residual up to which singular values are computed.
    #[serde(default = "Svd::tolerance")]
    #[schemars(range(min = 0))]
    pub tolerance: f64,
    /// Iterations after which a start of k-means is stopped; with `clusters = "kmeans"` alone.
    #[serde(default = "Svd::max_iterations")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
}

/// Sets from singular vectors.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Clusters {
    /// k-means: every state is in one set.
    #[default]
    KMeans,
    /// Sparse vectors (SEBA): memberships that may overlap or leave a state without a set.
    Seba,
    /// Robust Perron cluster analysis (PCCA+): memberships that add up to 1, as crisp as may be.
    Pcca,
}

impl Clusters {
    fn name(self) -> &'static str {
        match self {
            Clusters::KMeans => "kmeans",
            Clusters::Seba => "seba",
            Clusters::Pcca => "pcca",
        }
    }
}

impl Svd {
    fn restarts() -> usize {
        20
    }

    fn tolerance() -> f64 {
        1e-10
    }

    fn max_iterations() -> usize {
        300
    }
}

/// Co-clustering: the sets of sources and of targets for which the set of the one says most about that of the other.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cocluster {
    /// The number of sets on either side, or a list of numbers to fit one by one.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Rank>")]
    pub rank: Vec<usize>,
    /// Independent starts, of which the best is kept: the first from the sets of `dbmr`, the others at random.
    #[serde(default = "ten")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// Rounds over both sides after which a start is given up as not converged.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
}

/// One partition of the states, as sources and as targets, for which the present set says most about the next. Source and target states must be of one kind.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Metastable {
    /// The number of sets, or a list of numbers to fit one by one.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Rank>")]
    pub rank: Vec<usize>,
    /// Independent starts, of which the best is kept: the first from the sets of `dbmr`, the others at random.
    #[serde(default = "ten")]
    #[schemars(range(min = 1))]
    pub restarts: usize,
    /// Rounds over all states after which a start is given up as not converged.
    #[serde(default = "thousand")]
    #[schemars(range(min = 1))]
    pub max_iterations: usize,
}

fn ten() -> usize {
    10
}

fn thousand() -> usize {
    1000
}

/// Sets with memberships from the leading Schur vectors of the transition matrix (G-PCCA): sets that last, or that follow each other in a cycle. Source and target states must be of one kind, and every target a source.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gpcca {
    /// The number of sets, or a list of numbers to fit one by one. One that parts a complex pair of eigenvalues is an error.
    #[serde(deserialize_with = "one_or_many")]
    #[schemars(with = "OneOrMany<Rank>")]
    pub rank: Vec<usize>,
    /// The residual up to which Schur vectors are computed.
    #[serde(default = "Gpcca::tolerance")]
    #[schemars(range(min = 0))]
    pub tolerance: f64,
    /// The eigenvalues whose Schur vectors are taken.
    #[serde(default, skip_serializing_if = "Which::is_magnitude")]
    pub which: Which,
}

/// Which eigenvalues lead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Which {
    /// Those of largest magnitude: sets that last, and cycles.
    #[default]
    Magnitude,
    /// Those of largest real part: sets that last.
    Real,
}

impl Which {
    fn is_magnitude(&self) -> bool {
        *self == Which::Magnitude
    }
}

impl Gpcca {
    fn tolerance() -> f64 {
        1e-9
    }
}

/// Sets that are known beforehand, measured as if they had been found.
#[derive(Debug, Clone, PartialEq, Serialize, serde::Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The column of the SQL result that says in which set the (source) state of the row is.
    pub affiliation: String,
}

/// Reads all fits of a file.
pub fn fits(root: &Node) -> Result<Vec<Fit>, Fault> {
    let Some(node) = root.get("fit") else {
        return Err(
            Fault::wrong("is missing: a pipeline needs at least one `[[fit]]`")
                .under("fit")
                .at(root.place),
        );
    };
    let Content::Array(items) = &node.content else {
        let message = "must be a list of tables, each under the header `[[fit]]`";
        return Err(Fault::wrong(message).under("fit").at(node.place));
    };
    // What is held out tells more than a gap, where anything is.
    let folds = root.get("validation").and_then(|table| table.get("folds"));
    let default_rule = match folds.map(|folds| &folds.content) {
        None | Some(Content::Integer(0)) => Rule::Gap,
        Some(_) => Rule::HeldOut,
    };
    let mut fits = Vec::with_capacity(items.len());
    for (n, item) in items.iter().enumerate() {
        let named = item.get("name").and_then(Node::as_str);
        let segment = named.map_or_else(|| n.to_string(), str::to_string);
        fits.push(
            fit(item, default_rule)
                .map_err(|fault| fault.at(item.place).under(segment).under("fit"))?,
        );
    }
    Ok(fits)
}

/// A rule by its name; the error has the names of all.
fn written_rule(node: &Node) -> Result<Rule, Fault> {
    read(node).map_err(|fault: Fault| {
        let known = Rule::NAMES.map(|name| format!("\"{name}\"")).join(", ");
        let found = node.as_str().map(|word| format!(", not {word:?}"));
        let message = format!("must be one of {known}{}", found.unwrap_or_default());
        Fault {
            what: What::Wrong(message),
            ..fault
        }
        .under("rule")
    })
}

/// `default_rule` picks the rank where no rule is written.
fn fit(item: &Node, default_rule: Rule) -> Result<Fit, Fault> {
    if !matches!(item.content, Content::Table(_)) {
        return Err(Fault::wrong("must be a table"));
    }
    let name = required(item, "name")?;
    let kind: MethodName = required(item, "method")?;
    let word = item.get("rank").filter(|_| kind.has_rank());
    let word = word.and_then(|node| match &node.content {
        Content::Filled(filled) if filled.scalar().is_some() => None,
        _ => Some((node, node.as_str()?)),
    });
    if let Some((node, word)) = word.filter(|(_, word)| *word != "auto") {
        let wanted = "must be a whole number, a list of them, or \"auto\"";
        let message = match &node.content {
            Content::Filled(filled) => {
                format!("{wanted}, which the value of {} is not", filled.variables)
            }
            _ => format!("{wanted}, not {word:?}"),
        };
        return Err(Fault::wrong(message).under("rank").at(node.place));
    }
    let is_auto = word.is_some();
    let rule = match item.get("rule").filter(|_| is_auto) {
        Some(node) => Some(written_rule(node)?),
        None => is_auto.then_some(default_rule),
    };
    let own = item.entries().iter();
    let mut own: Vec<Entry> = own
        .filter(|e| e.key != "name" && e.key != "method")
        .cloned()
        .collect();
    if is_auto {
        candidates(&mut own);
    } else if kind.has_rank() && item.get("rank").is_none() {
        // The rank is missing, and with it what these keys go with.
        own.retain(|e| !KEYS_OF_AUTO.contains(&e.key.as_str()));
    } else if kind.has_rank()
        && let Some(entry) = own.iter().find(|e| KEYS_OF_AUTO.contains(&e.key.as_str()))
    {
        let message = "goes with `rank = \"auto\"` alone";
        return Err(Fault::wrong(message)
            .under(entry.key.as_str())
            .at(entry.key_place));
    }
    let parameters = Node {
        place: item.place,
        content: Content::Table(own),
    };
    let method = match kind {
        MethodName::Dbmr => read(&parameters).map(Method::Dbmr),
        MethodName::Svd => read(&parameters).map(Method::Svd),
        MethodName::Cocluster => read(&parameters).map(Method::Cocluster),
        MethodName::Metastable => read(&parameters).map(Method::Metastable),
        MethodName::Gpcca => read(&parameters).map(Method::Gpcca),
        MethodName::Given => read(&parameters).map(Method::Given),
    };
    let method = method.map_err(|mut fault| {
        if let Some(first) = fault
            .path
            .first_mut()
            .filter(|key| is_auto && *key == "rank")
        {
            *first = "ranks".into();
        }
        explain_key(fault, kind)
    })?;
    if let Method::Svd(svd) = &method
        && svd.clusters != Clusters::KMeans
        && let Some(entry) = item.entries().iter().find(|e| is_of_kmeans(&e.key))
    {
        let (key, clusters) = (&entry.key, svd.clusters.name());
        let message =
            format!("goes with `clusters = \"kmeans\"` alone: \"{clusters}\" takes no `{key}`");
        return Err(Fault::wrong(message)
            .under(entry.key.as_str())
            .at(entry.key_place));
    }
    Ok(Fit { name, rule, method })
}

/// Keys of `svd` that say how k-means is run.
fn is_of_kmeans(key: &str) -> bool {
    matches!(key, "restarts" | "max_iterations")
}

/// Keys that say how `rank = "auto"` is decided.
const KEYS_OF_AUTO: [&str; 2] = ["ranks", "rule"];

/// Puts the candidates in the place of `rank = "auto"`: methods know lists of ranks.
fn candidates(own: &mut Vec<Entry>) {
    let written = own.iter().find(|e| e.key == "ranks");
    let written = written.map(|e| e.node.clone());
    own.retain(|e| !KEYS_OF_AUTO.contains(&e.key.as_str()));
    for rank in own.iter_mut().filter(|e| e.key == "rank") {
        let place = rank.node.place;
        rank.node = written.clone().unwrap_or_else(|| Node {
            place,
            content: Content::Array(
                RANKS
                    .map(|r| Node {
                        place,
                        content: Content::Integer(r),
                    })
                    .to_vec(),
            ),
        });
    }
}

/// A key that only another method takes is no misspelling.
fn explain_key(mut fault: Fault, kind: MethodName) -> Fault {
    if let What::UnknownKey { key, known } = &mut fault.what {
        let taken = |other: &MethodName| other.keys().contains(key);
        match MethodName::ALL.iter().find(|other| taken(other)) {
            Some(_) => {
                let message = format!(
                    "is out of place: method \"{}\" takes no `{key}`",
                    kind.name()
                );
                fault.path.push(std::mem::take(key));
                fault.what = What::Wrong(message);
            }
            None => {
                known.extend(["name".to_string(), "method".to_string()]);
                if kind.has_rank() {
                    known.extend(KEYS_OF_AUTO.map(str::to_string));
                }
            }
        }
    }
    fault
}

/// The method of a fit, by name.
#[derive(Debug, Clone, Copy, PartialEq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
enum MethodName {
    Dbmr,
    Svd,
    Cocluster,
    Metastable,
    Gpcca,
    Given,
}

impl MethodName {
    const ALL: [MethodName; 6] = [
        MethodName::Dbmr,
        MethodName::Svd,
        MethodName::Cocluster,
        MethodName::Metastable,
        MethodName::Gpcca,
        MethodName::Given,
    ];

    fn name(self) -> &'static str {
        match self {
            MethodName::Dbmr => "dbmr",
            MethodName::Svd => "svd",
            MethodName::Cocluster => "cocluster",
            MethodName::Metastable => "metastable",
            MethodName::Gpcca => "gpcca",
            MethodName::Given => "given",
        }
    }

    /// The schema of the method's own keys.
    fn schema(self, generator: &mut SchemaGenerator) -> Schema {
        match self {
            MethodName::Dbmr => Dbmr::json_schema(generator),
            MethodName::Svd => Svd::json_schema(generator),
            MethodName::Cocluster => Cocluster::json_schema(generator),
            MethodName::Metastable => Metastable::json_schema(generator),
            MethodName::Gpcca => Gpcca::json_schema(generator),
            MethodName::Given => Given::json_schema(generator),
        }
    }

    fn has_rank(self) -> bool {
        self.keys().iter().any(|key| key == "rank")
    }

    fn keys(self) -> Vec<String> {
        let schema = self.schema(&mut SchemaGenerator::default());
        let properties = schema.get("properties").and_then(|p| p.as_object());
        properties.map_or_else(Vec::new, |p| p.keys().cloned().collect())
    }
}

impl JsonSchema for Fit {
    fn schema_name() -> Cow<'static, str> {
        "Fit".into()
    }

    /// One alternative a method, each with the two keys that all have.
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let alternatives = MethodName::ALL.map(|method| {
            let own = method.schema(generator).to_value();
            let mut properties = serde_json::Map::new();
            properties.insert(
                "name".into(),
                serde_json::json!({
                    "description": "The first part of the fit's column names, unique in the file.",
                    "type": "string",
                    "pattern": "^[A-Za-z][A-Za-z0-9_]*$"
                }),
            );
            properties.insert(
                "method".into(),
                serde_json::json!({ "const": method.name() }),
            );
            if let Some(more) = own["properties"].as_object() {
                properties.extend(more.clone());
            }
            if let Some(rank) = properties.get_mut("rank") {
                automatic(rank);
                properties.extend(keys_of_auto(generator));
            }
            let mut required = vec![serde_json::json!("name"), serde_json::json!("method")];
            required.extend(own["required"].as_array().into_iter().flatten().cloned());
            serde_json::json!({
                "title": method.name(),
                "description": own["description"],
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": false
            })
        });
        json_schema!({
            "description": "One model to fit.",
            "oneOf": alternatives,
            "examples": [{ "name": "dbmr", "method": "dbmr", "rank": [3, 5] }]
        })
    }
}

/// Lets a rank be `"auto"`.
fn automatic(rank: &mut serde_json::Value) {
    if let Some(description) = rank["description"].as_str() {
        rank["description"] =
            format!("{description} Or \"auto\": one of `ranks`, picked by `rule` for every model.")
                .into();
    }
    if let Some(shapes) = rank["anyOf"].as_array_mut() {
        shapes.push(serde_json::json!({ "const": "auto" }));
    }
}

/// The keys that go with `rank = "auto"`.
fn keys_of_auto(generator: &mut SchemaGenerator) -> [(String, serde_json::Value); 2] {
    let mut rule = generator.subschema_for::<Rule>().to_value();
    rule["description"] = "What picks the rank, with `rank = \"auto\"`; unless given, `held-out` where `[validation]` has `folds`, else `gap`.".into();
    let ranks = serde_json::json!({
        "description": "The candidates of `rank = \"auto\"`; those above the number of states are left out.",
        "type": "array",
        "items": { "type": "integer", "minimum": 1 },
        "minItems": 1,
        "default": RANKS,
    });
    [("ranks".into(), ranks), ("rule".into(), rule)]
}

/// Stands in for a rank in the schema.
struct Rank;

impl JsonSchema for Rank {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Rank".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "integer", "minimum": 1 })
    }
}
