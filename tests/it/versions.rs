//! Versions of results on disk: simultaneous runs, earlier results, files of dead runs, and `gyre
//! clean`.

use crate::cli::small_lake;
use crate::lake::{Lake, ProgramRun, wait_for, words};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::io::{BufReader, Read};
use std::os::unix::fs::symlink;
use std::process::Stdio;

fn current(lake: &Lake) -> String {
    lake.json("out/current.json")["run"]
        .as_str()
        .expect("a run")
        .to_string()
}

fn earlier(lake: &Lake) -> Vec<String> {
    let pointer = lake.json("out/current.json");
    let earlier = pointer["earlier"].as_array().expect("a list").iter();
    earlier
        .map(|run| run.as_str().expect("a run").to_string())
        .collect()
}

/// Asserts that there is exactly one version per run in the pointer, and that the links agree with
/// the pointer.
#[track_caller]
fn check_tidy(lake: &Lake) {
    let named = earlier(lake).into_iter().chain([current(lake)]);
    assert_eq!(lake.names("out/versions"), named.collect());
    check_links(lake);
}

#[track_caller]
fn check_links(lake: &Lake) {
    let folder = format!("versions/{}", current(lake));
    let link = fs::read_link(lake.path("out/current")).expect("a link");
    assert_eq!(link.to_str(), Some(folder.as_str()));
    for (table, bytes) in lake.tables() {
        let file = lake.path(&format!("out/{folder}/{table}/part-0.parquet"));
        assert!(fs::read(file).expect("a table") == bytes, "{table}");
    }
}

fn run(lake: &Lake, seed: &str) -> String {
    lake.gyre(&["run", "p.toml", "--seed", seed]).succeeds();
    current(lake)
}

#[test]
fn one_of_two_simultaneous_processes_wins_and_the_other_reports_it() {
    let lake = small_lake();
    let first = run(&lake, "1");
    // This lock keeps all runs from writing, but not from starting.
    let lock = File::open(lake.path("out/.lock")).expect("a lock");
    lock.lock().expect("the lock is free");
    let mut processes = Vec::new();
    for seed in ["2", "3"] {
        let arguments = [
            "run",
            "p.toml",
            "-v",
            "--log-format",
            "json",
            "--seed",
            seed,
        ];
        let mut command = lake.command(&arguments);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("the program starts");
        let mut log = BufReader::new(process.stderr.take().expect("a log"));
        wait_for(&mut log, r#""stage":"fit""#);
        processes.push((process, log));
    }
    lock.unlock().expect("the lock is released");
    let mut results = Vec::new();
    for (process, mut log) in processes {
        let mut err = String::new();
        let ended = process.wait_with_output().expect("the process ends");
        log.read_to_string(&mut err).expect("the rest of the log");
        let mut ran = ProgramRun::of(ended);
        ran.err = err;
        results.push(ran);
    }
    results.sort_by_key(|ran| ran.code);
    assert_eq!(results[0].code, Some(0), "{}", results[0].err);
    let winner = current(&lake);
    let message =
        format!("another run ({winner}) has put its result in place at out since this one began");
    results[1].fails(75, &message);
    assert_eq!(earlier(&lake), std::slice::from_ref(&first));
    // The run that lost has a record with the reason.
    let mut records = lake.names("out/runs");
    for run in [first, winner] {
        assert!(records.remove(&format!("{run}.json")), "{run}");
    }
    let loser = records.pop_first().expect("a third record");
    assert!(records.is_empty());
    let text = std::fs::read_to_string(lake.path(&format!("out/runs/{loser}")));
    let text = text.expect("a record");
    assert!(text.contains("\"kind\": \"conflict\""), "{text}");
    check_tidy(&lake);
}

/// The printed text, with names in place of run ids.
fn stable_output(ran: ProgramRun, runs: &[(&str, &str)]) -> String {
    let mut text = ran.succeeds().out;
    for (run, name) in runs {
        text = text.replace(run, name);
    }
    // Sizes depend on the version of gyre in the metadata.
    let is_size = |word: &str| word.starts_with(|c: char| c.is_ascii_digit());
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let shown = words.iter().enumerate().map(|(at, word)| {
            if words
                .get(at + 1)
                .is_some_and(|next| next.starts_with("bytes"))
                && is_size(word)
            {
                "N"
            } else {
                word
            }
        });
        shown.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn earlier_results_are_kept_and_cleaned() {
    let lake = small_lake();
    lake.line("clean p.toml")
        .succeeds()
        .prints("Nothing to clean.\n");
    assert!(!lake.path("out").exists());
    let runs: Vec<String> = ["1", "2", "3", "4"].map(|seed| run(&lake, seed)).into();
    assert_eq!(runs.iter().collect::<BTreeSet<_>>().len(), 4);
    assert_eq!(earlier(&lake), [runs[2].clone(), runs[1].clone()]);
    check_tidy(&lake);
    // Records are kept.
    assert_eq!(lake.names("out/runs").len(), 4);
    lake.line("clean p.toml")
        .succeeds()
        .prints("Nothing to clean.\n");

    // A killed run and a running one.
    let [dead, alive] = ["0", "1"].map(|n| format!("20260301T020000Z-0123abcd-0000000{n}"));
    for dead in [&dead, &alive] {
        let table = format!("out/versions/{dead}/sources");
        fs::create_dir_all(lake.path(&table)).expect("a folder");
        lake.file(&format!("{table}/part-0.parquet"), "half a table");
        lake.file(&format!("out/versions/{dead}/.lock"), "");
    }
    let lock = File::open(lake.path(&format!("out/versions/{alive}/.lock"))).expect("a lock");
    lock.lock().expect("the lock is free");
    let known = [
        (runs[1].as_str(), "SECOND"),
        (&runs[2], "THIRD"),
        (&runs[3], "FOURTH"),
        (&dead, "dead"),
        (&alive, "alive"),
    ];
    let keep = ["clean", "p.toml", "--set", "job.keep=1"];
    let before = lake.tables();
    let mut text = String::new();
    for arguments in [&[&keep[..], &["--dry-run"]].concat(), &keep[..], &keep[..]] {
        let ran = lake.gyre(arguments);
        text += &format!(
            "$ gyre {}\n{}\n",
            arguments.join(" "),
            stable_output(ran, &known)
        );
    }
    insta::assert_snapshot!("clean", text);
    assert_eq!(earlier(&lake), [runs[2].clone()]);
    drop(lock);
    let text = stable_output(lake.line("clean p.toml"), &known);
    assert!(text.contains("removed alive: "), "{text}");
    check_tidy(&lake);
    assert!(lake.tables() == before);
    // The number of kept versions does not change the result.
    let same = ["run", "p.toml", "--seed", "4", "--set", "job.keep=0"];
    lake.gyre(&same).succeeds().prints("Nothing to do.\n");
    lake.gyre(&[&same[..], &["--force"]].concat()).succeeds();
    assert!(earlier(&lake).is_empty());
    check_tidy(&lake);
    assert!(lake.tables() == before);
}

/// Counts that no result uses, and the partial file of a killed process.
#[test]
fn unused_files_are_listed_and_removed() {
    let lake = small_lake();
    let run = |seed: &str| {
        let keep = ["--set", "job.incremental=true", "--set", "job.keep=0"];
        lake.gyre(&[&["run", "p.toml", "--seed", seed][..], &keep].concat())
            .succeeds();
    };
    run("1");
    let kept = lake.names("out/ledger");
    let object = format!("ledger/counts-{}.parquet", "01".repeat(16));
    lake.file(&format!("out/{object}"), "12345");
    let record = "runs/20260301T020000Z-0123abcd-00000001.json#12";
    for draft in [&format!("{object}#1"), record] {
        lake.file(&format!("out/{draft}"), "123");
    }
    let mine = words("ledger/0123-old ledger/0123#1 runs/x#1 runs/x.json#12 runs/x#y");
    for file in &mine {
        lake.file(&format!("out/{file}"), "not made by gyre");
    }
    let clean = |more: &[&str]| {
        let arguments = [&["clean", "p.toml", "--older-than", "0s"], more].concat();
        lake.gyre(&arguments).succeeds().out
    };
    lake.line("clean p.toml")
        .succeeds()
        .prints("Nothing to clean.\n");
    let lines = |verb: &str| {
        format!(
            "{verb} {object}: no result needs it, 5 bytes\n\
             {verb} {object}#1: partial file of a killed run, 3 bytes\n\
             {verb} {record}: partial file of a killed run, 3 bytes\n\
             {verb} 3 files, 11 bytes\n"
        )
    };
    assert_eq!(clean(&["--dry-run"]), lines("would remove"));
    assert_eq!(clean(&[]), lines("removed"));
    assert_eq!(clean(&[]), "Nothing to clean.\n");
    for file in mine {
        fs::remove_file(lake.path(&format!("out/{file}"))).expect("it is still there");
    }
    assert_eq!(lake.names("out/ledger"), kept);
    // The list includes the ledger of a removed result.
    run("2");
    assert_eq!(lake.names("out/ledger"), kept);
}

/// If a process dies after it has written its pointer, readers of plain paths see one result, and
/// the next call switches them to the new one.
#[test]
fn links_follow_the_pointer() {
    let lake = small_lake();
    let first = run(&lake, "1");
    run(&lake, "2");
    let new = lake.tables();
    let mends = ["run p.toml --seed 2", "clean p.toml"];
    for mend in mends {
        fs::remove_file(lake.path("out/current")).expect("a link");
        symlink(format!("versions/{first}"), lake.path("out/current")).expect("a link");
        fs::remove_file(lake.path("out/fits")).expect("a link");
        symlink("current/bootstrap", lake.path("out/bootstrap")).expect("a link");
        fs::remove_file(lake.path(&format!("out/runs/{}.json", current(&lake)))).expect("a record");
        lake.line(mend).succeeds();
        check_tidy(&lake);
        assert!(lake.tables() == new, "{mend}");
        assert!(!lake.names("out").contains("bootstrap"), "{mend}");
        assert_eq!(lake.names("out/runs").len(), 2, "{mend}");
    }
}

#[test]
fn foreign_files_in_the_output_are_kept() {
    let lake = small_lake();
    fs::create_dir_all(lake.path("out/fits")).expect("a folder");
    lake.file("out/fits/mine.txt", "not gyre's");
    let refused = lake.run(&[]);
    refused.fails(2, "out/fits is where gyre must create a link; move it away");
    let allowed = ["fits", ".lock", "versions"].map(str::to_string);
    assert!(lake.names("out").is_subset(&allowed.into()));
    assert_eq!(lake.names("out/fits").len(), 1);
    fs::remove_dir_all(lake.path("out")).expect("a folder");

    // A link of the user is not replaced, whatever has its name.
    lake.file("mine.txt", "not gyre's");
    fs::create_dir_all(lake.path("out")).expect("a folder");
    symlink("../mine.txt", lake.path("out/fits")).expect("a link");
    refused_link(&lake);
    fs::remove_dir_all(lake.path("out")).expect("a folder");

    // The contents of an unreadable pointer are unknown.
    let first = run(&lake, "1");
    let pointer = lake.json("out/current.json");
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut pointer = pointer.clone();
        edit(&mut pointer);
        pointer.as_object_mut().expect("keys").remove("checksum");
        pointer
    };
    let whole = |edit: &dyn Fn(&mut Value)| sealed(edited(edit)).to_string();
    let outside = lake.path("outside").display().to_string();
    for (text, code, message) in [
        (
            "{".to_string(),
            1,
            "out/current.json does not name a result of gyre",
        ),
        (
            whole(&|p| p["schema"] = json!(9)),
            1,
            "was written by a newer gyre",
        ),
        (
            pointer.to_string().replace(&first, "20260101T000000Z-0-0"),
            1,
            "it is damaged: `checksum` does not match the other keys",
        ),
        (
            whole(&|p| p["schema"] = json!(1)),
            2,
            "has schema 1 of an older gyre",
        ),
        (
            edited(&|_| ()).to_string(),
            2,
            "has no checksum, so gyre may not have written it; move it away",
        ),
        (
            whole(&|p| {
                p["run"] = json!("../../x");
                p["folder"] = json!("versions/../../x");
            }),
            1,
            "names the run \"../../x\", which no run of gyre writes",
        ),
        (
            whole(&|p| p["folder"] = json!("../outside")),
            1,
            "names the folder \"../outside\"",
        ),
        (
            whole(&|p| p["folder"] = json!("")),
            1,
            "names the folder \"\"",
        ),
        (
            whole(&|p| p["tables"]["../victim"] = json!(1)),
            1,
            "names the table \"../victim\"",
        ),
        (
            whole(&|p| p["tables"][&outside] = json!(1)),
            1,
            "names the table",
        ),
        (
            whole(&|p| p["tables"]["current.json"] = json!(1)),
            1,
            "names the table",
        ),
        (
            whole(&|p| p["tables"]["work"] = json!(1)),
            1,
            "names the table \"work\"",
        ),
        (
            whole(&|p| p["earlier"] = json!([first, "../x"])),
            1,
            "names the run \"../x\"",
        ),
        (whole(&|p| p["earlier"] = json!([first])), 1, "twice"),
    ] {
        lake.file("victim", "not gyre's");
        lake.file("out/current.json", &text);
        for command in [
            "run p.toml",
            "clean p.toml",
            "restore out",
            "compare out out",
        ] {
            lake.line(command).fails(code, message);
        }
        assert_eq!(lake.names("out/versions"), [first.clone()].into());
        assert_eq!(lake.bytes("victim"), b"not gyre's");
        assert!(!lake.path("victim").is_symlink() && !lake.path("outside").exists());
    }
    // A right name of a table does not replace a file or a link of the user.
    lake.file(
        "out/current.json",
        &whole(&|p| p["tables"]["mine"] = json!(1)),
    );
    lake.file("out/mine", "not gyre's");
    lake.line("clean p.toml").succeeds();
    assert_eq!(lake.bytes("out/mine"), b"not gyre's");
    assert!(!lake.path("out/mine").is_symlink());
}

/// A JSON object with its checksum.
pub fn sealed(mut value: Value) -> Value {
    let checksum = blake3::hash(value.to_string().as_bytes());
    value["checksum"] = json!(checksum.to_hex().as_str());
    value
}

#[track_caller]
fn refused_link(lake: &Lake) {
    let refused = lake.run(&[]);
    refused.fails(2, "out/fits is where gyre must create a link; move it away");
    assert_eq!(lake.bytes("mine.txt"), b"not gyre's");
}

/// Nothing behind a link is removed or written, wherever the link is, and no folder without the
/// record that gyre made it.
#[test]
fn links_and_folders_of_others_are_left_alone() {
    let lake = small_lake();
    let first = run(&lake, "1");
    let id = "20260301T020000Z-0123abcd-00000001";
    fs::create_dir_all(lake.path("mine/deep")).expect("a folder");
    for file in ["mine/a", "mine/.lock", "mine/run.json", "mine/deep/b"] {
        lake.file(file, "not gyre's");
    }
    let links = ["work/x", "work/x.made", "ledger/x", "runs/x", "mine"];
    for link in links
        .map(String::from)
        .into_iter()
        .chain([format!("versions/{id}")])
    {
        let link = lake.path(&format!("out/{link}"));
        fs::create_dir_all(link.parent().expect("a folder")).expect("a folder");
        symlink(lake.path("mine"), link).expect("a link");
    }
    symlink("..", lake.path("out/work/loop")).expect("a link");
    fs::create_dir_all(lake.path("out/work/own")).expect("a folder");
    lake.file("out/work/own/notes", "not gyre's");
    lake.file("out/work/notes", "not gyre's");
    fs::create_dir_all(lake.path("out/versions/notes/.lock")).expect("a folder");
    // The alias of a table is a link of the user.
    symlink("current/sources", lake.path("out/states")).expect("a link");
    let others = || {
        let folders = words("mine mine/deep out/work out/work/own out/ledger").into_iter();
        let all: Vec<_> = folders.map(|folder| lake.names(folder)).collect();
        let runs = lake.names("out/runs").contains("x");
        let versions = lake.names("out/versions");
        (
            all,
            runs,
            versions.contains(id) && versions.contains("notes"),
        )
    };
    let before = others();
    assert!(before.1 && before.2);
    let clean = "clean p.toml --older-than 0s --set job.keep=0";
    for call in [clean, "run p.toml --seed 2", clean, "run p.toml --force"] {
        let ran = lake.line(call).succeeds();
        assert_eq!(others(), before, "{call}: {}", ran.out);
        if call == clean {
            for left in ["work/x", "work/own", "work/loop", "work/notes", id, "notes"] {
                let said = format!("left alone {left}: not made by a run\n");
                assert!(ran.out.contains(&said), "{left}: {}", ran.out);
            }
        }
    }
    assert!(fs::read_link(lake.path("out/states")).is_ok());
    assert_ne!(current(&lake), first);

    // The folders of gyre's own, and the files in them.
    let rerun = "run p.toml --seed 3";
    for place in words("work runs ledger versions current.json .lock") {
        let path = lake.path(&format!("out/{place}"));
        let away = lake.path(&format!("away-{place}"));
        fs::rename(&path, &away).expect("a folder");
        symlink(&away, &path).expect("a link");
        let message = "is a link, and no result is read, written or removed";
        for call in [clean, rerun] {
            lake.line(call).fails(2, message);
        }
        fs::remove_file(&path).expect("a link");
        fs::rename(&away, &path).expect("a folder");
    }
    let all = [
        clean,
        rerun,
        "inspect out",
        "compare out out",
        "report out",
        "assign p.toml --model out --output other",
    ];
    for (file, calls) in [
        (".lock", &[clean, rerun][..]),
        (".current.json", &[rerun]),
        (".link", &[rerun]),
        ("current.json", &all),
    ] {
        let (path, away) = (lake.path(&format!("out/{file}")), lake.path("away"));
        let is_there = fs::rename(&path, &away).is_ok();
        fs::create_dir(&path).expect("a folder");
        let needed = format!("out/{file} is a folder where gyre needs a file; remove or rename");
        for call in calls {
            lake.line(call).fails(2, &needed);
        }
        fs::remove_dir(&path).expect("a folder");
        if is_there {
            fs::rename(&away, &path).expect("a file");
        }
    }
    let version = format!("out/versions/{}", current(&lake));
    for inside in [
        "",
        "/sources",
        "/sources/part-0.parquet",
        "/files.json",
        "/run.json",
    ] {
        let path = lake.path(&format!("{version}{inside}"));
        fs::rename(&path, lake.path("away")).expect("a file");
        symlink(lake.path("away"), &path).expect("a link");
        let read = lake.line("compare out out");
        assert!(
            matches!(read.code, Some(1 | 2)),
            "{inside}: {:?} {}",
            read.code,
            read.err
        );
        fs::remove_file(&path).expect("a link");
        fs::rename(lake.path("away"), &path).expect("a file");
    }
    // What the drafts of the pointer and of links lead to is not written.
    for draft in [".current.json", ".link"] {
        fs::remove_file(lake.path(&format!("out/{draft}"))).ok();
        symlink(lake.path("mine/a"), lake.path(&format!("out/{draft}"))).expect("a link");
    }
    run(&lake, "4");
    assert_eq!(lake.bytes("mine/a"), b"not gyre's");
    // A pipe has no end.
    let status = std::process::Command::new("mkfifo")
        .arg(lake.path("pipe"))
        .status();
    assert!(status.expect("a program").success());
    fs::rename(lake.path("out/current.json"), lake.path("away")).expect("a file");
    fs::rename(lake.path("pipe"), lake.path("out/current.json")).expect("a pipe");
    lake.line("clean p.toml")
        .fails(2, "is neither a file nor a folder");
}

/// A result with a file that is cut off, empty, missing or changed is said by file, and a run makes
/// it anew.
#[test]
fn a_damaged_result_is_said_by_file_and_made_anew() {
    let lake = small_lake();
    run(&lake, "1");
    let tables = lake.tables();
    let assign = ["assign", "p.toml", "--model", "out", "--output", "new"];
    lake.gyre(&assign).succeeds();
    type Damage<'a> = &'a dyn Fn(&std::path::Path);
    let damages: [(&str, Damage<'_>); 5] = [
        ("sources", &|path| fs::write(path, "").expect("a file")),
        ("restarts", &|path| {
            let bytes = fs::read(path).expect("a file");
            fs::write(path, &bytes[..bytes.len() - 1]).expect("a file");
        }),
        ("latent", &|path| fs::remove_file(path).expect("a file")),
        ("_SUCCESS", &|path| fs::remove_file(path).expect("a file")),
        ("files.json", &|path| fs::write(path, "{}").expect("a file")),
    ];
    for (file, damage) in damages {
        let version = format!("out/versions/{}", current(&lake));
        let inside = match file {
            "_SUCCESS" => "sources/_SUCCESS".to_string(),
            "files.json" => file.to_string(),
            table => format!("{table}/part-0.parquet"),
        };
        damage(&lake.path(&format!("{version}/{inside}")));
        lake.gyre(&assign).fails(1, &inside);
        lake.line("compare out out").fails(1, &inside);
        lake.line("run p.toml --seed 1")
            .succeeds()
            .logs(&inside)
            .logs("made anew");
        assert!(lake.tables() == tables, "{file}");
        check_tidy(&lake);
        let done = lake.line("run p.toml --seed 1").succeeds();
        assert_eq!(done.out, "Nothing to do.\n");
    }
    // Older versions of gyre wrote no list of files.
    let list = format!("out/versions/{}/files.json", current(&lake));
    fs::remove_file(lake.path(&list)).expect("a file");
    lake.gyre(&assign).succeeds();
    let done = lake.line("run p.toml --seed 1").succeeds();
    assert_eq!(done.out, "Nothing to do.\n");
    lake.line("run p.toml --seed 1 --force").succeeds();
    // A flipped bit does not change the size, and the hash shows it.
    for table in ["sources", "targets", "latent", "fits", "spectrum"] {
        let file = format!("out/versions/{}/{table}/part-0.parquet", current(&lake));
        let mut bytes = lake.bytes(&file);
        let at = bytes.len() / 3;
        bytes[at] ^= 1;
        fs::write(lake.path(&file), bytes).expect("a file");
        let damaged = format!("{file} is damaged: its bytes are not those that were written");
        lake.gyre(&[&assign[..], &["--force"]].concat())
            .fails(1, &damaged);
        // Names of sets come from another result than the damaged one.
        let again = ["run", "p.toml", "--seed", "1", "--force"];
        lake.gyre(&again).succeeds();
        lake.gyre(&assign).succeeds();
    }
    #[cfg(feature = "report")]
    {
        let file = format!("out/versions/{}/fits/part-0.parquet", current(&lake));
        let mut bytes = lake.bytes(&file);
        bytes[40] ^= 1;
        fs::write(lake.path(&file), bytes).expect("a file");
        for arguments in [
            &["inspect", "out", "fits"][..],
            &["inspect", "out"],
            &["report", "out"],
        ] {
            lake.gyre(arguments)
                .fails(1, "fits/part-0.parquet is damaged");
        }
    }
}

/// A restored result is the result for every reader, and restoring can be undone.
#[test]
fn an_earlier_result_is_restored() {
    let lake = small_lake();
    let first = run(&lake, "1");
    let tables = lake.tables();
    let second = run(&lake, "2");
    let newer = lake.tables();
    assert!(tables != newer, "the seeds give different tables");

    let listed = lake.line("restore out").succeeds();
    assert_eq!(listed.out, format!("{first}\n"));
    let ran = lake.gyre(&["restore", "out", &first]).succeeds();
    assert_eq!(ran.out, format!("{first} is the result of out again\n"));
    assert_eq!(
        (current(&lake), earlier(&lake)),
        (first.clone(), vec![second.clone()])
    );
    assert!(lake.tables() == tables, "the tables of the first run");
    check_tidy(&lake);
    let again = lake.gyre(&["restore", "out", &first]).succeeds();
    assert_eq!(again.out, "Nothing to do.\n");
    // The pipeline that made it has nothing to do, and another makes a new result.
    let same = lake.line("run p.toml --seed 1").succeeds();
    assert_eq!(same.out, "Nothing to do.\n");

    lake.gyre(&["restore", "out", &second]).succeeds();
    assert!(lake.tables() == newer, "the tables of the second run");
    check_tidy(&lake);
}

#[test]
fn only_whole_versions_that_are_kept_are_restored() {
    let lake = small_lake();
    let none = lake.line("restore out x");
    none.fails(1, "out holds no result of gyre");
    let first = run(&lake, "1");
    run(&lake, "2");
    let unknown = lake.line("restore out 20260301T020000Z-5f0c1d9a-8e21b7f4");
    let message = format!("the earlier versions that it keeps: {first}");
    unknown.fails(2, &message);
    fs::remove_file(lake.path(&format!("out/versions/{first}/fits/part-0.parquet")))
        .expect("a table");
    let before = lake.json("out/current.json");
    let expected = "fits/part-0.parquet is missing, so it cannot be restored";
    lake.gyre(&["restore", "out", &first]).fails(1, expected);
    assert_eq!(lake.json("out/current.json"), before);
    check_links(&lake);
}
