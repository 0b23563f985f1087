//! Outputs in buckets of servers that are part of the tests: S3's and Google's, whose protocol no server that can be installed speaks whole.

use crate::clouds::{
    command, conditional_puts, download, gyre, pipeline, runs_as_on_disk, tracks, upload,
};
use crate::lake::{Lake, Ran};
use crate::wire::{Server, Speech};
use futures::TryStreamExt;
use gyre::output::place::Output;
use gyre::store::Stores;
use object_store::buffered::BufWriter;
use object_store::memory::InMemory;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use serde_json::Value;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// A bucket in this process, and the options for it.
fn bucket(speech: Speech) -> (Server, Vec<(String, String)>, Stores) {
    let server = Server::start(InMemory::new(), speech, None);
    let options = server.options();
    let stores = Stores::new(options.clone());
    (server, options.into_iter().collect(), stores)
}

#[test]
fn google_is_read_pruned_and_written() {
    let lake = Lake::new();
    let (_server, options, stores) = bucket(Speech::Google);
    upload(&stores, "gs://lake", &lake, &tracks(&lake));
    runs_as_on_disk(&lake, &options, "gs://lake");
    let output = "gs://lake/out put/ü";
    let compared = gyre(&lake, &options, &["compare", output, "out"]).well();
    assert!(compared.out.contains("2 kept"), "{}", compared.out);
}

#[tokio::test]
async fn google_puts_under_a_condition() {
    let (_server, _, stores) = bucket(Speech::Google);
    conditional_puts(&stores, "gs://lake/current.json").await;
    // What has a tag and no generation names nothing.
    let at = stores.open("gs://lake/current.json").expect("a place");
    let seen = at.store.head(&at.path).await.expect("an object");
    let tag = UpdateVersion {
        e_tag: seen.e_tag,
        version: None,
    };
    let put = PutMode::Update(tag).into();
    let put = at.store.put_opts(&at.path, "by its tag".into(), put).await;
    put.expect_err("a condition that this store does not know");
}

#[tokio::test]
async fn google_copies_over_what_is_there_where_it_may() {
    let (_server, _, stores) = bucket(Speech::Google);
    let at = |name: &str| stores.open(&format!("gs://lake/{name}")).expect("a place");
    let (from, to) = (at("from").path, at("to").path);
    let store = at("from").store;
    for text in ["first", "second"] {
        store.put(&from, text.into()).await.expect("it is put");
        store.copy(&from, &to).await.expect("it is copied");
        let got = store.get(&to).await.expect("an object");
        assert_eq!(got.bytes().await.expect("bytes"), text);
    }
    let refused = store.copy_if_not_exists(&from, &to).await;
    let refused = refused.expect_err("something is there");
    assert!(matches!(refused, Error::AlreadyExists { .. }), "{refused}");
    let gone = store.copy(&at("gone").path, &to).await;
    let gone = gone.expect_err("nothing is there");
    assert!(matches!(gone, Error::NotFound { .. }), "{gone}");
}

/// The versions of an output, and those that its pointer names.
#[tokio::main(flavor = "current_thread")]
async fn versions(stores: &Stores, output: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let root = stores.open(output).expect("a place");
    let folder = root.path.clone().join("versions");
    let listed = root.store.list(Some(&folder)).try_collect::<Vec<_>>();
    let listed = listed.await.expect("a list").into_iter();
    let run = |meta: ObjectMeta| {
        let mut inside = meta.location.prefix_match(&folder).expect("below it");
        inside.next().expect("a run").as_ref().to_string()
    };
    let there = listed.map(run).collect();
    let pointer = root.path.clone().join("current.json");
    let pointer = root.store.get(&pointer).await.expect("a pointer");
    let pointer = pointer.bytes().await.expect("bytes");
    let pointer: Value = serde_json::from_slice(&pointer).expect("JSON");
    let earlier = pointer["earlier"].as_array().expect("a list").iter();
    let named = earlier.chain([&pointer["run"]]);
    let named = named.map(|run| run.as_str().expect("a run").to_string());
    (there, named.collect())
}

/// Two processes that put the pointer at one moment, first where there is none and then over one.
#[test]
fn of_two_runs_at_once_in_a_bucket_one_says_that_it_lost() {
    for speech in [Speech::S3, Speech::Google] {
        let lake = Lake::new();
        let (server, options, stores) = bucket(speech);
        let root = format!("{}://lake", server.scheme());
        upload(&stores, &root, &lake, &tracks(&lake));
        let output = format!("{root}/out");
        pipeline(&lake, &format!("{root}/tracks"), &output, &[]);
        for seeds in [["1", "2"], ["3", "4"]] {
            server.awaits(2);
            let start = |seed| {
                let mut command = command(&lake, &options, &["run", "p.toml", "--seed", seed]);
                let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().expect("the program starts")
            };
            let ends = seeds.map(start).map(|process| {
                let ended = process.wait_with_output().expect("an end");
                Ran::of(ended)
            });
            let won = ends.iter().position(|ran| ran.code == Some(0));
            let won = won.unwrap_or_else(|| panic!("{speech:?}: {ends:?}"));
            ends[1 - won].fails(75, "has put its result in place at");
            assert_eq!(ends[1 - won].err.trim().lines().count(), 1);
            let written = download(&stores, &output);
            let (there, named) = versions(&stores, &output);
            assert_eq!(there, named, "{speech:?}");

            // The same on disk.
            let on_disk = ["--seed", seeds[won], "--set", "job.output=out"];
            gyre(
                &lake,
                &options,
                &[&["run", "p.toml"], &on_disk[..]].concat(),
            )
            .well();
            assert!(lake.tables() == written, "{speech:?}");
        }
        // What a run that died has left.
        let run = "20260101T000000Z-00000000-00000000";
        let dead = stores.open(&format!("{output}/versions/{run}/sources/part-0.parquet"));
        let dead = dead.expect("a place");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let put = runtime.block_on(dead.store.put(&dead.path, "half".into()));
        put.expect("it is put");
        let clean = |age: &str| gyre(&lake, &options, &["clean", "p.toml", "--older-than", age]);
        let left = clean("1d").well();
        assert!(
            left.out.contains(&format!("left alone {run}")),
            "{}",
            left.out
        );
        let cleaned = clean("0s").well();
        assert!(
            cleaned.out.contains(&format!("removed {run}")),
            "{}",
            cleaned.out
        );
        let (there, named) = versions(&stores, &output);
        assert_eq!(there, named, "{speech:?}");
    }
}

/// A file that is too large for one request, and one that nobody ends.
#[tokio::test]
async fn large_files_come_in_parts_and_leave_none() {
    for speech in [Speech::S3, Speech::Google] {
        let (server, _, stores) = bucket(speech);
        let at = |name: &str| format!("{}://lake/{name}", server.scheme());
        let output = Output::open(&at("out"), &stores).expect("an output");
        let bytes: Vec<u8> = (0..25_000_000_u32).map(|k| (k / 7 % 251) as u8).collect();
        let path = output.version("large");
        let writer = || BufWriter::new(Arc::clone(&output.store), path.clone());
        let mut whole = writer();
        whole.put(bytes.clone().into()).await.expect("parts");
        whole.shutdown().await.expect("a file");
        let got = output.store.get(&path).await.expect("a file");
        assert!(got.bytes().await.expect("bytes") == bytes);
        let mut dropped = writer();
        dropped.put(bytes.into()).await.expect("parts");
        assert_eq!(server.uploads(), 1);
        drop(dropped);
        output.abandon().await;
        assert_eq!(server.uploads(), 0, "{speech:?}");
    }
}
