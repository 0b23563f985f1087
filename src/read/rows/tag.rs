//! The tag of a resample group, which the low bits of a state id hold.

use crate::error::Error;
use crate::read::rows::keys::NONE;

/// Hashes per group, as a power of two: 2^4 = 16.
pub(crate) const SPARE_BITS: u32 = 4;

/// The number of low bits of a state id that hold a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) bits: u32,
}

impl Tag {
    /// No groups.
    pub(crate) const NONE: Tag = Tag { bits: 0 };

    /// A tag with room for the hashes of `most` groups.
    pub(crate) fn for_groups(most: usize) -> Tag {
        Tag {
            bits: most.next_power_of_two().ilog2() + SPARE_BITS,
        }
    }

    /// The state without its group.
    #[inline(always)]
    pub(crate) fn state(self, tagged: u32) -> u32 {
        tagged >> self.bits
    }

    /// The group of a tagged state.
    pub(crate) fn group(self, tagged: u32) -> u32 {
        tagged & ((1 << self.bits) - 1)
    }

    /// The state with a group.
    pub(crate) fn with(self, state: u32, group: u32) -> u32 {
        state << self.bits | group
    }

    /// Number of states whose ids leave room for a group, without the last one, which would collide
    /// with `NONE`.
    pub(crate) fn room(self) -> u32 {
        NONE >> self.bits
    }

    /// The tagged id with another number for its state.
    pub(crate) fn renumbered(self, tagged: u32, number: impl Fn(u32) -> u32) -> u32 {
        if tagged == NONE {
            return NONE;
        }
        self.with(number(self.state(tagged)), self.group(tagged))
    }
}

/// The error for states that leave no room for groups.
pub(crate) fn too_many_states(tag: Tag) -> Error {
    Error::input(format!(
        "states are numbered beyond {}, which leaves no room for their groups of trajectories; coarsen the states or lower `validation.groups`",
        tag.room()
    ))
}
