// SPDX-License-Identifier: GPL-2.0

//! Roots, wherever one may stand.

use super::records::{self, Lists, Location, Record};
use super::{Printer, Wanted};
use crate::failure::Result;
use crate::image::Image;
use std::collections::BTreeSet;
use zbd_engine::attach::place_candidates;
use zbd_engine::format::entry::Entry;
use zbd_engine::format::root::{Root, REGION_BYTES};
use zbd_engine::units::{Geometry, BLOCK_BYTES, ZONE_NONE};
use zbd_engine::{Error, Media};

/// Prints the roots of every place: the newest of each, or all that are left.
pub fn dump(
    image: &mut Image,
    newest: Option<u64>,
    wanted: &Wanted,
    printer: &mut Printer<'_>,
) -> Result {
    let places: BTreeSet<u64> = place_candidates(image.capacity_bytes()).collect();
    let mut region = vec![0; REGION_BYTES as usize];
    for place in places {
        let bytes = REGION_BYTES.min(image.capacity_bytes() - place) as usize;
        let room = &mut region[..bytes];
        for block in read_blocks(image, place, room) {
            printer.damage(format!(
                "unreadable block at {block:#x}, where a root may stand"
            ))?;
        }
        let roots = roots_in(room, place, printer)?;
        let best = roots.iter().map(|(_, root)| root.generation).max();
        for (at, root) in &roots {
            if wanted.roots || Some(root.generation) == best {
                let record = describe(root, place, *at, newest, wanted.roots);
                printer.record(Record::Root(Box::new(record)))?;
            }
        }
    }
    Ok(())
}

/// Reads what can be read, zeros for the rest; answers the addresses of unreadable blocks.
fn read_blocks(image: &mut Image, address: u64, room: &mut [u8]) -> Vec<u64> {
    let mut bad = Vec::new();
    if image.read(address, room).is_ok() {
        return bad;
    }
    for (at, block) in room.chunks_exact_mut(BLOCK_BYTES).enumerate() {
        let address = address + (at * BLOCK_BYTES) as u64;
        if image.read(address, block).is_err() {
            block.fill(0);
            bad.push(address);
        }
    }
    bad
}

fn roots_in(room: &[u8], place: u64, printer: &mut Printer<'_>) -> Result<Vec<(usize, Root)>> {
    let mut roots = Vec::new();
    let mut at = 0;
    while at < room.len() {
        match Root::decode(&room[at..]) {
            Ok(root) => {
                let bytes = root.encoded_bytes();
                roots.push((at, root));
                at += bytes;
                continue;
            }
            Err(Error::NotFormatted) => {
                if Root::claimed_bytes(&room[at..]).is_some() {
                    let address = place + at as u64;
                    printer.damage(format!("a root at {address:#x} fails its checksum"))?;
                }
            }
            Err(error) => {
                let address = place + at as u64;
                printer.damage(format!(
                    "a root at {address:#x} is refused: {}",
                    error.message()
                ))?;
            }
        }
        at += BLOCK_BYTES;
    }
    Ok(roots)
}

/// Where a mapped entry points.
pub fn location(geometry: &Geometry, entry: Entry) -> Option<Location> {
    if !entry.is_mapped() {
        return None;
    }
    let place = geometry.place(entry.location(), entry.units())?;
    Some(Location {
        zone: place.zone,
        offset: place.offset,
        units: entry.units(),
    })
}

/// A zone's number, if there is one.
pub fn zone(id: u32) -> Option<u32> {
    (id != ZONE_NONE).then_some(id)
}

fn describe(
    root: &Root,
    place: u64,
    at: usize,
    newest: Option<u64>,
    with_lists: bool,
) -> records::Root {
    let geometry = &root.geometry;
    records::Root {
        address: place + at as u64,
        bytes: root.encoded_bytes() as u64,
        generation: root.generation,
        epoch: root.epoch,
        clean: root.clean,
        newest: Some(root.generation) == newest,
        in_place: root
            .places
            .iter()
            .any(|zone| geometry.byte_address(*zone, 0) == place),
        cut_op: root.cut_op,
        cut_sequence: root.cut_sequence,
        next_sequence: root.next_sequence,
        last_op: root.last_op,
        gc_sequence: root.other_sequences[0],
        metadata_sequence: root.other_sequences[1],
        mapped_blocks: root.mapped_blocks,
        places: root.places,
        top: root.top.map(|entry| location(geometry, entry)),
        lists: with_lists.then(|| lists(root)),
    }
}

fn lists(root: &Root) -> Lists {
    let streams = ["user", "gc", "metadata"];
    let open = streams
        .into_iter()
        .zip(root.open)
        .filter(|(_, open)| open.zone != ZONE_NONE);
    let table = root.table.iter().zip(&root.table_incarnations);
    Lists {
        open: open
            .map(|(stream, open)| records::OpenZone {
                stream,
                zone: open.zone,
                mirror: zone(open.mirror),
                cursor: open.cursor,
            })
            .collect(),
        table: table
            .map(|(word, incarnation)| records::TablePage {
                location: Entry::from_word(*word).and_then(|entry| location(&root.geometry, entry)),
                incarnation: *incarnation,
            })
            .collect(),
        mirrors: root.mirrors.clone(),
        probes: root
            .probes
            .iter()
            .map(|probe| records::Probe {
                zone: probe.zone,
                incarnation: probe.incarnation,
                cursor: probe.cursor,
                log: probe.log,
            })
            .collect(),
        epochs: root
            .epochs
            .iter()
            .map(|start| records::Epoch {
                sequence: start.sequence,
                epoch: start.epoch,
            })
            .collect(),
    }
}
