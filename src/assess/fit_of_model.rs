//! A fit of a model, with what is known of it.

use crate::assess::bootstrap::ResampledNumbers;
use crate::assess::certificates::Certificate;
use serde::{Deserialize, Serialize};

/// A fit of one partition and lag.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct FitOfModel<T> {
    /// The name of the fit.
    pub name: String,
    /// The name of its method.
    pub method: String,
    /// What the method makes of the evidence.
    pub model: T,
    /// Claims about the numbers of the fit.
    pub certificates: Vec<Certificate>,
    /// The bootstrap, if the pipeline asks for resamples.
    pub bootstrap: Option<ResampledNumbers>,
    /// What makes the fit doubtful.
    pub warnings: Vec<String>,
}

impl<T> FitOfModel<T> {
    /// The fits, ordered by name.
    pub(crate) fn by_name(fits: &[FitOfModel<T>]) -> Vec<&FitOfModel<T>> {
        let mut fits: Vec<&FitOfModel<T>> = fits.iter().collect();
        fits.sort_by_key(|fit| fit.name.as_str());
        fits
    }
}
