// SPDX-License-Identifier: GPL-2.0

//! The log's runtime state: segments in memory and the streams that they belong to.

use super::error::Result;
use super::format::entry::Entry;
use super::format::segment::{self, Item, Layout, SummaryEntry};
use super::limits::{Config, OTHER_SEGMENTS};
use super::queue::Queue;
use super::units::{ZoneId, UNITS_PER_BLOCK, UNIT_BYTES, ZONE_NONE};
use super::zones::StreamKind;
use crate::mem::{try_vec, Vec};

/// Number of a segment in memory; also the number of its buffer.
pub type SegmentId = u16;

/// Where a segment is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentState {
    /// Unused.
    Free,
    /// Collects fragments.
    Open,
    /// Takes no more fragments; waits for reserved ones and for its turn.
    Sealed,
    /// On its way to the lower device.
    Writing,
    /// User data that is written, but behind a segment of its zone that is not.
    Written,
    /// Written, but a reader still copies from its buffer.
    Draining,
}

/// A segment in memory.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// State.
    pub state: SegmentState,
    /// Its stream.
    pub kind: StreamKind,
    /// Its zone.
    pub zone: ZoneId,
    /// First block in the zone.
    pub start: u32,
    /// Blocks that it may take at most.
    pub limit: u32,
    /// Units filled, header included.
    pub fill: u32,
    /// Entries, reserved ones included.
    pub entries: u32,
    /// Reserved slots that are not committed yet.
    pub reserved: u32,
    /// Sequence number in its stream.
    pub sequence: u64,
    /// Base of its operation numbers.
    pub op_base: u64,
    /// Whether it must be durable when its write completes.
    pub durable: bool,
    /// Length once sealed.
    pub blocks: u32,
    /// Lower writes outstanding.
    pub writes: u8,
    /// Lower writes that failed in this attempt.
    pub failed: u8,
    /// Attempts that failed.
    pub attempts: u8,
    /// Readers of its buffer.
    pub pins: u32,
}

impl Segment {
    const FREE: Segment = Segment {
        state: SegmentState::Free,
        kind: StreamKind::User,
        zone: ZONE_NONE,
        start: 0,
        limit: 0,
        fill: 0,
        entries: 0,
        reserved: 0,
        sequence: 0,
        op_base: 0,
        durable: false,
        blocks: 0,
        writes: 0,
        failed: 0,
        attempts: 0,
        pins: 0,
    };

    /// Whether `units` more in one more entry fit.
    pub fn fits(&self, units: u32, entries: u32) -> bool {
        (self.entries + entries) as usize <= segment::ENTRIES_MAX
            && Layout::plan(self.fill + units, self.entries + entries).blocks <= self.limit
    }

    /// Offset of the segment's start in its zone, in units.
    pub fn base(&self) -> u32 {
        self.start * UNITS_PER_BLOCK
    }

    /// Whether the unit at `offset` of `zone` is served from this segment's buffer.
    pub fn holds(&self, zone: ZoneId, offset: u32) -> bool {
        matches!(
            self.state,
            SegmentState::Open
                | SegmentState::Sealed
                | SegmentState::Writing
                | SegmentState::Written
        ) && self.zone == zone
            && offset >= self.base()
            && offset < self.base() + self.fill
    }
}

/// A stream: an open zone and the segments that go into it.
pub struct Stream {
    /// Its kind.
    pub kind: StreamKind,
    /// The open zone.
    pub zone: ZoneId,
    /// The zone of the second copy.
    pub mirror: ZoneId,
    /// First block of the zone that no segment has taken.
    pub cursor: u32,
    /// The open segment.
    pub open: Option<SegmentId>,
    /// Sealed segments in order, not yet issued.
    pub queue: Queue<SegmentId>,
    /// Sequence number of the next segment.
    pub next_sequence: u64,
}

/// All segments and streams.
pub struct Log {
    /// Segments by number.
    pub segments: Vec<Segment>,
    entries: Vec<[u8; UNIT_BYTES]>,
    /// For segments of garbage collection: the entry that each fragment replaces, and for which
    /// of the extent's blocks.
    pub sources: Vec<(Entry, u32)>,
    /// Streams by `StreamKind::index`.
    pub streams: [Stream; 3],
    /// The zone that takes segments whose writes failed elsewhere, and its next free block.
    pub rescue: (ZoneId, u32),
    user_segments: usize,
}

impl Log {
    /// An idle log.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`.
    pub fn new(config: &Config) -> Result<Log> {
        let count = config.segments();
        let stream = |kind| -> Result<Stream> {
            Ok(Stream {
                kind,
                zone: ZONE_NONE,
                mirror: ZONE_NONE,
                cursor: 0,
                open: None,
                queue: Queue::new(count, 0)?,
                next_sequence: 1,
            })
        };
        Ok(Log {
            segments: try_vec(count, Segment::FREE)?,
            entries: try_vec(count * segment::ENTRIES_MAX, [0; UNIT_BYTES])?,
            sources: try_vec(OTHER_SEGMENTS * segment::ENTRIES_MAX, (Entry::UNMAPPED, 0))?,
            streams: [
                stream(StreamKind::User)?,
                stream(StreamKind::Gc)?,
                stream(StreamKind::Metadata)?,
            ],
            rescue: (ZONE_NONE, 0),
            user_segments: config.user_segments,
        })
    }

    /// The numbers of a stream's segments.
    pub fn range(&self, kind: StreamKind) -> core::ops::Range<usize> {
        let user = self.user_segments;
        match kind {
            StreamKind::User => 0..user,
            StreamKind::Gc => user..user + OTHER_SEGMENTS,
            StreamKind::Metadata => user + OTHER_SEGMENTS..user + 2 * OTHER_SEGMENTS,
        }
    }

    /// A stream.
    pub fn stream(&self, kind: StreamKind) -> &Stream {
        let [user, gc, metadata] = &self.streams;
        match kind {
            StreamKind::User => user,
            StreamKind::Gc => gc,
            StreamKind::Metadata => metadata,
        }
    }

    /// A stream, to be changed.
    pub fn stream_mut(&mut self, kind: StreamKind) -> &mut Stream {
        let [user, gc, metadata] = &mut self.streams;
        match kind {
            StreamKind::User => user,
            StreamKind::Gc => gc,
            StreamKind::Metadata => metadata,
        }
    }

    /// A segment.
    pub fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.segments.get(usize::from(id))
    }

    /// A segment, to be changed.
    pub fn get_mut(&mut self, id: SegmentId) -> Option<&mut Segment> {
        self.segments.get_mut(usize::from(id))
    }

    /// A free segment of a stream.
    pub fn free(&self, kind: StreamKind) -> Option<SegmentId> {
        self.range(kind)
            .find(|at| {
                self.segments
                    .get(*at)
                    .is_some_and(|segment| segment.state == SegmentState::Free)
            })
            .map(|at| at as SegmentId)
    }

    /// The segments of a stream that are in use.
    pub fn active(&self, kind: StreamKind) -> impl Iterator<Item = &Segment> {
        let range = self.range(kind);
        self.segments
            .get(range)
            .unwrap_or(&[])
            .iter()
            .filter(|segment| !matches!(segment.state, SegmentState::Free | SegmentState::Draining))
    }

    /// Starts a segment in a free slot.
    pub fn start(&mut self, id: SegmentId, fresh: Segment) {
        if let Some(slot) = self.segments.get_mut(usize::from(id)) {
            *slot = fresh;
        }
    }

    /// A segment that is about to collect fragments.
    pub fn fresh(kind: StreamKind, zone: ZoneId, start: u32, limit: u32) -> Segment {
        Segment {
            state: SegmentState::Open,
            kind,
            zone,
            start,
            limit,
            fill: segment::HEADER_UNITS,
            ..Segment::FREE
        }
    }

    /// Frees a segment's slot.
    pub fn release(&mut self, id: SegmentId) {
        if let Some(segment) = self.segments.get_mut(usize::from(id)) {
            segment.state = if segment.pins > 0 {
                SegmentState::Draining
            } else {
                SegmentState::Free
            };
        }
    }

    /// Sets entry `at` of a segment's summary.
    pub fn set_entry(&mut self, id: SegmentId, at: u32, entry: &SummaryEntry) {
        let at = usize::from(id) * segment::ENTRIES_MAX + at as usize;
        if let Some(room) = self.entries.get_mut(at) {
            *room = entry.encode();
        }
    }

    /// A segment's summary entries, encoded.
    pub fn summary(&self, id: SegmentId) -> &[[u8; UNIT_BYTES]] {
        let first = usize::from(id) * segment::ENTRIES_MAX;
        let count = self.get(id).map_or(0, |segment| segment.entries as usize);
        self.entries.get(first..first + count).unwrap_or(&[])
    }

    /// What entry `at` of a segment says, and the units of its fragment.
    pub fn entry(&self, id: SegmentId, at: u32) -> Option<(Item, u32)> {
        let raw = self.summary(id).get(at as usize)?;
        SummaryEntry::decode(raw).map(|entry| (entry.item, entry.units))
    }

    /// Index into `sources` of entry `at` of a garbage collection segment.
    pub fn source_index(&self, id: SegmentId, at: u32) -> usize {
        usize::from(id).saturating_sub(self.user_segments) * segment::ENTRIES_MAX + at as usize
    }

    /// All user segments numbered below are on the lower device, durable or not.
    pub fn completed(&self) -> u64 {
        self.active(StreamKind::User)
            .map(|segment| segment.sequence)
            .min()
            .unwrap_or(self.stream(StreamKind::User).next_sequence)
    }

    /// The first user segment of a zone that is issued and not done with.
    pub fn first_issued(&self, zone: ZoneId) -> Option<SegmentId> {
        let issued = |state| matches!(state, SegmentState::Writing | SegmentState::Written);
        self.range(StreamKind::User)
            .filter_map(|at| Some((at, self.segments.get(at)?)))
            .filter(|(_, segment)| segment.zone == zone && issued(segment.state))
            .min_by_key(|(_, segment)| segment.start)
            .map(|(at, _)| at as SegmentId)
    }

    /// The segment whose buffer holds the unit at `offset` of `zone`.
    pub fn holder(&self, zone: ZoneId, offset: u32) -> Option<SegmentId> {
        self.segments
            .iter()
            .position(|segment| segment.holds(zone, offset))
            .map(|at| at as SegmentId)
    }
}
