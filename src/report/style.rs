//! Colours and texts of pictures.
//!
//! Texts of a result may hold anything. Here they become short, visible text.

use crate::error::escaped;
use crate::output::number::grouped;
use kuva::render::theme::Theme;

/// Colour of text and axes: a variable of the page, which is light or dark.
pub(crate) const INK: &str = "var(--ink)";

/// Colour of grids.
pub(crate) const GRID: &str = "var(--grid)";

/// Colour behind a picture.
pub(crate) const PAPER: &str = "var(--paper)";

/// The values of these variables on a white page.
const FIXED: [(&str, &str); 3] = [(INK, "#222222"), (GRID, "#dddddd"), (PAPER, "#ffffff")];

/// Colours of sets, which people with any colour vision can tell apart on light and dark pages.
const SETS: [&str; 10] = [
    "#3b7dd8", "#e08a1e", "#2fa36b", "#d0509b", "#8a6fd1", "#c0392b", "#1fa7b8", "#a08a1f",
    "#7a7f87", "#9bbf3a",
];

/// The theme of all pictures.
pub(crate) fn theme() -> Theme {
    Theme {
        background: "none".into(),
        axis_color: INK.into(),
        grid_color: GRID.into(),
        tick_color: INK.into(),
        text_color: INK.into(),
        legend_bg: "none".into(),
        legend_border: "none".into(),
        pie_leader: INK.into(),
        box_median: PAPER.into(),
        violin_border: INK.into(),
        colorbar_border: INK.into(),
        font_family: Some("system-ui, sans-serif".into()),
        show_grid: true,
    }
}

/// The colour of a set; grey for states in no set.
pub(crate) fn set_colour(set: i64) -> String {
    match usize::try_from(set) {
        Ok(set) if set < SETS.len() => SETS[set].to_string(),
        // The golden angle separates neighbouring numbers.
        Ok(set) => {
            let hue = (set as f64 * 137.508) % 360.0;
            let light = 42 + 12 * (set / SETS.len() % 3);
            hsl(hue, 0.55, light as f64 / 100.0)
        }
        Err(_) => "#b8b8b8".to_string(),
    }
}

fn hsl(hue: f64, saturation: f64, light: f64) -> String {
    let a = saturation * light.min(1.0 - light);
    let channel = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        let value = light - a * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    let [r, g, b] = [channel(0.0), channel(8.0), channel(4.0)];
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// The name of a set in a legend.
pub(crate) fn set_name(set: i64) -> String {
    if set < 0 {
        "no set".to_string()
    } else {
        format!("set {set}")
    }
}

/// Replaces the variables by the colours of a white page.
pub(crate) fn fixed(svg: &str) -> String {
    FIXED
        .iter()
        .fold(svg.to_string(), |svg, (variable, colour)| {
            svg.replace(variable, colour)
        })
}

/// Texts one after another, with commas between them.
pub(crate) fn listed<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let texts = texts.into_iter().map(|text| text.as_ref().to_string());
    texts.collect::<Vec<_>>().join(", ")
}

/// At most `most` characters of a text in one line.
pub(crate) fn short(text: &str, most: usize) -> String {
    let text = escaped(text);
    if text.chars().count() <= most {
        return text;
    }
    let kept = text.chars().take(most.saturating_sub(1));
    kept.chain(['…']).collect()
}

/// At most `most` characters of each text in one line. Texts that begin in the same way keep their
/// ends, too, so that they stay different.
pub(crate) fn distinct(texts: &[String], most: usize) -> Vec<String> {
    let begins = texts.iter().map(|text| short(text, most));
    let begins = begins.collect::<Vec<_>>();
    let both = |at: usize| {
        let equal = begins.iter().filter(|begin| **begin == begins[at]);
        if equal.count() == 1 {
            begins[at].clone()
        } else {
            ends(&texts[at], most)
        }
    };
    (0..texts.len()).map(both).collect()
}

/// The begin and the end of a text, with at most `most` characters.
fn ends(text: &str, most: usize) -> String {
    let text = escaped(text);
    let n = text.chars().count();
    if n <= most {
        return text;
    }
    let first = most.saturating_sub(1) / 3;
    let last = most.saturating_sub(1) - first;
    let begin = text.chars().take(first);
    begin
        .chain(['…'])
        .chain(text.chars().skip(n - last))
        .collect()
}

/// The most characters of a label in a picture.
const LABEL: usize = 28;

/// A short text for a picture, in which `$` does not begin a formula.
pub(crate) fn label(text: &str) -> String {
    without_formula(&short(text, LABEL))
}

/// Such texts that are as different as the texts they are made of.
pub(crate) fn labels(texts: &[String]) -> Vec<String> {
    let texts = distinct(texts, LABEL);
    texts.iter().map(|text| without_formula(text)).collect()
}

fn without_formula(text: &str) -> String {
    text.replace('$', "\\$")
}

/// The name of a file.
pub(crate) fn file_name(text: &str) -> String {
    let plain = |c: char| match c {
        'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => c,
        _ => '-',
    };
    text.chars().take(80).map(plain).collect()
}

/// Text in HTML and SVG.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A number with at most five significant digits; whole numbers with all of theirs.
pub fn number(x: f64) -> String {
    if x.is_nan() {
        "–".to_string()
    } else if x.fract() == 0.0 && x.abs() < 1e15 || (1e4..1e12).contains(&x.abs()) {
        let sign = if x < 0.0 { "-" } else { "" };
        format!("{sign}{}", grouped(x.abs().round()))
    } else if (1e-3..1e4).contains(&x.abs()) {
        let digits = 4 - (x.abs().log10().floor() as i32).clamp(-3, 4);
        let text = format!("{x:.*}", digits.max(0) as usize);
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_string()
        } else {
            text
        }
    } else {
        format!("{x:.4e}")
    }
}

/// The order in which fits are shown: that of their names, but `dbmr_r3` before `dbmr_r12`.
pub(crate) fn by_rank(names: &[String]) -> Vec<usize> {
    let parts = |name: &str| {
        let (first, rank) = name.rsplit_once("_r")?;
        Some((first.to_string(), rank.parse::<u64>().ok()?))
    };
    let place = |name: &String| match parts(name) {
        Some((first, rank)) => {
            let is_own = |other: &String| parts(other).is_some_and(|(f, _)| f == first);
            (names.iter().position(is_own), rank)
        }
        None => (names.iter().position(|other| other == name), 0),
    };
    let mut order = (0..names.len()).collect::<Vec<_>>();
    order.sort_by_key(|at| place(&names[*at]));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten characters: the first three, `…` and the last six, where beginnings are equal.
    #[test]
    fn short_texts_stay_different() {
        let texts = [
            "a_long_name_r3",
            "a_long_name_r12",
            "another",
            "only_one_long_name",
        ];
        let found = distinct(&texts.map(str::to_string), 10);
        assert_eq!(found, ["a_l…ame_r3", "a_l…me_r12", "another", "only_one_…"]);
        let found = labels(&["$x$".to_string()]);
        assert_eq!(found, ["\\$x\\$"]);
    }

    #[test]
    fn fits_of_several_ranks_are_ordered_by_rank() {
        let names = "svd dbmr_r12 dbmr_r24 dbmr_r3 map_rate gpcca dbmr_rest";
        let names = names.split(' ').map(str::to_string).collect::<Vec<_>>();
        let ordered = by_rank(&names).into_iter().map(|at| names[at].as_str());
        let expected = "svd dbmr_r3 dbmr_r12 dbmr_r24 map_rate gpcca dbmr_rest";
        assert_eq!(ordered.collect::<Vec<_>>().join(" "), expected);
    }
}
