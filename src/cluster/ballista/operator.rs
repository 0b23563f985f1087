//! A task as a plan that Ballista sends to an executor.
//!
//! ```text
//! TasksExec: site                  does the task of each row, gives no rows
//!   a table of one column          one partition per task
//! ```
//!
//! Ballista gives an attempt its partitions by cutting them out of the leaves that it knows. A leaf
//! that it does not know is not cut. So the tasks are in a table, and the operator is above it.

use crate::cluster::ballista::worker::Node;
use crate::cluster::ballista::{AnswerSite, VERSION};
use crate::error::{Error, Kind};
use crate::run::workers::nodes::Task;
use arrow::array::{ArrayRef, BinaryArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use ballista_core::serde::BallistaPhysicalExtensionCodec;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{DataFusionError, Result, internal_err};
use datafusion::datasource::memory::MemorySourceConfig;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::{EquivalenceProperties, PhysicalExpr};
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{
    DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, Partitioning,
    PlanProperties,
};
use datafusion_proto::physical_plan::{
    AsExecutionPlan, PhysicalExtensionCodec, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::PhysicalPlanNode;
use futures::TryStreamExt;
use std::fmt;
use std::fmt::Formatter;
use std::sync::Arc;

/// Does the tasks that are the rows of its input.
#[derive(Debug)]
struct TasksExec {
    input: Arc<dyn ExecutionPlan>,
    site: AnswerSite,
    /// The process that does them; `None` outside of executors.
    node: Option<Arc<Node>>,
    properties: Arc<PlanProperties>,
}

impl TasksExec {
    fn new(input: Arc<dyn ExecutionPlan>, site: AnswerSite, node: Option<Arc<Node>>) -> TasksExec {
        let partitions = input.output_partitioning().partition_count();
        let properties = PlanProperties::new(
            EquivalenceProperties::new(input.schema()),
            Partitioning::UnknownPartitioning(partitions),
            EmissionType::Final,
            Boundedness::Bounded,
        );
        TasksExec {
            input,
            site,
            node,
            properties: Arc::new(properties),
        }
    }
}

impl DisplayAs for TasksExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut Formatter) -> fmt::Result {
        write!(f, "TasksExec: plan={}", self.site.plan)
    }
}

impl ExecutionPlan for TasksExec {
    fn name(&self) -> &str {
        "TasksExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("TasksExec has one input");
        };
        let (site, node) = (self.site.clone(), self.node.clone());
        Ok(Arc::new(TasksExec::new(input, site, node)))
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let Some(node) = self.node.clone() else {
            return internal_err!("tasks are done by executors");
        };
        let mut input = self.input.execute(partition, context)?;
        let (schema, site) = (self.schema(), self.site.clone());
        let nothing = RecordBatch::new_empty(Arc::clone(&schema));
        let doing = async move {
            while let Some(batch) = input.try_next().await? {
                let column = batch.column(0).as_any().downcast_ref::<BinaryArray>();
                let Some(tasks) = column else {
                    return internal_err!("tasks are bytes");
                };
                for bytes in tasks.iter().flatten() {
                    let bytes = bytes.to_vec();
                    let answered = node.answer(&site, Task { bytes }).await;
                    answered.map_err(|e| to_ballista(&e))?;
                }
            }
            Ok(nothing)
        };
        let stream = futures::stream::once(doing);
        Ok(Box::pin(RecordBatchStreamAdapter::new(schema, stream)))
    }
}

/// An error in the form that Ballista sends to the client. Ballista retries I/O errors only.
fn to_ballista(e: &Error) -> DataFusionError {
    let text = wrapped(e);
    if e.kind().is_retryable() {
        DataFusionError::IoError(std::io::Error::other(text))
    } else {
        DataFusionError::Execution(text)
    }
}

const BEGIN: &str = "⟦";
const END: &str = "⟧";

/// What stands for a backslash of a message, because the layers of Ballista add others.
const BACKSLASH: &str = "⧵";

fn wrapped(e: &Error) -> String {
    let message = e.full().replace('\\', BACKSLASH);
    format!("{BEGIN}{:?}: {message}{END}", e.kind())
}

/// The error of gyre in a message of Ballista, which quotes it in several layers.
pub(crate) fn unwrapped(message: &str) -> Option<Error> {
    let inside = message.split_once(BEGIN)?.1.split_once(END)?.0;
    let (kind, text) = inside.split_once(": ")?;
    let kinds = [
        Kind::Spec,
        Kind::Input,
        Kind::Check,
        Kind::Store,
        Kind::Conflict,
        Kind::Resources,
        Kind::Cancelled,
        Kind::Bug,
    ];
    let kind = kinds.into_iter().find(|k| format!("{k:?}") == kind)?;
    let text = text.replace('\\', "").replace(BACKSLASH, "\\");
    Some(Error::restored(kind, text))
}

/// A plan that does tasks, as bytes.
///
/// # Errors
/// If DataFusion cannot encode it, which is a bug.
pub(crate) fn plan(site: &AnswerSite, tasks: &[Task]) -> crate::error::Result<Vec<u8>> {
    let bytes = || {
        let column = Field::new("task", DataType::Binary, false);
        let schema: SchemaRef = Arc::new(Schema::new(vec![column]));
        let rows = tasks.iter().map(|task| {
            let column: ArrayRef = Arc::new(BinaryArray::from_vec(vec![&task.bytes]));
            Ok(vec![RecordBatch::try_new(schema.clone(), vec![column])?])
        });
        let rows: Vec<Vec<RecordBatch>> = rows.collect::<Result<_>>()?;
        let table = MemorySourceConfig::try_new_exec(&rows, schema.clone(), None)?;
        let plan = Arc::new(TasksExec::new(table, site.clone(), None));
        let codec = TasksCodec::default();
        let node = PhysicalPlanNode::try_from_physical_plan(plan, &codec)?;
        let mut bytes = Vec::new();
        node.try_encode(&mut bytes)?;
        Ok::<_, DataFusionError>(bytes)
    };
    bytes().map_err(|e| Error::with_source(Kind::Bug, "tasks cannot be sent", e))
}

/// Encodes and decodes the operator of gyre. The codec of Ballista handles all others.
#[derive(Debug, Default)]
pub(crate) struct TasksCodec {
    node: Option<Arc<Node>>,
    ballista: BallistaPhysicalExtensionCodec,
}

/// The first bytes of the operator of gyre, which no message of Ballista has. The version follows,
/// in every version of gyre.
const MAGIC: &[u8] = b"gyre tasks\n";

impl TasksCodec {
    /// The codec of an executor.
    pub(crate) fn of(node: Arc<Node>) -> TasksCodec {
        TasksCodec {
            node: Some(node),
            ballista: BallistaPhysicalExtensionCodec::default(),
        }
    }

    fn site(&self, bytes: &[u8]) -> crate::error::Result<AnswerSite> {
        let damaged = |e| Error::with_source(Kind::Bug, "a plan is damaged", e);
        let (version, site): (String, &[u8]) = postcard::take_from_bytes(bytes).map_err(damaged)?;
        if version == VERSION {
            return postcard::from_bytes(site).map_err(damaged);
        }
        let process = match &self.node {
            Some(node) => format!("the executor {}", node.name()),
            None => "the scheduler".to_string(),
        };
        let what = format!(
            "{process} is gyre {VERSION} and received a task of gyre {version}; a cluster and its clients must have one version"
        );
        Err(Error::new(Kind::Conflict, what))
    }
}

impl PhysicalExtensionCodec for TasksCodec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        context: &TaskContext,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(ours) = bytes.strip_prefix(MAGIC) else {
            return self.ballista.try_decode(bytes, inputs, context, converter);
        };
        let site = self.site(ours).map_err(|e| to_ballista(&e))?;
        match inputs {
            [input] => {
                let (input, node) = (Arc::clone(input), self.node.clone());
                Ok(Arc::new(TasksExec::new(input, site, node)))
            }
            _ => internal_err!("TasksExec has one input"),
        }
    }

    fn try_encode(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        converter: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        let Some(tasks) = plan.downcast_ref::<TasksExec>() else {
            return self.ballista.try_encode(plan, bytes, converter);
        };
        let ours = encoded(VERSION, &tasks.site);
        bytes.extend(ours.map_err(|e| DataFusionError::External(e.into()))?);
        Ok(())
    }
}

fn encoded(version: &str, site: &AnswerSite) -> postcard::Result<Vec<u8>> {
    postcard::to_extend(&(version, site), MAGIC.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::place::Output;
    use crate::read::lake::Resources;
    use crate::store::Stores;
    use datafusion::physical_plan::empty::EmptyExec;
    use datafusion::prelude::SessionContext;
    use datafusion_proto::physical_plan::DefaultPhysicalProtoConverter;

    const ONE: Resources = Resources {
        threads: 1,
        memory_bytes: None,
    };

    fn site(folder: &std::path::Path) -> AnswerSite {
        AnswerSite {
            output: folder.display().to_string(),
            plan: "plan".into(),
            options: Stores::new([("aws_region".into(), "eu".into())].into()).shared(),
            mark: "mark".into(),
        }
    }

    fn read(bytes: &[u8], codec: &TasksCodec) -> Result<Arc<dyn ExecutionPlan>> {
        let context = SessionContext::new().task_ctx();
        PhysicalPlanNode::try_decode(bytes)?.try_into_physical_plan(&context, codec)
    }

    #[tokio::test]
    async fn each_partition_of_a_decoded_plan_does_its_task() {
        let folder = tempfile::tempdir().expect("a folder");
        let site = site(folder.path());
        let output = Output::open(&site.output, &Stores::default());
        let output = output.expect("an output");
        let answers = output.answers("plan");
        answers.put_mark("mark").await.expect("a store");
        let tasks = [b"a", b"b", b"c"].map(|bytes| Task {
            bytes: bytes.to_vec(),
        });
        let bytes = plan(&site, &tasks).expect("a plan");
        let node = Arc::new(Node::new("host-7".into(), ONE));
        let decoded = read(&bytes, &TasksCodec::of(node)).expect("the plan");
        assert_eq!(decoded.output_partitioning().partition_count(), 3);
        let context = SessionContext::new().task_ctx();
        let stream = decoded.execute(1, context).expect("a stream");
        let batches: Vec<RecordBatch> = stream.try_collect().await.expect("no error");
        assert!(batches.iter().all(|batch| batch.num_rows() == 0));
        let done = answers.done().await.expect("a store");
        assert_eq!(done.into_iter().collect::<Vec<_>>(), [tasks[1].id()]);
    }

    #[test]
    fn a_plan_of_another_version_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let site = site(folder.path());
        let input: Arc<dyn ExecutionPlan> = Arc::new(EmptyExec::new(Arc::new(Schema::empty())));
        let context = SessionContext::new().task_ctx();
        let node = Arc::new(Node::new("host-7".into(), ONE));
        for (codec, who) in [
            (TasksCodec::default(), "the scheduler"),
            (TasksCodec::of(node), "the executor host-7"),
        ] {
            let read = |version: &str| {
                let ours = encoded(version, &site).expect("bytes");
                let converter = DefaultPhysicalProtoConverter {};
                codec.try_decode(&ours, &[Arc::clone(&input)], &context, &converter)
            };
            read(VERSION).expect("one of this version");
            let refused = read("0.0.0").expect_err("another version");
            // In the form that the client receives.
            let refused = unwrapped(&format!("{:?}", refused.to_string()));
            let refused = refused.expect("an error of gyre");
            assert_eq!(refused.kind(), Kind::Conflict);
            let expected = format!("{who} is gyre {VERSION} and received a task of gyre 0.0.0");
            assert!(refused.full().starts_with(&expected), "{}", refused.full());
        }
    }

    #[test]
    fn errors_survive_the_layers_of_ballista() {
        let e = Error::new(Kind::Store, "host: \"a\nb\" cannot be read");
        let through = format!("Task failed: {:?}", format!("{:?}", wrapped(&e)));
        let back = unwrapped(&through).expect("an error of gyre");
        assert_eq!((back.kind(), back.full()), (e.kind(), e.full()));
        assert!(unwrapped("Task failed").is_none());
    }
}
