//! Certificates of filters: claims about the numbers of a fit.

use crate::assess::certificates::Certificate;
use crate::methods::filter::model::Claim;
use std::borrow::Cow;

/// The certificates of the claims of a fit, ordered by name.
pub(crate) fn of_claims(claims: &[Claim]) -> Vec<Certificate> {
    let certificate = |claim: &Claim| Certificate {
        name: Cow::Owned(claim.name.clone()),
        ..Certificate::at_most("", claim.value, claim.bound, 0.0)
    };
    let mut list: Vec<Certificate> = claims.iter().map(certificate).collect();
    list.sort_by(|a, b| a.name.cmp(&b.name));
    list
}
