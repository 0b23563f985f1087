//! A proposal → the text of a pipeline file, whose comments say why.

use crate::error::{counted, escaped};
use crate::plan::pipeline::is_output_column;
use crate::run::init::angles::{is_radians, period};
use crate::run::init::boxes::Boxes;
use crate::run::init::columns::SurveyColumn;
use crate::run::init::left_out::{LeftOut, left_out};
use crate::run::init::literals::{length, number, short, shown, sql, toml};
use crate::run::init::names::{Role, fit};
use crate::run::init::proposal::{Amount, Coordinates, Proposal, State};
use crate::run::init::roles::{Order, float_time};
use crate::run::init::survey::Survey;
use crate::run::init::times::{Gaps, Jitter, round};
use std::fmt::Write;

/// How a pipeline file names places.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    /// The place of the table as a person wrote it.
    pub shown: String,
    /// The place of the table in the file.
    pub table: String,
    /// The folder of the results.
    pub results: String,
}

/// Points that are embedded without landmarks.
const MOST_POINTS: u64 = 100_000;

/// Microseconds of a pause that often ends a session.
const SESSION: f64 = 1800e6;

/// The width at which comments begin.
const COMMENT: usize = 41;

/// The width of a line with the names of columns.
const WIDTH: usize = 100;

/// The largest number of columns that are named as left out for one reason.
const MOST_NAMES: usize = 40;

/// The text of a pipeline file for the table at `places.table`.
pub(crate) fn text(survey: &Survey, proposal: &Proposal, places: &Places) -> String {
    let mut file = PipelineText {
        survey,
        text: String::new(),
    };
    file.head(&places.shown, proposal);
    file.job_and_table(places, proposal);
    match proposal {
        Proposal::Pairs {
            source,
            target,
            amount,
            other_amounts,
            is_closed,
            states,
        } => {
            file.select_pairs(source, target, amount, other_amounts);
            file.pairs(source, target, amount, other_amounts);
            if *is_closed {
                let comment = "keep the states that can all reach each other";
                file.key("connected", "true", comment);
            }
            file.partitions();
            file.sets(*states);
        }
        Proposal::Transitions { order, state } => file.transitions(order, state),
        Proposal::Sequences { order, symbol } => file.sequences(order, symbol),
        Proposal::Measured {
            order,
            state,
            observation,
        } => file.filters(order, state, observation),
        Proposal::Points { id, coordinates } => file.points(id.as_deref(), coordinates),
    }
    file.text
}

/// The text of a pipeline file so far.
pub(crate) struct PipelineText<'a> {
    pub(crate) survey: &'a Survey,
    text: String,
}

impl PipelineText<'_> {
    pub(crate) fn line(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    /// A line with a comment.
    fn commented(&mut self, text: &str, comment: &str) {
        let _ = writeln!(self.text, "{text:<COMMENT$} # {comment}");
    }

    /// A key with a value of TOML, and a comment.
    pub(crate) fn key(&mut self, key: &str, value: &str, comment: &str) {
        self.commented(&format!("{key} = {value}"), comment);
    }

    /// Comments about the table that was looked at.
    fn head(&mut self, shown: &str, proposal: &Proposal) {
        let survey = self.survey;
        let rows = match survey.all_rows {
            Some(rows) => format!("{rows} rows"),
            None => "its rows".into(),
        };
        self.line(&format!(
            "# A first pipeline for {}, proposed from {rows}. Change what you know better.",
            escaped(shown)
        ));
        if !survey.is_whole {
            self.line(&format!("# The first {} rows were looked at.", survey.rows));
        }
        for column in &survey.unnamed {
            let column = escaped(column);
            self.line(&format!(
                "# The column {column} is left out: ${{ begins a variable here."
            ));
        }
        if let Some(column) = float_time(survey) {
            let column = escaped(&column.name);
            self.line(&format!(
                "# The column {column} is no time here: make whole numbers of it in SQL if it is one."
            ));
        }
        for left in left_out(survey, proposal) {
            self.left_out(&left);
        }
        self.line("");
    }

    /// A comment with the names of columns, on lines that are not too long.
    fn left_out(&mut self, left: &LeftOut) {
        let mut line = format!("# Left out, because {}:", left.why);
        let last = left.columns.len().min(MOST_NAMES) - 1;
        for (at, name) in left.columns.iter().take(MOST_NAMES).enumerate() {
            let comma = if at < last { "," } else { "" };
            let name = format!(" {}{comma}", escaped(name));
            if line.chars().count() + name.chars().count() > WIDTH {
                self.line(&line);
                line = String::from("#  ");
            }
            line += &name;
        }
        if left.columns.len() > MOST_NAMES {
            line += &format!(" and {} more", left.columns.len() - MOST_NAMES);
        }
        self.line(&line);
    }

    fn select_pairs(&mut self, source: &str, target: &str, amount: &Amount, others: &[String]) {
        self.line("[transitions]");
        let mut columns = vec![self.selected(source), self.selected(target)];
        if let Amount::Count(column) | Amount::Weight(column) = amount {
            columns.push(self.selected_as_is(column));
        }
        columns.extend(others.iter().map(|column| self.selected_as_is(column)));
        self.select(columns);
    }

    fn pairs(&mut self, source: &str, target: &str, amount: &Amount, others: &[String]) {
        let (source, target) = (self.name_of(source), self.name_of(target));
        self.key("source", &source, "a row is a transition from here");
        self.key("target", &target, "to here");
        match amount {
            Amount::Count(column) => self.key("count", &toml(column), "the number of transitions"),
            Amount::Weight(column) => self.key("weight", &toml(column), "the weight of the pair"),
            Amount::One => {}
        }
        for column in others {
            let comment = "if this is the number of transitions; a row counts once without it";
            self.key("# count", &toml(column), comment);
        }
    }

    fn transitions(&mut self, order: &Order, state: &State) {
        self.line("[transitions]");
        let states: Vec<&str> = match state {
            State::Columns(columns) => columns.iter().map(String::as_str).collect(),
            State::Boxes(boxes) => boxes.iter().map(|b| b.column.as_str()).collect(),
        };
        self.select_rows(order, &states);
        self.order(order);
        self.lag(order, matches!(state, State::Boxes(_)));
        if let State::Columns(columns) = state {
            let state = self.names_of(columns);
            let comment = match columns.len() {
                1 => "a state per value; --kind sequences takes it as a symbol of a hidden state",
                _ => "a state per combination of values",
            };
            self.key("state", &state, comment);
        }
        self.partitions();
        let states = match state {
            State::Columns(names) => {
                let columns = names.iter().filter_map(|name| self.survey.column(name));
                columns.map(SurveyColumn::distinct).product()
            }
            State::Boxes(boxes) => {
                self.line("");
                self.commented("[transitions.bins]", "a state is a box of this grid");
                boxes.iter().for_each(|boxes| self.boxes(boxes));
                boxes.iter().map(|b| b.boxes).product()
            }
        };
        self.sets(states);
    }

    fn sequences(&mut self, order: &Order, symbol: &str) {
        self.line("[sequences]");
        self.select_rows(order, &[symbol]);
        self.order(order);
        let symbol = self.name_of(symbol);
        self.key("symbol", &symbol, "what a row shows");
        self.partitions();
        let comment = "hidden states; \"auto\" compares ranks";
        self.fit("hmm", "spectral_hmm", ("rank", 2), comment);
        self.line("");
        self.line("# The same states, refined by the Baum–Welch algorithm:");
        self.line("# [[fit]]");
        self.line("# name = \"refined\"");
        self.line("# method = \"spectral_hmm\"");
        self.line("# rank = 2");
        self.line("# refine = \"em\"");
    }

    fn filters(&mut self, order: &Order, state: &[String], observation: &[String]) {
        self.line("[sequences]");
        let columns: Vec<&str> = state
            .iter()
            .chain(observation)
            .map(String::as_str)
            .collect();
        self.select_rows(order, &columns);
        self.order(order);
        if let Some(steps) = &order.steps
            && let Some(text) = length(steps.most_frequent, order.is_clock)
            && steps.share >= 0.5
        {
            let percent = (100.0 * steps.share).floor();
            let comment = format!("{percent} % of the rows; a longer time begins a new sequence");
            self.key("interval", &text, &comment);
        }
        let names = format!("[{}]", self.list_of(state));
        self.key("state", &names, "known here; gyre assign needs no state");
        let names = format!("[{}]", self.list_of(observation));
        self.key("observation", &names, "what a row measures of it");
        self.partitions();
        self.line("");
        self.line("[[fit]]");
        self.line("name = \"kalman\"");
        self.key(
            "method",
            "\"kalman\"",
            "a linear system, fitted to the rows",
        );
        self.line("");
        self.line("# A filter of training rows, also of systems that are not linear:");
        self.line("# [[fit]]");
        self.line("# name = \"kernel\"");
        self.line("# method = \"kernel_bayes\"");
    }

    /// The SQL that selects columns, and those of the partition.
    fn select(&mut self, mut columns: Vec<String>) {
        for name in &self.survey.partitions {
            let partition = self.selected(name);
            let renamed = format!(" AS {}", sql(name));
            if !columns
                .iter()
                .any(|c| *c == partition || c.ends_with(&renamed))
            {
                columns.push(partition);
            }
        }
        let text = format!(
            "SELECT {} FROM {}",
            columns.join(", "),
            sql(&self.survey.name)
        );
        self.line(&format!("sql = {}", toml(&text)));
    }

    /// The SQL that selects the rows of trajectories and `more` columns.
    fn select_rows(&mut self, order: &Order, more: &[&str]) {
        let columns = order.columns().map(String::as_str);
        let columns = columns.chain(more.iter().copied());
        self.select(columns.map(|name| self.selected(name)).collect());
    }

    fn order(&mut self, order: &Order) {
        match &order.trajectory {
            Some(column) => {
                let rows = order.steps.as_ref().map_or(1.0, |steps| steps.rows);
                let comment = format!("one trajectory per value, of {rows:.0} rows on average");
                self.key("trajectory", &self.name_of(column), &comment);
            }
            None => self.line("# No trajectory: all rows belong to one."),
        }
        let time = self.name_of(&order.time);
        let column = self.survey.column(&order.time);
        let made = column.filter(|column| column.column_type().is_none());
        let note = made.and_then(|column| column.note);
        let Some(ties) = &order.ties else {
            let comment = match note {
                Some(note) => format!("orders the rows of a trajectory; {note}"),
                None => "orders the rows of a trajectory".into(),
            };
            return self.key("time", &time, &comment);
        };
        let second = self.name_of(&ties.order);
        let comment = "the second column orders the rows of a trajectory at one time";
        self.key("time", &format!("[{time}, {second}]"), comment);
        let rows = counted(ties.repeated, "row");
        let mut comment =
            format!("the first row of each time counts, because {rows} repeat a time");
        if ties.equal > 0 {
            comment += &format!(
                "; {} of them are equal to another row in all columns",
                ties.equal
            );
        }
        self.key("duplicates", "\"first\"", &comment);
    }

    /// The lag: the most frequent time between rows, or ten times as much for coordinates of long
    /// trajectories. If steps differ, rows are counted.
    fn lag(&mut self, order: &Order, is_long: bool) {
        if let Some(lag) = &self.survey.given.lag {
            let value = match lag.parse::<u64>() {
                Ok(_) => lag.clone(),
                Err(_) => toml(lag),
            };
            return self.key("lag", &value, "as --lag says");
        }
        let Some(steps) = &order.steps else {
            let comment = "trajectories have one row: change the trajectory";
            return self.key("lag", "\"1 step\"", comment);
        };
        let (most_frequent, share) = (&steps.most_frequent, &steps.share);
        let n = if is_long && steps.rows >= 50.0 {
            10.0
        } else {
            1.0
        };
        if let Some(jitter) = &steps.jitter {
            return self.near_lag(order, jitter, n > 1.0);
        }
        let text = length(n * most_frequent, order.is_clock);
        let percent = (100.0 * share).floor();
        let one = shown(*most_frequent, order.is_clock);
        let why = format!("{percent} % of the rows are {one} after the row before");
        let number_of_steps = counted(n, "step");
        match text.filter(|_| *share >= 0.5 && *most_frequent > 0.0) {
            Some(text) => self.key("lag", &text, &format!("{number_of_steps}: {why}")),
            None => {
                let why = format!("rows are counted, because only {why}");
                self.key("lag", &toml(&number_of_steps), &why);
                let trajectory = order.trajectory.as_deref().unwrap_or_default();
                let is_named = fit(trajectory, Role::Trajectory) > 0;
                if let Some(gaps) = steps.gaps.as_ref().filter(|_| is_named) {
                    self.max_gap(gaps, order.is_clock);
                }
            }
        }
    }

    /// The lag and the tolerance of times that nearly fit a step. `is_long`: ten steps, if the
    /// times also fit these.
    fn near_lag(&mut self, order: &Order, jitter: &Jitter, is_long: bool) {
        let is_clock = order.is_clock;
        let (n, distance) = match jitter.ten.filter(|_| is_long) {
            Some(distance) => (10.0, distance),
            None => (1.0, jitter.one),
        };
        let lengths = length(n * jitter.step, is_clock).zip(length(distance, is_clock));
        let Some((lag, tolerance)) = lengths else {
            return self.key(
                "lag",
                "\"1 step\"",
                "rows are counted, because steps differ",
            );
        };
        let (steps, one) = (counted(n, "step"), shown(jitter.step, is_clock));
        let comment = format!("{steps}: most rows are about {one} after the row before");
        self.key("lag", &lag, &comment);
        let comment = "few times fit exactly, so the nearest row within this counts";
        self.key("tolerance", &tolerance, comment);
    }

    /// A gap that may end a trajectory, as a comment.
    fn max_gap(&mut self, gaps: &Gaps, is_clock: bool) {
        let is_session = is_clock && gaps.median < SESSION && SESSION < gaps.largest;
        let gap = if is_session {
            Some(SESSION)
        } else {
            round(10.0 * gaps.median, is_clock)
        };
        let Some(gap) = gap.and_then(|gap| length(gap, is_clock)) else {
            return;
        };
        let about = |time: f64| shown(round(time, is_clock).unwrap_or(time), is_clock);
        let (median, largest) = (about(gaps.median), about(gaps.largest));
        let comment = format!(
            "ends trajectories at long pauses: they are {median} in the median, {largest} at most"
        );
        self.key("# max_gap", &gap, &comment);
    }

    fn boxes(&mut self, boxes: &Boxes) {
        let [low, high] = boxes.bounds.map(number);
        let kind = if boxes.is_periodic {
            "periodic"
        } else {
            "bounds"
        };
        let comment = match boxes.outside {
            0 if boxes.is_periodic && is_radians(boxes.bounds) => {
                format!("boxes of {} degrees", 360.0 / boxes.boxes as f64)
            }
            0 => {
                let [low, high] = boxes.bounds;
                format!("boxes of {}", short((high - low) / boxes.boxes as f64))
            }
            n => format!(
                "{n} of {} rows are outside, and are dropped",
                self.survey.rows
            ),
        };
        let grid = format!("{{ {kind} = [{low}, {high}], boxes = {} }}", boxes.boxes);
        self.key(&self.name_of(&boxes.column), &grid, &comment);
    }

    fn partitions(&mut self) {
        let names = self.survey.partitions.iter();
        let names = names.filter(|name| !name.contains("${"));
        let names: Vec<String> = names.map(|name| self.name_of(name)).collect();
        if !names.is_empty() {
            let names = format!("[{}]", names.join(", "));
            self.key("# partition_by", &names, "one model per folder");
        }
    }

    /// Fits of sets to this number of states: by likelihood and by singular vectors.
    fn sets(&mut self, states: usize) {
        let rank = if states >= 40 { 4 } else { 2 };
        self.fit("dbmr", "dbmr", ("rank", rank), "the number of sets");
        self.fit("svd", "svd", ("rank", rank), "compare both methods");
    }

    fn fit(&mut self, name: &str, method: &str, (key, value): (&str, u32), comment: &str) {
        self.line("");
        self.line("[[fit]]");
        self.line(&format!("name = {}", toml(name)));
        self.line(&format!("method = {}", toml(method)));
        self.key(key, &value.to_string(), comment);
    }

    fn points(&mut self, id: Option<&str>, coordinates: &Coordinates) {
        let (order, columns, names) = match coordinates {
            Coordinates::Columns(columns) => {
                self.line("[points]");
                let order: Vec<String> = columns.iter().map(|c| self.sql_of(c)).collect();
                let selected = columns.iter().map(|c| self.selected(c)).collect();
                let names: Vec<String> = columns.iter().map(|c| self.name_of(c)).collect();
                (order, selected, names.join(", "))
            }
            Coordinates::Sphere {
                longitude,
                latitude,
            } => {
                self.commented("[points]", "degrees become points of a unit sphere");
                let (lon, lat) = (self.sql_of(longitude), self.sql_of(latitude));
                let selected = vec![
                    format!("cos(radians({lat})) * cos(radians({lon})) AS x"),
                    format!("cos(radians({lat})) * sin(radians({lon})) AS y"),
                    format!("sin(radians({lat})) AS z"),
                ];
                (vec![lon, lat], selected, "\"x\", \"y\", \"z\"".into())
            }
        };
        let row = self.free_name("row");
        let key = match id {
            Some(id) => self.selected(id),
            None => {
                let order = order.join(", ");
                format!("row_number() OVER (ORDER BY {order}) AS {}", sql(&row))
            }
        };
        self.select(std::iter::once(key).chain(columns).collect());
        let (id, why) = match id {
            Some(id) => (self.name_of(id), "differs in every row"),
            None => {
                let why = "no column differs in every row, so rows are numbered";
                (toml(&row), why)
            }
        };
        self.key("id", &id, why);
        self.line(&format!("coordinates = [{names}]"));
        if let Coordinates::Columns(_) = coordinates {
            let comment = "each coordinate is divided by its deviation";
            self.key("scale", "\"standard\"", comment);
        }
        if let Coordinates::Columns(columns) = coordinates {
            self.angles(columns);
        }
        self.partitions();
        let is_large = self.survey.all_rows.is_none_or(|rows| rows > MOST_POINTS);
        let sketch = "more of them keep distances better";
        for (name, method, dimension, comment) in [
            ("map", "diffusion_map", 2, "coordinates per point"),
            ("sketch", "heat_sketch", 8, sketch),
        ] {
            self.fit(name, method, ("dimension", dimension), comment);
            if is_large {
                self.key("landmarks", "1000", "points that stand for the others");
            }
        }
    }

    /// Comments about coordinates that are angles.
    fn angles(&mut self, columns: &[String]) {
        for name in columns {
            let column = self.survey.column(name);
            let Some(period) = column.and_then(period) else {
                continue;
            };
            let column = self.sql_of(name);
            let angle = if is_radians(period) {
                column
            } else {
                format!("radians({column})")
            };
            self.line(&format!(
                "# {} is an angle: select cos({angle}) and sin({angle}) as coordinates in its place.",
                escaped(name)
            ));
        }
    }

    /// The name of a column in the pipeline: its own, unless the results have a column of that
    /// name.
    fn renamed(&self, column: &str) -> String {
        if is_output_column(column) {
            self.free_name(column)
        } else {
            column.into()
        }
    }

    /// A name that neither the table nor the results have.
    fn free_name(&self, beginning: &str) -> String {
        let mut name = beginning.to_string();
        let columns = &self.survey.columns;
        while is_output_column(&name) || columns.iter().any(|c| c.name == name) {
            name.push_str("_input");
        }
        name
    }

    /// A column in the list of SELECT, under its own name.
    fn selected_as_is(&self, column: &str) -> String {
        let (made, name) = (self.sql_of(column), sql(column));
        if made == name {
            return made;
        }
        format!("{made} AS {name}")
    }

    /// A column as SQL names or makes it.
    fn sql_of(&self, column: &str) -> String {
        let found = self.survey.column(column);
        found.map_or_else(|| sql(column), SurveyColumn::sql)
    }

    /// The names of columns in the pipeline, between commas.
    fn list_of(&self, columns: &[String]) -> String {
        let names: Vec<String> = columns.iter().map(|c| self.name_of(c)).collect();
        names.join(", ")
    }

    /// The name of one column, or a list of names, as a value of TOML.
    fn names_of(&self, columns: &[String]) -> String {
        match columns {
            [only] => self.name_of(only),
            several => format!("[{}]", self.list_of(several)),
        }
    }

    /// The name of a column in the pipeline, as a value of TOML.
    fn name_of(&self, column: &str) -> String {
        toml(&self.renamed(column))
    }

    /// A column in the list of SELECT.
    fn selected(&self, column: &str) -> String {
        let name = self.renamed(column);
        let (made, name) = (self.sql_of(column), sql(&name));
        if made == name {
            return made;
        }
        format!("{made} AS {name}")
    }
}
