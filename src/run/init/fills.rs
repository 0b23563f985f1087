//! The first values of columns → values that mean null, such as -9999 and "NA".
//!
//! A number is proposed if it is one that programs write for a missing value, and if it is farther
//! from all others than these are from each other.

use crate::read::formats::fill_values::FillValue;

/// Numbers for missing values, without their sign. The last ones are those of netCDF.
const NUMBERS: [f64; 12] = [
    99.0,
    999.0,
    9999.0,
    99999.0,
    999_999.0,
    32_767.0,
    32_768.0,
    2_147_483_648.0,
    1e20,
    1e30,
    1e34,
    9.969_209_968_386_869e36,
];

/// Texts for missing values.
const TEXTS: [&str; 9] = [
    "NA", "N/A", "n/a", "NULL", "null", "None", "-", "?", "missing",
];

/// The numbers that mean null among values in ascending order.
pub(crate) fn numbers(sorted: &[f64]) -> Vec<FillValue> {
    let (known, others): (Vec<f64>, Vec<f64>) = sorted.iter().copied().partition(|x| is_known(*x));
    let (Some(low), Some(high)) = (others.first(), others.last()) else {
        return Vec::new();
    };
    let is_far = |x: &f64| low - x > high - low || x - high > high - low;
    let mut far: Vec<f64> = known.into_iter().filter(is_far).collect();
    far.dedup();
    far.into_iter().map(of_number).collect()
}

fn is_known(x: f64) -> bool {
    // Singles are only near to the decimals that were meant. Few nines may count something.
    let is_near = |known: &f64| (x.abs() - known).abs() <= 1e-6 * known;
    NUMBERS
        .iter()
        .any(|known| is_near(known) && (x < 0.0 || *known >= 9999.0))
}

fn of_number(x: f64) -> FillValue {
    if x.trunc() == x && x.abs() < 1e15 {
        FillValue::Integer(x as i64)
    } else {
        FillValue::Number(x)
    }
}

/// The texts that mean null among the values of a column whose other texts are all numbers.
pub(crate) fn texts(values: &[String]) -> Vec<FillValue> {
    let is_missing = |text: &&String| TEXTS.contains(&text.as_str());
    let (missing, others): (Vec<&String>, Vec<&String>) = values.iter().partition(is_missing);
    let are_numbers = others.iter().all(|text| text.parse::<f64>().is_ok());
    if others.is_empty() || !are_numbers {
        return Vec::new();
    }
    let mut missing: Vec<String> = missing.into_iter().cloned().collect();
    missing.sort();
    missing.into_iter().map(FillValue::Text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(rows: &[f64]) -> Vec<FillValue> {
        let mut sorted = rows.to_vec();
        sorted.sort_unstable_by(f64::total_cmp);
        numbers(&sorted)
    }

    #[test]
    fn numbers_for_missing_values_are_far_from_the_others() {
        use FillValue::{Integer, Number};
        assert_eq!(of(&[12.5, -9999.0, 14.0, -9999.0]), [Integer(-9999)]);
        let single = f64::from(9.969_21e36_f32);
        assert_eq!(of(&[0.5, single, -999.0]), [Integer(-999), Number(single)]);
        assert_eq!(of(&[0.5, 1e20]), [Number(1e20)]);
        // Between the others, or as near as they are to each other.
        assert!(of(&[0.0, 999.0, 5000.0]).is_empty());
        assert!(of(&[0.0, 60.0, 99.0]).is_empty());
        assert!(of(&[-9999.0, -9999.0]).is_empty());
    }

    #[test]
    fn texts_stand_between_numbers() {
        let values = |texts: &[&str]| {
            texts
                .iter()
                .map(|text| text.to_string())
                .collect::<Vec<_>>()
        };
        let na = FillValue::Text("NA".into());
        assert_eq!(texts(&values(&["1.5", "NA", "-3"])), [na]);
        assert!(texts(&values(&["a", "NA"])).is_empty());
        assert!(texts(&values(&["NA"])).is_empty());
    }
}
