//! A table → a pipeline file for it, as text with comments: a first proposal, which people change.
//!
//! [`survey`](survey::survey) reads the columns and the first rows. [`roles`] finds the columns
//! that can be a time, a state and so on, unless options name them ([`given`]). [`proposal`]
//! chooses among them, and [`text`] writes the file.

pub(crate) mod angles;
pub mod boxes;
pub(crate) mod clocks;
pub(crate) mod columns;
pub(crate) mod dialects;
pub(crate) mod fills;
pub mod given;
pub(crate) mod left_out;
pub(crate) mod literals;
pub(crate) mod names;
pub mod proposal;
pub mod roles;
pub(crate) mod survey;
pub(crate) mod table_text;
pub(crate) mod text;
pub(crate) mod times;

use crate::error::{Error, Result};
use crate::plan::pipeline::Pipeline;
use crate::run::init::given::GivenRoles;
use crate::run::init::proposal::propose;
use crate::run::init::survey::survey;
use crate::run::init::text::Places;

/// A pipeline file for the table at `data`: a file, a folder or a URL. What `given` does not say,
/// the columns determine.
///
/// # Errors
/// If the table cannot be read, or its columns have no roles in such a pipeline.
pub(crate) async fn pipeline(data: &str, places: &Places, given: GivenRoles) -> Result<String> {
    let is_given = given.is_any();
    let survey = survey(data, given).await?;
    let proposal = propose(&survey)?;
    let text = text::text(&survey, &proposal, places);
    Pipeline::parse(&text, "the proposed pipeline", &[], &|_| None).map_err(|e| {
        if is_given {
            return Error::spec(format!("the pipeline with these options is wrong: {e}"));
        }
        Error::bug(format!("the proposed pipeline is wrong: {e}\n{text}"))
    })?;
    Ok(text)
}
