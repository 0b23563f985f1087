//! The files under pipelines/deploy/. The tests run the commands that these files start every
//! night.

use crate::lake::{Lake, ProgramRun, names_in, texts, words};
use crate::needs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn deploy(name: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join("pipelines/deploy").join(name)).expect("a file")
}

/// Writes routes of two airlines: every pair of airports in each of four clusters of 25, `times`
/// times. A third airline has three routes.
pub fn routes(lake: &Lake, times: usize) {
    let (mut airline, mut source, mut target) = (Vec::new(), Vec::new(), Vec::new());
    for carrier in ["AA", "UA"] {
        let pairs = (0..100).flat_map(|s| (0..100).map(move |t| (s, t)));
        for (s, t) in pairs.filter(|(s, t)| s != t && s / 25 == t / 25) {
            for _ in 0..times {
                airline.push(carrier);
                source.push(format!("{carrier}{s}"));
                target.push(format!("{carrier}{t}"));
            }
        }
    }
    for _ in 0..3 {
        airline.push("XX");
        source.push("P".into());
        target.push("Q".into());
    }
    let columns = vec![
        ("airline", texts(airline)),
        ("source", texts(source)),
        ("target", texts(target)),
    ];
    lake.table("lake/routes.parquet", columns);
}

fn link_program(lake: &Lake) {
    let program = assert_cmd::cargo::cargo_bin!("gyre");
    std::os::unix::fs::symlink(program, lake.path("bin/gyre")).expect("a link");
}

/// A folder with the layout of the deployment, in place of /srv/gyre.
fn deployed_folder() -> Lake {
    let lake = Lake::new();
    for folder in words("pipelines pipelines/deploy sql sql/checks metrics bin") {
        std::fs::create_dir_all(lake.path(folder)).expect("a folder");
        if let Ok(files) = std::fs::read_dir(Path::new(ROOT).join(folder)) {
            let files = files.map(|file| file.expect("an entry").path());
            for file in files.filter(|file| file.is_file()) {
                let name = file.file_name().expect("a name");
                std::fs::copy(&file, lake.path(folder).join(name)).expect("a copy");
            }
        }
    }
    link_program(&lake);
    routes(&lake, 1);
    lake
}

/// Runs a command line of a deployment with sh in the folder.
fn sh(lake: &Lake, line: &str) -> ProgramRun {
    let line = line.replace("/srv/gyre", &lake.folder.path().display().to_string());
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{path}", lake.path("bin").display());
    let mut command = Command::new("sh");
    command.args(["-c", &line]).current_dir(lake.folder.path());
    command.env("PATH", path).env("WAIT", "0");
    command.env_remove("OUT").env_remove("ROUTES");
    ProgramRun::of(command.output().expect("sh starts"))
}

#[test]
fn the_nightly_pipeline_keeps_its_result_if_a_check_fails() {
    let lake = deployed_folder();
    sh(&lake, "gyre run pipelines/nightly.toml")
        .succeeds()
        .says("\nchecks: 7 passed\n");
    // Twice as many routes give a drift of 100 %.
    routes(&lake, 2);
    let ran = sh(&lake, "gyre run pipelines/nightly.toml");
    ran.fails(3, "max_drift: the number of transitions differs by 100 % from the result in place, more than 20 %");
    let counts = lake.read_at("out/nightly/counts");
    let total: i64 = counts.integers("count").iter().sum();
    assert_eq!(total, 2 * 4 * 25 * 24);
    // Results of the example checks: an airline with three routes between two airports, and no set
    // of almost all states.
    let set = |change: &str| {
        let run = "gyre run pipelines/nightly.toml --set checks.max_drift=2";
        sh(&lake, &format!("{run} --set '{change}'"))
    };
    set("transitions.parameters.airports=101").fails(1, "gives no rows");
    let message = "no_model: 1 row where there should be none\n    airline=XX, n=3\n";
    set("check.no_model.parameters.routes=3").fails(3, message);
    set("check.small_sets.parameters.share=0.9")
        .succeeds()
        .says("checks: 6 passed, 1 warned: small_sets\n");
}

#[test]
fn cron_and_airflow_start_the_documented_commands() {
    let lake = deployed_folder();
    let cron = deploy("gyre.cron");
    let line = cron.lines().last().expect("a line");
    let fields: Vec<&str> = line.splitn(7, ' ').collect();
    assert_eq!(fields[..6], ["30", "2", "*", "*", "*", "gyre"]);
    // cron replaces a % by a newline.
    assert!(!line.contains('%') && cron.contains("\nPATH=/usr/local/bin:"));
    sh(&lake, fields[6]).succeeds();
    assert!(lake.path("metrics/nightly.prom").exists());
    assert!(lake.path("out/nightly/current.json").exists());
    let log = lake.text("nightly.log");
    assert!(log.contains("\"run ends\""), "{log}");
    // Another process may end, and its lock with it.
    std::fs::create_dir_all(lake.path("odd/nightly")).expect("a folder");
    let lock = std::fs::File::create(lake.path("odd/nightly/.lock")).expect("a file");
    lock.lock().expect("the lock");
    let impatient = "gyre() { command gyre \"$@\" --lock-timeout 0s; }";
    let script = format!("export OUT=odd; {impatient}; . pipelines/deploy/nightly.sh");
    assert_eq!(sh(&lake, &script).code, Some(75));
    drop(lock);
    let starts = lake.text("lineage.jsonl");
    assert!(starts.matches("\"FAIL\"").count() == 4, "{starts}");
    // An output that can never be written is not retried.
    let ran = sh(&lake, "OUT=/dev/null/x sh pipelines/deploy/nightly.sh");
    assert_eq!(ran.code, Some(2));
    let starts = lake.text("lineage.jsonl");
    assert!(starts.matches("\"FAIL\"").count() == 5, "{starts}");
    let ran = sh(&lake, "ROUTES=gone sh pipelines/deploy/nightly.sh");
    assert_eq!(ran.code, Some(1));

    let Some(python) = needs::python(&[]) else {
        return;
    };
    // The DAG with stubs for its imports. Its command runs as Airflow would run it.
    let script = format!(
        r#"
import sys, types, subprocess
calls = []
class Context:
    def __init__(self, **kw): calls.append(kw)
    def __enter__(self): return self
    def __exit__(self, *a): pass
bash = "airflow.providers.standard.operators.bash"
for name in ["pendulum"] + [".".join(bash.split(".")[:n]) for n in range(1, 6)]:
    sys.modules[name] = types.ModuleType(name)
sys.modules["pendulum"].datetime = lambda *a, **k: a
sys.modules["airflow"].DAG = Context
sys.modules[bash].BashOperator = Context
exec(compile(open("{ROOT}/pipelines/deploy/airflow_dag.py").read(), "dag", "exec"))
dag, task = calls
assert dag["schedule"] == "30 2 * * *" and task["cwd"] == "/srv/gyre" and task["retries"] == 0
sys.exit(subprocess.run(["bash", "-c", task["bash_command"]]).returncode)
"#
    );
    let folder = lake.path("dag.py");
    std::fs::write(&folder, script).expect("a script");
    sh(&lake, &format!("{python} dag.py")).succeeds();
}

#[test]
fn systemd_accepts_the_units() {
    let lake = deployed_folder();
    let service = deploy("gyre.service");
    let begin = "ExecStart=/usr/local/bin/";
    let start = service.lines().find_map(|line| line.strip_prefix(begin));
    sh(&lake, start.expect("a command")).succeeds();
    let Some(analyze) = systemd_analyze() else {
        return;
    };
    // The units are verified with an existing program.
    let program = lake.path("bin/gyre").display().to_string();
    let service = service.replace("/usr/local/bin/gyre", &program);
    lake.file("gyre.service", &service);
    lake.file("gyre.timer", &deploy("gyre.timer"));
    let units = ["gyre.service", "gyre.timer"].map(|unit| lake.path(unit));
    let verified = Command::new(analyze).arg("verify").args(units).output();
    let ran = ProgramRun::of(verified.expect("the program starts"));
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(!ran.err.contains("gyre."), "{}", ran.err);
}

#[test]
fn the_kubernetes_cron_job_mounts_its_pipeline() {
    let Some(python) = needs::python(&["yaml"]) else {
        return;
    };
    let script = r#"
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
assert job["apiVersion"] == "batch/v1" and job["kind"] == "CronJob"
of_job = job["spec"]["jobTemplate"]["spec"]
pod = of_job["template"]["spec"]
assert pod["restartPolicy"] == "Never"  # required by podFailurePolicy
box = pod["containers"][0]
mounts = {m["name"] for m in box["volumeMounts"]}
assert mounts == {v["name"] for v in pod["volumes"]}
rule = of_job["podFailurePolicy"]["rules"][0]["onExitCodes"]
assert rule["containerName"] == box["name"] and rule["values"] == [1, 2, 3]
print(" ".join(box["command"] + box["args"]))
print(" ".join(f'{e["name"]}={e["value"]}' for e in box["env"]))
for item in pod["volumes"][0]["configMap"]["items"]:
    print(item["key"], item["path"])
"#;
    let lake = Lake::new();
    lake.file("read.py", script);
    let yaml = format!("{ROOT}/pipelines/deploy/cronjob.yaml");
    let read = Command::new(python)
        .args([lake.path("read.py"), yaml.into()])
        .output();
    let ran = ProgramRun::of(read.expect("Python")).succeeds();
    let mut lines = ran.out.lines();
    let mut line = || lines.next().expect("a line");
    let (command, variables) = (line(), line());
    // Only the files of the ConfigMap exist. /out is a volume.
    let lake = Lake::new();
    let whole = deployed_folder();
    std::fs::create_dir(lake.path("bin")).expect("a folder");
    link_program(&lake);
    for line in lines {
        let (key, path) = line.split_once(' ').expect("an item");
        let to = lake.path(path);
        assert_eq!(to.file_name().and_then(|n| n.to_str()), Some(key));
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("a folder");
        std::fs::copy(whole.path(path), to).expect("a file of the repository");
    }
    let out = lake.path("out").display().to_string();
    std::fs::create_dir_all(lake.path("out/lake")).expect("a folder");
    let [from, to] = ["lake/routes.parquet", "out/lake/routes.parquet"];
    std::fs::copy(whole.path(from), lake.path(to)).expect("routes");
    let line = format!("{variables} {command}").replace("/out", &out);
    sh(&lake, &line).succeeds();
    assert!(lake.path("out/nightly/current.json").exists());
    assert!(lake.path("out/nightly.prom").exists());
}

/// Every file under deploy/ has a test here.
#[test]
fn every_deployment_file_is_tested() {
    let names = names_in(&Path::new(ROOT).join("pipelines/deploy"));
    let names: Vec<String> = names.into_iter().collect();
    let known = "Containerfile README.md airflow_dag.py cluster.yaml cronjob.yaml \
                 gyre-executor.service gyre-scheduler.service gyre.cron gyre.service gyre.timer \
                 nightly.sh";
    assert_eq!(names, words(known));
    let shown = names.iter().map(|name| format!("pipelines/deploy/{name}"));
    crate::pages::assert_shown(&shown.collect::<Vec<_>>());
}

/// The program that verifies units. `GYRE_CANNOT` names it `systemd`.
fn systemd_analyze() -> Option<PathBuf> {
    needs::ability("systemd", needs::installed(&["systemd-analyze"]))
}

/// Starts the commands of the units and the pods at a free port.
#[cfg(feature = "cluster")]
#[test]
fn deployed_clusters_use_the_tested_commands() {
    use crate::machines::Process;
    let mut commands = Vec::new();
    for unit in ["gyre-scheduler.service", "gyre-executor.service"] {
        let text = deploy(unit);
        let begin = "ExecStart=/usr/local/bin/gyre ";
        let start = text.lines().find_map(|line| line.strip_prefix(begin));
        let mut command = start.expect("a command").to_string();
        let set = text.lines();
        let set = set.filter_map(|line| line.strip_prefix("Environment="));
        let set = set.flat_map(str::split_whitespace);
        for (name, value) in set.filter_map(|set| set.split_once('=')) {
            command = command.replace(&format!("${{{name}}}"), value);
        }
        commands.push(command);
    }
    let script = r#"
import sys, yaml
parts = {(p["kind"], p["metadata"]["name"]): p["spec"] for p in yaml.safe_load_all(open(sys.argv[1]))}
for name in ["scheduler", "executor"]:
    of = parts["Deployment", "gyre-" + name]
    assert of["selector"]["matchLabels"] == of["template"]["metadata"]["labels"]
    print(" ".join(of["template"]["spec"]["containers"][0]["args"]))
scheduler = parts["Deployment", "gyre-scheduler"]["template"]
assert parts["Service", "gyre-scheduler"]["selector"] == scheduler["metadata"]["labels"]
job = parts["Job", "gyre-run"]["template"]["spec"]["containers"][0]
assert job["args"][:2] == ["run", "pipelines/nightly.toml"]
assert job["args"][2:4] == ["--cluster", "df://gyre-scheduler:50050"]
"#;
    let lake = Lake::new();
    lake.file("read.py", script);
    if let Some(python) = needs::python(&["yaml"]) {
        let yaml = concat!(env!("CARGO_MANIFEST_DIR"), "/pipelines/deploy/cluster.yaml");
        let read = Command::new(python)
            .args([lake.path("read.py"), yaml.into()])
            .output();
        let ran = ProgramRun::of(read.expect("Python")).succeeds();
        commands.extend(ran.out.lines().map(String::from));
    }
    for pair in commands.chunks(2) {
        let [scheduler, executor] = pair else {
            panic!("a scheduler and an executor: {pair:?}");
        };
        let scheduler = scheduler.replace(":50050", ":0");
        let arguments: Vec<&str> = scheduler.split_whitespace().collect();
        let mut scheduler = Process::start(&lake, &arguments);
        let (_, port) = scheduler.line.rsplit_once(':').expect("an address");
        let local_address = format!("df://127.0.0.1:{port}");
        let is_address = |word: &str| word.starts_with("df://");
        let words = executor.split_whitespace();
        let words = words.map(|word| {
            if is_address(word) {
                &local_address
            } else {
                word
            }
        });
        let mut executor = Process::start(&lake, &words.collect::<Vec<&str>>());
        let line = &executor.line;
        assert!(line.contains("asks df://127.0.0.1:"), "{line}");
        for process in [&mut executor, &mut scheduler] {
            process.signal("-TERM");
            let status = process.child.wait().expect("the process ends");
            assert_eq!(status.code(), Some(0));
        }
    }
    let program = assert_cmd::cargo::cargo_bin!("gyre").display().to_string();
    let Some(analyze) = systemd_analyze() else {
        return;
    };
    for unit in ["gyre-scheduler.service", "gyre-executor.service"] {
        lake.file(unit, &deploy(unit).replace("/usr/local/bin/gyre", &program));
        let verified = Command::new(&analyze)
            .arg("verify")
            .arg(lake.path(unit))
            .output();
        let ran = ProgramRun::of(verified.expect("the program starts"));
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        assert!(!ran.err.contains("gyre-"), "{}", ran.err);
    }
}
