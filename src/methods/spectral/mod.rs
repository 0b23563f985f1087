//! Methods whose embedding is vectors of a decomposition: singular vectors, whose clusters are hard
//! or soft, and Schur vectors.

pub(crate) mod basis;
pub(crate) mod coherent_pairs;
pub(crate) mod crispness;
pub mod gpcca;
pub mod kmeans;
pub(crate) mod pcca;
pub(crate) mod seba;
pub(crate) mod soft;
pub(crate) mod softened;
pub mod svd;
pub mod truncated_svd;
