// SPDX-License-Identifier: GPL-2.0

//! Reading: from blocks to fragments, and back to verified bytes.
//!
//! The driver calls `lookup` under the engine lock, reads and verifies outside it
//! ([`ReadPiece::device_range`], [`ReadPiece::open`]), and calls `release` for every piece. Until
//! then the piece's zone or buffer stays as it is.

use super::format::entry::{Entry, EntryKind};
use super::format::fragment::{self, Codec, Identity};
use super::io::{BufferId, Buffers, RequestId};
use super::load::Current;
use super::log::{SegmentId, SegmentState};
use super::planted::Bug;
use super::state::Engine;
use super::stats::Notice;
use super::units::{ZoneId, BLOCK_BYTES, UNIT_BYTES};

/// Where a block's data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nowhere: it reads as zeros.
    Zeros,
    /// Lost: it reads as an I/O error.
    Lost,
    /// In a segment buffer, from this byte on.
    Memory {
        /// The buffer.
        buffer: BufferId,
        /// Offset of the fragment in bytes.
        at: usize,
    },
    /// On the lower device, from this byte on.
    Device {
        /// Address of the fragment in bytes.
        address: u64,
    },
}

/// One block of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPiece {
    /// The block.
    pub lbn: u64,
    /// Where its fragment is.
    pub source: Source,
    /// Bytes of the fragment.
    pub bytes: usize,
    entry: Entry,
    seed: u64,
    zone: ZoneId,
    segment: Option<SegmentId>,
}

impl ReadPiece {
    /// A piece to fill arrays with.
    pub const EMPTY: ReadPiece = ReadPiece {
        lbn: 0,
        source: Source::Zeros,
        bytes: 0,
        entry: Entry::UNMAPPED,
        seed: 0,
        zone: 0,
        segment: None,
    };

    /// The blocks of the lower device that hold the fragment: address and length in bytes, and
    /// where in them the fragment starts. `None` unless it is on the device.
    pub fn device_range(&self) -> Option<(u64, usize, usize)> {
        let Source::Device { address } = self.source else {
            return None;
        };
        let skip = address as usize % BLOCK_BYTES;
        let bytes = (skip + self.bytes).next_multiple_of(BLOCK_BYTES);
        Some((address - skip as u64, bytes, skip))
    }

    /// Whether two pieces lie in the same fragment.
    pub fn same_fragment(&self, other: &ReadPiece) -> bool {
        self.entry.is_mapped() && self.entry == other.entry && self.source == other.source
    }

    /// Blocks of the extent.
    pub fn extent_blocks(&self) -> usize {
        1 << self.entry.log2()
    }

    /// Which block of the extent this is.
    pub fn index(&self) -> usize {
        self.lbn as usize & (self.extent_blocks() - 1)
    }

    /// Verifies the fragment and returns its codec and payload. May run without any lock.
    ///
    /// `None`: these are not the bytes that were written here.
    pub fn open<'a>(&self, bytes: &'a [u8]) -> Option<(Codec, &'a [u8])> {
        let first = self.lbn & !(self.extent_blocks() as u64 - 1);
        match fragment::open(bytes, self.seed) {
            Ok((Identity::Data { lbn, log2, codec }, payload))
                if lbn == first && log2 == self.entry.log2() =>
            {
                Some((codec, payload))
            }
            _ => None,
        }
    }
}

/// What a look-up has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// This many pieces, from the first block on; at least one.
    Found(usize),
    /// Nothing yet: wait for `Action::Wake` and look again.
    Wait,
}

impl Engine {
    /// Looks up blocks from `lbn` on, one piece each; may find fewer than `pieces.len()`.
    pub fn lookup<B: Buffers>(
        &mut self,
        buffers: &mut B,
        request: RequestId,
        lbn: u64,
        pieces: &mut [ReadPiece],
    ) -> Lookup {
        for (at, piece) in pieces.iter_mut().enumerate() {
            let block = lbn.saturating_add(at as u64);
            if block >= self.geometry.logical_blocks {
                *piece = ReadPiece {
                    lbn: block,
                    source: Source::Lost,
                    ..ReadPiece::EMPTY
                };
                continue;
            }
            match self.current(buffers, block) {
                Current::Known(entry) => *piece = self.piece(block, entry),
                Current::Loading(_) if at > 0 => return Lookup::Found(at),
                Current::Loading(load) => {
                    self.wait_for_page(request, load);
                    return Lookup::Wait;
                }
            }
        }
        Lookup::Found(pieces.len())
    }

    fn piece(&mut self, lbn: u64, entry: Entry) -> ReadPiece {
        let mut piece = ReadPiece {
            lbn,
            entry,
            bytes: entry.units() as usize * UNIT_BYTES,
            ..ReadPiece::EMPTY
        };
        let place = match entry.kind() {
            EntryKind::Unmapped => return piece,
            EntryKind::Lost => None,
            EntryKind::Mapped => self.place_of(entry),
        };
        let Some(place) = place else {
            piece.source = Source::Lost;
            return piece;
        };
        piece.seed = self.seed(place);
        piece.zone = place.zone;
        if let Some(holder) = self.log.holder(place.zone, place.offset) {
            if let Some(segment) = self.log.get_mut(holder) {
                segment.pins += 1;
                piece.segment = Some(holder);
                piece.source = Source::Memory {
                    buffer: holder,
                    at: (place.offset - segment.base()) as usize * UNIT_BYTES,
                };
            }
            return piece;
        }
        piece.source = Source::Device {
            address: self.geometry.byte_address(place.zone, 0)
                + u64::from(place.offset) * UNIT_BYTES as u64,
        };
        if !crate::planted::active(Bug::ReaderNotPinned) {
            self.zones.pin(place.zone);
        }
        piece
    }

    /// Lets go of a piece. To be called once for each piece that a look-up has found.
    pub fn release(&mut self, piece: &ReadPiece) {
        match piece.source {
            Source::Zeros | Source::Lost => {}
            Source::Memory { .. } => {
                let Some(segment) = piece.segment.and_then(|id| self.log.get_mut(id)) else {
                    return;
                };
                segment.pins = segment.pins.saturating_sub(1);
                if segment.pins == 0 && segment.state == SegmentState::Draining {
                    segment.state = SegmentState::Free;
                    self.wake_writers();
                }
            }
            Source::Device { .. } => {
                if !crate::planted::active(Bug::ReaderNotPinned) {
                    self.unpin_zone(piece.zone);
                    self.pump_discards();
                }
            }
        }
    }

    /// A piece failed to verify or to be read. Answers whether to look it up again: it has been
    /// written or moved meanwhile. To be called before [`Engine::release`].
    pub fn read_failed<B: Buffers>(&mut self, buffers: &mut B, piece: &ReadPiece) -> bool {
        match self.current(buffers, piece.lbn) {
            Current::Known(entry) if entry == piece.entry => {
                self.stats.checksum_errors += 1;
                self.notify(Notice::BadFragment { lbn: piece.lbn });
                false
            }
            _ => true,
        }
    }
}
