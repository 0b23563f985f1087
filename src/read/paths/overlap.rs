//! Keeps the output of a job and its input apart: what a run writes must never be what the next one reads.

use crate::error::{Error, Result};
use crate::read::lake::Lake;
use crate::read::lake::files::TableSource;
use crate::read::paths::glob;
use crate::read::paths::places::{Place, literal};
use object_store::path::Path;

/// How a path of a table and an output lie to each other, where they are not apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    /// The path reads what is below the output.
    Holds,
    /// The path lies in the output.
    LiesIn,
}

/// Checks that no table reads what lies below an output, and that none lies in it.
///
/// # Errors
/// The first path that is not apart, or that means nothing.
pub fn apart(sources: &[TableSource<'_>], output: &str) -> Result<()> {
    // A location that cannot be understood is for the one who opens it to tell.
    let Ok((root, folder)) = literal(output) else {
        return Ok(());
    };
    for source in sources {
        for path in source.paths {
            let place = Place::of(path).map_err(|e| of(source.name, e))?;
            if place.root != root {
                continue;
            }
            let told = match overlap(&place, &folder) {
                None => continue,
                Some(Overlap::Holds) => format!(
                    "{path} reads files below the output {output}, so the next run would count its tables as input"
                ),
                Some(Overlap::LiesIn) => {
                    format!("{path} is in the output {output} of the same job")
                }
            };
            let message = format!("{told}; move the output, or name the input more precisely");
            return Err(of(source.name, Error::spec(message)));
        }
    }
    Ok(())
}

fn of(table: &str, e: Error) -> Error {
    e.at(format!("table `{table}`"))
}

fn overlap(place: &Place, output: &Path) -> Option<Overlap> {
    if place.path.prefix_matches(output) && (place.pattern.is_some() || place.path != *output) {
        return Some(Overlap::LiesIn);
    }
    let below = (output.prefix_matches(&place.path)).then(|| glob::below(&place.path, output));
    let below: Vec<&str> = match below?.unwrap_or_default() {
        "" => Vec::new(),
        below => below.split('/').collect(),
    };
    let reads = match &place.pattern {
        Some(pattern) => pattern.may_match_below(&below),
        None => true,
    };
    reads.then_some(Overlap::Holds)
}

impl Lake {
    /// Checks that no file of a table lies below an output: links may lead there from anywhere.
    pub fn apart(&self, output: &str) -> Result<()> {
        let Ok((root, folder)) = literal(output) else {
            return Ok(());
        };
        let folder = format!(
            "{}/",
            crate::store::location::location(root.as_str(), &folder)
        );
        for table in &self.tables {
            let mut files = table.files.iter();
            if let Some(file) = files.find(|file| file.location.starts_with(&folder)) {
                let message = format!(
                    "{} is in the output {output} of the same job, which a link leads to; move the output, or name the input more precisely",
                    file.location
                );
                return Err(of(&table.name, Error::spec(message)));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every way in which two locations can lie, for folders, patterns and single files.
    #[test]
    fn what_may_be_read_and_written_at_once_is_found() {
        use Overlap::{Holds, LiesIn};
        let cases = [
            ("lake/", "lake/out", Some(Holds)),
            ("lake", "lake", Some(Holds)),
            ("lake", "lake2", None),
            ("lake/in", "lake/out", None),
            ("lake/out/sources", "lake/out", Some(LiesIn)),
            ("lake/out/x*", "lake/out", Some(LiesIn)),
            ("lake/*.parquet", "lake/out", None),
            ("lake/*/*.parquet", "lake/out", Some(Holds)),
            ("lake/*/*.parquet", "lake/a/out", None),
            ("lake/year=*/*.parquet", "lake/out", None),
            ("lake/o*/*.parquet", "lake/out", Some(Holds)),
            ("lake/**/*.parquet", "lake/out", Some(Holds)),
            ("lake/**", "lake/a/b/out", Some(Holds)),
            ("lake/in/**", "lake/out", None),
            ("lake/{in,out}/*", "lake/out", Some(Holds)),
            ("lake/{in,old}/*", "lake/out", None),
            ("lake/{a/in,out}/*", "lake/out", Some(Holds)),
            ("lake/[a-n]*/*", "lake/out", None),
            ("lake/*/", "lake/out", Some(Holds)),
            ("*", "lake/out", None),
            ("**", "lake/out", Some(Holds)),
        ];
        for (path, output, expected) in cases {
            let place = Place::of(&format!("s3://b/{path}")).expect(path);
            assert_eq!(overlap(&place, &output.into()), expected, "{path} {output}");
        }
    }
}
