//! What a user asked to see, and what the record says about it.

use crate::error::{Error, Result};
use serde_json::Value;

/// What pictures are drawn of.
#[derive(Default)]
pub(crate) struct Asked<'a> {
    /// The key of the trajectory of estimates: the values of its columns, with commas between them.
    pub trajectory: Option<&'a str>,
    /// The columns of the known state; empty if they are not known.
    pub state: Vec<String>,
    /// The columns of the observation; empty if they are not known.
    pub observation: Vec<String>,
}

impl<'a> Asked<'a> {
    /// Takes the names of columns from the record of the run.
    pub(crate) fn new(trajectory: Option<&'a str>, record: &Value) -> Asked<'a> {
        let texts = |key: &str| {
            let names = record["models"][0][key].as_array().into_iter().flatten();
            let names = names.filter_map(Value::as_str).map(str::to_string);
            names.collect::<Vec<_>>()
        };
        Asked {
            trajectory,
            state: texts("state"),
            observation: texts("observation"),
        }
    }

    /// The values of the columns of the trajectory, if one was asked for.
    ///
    /// # Errors
    /// If the key has another number of values than there are columns.
    pub(crate) fn values(&self, columns: &[&str]) -> Result<Option<Vec<&'a str>>> {
        let Some(key) = self.trajectory else {
            return Ok(None);
        };
        let values = match columns {
            // A comma is a part of the only value.
            [_] => vec![key],
            _ => key.split(',').collect::<Vec<_>>(),
        };
        if columns.is_empty() {
            return Err(Error::spec(
                "--trajectory needs estimates of trajectories, and these rows belong to none",
            ));
        }
        if values.len() != columns.len() {
            return Err(Error::spec(format!(
                "--trajectory needs a value of each of {}, with commas between them",
                columns.join(", ")
            )));
        }
        Ok(Some(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_a_value_per_column() {
        let asked = |key: &'static str| Asked {
            trajectory: Some(key),
            ..Asked::default()
        };
        let values = |key: &'static str, columns: &[&str]| asked(key).values(columns);
        assert_eq!(values("a,b", &["id"]).expect("one"), Some(vec!["a,b"]));
        assert_eq!(
            values("a,b", &["x", "y"]).expect("two"),
            Some(vec!["a", "b"])
        );
        let message = values("a", &["x", "y"]).expect_err("one of two").full();
        assert!(message.contains("a value of each of x, y"), "{message}");
        assert!(values("a", &[]).is_err());
        assert_eq!(Asked::default().values(&["id"]).expect("none"), None);
    }
}
