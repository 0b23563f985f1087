//! A proposal → the text of a pipeline file, whose comments say why.

use crate::error::{escaped, is_hidden};
use crate::plan::pipeline::is_output_column;
use crate::run::init::boxes::Boxes;
use crate::run::init::proposal::{Amount, Coordinates, Proposal, State};
use crate::run::init::roles::{Order, Steps, float_time};
use crate::run::init::survey::{Column, Survey};
use std::fmt::Write;

/// How a pipeline file names places.
#[derive(Debug, Clone)]
pub struct Places {
    /// The place of the table as a person wrote it.
    pub shown: String,
    /// The place of the table in the file.
    pub table: String,
    /// The folder of the results.
    pub results: String,
}

/// Points that are embedded without landmarks.
const MOST_POINTS: u64 = 100_000;

/// The width at which comments begin.
const COMMENT: usize = 41;

/// The text of a pipeline file for the table at `places.table`.
pub fn text(survey: &Survey, proposal: &Proposal, places: &Places) -> String {
    let mut file = File::default();
    let name = &survey.name;
    let rows = match survey.all_rows {
        Some(rows) => format!("{rows} rows"),
        None => "its rows".into(),
    };
    file.line(&format!(
        "# A first pipeline for {}, proposed from {rows}. Change what you know better.",
        escaped(&places.shown)
    ));
    if !survey.is_whole() {
        file.line(&format!("# The first {} rows were looked at.", survey.rows));
    }
    for column in &survey.unnamed {
        let column = escaped(column);
        file.line(&format!(
            "# The column {column} is left out: ${{ begins a variable here."
        ));
    }
    if let Some(column) = float_time(survey) {
        let column = escaped(&column.name);
        file.line(&format!(
            "# The column {column} is no time here: make whole numbers of it in SQL if it is one."
        ));
    }
    file.line("");
    file.line("[job]");
    file.line(&format!("name = {}", toml(name)));
    file.key(
        &format!("output = {}", toml(&format!("{}/{name}", places.results))),
        "the tables go here",
    );
    file.line("");
    file.line(&format!("[tables.{name}]"));
    file.line(&format!("path = {}", toml(&places.table)));
    if let Some(format) = survey.format {
        file.line(&format!("format = {}", toml(format)));
    }
    file.line("");
    match proposal {
        Proposal::Pairs {
            source,
            target,
            amount,
            is_closed,
            states,
        } => {
            file.line("[transitions]");
            let mut columns = vec![selected(survey, source), selected(survey, target)];
            match amount {
                Amount::Count(column) | Amount::Weight(column) => columns.push(sql(column)),
                Amount::One => {}
            }
            file.select(survey, columns);
            file.key(
                &format!("source = {}", name_of(survey, source)),
                "a row is a transition from here",
            );
            file.key(&format!("target = {}", name_of(survey, target)), "to here");
            match amount {
                Amount::Count(column) => {
                    file.key(
                        &format!("count = {}", toml(column)),
                        "the number of transitions",
                    );
                }
                Amount::Weight(column) => {
                    file.key(
                        &format!("weight = {}", toml(column)),
                        "the weight of the pair",
                    );
                }
                Amount::One => {}
            }
            if *is_closed {
                file.key(
                    "connected = true",
                    "keep the states that can all reach each other",
                );
            }
            file.partitions(survey);
            file.sets(if *states >= 40 { 4 } else { 2 });
        }
        Proposal::Transitions { order, state } => {
            file.line("[transitions]");
            let states: Vec<&String> = match state {
                State::Column(column) => vec![column],
                State::Boxes(boxes) => boxes.iter().map(|b| &b.column).collect(),
            };
            file.select_rows(survey, order, &states);
            file.order(order, survey);
            let long = matches!(state, State::Boxes(_));
            file.lag(order, long);
            if let State::Column(column) = state {
                let state = name_of(survey, column);
                file.key(&format!("state = {state}"), "a state per value");
            }
            file.partitions(survey);
            let states = match state {
                State::Column(name) => {
                    let column = survey.columns.iter().find(|column| column.name == *name);
                    column.map_or(0, Column::distinct)
                }
                State::Boxes(boxes) => {
                    file.line("");
                    file.key("[transitions.bins]", "a state is a box of this grid");
                    boxes.iter().for_each(|boxes| file.boxes(boxes, survey));
                    boxes.iter().map(|b| b.boxes).product()
                }
            };
            file.sets(if states >= 40 { 4 } else { 2 });
        }
        Proposal::Sequences { order, symbol } => {
            file.line("[sequences]");
            file.select_rows(survey, order, &[symbol]);
            file.order(order, survey);
            let symbol = name_of(survey, symbol);
            file.key(&format!("symbol = {symbol}"), "what a row shows");
            file.partitions(survey);
            file.fit(
                "hmm",
                "spectral_hmm",
                "rank = 2",
                "hidden states; \"auto\" compares ranks",
            );
        }
        Proposal::Points { id, coordinates } => file.points(survey, id.as_deref(), coordinates),
    }
    file.0
}

#[derive(Default)]
struct File(String);

impl File {
    fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    /// A line with a comment.
    fn key(&mut self, text: &str, comment: &str) {
        let _ = writeln!(self.0, "{text:<COMMENT$} # {comment}");
    }

    /// The SQL that selects columns, and those of the partition.
    fn select(&mut self, survey: &Survey, mut columns: Vec<String>) {
        for name in &survey.partitions {
            let partition = selected(survey, name);
            let renamed = format!(" AS {}", sql(name));
            if !columns
                .iter()
                .any(|c| *c == partition || c.ends_with(&renamed))
            {
                columns.push(partition);
            }
        }
        let text = format!("SELECT {} FROM {}", columns.join(", "), sql(&survey.name));
        self.line(&format!("sql = {}", toml(&text)));
    }

    /// The SQL that selects the rows of trajectories and `more` columns.
    fn select_rows(&mut self, survey: &Survey, order: &Order, more: &[&String]) {
        let columns = order.trajectory.iter().chain([&order.time]);
        let columns = columns.chain(more.iter().copied());
        self.select(survey, columns.map(|name| selected(survey, name)).collect());
    }

    fn order(&mut self, order: &Order, survey: &Survey) {
        match &order.trajectory {
            Some(column) => {
                let rows = order.steps.as_ref().map_or(1.0, |steps| steps.rows);
                let comment = format!("one trajectory per value, of {rows:.0} rows on average");
                self.key(
                    &format!("trajectory = {}", name_of(survey, column)),
                    &comment,
                );
            }
            None => self.line("# No trajectory: all rows belong to one."),
        }
        self.key(
            &format!("time = {}", name_of(survey, &order.time)),
            "orders the rows of a trajectory",
        );
    }

    /// The lag: the most frequent time between rows, or ten times as much for coordinates of long
    /// trajectories. If steps differ, rows are counted.
    fn lag(&mut self, order: &Order, is_long: bool) {
        let Some(Steps {
            most_frequent,
            share,
            rows,
        }) = &order.steps
        else {
            return self.key(
                "lag = \"1 step\"",
                "trajectories have one row: change the trajectory",
            );
        };
        let n = if is_long && *rows >= 50.0 { 10.0 } else { 1.0 };
        let text = if order.is_clock {
            duration(n * most_frequent).map(|text| toml(&text))
        } else {
            Some(format!("{}", n * most_frequent))
        };
        let percent = (100.0 * share).floor();
        let one = if order.is_clock {
            duration(*most_frequent).unwrap_or_else(|| format!("{most_frequent} µs"))
        } else {
            most_frequent.to_string()
        };
        let why = format!("{percent} % of the rows are {one} after the row before");
        let steps = if n == 1.0 {
            "1 step".into()
        } else {
            format!("{n} steps")
        };
        match text.filter(|_| *share >= 0.5 && *most_frequent > 0.0) {
            Some(text) => self.key(&format!("lag = {text}"), &format!("{steps}: {why}")),
            None => {
                let why = format!("rows are counted, because only {why}");
                self.key(&format!("lag = {}", toml(&steps)), &why);
            }
        }
    }

    fn boxes(&mut self, boxes: &Boxes, survey: &Survey) {
        let [low, high] = boxes.bounds;
        let kind = if boxes.is_periodic {
            "periodic"
        } else {
            "bounds"
        };
        let comment = match boxes.outside {
            0 => format!("boxes of {}", (high - low) / boxes.boxes as f64),
            n => format!("{n} of {} rows are outside, and are dropped", survey.rows),
        };
        let key = format!(
            "{} = {{ {kind} = [{low}, {high}], boxes = {} }}",
            name_of(survey, &boxes.column),
            boxes.boxes
        );
        self.key(&key, &comment);
    }

    fn partitions(&mut self, survey: &Survey) {
        let names = survey.partitions.iter().filter(|name| !name.contains("${"));
        let names: Vec<String> = names.map(|name| name_of(survey, name)).collect();
        if !names.is_empty() {
            let key = format!("# partition_by = [{}]", names.join(", "));
            self.key(&key, "one model per folder");
        }
    }

    /// Sets by likelihood, and sets by singular vectors.
    fn sets(&mut self, rank: usize) {
        let rank = format!("rank = {rank}");
        self.fit("dbmr", "dbmr", &rank, "the number of sets");
        self.fit("svd", "svd", &rank, "compare both methods");
    }

    fn fit(&mut self, name: &str, method: &str, key: &str, comment: &str) {
        self.line("");
        self.line("[[fit]]");
        self.line(&format!("name = {}", toml(name)));
        self.line(&format!("method = {}", toml(method)));
        self.key(key, comment);
    }

    fn points(&mut self, survey: &Survey, id: Option<&str>, coordinates: &Coordinates) {
        let (order, columns, names) = match coordinates {
            Coordinates::Columns(columns) => {
                self.line("[points]");
                let order: Vec<String> = columns.iter().map(|c| sql(c)).collect();
                let selected: Vec<String> = columns.iter().map(|c| selected(survey, c)).collect();
                let names: Vec<String> = columns.iter().map(|c| name_of(survey, c)).collect();
                (order, selected, names.join(", "))
            }
            Coordinates::Sphere {
                longitude,
                latitude,
            } => {
                self.key("[points]", "degrees become points of a unit sphere");
                let (lon, lat) = (sql(longitude), sql(latitude));
                let selected = vec![
                    format!("cos(radians({lat})) * cos(radians({lon})) AS x"),
                    format!("cos(radians({lat})) * sin(radians({lon})) AS y"),
                    format!("sin(radians({lat})) AS z"),
                ];
                (vec![lon, lat], selected, "\"x\", \"y\", \"z\"".into())
            }
        };
        let row = free_name(survey, "row");
        let key = match id {
            Some(id) => selected(survey, id),
            None => {
                let order = order.join(", ");
                format!("row_number() OVER (ORDER BY {order}) AS {}", sql(&row))
            }
        };
        self.select(survey, std::iter::once(key).chain(columns).collect());
        match id {
            Some(id) => self.key(
                &format!("id = {}", name_of(survey, id)),
                "differs in every row",
            ),
            None => self.key(
                &format!("id = {}", toml(&row)),
                "no column differs in every row, so rows are numbered",
            ),
        }
        self.line(&format!("coordinates = [{names}]"));
        if let Coordinates::Columns(_) = coordinates {
            self.key(
                "scale = \"standard\"",
                "each coordinate is divided by its deviation",
            );
        }
        self.partitions(survey);
        let is_large = survey.all_rows.is_none_or(|rows| rows > MOST_POINTS);
        for (name, method, dimension, why) in [
            ("map", "diffusion_map", 2, "coordinates per point"),
            (
                "sketch",
                "heat_sketch",
                8,
                "more of them keep distances better",
            ),
        ] {
            self.fit(name, method, &format!("dimension = {dimension}"), why);
            if is_large {
                self.key("landmarks = 1000", "points that stand for the others");
            }
        }
    }
}

/// The name of a column in the pipeline: its own, unless the results have a column of that name.
fn renamed(survey: &Survey, column: &str) -> String {
    if is_output_column(column) {
        free_name(survey, column)
    } else {
        column.into()
    }
}

/// A name that neither the table nor the results have.
fn free_name(survey: &Survey, beginning: &str) -> String {
    let mut name = beginning.to_string();
    while is_output_column(&name) || survey.columns.iter().any(|c| c.name == name) {
        name.push_str("_input");
    }
    name
}

/// The name of a column in the pipeline, as a value of TOML.
fn name_of(survey: &Survey, column: &str) -> String {
    toml(&renamed(survey, column))
}

/// A column in the list of SELECT.
fn selected(survey: &Survey, column: &str) -> String {
    let name = renamed(survey, column);
    if name == column {
        return sql(column);
    }
    format!("{} AS {}", sql(column), sql(&name))
}

/// A text as a value or key of TOML.
fn toml(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if is_hidden(c) => {
                let _ = write!(quoted, "\\u{:04x}", c as u32);
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

/// A name in SQL.
fn sql(name: &str) -> String {
    let mut chars = name.chars();
    let is_plain = chars.next().is_some_and(|c| c.is_ascii_lowercase())
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    // Two words of SQL have no underscore: a name of one word may be a keyword.
    if is_plain && (name.contains('_') || name.len() <= 1) {
        return name.into();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Microseconds as a duration of one unit, if that is exact.
fn duration(microseconds: f64) -> Option<String> {
    let units = [
        (86_400_000_000.0, "d"),
        (3_600_000_000.0, "h"),
        (60_000_000.0, "min"),
        (1_000_000.0, "s"),
        (1_000.0, "ms"),
    ];
    let is_exact = |(unit, _): &(f64, &str)| microseconds >= *unit && microseconds % unit == 0.0;
    let (unit, name) = units.into_iter().find(is_exact)?;
    Some(format!("{}{name}", microseconds / unit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_quoted() {
        assert_eq!(
            toml("a \"b\"\\\n\u{7f}\u{202e}"),
            r#""a \"b\"\\\n\u007f\u202e""#
        );
        assert_eq!(sql("traj_id"), "traj_id");
        assert_eq!(sql("order"), "\"order\"");
        assert_eq!(sql("Id \"x\""), "\"Id \"\"x\"\"\"");
    }

    #[test]
    fn durations_have_one_unit() {
        let of = |seconds: f64| duration(seconds * 1e6);
        assert_eq!(of(36_000.0).as_deref(), Some("10h"));
        assert_eq!(of(86_400.0).as_deref(), Some("1d"));
        assert_eq!(of(90.0).as_deref(), Some("90s"));
        assert_eq!(of(0.25).as_deref(), Some("250ms"));
        assert_eq!(of(1e-6), None);
    }
}
