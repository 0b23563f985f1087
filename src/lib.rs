pub mod error;
pub mod math;
pub mod runner;
pub mod shard;
