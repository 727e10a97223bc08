// SPDX-License-Identifier: GPL-2.0

//! Step 3 of a write: FLUSH and FUA (crash rule 8).
//!
//! A flush waits until every user segment numbered below its target is durable. Pending data goes
//! out as one segment that is written with PREFLUSH and FUA once all lower-numbered segments have
//! completed; flushes that arrive meanwhile share the next one. Without pending data a lower
//! flush is issued; a waiting flush never joins one that was issued before its data completed.

use super::error::{Error, Result};
use super::io::{Action, Buffers, RequestId};
use super::log::SegmentState;
use super::planted::Bug;
use super::state::{Engine, Pending};
use super::zones::StreamKind;

impl Engine {
    /// Completes `request` when all that was committed before is durable.
    pub fn flush<B: Buffers>(&mut self, buffers: &mut B, request: RequestId) {
        self.stats.flushes += 1;
        if self.poisoned.is_some() {
            let result = Err(Error::Poisoned);
            self.act(Action::Complete { request, result });
            return;
        }
        let stream = self.log.stream(StreamKind::User);
        let target = match stream.open.and_then(|id| self.log.get(id)) {
            Some(open) if open.entries > 0 => open.sequence + 1,
            Some(open) => open.sequence,
            None => stream.next_sequence,
        };
        if !self.flush_waiters.push((request, target)) {
            self.poison("more flushes wait than requests exist");
        }
        self.pump_flushes(buffers);
    }

    /// Completes flushes that are satisfied and starts what the others need.
    pub(super) fn pump_flushes<B: Buffers>(&mut self, buffers: &mut B) {
        if self.flush_waiters.is_empty() {
            return;
        }
        self.complete_flushes(Ok(()));
        let Some(target) = self.highest_target() else {
            return;
        };
        let open = self.log.stream(StreamKind::User).open;
        let pending = open
            .and_then(|id| self.log.get(id))
            .is_some_and(|segment| segment.sequence < target);
        let under_way = self
            .log
            .active(StreamKind::User)
            .any(|segment| segment.durable && segment.state != SegmentState::Open);
        if pending {
            // One at a time: what arrives while it is under way goes out together.
            if !under_way {
                self.seal_open(buffers, StreamKind::User, true);
            }
            return;
        }
        let lowest = (0..self.flush_waiters.len())
            .filter_map(|at| self.flush_waiters.get(at))
            .map(|(_, target)| target)
            .min()
            .unwrap_or(target);
        if under_way || self.flushing || self.log.completed() < lowest {
            return;
        }
        let mut covers = self.log.completed();
        if crate::planted::active(Bug::LateJoin) {
            covers = self.log.stream(StreamKind::User).next_sequence;
        }
        if let Some(token) = self.token(Pending::Flush { covers }) {
            self.flushing = true;
            self.act(Action::Flush { token });
        }
    }

    fn highest_target(&self) -> Option<u64> {
        (0..self.flush_waiters.len())
            .filter_map(|at| self.flush_waiters.get(at))
            .map(|(_, target)| target)
            .max()
    }

    /// Records that user segments numbered below `sequence` are durable.
    pub(super) fn raise_durable(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence);
    }

    fn complete_flushes(&mut self, result: Result) {
        for _ in 0..self.flush_waiters.len() {
            let Some((request, target)) = self.flush_waiters.pop() else {
                return;
            };
            if target <= self.durable || result.is_err() {
                self.act(Action::Complete { request, result });
            } else {
                self.flush_waiters.push((request, target));
            }
        }
    }

    /// Fails every waiting flush: the volume is read-only from now on.
    pub(super) fn fail_flushes(&mut self) {
        self.complete_flushes(Err(Error::Poisoned));
    }

    pub(super) fn flush_done<B: Buffers>(&mut self, buffers: &mut B, covers: u64, result: Result) {
        self.flushing = false;
        match result {
            Ok(()) => self.raise_durable(covers),
            Err(error) => {
                self.stats.io_errors += 1;
                // The device may have dropped what it held: none of it can be promised any more.
                self.complete_flushes(Err(error));
                self.poison("the lower device failed a flush");
            }
        }
        self.pump_flushes(buffers);
    }
}
