//! Methods whose embedding is vectors of a decomposition: singular vectors, whose clusters are hard
//! or soft, and Schur vectors.

pub mod basis;
pub mod coherent_pairs;
pub mod crispness;
pub mod gpcca;
pub mod kmeans;
pub mod pcca;
pub mod seba;
pub mod soft;
pub mod softened;
pub mod svd;
pub mod truncated_svd;
