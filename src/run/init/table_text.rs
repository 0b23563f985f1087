//! The part of a pipeline file about the job and the table: where it is, and how its files are
//! written.

use crate::read::formats::column_type::ColumnType;
use crate::read::formats::fill_values::FillValue;
use crate::run::init::literals::toml;
use crate::run::init::proposal::Proposal;
use crate::run::init::roles::Order;
use crate::run::init::survey::FILENAME;
use crate::run::init::text::{PipelineText, Places};

/// Columns whose values for null are named one by one.
const MOST_NULLS: usize = 4;

impl PipelineText<'_> {
    pub(crate) fn job_and_table(&mut self, places: &Places, proposal: &Proposal) {
        let name = &self.survey.name;
        self.line("[job]");
        self.line(&format!("name = {}", toml(name)));
        let output = toml(&format!("{}/{name}", places.results));
        self.key("output", &output, "the tables go here");
        self.line("");
        self.line(&format!("[tables.{name}]"));
        self.line(&format!("path = {}", toml(&places.table)));
        if let Some(format) = self.survey.format {
            self.line(&format!("format = {}", toml(format)));
        }
        self.dialect();
        self.filename(proposal);
        self.nulls();
        self.types(proposal);
        self.line("");
    }

    /// How text files are written.
    fn dialect(&mut self) {
        let dialect = &self.survey.dialect;
        for (key, character) in [
            ("delimiter", dialect.delimiter),
            ("quote", dialect.quote),
            ("decimal", dialect.decimal),
        ] {
            if let Some(character) = character {
                self.line(&format!("{key} = {}", toml(&character.to_string())));
            }
        }
        if let Some(header) = dialect.header {
            let comment = "without names, columns are column_1, column_2 and so on";
            self.key("header", &header.to_string(), comment);
        }
    }

    /// The types of columns of times.
    fn types(&mut self, proposal: &Proposal) {
        let survey = self.survey;
        let columns = proposal.order().into_iter().flat_map(Order::columns);
        let columns = columns.filter_map(|name| survey.column(name));
        let mut types = Vec::new();
        let mut note = None;
        for column in columns {
            if let Some(ColumnType::Time { format, zone }) = column.column_type() {
                let zone = zone.as_ref().map(|zone| format!(", zone = {}", toml(zone)));
                let (name, zone) = (toml(&column.name), zone.unwrap_or_default());
                types.push(format!("{name} = {{ timestamp = {}{zone} }}", toml(format)));
                note = note.or(column.note);
            }
        }
        if !types.is_empty() {
            let types = format!("{{ {} }}", types.join(", "));
            self.key("types", &types, note.unwrap_or("times"));
        }
    }

    /// The key of the column with the file of each row. It is a comment if the rows do not need it.
    fn filename(&mut self, proposal: &Proposal) {
        let (Some(_), Some(order)) = (&self.survey.filename, proposal.order()) else {
            return;
        };
        let name = toml(FILENAME);
        match &order.trajectory {
            Some(column) if column == FILENAME => {
                self.key("filename", &name, "a column with the file of each row");
            }
            Some(_) => {}
            None => {
                let comment = "select it, and name it as the trajectory, if each file is one";
                self.key("# filename", &name, comment);
            }
        }
    }

    /// The values that mean null.
    fn nulls(&mut self) {
        let survey = self.survey;
        if survey.fills.is_empty() {
            return;
        }
        let list = |values: &[FillValue]| {
            let values = values.iter().map(|value| match value {
                FillValue::Text(text) => toml(text),
                number => number.to_string(),
            });
            format!("[{}]", values.collect::<Vec<_>>().join(", "))
        };
        let comment = "far from all other values, so they mean null";
        if survey.fills.len() <= MOST_NULLS {
            let columns = survey.fills.iter();
            let columns =
                columns.map(|(name, values)| format!("{} = {}", toml(name), list(values)));
            let table = format!("{{ {} }}", columns.collect::<Vec<_>>().join(", "));
            return self.key("null", &table, comment);
        }
        let mut all: Vec<FillValue> = Vec::new();
        for value in survey.fills.values().flatten() {
            if !all.contains(value) {
                all.push(value.clone());
            }
        }
        self.key("null", &list(&all), comment);
    }
}
