//! Words that the program has for things, such as the names of metrics: they are in its text, and come back from bytes as what they were.

use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Mutex, PoisonError};

/// A word. The name of its own keeps serde from borrowing it from what is read.
pub type Word = &'static str;

/// Those that were read so far. There are as many as the program has, so each is kept for good.
static READ: Mutex<BTreeSet<Word>> = Mutex::new(BTreeSet::new());

/// The word that is written so.
pub fn word(text: &str) -> Word {
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    match read.get(text) {
        Some(word) => word,
        None => {
            let word: Word = Box::leak(Box::from(text));
            read.insert(word);
            word
        }
    }
}

/// A number of things: `1 table`, `2 tables`, `3 trajectories`. The number may be text, `1,000` among them.
pub fn counted(n: impl Display, one: &str) -> String {
    let n = n.to_string();
    match (n.as_str(), one.strip_suffix('y')) {
        ("1", _) => format!("1 {one}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        (_, None) => format!("{n} {one}s"),
    }
}

/// Reads a word, for serde.
pub fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    Ok(word(&String::deserialize(from)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        assert_eq!(counted(1, "table"), "1 table");
        assert_eq!(counted(0, "table"), "0 tables");
        assert_eq!(counted("1,000", "row"), "1,000 rows");
        assert_eq!(counted("1", "trajectory"), "1 trajectory");
        assert_eq!(counted(2, "trajectory"), "2 trajectories");
    }

    #[test]
    fn a_word_is_kept_once() {
        let text = String::from("coherence");
        assert_eq!(word(&text), "coherence");
        assert!(std::ptr::eq(word(&text), word("coherence")));
    }
}
