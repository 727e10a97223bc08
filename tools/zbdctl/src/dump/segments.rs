// SPDX-License-Identifier: GPL-2.0

//! Segments and their summaries, zone by zone.

use super::records::{self, Record};
use super::volume::{codec_name, Volume};
use super::{Printer, Wanted};
use crate::failure::Result;
use zbd_engine::format::fragment::{self, Identity, Metadata};
use zbd_engine::format::segment::{Item, SegmentHeader, SegmentKind, SummaryEntry, BLOCKS_MAX};
use zbd_engine::format::zone_table::RecordState;
use zbd_engine::units::{BLOCK_BYTES, UNITS_PER_BLOCK, UNIT_BYTES};
use zbd_engine::Media;

/// Blocks that are read at once.
const WINDOW_BLOCKS: u32 = 4 * BLOCKS_MAX;

/// Prints the segments of every zone that holds some.
pub fn dump(volume: &mut Volume<'_>, wanted: &Wanted, printer: &mut Printer<'_>) -> Result {
    for zone in 0..volume.root.geometry.zones {
        if wanted.zone.is_some_and(|only| only != zone) {
            continue;
        }
        let Some(record) = volume.zones.get(zone as usize).copied().flatten() else {
            continue;
        };
        let candidate = volume
            .root
            .probes
            .iter()
            .any(|probe| probe.zone == zone && !probe.log);
        let whole = match record.state {
            RecordState::Superblock | RecordState::Unusable => continue,
            _ if candidate => false,
            RecordState::Free if wanted.zone.is_none() => continue,
            _ => true,
        };
        walk(volume, zone, whole, wanted, printer)?;
    }
    Ok(())
}

/// A part of a zone in memory.
struct Window {
    zone: u32,
    first: u32,
    bytes: Vec<u8>,
}

impl Window {
    /// `blocks` blocks from `block` on; unreadable ones are zeros. Fewer at the zone's end.
    fn get(&mut self, volume: &mut Volume<'_>, block: u32, blocks: u32) -> &[u8] {
        let capacity = volume.root.geometry.zone_capacity_blocks;
        let end = (block + blocks).min(capacity);
        let held = self.first + (self.bytes.len() / BLOCK_BYTES) as u32;
        if block < self.first || end > held {
            self.first = block;
            let count = WINDOW_BLOCKS.min(capacity - block) as usize;
            self.bytes.resize(count * BLOCK_BYTES, 0);
            let address = volume.root.geometry.byte_address(self.zone, block);
            if volume.image.read(address, &mut self.bytes).is_err() {
                for (at, chunk) in self.bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
                    let address = address + (at * BLOCK_BYTES) as u64;
                    if volume.image.read(address, chunk).is_err() {
                        chunk.fill(0);
                    }
                }
            }
        }
        let start = (block - self.first) as usize * BLOCK_BYTES;
        &self.bytes[start..start + (end - block) as usize * BLOCK_BYTES]
    }
}

/// Follows the segments of a zone. Free zones are not read to their end: behind a gap that is
/// longer than a segment nothing belongs to the log.
fn walk(
    volume: &mut Volume<'_>,
    zone: u32,
    whole: bool,
    wanted: &Wanted,
    printer: &mut Printer<'_>,
) -> Result {
    let Some((name, incarnation)) = volume.sealed_as(zone) else {
        return Ok(());
    };
    let capacity = volume.root.geometry.zone_capacity_blocks;
    let mut window = Window {
        zone,
        first: 0,
        bytes: Vec::new(),
    };
    let mut block = 0;
    let mut horizon = BLOCKS_MAX;
    while block < capacity && (whole || block < horizon) {
        let seed = volume.seed(name, incarnation, block * UNITS_PER_BLOCK);
        let bytes = window.get(volume, block, BLOCKS_MAX);
        let Some((header, by_footer)) = header(bytes, seed) else {
            block += 1;
            continue;
        };
        let bytes = bytes[..header.layout.blocks as usize * BLOCK_BYTES].to_vec();
        let place = At {
            zone,
            name,
            incarnation,
            block,
        };
        segment(volume, &place, &header, by_footer, &bytes, wanted, printer)?;
        block += header.layout.blocks;
        horizon = block + BLOCKS_MAX;
    }
    Ok(())
}

/// A segment's header from the front, or else from the copy at its end.
fn header(bytes: &[u8], seed: u64) -> Option<(SegmentHeader, bool)> {
    let inside =
        |header: &SegmentHeader| header.layout.blocks as usize * BLOCK_BYTES <= bytes.len();
    if let Some(header) = SegmentHeader::decode_header(bytes, seed).filter(inside) {
        return Some((header, false));
    }
    let blocks = bytes.chunks_exact(BLOCK_BYTES).enumerate().skip(1);
    let mut footers = blocks.filter_map(|(at, block)| {
        let claimed = SegmentHeader::footer_blocks(block)?;
        let header = SegmentHeader::decode_footer(block, seed)?;
        (claimed as usize == at + 1 && header.layout.blocks == claimed).then_some(header)
    });
    footers.next().map(|header| (header, true))
}

/// Where a segment stands, and under whose name it was sealed.
struct At {
    zone: u32,
    name: u32,
    incarnation: u32,
    block: u32,
}

impl At {
    fn offset(&self) -> u32 {
        self.block * UNITS_PER_BLOCK
    }
}

fn segment(
    volume: &Volume<'_>,
    at: &At,
    header: &SegmentHeader,
    by_footer: bool,
    bytes: &[u8],
    wanted: &Wanted,
    printer: &mut Printer<'_>,
) -> Result {
    let summary = header.summary(bytes, volume.seed(at.name, at.incarnation, at.offset()));
    let mut bad = 0;
    let mut entries = Vec::new();
    for (entry, offset) in summary.iter().flat_map(|summary| summary.iter()) {
        let seed = volume.seed(at.name, at.incarnation, at.offset() + offset);
        let intact = intact(&entry, offset, bytes, seed);
        bad += u32::from(!intact);
        if wanted.entries {
            entries.push(describe(&entry, at, offset, header.op_base, intact));
        }
    }
    let root = &volume.root;
    let user = header.kind == SegmentKind::User;
    let behind = user && header.sequence >= root.cut_sequence;
    printer.record(Record::Segment(records::Segment {
        zone: at.zone,
        block: at.block,
        blocks: header.layout.blocks,
        kind: match header.kind {
            SegmentKind::User => "user",
            SegmentKind::Gc => "gc",
            SegmentKind::Metadata => "metadata",
        },
        sequence: header.sequence,
        epoch: header.epoch,
        incarnation: header.incarnation,
        op_base: header.op_base,
        flushed: header.flushed,
        root_generation: header.root_generation,
        entries: header.entries,
        by_footer,
        summary: summary.is_some(),
        bad_fragments: bad,
        replayable: behind && root.epoch_of(header.sequence) == Some(header.epoch),
    }))?;
    // What is not settled by the root may be torn without being damaged.
    if user && !behind && (bad > 0 || summary.is_none()) {
        let (zone, block) = (at.zone, at.block);
        printer.damage(format!(
            "the segment in zone {zone} at block {block} is not intact"
        ))?;
    }
    for entry in entries {
        printer.record(Record::Entry(entry))?;
    }
    Ok(())
}

fn intact(entry: &SummaryEntry, offset: u32, bytes: &[u8], seed: u64) -> bool {
    let Item::Fragment(identity) = entry.item else {
        return true;
    };
    let start = offset as usize * UNIT_BYTES;
    let bytes = bytes.get(start..start + entry.units as usize * UNIT_BYTES);
    bytes.is_some_and(|bytes| fragment::open(bytes, seed).is_ok_and(|(found, _)| found == identity))
}

fn describe(
    entry: &SummaryEntry,
    at: &At,
    offset: u32,
    op_base: u64,
    intact: bool,
) -> records::Entry {
    records::Entry {
        zone: at.zone,
        offset: at.offset() + offset,
        units: entry.units,
        op: op_base.saturating_add(entry.op_delta.into()),
        item: match entry.item {
            Item::Void => records::Item::Void,
            Item::Zeros { lbn, blocks } => records::Item::Zeros { lbn, blocks },
            Item::Fragment(Identity::Data { lbn, log2, codec }) => records::Item::Data {
                lbn,
                blocks: 1 << log2,
                codec: codec_name(codec),
                intact,
            },
            Item::Fragment(Identity::Metadata { kind, level, index }) => records::Item::Metadata {
                kind: match kind {
                    Metadata::PageBase => "page_base",
                    Metadata::PageDelta => "page_delta",
                    Metadata::ZoneTable => "zone_table",
                },
                level,
                index,
                intact,
            },
        },
    }
}
