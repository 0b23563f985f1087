//! Any text in a pipeline file or on the command line gives a value or an error with a message,
//! never a panic. PROPTEST_CASES sets the number of cases.

use gyre::cli::args::Bytes;
use gyre::error::Kind;
use gyre::error::escaped;
use gyre::evidence::lag::Lag;
use gyre::output::place::Output;
use gyre::plan::pipeline::Pipeline;
use gyre::run::compare::Pair;
use gyre::store::Stores;
use proptest::prelude::*;
use proptest::sample::{Index, select};

const PIPELINES: [&str; 10] = [
    include_str!("../../pipelines/double_gyre.toml"),
    include_str!("../../pipelines/how_many_sets.toml"),
    include_str!("../../pipelines/nightly.toml"),
    include_str!("../../pipelines/routes.toml"),
    include_str!("../../pipelines/sets.toml"),
    include_str!("../../pipelines/timescales.toml"),
    include_str!("../../pipelines/words.toml"),
    include_str!("../../pipelines/low_rank.toml"),
    include_str!("../../pipelines/low_rank_dummy.toml"),
    include_str!("../../pipelines/sessions.toml"),
];

/// Words that are inserted at random places.
const WORDS: [&str; 36] = [
    "",
    "\n",
    "[",
    "]",
    "[[",
    "{",
    "}",
    "=",
    "\"",
    "'''",
    "\\u0000",
    "#",
    ",",
    ".",
    "-1",
    "0",
    "1e309",
    "nan",
    "-inf",
    "9223372036854775807",
    "18446744073709551616",
    "true",
    "2024-01-01",
    "\"${\"",
    "\"${A:-}\"",
    "\"$${A}\"",
    "\"5d\"",
    "\"99999999999d\"",
    "\"0 steps\"",
    "auto",
    "rank",
    "[checks]\n",
    "[[check]]\n",
    "on = \"warn\"\n",
    "partitions = [{}]\n",
    "日本",
];

/// Replaces some characters by a word.
fn edit(text: &mut String, at: Index, length: usize, word: &str) {
    let bounds: Vec<usize> = text
        .char_indices()
        .map(|(at, _)| at)
        .chain([text.len()])
        .collect();
    let first = at.index(bounds.len());
    let last = (first + length).min(bounds.len() - 1);
    text.replace_range(bounds[first]..bounds[last], word);
}

fn check(text: &str, sets: &[String]) -> Result<(), TestCaseError> {
    let environment = |name: &str| (name == "A").then(|| "${B}".to_string());
    if let Err(e) = Pipeline::parse(text, "x.toml", sets, &environment) {
        prop_assert_eq!(e.kind(), Kind::Spec);
        let message = e.to_string();
        let is_placed = |line: &str| line.starts_with("x.toml") || line.starts_with("--set ");
        let begins = match message.split_once(" errors\n") {
            Some((n, all)) if n.parse::<usize>().is_ok() => all.trim_start().lines().count() >= 2,
            _ => is_placed(&message),
        };
        prop_assert!(begins && !message.contains("Visitor"), "{}", message);
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_pipeline_file_is_a_pipeline_or_an_error(
        file in select(&PIPELINES[..]),
        edits in prop::collection::vec((any::<Index>(), 0..30_usize, select(&WORDS[..])), 0..6),
    ) {
        let mut text = file.to_string();
        for (at, length, word) in edits {
            edit(&mut text, at, length, word);
        }
        check(&text, &[])?;
    }

    /// Puts every value of a file in place of every other, and adds unexpected keys and values.
    #[test]
    fn every_assignment_is_made_or_is_an_error(
        file in select(&PIPELINES[..]),
        key in "(job|tables|transitions|fit|fit\\.0|fit\\.dbmr|checks|check|check\\.0|validation|names|x)(\\.(name|rank|lag|path|bins|x|0|\"\"|on|value|partitions|sql|restarts|groups))?",
        value in prop_oneof![select(&WORDS[..]).prop_map(String::from), "\\PC{0,20}", "\\[(-?[0-9]{1,20}(\\.[0-9])?, ){0,3}\\]"],
    ) {
        check(file, &[format!("{key}={value}")])?;
    }

    #[test]
    fn any_text_is_a_pipeline_or_an_error(text in "(\\PC|\n){0,200}") {
        check(&text, &[])?;
    }

    #[test]
    fn every_lag_is_positive_or_an_error(text in "([0-9]{1,22}(\\.[0-9]{1,9})? ?(ns|us|ms|s|m|min|h|d|w|mo|y|step|steps|)[ ,]?){1,3}|\\PC{0,12}") {
        let file = PIPELINES[6];
        let set = format!("transitions.lag={}", serde_json::to_string(&text).expect("a string"));
        if let Ok(spec) = Pipeline::parse(file, "x.toml", &[set], &|_| None)
            && let gyre::plan::pipeline::Input::Trajectories { lags, .. } = spec.transitions.input
        {
            let above = |lag: &Lag| lag.number() > 0.0;
            prop_assert!(lags.iter().all(above), "{:?}", lags);
        }
    }

    #[test]
    fn sizes_and_pairs_are_parsed_or_refused(text in "[0-9.]{0,24} ?[kKMGT]?i?[bB]?|\\PC{0,12}") {
        if let Ok(bytes) = text.parse::<Bytes>() {
            prop_assert!(bytes.0 > 0);
        }
        if let Ok(pair) = text.parse::<Pair>() {
            prop_assert!(!pair.a.is_empty() && !pair.b.is_empty());
        }
    }

    /// The tables of an output lie inside its folder.
    #[test]
    fn every_output_is_a_place_or_an_error(
        location in "(file|s3|gs|az|abfss|http|https|memory|x)?(://)?[a-z.%@:/ ?#\\[\\]*~0-9]{0,24}|\\PC{0,24}",
    ) {
        if let Ok(output) = Output::open(&location, &Stores::default()) {
            let staged = output.staged("run", "counts");
            prop_assert!(staged.parts().all(|part| !matches!(part.as_ref(), "." | "..")), "{}", staged);
            prop_assert!(output.show(&staged).ends_with("run/counts/part-0.parquet"));
        }
    }

    #[test]
    fn escaped_text_is_one_line(text in "(\\PC|[\\x00-\\x1f\\x7f\\u{85}])*") {
        let line = escaped(&text);
        prop_assert!(!line.chars().any(char::is_control));
        prop_assert_eq!(line == text, !text.chars().any(char::is_control));
    }
}
