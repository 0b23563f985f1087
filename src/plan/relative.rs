//! Relative paths in a pipeline: the folder of the pipeline file comes before the current folder.

use crate::error::{Error, Kind, Result};
use crate::plan::pipeline::Pipeline;
use crate::plan::pipeline::keys::NamesFrom;
use crate::read::lake::files::Query;
use crate::read::paths::glob;
use crate::read::paths::places::Place;
use crate::store::canonical;
use crate::store::local::LocalFiles;
use object_store::ObjectStore;
use std::path::Path;
use std::sync::Arc;

/// Resolves the relative paths of tables, of SQL files and of `names.from`. The output stays as it
/// is.
///
/// # Errors
/// If a path exists in neither folder.
pub(crate) async fn resolve(pipeline: &mut Pipeline, file: &Path) -> Result<()> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let is_current = || Some(canonical(folder).ok()? == canonical(Path::new(".")).ok()?);
    if folder.as_os_str().is_empty() || is_current() == Some(true) {
        return Ok(());
    }
    for (name, table) in &mut pipeline.tables {
        for path in &mut table.path {
            if let Some(candidate) = candidate(folder, path) {
                let found = match glob::special(path) {
                    Some(_) if !Path::new(&candidate).exists() => has_match(&candidate).await,
                    _ => Path::new(&candidate).exists(),
                };
                if found {
                    *path = candidate;
                } else if !Path::new(path).exists()
                    && (glob::special(path).is_none() || !has_match(path).await)
                {
                    let message = format!("no file or folder at {path}: {}", neither(&candidate));
                    return Err(Error::input(message).at(format!("table `{name}`")));
                }
            }
        }
    }
    let checks = pipeline.checks.queries.iter_mut();
    let queries = checks.map(|check| &mut check.query);
    for query in queries.chain([&mut pipeline.transitions.query]) {
        let Query::File(path) = query else { continue };
        let Some(candidate) = candidate(folder, path) else {
            continue;
        };
        if Path::new(&candidate).exists() {
            *path = candidate;
        } else if !Path::new(path).exists() {
            let message = format!("SQL file {path} cannot be read: {}", neither(&candidate));
            return Err(Error::new(Kind::Spec, message));
        }
    }
    if let NamesFrom::Output(location) = &mut pipeline.names.from
        && let Some(candidate) = candidate(folder, location)
        && Path::new(&candidate).join("current.json").exists()
    {
        *location = candidate;
    }
    Ok(())
}

/// A relative path, seen from the folder of the pipeline file.
fn candidate(folder: &Path, path: &str) -> Option<String> {
    let is_relative = !path.contains("://") && Path::new(path).is_relative();
    let beside = is_relative.then(|| folder.join(path))?;
    beside.into_os_string().into_string().ok()
}

fn neither(candidate: &str) -> String {
    let current = std::env::current_dir().unwrap_or_default();
    format!(
        "neither beside the pipeline file ({candidate}) nor in the current folder ({})",
        current.display()
    )
}

/// Whether a pattern has a match on disk.
async fn has_match(path: &str) -> bool {
    let Ok(place) = Place::of(path) else {
        return false;
    };
    let disk: Arc<dyn ObjectStore> = Arc::new(LocalFiles::default());
    let found = glob::list(&disk, &place.path, place.pattern.as_ref()).await;
    found.is_ok_and(|found| !found.files.is_empty())
}
