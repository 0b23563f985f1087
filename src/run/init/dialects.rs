//! The first lines of a CSV file → how it is written: delimiter, quote, decimal point and header.

use crate::read::formats::dialect::Dialect;
use crate::read::formats::format::{Compression, Format};
use crate::read::formats::pieces;
use crate::run::init::given::GivenRoles;
use crate::store::Stores;
use futures::TryStreamExt;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Bytes of a file that are looked at.
const HEAD_BYTES: usize = 64 << 10;

/// Lines that are looked at.
const LINES: usize = 200;

/// Characters between values: those that values hardly contain first.
const DELIMITERS: [char; 5] = ['\t', ';', '|', ',', ' '];

/// How deep folders are searched for a file.
const DEPTH: usize = 6;

/// The format of the files at a place, and whether a pipeline must say it.
pub(crate) fn format(data: &str, given: &GivenRoles) -> (Format, bool) {
    let by_name = Format::of_name(data);
    if let Some(format) = given.format {
        return (format, by_name != Some(format));
    }
    if let Some(format) = by_name {
        return (format, false);
    }
    let path = Path::new(data);
    if path.is_file() {
        let format = of_content(path).unwrap_or(Format::Parquet);
        return (format, format != Format::Parquet);
    }
    let format = first_file(path, DEPTH).and_then(|file| Format::of_name(&file.to_string_lossy()));
    let format = format.unwrap_or(Format::Parquet);
    (format, format != Format::Parquet)
}

/// The format that the first bytes of a file show.
fn of_content(path: &Path) -> Option<Format> {
    let mut head = Vec::new();
    let file = std::fs::File::open(path).ok()?;
    file.take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
    if head.starts_with(b"PAR1") {
        return Some(Format::Parquet);
    }
    if head.starts_with(b"ARROW1") {
        return Some(Format::Arrow);
    }
    if head.contains(&0) {
        return None;
    }
    let first = head.iter().find(|byte| !byte.is_ascii_whitespace())?;
    Some(match first {
        b'{' | b'[' => Format::Json,
        _ => Format::Csv,
    })
}

/// The first file of a folder whose name says its format.
fn first_file(folder: &Path, depth: usize) -> Option<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).ok()?.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    entries.iter().find_map(|entry| {
        let path = entry.path();
        if path.is_dir() {
            return (depth > 0).then(|| first_file(&path, depth - 1)).flatten();
        }
        let is_known = Format::of_name(&entry.file_name().to_string_lossy()).is_some();
        is_known.then_some(path)
    })
}

/// How the CSV files at a place are written, by the first lines of the first file. A file that
/// cannot be read says nothing: reading the table says what is wrong.
pub(crate) async fn dialect(data: &str, format: Format, given: &GivenRoles) -> Dialect {
    let mut found = Dialect::default();
    if format == Format::Csv && !data.contains('*') {
        let path = Path::new(data);
        let file = if path.is_dir() {
            first_file(path, DEPTH).map(|file| file.to_string_lossy().into_owned())
        } else {
            Some(data.to_string())
        };
        if let Some(file) = file
            && let Some(head) = head(&file).await
        {
            found = of_head(&head, &file, given);
        }
    }
    found.delimiter = given.delimiter.or(found.delimiter);
    found.header = given.header.or(found.header);
    found
}

/// The first whole lines of a file.
async fn head(file: &str) -> Option<String> {
    let place = Stores::default().open(file).ok()?;
    let (_, compression) = Compression::of_name(file);
    let opened = pieces::open(place.store.as_ref(), &place.path, None, compression).await;
    let mut pieces = opened.ok()?;
    let mut head: Vec<u8> = Vec::new();
    while head.len() < HEAD_BYTES {
        let Some(piece) = pieces.try_next().await.ok()? else {
            break;
        };
        head.extend_from_slice(&piece);
    }
    if head.len() > HEAD_BYTES {
        head.truncate(HEAD_BYTES);
        let end = head.iter().rposition(|byte| *byte == b'\n')?;
        head.truncate(end);
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

/// How a file with these first lines is written, as far as that differs from a CSV file of its
/// name.
fn of_head(head: &str, name: &str, given: &GivenRoles) -> Dialect {
    let head = head.trim_start_matches('\u{feff}');
    let lines = head.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.take(LINES).collect();
    let is_tabs = Compression::of_name(name).0.ends_with(".tsv");
    let by_name = if is_tabs { '\t' } else { ',' };
    let delimiters: Vec<char> = match given.delimiter {
        Some(delimiter) => vec![delimiter],
        None if is_tabs => vec!['\t', ';', '|', ',', ' '],
        None => DELIMITERS.to_vec(),
    };
    let rows = |delimiter: char, quote: char| -> Vec<Vec<String>> {
        let rows = lines.iter().map(|line| fields(line, delimiter, quote));
        rows.collect()
    };
    let mut dialect = Dialect::default();
    let single = delimiters.iter().find(|delimiter| {
        let rows = rows(**delimiter, '\'');
        !head.contains('"') && is_table(&rows) && has_quotes(&lines, **delimiter)
    });
    let quote = if single.is_some() { '\'' } else { '"' };
    let found = delimiters.iter().find(|d| is_table(&rows(**d, quote)));
    let Some(delimiter) = single.or(found).copied() else {
        return dialect;
    };
    let rows = rows(delimiter, quote);
    dialect.delimiter = (delimiter != by_name).then_some(delimiter);
    dialect.quote = (quote != '"').then_some(quote);
    if delimiter != ',' && has_decimal_commas(&rows) {
        dialect.decimal = Some(',');
    }
    let decimal = dialect.decimal.unwrap_or('.');
    dialect.header = (given.header.is_none() && !has_header(&rows, decimal)).then_some(false);
    dialect
}

/// The values of a line.
fn fields(line: &str, delimiter: char, quote: char) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut is_quoted = false;
    for c in line.chars() {
        if c == quote {
            is_quoted = !is_quoted;
        } else if c == delimiter && !is_quoted {
            fields.push(String::new());
        } else if let Some(last) = fields.last_mut() {
            last.push(c);
        }
    }
    fields
}

/// Whether rows have several columns, and nearly all have as many as the first one. A value in
/// quotes may go on in the next line.
fn is_table(rows: &[Vec<String>]) -> bool {
    let width = rows.first().map_or(0, Vec::len);
    let equal = rows.iter().filter(|row| row.len() == width).count();
    width >= 2 && 10 * equal >= 9 * rows.len()
}

/// Whether all lines but the first have values between single quotes.
fn has_quotes(lines: &[&str], delimiter: char) -> bool {
    let begins = format!("{delimiter}'");
    let is_quoted = |line: &&str| {
        let quotes = line.matches('\'').count();
        let is_pairs = quotes >= 2 && quotes.is_multiple_of(2);
        is_pairs && (line.starts_with('\'') || line.contains(&begins))
    };
    lines.len() > 1 && lines.iter().skip(1).all(is_quoted)
}

/// The values of a column below the first row, without empty ones.
fn column(rows: &[Vec<String>], at: usize) -> impl Iterator<Item = &str> {
    let below = rows.iter().skip(1).filter_map(move |row| row.get(at));
    below
        .map(|value| value.trim())
        .filter(|value| !value.is_empty())
}

/// Whether a column has numbers with decimal commas, and none has numbers with decimal points.
fn has_decimal_commas(rows: &[Vec<String>]) -> bool {
    let width = rows.first().map_or(0, Vec::len);
    let is_number = |value: &str, decimal: char| {
        let other = if decimal == ',' { '.' } else { ',' };
        !value.contains(other) && value.replacen(decimal, ".", 1).parse::<f64>().is_ok()
    };
    let has = |decimal: char| {
        (0..width).any(|at| {
            let is_all = column(rows, at).all(|value| is_number(value, decimal));
            is_all && column(rows, at).any(|value| value.contains(decimal))
        })
    };
    has(',') && !has('.')
}

/// Whether the first row has names: it has none if it has numbers, and they are in columns of
/// numbers.
fn has_header(rows: &[Vec<String>], decimal: char) -> bool {
    let Some(first) = rows.first().filter(|_| rows.len() > 1) else {
        return true;
    };
    let is_number = |value: &str| value.replacen(decimal, ".", 1).parse::<f64>().is_ok();
    let is_numeric = |at: &usize| {
        let mut values = column(rows, *at).peekable();
        values.peek().is_some() && values.all(is_number)
    };
    let mut numeric = (0..first.len()).filter(is_numeric).peekable();
    numeric.peek().is_none() || !numeric.all(|at| is_number(first[at].trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str, head: &str) -> Dialect {
        of_head(head, name, &GivenRoles::default())
    }

    #[test]
    fn delimiters_are_those_that_make_columns() {
        let delimiter = |name, head| of(name, head).delimiter;
        assert_eq!(delimiter("a.csv", "a,b\n1,2\n3,4\n"), None);
        assert_eq!(delimiter("a.csv", "a;b\n1;2\n3;4\n"), Some(';'));
        assert_eq!(delimiter("a.csv", "a\tb\n1\t2\n"), Some('\t'));
        assert_eq!(delimiter("a.tsv", "a\tb\n1\t2\n"), None);
        assert_eq!(delimiter("a.csv", "a|b,c\n1|2,5\n"), Some('|'));
        // A delimiter in quotes separates nothing, and a list in a column has others.
        assert_eq!(delimiter("a.csv", "a,b\n\"x;y\",2\n\"z;y\",4\n"), None);
        assert_eq!(delimiter("a.csv", "a,b\nx|y,2\nz|y,4\n"), None);
        assert_eq!(delimiter("a.csv", "a\n1\n"), None);
        let given = GivenRoles {
            delimiter: Some(','),
            ..GivenRoles::default()
        };
        let found = of_head("a;b,c;d\n1;2,3;4\n", "a.csv", &given);
        assert_eq!(found.delimiter, None);
    }

    #[test]
    fn quotes_and_commas_are_found() {
        let found = of("a.csv", "k;x\n'a;b';1,5\n'c';2\n");
        assert_eq!(
            (found.delimiter, found.quote, found.decimal),
            (Some(';'), Some('\''), Some(','))
        );
        let found = of("a.csv", "k;x;y\na;1,5;1.5\nc;2;2\n");
        assert_eq!((found.decimal, found.header), (None, None));
        let found = of("a.csv", "t;word\n01.09.2026;it's, they say\n");
        assert_eq!((found.quote, found.decimal), (None, None));
    }

    #[test]
    fn a_first_row_of_numbers_is_no_header() {
        assert_eq!(of("a.csv", "1,a,0.5\n2,b,0.7\n").header, Some(false));
        assert_eq!(of("a.csv", "id,2020,2021\n1,3,4\n2,3,4\n").header, None);
        assert_eq!(of("a.csv", "a,b\nx,y\n").header, None);
        let given = GivenRoles {
            header: Some(true),
            ..GivenRoles::default()
        };
        assert_eq!(of_head("1,2\n3,4\n", "a.csv", &given).header, None);
    }
}
