//! A proposal → the text of a pipeline file, whose comments say why.

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
        one_line(&places.shown)
    ));
    if !survey.is_whole() {
        file.line(&format!("# The first {} rows were looked at.", survey.rows));
    }
    for column in &survey.unnamed {
        let column = one_line(column);
        file.line(&format!(
            "# The column {column} is left out: ${{ begins a variable here."
        ));
    }
    if let Some(column) = float_time(survey) {
        let column = one_line(&column.name);
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
            let mut columns = vec![source.as_str(), target];
            match amount {
                Amount::Count(column) | Amount::Weight(column) => columns.push(column),
                Amount::One => {}
            }
            file.sql(survey, &columns);
            file.key(
                &format!("source = {}", toml(source)),
                "a row is a transition from here",
            );
            file.key(&format!("target = {}", toml(target)), "to here");
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
            let mut columns: Vec<&str> = order.trajectory.iter().map(String::as_str).collect();
            columns.push(&order.time);
            match state {
                State::Column(column) => columns.push(column),
                State::Boxes(boxes) => columns.extend(boxes.iter().map(|b| b.column.as_str())),
            }
            file.sql(survey, &columns);
            file.order(order);
            let long = matches!(state, State::Boxes(_));
            file.lag(order, long);
            if let State::Column(column) = state {
                file.key(&format!("state = {}", toml(column)), "a state per value");
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
            let mut columns: Vec<&str> = order.trajectory.iter().map(String::as_str).collect();
            columns.extend([order.time.as_str(), symbol]);
            file.sql(survey, &columns);
            file.order(order);
            file.key(&format!("symbol = {}", toml(symbol)), "what a row shows");
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
    fn sql(&mut self, survey: &Survey, columns: &[&str]) {
        let own = columns.iter().copied();
        let more = survey.partitions.iter().map(String::as_str);
        let more = more.filter(|name| !columns.contains(name));
        let names: Vec<String> = own.chain(more).map(sql).collect();
        self.select(survey, &names);
    }

    fn select(&mut self, survey: &Survey, columns: &[String]) {
        let text = format!("SELECT {} FROM {}", columns.join(", "), sql(&survey.name));
        self.line(&format!("sql = {}", toml(&text)));
    }

    fn order(&mut self, order: &Order) {
        match &order.trajectory {
            Some(column) => {
                let rows = order.steps.as_ref().map_or(1.0, |steps| steps.rows);
                let comment = format!("one trajectory per value, of {rows:.0} rows on average");
                self.key(&format!("trajectory = {}", toml(column)), &comment);
            }
            None => self.line("# No trajectory: all rows belong to one."),
        }
        self.key(
            &format!("time = {}", toml(&order.time)),
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
            toml(&boxes.column),
            boxes.boxes
        );
        self.key(&key, &comment);
    }

    fn partitions(&mut self, survey: &Survey) {
        let names = survey.partitions.iter().filter(|name| !name.contains("${"));
        let names: Vec<String> = names.map(|name| toml(name)).collect();
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
        let (columns, names) = match coordinates {
            Coordinates::Columns(columns) => {
                self.line("[points]");
                let selected: Vec<String> = columns.iter().map(|c| sql(c)).collect();
                (selected, columns.clone())
            }
            Coordinates::Sphere {
                longitude,
                latitude,
            } => {
                self.key("[points]", "degrees become points of a unit sphere");
                let (lon, lat) = (sql(longitude), sql(latitude));
                let selected = [
                    format!("cos(radians({lat})) * cos(radians({lon})) AS x"),
                    format!("cos(radians({lat})) * sin(radians({lon})) AS y"),
                    format!("sin(radians({lat})) AS z"),
                ];
                (
                    selected.to_vec(),
                    ["x", "y", "z"].map(String::from).to_vec(),
                )
            }
        };
        let order: Vec<String> = match coordinates {
            Coordinates::Columns(columns) => columns.iter().map(|c| sql(c)).collect(),
            Coordinates::Sphere {
                longitude,
                latitude,
            } => vec![sql(longitude), sql(latitude)],
        };
        let key = match id {
            Some(id) => sql(id),
            None => format!("row_number() OVER (ORDER BY {}) AS row", order.join(", ")),
        };
        let more = survey
            .partitions
            .iter()
            .filter(|name| !names.contains(name));
        let more = more
            .filter(|name| Some(name.as_str()) != id)
            .map(|name| sql(name));
        let all: Vec<String> = std::iter::once(key).chain(columns).chain(more).collect();
        self.select(survey, &all);
        match id {
            Some(id) => self.key(&format!("id = {}", toml(id)), "differs in every row"),
            None => self.key(
                "id = \"row\"",
                "no column differs in every row, so rows are numbered",
            ),
        }
        let names: Vec<String> = names.iter().map(|name| toml(name)).collect();
        self.line(&format!("coordinates = [{}]", names.join(", ")));
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

/// A text as a value or key of TOML.
fn toml(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            c if c.is_control() => {
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

/// A text in a comment.
fn one_line(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect()
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
        assert_eq!(toml("a \"b\"\\\n\u{7f}"), r#""a \"b\"\\\n\u007f""#);
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
