//! Pictures and tables → one HTML page without scripts, which loads nothing.

use crate::error::{counted, escaped};
use crate::report::answer::Answer;
use crate::report::facts::Listing;
use crate::report::figure::Figure;
use crate::report::style::{escape, short};
use std::collections::HashSet;
use std::fmt::Write;

/// The page stays below 5 MB: a browser opens it at once, and mail takes it.
const MOST_BYTES: usize = 4_600_000;

/// The first sections are open, and the others are folded.
const OPEN: usize = 3;

/// Names longer than this are shortened.
const NAME: usize = 120;

/// Sentences and lists longer than this are shortened.
const TEXT: usize = 600;

/// A part of the page.
pub(crate) struct Section {
    /// Its heading; empty for a result with one model.
    pub name: String,
    /// What it says first.
    pub answer: Answer,
    /// The index of the picture that shows the answer, which is drawn large.
    pub first: Option<usize>,
    /// Its pictures.
    pub figures: Vec<Figure>,
    /// Pictures that an earlier lag has in the same form.
    pub repeated: usize,
    /// Tables above the pictures.
    pub above: Vec<Listing>,
    /// Tables below them.
    pub below: Vec<Listing>,
}

/// The whole page.
pub(crate) struct Page {
    /// Name of the pipeline.
    pub title: String,
    /// When and by which run the result was made.
    pub subtitle: String,
    /// What holds for the whole run.
    pub answer: Answer,
    /// A section per partition and lag.
    pub sections: Vec<Section>,
    /// Partitions and lags for which there is no space.
    pub left_out: usize,
    /// How the run went.
    pub listings: Vec<Listing>,
}

impl Page {
    /// The page as HTML.
    pub(crate) fn html(&self) -> String {
        let title = escape(&short(&self.title, NAME));
        let mut out = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n\
             <title>{title}</title>\n<style>\n{}</style>\n\
             </head>\n<body>\n<h1><bdi>{title}</bdi></h1>\n<p>{}</p>\n",
            include_str!("page.css"),
            escape(&escaped(&self.subtitle)),
        );
        self.begin(&mut out);
        if self.sections.len() > 1 {
            out.push_str(&self.index());
        }
        let mut missing = 0;
        for (at, section) in self.sections.iter().enumerate() {
            missing += section_html(&mut out, at, section, self.sections.len());
        }
        if missing > 0 {
            let _ = writeln!(
                out,
                "<p>{missing} pictures are left out, because the page would be larger than 5 MB. \
                 <code>gyre report --format svg</code> writes all of them.</p>"
            );
        }
        if !self.listings.is_empty() {
            out.push_str("<details id=\"run\">\n<summary><h2>The run</h2></summary>\n");
            for listing in &self.listings {
                listing_html(&mut out, listing);
            }
            out.push_str("</details>\n");
        }
        out.push_str("</body>\n</html>\n");
        out
    }

    /// The answer of the run, and that of the only model.
    fn begin(&self, out: &mut String) {
        let (mut sentences, mut warnings) = (Vec::new(), Vec::new());
        let only = match self.sections.as_slice() {
            [only] => Some(&only.answer),
            _ => None,
        };
        for answer in [Some(&self.answer), only].into_iter().flatten() {
            sentences.extend(answer.sentences.iter().cloned());
            warnings.extend(answer.warnings.iter().cloned());
        }
        answer_html(out, &sentences, &warnings);
    }

    /// Links to the sections.
    fn index(&self) -> String {
        let mut out = "<nav>\n<ul class=\"index\">\n".to_string();
        for (at, section) in self.sections.iter().enumerate() {
            let name = escape(&short(&section.name, NAME));
            let _ = writeln!(
                out,
                "<li><a href=\"#model-{at}\"><bdi>{name}</bdi></a></li>"
            );
        }
        out.push_str("</ul>\n</nav>\n");
        if self.left_out > 0 {
            let _ = writeln!(
                out,
                "<p>{} more partitions and lags are not on this page; choose them with \
                 <code>gyre report --partition KEY=VALUE</code>.</p>",
                self.left_out
            );
        }
        out
    }
}

/// Writes what a page or a section begins with.
fn answer_html(out: &mut String, sentences: &[String], warnings: &[String]) {
    let shown = |text: &String| escape(&escaped(text));
    if !sentences.is_empty() {
        let text = sentences.iter().map(shown).collect::<Vec<_>>().join(" ");
        // No line begins with the sign of per cent.
        let text = text.replace(" %", "&nbsp;%");
        let _ = writeln!(out, "<p class=\"answer\">{text}</p>");
    }
    if !warnings.is_empty() {
        out.push_str("<ul class=\"warnings\">\n");
        for warning in warnings {
            let _ = writeln!(out, "<li><bdi>{}</bdi></li>", shown(warning));
        }
        out.push_str("</ul>\n");
    }
}

/// Writes a section; returns the number of pictures that are left out.
fn section_html(out: &mut String, section_at: usize, section: &Section, of: usize) -> usize {
    let mut missing = 0;
    let is_folded = section_at >= OPEN;
    let name = escape(&short(&section.name, NAME));
    let heading = if name.is_empty() {
        String::new()
    } else {
        format!("<h2><bdi>{name}</bdi></h2>\n")
    };
    // A link to an element inside opens what is folded.
    let [begin, middle, end] = if is_folded {
        [
            "<section>\n<details>\n<summary>",
            "</summary>\n",
            "</details>\n",
        ]
    } else {
        ["<section>\n", "", ""]
    };
    let _ = writeln!(
        out,
        "{begin}{heading}{middle}<div id=\"model-{section_at}\">"
    );
    // The page has said it for its only model.
    if of > 1 {
        answer_html(out, &section.answer.sentences, &section.answer.warnings);
    }
    let first = section.first.and_then(|at| section.figures.get(at));
    if let Some(figure) = first {
        if out.len() + figure.svg.len() > MOST_BYTES {
            missing += 1;
        } else {
            let wide = match aspect(&figure.svg) {
                Some(aspect) if aspect >= WIDE => {
                    format!(" wide\" style=\"--aspect:{aspect:.3}")
                }
                _ => String::new(),
            };
            let _ = writeln!(out, "<div class=\"first{wide}\">");
            figure_html(out, figure, &format!("m{section_at}f0"));
            let _ = writeln!(out, "<p>{}</p>\n</div>", escape(figure.caption));
        }
    }
    for listing in &section.above {
        listing_html(out, listing);
    }
    out.push_str("<div class=\"kinds\">\n");
    let mut k = 0;
    // Pictures of one kind share what is to be said about them.
    let mut seen = HashSet::new();
    let others_than = |at: &usize| Some(*at) != section.first;
    let figures = (0..section.figures.len()).filter(others_than);
    let figures = figures.map(|at| &section.figures[at]).collect::<Vec<_>>();
    let captions = figures.iter().map(|f| f.caption);
    for caption in captions.filter(|caption| seen.insert(*caption)) {
        let group = figures.iter().copied().filter(|f| f.caption == caption);
        let group = group.collect::<Vec<_>>();
        let caption = escape(caption);
        let n = group.len().min(4);
        let _ = writeln!(
            out,
            "<div class=\"kind\" style=\"--n:{n}\">\n<div class=\"pictures\">"
        );
        for (at, figure) in group.iter().enumerate() {
            // Sources stand beside their targets.
            let is_pair = |at: usize| {
                let [a, b] = [at, at + 1].map(|at| group.get(at).map(|f| f.name.as_str()));
                a.zip(b)
                    .is_some_and(|(a, b)| a != b && a.replace("-sources-", "-targets-") == b)
            };
            if is_pair(at) {
                out.push_str("<div class=\"pair\">\n");
            }
            let ends = at > 0 && is_pair(at - 1);
            k += 1;
            if out.len() + figure.svg.len() > MOST_BYTES {
                missing += 1;
            } else {
                figure_html(out, figure, &format!("m{section_at}f{k}"));
            }
            if ends {
                out.push_str("</div>\n");
            }
        }
        let _ = writeln!(out, "</div>\n<p>{caption}</p>\n</div>");
    }
    out.push_str("</div>\n");
    if section.repeated > 0 {
        let n = counted(section.repeated, "picture");
        let _ = writeln!(out, "<p>{n} of an earlier lag would be the same here.</p>");
    }
    for listing in &section.below {
        listing_html(out, listing);
    }
    let _ = writeln!(out, "</div>\n{end}</section>");
    missing
}

/// A drawing of this aspect can have the width of the page, and still fit on a screen.
const WIDE: f64 = 1.2;

/// The width of a drawing per height.
fn aspect(svg: &str) -> Option<f64> {
    let (_, rest) = svg.split_once("viewBox=\"0 0 ")?;
    let (size, _) = rest.split_once('"')?;
    let (width, height) = size.split_once(' ')?;
    Some(width.parse::<f64>().ok()? / height.parse::<f64>().ok()?)
}

/// Writes a picture below its title.
fn figure_html(out: &mut String, figure: &Figure, unique: &str) {
    let title = escape(&short(&figure.title, NAME));
    let drawn = inline(figure, unique);
    let _ = writeln!(
        out,
        "<figure>\n{drawn}\n<figcaption><bdi>{title}</bdi></figcaption>\n</figure>"
    );
}

/// A drawing for the page: with a description, and with ids that no other drawing has.
fn inline(figure: &Figure, unique: &str) -> String {
    let alt = escape(&short(&figure.alt, 600));
    let drawn = figure.svg.replace(" id=\"", &format!(" id=\"{unique}-"));
    let drawn = drawn.replace("url(#", &format!("url(#{unique}-"));
    let begin = format!("<svg role=\"img\" aria-label=\"{alt}\" ");
    drawn.replacen("<svg ", &begin, 1)
}

fn listing_html(out: &mut String, listing: &Listing) {
    if listing.rows.is_empty() {
        return;
    }
    let title = escape(&listing.title);
    let [begin, end] = if listing.is_folded {
        ["<details>\n<summary><h3>", "</h3></summary>\n"]
    } else {
        ["<h3>", "</h3>\n"]
    };
    // With a place in the order of the tabulator, keys scroll it, too.
    let _ = write!(
        out,
        "{begin}{title}{end}<div class=\"scroll\" tabindex=\"0\" role=\"region\" \
         aria-label=\"{title}\"><table>\n<tr>"
    );
    for name in &listing.columns {
        let _ = write!(out, "<th>{}</th>", escape(name));
    }
    out.push_str("</tr>\n");
    for row in &listing.rows {
        out.push_str("<tr>");
        for (at, cell) in row.iter().enumerate() {
            // The last column has sentences and lists.
            let most = if at + 1 == row.len() { TEXT } else { NAME };
            // Beside many columns, a sentence would be a tower of words.
            let is_long = row.len() > FEW && cell.chars().count() > 2 * ONE_LINE;
            let begin = if is_long {
                "<td class=\"long\">"
            } else {
                "<td>"
            };
            let _ = write!(
                out,
                "{begin}<bdi>{}</bdi></td>",
                cell_html(&short(cell, most))
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table></div>\n");
    if listing.is_folded {
        out.push_str("</details>\n");
    }
}

/// This number of columns fits on a small screen.
const FEW: usize = 5;

/// A text of this number of characters has one line in a cell.
const ONE_LINE: usize = 16;

/// The text of a cell. A browser may break a line after the `-` of a number such as 1.2e-8.
fn cell_html(text: &str) -> String {
    let text = &text.replace(" %", "\u{a0}%");
    if text.contains(' ') && text.chars().count() <= ONE_LINE {
        return format!("<span>{}</span>", escape(text));
    }
    let word = |word: &str| {
        let shown = escape(word);
        match word.parse::<f64>() {
            Ok(_) if word.contains('-') => format!("<span>{shown}</span>"),
            _ => shown,
        }
    };
    text.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_have_an_aspect() {
        let svg = "<svg viewBox=\"0 0 420 300\" width=\"420\">";
        assert_eq!(aspect(svg), Some(1.4));
        assert_eq!(aspect("<svg viewBox=\"0 0 420 420.0\">"), Some(1.0));
        assert_eq!(aspect("<svg>"), None);
    }

    #[test]
    fn lines_do_not_break_in_numbers() {
        let shown = cell_html("-6.3e-5 ≤ 0.000001 <b>");
        assert_eq!(shown, "<span>-6.3e-5</span> ≤ 0.000001 &lt;b&gt;");
        assert_eq!(cell_html("held-out  e-5"), "<span>held-out  e-5</span>");
        let sentence = "held-out  scores are low";
        assert_eq!(cell_html(sentence), sentence);
    }
}
