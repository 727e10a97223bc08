// SPDX-License-Identifier: GPL-2.0

//! The zone table: 32 bytes per zone, 128 zones per page.
//!
//! | bytes | field |
//! |---|---|
//! | 0–3 | incarnation |
//! | 4–7 | live units, zone-table pages not counted |
//! | 8–11 | the zone that holds the second copy, or whose second copy this is; `ffffffff`: none |
//! | 12 | state: 0 free, 1 superblock, 2 open, 3 full, 4 mirror of another, 5 unusable |
//! | 13 | kind: 0 none, 1 user, 2 garbage collection, 3 metadata |
//! | 14–15 | zero |
//! | 16–23 | operation number when it was opened |
//! | 24–31 | operation number when it was filled |

use super::{get_u32, get_u64, put};
use crate::engine::units::{ZoneId, ZONE_NONE};

/// Bytes of a record.
pub const RECORD_BYTES: usize = 32;
/// Records of a page.
pub const RECORDS_PER_PAGE: u32 = 128;
/// Bytes of a page.
pub const PAGE_BYTES: usize = RECORD_BYTES * RECORDS_PER_PAGE as usize;

/// A zone's state as recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordState {
    /// Holds nothing.
    Free,
    /// Holds roots.
    Superblock,
    /// Was being filled.
    Open,
    /// Holds data.
    Full,
    /// Holds the second copy of another zone.
    Mirror,
    /// Must not be used.
    Unusable,
}

/// What kind of segments a zone holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// None.
    None,
    /// User writes.
    User,
    /// Survivors of garbage collection.
    Gc,
    /// Metadata.
    Metadata,
}

/// A zone's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneRecord {
    /// How often the zone has been opened.
    pub incarnation: u32,
    /// Units that the map refers to.
    pub live: u32,
    /// The other zone of a mirrored pair, or [`ZONE_NONE`].
    pub mirror: ZoneId,
    /// State.
    pub state: RecordState,
    /// Kind of the segments in it.
    pub kind: RecordKind,
    /// Operation number when it was opened.
    pub opened_op: u64,
    /// Operation number when it was filled.
    pub filled_op: u64,
}

impl ZoneRecord {
    /// The record of a zone that was never used.
    pub const FREE: ZoneRecord = ZoneRecord {
        incarnation: 0,
        live: 0,
        mirror: ZONE_NONE,
        state: RecordState::Free,
        kind: RecordKind::None,
        opened_op: 0,
        filled_op: 0,
    };

    /// The record's bytes.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let state = match self.state {
            RecordState::Free => 0,
            RecordState::Superblock => 1,
            RecordState::Open => 2,
            RecordState::Full => 3,
            RecordState::Mirror => 4,
            RecordState::Unusable => 5,
        };
        let kind = match self.kind {
            RecordKind::None => 0,
            RecordKind::User => 1,
            RecordKind::Gc => 2,
            RecordKind::Metadata => 3,
        };
        let mut out = [0; RECORD_BYTES];
        put(&mut out, 0, &self.incarnation.to_le_bytes());
        put(&mut out, 4, &self.live.to_le_bytes());
        put(&mut out, 8, &self.mirror.to_le_bytes());
        put(&mut out, 12, &[state, kind]);
        put(&mut out, 16, &self.opened_op.to_le_bytes());
        put(&mut out, 24, &self.filled_op.to_le_bytes());
        out
    }

    /// Decodes a record; `None` if it is malformed.
    pub fn decode(bytes: &[u8]) -> Option<ZoneRecord> {
        let raw = bytes.first_chunk::<RECORD_BYTES>()?;
        Some(ZoneRecord {
            incarnation: get_u32(raw, 0),
            live: get_u32(raw, 4),
            mirror: get_u32(raw, 8),
            state: match raw[12] {
                0 => RecordState::Free,
                1 => RecordState::Superblock,
                2 => RecordState::Open,
                3 => RecordState::Full,
                4 => RecordState::Mirror,
                5 => RecordState::Unusable,
                _ => return None,
            },
            kind: match raw[13] {
                0 => RecordKind::None,
                1 => RecordKind::User,
                2 => RecordKind::Gc,
                3 => RecordKind::Metadata,
                _ => return None,
            },
            opened_op: get_u64(raw, 16),
            filled_op: get_u64(raw, 24),
        })
    }
}
