// SPDX-License-Identifier: GPL-2.0

//! Step 4 of a write: what follows when lower I/O completes or fails.

use super::checkpoint::Phase;
use super::error::{Error, Result};
use super::format::entry::Entry;
use super::format::fragment::Identity;
use super::format::segment::Item;
use super::io::{Action, Buffers, Token};
use super::limits::{DISCARDS_MAX, REISSUES_MAX};
use super::log::{Segment, SegmentId, SegmentState};
use super::planted::Bug;
use super::state::{Engine, Pending};
use super::stats::Notice;
use super::units::{Place, ZoneId, BLOCK_BYTES};
use super::zones::{StreamKind, ZoneState};

impl Engine {
    /// Reports a lower I/O. Every token is reported exactly once.
    pub fn io_done<B: Buffers>(&mut self, buffers: &mut B, token: Token, result: Result) {
        match self.redeem(token) {
            Pending::Idle => self.poison("an I/O completed that was not outstanding"),
            Pending::Segment { id, zone } => self.copy_done(buffers, id, zone, result),
            Pending::Page { load, part } => self.part_done(buffers, load, part, result.is_ok()),
            Pending::Flush { covers } => self.flush_done(buffers, covers, result),
            Pending::Root => self.root_done(buffers, result),
            Pending::Collect => self.chunk_read(buffers, result),
            Pending::Discard { zone } => self.discard_done(zone),
        }
    }

    fn copy_done<B: Buffers>(
        &mut self,
        buffers: &mut B,
        id: SegmentId,
        zone: ZoneId,
        result: Result,
    ) {
        let ignored = crate::planted::active(Bug::IgnoreWriteError);
        let failed = result.is_err() && !ignored;
        if failed {
            self.stats.io_errors += 1;
        }
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        segment.writes = segment.writes.saturating_sub(1);
        segment.failed += u8::from(failed);
        let segment = *segment;
        let copies_left = segment.writes > 0;
        if failed && segment.kind == StreamKind::Metadata {
            self.notify(Notice::CopyLost { zone });
            self.close_metadata_zone(segment.zone);
        }
        if copies_left {
            return;
        }
        let mirrored = self
            .zones
            .get(segment.zone)
            .is_some_and(|zone| zone.mirror != super::units::ZONE_NONE);
        let copies = if segment.kind == StreamKind::Metadata && mirrored {
            2
        } else {
            1
        };
        if segment.failed < copies && !self.is_behind_failure(&segment) {
            self.segment_written(buffers, id);
        } else {
            self.segment_failed(buffers, id);
        }
    }

    fn segment_written<B: Buffers>(&mut self, buffers: &mut B, id: SegmentId) {
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        let (kind, zone) = (segment.kind, segment.zone);
        match kind {
            StreamKind::User => {
                segment.state = SegmentState::Written;
                self.finish_in_order(zone);
                self.pump_stream(buffers, StreamKind::User);
                self.pump_flushes(buffers);
                self.wake_writers();
            }
            StreamKind::Gc => {
                self.apply_moves(id, true);
                self.finish_segment_in(zone, id);
            }
            StreamKind::Metadata => self.finish_segment_in(zone, id),
        }
    }

    /// Lets go of a zone's written user segments as far as none before them is missing.
    ///
    /// Recovery follows a zone from its start. If a write fails, what lies behind it would not be
    /// found, so it is kept until then and written elsewhere as well.
    fn finish_in_order(&mut self, zone: ZoneId) {
        while let Some(id) = self.log.first_issued(zone) {
            let Some(segment) = self.log.get(id).copied() else {
                return;
            };
            if segment.state != SegmentState::Written {
                return;
            }
            self.finish_segment_in(zone, id);
            if segment.durable {
                self.raise_durable(segment.sequence + 1);
            }
        }
    }

    fn finish_segment_in(&mut self, zone: ZoneId, id: SegmentId) {
        if let Some(zone) = self.zones.get_mut(zone) {
            zone.writes = zone.writes.saturating_sub(1);
        }
        self.log.release(id);
    }

    /// Whether an earlier write to the segment's zone has failed.
    fn is_behind_failure(&self, segment: &Segment) -> bool {
        segment.kind == StreamKind::User
            && self
                .zones
                .get(segment.zone)
                .is_some_and(|zone| zone.broken_at < segment.start)
    }

    fn segment_failed<B: Buffers>(&mut self, buffers: &mut B, id: SegmentId) {
        let Some(segment) = self.log.get_mut(id) else {
            return;
        };
        segment.attempts += 1;
        let segment = *segment;
        self.notify(Notice::WriteReissued { zone: segment.zone });
        match segment.kind {
            StreamKind::User => {
                if let Some(zone) = self.zones.get_mut(segment.zone) {
                    zone.broken_at = zone.broken_at.min(segment.start);
                }
                self.move_segment(buffers, id);
                // What was written behind it follows, in order.
                while let Some(next) = self.log.first_issued(segment.zone) {
                    let behind = self.log.get(next).is_some_and(|next| {
                        next.state == SegmentState::Written && self.is_behind_failure(next)
                    });
                    if !behind {
                        break;
                    }
                    self.move_segment(buffers, next);
                }
            }
            StreamKind::Gc => {
                // Nothing points here yet: the survivors are still where they were.
                self.apply_moves(id, false);
                if self.log.stream(StreamKind::Gc).zone == segment.zone {
                    self.seal_open(buffers, StreamKind::Gc, false);
                    self.drop_empty_segment(StreamKind::Gc);
                    self.close_zone(StreamKind::Gc);
                }
                if let Some(zone) = self.zones.get_mut(segment.zone) {
                    zone.writes = zone.writes.saturating_sub(1);
                }
                self.log.release(id);
                self.collector.failed_moves = true;
            }
            StreamKind::Metadata => {
                if let Some(zone) = self.zones.get_mut(segment.zone) {
                    zone.writes = zone.writes.saturating_sub(1);
                }
                self.log.release(id);
                self.abort_checkpoint();
            }
        }
    }

    fn move_segment<B: Buffers>(&mut self, buffers: &mut B, id: SegmentId) {
        let Some(segment) = self.log.get(id).copied() else {
            return;
        };
        let moved = segment.attempts <= REISSUES_MAX && self.reissue(buffers, id);
        if !moved {
            self.poison("user data could not be written anywhere");
            self.log.release(id);
        }
    }

    /// A copy of a metadata segment failed: the zone takes no more.
    fn close_metadata_zone(&mut self, zone: ZoneId) {
        if self.log.stream(StreamKind::Metadata).zone == zone {
            self.checkpoint.close_metadata = true;
        }
    }

    /// Redirects the entries of a fragment that was moved from `from` to `to` before anything
    /// else could point to it.
    pub(super) fn redirect(&mut self, item: Item, units: u32, from: Place, to: Place) {
        let Item::Fragment(Identity::Data { lbn, log2, .. }) = item else {
            return;
        };
        let entries = (
            Entry::mapped(self.geometry.location(from), units, log2),
            Entry::mapped(self.geometry.location(to), units, log2),
        );
        let (Some(old), Some(new)) = entries else {
            return;
        };
        for block in lbn..lbn + (1 << log2) {
            let in_active = self.active.points.replace(block, old, new);
            let in_frozen =
                !in_active && self.checkpoint.frozen && self.frozen.points.replace(block, old, new);
            if in_active || in_frozen {
                let share = old.share(block);
                self.zones.add_live(to.zone, share);
                self.kill(block, old);
                if in_frozen {
                    // The cut has counted the block where it was.
                    if let Some(zone) = self.zones.get_mut(to.zone) {
                        zone.cut_live += share;
                    }
                    if let Some(zone) = self.zones.get_mut(from.zone) {
                        zone.cut_live = zone.cut_live.saturating_sub(share);
                    }
                }
            }
        }
    }

    /// Discards freed zones on the lower device, a few at a time.
    pub(super) fn pump_discards(&mut self) {
        if !self.discards_wanted {
            return;
        }
        while self.discards < DISCARDS_MAX {
            let found = self
                .zones
                .iter()
                .find(|(_, zone)| zone.state == ZoneState::Discarding && zone.pins == 0)
                .map(|(id, _)| id);
            let Some(zone) = found else {
                self.discards_wanted = self.discards > 0;
                return;
            };
            if !self.config.discard {
                self.zones.set_state(zone, ZoneState::Free);
                self.wake_writers();
                continue;
            }
            let Some(token) = self.token(Pending::Discard { zone }) else {
                return;
            };
            // Counted as held, so that it is not found again.
            self.zones.pin(zone);
            self.discards += 1;
            let address = self.geometry.byte_address(zone, 0);
            let bytes = u64::from(self.geometry.zone_blocks) * BLOCK_BYTES as u64;
            self.act(Action::Discard {
                token,
                address,
                bytes,
            });
        }
    }

    fn discard_done(&mut self, zone: ZoneId) {
        self.discards = self.discards.saturating_sub(1);
        self.zones.unpin(zone);
        self.zones.set_state(zone, ZoneState::Free);
        self.discards_wanted = true;
        self.pump_discards();
        self.wake_writers();
    }

    /// One bounded slice of background work: checkpoint, garbage collection, discards. The driver
    /// calls it after every completion and tick; answers whether another slice would do more.
    pub fn run<B: Buffers>(&mut self, buffers: &mut B) -> bool {
        self.pump_discards();
        let more = self.step_checkpoint(buffers);
        let collecting = self.step_collector(buffers);
        self.pump_flushes(buffers);
        more || collecting
    }

    /// Time passes: seals what has been waiting in open segments.
    ///
    /// To be called about once a second.
    pub fn tick<B: Buffers>(&mut self, buffers: &mut B) {
        if self.poisoned.is_none() {
            self.seal_open(buffers, StreamKind::User, false);
            if self.checkpoint.phase == Phase::Idle
                && self.log.stream(StreamKind::Gc).open.is_some()
            {
                self.seal_open(buffers, StreamKind::Gc, false);
            }
        }
    }

    /// Whether [`Engine::next_action`] has something.
    pub fn has_actions(&self) -> bool {
        !self.actions.is_empty()
    }

    /// Tokens are numbered below this.
    pub fn token_count(&self) -> usize {
        self.tokens.len()
    }

    /// Whether a request may be in flight inside the engine: used by the driver at detach.
    pub fn is_quiet(&self) -> bool {
        self.free_token_count == self.tokens.len()
            && self.actions.is_empty()
            && self.checkpoint.phase == Phase::Idle
    }

    pub(super) fn io_error(&mut self, error: Error) {
        if error == Error::Io {
            self.stats.io_errors += 1;
        }
    }

    /// Whether a segment of a stream is on its way, other than an open one.
    pub(super) fn stream_busy(&self, kind: StreamKind) -> bool {
        self.log
            .active(kind)
            .any(|segment| segment.state != SegmentState::Open)
    }
}
