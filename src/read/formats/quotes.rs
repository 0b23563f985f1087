//! Quotes of CSV, more strictly than Arrow's reader: after a closing quote the value must end.
//!
//! In: the bytes of a file, piece by piece. Out: where rows end, or the fault of a quote.

use crate::read::formats::fault::Fault;
use crate::read::formats::text::{BYTE_ORDER_MARK, MAX_ROW_BYTES, lines_in};
use memchr::{memchr, memrchr};

/// The quotes of a file, piece by piece.
pub(crate) struct Quotes {
    quote: u8,
    delimiter: u8,
    state: State,
    /// The last byte of the previous piece.
    before: Option<u8>,
    line: u64,
    /// Bytes of the last row so far.
    row: usize,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Outside,
    /// In a value whose quote was opened in this line.
    Inside(u64),
    /// After a quote in such a value: it closes the value unless another quote follows.
    Closing(u64),
}

impl Quotes {
    /// The start of a file.
    pub(crate) fn new(quote: u8, delimiter: u8) -> Quotes {
        Quotes {
            quote,
            delimiter,
            state: State::Outside,
            before: None,
            line: 1,
            row: 0,
        }
    }

    /// Whether the bytes so far end in a value whose quote is open.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Inside(_))
    }

    /// Returns the length of the bytes up to the last end of a row.
    ///
    /// # Errors
    /// Text after a closing quote, or a row that is too long.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let (mut at, mut rows) = (0, 0);
        if self.before.is_none() && bytes.starts_with(BYTE_ORDER_MARK) {
            at = BYTE_ORDER_MARK.len();
        }
        let start = at;
        while at < bytes.len() {
            match self.state {
                State::Closing(line) => {
                    let next = bytes[at];
                    if next == self.quote {
                        self.state = State::Inside(line);
                        at += 1;
                    } else if self.ends_value(next) {
                        self.state = State::Outside;
                    } else {
                        return Err(Fault::at(
                            self.line,
                            format!(
                                "text follows the quote that closes a value, which began in line {line}: a quote is missing, or one in the value is not doubled"
                            ),
                        ));
                    }
                }
                State::Inside(line) => {
                    let end = memchr(self.quote, &bytes[at..]);
                    if end.is_some() {
                        self.state = State::Closing(line);
                    }
                    let end = end.map_or(bytes.len(), |n| at + n + 1);
                    self.line += lines_in(&bytes[at..end]);
                    at = end;
                }
                State::Outside => {
                    let quote = memchr(self.quote, &bytes[at..]);
                    let end = quote.map_or(bytes.len(), |n| at + n);
                    self.line += lines_in(&bytes[at..end]);
                    if let Some(n) = memrchr(b'\n', &bytes[at..end]) {
                        rows = at + n + 1;
                    }
                    at = end;
                    if quote.is_none() {
                        break;
                    }
                    let before = match at.checked_sub(1) {
                        Some(before) if at > start => Some(bytes[before]),
                        _ => self.before,
                    };
                    // A quote within an unquoted value is plain text.
                    if before.is_none_or(|b| self.ends_value(b)) {
                        self.state = State::Inside(self.line);
                    }
                    at += 1;
                }
            }
        }
        self.before = bytes.last().copied().or(self.before);
        self.row = bytes.len() - rows + if rows == 0 { self.row } else { 0 };
        if self.row > MAX_ROW_BYTES {
            return Err(self.too_long());
        }
        Ok(rows)
    }

    fn ends_value(&self, byte: u8) -> bool {
        byte == self.delimiter || matches!(byte, b'\n' | b'\r')
    }

    /// Checks the end of the file.
    ///
    /// # Errors
    /// A quote that is not closed.
    pub(crate) fn finish(&self) -> Result<(), Fault> {
        match self.state {
            State::Inside(line) => Err(Fault::at(
                line,
                "the quote that opens a value here is not closed before the end of the file",
            )),
            _ => Ok(()),
        }
    }

    /// The fault of a row that is too long.
    pub(crate) fn too_long(&self) -> Fault {
        let line = match self.state {
            State::Inside(line) => line,
            _ => self.line,
        };
        let what = format!(
            "a row is longer than {} MiB: a quote in this line is not closed, the value is too long, or the file is not CSV",
            MAX_ROW_BYTES >> 20
        );
        Fault::at(line, what)
    }
}
