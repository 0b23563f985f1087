//! Keeps the output of a job apart from its input: a run must never write what the next run reads.

use crate::error::{Error, Result};
use crate::read::lake::Lake;
use crate::read::lake::files::TableSource;
use crate::read::paths::glob;
use crate::read::paths::places::{Place, literal};
use crate::store::location;
use object_store::path::Path;

/// How the path of a table and an output overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Overlap {
    /// The path reads files below the output.
    ReadsOutput,
    /// The path is inside the output.
    InsideOutput,
}

/// Checks that no table reads files below an output, and that no table is inside it.
///
/// # Errors
/// The first path that overlaps or cannot be parsed.
pub(crate) fn check_no_overlap(sources: &[TableSource<'_>], output: &str) -> Result<()> {
    // Opening the output reports a location that cannot be parsed.
    let Ok((root, folder)) = literal(output) else {
        return Ok(());
    };
    for source in sources {
        for path in source.paths {
            let place = Place::of(path).map_err(|e| of(source.name, e))?;
            if place.root != root {
                continue;
            }
            let overlap = match overlap(&place, &folder) {
                None => continue,
                Some(Overlap::ReadsOutput) => format!(
                    "{path} reads files below the output {output}, so the next run would count its tables as input"
                ),
                Some(Overlap::InsideOutput) => {
                    format!("{path} is in the output {output} of the same job")
                }
            };
            let message = format!("{overlap}; move the output, or name the input more precisely");
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
        return Some(Overlap::InsideOutput);
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
    reads.then_some(Overlap::ReadsOutput)
}

impl Lake {
    /// Checks that no listed file is below an output. Links can lead there from anywhere.
    ///
    /// # Errors
    /// The first such file.
    pub(crate) fn check_no_overlap(&self, output: &str) -> Result<()> {
        let Ok((root, folder)) = literal(output) else {
            return Ok(());
        };
        let folder = format!("{}/", location::location(root.as_str(), &folder));
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

    /// Every way in which two locations can overlap, for folders, patterns and single files.
    #[test]
    fn overlaps_of_input_and_output_are_found() {
        use Overlap::{InsideOutput, ReadsOutput};
        let cases = [
            ("lake/", "lake/out", Some(ReadsOutput)),
            ("lake", "lake", Some(ReadsOutput)),
            ("lake", "lake2", None),
            ("lake/in", "lake/out", None),
            ("lake/out/sources", "lake/out", Some(InsideOutput)),
            ("lake/out/x*", "lake/out", Some(InsideOutput)),
            ("lake/*.parquet", "lake/out", None),
            ("lake/*/*.parquet", "lake/out", Some(ReadsOutput)),
            ("lake/*/*.parquet", "lake/a/out", None),
            ("lake/year=*/*.parquet", "lake/out", None),
            ("lake/o*/*.parquet", "lake/out", Some(ReadsOutput)),
            ("lake/**/*.parquet", "lake/out", Some(ReadsOutput)),
            ("lake/**", "lake/a/b/out", Some(ReadsOutput)),
            ("lake/in/**", "lake/out", None),
            ("lake/{in,out}/*", "lake/out", Some(ReadsOutput)),
            ("lake/{in,old}/*", "lake/out", None),
            ("lake/{a/in,out}/*", "lake/out", Some(ReadsOutput)),
            ("lake/[a-n]*/*", "lake/out", None),
            ("lake/*/", "lake/out", Some(ReadsOutput)),
            ("*", "lake/out", None),
            ("**", "lake/out", Some(ReadsOutput)),
        ];
        for (path, output, expected) in cases {
            let place = Place::of(&format!("s3://b/{path}")).expect(path);
            assert_eq!(overlap(&place, &output.into()), expected, "{path} {output}");
        }
    }
}
