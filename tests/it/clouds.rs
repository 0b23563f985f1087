//! Inputs and outputs at URLs. moto serves S3, Azurite serves Azure, and moto also serves the part
//! of Google's protocol that equals S3, and plain HTTP. GYRE_PYTHON names a Python with moto, and
//! GYRE_AZURITE names the Azurite program.

use crate::lake::{Lake, ProgramRun, TABLES, words};
use crate::needs;
use gyre::store::Stores;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutPayload, UpdateVersion};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server on its own port. Dropping it stops the server.
pub struct Server {
    process: Child,
    host: String,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

impl Server {
    /// Starts a command with a free port as its last argument and waits until it listens.
    fn start(command: &mut Command, host: &str) -> Server {
        let free = TcpListener::bind((host, 0)).expect("a free port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let process = command
            .arg(port.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the server starts");
        let host = host.to_string();
        let mut server = Server {
            process,
            host,
            port,
        };
        while TcpStream::connect((&*server.host, port)).is_err() {
            let status = server.process.try_wait().expect("a process");
            assert!(status.is_none(), "the server ended: {status:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    /// Starts an S3 server with buckets.
    pub fn moto(buckets: &[&str]) -> Option<Server> {
        Server::moto_at("127.0.0.1", buckets)
    }

    /// Starts an S3 server at an address of this machine.
    pub fn moto_at(host: &str, buckets: &[&str]) -> Option<Server> {
        let python = needs::python(&["moto.server", "flask"])?;
        let mut moto = Command::new(python);
        let server = Server::start(moto.args(["-m", "moto.server", "-H", host, "-p"]), host);
        for bucket in buckets {
            server.put(bucket, b"");
        }
        Some(server)
    }

    fn azurite(folder: &Path) -> Option<Server> {
        let program = needs::program_of("GYRE_AZURITE", "azurite-blob")?;
        let mut command = Command::new(program);
        command.args(["--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
        command.arg("--location").arg(folder);
        let host = "127.0.0.1";
        command.args(["--blobHost", host, "--blobPort"]);
        Some(Server::start(&mut command, host))
    }

    pub fn url(&self) -> String {
        format!("http://{}:{}", self.host, self.port)
    }

    #[cfg(feature = "cluster")]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Puts a bucket or an object that is publicly readable.
    fn put(&self, path: &str, body: &[u8]) {
        let mut stream = TcpStream::connect((&*self.host, self.port)).expect("the server");
        let head = format!(
            "PUT /{path} HTTP/1.1\r\nHost: 127.0.0.1\r\nx-amz-acl: public-read\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("a request");
        stream.write_all(body).expect("a body");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    /// The options that connect to this server by S3.
    pub fn s3(&self) -> Vec<(String, String)> {
        let url = self.url();
        let options = [
            ("aws_endpoint_url", url.as_str()),
            ("aws_allow_http", "true"),
            ("aws_region", "eu-central-1"),
            ("aws_access_key_id", "AKIAGYRE"),
            ("aws_secret_access_key", SECRET),
            ("aws_session_token", TOKEN),
        ];
        options
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .to_vec()
    }
}

const SECRET: &str = "planted/secret+key0123456789";
const TOKEN: &str = "planted-session-token-0123456789";

/// Runs the program with these options as environment variables and without other cloud options.
pub fn gyre(lake: &Lake, options: &[(String, String)], arguments: &[&str]) -> ProgramRun {
    let ran = command(lake, options, arguments).output();
    ProgramRun::of(ran.expect("the program starts"))
}

pub fn command(lake: &Lake, options: &[(String, String)], arguments: &[&str]) -> Command {
    let mut command = lake.command(arguments);
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let clouds = ["AWS_", "AZURE_", "GOOGLE_"];
        if clouds.iter().any(|cloud| name.starts_with(cloud)) {
            command.env_remove(name);
        }
    }
    command.envs(options.iter().map(|(k, v)| (k.to_uppercase(), v)));
    command
}

/// The pipeline in the guide to stores.
fn tracks_pipeline() -> &'static str {
    crate::pages::block("toml", "[job]\nname = \"tracks\"\n")
}

/// Writes three years of tracks in Hive folders under `lake/` and returns their paths.
pub fn tracks(lake: &Lake) -> Vec<String> {
    let state = |k: i64| 3 * (k / 23 % 2) + (k * k + k / 7) % 3;
    let write = |year: i64| {
        let file = format!("lake/tracks/year={year}/part 1.parquet");
        let rows = (0..600).map(|k| [k / 200, k % 200, state(k + year)]);
        lake.integers(&file, ["id", "t", "state"], rows);
        file
    };
    (2023..=2025).map(write).collect()
}

pub fn pipeline(lake: &Lake, input: &str, output: &str, options: &[(String, String)]) {
    let text = tracks_pipeline().replace("s3://lake/tracks", input);
    let text = text.replace("s3://lake/out", output);
    let region = "aws_region = \"eu-central-1\"\n";
    assert!(text.contains(region));
    let line = |(key, value): &(String, String)| format!("{key} = '{value}'\n");
    let options: String = options.iter().map(line).collect();
    lake.file("p.toml", &text.replace(region, &options));
}

/// The tables of a run on local files.
fn local_tables(lake: &Lake) -> Vec<(String, Vec<u8>)> {
    pipeline(lake, "lake/tracks/", "out", &[]);
    lake.runs(&[]);
    lake.tables()
}

/// Copies files of the lake to a store.
#[tokio::main(flavor = "current_thread")]
pub async fn upload(stores: &Stores, bucket: &str, lake: &Lake, files: &[String]) {
    for file in files {
        let key = file.strip_prefix("lake/").expect("a file of the lake");
        let to = stores.open(&format!("{bucket}/{key}")).expect("a place");
        let bytes = lake.bytes(file);
        let put = to.store.put(&to.path, bytes.into()).await;
        put.expect("the object is put");
    }
}

/// The tables of the current result.
#[tokio::main(flavor = "current_thread")]
pub async fn download(stores: &Stores, output: &str) -> Vec<(String, Vec<u8>)> {
    let root = stores.open(output).expect("a place");
    let get = async |name: &str| {
        let parts = name.split('/');
        let path = parts.fold(root.path.clone(), |path, part| path.join(part));
        let got = root.store.get(&path).await.expect("an object");
        got.bytes().await.expect("bytes").to_vec()
    };
    let pointer: Value = serde_json::from_slice(&get("current.json").await).expect("JSON");
    let folder = pointer["folder"].as_str().expect("a folder");
    let mut all = Vec::new();
    for table in TABLES {
        let bytes = get(&format!("{folder}/{table}/part-0.parquet")).await;
        all.push((table.to_string(), bytes));
    }
    all
}

/// Runs the tracks of a store twice, with an output in the same store, and compares the result with
/// one on disk.
pub fn check_run_equals_local_run(lake: &Lake, options: &[(String, String)], bucket: &str) {
    let expected = local_tables(lake);
    let output = format!("{bucket}/out put/ü");
    pipeline(lake, &format!("{bucket}/tracks"), &output, &[]);
    let explained = gyre(lake, options, &["explain", "p.toml"]).succeeds().out;
    let read = "tracks: 2 of 3 files, 0.0 of 0.0 MB; partitions year=2024, year=2025 only";
    assert!(explained.contains(read), "{explained}");
    gyre(lake, options, &["run", "p.toml"])
        .succeeds()
        .says("tracks: 1,194 transitions in 1,200 rows");
    let second = gyre(lake, options, &["run", "p.toml"]).succeeds();
    assert_eq!(second.out, "Nothing to do.\n");
    let stores = Stores::new(options.iter().cloned().collect());
    assert!(download(&stores, &output) == expected);
}

#[test]
fn s3_is_read_pruned_and_written() {
    let lake = Lake::new();
    let Some(server) = Server::moto(&["lake"]) else {
        return;
    };
    let stores = Stores::new(server.s3().into_iter().collect());
    upload(&stores, "s3://lake", &lake, &tracks(&lake));
    check_run_equals_local_run(&lake, &server.s3(), "s3://lake");

    // `gyre compare` reads tables in two places.
    let output = "s3://lake/out put/ü";
    gyre(&lake, &server.s3(), &["compare", output, "out"])
        .succeeds()
        .says("2 kept");

    // Options in the pipeline work like those in the environment.
    pipeline(&lake, "s3://lake/tracks", output, &server.s3());
    let second = gyre(&lake, &[], &["run", "p.toml"]).succeeds();
    assert_eq!(second.out, "Nothing to do.\n");
    // A pattern for the same files gives the same plan, so the run finds the earlier result.
    let pattern = "s3://lake/tracks/year=*/*.parquet";
    pipeline(&lake, pattern, output, &server.s3());
    let second = gyre(&lake, &[], &["run", "p.toml"]).succeeds();
    assert_eq!(second.out, "Nothing to do.\n");
    gyre(&lake, &[], &["run", "p.toml", "--force"])
        .succeeds()
        .says("1,194 transitions");

    // A run does not wait for a missing bucket.
    let missing = ["run", "p.toml", "--set", "job.output=s3://gone/out"];
    gyre(&lake, &[], &missing).fails(2, "there is no bucket for s3://gone/out; make it, or");
    let missing = words("run p.toml --set tables.tracks.path=s3://gone/tracks/");
    gyre(&lake, &[], &missing).fails(1, "s3://gone/tracks/");

    // Unencrypted connections need an explicit permission.
    let check = words("check p.toml --set store.options.aws_allow_http=false");
    let refused = gyre(&lake, &[], &check);
    let message = "the store s3://lake cannot be set up (its endpoint is http://";
    refused.fails(2, message);
}

/// Two writers replace the same object. The one that saw the current object succeeds, and the other
/// gets an error.
pub async fn conditional_puts(stores: &Stores, location: &str) {
    let at = stores.open(location).expect("a place");
    let put = async |text: &'static str, mode| {
        let payload = PutPayload::from_static(text.as_bytes());
        let mode = PutMode::into(mode);
        at.store.put_opts(&at.path, payload, mode).await
    };
    let first = put("first", PutMode::Create)
        .await
        .expect("the object is new");
    let refused = put("again", PutMode::Create)
        .await
        .expect_err("something is there");
    assert!(matches!(refused, Error::AlreadyExists { .. }), "{refused}");
    let seen = || PutMode::Update(UpdateVersion::from(first.clone()));
    put("second", seen())
        .await
        .expect("the object has not changed");
    let stale = put("stale", seen())
        .await
        .expect_err("the object has changed");
    assert!(matches!(stale, Error::Precondition { .. }), "{stale}");
    let got = at.store.get(&at.path).await.expect("an object");
    assert_eq!(got.bytes().await.expect("bytes"), "second");
}

#[tokio::test]
async fn s3_heeds_the_conditions_of_a_put() {
    let Some(server) = Server::moto(&["lake"]) else {
        return;
    };
    let stores = Stores::new(server.s3().into_iter().collect());
    conditional_puts(&stores, "s3://lake/current.json").await;
}

#[test]
fn azure_is_read_pruned_and_written() {
    let lake = Lake::new();
    let Some(server) = Server::azurite(&lake.path("azurite")) else {
        return;
    };
    let Some(python) = needs::python(&[]) else {
        return;
    };
    let made = Command::new(python)
        .args(["-c", CONTAINER, &server.url()])
        .output()
        .expect("Python");
    assert!(made.status.success(), "{made:?}");
    let endpoint = format!("{}/devstoreaccount1", server.url());
    let options = [
        ("azure_storage_account_name", "devstoreaccount1"),
        ("azure_storage_account_key", EMULATOR_KEY),
        ("azure_storage_endpoint", &endpoint),
        ("azure_allow_http", "true"),
    ];
    let options = options.map(|(k, v)| (k.to_string(), v.to_string()));
    let stores = Stores::new(options.iter().cloned().collect());
    upload(&stores, "az://lake", &lake, &tracks(&lake));
    check_run_equals_local_run(&lake, &options, "az://lake");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(conditional_puts(&stores, "az://lake/current.json"));
}

/// The public key of all Azure emulators.
const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Makes the container `lake` with a signed request.
const CONTAINER: &str = r#"
import base64, hashlib, hmac, sys, urllib.request
from email.utils import formatdate
date, account = formatdate(usegmt=True), "devstoreaccount1"
key = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
headers = f"x-ms-date:{date}\nx-ms-version:2021-08-06\n"
text = "PUT" + "\n" * 12 + headers + f"/{account}/{account}/lake\nrestype:container"
signed = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
request = urllib.request.Request(f"{sys.argv[1]}/{account}/lake?restype=container", method="PUT", headers={
    "x-ms-date": date, "x-ms-version": "2021-08-06",
    "Authorization": f"SharedKey {account}:" + base64.b64encode(signed).decode()})
urllib.request.urlopen(request)
"#;

/// moto does not know Google's store. For lists and reads, Google's XML interface equals that of
/// S3.
#[test]
fn google_is_read_like_s3() {
    let lake = Lake::new();
    let Some(server) = Server::moto(&["lake"]) else {
        return;
    };
    let options = [
        ("google_base_url", server.url()),
        ("google_skip_signature", "true".to_string()),
        ("google_allow_http", "true".to_string()),
    ];
    let options = options.map(|(k, v)| (k.to_string(), v));
    for file in tracks(&lake) {
        let bytes = lake.bytes(&file);
        server.put(&file.replace(' ', "%20"), &bytes);
    }
    let expected = local_tables(&lake);
    std::fs::remove_dir_all(lake.path("out")).expect("an output");
    pipeline(&lake, "gs://lake/tracks", "out", &[]);
    gyre(&lake, &options, &["run", "p.toml"]).succeeds();
    assert!(lake.tables() == expected);
}

#[test]
fn single_files_are_read_over_http() {
    let lake = Lake::new();
    let Some(server) = Server::moto(&["lake"]) else {
        return;
    };
    let files = tracks(&lake);
    let bytes = lake.bytes(&files[0]);
    server.put("lake/tracks%202023.parquet", &bytes);
    let url = format!("{}/lake/tracks 2023.parquet", server.url());
    let at = |input: &str| {
        pipeline(&lake, input, "out", &[]);
        let text = lake.text("p.toml");
        let sql = "SELECT year, id, t, state FROM tracks WHERE year >= 2024";
        assert!(text.contains(sql));
        lake.file(
            "p.toml",
            &text.replace(sql, "SELECT 0 AS year, * FROM tracks"),
        )
    };
    at(&url).runs(&[]);
    let over_http = lake.tables();
    std::fs::remove_dir_all(lake.path("out")).expect("an output");
    at(&files[0]).line("run p.toml --force").succeeds();
    assert!(over_http == lake.tables());

    let ran = at(&format!("{}/lake/", server.url())).call("check", &[]);
    let message = "is not a single file, and web servers do not list their files";
    ran.fails(1, message);
    let ran = at(&format!("{}/lake/gone.parquet", server.url())).call("check", &[]);
    ran.fails(1, "table `tracks`: no file at");
    let written = format!("job.output={}/lake/out", server.url());
    let ran = at(&files[0]).run(&[&written]);
    let message =
        "`job.output` cannot be written: gyre can only read http:// and https:// locations";
    ran.fails(2, message);
}
