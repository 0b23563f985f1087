//! The tag of a resample group, kept in the spare bits of a state.

use crate::error::Error;
use crate::read::rows::keys::NONE;

/// Hashes beside each group, as a power of two.
pub(crate) const SPARE_BITS: u32 = 4;

/// The bits of a state id that hold a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) bits: u32,
}

impl Tag {
    pub const NONE: Tag = Tag { bits: 0 };

    pub fn for_groups(most: usize) -> Tag {
        Tag {
            bits: most.next_power_of_two().ilog2() + SPARE_BITS,
        }
    }

    /// The state without its group.
    #[inline(always)]
    pub fn state(self, tagged: u32) -> u32 {
        tagged >> self.bits
    }

    pub fn group(self, tagged: u32) -> u32 {
        tagged & ((1 << self.bits) - 1)
    }

    pub fn with(self, state: u32, group: u32) -> u32 {
        state << self.bits | group
    }

    /// States whose ids leave room for a group: the last one is kept apart from `NONE`.
    pub fn room(self) -> u32 {
        NONE >> self.bits
    }

    /// The id with another number for its state.
    pub fn renumbered(self, tagged: u32, number: impl Fn(u32) -> u32) -> u32 {
        if tagged == NONE {
            return NONE;
        }
        self.with(number(self.state(tagged)), self.group(tagged))
    }
}

pub(crate) fn too_many_states(tag: Tag) -> Error {
    Error::input(format!(
        "states are numbered beyond {}, which leaves no room for their groups of trajectories; coarsen the states or lower `validation.groups`",
        tag.room()
    ))
}
