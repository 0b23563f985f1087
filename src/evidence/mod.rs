//! What methods are fitted to, and parallel passes over it.

pub mod counts;
pub mod lag;
pub mod pass;

use crate::evidence::counts::shards::Shards;

/// What a method eats. Points, pairs of points and ordered sequences join the counts when a method needs them.
#[derive(Debug, Clone, Copy)]
pub enum Evidence<'a> {
    Counts(&'a Shards),
}
