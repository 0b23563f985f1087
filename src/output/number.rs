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

/// A log-likelihood with one digit after the point, or with an exponent where the number of
/// transitions has one. Weights may be huge or tiny.
pub(crate) fn log_likelihood(value: f64, transitions: f64) -> String {
    if transitions == 0.0 || (0.005..1e18).contains(&transitions) {
        format!("{value:.1}")
    } else {
        format!("{value:.4e}")
    }
}

/// A number of files, as in `1 new file` or `12 files`.
pub(crate) fn files(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n}{what} file{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_likelihood_of_huge_weights_has_an_exponent() {
        assert_eq!(log_likelihood(-1405312.52, 204_800.0), "-1405312.5");
        assert_eq!(log_likelihood(-4.02e157, 2.2e155), "-4.0200e157");
        assert_eq!(log_likelihood(-2.5e-309, 1.1e-309), "-2.5000e-309");
        assert_eq!(log_likelihood(-1e-13, 4.0), "-0.0");
        assert_eq!(log_likelihood(0.0, 0.0), "0.0");
    }
}
