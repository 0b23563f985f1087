//! `current.json` of an output, which names the current result.

use crate::error::{Error, Kind, Result};
use crate::store::seal::unsealed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Schema version of `current.json`.
pub(crate) const SCHEMA: u32 = 2;

/// The largest `current.json` that is read, in bytes.
pub(crate) const LARGEST: u64 = 16 << 20;

/// Fails for a file that is too large for a `current.json`, before it is read.
pub(crate) fn check_size(bytes: u64, shown: &str) -> Result<()> {
    if bytes <= LARGEST {
        return Ok(());
    }
    Err(Error::input(format!(
        "{shown} does not name a result of gyre: it has {bytes} bytes, and gyre writes at most {LARGEST}; restore it or remove it"
    )))
}

/// Most earlier results that an output keeps: the pointer lists all of them.
pub(crate) const MOST_EARLIER: usize = 1_000;

/// The folders and files beside the tables of an output, which no table is called.
const RESERVED: [&str; 5] = ["versions", "current", "runs", "ledger", "work"];

/// The content of `current.json`: the current result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Current {
    /// Schema version of the file.
    pub schema: u32,
    /// Id of the run.
    pub run: String,
    /// The folder of its tables, relative to the output: `versions/<run>`.
    pub folder: String,
    /// The kind of the evidence. Older results do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Hash of the plan and its inputs. A run with the same hash has nothing to do.
    pub plan: String,
    /// Whether the tables contain every partition.
    pub complete: bool,
    /// Number of rows per table.
    pub tables: BTreeMap<String, u64>,
    /// Runs whose versions are kept, newest first.
    #[serde(default)]
    pub earlier: Vec<String>,
}

impl Current {
    /// Parses the file; `shown` is its location for messages.
    ///
    /// # Errors
    /// [`Kind::Spec`] for a file of another schema than this, or without a checksum.
    /// [`Kind::Input`] for a damaged one, or one with names that no run writes: the checksum has no
    /// key, so it says nothing about who wrote the file.
    pub(crate) fn parse(bytes: &[u8], shown: &str) -> Result<Current> {
        #[derive(Deserialize)]
        struct Head {
            schema: u32,
            checksum: Option<serde::de::IgnoredAny>,
        }
        let way_out = "move it away, or name another output, and run the pipeline again";
        if let Ok(Head { schema, checksum }) = serde_json::from_slice(bytes) {
            if schema > SCHEMA {
                return Err(Error::input(format!(
                    "{shown} was written by a newer gyre (its schema is {schema}, this version reads {SCHEMA})"
                )));
            }
            if schema < SCHEMA {
                return Err(Error::spec(format!(
                    "{shown} has schema {schema} of an older gyre, and this version reads {SCHEMA}; {way_out}"
                )));
            }
            if checksum.is_none() {
                return Err(Error::spec(format!(
                    "{shown} has no checksum, so gyre may not have written it; {way_out}"
                )));
            }
        }
        let current: Current = unsealed(bytes).map_err(|e| {
            let message =
                format!("{shown} does not name a result of gyre; restore it or remove it");
            Error::with_source(Kind::Input, message, e)
        })?;
        match current.strange_name() {
            Some(what) => Err(Error::input(format!(
                "{shown} names {what}, which no run of gyre writes; {way_out}"
            ))),
            None => Ok(current),
        }
    }

    /// A name that no run writes, if there is one. Names become paths of files to write and to
    /// remove.
    fn strange_name(&self) -> Option<String> {
        let runs = || self.earlier.iter().chain([&self.run]);
        if let Some(run) = runs().find(|run| !is_run(run)) {
            return Some(format!("the run {run:?}"));
        }
        if self.earlier.len() > MOST_EARLIER {
            return Some(format!("{} earlier runs", self.earlier.len()));
        }
        let mut seen = BTreeSet::new();
        if let Some(run) = runs().find(|run| !seen.insert(*run)) {
            return Some(format!("the run {run:?} twice"));
        }
        if self.folder != format!("versions/{}", self.run) {
            return Some(format!("the folder {:?}", self.folder));
        }
        let strange = strange_table(&self.tables)?;
        Some(format!("the table {strange:?}"))
    }

    /// Whether the version of a run is current or kept.
    pub(crate) fn names(&self, run: &str) -> bool {
        self.run == run || self.earlier.iter().any(|kept| kept == run)
    }
}

/// Whether a name is a run id of `begin`: start time, plan, and a unique suffix.
pub(crate) fn is_run(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    let parts = || {
        let (time, rest) = name.split_once('-')?;
        let (plan, own) = rest.rsplit_once('-')?;
        Some((time, plan, own))
    };
    parts().is_some_and(|(time, plan, own)| {
        let is_time = time.len() == 16
            && time.bytes().enumerate().all(|(at, b)| match at {
                8 => b == b'T',
                15 => b == b'Z',
                _ => b.is_ascii_digit(),
            });
        is_time && !plan.is_empty() && plan.bytes().all(is_plain) && is_unique_suffix(own)
    })
}

/// Whether a suffix has the form of `unique`.
pub(crate) fn is_unique_suffix(own: &str) -> bool {
    own.len() == 8 && own.bytes().all(|b| b.is_ascii_hexdigit())
}

/// A table with a name that no table of gyre has, if there is one.
pub(crate) fn strange_table(tables: &BTreeMap<String, u64>) -> Option<&String> {
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
    let is_table = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.len() <= 64
            && name.bytes().all(is_plain)
            && !RESERVED.contains(&name)
    };
    tables.keys().find(|name| !is_table(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::seal::sealed;
    use serde_json::{Value, json};

    const RUN: &str = "20260301T020000Z-0123abcd-00000001";
    const EARLIER: &str = "20260228T020000Z-0123abcd-00000001";

    fn pointer(edit: impl FnOnce(&mut Value)) -> Value {
        let mut value = json!({
            "schema": SCHEMA, "run": RUN, "folder": format!("versions/{RUN}"), "plan": "p",
            "complete": true, "tables": {"sources": 1, "fits": 2}, "earlier": [EARLIER],
        });
        edit(&mut value);
        value
    }

    /// The error of a pointer that has a right checksum.
    fn refusal(edit: impl FnOnce(&mut Value)) -> Error {
        let bytes = sealed(&pointer(edit)).expect("JSON");
        Current::parse(&bytes, "out/current.json").expect_err("a strange pointer")
    }

    #[test]
    fn names_that_no_run_writes_are_refused() {
        let whole = sealed(&pointer(|_| ())).expect("JSON");
        Current::parse(&whole, "x").expect("a pointer");
        let long = "a".repeat(300);
        let names = [
            "",
            ".",
            "..",
            "Mine",
            "20260301T020000Z-../x-00000001",
            "/etc/x",
            "../x",
            "a/b",
            "a\\b",
            "a b",
            "a.b",
            "ä",
            "a\0b",
            "a\n",
            &long,
        ];
        for name in names {
            let at = "out/current.json names the run";
            for e in [
                refusal(|p| {
                    p["run"] = json!(name);
                    p["folder"] = json!(format!("versions/{name}"));
                }),
                refusal(|p| p["earlier"] = json!([name])),
            ] {
                assert!(e.full().starts_with(at), "{}", e.full());
                assert_eq!(e.kind(), Kind::Input);
            }
            let e = refusal(|p| p["folder"] = json!(name));
            assert!(e.full().contains("names the folder"), "{}", e.full());
            let e = refusal(|p| p["tables"] = json!({name: 1}));
            assert!(e.full().contains("names the table"), "{}", e.full());
        }
        for name in RESERVED
            .into_iter()
            .chain(["current.json", ".lock", "Sources"])
        {
            let e = refusal(|p| p["tables"] = json!({name: 1}));
            assert!(e.full().contains("names the table"), "{}", e.full());
        }
        let many: Vec<String> = (0..1001)
            .map(|k| format!("20260228T020000Z-p-{k:08}"))
            .collect();
        let e = refusal(|p| p["earlier"] = json!(many));
        assert!(e.full().contains("names 1001 earlier runs"), "{}", e.full());
        // `clean` would remove the version of the result.
        for twice in [json!([RUN]), json!([EARLIER, EARLIER])] {
            let e = refusal(|p| p["earlier"] = twice);
            assert!(e.full().contains("twice"), "{}", e.full());
        }
    }

    #[test]
    fn other_schemas_and_files_without_checksum_are_refused() {
        for (value, what) in [
            (
                pointer(|p| p["schema"] = json!(1)),
                "has schema 1 of an older gyre",
            ),
            (
                pointer(|p| p["schema"] = json!(0)),
                "has schema 0 of an older gyre",
            ),
            (pointer(|_| ()), "has no checksum"),
        ] {
            let e = Current::parse(value.to_string().as_bytes(), "out/current.json");
            let e = e.expect_err("no pointer");
            assert_eq!(e.kind(), Kind::Spec);
            assert!(e.full().contains(what), "{}", e.full());
            assert!(e.full().ends_with("run the pipeline again"), "{}", e.full());
        }
    }
}
