//! What a task is for whoever does it: bytes in, bytes out, alone.

use crate::error::{Error, Result};
use crate::nodes::Task;
use crate::stores::Stores;
use futures::FutureExt;
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One thing that any process of this version of gyre can do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// Says who does tasks. Whoever is asked several times at once waits before the answer, so that others take the rest.
    Look {
        /// No two questions have the same: an answer of an earlier day says nothing.
        nonce: String,
        number: u32,
        wait_millis: u32,
    },
}

/// The answer to [`Work::Look`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    pub number: u32,
    pub name: String,
    pub version: String,
    pub threads: usize,
}

/// The process that does a task.
#[derive(Clone)]
pub struct Env {
    /// What errors call the process.
    pub name: String,
    pub stores: Stores,
    pub threads: usize,
}

impl Work {
    /// The task that asks for it.
    ///
    /// # Errors
    /// If it cannot be written as bytes.
    pub fn task(&self) -> Result<Task> {
        let bytes = postcard::to_stdvec(self);
        bytes
            .map(|bytes| Task { bytes })
            .map_err(|e| Error::bug(format!("a task has no bytes: {e}")))
    }
}

/// Does one task.
pub fn perform(task: &[u8], env: Env) -> BoxFuture<'static, Result<Vec<u8>>> {
    let work = postcard::from_bytes::<Work>(task);
    async move {
        match work {
            Ok(Work::Look {
                number,
                wait_millis,
                ..
            }) => {
                tokio::time::sleep(Duration::from_millis(wait_millis.into())).await;
                let looked = Looked {
                    number,
                    name: env.name,
                    version: env!("CARGO_PKG_VERSION").into(),
                    threads: env.threads,
                };
                postcard::to_stdvec(&looked)
                    .map_err(|e| Error::bug(format!("an answer has no bytes: {e}")))
            }
            Err(e) => Err(Error::bug(format!("a task cannot be read: {e}"))),
        }
    }
    .boxed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_look_tells_who_does_tasks() {
        let env = Env {
            name: "here".into(),
            stores: Stores::default(),
            threads: 3,
        };
        let look = Work::Look {
            nonce: "a".into(),
            number: 7,
            wait_millis: 0,
        };
        let task = look.task().expect("a task");
        let answer = perform(&task.bytes, env.clone()).await.expect("an answer");
        let looked: Looked = postcard::from_bytes(&answer).expect("what a look comes to");
        let Looked {
            number,
            name,
            threads,
            ..
        } = looked;
        assert_eq!((number, name.as_str(), threads), (7, "here", 3));
        let wrong = perform(&[255; 3], env).await.expect_err("no task");
        assert!(wrong.full().contains("cannot be read"), "{}", wrong.full());
    }
}
