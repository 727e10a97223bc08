// SPDX-License-Identifier: GPL-2.0

//! Formatting: an empty volume is an engine with an empty map that makes one clean checkpoint.

use super::attach::{find_root, place_candidates};
use super::error::{Error, Result};
use super::format::root::{Features, Options, LABEL_BYTES, REGION_BYTES};
use super::io::{Buffers, Media};
use super::limits::Config;
use super::state::{Engine, Identity};
use super::units::{
    Geometry, BLOCK_BYTES, LOGICAL_BLOCKS_MAX, ZONES_MIN, ZONE_BLOCKS_MAX, ZONE_BLOCKS_MIN,
};
use super::zones::ZoneState;
use crate::mem::try_vec;

/// What a new volume should be like.
#[derive(Clone, Copy, Debug)]
pub struct NewVolume {
    /// Unique number.
    pub uuid: [u8; 16],
    /// Name for people.
    pub label: [u8; LABEL_BYTES],
    /// Logical size in blocks; `None`: what surely fits even if nothing compresses.
    pub logical_blocks: Option<u64>,
    /// Blocks of a zone, a power of two; `None`: by the device's size.
    pub zone_blocks: Option<u32>,
    /// Physical copies of metadata, 1 or 2.
    pub metadata_copies: u8,
    /// Codec, level, straddling.
    pub options: Options,
    /// Whether an existing zbd volume may be overwritten.
    pub force: bool,
}

/// Smallest device in bytes.
pub const DEVICE_BYTES_MIN: u64 =
    ZONES_MIN as u64 * ZONE_BLOCKS_MIN as u64 * BLOCK_BYTES as u64 * 2;

impl NewVolume {
    /// The shape of the volume on a device of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// `Error::TooSmall`, `Error::Range`.
    pub fn geometry(&self, bytes: u64) -> Result<Geometry> {
        if bytes < DEVICE_BYTES_MIN {
            return Err(Error::TooSmall);
        }
        let blocks = bytes / BLOCK_BYTES as u64;
        let zone_blocks = match self.zone_blocks {
            Some(zone_blocks) if zone_blocks.is_power_of_two() => zone_blocks,
            Some(_) => return Err(Error::Range),
            None => default_zone_blocks(blocks),
        };
        if !(ZONE_BLOCKS_MIN..=ZONE_BLOCKS_MAX).contains(&zone_blocks) {
            return Err(Error::Range);
        }
        let zones = blocks / u64::from(zone_blocks);
        let mut geometry = Geometry {
            zone_blocks,
            zone_capacity_blocks: zone_blocks,
            zones: u32::try_from(zones).map_err(|_| Error::Range)?,
            logical_blocks: 1,
            metadata_copies: self.metadata_copies,
        };
        geometry.logical_blocks = blocks;
        let surely = geometry.default_logical_blocks();
        if surely == 0 || zones < u64::from(ZONES_MIN) {
            return Err(Error::TooSmall);
        }
        geometry.logical_blocks = self.logical_blocks.unwrap_or(surely);
        let table_blocks = geometry.zones / 64 + 16;
        let sane = geometry.check()
            && geometry.logical_blocks <= LOGICAL_BLOCKS_MAX
            && table_blocks <= zone_blocks / 2;
        if !sane {
            return Err(Error::Range);
        }
        // A larger logical size makes checkpoints larger: data must still find room.
        if geometry.default_logical_blocks() == 0 {
            return Err(Error::Range);
        }
        Ok(geometry)
    }
}

/// A zone is about a thousandth of the device, from 1 MiB to 256 MiB, and at least so large that
/// there are no more than 16384.
fn default_zone_blocks(device_blocks: u64) -> u32 {
    let floor = (device_blocks / 16384).max(1).next_power_of_two();
    let wish = (device_blocks / 1024).max(1).next_power_of_two();
    let zone = wish.clamp(u64::from(ZONE_BLOCKS_MIN), 65536).max(floor);
    u32::try_from(zone)
        .unwrap_or(ZONE_BLOCKS_MAX)
        .min(ZONE_BLOCKS_MAX)
}

/// Makes a volume. Nothing is changed on the device before all is known to fit.
///
/// # Errors
///
/// `Error::AlreadyFormatted` without force; `Error::TooSmall`, `Error::Range`, `Error::Io`.
pub fn create<M: Media, B: Buffers>(
    media: &mut M,
    buffers: &mut B,
    config: &Config,
    volume: &NewVolume,
) -> Result<Geometry> {
    let geometry = volume.geometry(media.capacity_bytes())?;
    if !volume.force && !matches!(find_root(media), Err(Error::NotFormatted)) {
        return Err(Error::AlreadyFormatted);
    }
    let identity = Identity {
        uuid: volume.uuid,
        label: volume.label,
        features: Features::default(),
    };
    let mut boxed = Engine::new(config, &geometry, identity, volume.options)?;
    let engine = &mut *boxed;
    wipe(media)?;
    engine.epoch = 1;
    let places = [0, geometry.zones - 1, 1];
    for (place, zone) in engine.checkpoint.places.iter_mut().zip(places) {
        place.zone = zone;
        engine.zones.set_state(zone, ZoneState::Superblock);
    }
    engine.zones.choose_candidates(false, |_, _| {});
    engine.zones.publish_candidates();
    engine.config.discard = false;
    engine.begin_detach();
    engine.run_until(media, buffers, Engine::is_detached)?;
    media.flush()?;
    Ok(geometry)
}

/// Overwrites the roots of earlier volumes wherever one may be found.
fn wipe<M: Media>(media: &mut M) -> Result {
    let mut region = try_vec(REGION_BYTES as usize, 0u8)?;
    let capacity = media.capacity_bytes();
    for address in place_candidates(capacity) {
        let bytes = (REGION_BYTES.min(capacity.saturating_sub(address))) as usize;
        let Some(room) = region.get_mut(..bytes) else {
            continue;
        };
        // An unreadable place holds no root; writing may well mend it.
        let readable = media.read(address, room).is_ok();
        let blocks = room.chunks_exact(BLOCK_BYTES);
        let holds = blocks
            .enumerate()
            .filter(|(_, block)| super::format::root::Root::claimed_bytes(block).is_some());
        let mut found = [false; (REGION_BYTES as usize) / BLOCK_BYTES];
        for (at, _) in holds {
            if let Some(slot) = found.get_mut(at) {
                *slot = readable;
            }
        }
        for (at, _) in found.iter().enumerate().filter(|(_, found)| **found) {
            media.write(address + (at * BLOCK_BYTES) as u64, &[0; BLOCK_BYTES])?;
        }
    }
    media.flush()
}
