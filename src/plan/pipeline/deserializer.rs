//! Node tree → typed values: a serde deserializer whose errors name the line and the key.
//!
//! `toml`'s own deserializer cannot do this: it reads a struct from a list of its values, it
//! ignores surplus values of a pair, and its errors are sentences.

use crate::error::{hint, nearest};
use crate::plan::pipeline::document::{Content, Entry, Filled, Node, Position};
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Expected, IntoDeserializer, SeqAccess, Unexpected, Visitor};
use serde::{de, forward_to_deserialize_any};
use std::fmt;

/// An error in a pipeline file.
#[derive(Debug)]
pub(crate) struct KeyError {
    pub position: Option<Position>,
    /// The keys from the top of the file to the table or value at `position`.
    pub path: Vec<String>,
    pub kind: KeyErrorKind,
}

#[derive(Debug)]
pub(crate) enum KeyErrorKind {
    UnknownKey {
        key: String,
        known: Vec<String>,
    },
    MissingKey {
        key: String,
        /// A key of the table that may be a misspelling of it.
        near: Option<String>,
    },
    /// The rest of a sentence that begins with the path.
    Wrong(String),
}

/// Reads a node as a `T`.
pub(super) fn read<T: DeserializeOwned>(node: &Node) -> Result<T, KeyError> {
    T::deserialize(node)
}

/// Reads a section of a document and collects all of its errors.
///
/// After each error, the culprit is removed from a copy of the document and the section is read
/// again. The value is the section without the culprits.
pub(super) fn section<T>(
    root: &Node,
    read: impl Fn(&Node) -> Result<T, KeyError>,
) -> (Option<T>, Vec<KeyError>) {
    let mut error = match read(root) {
        Ok(value) => return (Some(value), Vec::new()),
        Err(error) => error,
    };
    let (mut rest, mut errors, mut removed) = (root.clone(), Vec::new(), Vec::new());
    loop {
        let culprit = error.culprit();
        // A key that was removed is not missing.
        let is_new = !removed.contains(&culprit);
        // A misspelt key may have been any of the known ones, so none of them is missing.
        if let KeyErrorKind::UnknownKey { known, .. } = &error.kind {
            let meant = known
                .iter()
                .map(|key| [&error.path[..], std::slice::from_ref(key)].concat());
            removed.extend(meant);
        }
        if is_new {
            errors.push(error);
        }
        // A table without a required key is removed whole, unless it is an unnamed entry of a list.
        let table = &culprit[..culprit.len().saturating_sub(1)];
        let is_named = table
            .last()
            .is_some_and(|name| name.parse::<usize>().is_err());
        let is_gone = rest.remove(&culprit) || table.len() > 1 && is_named && rest.remove(table);
        if !is_gone {
            return (None, errors);
        }
        removed.push(culprit);
        error = match read(&rest) {
            Ok(value) => return (Some(value), errors),
            Err(error) => error,
        };
    }
}

/// Reads the value of a required key of a table.
pub(super) fn required<T: DeserializeOwned>(
    table: &Node,
    key: &'static str,
) -> Result<T, KeyError> {
    let missing = || <KeyError as de::Error>::missing_field(key).at(table);
    table.get(key).ok_or_else(missing).and_then(read)
}

impl KeyError {
    fn new(kind: KeyErrorKind) -> KeyError {
        KeyError {
            position: None,
            path: Vec::new(),
            kind,
        }
    }

    pub(crate) fn wrong(message: impl Into<String>) -> KeyError {
        KeyError::new(KeyErrorKind::Wrong(message.into()))
    }

    /// The error at a table or value, unless it has a position already.
    pub(crate) fn at(mut self, node: &Node) -> KeyError {
        if self.position.is_none() {
            let entry = match &self.kind {
                KeyErrorKind::UnknownKey { key, .. } => {
                    node.entries().iter().find(|e| e.key == *key)
                }
                _ => None,
            };
            if let KeyErrorKind::MissingKey { key, near } = &mut self.kind {
                let written: Vec<&str> = node.entries().iter().map(|e| e.key.as_str()).collect();
                *near = nearest(key, &written).map(str::to_string);
            }
            self.position = Some(entry.map_or(node.position, |entry| entry.key_position));
            self.path = node.path.clone();
        }
        self
    }

    pub(crate) fn at_key(self, entry: &Entry) -> KeyError {
        KeyError {
            position: Some(entry.key_position),
            path: entry.node.path.clone(),
            ..self
        }
    }

    /// The section of the file, such as `job`, and the key or fit in it, such as `job.name`.
    pub(crate) fn within(&self) -> String {
        let culprit = self.culprit();
        culprit[..culprit.len().min(2)].join(".")
    }

    /// The path of the key that causes the error.
    fn culprit(&self) -> Vec<String> {
        let mut path = self.path.clone();
        match &self.kind {
            KeyErrorKind::UnknownKey { key, .. } | KeyErrorKind::MissingKey { key, .. } => {
                path.push(key.clone())
            }
            KeyErrorKind::Wrong(_) => (),
        }
        path
    }

    /// The error without the value, which may be secret.
    pub(crate) fn without_value(mut self) -> KeyError {
        if let KeyErrorKind::Wrong(message) = &mut self.kind
            && let Some(at) = message.find(", not ")
        {
            message.truncate(at);
        }
        self
    }
}

/// The newtype name that asks for one value or a list of values.
pub(super) const ONE_OR_MANY: &str = "one or many";

/// The newtype name that asks for a value that may also be a date or a time.
pub(super) const MOMENT: &str = "moment";

/// The error as a sentence that begins with the path.
impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.path.join(".");
        match &self.kind {
            KeyErrorKind::UnknownKey { key, known } => {
                let dot = if path.is_empty() { "" } else { "." };
                let known: Vec<&str> = known.iter().map(String::as_str).collect();
                write!(f, "unknown key `{path}{dot}{key}`{}", hint(key, &known))
            }
            KeyErrorKind::MissingKey { key, .. } if path.is_empty() => {
                write!(f, "the file needs the table `[{key}]`")
            }
            KeyErrorKind::MissingKey { key, near } => {
                write!(f, "the table `{path}` needs the key `{key}`")?;
                match near {
                    Some(near) => write!(f, "; write `{key}` in place of `{near}`"),
                    None => Ok(()),
                }
            }
            KeyErrorKind::Wrong(message) => write!(f, "`{path}` {message}"),
        }
    }
}

impl std::error::Error for KeyError {}

impl de::Error for KeyError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        KeyError::wrong(message.to_string())
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        KeyError::wrong(format!(
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
        KeyError::wrong(format!("must be {expected}, not a list of {length}"))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        KeyError::wrong(format!(
            "cannot be \"{variant}\"{}",
            hint(variant, expected)
        ))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        KeyError::new(KeyErrorKind::UnknownKey {
            key: field.to_string(),
            known: expected.iter().map(|k| k.to_string()).collect(),
        })
    }

    fn missing_field(field: &'static str) -> Self {
        KeyError::new(KeyErrorKind::MissingKey {
            key: field.to_string(),
            near: None,
        })
    }
}

/// serde's name of a type in the words of TOML.
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
}

impl Filled {
    /// Reads a number or a boolean if the text is one, else the text.
    fn visit<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, KeyError> {
        match self.scalar() {
            Some(Content::Integer(n)) => visitor.visit_i64(n),
            Some(Content::Float(x)) => visitor.visit_f64(x),
            Some(Content::Boolean(b)) => visitor.visit_bool(b),
            _ => visitor.visit_str(&self.text),
        }
        .map_err(|error| self.named(error))
    }

    /// The error with the names of the variables instead of their values.
    fn named(&self, error: KeyError) -> KeyError {
        let mut error = error.without_value();
        if let KeyErrorKind::Wrong(message) = &mut error.kind {
            *message += &format!(", which the value of {} is not", self.variables);
        }
        error
    }
}

impl<'de> de::Deserializer<'de> for &Node {
    type Error = KeyError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match &self.content {
            Content::String(text) => visitor.visit_str(text),
            Content::Filled(filled) => filled.visit(visitor),
            Content::Integer(n) => visitor.visit_i64(*n),
            Content::Float(x) => visitor.visit_f64(*x),
            Content::Boolean(b) => visitor.visit_bool(*b),
            Content::Datetime(_) => Err(de::Error::invalid_type(self.unexpected(), &visitor)),
            Content::Array(items) => all_items(items, visitor),
            Content::Table(entries) => {
                let pairs = entries.iter().map(|e| (e.key.as_str(), &e.node));
                visitor.visit_map(MapDeserializer::new(pairs))
            }
        }
        .map_err(|error| error.at(self))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        match (name, &self.content) {
            (MOMENT, Content::Datetime(text)) => {
                visitor.visit_newtype_struct(text.as_str().into_deserializer())
            }
            (MOMENT, _) => self.deserialize_str(visitor),
            (ONE_OR_MANY, Content::Array(_)) => self.deserialize_any(visitor),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    /// Text stays text, even if it looks like a number.
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        match &self.content {
            Content::Filled(filled) => visitor
                .visit_str(&filled.text)
                .map_err(|error: KeyError| filled.named(error).at(self)),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, KeyError> {
        self.deserialize_str(visitor)
    }

    /// Derived visitors would also read a struct from a list of its fields; a pipeline file must
    /// name them.
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        match &self.content {
            Content::Table(_) => self.deserialize_any(visitor),
            _ => {
                let error: KeyError = de::Error::invalid_type(self.unexpected(), &"a table");
                Err(error.at(self))
            }
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, KeyError> {
        let wanted = || format!("must be one of \"{}\"", variants.join("\", \""));
        match &self.content {
            Content::String(text) => visitor.visit_enum(text.as_str().into_deserializer()),
            Content::Filled(filled) => visitor
                .visit_enum(filled.text.as_str().into_deserializer())
                .map_err(|_: KeyError| filled.named(KeyError::wrong(wanted()))),
            _ => {
                let found = finding(self.unexpected());
                Err(KeyError::wrong(format!("{}, not {found}", wanted())))
            }
        }
        .map_err(|error: KeyError| error.at(self))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char bytes byte_buf
        unit unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, KeyError> for &Node {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Reads a list. The visitor of a pair stops after two items: a third one is an error.
fn all_items<'de, V: Visitor<'de>>(items: &[Node], visitor: V) -> Result<V::Value, KeyError> {
    let mut list = SeqDeserializer::new(items.iter());
    let value = visitor.visit_seq(&mut list)?;
    match list.size_hint() {
        Some(surplus @ 1..) => {
            let (n, wanted) = (items.len(), items.len() - surplus);
            let message = format!("must be a list of {wanted}, not of {n}");
            Err(KeyError::wrong(message))
        }
        _ => Ok(value),
    }
}
