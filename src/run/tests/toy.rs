//! Numbers as a kind of evidence: their model is their sum.

use crate::error::{Error, Kind, Result};
use crate::evidence::pass::checkpoints::Checkpoints;
use crate::evidence::pass::packed::{pack, unpack};
use crate::output::result::{ModelKey, Written};
use crate::output::staging::{StagedTables, Staging};
use crate::output::tables::columns::{Columns, Placed, TableColumns};
use crate::output::tables::run_schema::{LagColumn, RunSchema};
use crate::plan::assignment::{Assignment, NewRows};
use crate::plan::job::PlannedJob;
use crate::plan::kind::{KindPlan, with_job};
use crate::plan::pipeline::Pipeline;
use crate::plan::rows::PlannedQuery;
use crate::read::lake::Lake;
use crate::run::assign::kind::{AssignedRows, Assigning, Assigns, Model};
use crate::run::compare::{CompareSide, Compares, Pair};
use crate::run::kind::{DroppedRows, EvidenceKind, Facts, Fitted, Found, Read, Running};
use crate::run::record::{ModelEntry, Resumed};
use crate::run::workers::Workers;
use crate::run::workers::executor::blocking;
use crate::run::workers::requests::Requests;
use crate::run::workers::slices::Width;
use crate::run::workers::task::{TaskPlace, Tasks};
use crate::run::{Planned, kind};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, SchemaRef};
use datafusion::dataframe::DataFrame;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Duration;

/// Numbers. Their model is their sum.
#[derive(Clone, Default)]
pub(super) struct Toy;

#[derive(Serialize, Deserialize)]
pub(super) struct Plan {
    pub(super) job: PlannedJob,
    /// Whether the certificate of the sum holds.
    pub(super) holds: bool,
}

#[derive(Default, Clone, Copy, Serialize)]
pub(super) struct Sum {
    pub(super) sum: f64,
}

impl Display for Sum {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "sum {}", self.sum)
    }
}

impl Placed for Sum {
    fn place(&self) -> (usize, usize) {
        (0, 0)
    }
}

impl Facts for Sum {
    const COUNTED: &'static str = "number";

    fn sum(&self) -> f64 {
        self.sum
    }

    fn evidence(&self) -> String {
        format!("numbers of the sum {}", self.sum)
    }
}

fn columns<'a>() -> TableColumns<'a, Sum> {
    let rows = Columns::of(|model: &Sum| vec![*model]);
    let rows = rows.column("fit", |_| "sum").column("sum", |row| row.sum);
    rows.finish()
}

fn schema() -> RunSchema {
    RunSchema::of_models(&[], Vec::new(), LagColumn::None)
}

fn entry(model: Sum) -> ModelEntry<Sum> {
    let partition = BTreeMap::new();
    ModelEntry {
        partition,
        lag: None,
        model,
    }
}

async fn numbers(frame: &DataFrame) -> Result<Vec<f64>> {
    let batches = frame.clone().collect().await;
    let batches = batches.map_err(|e| Error::with_source(Kind::Input, "no numbers", e))?;
    let of = |batch: &RecordBatch| {
        batch
            .column(0)
            .as_primitive::<Float64Type>()
            .values()
            .to_vec()
    };
    Ok(batches.iter().flat_map(of).collect())
}

/// The sum of a written model.
async fn known(written: &Written<'_>) -> Result<f64> {
    let columns = written.table("fits").await?.columns(&["sum"]).await?;
    Ok(columns[0].as_primitive::<Float64Type>().value(0))
}

impl KindPlan for Plan {
    const UNKNOWN: &'static str = "how many numbers there are";

    async fn resolve(
        _: &Pipeline,
        _: PlannedQuery,
        _: PlannedJob,
        _: &Lake,
    ) -> Result<(Plan, DataFrame)> {
        Err(Error::spec("no pipeline has such rows"))
    }

    with_job!();

    fn n_fits(&self) -> usize {
        1
    }

    fn schemas(&self) -> Vec<(&'static str, SchemaRef)> {
        vec![("fits", columns().schema(&schema()).0)]
    }
}

impl EvidenceKind for Toy {
    const NAME: &'static str = "numbers";
    const READ: &'static str = "read";
    type Plan = Plan;
    type Evidence = Vec<f64>;
    type Model = Sum;
    type Shared = ();
    type Rows = ();
    type Facts = Sum;
    type ModelRecord = Sum;

    async fn read(run: &Running<'_, Toy>) -> Result<Read<Toy>> {
        let evidence = numbers(run.frame).await?;
        let rows = evidence.len() as u64;
        let found = Found {
            rows,
            ..Found::default()
        };
        Ok(Read {
            evidence,
            found,
            ledger: None,
        })
    }

    async fn fit(run: &Running<'_, Toy>, numbers: Vec<f64>) -> Result<Fitted<Toy>> {
        let work = Arc::clone(run.work);
        let kept = blocking(move || Ok(work.find("sum"))).await?;
        let sum: f64 = match (kept, &run.options.workers) {
            (Some(piece), _) => unpack(&piece)?,
            (None, Workers::Local) => numbers.iter().sum(),
            (None, Workers::Remote { nodes, .. }) => {
                let requests: Requests<'_, Toy> = Requests::of(run, nodes).await?;
                let sums: Vec<Vec<f64>> = requests.all("sum", vec![numbers]).await?;
                sums.iter().flatten().sum()
            }
        };
        let (work, piece) = (Arc::clone(run.work), pack(&sum)?);
        let keep = move || {
            work.keep("sum", Duration::ZERO, piece);
            Ok(())
        };
        blocking(keep).await?;
        let resumed = Resumed::pieces(run.work, false);
        let fitted = Fitted::new(vec![Sum { sum }], (), Sum { sum });
        Ok(Fitted { resumed, ..fitted })
    }

    fn check_certificates(run: &Running<'_, Toy>, _: &Fitted<Toy>) -> Result<()> {
        let wrong = || Error::new(Kind::Check, "the sum is wrong");
        run.plan.holds.then_some(()).ok_or_else(wrong)
    }

    async fn stage(run: &Running<'_, Toy>, fitted: &Fitted<Toy>) -> Result<StagedTables> {
        let schema = schema();
        let staging = Staging::new(run.output, run.begun, &schema);
        staging
            .write_all(vec![("fits", columns())], &fitted.models)
            .await
    }

    fn record(
        _: &Running<'_, Toy>,
        fitted: &Fitted<Toy>,
        _: &kind::Written<Toy>,
        at: usize,
    ) -> ModelEntry<Sum> {
        entry(fitted.models[at])
    }
}

impl Tasks for Toy {
    type Work = Vec<f64>;

    fn name(_: &Vec<f64>) -> &'static str {
        "sum"
    }

    async fn perform(_: TaskPlace, work: Vec<f64>) -> Result<Vec<u8>> {
        pack(&vec![work.iter().sum::<f64>()])
    }

    fn width(_: &Planned<Toy>) -> Result<Width, String> {
        Err("there are few numbers".to_string())
    }
}

impl NewRows for () {
    async fn resolve(
        _: &Pipeline,
        _: PlannedQuery,
        _: &Lake,
    ) -> Result<(Assignment<()>, DataFrame)> {
        Err(Error::spec("no pipeline has such rows"))
    }
}

impl Assigns for Toy {
    type NewRows = ();
    type Assigned = Sum;
    const TABLES: &'static [&'static str] = &["differences"];

    async fn check_columns(_: &(), _: &Model<'_>) -> Result<()> {
        Ok(())
    }

    async fn assign(run: &mut Assigning<'_, Toy>) -> Result<AssignedRows<Sum>> {
        let numbers = numbers(&run.planned.frame).await?;
        let sum = numbers.iter().sum::<f64>() - known(&run.model.written).await?;
        run.output.claim_version(run.begun).await?;
        let (models, schema, columns) = ([Sum { sum }], schema(), columns());
        let staging = Staging::new(run.output, run.begun, &schema);
        let table = staging.write("differences", &columns, &models).await?;
        Ok(AssignedRows {
            rows: numbers.len() as u64,
            dropped: DroppedRows::new(),
            pairs: None,
            tables: BTreeMap::from([("differences", table.rows)]),
            warnings: Vec::new(),
            models: vec![entry(Sum { sum })],
            lacking: Vec::new(),
        })
    }
}

impl Compares for Toy {
    type Compared = Sum;

    async fn compare(
        a: &CompareSide<'_>,
        b: &CompareSide<'_>,
        _: &[Pair],
    ) -> Result<Vec<(ModelKey, Sum)>> {
        let sum = known(&b.written).await? - known(&a.written).await?;
        Ok(a.common(b).map(|key| (key.clone(), Sum { sum })).collect())
    }
}
