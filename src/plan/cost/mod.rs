//! What a run needs: memory, passes over the counts, and stages.

pub mod machines;
pub mod memory;
pub mod passes;
pub mod stages;
