//! Outputs in buckets of the servers in `wire`: S3's and Google's. No installable server implements
//! Google's protocol completely.

use crate::clouds::{
    check_run_equals_local_run, command, conditional_puts, download, gyre, pipeline, tracks, upload,
};
use crate::lake::{Lake, ProgramRun};
use crate::wire::{Protocol, Server};
use futures::TryStreamExt;
use gyre::output::place::Output;
use gyre::store::Stores;
use object_store::buffered::BufWriter;
use object_store::memory::InMemory;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use serde_json::Value;
#[cfg(feature = "report")]
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::AsyncWriteExt;

/// Starts a server. Returns it with the options and the stores for it.
pub fn bucket(protocol: Protocol) -> (Server, Vec<(String, String)>, Stores) {
    let server = Server::start(InMemory::new(), protocol, None);
    let options = server.options();
    let stores = Stores::new(options.clone());
    (server, options.into_iter().collect(), stores)
}

#[test]
fn google_is_read_pruned_and_written() {
    let lake = Lake::new();
    let (_server, options, stores) = bucket(Protocol::Google);
    upload(&stores, "gs://lake", &lake, &tracks(&lake));
    check_run_equals_local_run(&lake, &options, "gs://lake");
    let output = "gs://lake/out put/ü";
    gyre(&lake, &options, &["compare", output, "out"])
        .succeeds()
        .says("2 kept");
}

#[tokio::test]
async fn google_heeds_the_conditions_of_a_put() {
    let (_server, _, stores) = bucket(Protocol::Google);
    conditional_puts(&stores, "gs://lake/current.json").await;
    // A put with a tag but without a generation is refused.
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
async fn google_copies_over_an_existing_object_if_overwriting_is_allowed() {
    let (_server, _, stores) = bucket(Protocol::Google);
    let at = |name: &str| stores.open(&format!("gs://lake/{name}")).expect("a place");
    let (from, to) = (at("from").path, at("to").path);
    let store = at("from").store;
    for text in ["first", "second"] {
        store
            .put(&from, text.into())
            .await
            .expect("the object is put");
        store.copy(&from, &to).await.expect("the object is copied");
        let got = store.get(&to).await.expect("an object");
        assert_eq!(got.bytes().await.expect("bytes"), text);
    }
    let refused = store.copy_if_not_exists(&from, &to).await;
    let refused = refused.expect_err("something is there");
    assert!(matches!(refused, Error::AlreadyExists { .. }), "{refused}");
    let missing = store.copy(&at("gone").path, &to).await;
    let missing = missing.expect_err("the object does not exist");
    assert!(matches!(missing, Error::NotFound { .. }), "{missing}");
}

/// The versions in the folder of an output, and the versions that its pointer names.
#[tokio::main(flavor = "current_thread")]
async fn versions(stores: &Stores, output: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let root = stores.open(output).expect("a place");
    let folder = root.path.clone().join("versions");
    let listed = root.store.list(Some(&folder)).try_collect::<Vec<_>>();
    let listed = listed.await.expect("a list").into_iter();
    let run = |meta: ObjectMeta| {
        let mut components = meta
            .location
            .prefix_match(&folder)
            .expect("a path in the folder");
        components.next().expect("a run").as_ref().to_string()
    };
    let present = listed.map(run).collect();
    let pointer = root.path.clone().join("current.json");
    let pointer = root.store.get(&pointer).await.expect("a pointer");
    let pointer = pointer.bytes().await.expect("bytes");
    let pointer: Value = serde_json::from_slice(&pointer).expect("JSON");
    let earlier = pointer["earlier"].as_array().expect("a list").iter();
    let referenced = earlier.chain([&pointer["run"]]);
    let referenced = referenced.map(|run| run.as_str().expect("a run").to_string());
    (present, referenced.collect())
}

/// Two processes put the pointer at the same moment: first a new one, then a replacement.
#[test]
fn one_of_two_simultaneous_runs_into_a_bucket_reports_that_it_lost() {
    for protocol in [Protocol::S3, Protocol::Google] {
        let lake = Lake::new();
        let (server, options, stores) = bucket(protocol);
        let root = format!("{}://lake", server.scheme());
        upload(&stores, &root, &lake, &tracks(&lake));
        let output = format!("{root}/out");
        pipeline(&lake, &format!("{root}/tracks"), &output, &[]);
        for seeds in [["1", "2"], ["3", "4"]] {
            server.hold_pointer_puts(2);
            let start = |seed| {
                let mut command = command(&lake, &options, &["run", "p.toml", "--seed", seed]);
                let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
                command.spawn().expect("the program starts")
            };
            let results = seeds.map(start).map(|process| {
                let output = process.wait_with_output().expect("the process ends");
                ProgramRun::of(output)
            });
            let won = results.iter().position(|ran| ran.code == Some(0));
            let won = won.unwrap_or_else(|| panic!("{protocol:?}: {results:?}"));
            results[1 - won].fails(75, "has put its result in place at");
            assert_eq!(results[1 - won].err.trim().lines().count(), 1);
            let written = download(&stores, &output);
            let (present, referenced) = versions(&stores, &output);
            assert_eq!(present, referenced, "{protocol:?}");

            // A run on disk gives the same tables.
            let on_disk = ["--seed", seeds[won], "--set", "job.output=out"];
            gyre(
                &lake,
                &options,
                &[&["run", "p.toml"], &on_disk[..]].concat(),
            )
            .succeeds();
            assert!(lake.tables() == written, "{protocol:?}");
        }
        // A file of a run that died.
        let run = "20260101T000000Z-00000000-00000000";
        let dead = stores.open(&format!("{output}/versions/{run}/sources/part-0.parquet"));
        let dead = dead.expect("a place");
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let put = runtime.block_on(dead.store.put(&dead.path, "half".into()));
        put.expect("the object is put");
        let clean = |age: &str| gyre(&lake, &options, &["clean", "p.toml", "--older-than", age]);
        clean("1d").succeeds().says(&format!("left alone {run}"));
        clean("0s").succeeds().says(&format!("removed {run}"));
        let (present, referenced) = versions(&stores, &output);
        assert_eq!(present, referenced, "{protocol:?}");
    }
}

/// A file too large for one request is uploaded in parts. A dropped upload leaves no parts.
#[tokio::test]
async fn large_files_are_uploaded_in_parts_that_do_not_remain() {
    for protocol in [Protocol::S3, Protocol::Google] {
        let (server, _, stores) = bucket(protocol);
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
        assert_eq!(server.uploads(), 0, "{protocol:?}");
    }
}

/// Tables, SQL, pictures and earlier versions of a result in a bucket are those of a folder.
/// The names in a bucket that somebody else wrote choose no file of this machine.
#[cfg(feature = "report")]
#[test]
fn a_bucket_of_others_chooses_no_file() {
    let lake = Lake::new();
    let (server, options, stores) = bucket(Protocol::S3);
    let root = format!("{}://lake", server.scheme());
    upload(&stores, &root, &lake, &tracks(&lake));
    let output = format!("{root}/out");
    pipeline(&lake, &format!("{root}/tracks"), &output, &[]);
    for seed in ["1", "2"] {
        gyre(&lake, &options, &["run", "p.toml", "--seed", seed]).succeeds();
    }
    lake.file("victim.parquet", "not gyre's");
    let victim = lake.path("victim").display().to_string();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let edit = |file: &str, is_sealed: bool, edit: &dyn Fn(&mut Value)| {
        let place = stores.open(&format!("{output}/{file}")).expect("a place");
        runtime.block_on(async {
            let bytes = place
                .store
                .get(&place.path)
                .await
                .expect("a file")
                .bytes()
                .await;
            let bytes = bytes.expect("bytes");
            let mut value: Value = serde_json::from_slice(&bytes).expect("JSON");
            value.as_object_mut().expect("an object").remove("checksum");
            edit(&mut value);
            if is_sealed {
                value = crate::versions::sealed(value);
            }
            let text = value.to_string().into_bytes();
            place
                .store
                .put(&place.path, text.into())
                .await
                .expect("a file");
            bytes
        })
    };
    let earlier = gyre(&lake, &options, &["restore", &output]).succeeds().out;
    let earlier = earlier.trim().to_string();
    let record = format!("versions/{earlier}/run.json");
    for name in [
        victim.as_str(),
        "../../victim",
        "../../../../../../tmp/victim",
    ] {
        let add = |value: &mut Value| value["tables"][name] = serde_json::json!(1);
        let pointer = edit("current.json", true, &add);
        for command in ["report", "inspect"] {
            let ran = gyre(&lake, &options, &[command, &output]);
            ran.fails(1, "names the table");
        }
        let at = stores
            .open(&format!("{output}/current.json"))
            .expect("a place");
        let put = at.store.put(&at.path, pointer.into());
        runtime.block_on(put).expect("a file");
        edit(&record, false, &add);
        let shown = ["inspect", &output, "fits", "--version", &earlier];
        gyre(&lake, &options, &shown).fails(1, "names the table");
    }
    let bytes = lake.bytes("victim.parquet");
    assert_eq!(bytes, b"not gyre's");
}

#[cfg(feature = "report")]
#[test]
fn a_result_in_a_bucket_is_shown_and_drawn() {
    for protocol in [Protocol::S3, Protocol::Google] {
        let lake = Lake::new();
        let (server, options, stores) = bucket(protocol);
        let root = format!("{}://lake", server.scheme());
        upload(&stores, &root, &lake, &tracks(&lake));
        let output = format!("{root}/out put/ü");
        let call = |arguments: &[&str]| gyre(&lake, &options, arguments).succeeds().out;
        pipeline(&lake, &format!("{root}/tracks"), &output, &[]);
        let run = |seed: &str| {
            call(&["run", "p.toml", "--seed", seed]);
            let on_disk = ["--seed", seed, "--set", "job.output=out"];
            call(&[&["run", "p.toml"], &on_disk[..]].concat());
        };
        let shown = |of: &str| -> Vec<String> {
            let csv = ["--format", "csv"];
            let query =
                "SELECT fit, max(singular_value) AS s FROM spectrum GROUP BY fit ORDER BY fit";
            vec![
                call(&[&["inspect", of, "sources"], &csv[..]].concat()),
                call(&[&["inspect", of, "--sql", query], &csv[..]].concat()),
            ]
        };
        run("1");
        let first = shown("out");
        assert!(
            first.iter().all(|text| text.lines().count() > 1),
            "{first:?}"
        );
        assert_eq!(shown(&output), first, "{protocol:?}");
        let overview = call(&["inspect", &output]);
        assert!(overview.contains("\nsources: "), "{overview}");

        run("2");
        let second = shown("out");
        assert_eq!(shown(&output), second, "{protocol:?}");
        let listed = call(&["restore", &output]);
        let earlier = listed.trim();
        let version = ["--format", "csv", "--version", earlier];
        let found = call(&[&["inspect", &output, "sources"], &version[..]].concat());
        assert_eq!(found, first[0], "{protocol:?}");

        let mut drawn = Vec::new();
        for (of, to) in [("out", "of folder"), (output.as_str(), "of bucket")] {
            call(&["report", of, "--format", "svg", "--to", to]);
            drawn.push(pictures(&lake, to));
        }
        assert!(!drawn[0].is_empty());
        assert!(drawn[0] == drawn[1], "{protocol:?}");
        call(&["report", &output, "--to", "page.html"]);
        let page = lake.text("page.html");
        assert!(page.contains("<svg"), "{protocol:?}");

        call(&["restore", &output, earlier]);
        assert_eq!(shown(&output), first, "{protocol:?}");
        let missing = gyre(&lake, &options, &["inspect", &format!("{root}/nothing")]);
        missing.fails(1, "holds no result of gyre");
    }
}

/// The pictures in a folder of the lake, by name.
#[cfg(feature = "report")]
fn pictures(lake: &Lake, folder: &str) -> BTreeMap<String, Vec<u8>> {
    let names = lake.names(folder).into_iter();
    let read = |name: String| (name.clone(), lake.bytes(&format!("{folder}/{name}")));
    names.map(read).collect()
}
