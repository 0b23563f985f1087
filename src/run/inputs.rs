//! A pipeline → its open tables → a plan with its query → a run.
//!
//! This is how the program, the tests and embedders start a run:
//! `Pipeline::from_file(path)?.open().await?.plan().await?.run().await?`.

use crate::error::{Error, Kind, Result};
use crate::plan::assignment::NewRows;
use crate::plan::kind::plan;
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::keys::Fingerprint;
use crate::plan::relative;
use crate::plan::rows::query;
use crate::read::lake::files::TableSource;
use crate::read::lake::{self, Lake, Resources, query_text};
use crate::read::paths::overlap;
use crate::run::assign::kind::{Assigns, PlannedAssignment};
use crate::run::counts::kind::CountsKind;
use crate::run::{Planned, kind};
use crate::store::Stores;
use futures::future::LocalBoxFuture;
use std::path::Path;
use std::sync::Arc;

/// A pipeline with its open tables and the text of its query.
pub struct Inputs {
    /// The pipeline. Its relative paths are resolved.
    pub pipeline: Pipeline,
    /// The tables of the pipeline.
    pub lake: Lake,
    /// The text of the query.
    pub sql: String,
}

impl Pipeline {
    /// Reads a pipeline file, with the environment variables of the process.
    ///
    /// # Errors
    /// If the file cannot be read, or all errors in it.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Pipeline> {
        Pipeline::from_file_with(path.as_ref(), &[])
    }

    /// Reads a pipeline file and sets keys, such as `fit.dbmr.rank=4`, in the order of `sets`.
    ///
    /// # Errors
    /// If the file cannot be read, or all errors in it.
    pub(crate) fn from_file_with(path: &Path, sets: &[String]) -> Result<Pipeline> {
        let text = std::fs::read_to_string(path).map_err(|e| {
            let what = format!("pipeline {} cannot be read", path.display());
            Error::with_source(Kind::Spec, what, e)
        })?;
        let environment = |name: &str| std::env::var(name).ok();
        let mut pipeline = Pipeline::parse(&text, &path.display().to_string(), sets, &environment)?;
        pipeline.file = Some(path.to_path_buf());
        Ok(pipeline)
    }

    /// Opens the tables with all cores, without a bound on memory.
    ///
    /// # Errors
    /// If an input is not found or cannot be read, or contains the output.
    pub async fn open(self) -> Result<Inputs> {
        let stores = Stores::from(&self.store);
        self.open_with(&Resources::default(), &stores).await
    }

    /// Opens the tables, which are in `stores`, with some of the machine's resources.
    ///
    /// # Errors
    /// If an input is not found or cannot be read, or contains the output.
    pub fn open_with<'a>(
        mut self,
        resources: &'a Resources,
        stores: &'a Stores,
    ) -> LocalBoxFuture<'a, Result<Inputs>> {
        Box::pin(async move {
            if let Some(file) = self.file.clone() {
                relative::resolve(&mut self, &file).await?;
            }
            let sources: Vec<TableSource<'_>> = self
                .tables
                .iter()
                .map(|(name, table)| table.source(name))
                .collect();
            overlap::check_no_overlap(&sources, &self.job.output)?;
            let mut lake = lake::open(&sources, resources, stores).await?;
            lake.check_no_overlap(&self.job.output)?;
            if self.job.fingerprint == Fingerprint::Content {
                lake.fingerprint().await?;
            }
            let sql = query_text(&self.transitions.query)?;
            Ok(Inputs {
                pipeline: self,
                lake,
                sql,
            })
        })
    }
}

impl Inputs {
    /// Plans a run over states.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub async fn plan(self) -> Result<Planned<CountsKind>> {
        self.plan_as(None).await
    }

    /// Plans a run over the rows of one kind; `seed` replaces that of the pipeline.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub fn plan_as<K: kind::EvidenceKind>(
        self,
        seed: Option<u64>,
    ) -> LocalBoxFuture<'static, Result<Planned<K>>> {
        Box::pin(async move {
            let planned = plan::<K::Plan>(&self.pipeline, &self.sql, seed, &self.lake).await;
            let (plan, frame) = planned.map_err(|e| self.pipeline.at(e))?;
            Ok(Planned {
                plan: Arc::new(plan),
                lake: self.lake,
                frame,
            })
        })
    }

    /// Plans the assignment of rows of one kind to a model.
    ///
    /// # Errors
    /// If the SQL or the keys of the pipeline do not fit the tables.
    pub(crate) fn plan_assignment<K: Assigns>(
        self,
    ) -> LocalBoxFuture<'static, Result<PlannedAssignment<K>>> {
        Box::pin(async move {
            let (pipeline, lake) = (&self.pipeline, &self.lake);
            let planned = async {
                let query = query(pipeline, &self.sql, lake).await?;
                K::NewRows::resolve(pipeline, query, lake).await
            };
            let (assignment, frame) = planned.await.map_err(|e| pipeline.at(e))?;
            Ok(PlannedAssignment {
                assignment: Arc::new(assignment),
                lake: self.lake,
                frame,
            })
        })
    }
}
