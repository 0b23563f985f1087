//! Records which input files went into which counts. Pure: a ledger → the files that still have to
//! be counted, and why.
//!
//! A ledger is a chain of units. A unit holds the counts of some files, and the last rows of the
//! trajectories in it and all earlier units. Within a trajectory, all rows of a unit are later than
//! those of earlier units, so a pair belongs to the unit of its later row. A unit depends on the
//! units before it: if one cannot be kept, the later ones cannot either.

pub mod store;

use crate::read::lake::files::InputFile;
use crate::read::rows::stop::Dropped;
use crate::read::rows::time_rules::TimeCounts;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The maximum number of units; beyond it the oldest are merged.
const MOST_UNITS: usize = 32;

/// The kinds of objects.
const KINDS: [&str; 2] = ["counts", "carry"];

/// Version of ledgers and of their objects.
pub(crate) const SCHEMA: u32 = 1;

/// The files that have been counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Version of the ledger format.
    pub schema: u32,
    /// What the counts depend on, besides the rows.
    pub basis: Basis,
    /// In the order in which they were counted.
    pub units: Vec<Unit>,
}

/// Everything but the rows that counts depend on, each as a hash. If one of them has changed, no
/// unit can be kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Basis {
    /// Version of gyre.
    pub gyre: String,
    /// Hash of the SQL.
    pub sql: String,
    /// Hash of the parameters of the SQL.
    pub parameters: String,
    /// Names, types and format of the table's columns over all files.
    pub columns: String,
    /// Keys, states, bins, lags and groups.
    pub layout: String,
}

/// The counts of some files.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The input files.
    pub files: Vec<CountedFile>,
    /// Rows that the SQL returned for them.
    pub rows: u64,
    /// Of these, rows that could not be an end of a transition, by reason.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// What the keys of time changed.
    #[serde(default, skip_serializing_if = "TimeCounts::is_none")]
    pub time: TimeCounts,
    /// Values of the files that became null, by column.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nulled: BTreeMap<String, u64>,
    /// Time of the first and last row, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    /// See `first`.
    pub last: Option<String>,
    /// Why these files were counted.
    pub why: String,
    /// The counts, as an object of the ledger.
    pub counts: Object,
    /// The last rows of the trajectories; none for tables of pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carry: Option<Object>,
}

/// An input file that has been counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CountedFile {
    #[serde(flatten)]
    /// The file as it was when it was counted.
    pub file: InputFile,
    /// The number of rows, from the metadata of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<u64>,
}

/// A Parquet file of the ledger, named after its content and never changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// File name.
    pub name: String,
    /// blake3 of its bytes.
    pub checksum: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Number of rows.
    pub rows: u64,
}

impl Object {
    /// The object for bytes that are to be stored.
    pub(crate) fn new(kind: &str, bytes: &[u8], rows: u64) -> Object {
        let checksum = blake3::hash(bytes).to_hex().to_string();
        Object {
            name: format!("{kind}-{}.parquet", &checksum[..32]),
            bytes: bytes.len() as u64,
            checksum,
            rows,
        }
    }

    /// Whether a file of the ledger has such a name: a kind, and 32 digits of its checksum.
    pub(crate) fn is_name(name: &str) -> bool {
        let digits = |kind: &&str| {
            let rest = name.strip_prefix(kind)?.strip_prefix('-')?;
            rest.strip_suffix(".parquet")
        };
        let found = KINDS.iter().find_map(digits);
        let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        found.is_some_and(|digits| digits.len() == 32 && digits.bytes().all(is_hex))
    }

    /// Whether the bytes are those that were stored.
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        blake3::hash(bytes).to_hex().as_str() == self.checksum
    }
}

/// Which part of a ledger can be kept.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// Number of leading units.
    pub units: usize,
    /// Why the next unit cannot be kept, if there is one.
    pub why: Option<String>,
}

impl Kept {
    /// Limits the kept units to `units`.
    pub(crate) fn at_most(&mut self, units: usize, why: impl FnOnce() -> String) {
        if units < self.units {
            self.units = units;
            self.why = Some(why());
        }
    }
}

impl Basis {
    /// What has changed since an earlier count, if anything has.
    fn changed_since(&self, earlier: &Basis) -> Option<&'static str> {
        type Part = fn(&Basis) -> &String;
        let parts: [(Part, &str); 5] = [
            (|b| &b.gyre, "another version of gyre counted"),
            (|b| &b.sql, "the SQL changed"),
            (|b| &b.parameters, "the parameters of the SQL changed"),
            (|b| &b.columns, "the columns of the table changed"),
            (
                |b| &b.layout,
                "trajectories, states, lags or groups changed",
            ),
        ];
        let mut changed = parts.iter().filter(|(of, _)| of(self) != of(earlier));
        changed.next().map(|(_, what)| *what)
    }
}

impl Ledger {
    /// A ledger without units.
    pub(crate) fn new(basis: &Basis) -> Ledger {
        Ledger {
            schema: SCHEMA,
            basis: basis.clone(),
            units: Vec::new(),
        }
    }

    /// What can be kept, given the files that the table has now.
    pub(crate) fn kept(&self, basis: &Basis, present: &[InputFile]) -> Kept {
        let (units, why) = (self.units.len(), None);
        let mut kept = Kept { units, why };
        if self.schema != SCHEMA {
            kept.at_most(0, || "another version of gyre counted".into());
        }
        if let Some(what) = basis.changed_since(&self.basis) {
            kept.at_most(0, || what.into());
        }
        let now = present.iter().map(|file| (file.location.as_str(), file));
        let now: HashMap<&str, &InputFile> = now.collect();
        for (at, unit) in self.units.iter().enumerate() {
            let files = unit.files.iter().map(|counted| &counted.file);
            let mut found = files.map(|file| (file, now.get(file.location.as_str())));
            let changed = found.find(|(file, now)| {
                !now.is_some_and(|now| now.fingerprint() == file.fingerprint())
            });
            if let Some((file, now)) = changed {
                if now.is_some_and(|now| now.content.is_some() != file.content.is_some()) {
                    kept.at_most(at, || "`job.fingerprint` changed".into());
                    break;
                }
                let what = if now.is_some() { "replaced" } else { "deleted" };
                let name = self.relative_name(&file.location, present);
                kept.at_most(at, || format!("{name} was {what}"));
            }
        }
        kept
    }

    /// The files that are not in the first `kept` units.
    pub(crate) fn unread<'a>(&self, kept: usize, present: &'a [InputFile]) -> Vec<&'a InputFile> {
        let files = self.units[..kept].iter().flat_map(|unit| &unit.files);
        let read: HashSet<&str> = files.map(|file| file.file.location.as_str()).collect();
        let is_unread = |file: &&InputFile| !read.contains(file.location.as_str());
        present.iter().filter(is_unread).collect()
    }

    /// Number of files that are in no unit.
    pub(crate) fn new_files(&self, present: &[InputFile]) -> usize {
        self.unread(self.units.len(), present).len()
    }

    /// Rows of the first `kept` units, those that were dropped, and what the keys of time changed.
    pub(crate) fn rows(&self, kept: usize) -> (u64, Dropped, TimeCounts) {
        let (mut rows, mut dropped) = (0, Dropped::default());
        let mut time = TimeCounts::default();
        for unit in &self.units[..kept] {
            rows += unit.rows;
            time.merge(unit.time);
            for (reason, rows) in &unit.dropped {
                dropped.add(reason.clone(), *rows);
            }
        }
        (rows, dropped, time)
    }

    /// Values that became null in the first units, by column.
    pub(crate) fn nulled(&self, kept: usize) -> BTreeMap<String, u64> {
        let mut nulled = BTreeMap::new();
        for (column, values) in self.units[..kept].iter().flat_map(|unit| &unit.nulled) {
            *nulled.entry(column.clone()).or_insert(0) += values;
        }
        nulled
    }

    /// How many of the oldest units to merge: half of them, so that merges are rare and late rows
    /// find young units.
    pub(crate) fn overdue(&self) -> usize {
        match self.units.len() {
            0..=MOST_UNITS => 0,
            _ => MOST_UNITS / 2 + 1,
        }
    }

    /// Merges the first units into one, whose counts are `counts`.
    pub(crate) fn merge(&mut self, units: usize, counts: Object) {
        let (rows, dropped, time) = self.rows(units);
        let nulled = self.nulled(units);
        let rest = self.units.split_off(units);
        let dropped = dropped.0.into_iter();
        let dropped = dropped.map(|(reason, rows)| (reason.into_owned(), rows));
        let (first, last) = (self.units.first(), self.units.last());
        let merged = Unit {
            rows,
            dropped: dropped.collect(),
            time,
            nulled,
            first: first.and_then(|unit| unit.first.clone()),
            last: last.and_then(|unit| unit.last.clone()),
            why: format!("{units} units merged"),
            counts,
            carry: last.and_then(|unit| unit.carry.clone()),
            files: self.units.drain(..).flat_map(|unit| unit.files).collect(),
        };
        self.units = vec![merged];
        self.units.extend(rest);
    }

    /// Names of the objects that the ledger needs.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &str> {
        let units = self.units.iter();
        let objects = units.flat_map(|unit| [Some(&unit.counts), unit.carry.as_ref()]);
        objects.flatten().map(|object| object.name.as_str())
    }

    /// A location without the folders that all files share.
    fn relative_name<'a>(&self, location: &'a str, present: &[InputFile]) -> &'a str {
        let counted = self.units.iter().flat_map(|unit| &unit.files);
        let all = counted.map(|file| &file.file).chain(present);
        let folder = |location: &str| location.rfind('/').map_or(0, |at| at + 1);
        let mut common = folder(location);
        for file in all {
            let same = location.bytes().zip(file.location.bytes());
            let same = same.take_while(|(a, b)| a == b).count();
            common = common.min(folder(&location[..location.floor_char_boundary(same)]));
        }
        &location[common..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size_bytes: u64) -> InputFile {
        InputFile {
            location: format!("file:/lake/rows/{name}"),
            size_bytes,
            modified: "2026-11-01T00:00:00Z".into(),
            e_tag: None,
            content: None,
        }
    }

    fn basis(sql: &str) -> Basis {
        Basis {
            gyre: "0".into(),
            sql: sql.into(),
            parameters: String::new(),
            columns: "t, s".into(),
            layout: "lag 1".into(),
        }
    }

    fn unit(files: &[InputFile]) -> Unit {
        let counted = |file: &InputFile| CountedFile {
            file: file.clone(),
            rows: Some(5),
        };
        Unit {
            files: files.iter().map(counted).collect(),
            rows: 5 * files.len() as u64,
            dropped: BTreeMap::from([("null state".to_string(), 1)]),
            time: TimeCounts {
                gaps: files.len() as u64,
                near_pairs: 1,
            },
            nulled: BTreeMap::from([("x".to_string(), files.len() as u64)]),
            first: Some(files[0].location.clone()),
            last: Some(files[0].location.clone()),
            why: "new".into(),
            counts: Object::new("counts", files[0].location.as_bytes(), 3),
            carry: Some(Object::new("carry", files[0].location.as_bytes(), 1)),
        }
    }

    /// Three units: files a and b, file c, file d.
    fn ledger() -> (Ledger, Vec<InputFile>) {
        let names = ["day=1/a", "day=1/b", "day=2/c", "day=3/d"];
        let files = names.map(|name| file(name, 10)).to_vec();
        let mut ledger = Ledger::new(&basis("a"));
        ledger.units = vec![unit(&files[..2]), unit(&files[2..3]), unit(&files[3..])];
        (ledger, files)
    }

    #[track_caller]
    fn check(
        present: &[InputFile],
        units: usize,
        why: Option<&str>,
        unread: &[&str],
        new_files: usize,
    ) {
        let (ledger, _) = ledger();
        let kept = ledger.kept(&basis("a"), present);
        let why = why.map(str::to_string);
        assert_eq!(kept, Kept { units, why });
        let left = ledger.unread(units, present);
        let names: Vec<&str> = left.iter().map(|file| &file.location[16..]).collect();
        assert_eq!(names, unread);
        assert_eq!(ledger.new_files(present), new_files);
    }

    #[test]
    fn units_are_kept_up_to_the_first_that_changed() {
        let (_, files) = ledger();
        check(&files, 3, None, &[], 0);
        let more = [files.clone(), vec![file("day=4/e", 1)]].concat();
        check(&more, 3, None, &["day=4/e"], 1);
        let mut replaced = more.clone();
        replaced[2].size_bytes = 11;
        let left = ["day=2/c", "day=3/d", "day=4/e"];
        check(&replaced, 1, Some("day=2/c was replaced"), &left, 1);
        let deleted = [&files[..1], &files[2..]].concat();
        let left = ["day=1/a", "day=2/c", "day=3/d"];
        check(&deleted, 0, Some("day=1/b was deleted"), &left, 0);
        check(&files[..3], 2, Some("day=3/d was deleted"), &[], 0);
    }

    #[test]
    fn nothing_is_kept_if_the_basis_changed() {
        let (ledger, files) = ledger();
        let why = |basis: &Basis| {
            let kept = ledger.kept(basis, &files);
            assert_eq!(kept.units, 0);
            kept.why.unwrap()
        };
        assert_eq!(why(&basis("b")), "the SQL changed");
        let mut more = basis("a");
        more.columns = "t, s, more".into();
        assert_eq!(why(&more), "the columns of the table changed");
        let of_later = Ledger {
            schema: SCHEMA + 1,
            ..ledger.clone()
        };
        assert_eq!(of_later.kept(&basis("a"), &files).units, 0);
    }

    #[test]
    fn merging_units_keeps_their_content() {
        let (mut ledger, files) = ledger();
        let (rows, dropped, time) = ledger.rows(3);
        assert_eq!((rows, dropped.0["null state"]), (20, 3));
        assert_eq!((time.gaps, time.near_pairs), (4, 3));
        assert_eq!((ledger.nulled(1)["x"], ledger.nulled(3)["x"]), (2, 4));
        let carry = ledger.units[1].carry.clone();
        ledger.merge(2, Object::new("counts", b"sum", 6));
        assert_eq!(ledger.units.len(), 2);
        assert_eq!(ledger.rows(2), (rows, dropped, time));
        assert_eq!((ledger.nulled(1)["x"], ledger.nulled(2)["x"]), (3, 4));
        assert_eq!(ledger.units[0].carry, carry);
        assert_eq!(ledger.unread(1, &files), [&files[3]]);
        assert_eq!(ledger.kept(&basis("a"), &files).units, 2);
        assert_eq!(ledger.objects().count(), 4);
    }

    #[test]
    fn old_units_are_merged_when_there_are_many() {
        let (mut ledger, files) = ledger();
        ledger.units = vec![unit(&files); MOST_UNITS];
        assert_eq!(ledger.overdue(), 0);
        ledger.units.push(unit(&files));
        assert_eq!(ledger.overdue(), 17);
    }
}
