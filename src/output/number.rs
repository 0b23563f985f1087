//! Numbers and counts in messages.

/// Formats 1234567 as 1,234,567. Fractions keep two digits; very large and very small numbers use
/// scientific notation.
pub(crate) fn grouped(x: f64) -> String {
    if x != 0.0 && !(0.005..1e18).contains(&x.abs()) {
        return format!("{x:.4e}");
    }
    let whole = if x.fract() == 0.0 {
        format!("{x:.0}")
    } else {
        format!("{x:.2}")
    };
    let (digits, fraction) = whole
        .split_once('.')
        .map_or((whole.as_str(), ""), |(d, _)| (d, &whole[d.len()..]));
    let mut out = String::new();
    for (at, c) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out + fraction
}

/// A number of files, as in `1 new file` or `12 files`.
pub(crate) fn files(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n}{what} file{plural}")
}
