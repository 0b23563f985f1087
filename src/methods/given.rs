//! A partition that the input has, scored like that of a method.

use crate::error::{Error, Result};
use crate::evidence::counts::{Counts, Size};
use crate::evidence::pass::Passes;
use crate::methods::columns::StateColumn;
use crate::methods::estimator::{Estimator, Fault, Needs, Parameters};
use crate::methods::fit::{Fit, How};
use crate::methods::low_rank::columns::SETS;
use crate::methods::low_rank::{most_probable, projection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Sets that the input has, scored like those of a method.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Given {
    /// The column of the SQL result with the set of the (source) state of the row.
    pub affiliation: String,
}

impl Given {
    /// The partition in a column.
    pub fn column(name: &str) -> Self {
        Given {
            affiliation: name.into(),
        }
    }
}

impl Parameters for Given {
    const NAME: &'static str = "given";

    fn check(&self) -> std::result::Result<(), Fault> {
        if self.affiliation.trim().is_empty() {
            return Err(("affiliation", "must not be empty".into()));
        }
        Ok(())
    }

    fn describe(&self, _: &str) -> String {
        format!("the given partition `{}`", self.affiliation)
    }
}

impl Estimator for Given {
    type Evidence<'a> = Counts<'a>;
    type Size = Size;
    type Model = Fit;

    fn needs(&self) -> Needs<'_> {
        Needs {
            given: Some(&self.affiliation),
            ..Needs::default()
        }
    }

    fn columns(&self) -> &'static [StateColumn] {
        SETS
    }

    fn bytes(&self, size: Size, _: u64) -> u64 {
        size.factor(size.targets, 1)
    }

    /// Sets keep their numbers. There may be more sets than states; those sets are empty.
    fn fit(&self, passes: &Passes<'_>, counts: &Counts<'_>, seed: u64) -> Result<Fit> {
        let name = &self.affiliation;
        let given = counts.given.iter().find(|given| given.name == *name);
        let given = given.ok_or_else(|| Error::bug(format!("there is no partition `{name}`")))?;
        assert!(
            given.sets.iter().all(|&k| (k as usize) < given.rank),
            "a latent state must be below the rank"
        );
        let (sets, rank) = (given.sets.clone(), given.rank);
        Ok(Fit {
            how: How::direct(seed),
            model: projection(passes, &counts.shards, sets, rank, most_probable),
        })
    }
}

/// The fit of a partition of the sources.
#[cfg(test)]
pub(crate) fn fit_of(
    shards: &crate::evidence::counts::shards::Shards,
    sets: Vec<u32>,
    rank: usize,
) -> Fit {
    let counts = Counts::of(shards).with_given("sets", sets, rank);
    let fit = Given::column("sets").fit(&Passes::local(), &counts, 0);
    fit.expect("a fit")
}
