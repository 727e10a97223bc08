// SPDX-License-Identifier: GPL-2.0

//! The engine's state as a whole.

use super::checkpoint::{Checkpoint, Phase};
use super::collect::Collector;
use super::error::{Error, Result};
use super::format::entry::Entry;
use super::format::root::{Features, Options, LABEL_BYTES};
use super::io::{Action, BufferId, RequestId, Token};
use super::limits::{Config, LOADS_MAX};
use super::load::Load;
use super::log::{Log, Stream};
use super::overlay::Overlay;
use super::pages::PageCache;
use super::points::PointMap;
use super::queue::Queue;
use super::space::Space;
use super::stats::{Gauges, Notice, Stats};
use super::units::{place_seed, Geometry, Place, ZoneId, BLOCK_BYTES, UNIT_BYTES, ZONE_NONE};
use super::zones::{Zone, ZoneSet};
use crate::mem::{try_box, try_vec, Box, Vec};

/// Who a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Unique number.
    pub uuid: [u8; 16],
    /// Name for people, zero-padded UTF-8.
    pub label: [u8; LABEL_BYTES],
    /// Feature flags.
    pub features: Features,
}

/// What an outstanding lower I/O is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    /// Nothing: the token is free.
    Idle,
    /// One copy of a segment.
    Segment { id: u16, zone: ZoneId },
    /// A page's base (0) or delta (1).
    Page { load: usize, part: usize },
    /// A flush; it covers user segments numbered below.
    Flush { covers: u64 },
    /// A root.
    Root,
    /// A chunk of the zone that is being collected.
    Collect,
    /// A discard of a freed zone.
    Discard { zone: ZoneId },
}

/// A volume in service.
///
/// Every method runs under the driver's engine lock and never sleeps. Nothing allocates after
/// attach.
pub struct Engine {
    pub(super) config: Config,
    pub(super) geometry: Geometry,
    pub(super) identity: Identity,
    pub(super) options: Options,
    pub(super) volume_seed: u64,
    pub(super) height: u8,
    pub(super) epoch: u32,
    /// Generation of the newest durable root.
    pub(super) generation: u64,
    /// Last operation number given out.
    pub(super) op: u64,
    /// User segments numbered below are durable.
    pub(super) durable: u64,
    pub(super) zones: ZoneSet,
    pub(super) log: Log,
    pub(super) active: Overlay,
    pub(super) frozen: Overlay,
    pub(super) pages: PageCache,
    /// The map's top page as merged so far, and as of the newest durable root.
    pub(super) top: [Entry; 2],
    pub(super) root_top: [Entry; 2],
    pub(super) loads: Vec<Load>,
    /// Points and ranges that reserved slots will need.
    pub(super) reserved_points: usize,
    pub(super) reserved_ranges: usize,
    pub(super) write_waiters: Queue<RequestId>,
    pub(super) page_waiters: Queue<(RequestId, usize)>,
    pub(super) flush_waiters: Queue<(RequestId, u64)>,
    pub(super) flushing: bool,
    pub(super) checkpoint: Checkpoint,
    pub(super) collector: Collector,
    pub(super) tokens: Vec<Pending>,
    pub(super) free_tokens: Vec<Token>,
    pub(super) free_token_count: usize,
    pub(super) actions: Queue<Action>,
    pub(super) notices: Queue<Notice>,
    pub(super) discards: usize,
    pub(super) discards_wanted: bool,
    pub(super) poisoned: Option<&'static str>,
    pub(super) space: Space,
    /// Counters.
    pub stats: Stats,
}

impl Engine {
    /// An engine with empty zones and map, in memory of its own: it is too large for the stacks of
    /// those who attach, and is built in a function of its own for the same reason.
    ///
    /// # Errors
    ///
    /// `Error::NoMemory`, `Error::Range`.
    #[inline(never)]
    pub(super) fn new(
        config: &Config,
        geometry: &Geometry,
        identity: Identity,
        options: Options,
    ) -> Result<Box<Engine>> {
        if !config.check() || !geometry.check() {
            return Err(Error::Range);
        }
        let tokens = config.segments() * 2 + LOADS_MAX * 2 + 16;
        let mut free_tokens = try_vec(tokens, 0)?;
        for (at, token) in free_tokens.iter_mut().enumerate() {
            *token = at as Token;
        }
        let actions = tokens + 3 * config.requests + 64;
        let engine = Engine {
            config: *config,
            geometry: *geometry,
            identity,
            options,
            volume_seed: volume_seed(&identity.uuid),
            height: geometry.height(),
            epoch: 0,
            generation: 0,
            op: 0,
            durable: 1,
            zones: ZoneSet::new(geometry)?,
            log: Log::new(config)?,
            active: Overlay::new(config.overlay_entries, config.overlay_ranges)?,
            frozen: Overlay::new(config.overlay_entries, config.overlay_ranges)?,
            pages: PageCache::new(config.cache_pages)?,
            top: [Entry::UNMAPPED; 2],
            root_top: [Entry::UNMAPPED; 2],
            loads: try_vec(LOADS_MAX, Load::IDLE)?,
            reserved_points: 0,
            reserved_ranges: 0,
            write_waiters: Queue::new(config.requests, 0)?,
            page_waiters: Queue::new(config.requests, (0, 0))?,
            flush_waiters: Queue::new(config.requests, (0, 0))?,
            flushing: false,
            checkpoint: Checkpoint::new(geometry)?,
            collector: Collector::new(),
            tokens: try_vec(tokens, Pending::Idle)?,
            free_token_count: tokens,
            free_tokens,
            actions: Queue::new(actions, Action::Wake { request: 0 })?,
            notices: Queue::new(32, Notice::Full)?,
            discards: 0,
            discards_wanted: false,
            poisoned: None,
            space: Space::new(geometry),
            stats: Stats::default(),
        };
        Ok(try_box(engine)?)
    }

    /// Who the volume is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The volume's shape.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The volume's options.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Changes the options; new data follows them, and the next checkpoint stores them.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
        self.checkpoint.requested = true;
    }

    /// Why the volume is read-only, if it is.
    pub fn poisoned(&self) -> Option<&'static str> {
        self.poisoned
    }

    /// The next thing for the driver to do. To be taken in order after every call.
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop()
    }

    /// The next message for the log.
    pub fn next_notice(&mut self) -> Option<Notice> {
        self.notices.pop()
    }

    /// What the volume holds now.
    pub fn gauges(&self) -> Gauges {
        let capacity = self.geometry.capacity_units() * UNIT_BYTES as u64;
        let used_zones = u64::from(self.geometry.zones) - self.zones.free() as u64;
        let unwritten: u64 = self
            .log
            .streams
            .iter()
            .map(|stream| self.unwritten(stream))
            .sum();
        let config = &self.config;
        let memory = PageCache::memory_bytes(config.cache_pages)
            + 2 * PointMap::memory_bytes(config.overlay_entries)
            + self.geometry.zones as usize * size_of::<Zone>()
            + config.segments() * super::format::segment::ENTRIES_MAX * UNIT_BYTES;
        Gauges {
            mapped_blocks: self.checkpoint.mapped_blocks,
            live_bytes: self.zones.live_units() * UNIT_BYTES as u64,
            used_bytes: used_zones * capacity - unwritten,
            zones: self.geometry.zones.into(),
            free_zones: self.zones.free() as u64,
            cached_pages: self.pages.used() as u64,
            memory_bytes: memory as u64,
        }
    }

    /// Bytes of a stream's open zone, its second copy counted, that nothing is written to yet.
    fn unwritten(&self, stream: &Stream) -> u64 {
        let blocks = self
            .geometry
            .zone_capacity_blocks
            .saturating_sub(stream.cursor);
        let zones = [stream.zone, stream.mirror];
        let zones = zones.iter().filter(|zone| **zone != ZONE_NONE).count() as u64;
        zones * u64::from(blocks) * BLOCK_BYTES as u64
    }

    /// Bytes of memory for buffers that the driver has to provide.
    pub fn buffers_bytes(config: &Config) -> usize {
        (0..).map_while(|at| config.buffer_bytes(at)).sum()
    }

    /// What the engine is waiting for, for people who debug it.
    pub fn situation(&self) -> Situation {
        Situation {
            phase: self.checkpoint.phase,
            requested: self.checkpoint.requested,
            collecting: self.collector.is_busy(),
            outstanding: self.tokens.len() - self.free_token_count,
            free_zones: self.zones.free(),
            candidates: self.zones.candidates(),
            reserve: self.reserve_zones(),
            live_units: self.zones.live_units(),
            usable_units: self.space.usable,
            points: self.active.points.len(),
            waiting_writers: self.write_waiters.len(),
            waiting_readers: self.page_waiters.len(),
            waiting_flushes: self.flush_waiters.len(),
        }
    }

    pub(super) fn notify(&mut self, notice: Notice) {
        // What does not fit would repeat what is there: the log line says what to look at.
        self.notices.push(notice);
    }

    /// Makes the volume read-only: an invariant does not hold.
    pub(super) fn poison(&mut self, reason: &'static str) {
        crate::planted::broken(reason);
        if self.poisoned.is_none() {
            self.poisoned = Some(reason);
            self.notify(Notice::Poisoned { reason });
            self.fail_flushes();
            self.wake_writers();
        }
    }

    pub(super) fn act(&mut self, action: Action) {
        if !self.actions.push(action) {
            self.poison("more actions than outstanding work allows");
        }
    }

    /// Takes a token for an outstanding I/O. The table is as large as all I/O together.
    pub(super) fn token(&mut self, pending: Pending) -> Option<Token> {
        let at = self.free_token_count.checked_sub(1)?;
        let token = *self.free_tokens.get(at)?;
        self.free_token_count = at;
        *self.tokens.get_mut(token as usize)? = pending;
        Some(token)
    }

    /// Gives a token back and answers what it was for.
    pub(super) fn redeem(&mut self, token: Token) -> Pending {
        let Some(slot) = self.tokens.get_mut(token as usize) else {
            return Pending::Idle;
        };
        let pending = core::mem::replace(slot, Pending::Idle);
        if pending != Pending::Idle {
            if let Some(room) = self.free_tokens.get_mut(self.free_token_count) {
                *room = token;
                self.free_token_count += 1;
            }
        }
        pending
    }

    /// Checksum seed of a place in a zone's present incarnation.
    pub(super) fn seed(&self, place: Place) -> u64 {
        if crate::planted::active(super::planted::Bug::UnseededChecksum) {
            return 0;
        }
        let incarnation = self
            .zones
            .get(place.zone)
            .map_or(0, |zone| zone.incarnation);
        place_seed(self.volume_seed, place.zone, incarnation, place.offset)
    }

    /// The place of a mapped entry.
    pub(super) fn place_of(&self, entry: Entry) -> Option<Place> {
        self.geometry.place(entry.location(), entry.units())
    }

    /// Counts a block's share of a fragment as dead.
    pub(super) fn kill(&mut self, lbn: u64, entry: Entry) {
        if !entry.is_mapped() {
            return;
        }
        let alive = match self.place_of(entry) {
            Some(place) => self.zones.remove_live(place.zone, entry.share(lbn)),
            None => false,
        };
        if !alive {
            self.poison("a zone has fewer live units than die in it");
        }
    }

    /// Lets every write that waits try again.
    pub(super) fn wake_writers(&mut self) {
        while let Some(request) = self.write_waiters.pop() {
            self.act(Action::Wake { request });
        }
    }

    pub(super) fn wait_to_write(&mut self, request: RequestId) {
        if !self.write_waiters.push(request) {
            self.poison("more writers wait than requests exist");
        }
    }

    /// The root's buffer; the collector's is the one before.
    pub(super) fn root_buffer(&self) -> BufferId {
        (self.config.segments() + 2 * LOADS_MAX + 1) as BufferId
    }

    pub(super) fn collect_buffer(&self) -> BufferId {
        (self.config.segments() + 2 * LOADS_MAX) as BufferId
    }

    pub(super) fn load_buffer(&self, load: usize, part: usize) -> BufferId {
        (self.config.segments() + 2 * load + part) as BufferId
    }

    /// Logical size in bytes.
    pub fn logical_bytes(&self) -> u64 {
        self.geometry.logical_blocks * BLOCK_BYTES as u64
    }
}

/// Where work stands: a snapshot for debugging.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The checkpoint's phase.
    pub phase: Phase,
    /// Whether another is to follow.
    pub requested: bool,
    /// Whether a zone is being emptied.
    pub collecting: bool,
    /// Lower I/Os outstanding.
    pub outstanding: usize,
    /// Free zones.
    pub free_zones: usize,
    /// Of these, zones that may be opened now.
    pub candidates: usize,
    /// Candidates that user data must leave.
    pub reserve: usize,
    /// Live units.
    pub live_units: u64,
    /// Units that may be live.
    pub usable_units: u64,
    /// Changed blocks in the active overlay.
    pub points: usize,
    /// Writers that wait.
    pub waiting_writers: usize,
    /// Requests that wait for pages.
    pub waiting_readers: usize,
    /// Flushes that wait.
    pub waiting_flushes: usize,
}

/// The part of every checksum's seed that is the volume's own.
pub fn volume_seed(uuid: &[u8; 16]) -> u64 {
    crate::hash::xxh64(0x7a62_6476_6f6c_0001, uuid)
}
