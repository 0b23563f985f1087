//! The distortion of embeddings: of a fit by its times, and of trials by coordinates and times.

use crate::error::Result;
use crate::report::chart::{Bar, Mark, Series, bars, lines};
use crate::report::figure::Figure;
use crate::report::model::{Model, ResultRows};
use crate::report::style::{listed, number, set_colour};

/// At most this number of times, or of numbers of coordinates, have a picture of their own.
const PICTURES: usize = 3;

/// The lines of a chart share this part of the space between two of its places.
const SPREAD: f64 = 0.6;

const DISTORTION: &str = "Log distortion says how unequally the embedding stretches distances; 0 \
    is best. The picture misleads about local structure: one pair of points sets the value.";

const TRIALS: &str = "The mean of the log distortion over trials, with its standard deviation; 0 \
    is best. Lines are shifted a little to the side, so that deviations do not cover each other. \
    A mean is not drawn if it is infinite: in a trial, two points had the same embedding. The \
    picture misleads where deviations overlap: fits share the points of a trial, so one of them \
    can be better in every trial.";

/// The pictures of all fits.
///
/// # Errors
/// If `distortion` or `distortion_trials` cannot be read.
pub(crate) fn figures(model: &Model<'_>, fits: &[String]) -> Result<Vec<Figure>> {
    let rows = model.rows("distortion", &["fit", "time", "log_distortion"])?;
    let all = fits.iter().map(|fit| {
        let own = rows.having("fit", fit);
        let pairs = own.floats("time").into_iter();
        let pairs = pairs.zip(own.floats("log_distortion"));
        (fit.as_str(), pairs.collect::<Vec<_>>())
    });
    let all = all.filter(|(_, pairs)| !pairs.is_empty());
    let (by_time, single) = all.partition::<Vec<_>, _>(|(_, pairs)| pairs.len() > 1);
    let mut figures = Vec::new();
    figures.extend(of_times(&by_time));
    figures.extend(of_single_times(&single));
    figures.extend(of_trials(&means(model)?));
    Ok(figures)
}

/// Times with their log distortion.
type ByTime<'a> = (&'a str, Vec<(f64, f64)>);

fn of_times(fits: &[ByTime<'_>]) -> Option<Figure> {
    let series = fits.iter().map(|(fit, pairs)| {
        let marks = pairs.iter().map(|(t, x)| {
            let tip = format!("{fit} at {}: {}", number(*t), number(*x));
            // Times and powers double from one to the next.
            Mark::new([t.log2(), *x], tip)
        });
        Series::new(fit, marks.collect())
    });
    let labels = ["log₂ of time or power", "log distortion"];
    let svg = lines(&series.collect::<Vec<_>>(), labels, false)?;
    let n = fits.len();
    let alt = format!("Log distortion of {n} embeddings by time or power.");
    let name = ["distortion", "all"];
    let title = title(fits.iter().map(|(fit, _)| *fit), "Distortion");
    Some(Figure::new(name, &title, &alt, DISTORTION, svg))
}

/// The title of a picture. One line has no legend, so the title names its fit.
fn title<'a>(mut fits: impl Iterator<Item = &'a str>, what: &str) -> String {
    match (fits.next(), fits.next()) {
        (Some(fit), None) => format!("{what}: {fit}"),
        _ => what.to_string(),
    }
}

/// Bars of fits that have one time. In a chart by time, they would be points above each other.
fn of_single_times(fits: &[ByTime<'_>]) -> Option<Figure> {
    let known = fits.iter().filter(|(_, pairs)| pairs[0].1.is_finite());
    let all = known.enumerate().map(|(at, (fit, pairs))| {
        let (time, value) = pairs[0];
        Bar {
            name: fit.to_string(),
            value,
            colour: set_colour(at as i64),
            tip: format!("{fit} at {}: {}", number(time), number(value)),
        }
    });
    let all = all.collect::<Vec<_>>();
    if all.len() < 2 {
        return None;
    }
    let svg = bars(&all, ["fit", "log distortion"])?;
    let tips = listed(all.iter().take(12).map(|bar| &bar.tip));
    let alt = format!("Log distortion of embeddings with one time or power. {tips}.");
    let title = "Distortion of fits with one time or power";
    let name = ["distortion", "fits"];
    Some(Figure::new(name, title, &alt, DISTORTION, svg))
}

/// A row of `distortion_trials`.
#[derive(Clone)]
struct MeanDistortion {
    fit: String,
    against: String,
    time: f64,
    dimension: f64,
    trials: f64,
    mean: f64,
    /// NaN for one trial.
    deviation: f64,
}

fn means(model: &Model<'_>) -> Result<Vec<MeanDistortion>> {
    let table = "distortion_trials";
    let names = ["time", "dimension", "trials"];
    let values = ["log_distortion", "standard_deviation"];
    let wanted = ["fit", "against"].into_iter().chain(names).chain(values);
    let rows = model.rows(table, &wanted.collect::<Vec<_>>())?;
    Ok(means_of(&rows))
}

fn means_of(rows: &ResultRows) -> Vec<MeanDistortion> {
    let [fits, against] = ["fit", "against"].map(|name| rows.texts(name));
    let [times, dimensions, trials] = ["time", "dimension", "trials"].map(|name| rows.floats(name));
    let [means, deviations] =
        ["log_distortion", "standard_deviation"].map(|name| rows.floats(name));
    let all = (0..rows.len()).map(|at| MeanDistortion {
        fit: fits[at].clone().unwrap_or_default(),
        against: against[at].clone().unwrap_or_default(),
        time: times[at],
        dimension: dimensions[at],
        trials: trials[at],
        mean: means[at],
        deviation: deviations[at],
    });
    all.collect()
}

/// What the lines of a picture lead along; the other one is the same in a picture.
#[derive(Clone, Copy, PartialEq)]
enum Along {
    Coordinates,
    Times,
}

impl Along {
    /// The place of a row in a line.
    fn place(self, row: &MeanDistortion) -> f64 {
        match self {
            Along::Coordinates => row.dimension,
            Along::Times => row.time.log2(),
        }
    }

    /// What all rows of a picture have.
    fn fixed(self, row: &MeanDistortion) -> f64 {
        match self {
            Along::Coordinates => row.time,
            Along::Times => row.dimension,
        }
    }
}

/// Pictures of each distance: by the number of coordinates, or by the time for fits that have only
/// one number of coordinates.
fn of_trials(rows: &[MeanDistortion]) -> Vec<Figure> {
    let mut figures = Vec::new();
    let names = rows.iter().map(|row| row.against.as_str());
    for against in distinct(names) {
        let own = rows.iter().filter(|row| row.against == against);
        let own = own.collect::<Vec<_>>();
        let (single, several) = own
            .iter()
            .copied()
            .partition::<Vec<&MeanDistortion>, _>(|row| {
                let mut of_fit = own.iter().filter(|other| other.fit == row.fit);
                of_fit.all(|other| other.dimension == row.dimension)
            });
        figures.extend(pictures(Along::Coordinates, &several));
        figures.extend(pictures(Along::Times, &single));
    }
    figures
}

/// The first one of equal names.
fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    for name in names {
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// The first, the middle and the last of the pictures along coordinates or times.
fn pictures(along: Along, rows: &[&MeanDistortion]) -> Vec<Figure> {
    let mut fixed = rows.iter().map(|row| along.fixed(row)).collect::<Vec<_>>();
    fixed.sort_by(f64::total_cmp);
    fixed.dedup();
    let groups = fixed.iter().map(|at| {
        let own = rows.iter().filter(|row| along.fixed(row) == *at);
        let own = own.copied().collect::<Vec<_>>();
        let of_fit = |fit| {
            let of_fit = own.iter().filter(|row| row.fit == fit);
            of_fit.copied().collect::<Vec<_>>()
        };
        let fits = distinct(own.iter().map(|row| row.fit.as_str()));
        let all = fits.into_iter().map(of_fit).filter(|line| line.len() > 1);
        all.collect::<Vec<_>>()
    });
    let groups = groups.filter(|lines| !lines.is_empty()).collect::<Vec<_>>();
    let shown = match groups.len() {
        n @ 0..=PICTURES => (0..n).collect(),
        n => vec![0, n / 2, n - 1],
    };
    let all = shown.iter().filter_map(|at| picture(along, &groups[*at]));
    all.collect()
}

fn picture(along: Along, all: &[Vec<&MeanDistortion>]) -> Option<Figure> {
    let first = *all.first()?.first()?;
    let places = all.iter().flatten().map(|row| along.place(row));
    let shifts = shifts(places, all.len());
    let (mut series, mut tips) = (Vec::new(), Vec::new());
    for (rows, shift) in all.iter().zip(shifts) {
        let marks = rows.iter().map(|row| mark(along, row)).collect::<Vec<_>>();
        let ends = [&marks[0], &marks[marks.len() - 1]];
        tips.push(format!("{} to {}", ends[0].tip, ends[1].tip));
        let line = Series::new(&rows[0].fit, marks);
        series.push(Series { shift, ..line });
    }
    let against = match first.against.as_str() {
        "euclidean" => "Euclidean",
        other => other,
    };
    let [time, dimension] = [first.time, first.dimension].map(number);
    let (label, by, name) = match along {
        Along::Coordinates => (
            "coordinates",
            format!("by coordinates, time or power {time}"),
            format!("{}-time-{time}", first.against),
        ),
        Along::Times => (
            "log₂ of time or power",
            format!("by time or power, {dimension} coordinates"),
            format!("{}-coordinates-{dimension}", first.against),
        ),
    };
    let svg = lines(&series, [label, "mean log distortion"], false)?;
    let fits = all.iter().map(|rows| rows[0].fit.as_str());
    let title = title(fits, &format!("Distortion of {against} distances {by}"));
    let trials = all.iter().flatten().map(|row| row.trials);
    let trials = number(trials.fold(0.0, f64::max));
    let tips = tips.into_iter().take(8).collect::<Vec<_>>().join("; ");
    let alt = format!("Mean log distortion over {trials} trials, of {against} distances. {tips}.");
    let name = ["distortion-trials", &name];
    Some(Figure::new(name, &title, &alt, TRIALS, svg))
}

fn mark(along: Along, row: &MeanDistortion) -> Mark {
    let [time, dimension, mean, deviation] =
        [row.time, row.dimension, row.mean, row.deviation].map(number);
    let place = match along {
        Along::Coordinates => dimension,
        Along::Times => time,
    };
    let deviation = if row.deviation.is_finite() {
        format!(" ± {deviation}")
    } else {
        String::new()
    };
    Mark {
        at: [along.place(row), row.mean],
        interval: [row.mean - row.deviation, row.mean + row.deviation],
        tip: format!("{} at {place}: {mean}{deviation}", row.fit),
    }
}

/// How far each of `n` lines is shifted, so that their errors stand beside each other: together
/// they have a part of the least distance of two places.
fn shifts(places: impl Iterator<Item = f64>, n: usize) -> Vec<f64> {
    let mut places = places.filter(|x| x.is_finite()).collect::<Vec<_>>();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let gaps = places.windows(2).map(|pair| pair[1] - pair[0]);
    let gap = gaps.reduce(f64::min).unwrap_or(0.0);
    let middle = (n.max(1) - 1) as f64 / 2.0;
    let shift = |at: usize| SPREAD * gap * (at as f64 - middle) / n as f64;
    (0..n).map(shift).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(fit: &str, [time, dimension]: [f64; 2], [mean, deviation]: [f64; 2]) -> MeanDistortion {
        MeanDistortion {
            fit: fit.into(),
            against: "diffusion".into(),
            time,
            dimension,
            trials: 10.0,
            mean,
            deviation,
        }
    }

    /// Two fits at the power 8, and a third one at the power 4 whose second mean is infinite.
    #[test]
    fn trials_are_drawn_by_coordinates_for_each_time() {
        let rows = [
            row("dms", [8.0, 2.0], [0.125, 0.25]),
            row("dms", [8.0, 3.0], [0.0625, 0.5]),
            row("gps", [8.0, 2.0], [3.5, 1.5]),
            row("gps", [8.0, 3.0], [1.75, f64::NAN]),
            row("rate", [4.0, 16.0], [2.5, 0.5]),
            row("rate", [4.0, 64.0], [f64::INFINITY, f64::NAN]),
        ];
        let figures = of_trials(&rows);
        let names = figures.iter().map(|f| f.name.as_str()).collect::<Vec<_>>();
        let expected = [
            "distortion-trials-diffusion-time-4",
            "distortion-trials-diffusion-time-8",
        ];
        assert_eq!(names, expected);
        assert_eq!(
            figures[1].alt,
            "Mean log distortion over 10 trials, of diffusion distances. dms at 2: 0.125 ± 0.25 to \
             dms at 3: 0.0625 ± 0.5; gps at 2: 3.5 ± 1.5 to gps at 3: 1.75."
        );
        let drawn = &figures[1].svg;
        for tip in ["dms at 3: 0.0625 ± 0.5", "gps at 3: 1.75"] {
            assert!(drawn.contains(tip), "{tip}: {drawn}");
        }
        assert!(!figures[0].svg.contains("rate at 64"), "an infinite mean");
        assert!(figures[0].svg.contains("rate at 16: 2.5 ± 0.5"));
    }

    /// A fit with one number of coordinates is drawn by time, and by each distance.
    #[test]
    fn trials_with_one_number_of_coordinates_are_drawn_by_time() {
        let mut rows = vec![
            row("map", [2.0, 2.0], [0.5, 0.1]),
            row("map", [4.0, 2.0], [0.25, 0.1]),
            row("one", [4.0, 2.0], [0.75, 0.1]),
        ];
        let euclidean = rows.clone().into_iter().map(|row| MeanDistortion {
            against: "euclidean".into(),
            ..row
        });
        rows.extend(euclidean.collect::<Vec<_>>());
        let figures = of_trials(&rows);
        let titles = figures.iter().map(|f| f.title.as_str()).collect::<Vec<_>>();
        let expected = [
            "Distortion of diffusion distances by time or power, 2 coordinates: map",
            "Distortion of Euclidean distances by time or power, 2 coordinates: map",
        ];
        assert_eq!(titles, expected);
        assert!(figures[0].svg.contains("map at 4: 0.25 ± 0.1"));
        assert!(!figures[0].svg.contains("one at"), "a line has two points");
        assert!(of_trials(&rows[2..3]).is_empty());
    }

    /// Of four times, the first, the third and the last have a picture.
    #[test]
    fn few_times_have_a_picture() {
        let times = [1.0, 2.0, 4.0, 8.0];
        let rows = times.map(|t| [2.0, 3.0].map(|k| row("map", [t, k], [1.0, 0.5])));
        let figures = of_trials(rows.as_flattened());
        let times = figures.iter().map(|f| f.name.rsplit('-').next());
        let times = times.collect::<Vec<_>>();
        assert_eq!(times, [Some("1"), Some("4"), Some("8")]);
    }

    /// Places 2, 4 and 8 have a distance of at least 2, of which three lines have 1.2.
    #[test]
    fn lines_are_shifted_by_less_than_the_space_between_places() {
        let found = shifts([8.0, 2.0, 4.0, 2.0].into_iter(), 3);
        for (found, expected) in found.iter().zip([-0.4, 0.0, 0.4]) {
            assert!((found - expected).abs() < 1e-12, "{found}");
        }
        assert_eq!(shifts([5.0].into_iter(), 2), [0.0; 2]);
    }

    #[test]
    fn fits_with_one_time_are_bars() {
        let fits = [
            ("gps", vec![(8.0, 0.5)]),
            ("gpb", vec![(8.0, 0.25)]),
            ("flat", vec![(8.0, f64::INFINITY)]),
        ];
        let figure = of_single_times(&fits).expect("a picture");
        assert!(figure.alt.ends_with("gps at 8: 0.5, gpb at 8: 0.25."));
        assert!(figure.svg.contains("gpb at 8: 0.25"), "{}", figure.svg);
        // One number needs no picture.
        assert!(of_single_times(&fits[..1]).is_none());
    }
}
