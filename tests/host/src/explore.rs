// SPDX-License-Identifier: GPL-2.0

//! The crash explorer: runs short scripts in several orders of completion, lets power fail before
//! every completion and at the end, lets every subset of what was not flushed survive (all of
//! them if they are few, else a sample), attaches, and compares with the reference.

use crate::disk::{Disk, BLOCK};
use crate::reference::{Reference, Version};
use crate::rng::Rng;
use crate::world::{volume, CrashPoint, Outcome, World};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::panic::{catch_unwind, AssertUnwindSafe};
use zbd_engine::engine::planted::Bug;
use zbd_engine::format::root::{Root, REGION_BYTES};
use zbd_engine::read::ReadPiece;
use zbd_engine::{Action, Barrier, Config, Error};

/// One step of a script.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Writes a block that takes little space.
    Write(u64),
    /// Writes a block that takes all of one.
    WriteRaw(u64),
    /// Writes a block twice, such that operation order is not the order in the log.
    WriteCrossed(u64),
    /// Zeroes blocks.
    Zero(u64, u64),
    /// Seals open segments.
    Seal,
    /// Flushes and waits.
    Flush,
    /// Flushes.
    StartFlush,
    /// Asks for a checkpoint.
    Checkpoint,
    /// Waits until all is quiet.
    Quiesce,
    /// Asks for a zone to be emptied.
    Collect,
    /// So many of the next lower writes fail.
    FailWrites(u32),
    /// Looks a block up, to read it later.
    StartRead(u64),
    /// Reads it.
    FinishRead,
    /// Detaches and attaches.
    Restart,
    /// Power fails, and all completed writes survive; attaches.
    Cut,
    /// Notes the disk as it is: see [`Damage`].
    Mark,
}

/// What is done to the disk at the end, besides crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Nothing: crashes are explored.
    None,
    /// Each block that was durable at the last mark goes bad; all else survives.
    Rot,
    /// Each group of blocks that has changed between the first mark and the last falls back.
    Stale,
    /// The newest root is lost in one place.
    OneRoot,
    /// The newest root is lost in all places.
    NewestRoot,
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its name.
    pub name: &'static str,
    /// Zones of 1 MiB.
    pub zones: u64,
    /// Steps; power fails at every point of each phase, and the next phase follows some of them.
    pub phases: &'static [&'static [Step]],
    /// Crashes after which the next phase is run.
    pub width: usize,
    /// Orders of completion that are tried.
    pub orders: u64,
    /// What is done to the disk at the end.
    pub damage: Damage,
    /// Whether freed zones are discarded; else they keep what can be mistaken for something.
    pub discard: bool,
    /// One in so many images is looked at closely.
    pub closely: u64,
}

impl Script {
    /// A script of one phase on a small disk.
    pub const fn new(name: &'static str, phases: &'static [&'static [Step]]) -> Script {
        Script {
            name,
            zones: 48,
            phases,
            width: 8,
            orders: 4,
            damage: Damage::None,
            discard: false,
            closely: 8,
        }
    }
}

/// Explores a script with a planted bug, or none. `Err`: what was found wrong.
pub fn explore(script: &Script, bug: Option<Bug>) -> Result<(), String> {
    zbd_engine::planted::plant(bug);
    let found = catch_unwind(AssertUnwindSafe(|| {
        for order in 0..script.orders {
            explore_order(script, order)
                .map_err(|error| format!("{}, order {order}: {error}", script.name))?;
        }
        Ok(())
    }));
    zbd_engine::planted::plant(None);
    found.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).into()));
        Err(format!("{}: {}", script.name, text.unwrap_or_default()))
    })
}

const CONFIG: Config = Config {
    requests: 16,
    overlay_entries: 512,
    overlay_ranges: 16,
    user_segments: 4,
    ..Config::SMALL
};

/// Crash images of one crash point at most.
const IMAGES_MAX: usize = 64;

fn explore_order(script: &Script, order: u64) -> Result<(), String> {
    let config = Config {
        discard: script.discard,
        ..CONFIG
    };
    let mut world = World::with(order, script.zones, &volume(256, None), config);
    if script.damage == Damage::None {
        return explore_phase(script, &mut world, 0);
    }
    let mut marks = Vec::new();
    for steps in script.phases {
        run(&mut world, steps, &mut marks)?;
    }
    world.flush().map_err(|error| format!("flush: {error:?}"))?;
    world.crash();
    explore_damage(script.damage, &mut world, &marks)
}

fn explore_phase(script: &Script, world: &mut World, phase: usize) -> Result<(), String> {
    let Some(steps) = script.phases.get(phase) else {
        return Ok(());
    };
    world.crash_points = Some(Vec::new());
    run(world, steps, &mut Vec::new())?;
    let mut points = world.crash_points.take().expect("recorded");
    points.push(world.crash_point());
    world.quiesce();
    world.check_all();
    let blocks: Vec<u64> = world.reference.blocks();
    let mut known: HashMap<u64, Contents> = HashMap::new();
    let mut ends = Vec::new();
    let mut rng = Rng::new(world.rng.next());
    for point in &points {
        for disk in images(point, &mut rng) {
            let key = disk.image();
            if let std::collections::hash_map::Entry::Vacant(unknown) = known.entry(key) {
                let closely = rng.one_in(script.closely);
                unknown.insert(recover(world, &disk, &blocks, closely)?);
                ends.push((disk, point.reference.clone(), key));
            }
            allowed(&known[&key], &point.reference)?;
        }
    }
    if phase + 1 < script.phases.len() {
        for _ in 0..script.width.min(ends.len()) {
            let at = rng.below(ends.len() as u64) as usize;
            let (disk, reference, key) = ends.swap_remove(at);
            let mut next = world.resume(disk, reference);
            next.attach()
                .map_err(|error| format!("attach: {error:?}"))?;
            for (lbn, version) in &known[&key] {
                next.reference.settle(*lbn, *version)?;
            }
            explore_phase(script, &mut next, phase + 1)?;
        }
    }
    Ok(())
}

/// What every block reads as.
type Contents = BTreeMap<u64, Version>;

fn allowed(contents: &Contents, reference: &Reference) -> Result<(), String> {
    for (lbn, version) in contents {
        reference.allows(*lbn, *version)?;
    }
    if !reference.is_prefix(contents) {
        return Err(format!("{contents:?} was never the case at once"));
    }
    Ok(())
}

fn run(world: &mut World, steps: &[Step], marks: &mut Vec<Disk>) -> Result<(), String> {
    let mut reading: Option<(ReadPiece, Version)> = None;
    for step in steps {
        world.payload = 300;
        match *step {
            Step::Write(lbn) => done(world.write(lbn))?,
            Step::WriteRaw(lbn) => {
                world.payload = BLOCK;
                done(world.write(lbn))?;
            }
            Step::WriteCrossed(lbn) => world.write_crossed(lbn),
            Step::Zero(lbn, blocks) => done(world.zero(lbn, blocks))?,
            Step::Seal => world.tick(),
            Step::Flush => world.flush().map_err(|error| format!("flush: {error:?}"))?,
            Step::StartFlush => {
                world.start_flush();
            }
            Step::Checkpoint => world.engine().request_checkpoint(),
            Step::Quiesce => world.quiesce(),
            Step::Collect => world.engine().request_collection(),
            Step::FailWrites(count) => world.fail_next = count,
            Step::StartRead(lbn) => {
                let expected = world.reference.now(lbn);
                reading = Some((world.start_read(lbn), expected));
            }
            Step::FinishRead => {
                let (piece, expected) = reading.take().ok_or("nothing to read")?;
                let found = world.finish_read(&piece);
                if found != Ok(expected) {
                    return Err(format!("block {} went away: {found:?}", piece.lbn));
                }
            }
            Step::Restart => {
                world.detach();
                let report = world
                    .attach()
                    .map_err(|error| format!("attach: {error:?}"))?;
                if !report.clean {
                    return Err("the volume is not clean".into());
                }
            }
            Step::Cut => {
                world.quiesce();
                world.disk.crash(|_, _| true);
                world.recover()?;
            }
            Step::Mark => {
                world.quiesce();
                marks.push(world.disk.clone());
            }
        }
    }
    Ok(())
}

fn done(outcome: Outcome) -> Result<(), String> {
    match outcome {
        Outcome::Done => Ok(()),
        other => Err(format!("a write ended as {other:?}")),
    }
}

/// The disks that a power cut may leave.
fn images(point: &CrashPoint, rng: &mut Rng) -> Vec<Disk> {
    // A write behind a flush survives only if the flush did.
    let behind_flush: Vec<_> = point
        .in_flight
        .iter()
        .enumerate()
        .filter(|(_, io)| {
            matches!(
                io.action,
                Action::Write {
                    barrier: Barrier::FlushFua,
                    ..
                }
            )
        })
        .map(|(at, _)| at)
        .collect();
    let mut all = Vec::new();
    for chosen in 0..1u32 << behind_flush.len() {
        let mut disk = point.disk.clone();
        for (bit, at) in behind_flush.iter().enumerate() {
            if (chosen >> bit) & 1 != 0 {
                disk.complete_flush(point.in_flight[*at].mark);
            }
        }
        for (at, io) in point.in_flight.iter().enumerate() {
            let bit = behind_flush.iter().position(|other| *other == at);
            match io.action {
                Action::Write { address, .. } if bit.is_none_or(|bit| (chosen >> bit) & 1 != 0) => {
                    disk.tear(address, &io.data, || true);
                }
                Action::Discard { address, bytes, .. } => disk.discard(address, bytes),
                _ => {}
            }
        }
        survivors(&disk, rng, &mut all);
    }
    all
}

/// Lets subsets of the cache survive: whole writes first, then single blocks of them.
fn survivors(disk: &Disk, rng: &mut Rng, all: &mut Vec<Disk>) {
    let stake = disk.at_stake();
    let writes: Vec<u64> = stake.keys().copied().collect();
    let blocks: usize = stake.values().sum();
    let mut survive = |keep: &mut dyn FnMut(u64, u64) -> bool| {
        let mut image = disk.clone();
        image.crash(keep);
        all.push(image);
    };
    let place = |io: u64| writes.binary_search(&io).unwrap_or(0);
    if writes.len() <= 6 {
        for subset in 0..1u64 << writes.len() {
            survive(&mut |io, _| (subset >> place(io)) & 1 != 0);
        }
    } else {
        for only in 0..writes.len() {
            survive(&mut |io, _| place(io) == only);
            survive(&mut |io, _| place(io) != only);
        }
        for _ in 0..IMAGES_MAX / 2 {
            let subset = rng.next();
            survive(&mut |io, _| (subset >> (place(io) % 64)) & 1 != 0);
        }
    }
    if blocks == writes.len() {
        return;
    }
    if blocks <= 7 {
        for subset in 0..1u64 << blocks {
            let mut at = 0;
            survive(&mut |_, _| {
                at += 1;
                (subset >> (at - 1)) & 1 != 0
            });
        }
    } else {
        for _ in 0..IMAGES_MAX {
            let torn = rng.below(writes.len() as u64) as usize;
            let subset = if rng.one_in(2) { u64::MAX } else { rng.next() };
            survive(&mut |io, _| {
                let at = place(io);
                if at == torn {
                    rng.one_in(2)
                } else {
                    (subset >> (at % 64)) & 1 != 0
                }
            });
        }
    }
}

/// Attaches what a crash has left and reads every block.
fn recover(
    world: &mut World,
    disk: &Disk,
    blocks: &[u64],
    closely: bool,
) -> Result<Contents, String> {
    let mut next = world.resume(disk.clone(), Reference::default());
    next.attach()
        .map_err(|error| format!("attach: {error:?}"))?;
    let mut contents = Contents::new();
    for lbn in blocks {
        let found = next.read(*lbn);
        let version = found.map_err(|error| format!("block {lbn} is unreadable: {error:?}"))?;
        contents.insert(*lbn, version);
    }
    next.check_sound();
    if closely {
        look_closely(&mut next, disk, &contents)?;
    }
    Ok(contents)
}

/// What was recovered survives another crash at once, one during recovery, and a checkpoint; and
/// when all is discarded nothing is left over.
fn look_closely(next: &mut World, disk: &Disk, contents: &Contents) -> Result<(), String> {
    for budget in 0..4 {
        let mut other = next.resume(disk.clone(), Reference::default());
        other.disk.budget = Some(budget);
        let attached = other.attach().is_ok();
        let mut rng = Rng::new(budget);
        other.disk.crash(|_, _| rng.one_in(2));
        other.engine = None;
        other
            .attach()
            .map_err(|error| format!("attach after {budget} writes: {error:?}"))?;
        same(&mut other, contents).map_err(|error| format!("recovered again: {error}"))?;
        if attached {
            break;
        }
    }
    next.detach();
    next.attach()
        .map_err(|error| format!("attach after detach: {error:?}"))?;
    same(next, contents).map_err(|error| format!("after a checkpoint: {error}"))?;
    empty(next)
}

fn same(world: &mut World, contents: &Contents) -> Result<(), String> {
    for (lbn, version) in contents {
        let found = world.read(*lbn);
        if found != Ok(*version) {
            return Err(format!("block {lbn} was {version} and is {found:?}"));
        }
    }
    Ok(())
}

/// Discards everything: no zone may hold anything that lives but the zone table.
fn empty(world: &mut World) -> Result<(), String> {
    let blocks = world.engine().geometry().logical_blocks;
    done(world.zero(0, blocks))?;
    for _ in 0..2 {
        world.engine().request_checkpoint();
        world.quiesce();
    }
    world.check_sound();
    let pages = world.engine().geometry().zones.div_ceil(128) as u64;
    let table = pages * 2 * (4096 + 16);
    let live = world.engine().gauges().live_bytes;
    if live > table {
        return Err(format!("{live} bytes live in an empty volume, not {table}"));
    }
    Ok(())
}

fn explore_damage(damage: Damage, world: &mut World, marks: &[Disk]) -> Result<(), String> {
    match damage {
        Damage::None => Ok(()),
        Damage::Rot => explore_rot(world, marks.last().ok_or("no mark")?),
        Damage::Stale => explore_stale(world, marks),
        Damage::OneRoot => {
            for places in newest_roots(&world.disk) {
                let error = attach_without(world, &[places]);
                error.map_err(|error| format!("one root of two lost: {error}"))?;
            }
            Ok(())
        }
        Damage::NewestRoot => match attach_without(world, &newest_roots(&world.disk)) {
            Err(_) => Ok(()),
            Ok(()) => Err("an older root was taken though the log names a newer one".into()),
        },
    }
}

/// Attaches without these blocks; all must be there and right.
fn attach_without(world: &mut World, blocks: &[u64]) -> Result<(), String> {
    let mut next = world.resume(world.disk.clone(), world.reference.clone());
    for block in blocks {
        next.disk.poke(*block, [0x77; BLOCK]);
    }
    next.attach()
        .map_err(|error| format!("attach: {error:?}"))?;
    next.check_all();
    Ok(())
}

/// Where the newest root is: one block in each place.
pub fn newest_roots(disk: &Disk) -> Vec<u64> {
    let mut newest = (0, Vec::new());
    let region = REGION_BYTES / BLOCK as u64;
    for block in disk.written() {
        let bytes: Vec<u8> = (block..block + 12).flat_map(|at| *disk.block(at)).collect();
        let Ok(root) = Root::decode(&bytes) else {
            continue;
        };
        let zone_blocks = u64::from(root.geometry.zone_blocks);
        let is_place = root.places.contains(&((block / zone_blocks) as u32));
        if !is_place || block % zone_blocks >= region || root.generation < newest.0 {
            continue;
        }
        if root.generation > newest.0 {
            newest = (root.generation, Vec::new());
        }
        newest.1.push(block);
    }
    newest.1
}

/// Whatever block of those durable at the mark goes bad: every other is right, or an error.
fn explore_rot(world: &mut World, mark: &Disk) -> Result<(), String> {
    for block in mark.written() {
        for kind in 0..3 {
            let mut disk = world.disk.clone();
            match kind {
                0 => disk.poke(block, [0; BLOCK]),
                1 => disk.flip(block, (block as usize * 977 + 131) % (BLOCK * 8)),
                _ => {
                    disk.unreadable.insert(block);
                }
            }
            right_or_error(world, disk).map_err(|error| format!("block {block} rots: {error}"))?;
        }
    }
    Ok(())
}

/// A device that has acknowledged writes and dropped them, between the first mark and the last:
/// nothing old passes for new.
fn explore_stale(world: &mut World, marks: &[Disk]) -> Result<(), String> {
    let (Some(mark), Some(last)) = (marks.first(), marks.last()) else {
        return Err("no mark".into());
    };
    let changed: BTreeSet<u64> = last
        .written()
        .into_iter()
        .filter(|block| mark.block(*block) != last.block(*block))
        .filter(|block| last.block(*block) == world.disk.block(*block))
        .collect();
    let mut groups: Vec<Vec<u64>> = changed.iter().map(|block| vec![*block]).collect();
    let zones: BTreeSet<u64> = changed.iter().map(|block| block / 256).collect();
    groups.extend(zones.iter().map(|zone| {
        let inside = changed.range(zone * 256..zone * 256 + 256);
        inside.copied().collect()
    }));
    for group in groups {
        let mut disk = world.disk.clone();
        for block in &group {
            disk.poke(*block, *mark.block(*block));
        }
        right_or_error(world, disk).map_err(|error| format!("blocks {group:?} stale: {error}"))?;
    }
    Ok(())
}

/// Attaches a damaged disk: it is refused, or every block is right or an error.
pub fn right_or_error(world: &mut World, disk: Disk) -> Result<(), String> {
    let mut next = world.resume(disk, world.reference.clone());
    if next.attach().is_err() {
        return Ok(());
    }
    for lbn in next.reference.blocks() {
        match next.read(lbn) {
            Ok(version) => next.reference.allows(lbn, version)?,
            Err(Error::Io | Error::Corrupt) => {}
            Err(error) => return Err(format!("block {lbn}: {error:?}")),
        }
    }
    Ok(())
}
