//! Pipeline text → a tree of values with their positions.
//!
//! In: TOML text, `--set` assignments, a lookup of environment variables. Out: a [`Node`] tree in
//! file order. Every key and value has a [`Position`], so that an error can name a line or a
//! `--set`.

use crate::error::{Error, Result, hint};
use serde_json::Value;
use std::fmt::Display;
use toml::de::{DeTable, DeValue};

/// Where a key or value was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Position {
    /// The file as a whole.
    File,
    /// A line of the file, from 1.
    Line(usize),
    /// The n-th `--set`, from 0.
    Set(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// The start of the value; for a table with a header, the header.
    pub position: Position,
    /// The keys from the top of the file. An entry of `[[fit]]` or `[[check]]` adds its name or,
    /// without a name, its index. Entries of other lists have the path of the list.
    pub path: Vec<String>,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    String(String),
    /// A string with values of environment variables, which may also be read as number or boolean.
    Filled(Filled),
    Integer(i64),
    Float(f64),
    Boolean(bool),
    Datetime(String),
    Array(Vec<Node>),
    /// In the order of the file.
    Table(Vec<Entry>),
}

/// A string with the values of environment variables in it, which may be secret.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Filled {
    pub text: String,
    /// The variables as written, such as `${SEED}`.
    pub variables: String,
}

impl Filled {
    /// The text as number or boolean, if it is one in TOML.
    pub(crate) fn scalar(&self) -> Option<Content> {
        let value = DeValue::parse(self.text.trim()).ok()?;
        let content = node(value.get_ref(), 0, &|_| Position::File).ok()?.content;
        let is_scalar = matches!(
            content,
            Content::Integer(_) | Content::Float(_) | Content::Boolean(_)
        );
        is_scalar.then_some(content)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_position: Position,
    pub node: Node,
}

impl Node {
    /// A node that has no path yet.
    pub(crate) fn new(position: Position, content: Content) -> Node {
        Node {
            position,
            path: Vec::new(),
            content,
        }
    }

    /// The value of a key of a table, or the entry of a list with this `name` or index.
    pub(crate) fn get(&self, segment: &str) -> Option<&Node> {
        match &self.content {
            Content::Table(_) => self.get_key(segment),
            Content::Array(items) => items.get(item_index(items, segment)?),
            _ => None,
        }
    }

    fn get_key(&self, key: &str) -> Option<&Node> {
        let entry = self.entries().iter().find(|e| e.key == key)?;
        Some(&entry.node)
    }

    /// Writes the path of this node and of all nodes below it.
    fn set_paths(&mut self, path: Vec<String>) {
        match &mut self.content {
            Content::Table(entries) => {
                for entry in entries {
                    let key = std::slice::from_ref(&entry.key);
                    entry.node.set_paths([&path[..], key].concat());
                }
            }
            Content::Array(items) => {
                for (n, item) in items.iter_mut().enumerate() {
                    let mut item_path = path.clone();
                    if path.len() == 1 {
                        item_path.push(item.segment(n));
                    }
                    item.set_paths(item_path);
                }
            }
            _ => (),
        }
        self.path = path;
    }

    /// The name of the n-th entry of a list, or else `n`.
    fn segment(&self, n: usize) -> String {
        let name = self.get_key("name").and_then(Node::as_str);
        name.map_or_else(|| n.to_string(), str::to_string)
    }

    /// Removes the value under a path; false if there is none.
    pub(crate) fn remove(&mut self, path: &[String]) -> bool {
        let [first, rest @ ..] = path else {
            return false;
        };
        match (&mut self.content, rest.is_empty()) {
            (Content::Table(entries), true) => {
                let before = entries.len();
                entries.retain(|entry| entry.key != *first);
                entries.len() < before
            }
            (Content::Table(entries), false) => {
                let entry = entries.iter_mut().find(|entry| entry.key == *first);
                entry.is_some_and(|entry| entry.node.remove(rest))
            }
            (Content::Array(items), is_last) => match item_index(items, first) {
                Some(at) if at >= items.len() => false,
                Some(at) if is_last => {
                    items.remove(at);
                    true
                }
                Some(at) => items[at].remove(rest),
                None => false,
            },
            _ => false,
        }
    }

    pub(crate) fn entries(&self) -> &[Entry] {
        match &self.content {
            Content::Table(entries) => entries,
            _ => &[],
        }
    }

    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.content {
            Content::String(text) => Some(text),
            Content::Filled(filled) => Some(&filled.text),
            _ => None,
        }
    }
}

fn item_index(items: &[Node], segment: &str) -> Option<usize> {
    items
        .iter()
        .position(|n| n.get_key("name").and_then(Node::as_str) == Some(segment))
        .or_else(|| segment.parse().ok())
}

/// A pipeline file as TOML, before its keys are read.
#[derive(Debug)]
pub(crate) struct Document<'a> {
    pub root: Node,
    origin: &'a str,
    sets: &'a [String],
}

impl<'a> Document<'a> {
    /// Reads the text, applies the assignments in order, then replaces `${VAR}` in every string.
    pub(crate) fn read(
        text: &str,
        origin: &'a str,
        sets: &'a [String],
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Document<'a>> {
        let table = DeTable::parse(text).map_err(|e| syntax_error(&e, text, origin))?;
        let line = |offset| Position::Line(line_and_column(text, offset).0);
        let content = table_content(table.get_ref(), &line)
            .map_err(|(position, message)| located(position, origin, sets, &message))?;
        let mut document = Document {
            root: Node::new(Position::File, content),
            origin,
            sets,
        };
        for (n, set) in sets.iter().enumerate() {
            assign(&mut document.root, set, Position::Set(n))?;
        }
        interpolate(&mut document.root, &mut Vec::new(), environment)
            .map_err(|(position, message)| located(position, origin, sets, &message))?;
        document.root.set_paths(Vec::new());
        Ok(document)
    }

    /// A document with these values under keys such as `transitions.time`, one after the other.
    pub(crate) fn of_values(values: &[(String, Value)]) -> Result<Document<'static>> {
        let mut root = Node::new(Position::File, Content::Table(Vec::new()));
        for (key, value) in values {
            let wrong = |what: String| Error::spec(format!("rows: `{key}` cannot be set: {what}"));
            let path = key_path(key);
            let path =
                path.ok_or_else(|| wrong("write a key such as `transitions.time`".into()))?;
            let node = of_value(value).ok_or_else(|| wrong("null and NaN are no values".into()))?;
            put(&mut root, &path, 0, node, Position::File).map_err(wrong)?;
        }
        root.set_paths(Vec::new());
        Ok(Document {
            root,
            origin: "rows",
            sets: &[],
        })
    }

    /// An error at a place of this document.
    pub(crate) fn error(&self, position: Position, message: &str) -> Error {
        located(position, self.origin, self.sets, message)
    }

    /// An error at the value under `path`, or at the nearest table above it that exists.
    pub(crate) fn error_at(&self, path: &[&str], message: &str) -> Error {
        let mut node = &self.root;
        for segment in path {
            match node.get(segment) {
                Some(next) => node = next,
                None => break,
            }
        }
        self.error(node.position, message)
    }

    /// An error at the key under `path`: its name, then `what`.
    pub(crate) fn wrong<T>(&self, path: &[&str], what: impl Display) -> Result<T> {
        Err(self.error_at(path, &format!("`{}` {what}", path.join("."))))
    }
}

/// A value without a place. None if there is a null in it.
fn of_value(value: &Value) -> Option<Node> {
    let content = match value {
        Value::Null => return None,
        Value::Bool(b) => Content::Boolean(*b),
        Value::Number(n) => match n.as_i64() {
            Some(n) => Content::Integer(n),
            None => Content::Float(n.as_f64()?),
        },
        Value::String(text) => Content::String(text.clone()),
        Value::Array(items) => Content::Array(items.iter().map(of_value).collect::<Option<_>>()?),
        Value::Object(entries) => {
            let entries = entries.iter().map(|(key, value)| {
                Some(Entry {
                    key: key.clone(),
                    key_position: Position::File,
                    node: of_value(value)?,
                })
            });
            Content::Table(entries.collect::<Option<_>>()?)
        }
    };
    Some(Node::new(Position::File, content))
}

fn located(position: Position, origin: &str, sets: &[String], message: &str) -> Error {
    match position {
        Position::File => Error::spec(format!("{origin}: {message}")),
        Position::Line(n) => Error::spec(format!("{origin}:{n}: {message}")),
        Position::Set(n) => Error::spec(format!("--set {}: {message}", shown(&sets[n]))),
    }
}

/// The key of an assignment. No message shows the value, which may be secret. Text without `=` is
/// shown only if it begins like a key.
fn shown(set: &str) -> &str {
    const TABLES: &str =
        "job store tables transitions points sequences names fit validation output checks check";
    let first = set.split('.').next().unwrap_or_default();
    match set.split_once('=') {
        Some((key, _)) => key,
        None if TABLES.split(' ').any(|table| table == first) => set,
        None => "…",
    }
}

/// Line and column of a byte offset, both from 1, in characters.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |n| n + 1);
    let line = before.bytes().filter(|b| *b == b'\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

fn syntax_error(error: &toml::de::Error, text: &str, origin: &str) -> Error {
    let message = error.message().trim().replace('\n', ", ");
    match error.span() {
        Some(span) => {
            let (line, column) = line_and_column(text, span.start);
            let own = text.lines().nth(line - 1).unwrap_or_default();
            let message = in_words(&message, own).unwrap_or(message);
            Error::spec(format!("{origin}:{line}:{column}: {message}"))
        }
        None => Error::spec(format!("{origin}: {message}")),
    }
}

/// What to write on a line that is no TOML. It shows the key and never the value, which may be
/// secret.
fn in_words(message: &str, line: &str) -> Option<String> {
    const BARE: &str = "_-.\"";
    let key = line.split(['=', ':', '#']).next()?.trim();
    let is_key = |key: &str| key.chars().all(|c| c.is_alphanumeric() || BARE.contains(c));
    if key.is_empty() || !is_key(key) {
        return None;
    }
    let value = line.split_once('=').map(|(_, value)| value);
    let written = value.map(|value| value.split('#').next().unwrap_or_default().trim());
    let is_text = message.contains("must be quoted") || message.starts_with("invalid boolean");
    Some(match written {
        None if !message.starts_with("key with no value") => return None,
        None if line.contains(':') => format!("write `{key} = …`, with `=` in place of `:`"),
        None | Some("") => format!(
            "`{key}` has no value; write one behind `=`, such as a number, a text in double quotes, or `true`, or remove the key"
        ),
        // The key of a value in brackets is another one.
        Some(value) if value.starts_with(['[', '{']) => return None,
        Some(_) if is_text => format!("a text stands in double quotes: write `{key} = \"…\"`"),
        Some(_) if message.starts_with("invalid basic string") => {
            format!("the text of `{key}` has no double quotes at its end")
        }
        Some(_) => return None,
    })
}

/// A message and its position.
type Located = (Position, String);

fn table_content(
    table: &DeTable<'_>,
    position: &dyn Fn(usize) -> Position,
) -> Result<Content, Located> {
    let mut entries = table.iter().collect::<Vec<_>>();
    entries.sort_by_key(|(key, _)| key.span().start);
    let entries = entries.into_iter().map(|(key, value)| {
        Ok(Entry {
            key: key.get_ref().to_string(),
            key_position: position(key.span().start),
            node: node(value.get_ref(), value.span().start, position)?,
        })
    });
    Ok(Content::Table(entries.collect::<Result<_, Located>>()?))
}

fn node(
    value: &DeValue<'_>,
    offset: usize,
    position: &dyn Fn(usize) -> Position,
) -> Result<Node, Located> {
    let start = position(offset);
    let content = match value {
        DeValue::String(text) => Content::String(text.to_string()),
        DeValue::Integer(n) => {
            Content::Integer(i64::from_str_radix(n.as_str(), n.radix()).map_err(|_| {
                let message = format!("the integer {n} does not fit 64 bits with a sign");
                (start, message)
            })?)
        }
        DeValue::Float(x) => Content::Float(
            x.as_str()
                .parse()
                .map_err(|_| (start, format!("{} is not a number", x.as_str())))?,
        ),
        DeValue::Boolean(b) => Content::Boolean(*b),
        DeValue::Datetime(t) => Content::Datetime(t.to_string()),
        DeValue::Array(items) => Content::Array(
            items
                .iter()
                .map(|item| node(item.get_ref(), item.span().start, position))
                .collect::<Result<_, Located>>()?,
        ),
        DeValue::Table(table) => table_content(table, position)?,
    };
    Ok(Node::new(start, content))
}

/// Applies one `--set a.b=c`.
fn assign(root: &mut Node, set: &str, position: Position) -> Result<()> {
    let fail = |message: String| Error::spec(format!("--set {}: {message}", shown(set)));
    let Some((key, text)) = set.split_once('=') else {
        return Err(fail("an assignment has the form KEY=VALUE".into()));
    };
    let path = key_path(key)
        .ok_or_else(|| fail(format!("`{key}` is not a key such as `fit.dbmr.rank`")))?;
    let value = match DeValue::parse(text) {
        // A date without quotes becomes text: every key that accepts a TOML date accepts its text.
        Ok(value) if !value.get_ref().is_datetime() => {
            node(value.get_ref(), 0, &|_| position).map_err(|(_, message)| fail(message))?
        }
        _ => Node::new(position, Content::String(text.to_string())),
    };
    put(root, &path, 0, value, position).map_err(fail)
}

/// The segments of a dotted TOML key, which may contain quotes.
fn key_path(key: &str) -> Option<Vec<String>> {
    let text = format!("{key} = 0");
    let parsed = DeTable::parse(&text).ok()?;
    let mut table = parsed.get_ref();
    let mut path = Vec::new();
    loop {
        let (segment, value) = table.iter().next()?;
        path.push(segment.get_ref().to_string());
        match value.get_ref() {
            DeValue::Table(next) => table = next,
            _ => return Some(path),
        }
    }
}

fn put(
    node: &mut Node,
    path: &[String],
    depth: usize,
    value: Node,
    position: Position,
) -> Result<(), String> {
    let Some(segment) = path.get(depth) else {
        *node = value;
        return Ok(());
    };
    let above = path[..depth].join(".");
    match &mut node.content {
        Content::Table(entries) => {
            let at = match entries.iter().position(|e| e.key == *segment) {
                Some(at) => at,
                None => {
                    entries.push(Entry {
                        key: segment.clone(),
                        key_position: position,
                        node: Node::new(position, Content::Table(Vec::new())),
                    });
                    entries.len() - 1
                }
            };
            put(&mut entries[at].node, path, depth + 1, value, position)
        }
        Content::Array(items) => {
            let names: Vec<&str> = items
                .iter()
                .filter_map(|n| n.get_key("name").and_then(Node::as_str))
                .collect();
            match item_index(items, segment).filter(|n| *n < items.len()) {
                Some(at) => put(&mut items[at], path, depth + 1, value, position),
                None => Err(format!(
                    "`{above}` has no entry `{segment}`{}",
                    hint(segment, &names)
                )),
            }
        }
        _ => Err(format!("`{above}` is not a table")),
    }
}

/// Replaces `${VAR}` and `${VAR:-default}` in all strings below `node`, whose keys are `path`.
fn interpolate(
    node: &mut Node,
    path: &mut Vec<String>,
    environment: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Located> {
    match &mut node.content {
        Content::String(text) => {
            let parameters = match &path[..] {
                [first, last]
                    if matches!(first.as_str(), "transitions" | "sequences") && last == "sql" =>
                {
                    Some(format!("[{first}.parameters]"))
                }
                [first, name, last] if first == "check" && last == "sql" => {
                    Some(format!("check.{name}.parameters"))
                }
                _ => None,
            };
            let mut variables: Vec<String> = Vec::new();
            let filled = expand(text, |name| {
                if let Some(parameters) = &parameters {
                    return Err(format!(
                        "`${{{name}}}` is not replaced in SQL; write a value into `{parameters}` and name it as `$name`"
                    ));
                }
                let named = name.split(":-").next().unwrap_or(name);
                variables.push(format!("`${{{named}}}`"));
                variable(name, environment)
            })
            .map_err(|message| (node.position, format!("`{}`: {message}", path.join("."))))?;
            node.content = if variables.is_empty() {
                Content::String(filled)
            } else {
                Content::Filled(Filled {
                    text: filled,
                    variables: variables.join(" and "),
                })
            };
        }
        Content::Array(items) => {
            for (n, item) in items.iter_mut().enumerate() {
                path.push(item.segment(n));
                interpolate(item, path, environment)?;
                path.pop();
            }
        }
        Content::Table(entries) => {
            for entry in entries {
                path.push(entry.key.clone());
                interpolate(&mut entry.node, path, environment)?;
                path.pop();
            }
        }
        _ => {}
    }
    Ok(())
}

/// Replaces each `${inside}` by `lookup(inside)`, and `$${` by `${`.
fn expand(
    text: &str,
    mut lookup: impl FnMut(&str) -> Result<String, String>,
) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            out.push_str(before);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let inside = &rest[at + 2..];
        let end = inside
            .find('}')
            .ok_or("`${` is not closed by `}`; write `$${` for the two characters themselves")?;
        out.push_str(&lookup(&inside[..end])?);
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The value of `NAME` or `NAME:-default`. As in a shell, the default also replaces an empty value.
fn variable(inside: &str, environment: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !starts_well || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Err(format!(
            "`${{{inside}}}` is not of the form `${{NAME}}` or `${{NAME:-default}}`"
        ));
    }
    match (environment(name), default) {
        (Some(value), None) => Ok(value),
        (Some(value), Some(_)) if !value.is_empty() => Ok(value),
        (_, Some(default)) => Ok(default.to_string()),
        (None, None) => Err(format!(
            "the environment variable `{name}` is not set; set it or write `${{{name}:-default}}`"
        )),
    }
}
