//! A table → a pipeline file for it, as text with comments: a first proposal, which people change.
//!
//! [`survey`](survey::survey) reads the columns and the first rows. [`roles`] finds the columns
//! that can be a time, a state and so on. [`proposal`] chooses among them, and [`text`] writes the
//! file.

pub(crate) mod angles;
pub mod boxes;
pub(crate) mod fills;
pub(crate) mod left_out;
pub(crate) mod literals;
pub(crate) mod names;
pub mod proposal;
pub mod roles;
pub(crate) mod survey;
pub(crate) mod text;
pub(crate) mod times;

use crate::error::{Error, Result};
use crate::plan::pipeline::Pipeline;
use crate::run::init::proposal::{RowKind, propose};
use crate::run::init::survey::survey;
use crate::run::init::text::Places;

/// A pipeline file for the table at `data`: a file, a folder or a URL. Without `kind`, the columns
/// determine what a row is.
///
/// # Errors
/// If the table cannot be read, or its columns have no roles in such a pipeline.
pub(crate) async fn pipeline(data: &str, places: &Places, kind: Option<RowKind>) -> Result<String> {
    let survey = survey(data).await?;
    let proposal = propose(&survey, kind)?;
    let text = text::text(&survey, &proposal, places);
    Pipeline::parse(&text, "the proposed pipeline", &[], &|_| None)
        .map_err(|e| Error::bug(format!("the proposed pipeline is wrong: {e}\n{text}")))?;
    Ok(text)
}
