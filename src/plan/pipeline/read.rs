//! Node tree → typed values: a serde deserializer whose errors keep the place and the path of the culprit.

use crate::error::hint;
use crate::plan::pipeline::document::{Content, Entry, Filled, Node, Place};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Expected, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{de, forward_to_deserialize_any};
use std::fmt;

/// What is wrong with a value, where.
#[derive(Debug)]
pub struct Fault {
    pub place: Option<Place>,
    /// Keys from the value that was read down to the culprit.
    pub path: Vec<String>,
    pub what: What,
}

#[derive(Debug)]
pub enum What {
    UnknownKey {
        key: String,
        known: Vec<String>,
    },
    MissingKey(String),
    /// A sentence that goes on from the name of the value.
    Wrong(String),
}

/// Reads a node as a `T`.
pub fn read<T: DeserializeOwned>(node: &Node) -> Result<T, Fault> {
    T::deserialize(node)
}

/// Reads a section of a document and says everything that is wrong in it: what is at fault is taken out of a copy, and the rest read
/// again. The value is what could be read without.
pub fn section<T>(
    root: &Node,
    read: impl Fn(&Node) -> Result<T, Fault>,
) -> (Option<T>, Vec<Fault>) {
    let mut fault = match read(root) {
        Ok(value) => return (Some(value), Vec::new()),
        Err(fault) => fault,
    };
    let (mut rest, mut faults, mut removed) = (root.clone(), Vec::new(), Vec::new());
    loop {
        let culprit = fault.culprit();
        // What was taken out is not missing.
        let is_news = !removed.contains(&culprit);
        // Neither is what was misspelt, and any key may have been meant.
        if let What::UnknownKey { known, .. } = &fault.what {
            let meant = known
                .iter()
                .map(|key| [&fault.path[..], std::slice::from_ref(key)].concat());
            removed.extend(meant);
        }
        if is_news {
            faults.push(fault);
        }
        // A table that lacks a key goes as a whole, unless its place in a list is all that tells it apart.
        let table = &culprit[..culprit.len().saturating_sub(1)];
        let is_named = table
            .last()
            .is_some_and(|name| name.parse::<usize>().is_err());
        let is_gone = rest.remove(&culprit) || table.len() > 1 && is_named && rest.remove(table);
        if !is_gone {
            return (None, faults);
        }
        removed.push(culprit);
        fault = match read(&rest) {
            Ok(value) => return (Some(value), faults),
            Err(fault) => fault,
        };
    }
}

/// Reads what a table has under a key that it must have.
pub fn required<T: DeserializeOwned>(table: &Node, key: &'static str) -> Result<T, Fault> {
    match table.get(key) {
        Some(node) => read(node).map_err(|fault| fault.under(key)),
        None => Err(de::Error::missing_field(key)).map_err(|fault: Fault| fault.at(table.place)),
    }
}

impl Fault {
    pub fn wrong(message: impl Into<String>) -> Fault {
        Fault {
            place: None,
            path: Vec::new(),
            what: What::Wrong(message.into()),
        }
    }

    /// The section of the file that is at fault, and what in it.
    pub fn within(&self) -> String {
        let culprit = self.culprit();
        culprit[..culprit.len().min(2)].join(".")
    }

    /// The keys down to the value without which there is no such fault.
    fn culprit(&self) -> Vec<String> {
        let mut path = self.path.clone();
        match &self.what {
            What::UnknownKey { key, .. } | What::MissingKey(key) => path.push(key.clone()),
            What::Wrong(_) => (),
        }
        path
    }

    /// The fault, placed here unless something further down has placed it.
    pub fn at(mut self, place: Place) -> Fault {
        self.place.get_or_insert(place);
        self
    }

    /// The fault without what was found in the place of what is wanted, which may be secret.
    pub fn unseen(mut self) -> Fault {
        if let What::Wrong(message) = &mut self.what
            && let Some(at) = message.find(", not ")
        {
            message.truncate(at);
        }
        self
    }

    /// The fault, seen from the table or list that holds the value under `segment`.
    pub fn under(mut self, segment: impl Into<String>) -> Fault {
        self.path.insert(0, segment.into());
        self
    }
}

/// The name under which a value is read that may be one or a list of them.
pub const ONE_OR_MANY: &str = "one or many";

/// The name under which a value is read that may also be a date or a time.
pub const MOMENT: &str = "moment";

/// The fault as a sentence that names the value.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.join(".");
        match &self.what {
            What::UnknownKey { key, known } => {
                let dot = if path.is_empty() { "" } else { "." };
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                write!(f, "unknown key `{path}{dot}{key}`{}", hint(key, &known))
            }
            What::MissingKey(key) if path.is_empty() => {
                write!(f, "the file needs the table `[{key}]`")
            }
            What::MissingKey(key) => write!(f, "the table `{path}` needs the key `{key}`"),
            What::Wrong(message) => write!(f, "`{path}` {message}"),
        }
    }
}

impl std::error::Error for Fault {}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Fault::wrong(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Fault::wrong(format!(
            "must be {}, not {}",
            expectation(expected),
            finding(found)
        ))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn invalid_length(length: usize, expected: &dyn Expected) -> Self {
        let expected = expectation(expected);
        Fault::wrong(format!("must be {expected}, not a list of {length}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Fault::wrong(format!(
            "cannot be \"{variant}\"{}",
            hint(variant, expected)
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Fault {
            place: None,
            path: Vec::new(),
            what: What::UnknownKey {
                key: field.to_string(),
                known: expected.iter().map(|k| k.to_string()).collect(),
            },
        }
    }

    fn missing_field(field: &'static str) -> Self {
        Fault {
            place: None,
            path: Vec::new(),
            what: What::MissingKey(field.to_string()),
        }
    }
}

/// serde's names of types in words for somebody who writes TOML.
fn expectation(expected: &dyn Expected) -> String {
    let name = expected.to_string();
    match name.as_str() {
        "u32" | "u64" | "usize" => "a whole number that is not negative".into(),
        "f64" => "a number".into(),
        "a map" => "a table".into(),
        "a sequence" => "a list".into(),
        "an array of length 2" => "a list of two numbers".into(),
        _ if name.starts_with("struct ") => "a table".into(),
        _ => name,
    }
}

fn finding(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("{text:?}"),
        Unexpected::Signed(n) => n.to_string(),
        Unexpected::Float(x) => x.to_string(),
        Unexpected::Bool(b) => b.to_string(),
        Unexpected::Seq => "a list".into(),
        Unexpected::Map => "a table".into(),
        Unexpected::Other(text) => text.into(),
        other => other.to_string(),
    }
}

impl Node {
    fn unexpected(&self) -> Unexpected<'_> {
        match &self.content {
            Content::String(text) => Unexpected::Str(text),
            Content::Filled(_) => Unexpected::Other("text"),
            Content::Integer(n) => Unexpected::Signed(*n),
            Content::Float(x) => Unexpected::Float(*x),
            Content::Boolean(b) => Unexpected::Bool(*b),
            Content::Datetime(_) => Unexpected::Other("a date or time without quotes"),
            Content::Array(_) => Unexpected::Seq,
            Content::Table(_) => Unexpected::Map,
        }
    }

    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Fault> {
        match &self.content {
            Content::String(text) => visitor.visit_str(text),
            Content::Filled(filled) => filled.visit(visitor),
            Content::Integer(n) => visitor.visit_i64(*n),
            Content::Float(x) => visitor.visit_f64(*x),
            Content::Boolean(b) => visitor.visit_bool(*b),
            Content::Datetime(_) => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
            Content::Array(items) => {
                // The visitor of a pair stops after two entries; what it left over is one entry too many.
                let mut access = Items { items, next: 0 };
                let value = visitor.visit_seq(&mut access)?;
                if access.next < items.len() {
                    return Err(Fault::wrong(format!(
                        "must be a list of {}, not of {}",
                        access.next,
                        items.len()
                    )));
                }
                Ok(value)
            }
            Content::Table(entries) => visitor.visit_map(Fields { entries, next: 0 }),
        }
    }
}

impl Filled {
    /// As a number or a boolean if it is one, else as text. What was found is not repeated.
    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Fault> {
        match self.scalar() {
            Some(Content::Integer(n)) => visitor.visit_i64(n),
            Some(Content::Float(x)) => visitor.visit_f64(x),
            Some(Content::Boolean(b)) => visitor.visit_bool(b),
            _ => visitor.visit_str(&self.text),
        }
        .map_err(|fault| self.blamed(fault))
    }

    fn blamed(&self, fault: Fault) -> Fault {
        let mut fault = fault.unseen();
        if let What::Wrong(message) = &mut fault.what {
            *message += &format!(", which the value of {} is not", self.variables);
        }
        fault
    }
}

impl<'de> de::Deserializer<'de> for &Node {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.visit(visitor).map_err(|fault| fault.at(self.place))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match (name, &self.content) {
            (MOMENT, Content::Datetime(text)) => {
                visitor.visit_newtype_struct(text.as_str().into_deserializer())
            }
            (MOMENT, _) => self.deserialize_str(visitor),
            // Only the type of the one knows whether it is a number.
            (ONE_OR_MANY, Content::Filled(_)) => visitor.visit_newtype_struct(self),
            (ONE_OR_MANY, _) => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    /// Text stays text, whatever it looks like.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match &self.content {
            Content::Filled(filled) => visitor
                .visit_str(&filled.text)
                .map_err(|fault: Fault| filled.blamed(fault).at(self.place)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_str(visitor)
    }

    /// Derived visitors would also read a struct from a list of its fields; a pipeline file must name them.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.content {
            Content::Table(_) => self.deserialize_any(visitor),
            _ => Err(Fault::wrong(format!(
                "must be a table, not {}",
                finding(self.unexpected())
            ))
            .at(self.place)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match &self.content {
            Content::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Content::Filled(filled) => visitor
                .visit_enum(filled.text.as_str().into_deserializer())
                .map_err(|_: Fault| {
                    let variants = variants.join("\", \"");
                    filled.blamed(Fault::wrong(format!("must be one of \"{variants}\"")))
                }),
            _ => Err(Fault::wrong(format!(
                "must be one of \"{}\", not {}",
                variants.join("\", \""),
                finding(self.unexpected())
            ))),
        }
        .map_err(|fault: Fault| fault.at(self.place))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

struct Items<'a> {
    items: &'a [Node],
    next: usize,
}

impl<'de> SeqAccess<'de> for &mut Items<'_> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some(node) = self.items.get(self.next) else {
            return Ok(None);
        };
        self.next += 1;
        // A fault in a list of plain values names the list: the message quotes the entry.
        seed.deserialize(node).map(Some)
    }
}

struct Fields<'a> {
    entries: &'a [Entry],
    next: usize,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Fault;

    fn next_key_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Some(entry) = self.entries.get(self.next) else {
            return Ok(None);
        };
        seed.deserialize(entry.key.as_str().into_deserializer())
            .map(Some)
            .map_err(|fault: Fault| fault.at(entry.key_place))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let entry = &self.entries[self.next];
        self.next += 1;
        seed.deserialize(&entry.node)
            .map_err(|fault| fault.under(&entry.key))
    }
}
