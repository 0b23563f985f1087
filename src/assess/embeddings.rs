//! Certificates of state embeddings: facts about singular values, checked on the computed numbers.

use crate::assess::certificates::Certificate;
use crate::methods::state_embedding::model::StateEmbeddingModel;

/// The certificates of a state embedding, ordered by name.
pub(crate) fn of_embedding(model: &StateEmbeddingModel) -> Vec<Certificate> {
    let (values, tolerance) = (&model.singular_values, model.rounding);
    let rise = values.windows(2).map(|w| w[1] - w[0]);
    // With one value, there is nothing to compare.
    let rise = rise.max_by(f64::total_cmp).unwrap_or(-1.0);
    let mut list = vec![Certificate::at_most("descending", rise, 0.0, tolerance)];
    if let Some(constant) = model.constant {
        // Means of the starts, of the ends and of the pairs are three sums.
        let name = "first_singular_value";
        list.push(Certificate::equal(name, constant, 1.0, tolerance));
    }
    list
}
