//! Closed forms, invariances and the figures of the paper.
