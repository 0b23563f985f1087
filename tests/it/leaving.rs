//! Output of the process: no output contains a secret, wherever it is planted, and the exit code is
//! right even if the output cannot be written.

use crate::cli::small_lake;
use crate::clouds;
use crate::lake::{Lake, ProgramRun, words};
use crate::wire::{Protocol, Server};
use object_store::memory::InMemory;
use std::fs;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A text that gyre itself never uses in messages, files or names.
const PLANTED: &str = "pL4nt3d9Secret";

/// Starts a server that refuses every request and returns the whole request, as an adversary would.
fn start_echo_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let answer = |mut stream: TcpStream| -> std::io::Result<()> {
        let mut request = String::new();
        let mut lines = BufReader::new(stream.try_clone()?).lines();
        while let Some(line) = lines.next().transpose()?.filter(|line| !line.is_empty()) {
            request += &format!("{line}\n");
        }
        let body = format!("<Error><Code>AccessDenied</Code><Message>{request}</Message></Error>");
        let len = body.len();
        write!(
            stream,
            "HTTP/1.1 403 Forbidden\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n{body}"
        )
    };
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream));
        }
    });
    port
}

/// Files below a folder whose name or content contains the secret.
fn leaks(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.display().to_string();
        if path.is_symlink() {
            continue;
        }
        if path.is_dir() {
            found.extend(leaks(&path));
        } else if let Ok(bytes) = fs::read(&path)
            && has_secret(&bytes)
        {
            found.push(name.clone());
        }
        if name.contains(PLANTED) {
            found.push(name);
        }
    }
    found
}

fn has_secret(bytes: &[u8]) -> bool {
    bytes
        .windows(PLANTED.len())
        .any(|w| w == PLANTED.as_bytes())
}

/// A place for a secret: environment variables, and assignments that contain the path of the rows.
struct Plant {
    what: &'static str,
    environment: Vec<(&'static str, String)>,
    sets: Vec<String>,
}

/// Every option of a store that can hold a secret, for rows on a server that echoes requests.
fn secret_places(port: u16) -> Vec<Plant> {
    let url = format!("http://127.0.0.1:{port}");
    let with_user = format!("http://{PLANTED}-user:{PLANTED}-pass@127.0.0.1:{port}");
    let signed = format!("{url}/?sig={PLANTED}");
    let s3 = [
        ("AWS_ACCESS_KEY_ID", "AKIAPUBLIC".to_string()),
        ("AWS_SECRET_ACCESS_KEY", "another-key".to_string()),
        ("AWS_REGION", "eu-central-1".to_string()),
        ("AWS_ALLOW_HTTP", "true".to_string()),
        ("AWS_ENDPOINT_URL", url.clone()),
    ];
    let azure = [
        ("AZURE_STORAGE_ACCOUNT_NAME", "account".to_string()),
        ("AZURE_ALLOW_HTTP", "true".to_string()),
        ("AZURE_STORAGE_ENDPOINT", url.clone()),
    ];
    let google = [
        ("GOOGLE_ALLOW_HTTP", "true".to_string()),
        ("GOOGLE_BASE_URL", url.clone()),
    ];
    let mut plants = Vec::new();
    let clouds = [("s3", &s3[..]), ("az", &azure[..]), ("gs", &google[..])];
    let key = format!(
        r#"{{"private_key": "{PLANTED}", "private_key_id": "{PLANTED}", "client_email": "a@b.example", "disable_oauth": true}}"#
    );
    let values: [(&str, &'static str, String); 13] = [
        ("s3", "AWS_ACCESS_KEY_ID", PLANTED.into()),
        ("s3", "AWS_SECRET_ACCESS_KEY", PLANTED.into()),
        ("s3", "AWS_SESSION_TOKEN", format!("{PLANTED}/+=")),
        ("s3", "AWS_ENDPOINT_URL", with_user.clone()),
        ("s3", "AWS_ENDPOINT_URL", signed.clone()),
        ("s3", "AWS_ENDPOINT_URL", format!("{PLANTED}:9000")),
        ("s3", "AWS_REGION", format!("{PLANTED}\n")),
        ("s3", "AWS_SESSION_TOKEN", format!("{PLANTED}\nx")),
        ("az", "AZURE_STORAGE_ACCOUNT_KEY", PLANTED.into()),
        (
            "az",
            "AZURE_STORAGE_SAS_KEY",
            format!("sv=2024-01-01&sig={PLANTED}%3D"),
        ),
        ("az", "AZURE_STORAGE_ENDPOINT", with_user.clone()),
        ("gs", "GOOGLE_SERVICE_ACCOUNT_KEY", key),
        ("gs", "GOOGLE_BASE_URL", with_user.clone()),
    ];
    for (scheme, name, value) in values {
        let (_, others) = clouds
            .iter()
            .find(|(cloud, _)| *cloud == scheme)
            .expect("a cloud");
        let others = others.iter().filter(|(other, _)| *other != name).cloned();
        let others: Vec<_> = others.collect();
        let path = format!("tables.rows.path={scheme}://lake/rows.parquet");
        plants.push(Plant {
            what: name,
            environment: others
                .iter()
                .cloned()
                .chain([(name, value.clone())])
                .collect(),
            sets: vec![path.clone()],
        });
        let option = format!("store.options.{}={value}", name.to_ascii_lowercase());
        plants.push(Plant {
            what: name,
            environment: others,
            sets: vec![path, option],
        });
    }
    for name in ["HTTP_PROXY", "http_proxy"] {
        plants.push(Plant {
            what: name,
            environment: vec![(name, with_user.clone())],
            sets: vec!["tables.rows.path=http://example.invalid/rows.parquet".into()],
        });
    }
    plants.push(Plant {
        what: "proxy_url",
        environment: Vec::new(),
        sets: vec![
            "tables.rows.path=http://example.invalid/rows.parquet".into(),
            format!("store.options.proxy_url={with_user}"),
        ],
    });
    for location in [
        format!("s3://lake/rows.parquet?sig={PLANTED}"),
        format!("az://lake/rows?sv=2024&sig={PLANTED}"),
        format!("gs://lake/rows?X-Goog-Signature={PLANTED}"),
        format!("https://host/rows?{PLANTED}"),
        format!("https://me:{PLANTED}@host/rows"),
        format!("s3://AKIA:{PLANTED}@lake/rows"),
        format!("https:me:{PLANTED}@host/rows"),
        format!("S3:me:{PLANTED}@host/rows"),
        format!("file:///rows?token={PLANTED}"),
        format!("{PLANTED}://x"),
    ] {
        for key in ["tables.rows.path", "job.output", "names.from"] {
            plants.push(Plant {
                what: key,
                environment: Vec::new(),
                sets: vec![format!("{key}={location}")],
            });
        }
    }
    for set in [
        format!("nosuch.key={PLANTED}"),
        format!("job.nosuch={PLANTED}"),
        format!("store.options.nosuch={PLANTED}"),
        format!("store.options.aws_region=[\"{PLANTED}\"]"),
        format!("store={PLANTED}"),
    ] {
        plants.push(Plant {
            what: "--set",
            environment: Vec::new(),
            sets: vec![set],
        });
    }
    plants
}

fn check_quiet(
    lake: &Lake,
    what: &str,
    arguments: &[&str],
    environment: &[(&str, String)],
) -> ProgramRun {
    let mut command = clouds::command(lake, &[], arguments);
    let environment = environment.iter().map(|(name, value)| (name, value));
    let output = command
        .envs(environment)
        .output()
        .expect("the program starts");
    let place = format!("{what}: gyre {}", arguments.join(" "));
    for (stream, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let shown = String::from_utf8_lossy(bytes);
        assert!(!has_secret(bytes), "{place}: {stream}: {shown}");
    }
    assert_eq!(leaks(lake.folder.path()), Vec::<String>::new(), "{place}");
    assert_ne!(output.status.code(), Some(101), "{place}");
    ProgramRun::of(output)
}

const REPORTS: [&str; 4] = ["--metrics", "gyre.prom", "--lineage", "lineage.jsonl"];

/// The test combines secrets, places, commands and exits. The output of no failing command contains
/// the secret.
#[test]
fn no_command_shows_a_planted_secret() {
    let lake = small_lake();
    let logged: [&[&str]; 3] = [&[], &["-vvv"], &["-v", "--log-format", "json"]];
    for (at, plant) in secret_places(start_echo_server()).iter().enumerate() {
        let sets = plant.sets.iter().flat_map(|set| ["--set", set]);
        let sets: Vec<&str> = sets.collect();
        let commands: [&[&str]; 6] = [
            &["run", "p.toml"],
            &["check", "p.toml"],
            &["plan", "p.toml", "--json"],
            &["explain", "p.toml"],
            &["assign", "p.toml", "--model", "out"],
            &["clean", "p.toml", "--dry-run"],
        ];
        for (n, command) in commands.iter().enumerate() {
            let reports: &[&str] = if command[0] == "run" { &REPORTS } else { &[] };
            // All log options with `run`, and one log option with every other command.
            let logged = match command[0] {
                "run" => &logged[..],
                _ => &logged[(at + n) % 3..][..1],
            };
            for logged in logged {
                let arguments = [command, &sets[..], reports, logged].concat();
                let ran = check_quiet(&lake, plant.what, &arguments, &plant.environment);
                if command[0] != "clean" {
                    assert_ne!(ran.code, Some(0), "{}: {arguments:?}", plant.what);
                }
            }
        }
    }
    for arguments in [
        "compare s3://lake/a?sig=PLANTED out",
        "compare out https:me:PLANTED@host",
        "assign p.toml --model s3://me:PLANTED@lake",
        "assign p.toml --model out --output az://c/t?sig=PLANTED",
        "run https://me:PLANTED@host/p.toml",
        "run https:me:PLANTED@host/p.toml",
        "run p.toml --cluster df://me:PLANTED@host:50050",
        "run p.toml --metrics http://me:PLANTED@host/x",
        "run p.toml --set PLANTED",
    ] {
        let call = arguments.replace("PLANTED", PLANTED);
        let ran = check_quiet(&lake, "argument", &words(&call), &[]);
        assert_ne!(ran.code, Some(0), "{arguments:?}");
    }
}

/// A successful run of a pipeline that is named after the secret in every place except the data, so
/// that every output would contain it.
#[test]
fn known_secrets_are_hidden_in_every_file_of_a_run() {
    let lake = small_lake();
    let text = lake.text("p.toml");
    let text = text.replace("name = \"small\"", &format!("name = \"{PLANTED}\""));
    let sql = format!("SELECT * FROM rows WHERE $of <> '' -- {PLANTED}");
    let text = text.replace("SELECT * FROM rows", &sql);
    let new = format!("[transitions.parameters]\nof = \"{PLANTED}\"\n\n[[fit]]\nname = \"dbmr\"");
    let text = text.replace("[[fit]]\nname = \"dbmr\"", &new);
    let check = format!(
        "[[check]]\nname = \"{PLANTED}\"\nsql = \"SELECT '{PLANTED}' AS x FROM fits\"\non = \"warn\"\n"
    );
    // This folder is not searched for the secret.
    let other_folder = tempfile::tempdir().expect("a folder");
    let pipeline = other_folder.path().join("p.toml");
    let pipeline = pipeline.to_str().expect("a path");
    fs::write(pipeline, format!("{text}\n{check}")).expect("a pipeline");
    let key = [("AWS_SECRET_ACCESS_KEY", PLANTED.to_string())];
    let run = |more: &[&str]| {
        let arguments = [&["run", pipeline][..], &REPORTS, more].concat();
        check_quiet(&lake, "named", &arguments, &key)
    };
    run(&["-vvv"]).succeeds().says("***: 597 transitions");
    let ran = run(&["--log-format", "json", "--force"]).succeeds();
    for line in ran.err.lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a JSON line");
    }
    assert_eq!(run(&["--set", "checks.min_rows=1000"]).code, Some(3));
    for line in lake.text("lineage.jsonl").lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a JSON line");
    }
    for command in [&["plan", "--json"][..], &["plan"], &["explain"], &["check"]] {
        let arguments = [command, &[pipeline]].concat();
        check_quiet(&lake, "named", &arguments, &key).succeeds();
    }
    let plan = check_quiet(&lake, "named", &["plan", "--json", pipeline], &key);
    serde_json::from_str::<serde_json::Value>(&plan.out).expect("JSON");
}

/// The output is in a bucket, and the credentials are in the environment.
#[test]
fn a_run_into_a_bucket_leaves_no_credentials() {
    let lake = small_lake();
    let server = Server::start(InMemory::new(), Protocol::S3, None);
    let own = |key: &str, value: String| match key {
        "aws_endpoint_url" => value.replace("http://", &format!("http://me:{PLANTED}@")),
        "aws_access_key_id" | "aws_secret_access_key" => PLANTED.into(),
        _ => value,
    };
    let environment: Vec<(String, String)> = server
        .options()
        .into_iter()
        .map(|(key, value)| (key.to_ascii_uppercase(), own(&key, value)))
        .collect();
    let environment: Vec<(&str, String)> = environment
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()))
        .collect();
    let output = ["--set", "job.output=s3://lake/out"];
    // The key is an option of the pipeline as well.
    let key = "store.options.aws_secret_access_key=${AWS_SECRET_ACCESS_KEY}";
    for more in [
        &["-vvv"][..],
        &["--log-format", "json", "--force"],
        &["--set", key, "-vvv", "--force"],
    ] {
        let arguments = [&["run", "p.toml"][..], &REPORTS, &output, more].concat();
        check_quiet(&lake, "bucket", &arguments, &environment).succeeds();
    }
    for command in [&["plan", "--json", "-vv"][..], &["plan"], &["explain"]] {
        let arguments = [command, &["p.toml", "--set", key], &output].concat();
        check_quiet(&lake, "bucket", &arguments, &environment).succeeds();
    }
    for call in [
        "compare s3://lake/out s3://lake/out",
        "clean p.toml --set job.output=s3://lake/out",
    ] {
        check_quiet(&lake, "bucket", &words(call), &environment).succeeds();
    }
    let stored = leaks_in(&server.store);
    assert_eq!(stored, Vec::<String>::new());
}

fn leaks_in(store: &InMemory) -> Vec<String> {
    use futures::{FutureExt, StreamExt};
    use object_store::{ObjectStore, ObjectStoreExt};
    let all = async {
        let listed: Vec<_> = store.list(None).collect().await;
        let mut found = Vec::new();
        for meta in listed {
            let at = meta.expect("an object").location;
            let bytes = store.get(&at).await.expect("an object").bytes().await;
            if has_secret(&bytes.expect("bytes")) || at.as_ref().contains(PLANTED) {
                found.push(at.to_string());
            }
        }
        found
    };
    all.now_or_never().expect("memory does not wait")
}

/// An unwritable stdout or stderr.
#[derive(Debug, Clone, Copy)]
enum Unwritable {
    Full,
    Closed,
}

impl Unwritable {
    fn stream(self) -> Stdio {
        match self {
            Unwritable::Full => File::options()
                .write(true)
                .open("/dev/full")
                .expect("a device")
                .into(),
            // A pipe whose reader is closed.
            Unwritable::Closed => {
                let (reader, writer) = std::io::pipe().expect("a pipe");
                drop(reader);
                writer.into()
            }
        }
    }
}

/// The test combines unwritable logs and summaries with options of a run. The result is written,
/// and the exit code is that of the run.
#[test]
fn unwritable_messages_do_not_fail_a_run() {
    let lake = small_lake();
    let mut runs = 0;
    for sink in [Unwritable::Full, Unwritable::Closed] {
        for logged in [&["-v"][..], &["-vv"], &["--log-format", "json"], &["-q"]] {
            for (of_out, of_err) in [(false, true), (true, false), (true, true)] {
                let arguments = [&["run", "p.toml", "--force"], logged].concat();
                let mut command = lake.command(&arguments);
                let stream = |is_sunk| {
                    if is_sunk {
                        sink.stream()
                    } else {
                        Stdio::piped()
                    }
                };
                command.stdout(stream(of_out)).stderr(stream(of_err));
                let ran = ProgramRun::of(command.output().expect("the program starts"));
                assert_eq!(ran.code, Some(0), "{sink:?} {arguments:?}: {}", ran.err);
                runs += 1;
                let records = fs::read_dir(lake.path("out/runs")).expect("records");
                assert_eq!(records.count(), runs);
                if of_out && !of_err && matches!(sink, Unwritable::Full) && logged[0] != "-q" {
                    let printed = "the command succeeded, but stdout cannot be written";
                    ran.logs(printed);
                }
            }
        }
        // The exit code is right for an error that cannot be printed and for help that cannot be
        // printed.
        for (arguments, of_out, code) in [
            (&["run", "gone.toml"][..], false, 2),
            (&["run", "gone.toml", "--log-format", "json"], false, 2),
            (&["run"], false, 2),
            (
                &["run", "p.toml", "--set", "tables.rows.path=gone"],
                false,
                1,
            ),
            (&["--help"], true, 0),
        ] {
            let mut command = lake.command(arguments);
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            if of_out {
                command.stdout(sink.stream());
            } else {
                command.stderr(sink.stream());
            }
            let output = command.output().expect("the program starts");
            assert_eq!(output.status.code(), Some(code), "{sink:?} {arguments:?}");
        }
    }
    let mut plan = lake.command(&["plan", "p.toml", "--json"]);
    let ran = ProgramRun::of(
        plan.stdout(Unwritable::Full.stream())
            .output()
            .expect("the program starts"),
    );
    ran.fails(75, "stdout cannot be written");
}

#[test]
fn quiet_commands_print_errors_and_requested_output_only() {
    let lake = small_lake();
    for arguments in [
        &["check", "p.toml"][..],
        &["run", "p.toml"],
        &["run", "p.toml"],
        &["assign", "p.toml", "--model", "out", "--output", "new"],
        &["assign", "p.toml", "--model", "out", "--output", "new"],
        &["clean", "p.toml"],
        &["man", "--out", "pages/of/gyre"],
    ] {
        let ran = lake.gyre(&[arguments, &["-q"]].concat()).succeeds();
        assert_eq!(ran.out + &ran.err, "", "{arguments:?}");
    }
    assert!(lake.path("pages/of/gyre/gyre-run.1").exists());
    for arguments in [
        &["plan", "p.toml"][..],
        &["plan", "p.toml", "--json"],
        &["explain", "p.toml"],
        &["compare", "out", "out"],
        &["clean", "p.toml", "--dry-run"],
        &["schema"],
        &["man"],
    ] {
        let quiet = lake.gyre(&[arguments, &["-q"]].concat()).succeeds();
        let printed = lake.gyre(arguments).succeeds().out;
        assert_eq!(quiet.out, printed, "{arguments:?}");
        assert!(!quiet.out.is_empty(), "{arguments:?}");
    }
    lake.line("run gone.toml -q").fails(2, "gone.toml");
}

/// Every page that the main page names exists as a file and as output of `gyre man`.
#[test]
fn manual_pages_are_complete() {
    let lake = Lake::new();
    fs::create_dir(lake.path("man1")).expect("a folder");
    let printed = lake.line("man --out man1").succeeds().out;
    assert_eq!(printed, "wrote the manual pages to man1\n");
    let read = |name: &str| fs::read_to_string(lake.path(&format!("man1/{name}.1")));
    let mut pages = vec!["gyre".to_string()];
    let mut seen = 0;
    while let Some(page) = pages.pop() {
        let text = read(&page)
            .unwrap_or_else(|e| panic!("{page}: {e}"))
            .replace("\\-", "-");
        seen += 1;
        for line in text.lines() {
            let Some(named) = line
                .strip_suffix("(1)")
                .or_else(|| line.strip_suffix("\\fR(1)"))
            else {
                continue;
            };
            let named = named.trim_start_matches("\\fB").trim_end_matches("\\fR");
            let words: Vec<&str> = named.split('-').skip(1).collect();
            let printed = lake.gyre(&[&["man"], &words[..]].concat()).succeeds().out;
            assert_eq!(printed.trim_end(), read(named).expect("a page").trim_end());
            pages.push(named.to_string());
        }
    }
    let written = lake.names("man1").len();
    assert_eq!(seen, written);
    assert!(seen > 10, "{seen}");
    let message = "there is no manual page for `rum`; there are pages for: run, ";
    lake.line("man rum").fails(2, message);
    lake.file("taken", "");
    lake.line("man --out taken/pages")
        .fails(75, "cannot be written to taken/pages");
}

/// Devices and pipes are written to and not replaced.
#[test]
fn metrics_and_events_are_written_to_devices_and_pipes() {
    let lake = small_lake();
    // /dev/stdout, which a shell passes to a program.
    lake.line("run p.toml -q --metrics /dev/stdout")
        .succeeds()
        .says("gyre_run_success{pipeline=\"small\"} 1");
    let ran = lake
        .line("run p.toml -q --force --lineage /dev/stderr")
        .succeeds();
    assert_eq!(ran.err.matches("\"eventType\"").count(), 2, "{}", ran.err);
    assert!(std::path::Path::new("/dev/stdout").is_symlink());
    // A file that is also stdout is appended to.
    let log = File::create(lake.path("log")).expect("a file");
    let call = "run p.toml --force --metrics log --lineage /dev/stdout";
    let ran = lake.command(&words(call)).stdout(log).status();
    assert!(ran.expect("the program starts").success());
    let log = lake.text("log");
    for part in [
        "\"START\"",
        "small: 597 transitions",
        "\"COMPLETE\"",
        "gyre_run_success",
    ] {
        assert_eq!(log.matches(part).count().min(1), 1, "{part}: {log}");
    }
    // A full device is an error and is not replaced.
    lake.line("run p.toml --force --metrics /dev/full")
        .fails(75, "the file of --metrics cannot be written");
    let device = fs::metadata("/dev/full").expect("the file exists");
    assert!(device.file_type().is_char_device());
    // A pipe needs a reader before the run starts.
    let made = Command::new("mkfifo").arg(lake.path("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    for option in ["--metrics", "--lineage"] {
        lake.gyre(&["run", "p.toml", option, "pipe"])
            .fails(2, "no program reads this pipe");
    }
    let pipe = lake.path("pipe");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        let mut pipe = File::open(pipe).expect("a pipe");
        pipe.read_to_string(&mut text).expect("text");
        text
    });
    // The run fails until the reader has opened the pipe.
    while lake.line("run p.toml --force --lineage pipe").code == Some(2) {}
    let events = reader.join().expect("text");
    assert_eq!(events.lines().count(), 2, "{events}");
    let pipe = fs::metadata(lake.path("pipe")).expect("the file exists");
    assert!(pipe.file_type().is_fifo());
}
