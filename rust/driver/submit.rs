// SPDX-License-Identifier: GPL-2.0

//! Does what the engine asks for, and tells it when it is done.
//!
//! One work item per volume does all of it, so that I/O is submitted in the order in which the
//! engine asked. Completions only set a bit and queue that item: they may come in interrupts.

use super::{
    queue::{
        self,
        Driver, //
    },
    volume::{
        Core,
        News,
        Volume, //
    }, //
};
use crate::{
    engine::{
        stats::Notice,
        Action,
        Barrier,
        Error as EngineError,
        Token, //
    },
    linux::{
        bio::{
            Complete,
            Done,
            Flags,
            Io,
            Op,
            Payload, //
        },
        block_device::SECTOR_BYTES,
        errno::EOPNOTSUPP,
        memalloc::NoIo,
        request::Request, //
    }, //
};
use kernel::{
    prelude::*,
    sync::{
        atomic::{
            Acquire,
            Atomic,
            Full,
            Relaxed,
            Release, //
        },
        Arc, //
    },
    workqueue::WorkItem, //
};

/// Lines that a volume writes to the log between two ticks.
const LINES_PER_TICK: i32 = 10;

/// Actions done between two times that the lock is taken.
const BATCH: usize = 16;

/// An I/O of the engine's under way, which may be several bios.
struct TokenState {
    bios: Atomic<i32>,
    failed: Atomic<bool>,
}

/// What has completed, and was not reported yet.
pub(super) struct Completions {
    tokens: KVVec<TokenState>,
    /// One bit per token.
    done: KVVec<Atomic<u64>>,
}

impl Completions {
    /// Room for tokens below `tokens`. May sleep.
    pub(super) fn new(tokens: usize) -> Result<Self> {
        let mut states = KVVec::with_capacity(tokens, GFP_KERNEL)?;
        for _ in 0..tokens {
            let state = TokenState {
                bios: Atomic::new(0),
                failed: Atomic::new(false),
            };
            states.push(state, GFP_KERNEL)?;
        }
        let words = tokens.div_ceil(64);
        let mut done = KVVec::with_capacity(words, GFP_KERNEL)?;
        for _ in 0..words {
            done.push(Atomic::new(0), GFP_KERNEL)?;
        }
        Ok(Self {
            tokens: states,
            done,
        })
    }

    /// Expects `bios` bios for a token.
    fn expect(&self, token: Token, bios: i32) {
        if let Some(state) = self.tokens.get(token as usize) {
            state.failed.store(false, Relaxed);
            // Release: pairs with the completion of the last bio.
            state.bios.store(bios, Release);
        }
    }

    /// A bio is done; answers whether it was the token's last. Any context.
    fn bio_done(&self, token: Token, result: Result) -> bool {
        let Some(state) = self.tokens.get(token as usize) else {
            return false;
        };
        if result.is_err() {
            state.failed.store(true, Relaxed);
        }
        // Full: what other bios of the token stored is seen by who takes the bit.
        if state.bios.fetch_sub(1, Full) != 1 {
            return false;
        }
        let Some(word) = self.done.get(token as usize / 64) else {
            return false;
        };
        let bit = 1u64 << (token % 64);
        let mut bits = word.load(Relaxed);
        while let Err(now) = word.cmpxchg(bits, bits | bit, Full) {
            bits = now;
        }
        true
    }

    /// Reports to the engine what has completed; answers whether anything had.
    fn report(&self, core: &mut Core) -> bool {
        let mut any = false;
        for (at, word) in self.done.iter().enumerate() {
            if word.load(Relaxed) == 0 {
                continue;
            }
            // Acquire: see what the completions stored.
            let mut bits = word.xchg(0, Acquire);
            while bits != 0 {
                let token = at as u32 * 64 + bits.trailing_zeros();
                bits &= bits - 1;
                let failed = self
                    .tokens
                    .get(token as usize)
                    .is_some_and(|state| state.failed.load(Relaxed));
                let result = if failed { Err(EngineError::Io) } else { Ok(()) };
                core.engine.io_done(&mut core.owner, token, result);
                any = true;
            }
        }
        any
    }
}

/// What is remembered about a bio of the engine's.
pub(super) struct EngineIo {
    volume: Arc<Volume>,
    token: Token,
}

impl Complete for EngineIo {
    fn complete(self, done: Done) {
        // The memory first: the engine may use it again once the token is reported.
        drop(done.payload);
        if self.volume.completions.bio_done(self.token, done.result) {
            self.volume.kick_submit();
        }
    }
}

/// What is to be done outside the lock.
enum Job {
    Io(Action),
    /// A request may try again.
    Wake(Request<Driver>),
    /// A request is done.
    End(Request<Driver>, Result),
}

impl WorkItem<1> for Volume {
    type Pointer = Arc<Volume>;

    fn run(volume: Arc<Volume>) {
        let _scope = NoIo::enter();
        let mut any_completed = false;
        loop {
            let mut jobs = [const { None }; BATCH];
            let mut notice = None;
            let completed = volume.with_quietly(|core| {
                let completed = volume.completions.report(core);
                take_jobs(core, &mut jobs);
                notice = core.engine.next_notice();
                completed
            });
            any_completed |= completed;
            let idle = jobs.iter().all(|job| job.is_none()) && notice.is_none();
            if let Some(notice) = notice {
                volume.print(notice);
            }
            for job in jobs.into_iter().flatten() {
                volume.perform(job);
            }
            if idle && !completed {
                break;
            }
        }
        if any_completed {
            volume.kick_background();
        }
    }
}

/// Fills `jobs` with the next actions.
fn take_jobs(core: &mut Core, jobs: &mut [Option<Job>; BATCH]) {
    for slot in jobs {
        *slot = match core.engine.next_action() {
            None => return,
            Some(Action::Wake { request }) => core.unpark(request).map(Job::Wake),
            Some(Action::Complete { request, result }) => {
                let result = result.map_err(|_| EIO);
                core.unpark(request).map(|rq| Job::End(rq, result))
            }
            Some(io) => Some(Job::Io(io)),
        };
    }
}

impl Volume {
    fn perform(self: &Arc<Self>, job: Job) {
        match job {
            Job::Wake(rq) => queue::again(rq),
            Job::End(rq, result) => rq.end(result),
            Job::Io(Action::Read {
                token,
                buffer,
                at,
                bytes,
                address,
            }) => {
                let range = at as usize..at as usize + bytes as usize;
                let io = self.arena.io(buffer.into(), true).map(|memory| Io {
                    op: Op::Read,
                    flags: Flags::META,
                    sector: address / SECTOR_BYTES,
                    payload: Payload::Arena(memory),
                    range,
                });
                self.send(token, io);
            }
            Job::Io(Action::Write {
                token,
                buffer,
                bytes,
                address,
                barrier,
            }) => {
                let flags = match barrier {
                    Barrier::None => Flags::NONE,
                    Barrier::Fua => Flags::FUA | Flags::SYNC,
                    Barrier::FlushFua => Flags::PREFLUSH | Flags::FUA | Flags::SYNC,
                };
                let io = self.arena.io(buffer.into(), false).map(|memory| {
                    let payload = Payload::Arena(memory);
                    Io::write(address / SECTOR_BYTES, payload, 0..bytes as usize, flags)
                });
                self.send(token, io);
            }
            Job::Io(Action::Flush { token }) => self.send(token, Ok(Io::flush())),
            Job::Io(Action::Discard {
                token,
                address,
                bytes,
            }) => self.send_discard(token, address / SECTOR_BYTES, bytes / SECTOR_BYTES),
            // `take_jobs` made requests of them.
            Job::Io(Action::Wake { .. } | Action::Complete { .. }) => {}
        }
    }

    /// A new tick: says how many lines were left out in the one before.
    pub(super) fn renew_log_lines(&self) {
        let lines = self.log_lines.xchg(0, Relaxed);
        if lines > LINES_PER_TICK {
            let more = lines - LINES_PER_TICK;
            pr_warn!("zbd{}: {} more messages like these\n", self.index, more);
        }
    }

    fn ticket(self: &Arc<Self>, token: Token) -> EngineIo {
        EngineIo {
            volume: self.clone(),
            token,
        }
    }

    fn send(self: &Arc<Self>, token: Token, io: Result<Io>) {
        self.completions.expect(token, 1);
        match io {
            Ok(io) => self.engine_bios.submit(io, self.ticket(token)),
            Err(e) => self.ticket(token).complete(Done {
                result: Err(e),
                payload: Payload::None,
            }),
        }
    }

    /// Discards in pieces that the device takes.
    fn send_discard(self: &Arc<Self>, token: Token, mut sector: u64, mut sectors: u64) {
        // Whole blocks, so that nothing is left over between two pieces.
        let step = u64::from(self.device.discard_sectors_max()) & !7;
        let bios = sectors.checked_add(step.saturating_sub(1));
        let bios = bios.and_then(|sum| sum.checked_div(step)).unwrap_or(0);
        let Ok(count) = i32::try_from(bios) else {
            return self.send(token, Err(EINVAL));
        };
        if count == 0 {
            return self.send(token, Err(EOPNOTSUPP));
        }
        self.completions.expect(token, count);
        while sectors > 0 {
            let piece = sectors.min(step);
            let io = Io::discard(sector, piece as u32);
            self.engine_bios.submit(io, self.ticket(token));
            sector += piece;
            sectors -= piece;
        }
    }

    /// One line in the log for what people should know, unless there were many within a tick.
    fn print(&self, notice: Notice) {
        match notice {
            Notice::NearlyFull => self.tell(News::SpaceLow),
            Notice::Full => self.tell(News::SpaceNone),
            Notice::SpaceAgain => self.tell(News::SpaceOk),
            Notice::Poisoned { .. } => self.tell(News::ReadOnly),
            _ => {}
        }
        let urgent = matches!(notice, Notice::Poisoned { .. } | Notice::Full);
        if self.log_lines.fetch_add(1, Relaxed) >= LINES_PER_TICK && !urgent {
            return;
        }
        let n = self.index;
        match notice {
            Notice::WriteReissued { zone } => {
                pr_warn!(
                    "zbd{}: a write to zone {} failed and was repeated elsewhere\n",
                    n,
                    zone
                )
            }
            Notice::CopyLost { zone } => {
                pr_warn!(
                    "zbd{}: one copy of metadata in zone {} could not be written\n",
                    n,
                    zone
                )
            }
            Notice::BadFragment { lbn } => {
                pr_err!(
                    "zbd{}: the data of block {} is damaged: it reads as an error\n",
                    n,
                    lbn
                )
            }
            Notice::PageLost { level, index } => pr_err!(
                "zbd{}: map page {} of level {} is lost: what it covers reads as errors\n",
                n,
                index,
                level
            ),
            Notice::ZoneStuck { zone } => {
                pr_warn!("zbd{}: zone {} cannot be emptied\n", n, zone)
            }
            Notice::NearlyFull => {
                pr_warn!(
                    "zbd{}: space is nearly used up: discard or delete something\n",
                    n
                )
            }
            Notice::Full => {
                pr_err!(
                    "zbd{}: no space left: writes fail until something is discarded\n",
                    n
                )
            }
            Notice::SpaceAgain => {
                pr_info!("zbd{}: there is space again\n", n)
            }
            Notice::CheckpointFailed => {
                pr_err!("zbd{}: a checkpoint failed and is tried again\n", n)
            }
            Notice::Poisoned { reason } => {
                pr_err!("zbd{}: read-only from now on: {}\n", n, reason)
            }
        }
    }
}
