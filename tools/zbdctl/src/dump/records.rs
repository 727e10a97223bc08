// SPDX-License-Identifier: GPL-2.0

//! What a dump prints: one record per thing found, as JSON or as a line of text.

use crate::size::human;
use serde::Serialize;

/// Something that was found.
#[derive(Debug, Serialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    Image { path: String, bytes: u64 },
    Root(Box<Root>),
    Volume(Box<Volume>),
    Zones(Zones),
    Zone(Zone),
    Segment(Segment),
    Entry(Entry),
    Page(Page),
    Word(Word),
    Map(Map),
    Damage { damage: String },
    End { damaged: u64 },
}

/// A root.
#[derive(Debug, Serialize)]
pub struct Root {
    pub address: u64,
    pub bytes: u64,
    pub generation: u64,
    pub epoch: u32,
    pub clean: bool,
    pub newest: bool,
    /// Whether it stands in one of the places that it names.
    pub in_place: bool,
    pub cut_op: u64,
    pub cut_sequence: u64,
    pub next_sequence: u64,
    pub last_op: u64,
    pub gc_sequence: u64,
    pub metadata_sequence: u64,
    pub mapped_blocks: u64,
    pub places: [u32; 3],
    pub top: [Option<Location>; 2],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lists: Option<Lists>,
}

/// A root's lists.
#[derive(Debug, Serialize)]
pub struct Lists {
    pub open: Vec<OpenZone>,
    pub table: Vec<TablePage>,
    pub mirrors: Vec<(u32, u32)>,
    pub probes: Vec<Probe>,
    pub epochs: Vec<Epoch>,
}

#[derive(Debug, Serialize)]
pub struct OpenZone {
    pub stream: &'static str,
    pub zone: u32,
    pub mirror: Option<u32>,
    pub cursor: u32,
}

#[derive(Debug, Serialize)]
pub struct TablePage {
    pub location: Option<Location>,
    pub incarnation: u32,
}

#[derive(Debug, Serialize)]
pub struct Probe {
    pub zone: u32,
    pub incarnation: u32,
    pub cursor: u32,
    pub log: bool,
}

#[derive(Debug, Serialize)]
pub struct Epoch {
    pub sequence: u64,
    pub epoch: u32,
}

/// Where a fragment stands, in units of 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Location {
    pub zone: u32,
    pub offset: u32,
    pub units: u32,
}

/// The volume as its newest root describes it.
#[derive(Debug, Serialize)]
pub struct Volume {
    pub uuid: String,
    pub label: String,
    pub generation: u64,
    pub clean: bool,
    pub logical_bytes: u64,
    pub zone_bytes: u64,
    pub zone_capacity_bytes: u64,
    pub zones: u32,
    pub metadata_copies: u8,
    pub codec: String,
    pub straddle: bool,
    pub mapped_bytes: u64,
    pub map_levels: u8,
    pub features_compatible: u64,
    pub features_read_only: u64,
    pub features_incompatible: u64,
}

/// Zones by state.
#[derive(Debug, Default, Serialize)]
pub struct Zones {
    pub free: u32,
    pub superblock: u32,
    pub open: u32,
    pub full: u32,
    pub mirror: u32,
    pub unusable: u32,
    /// Zones whose page of the zone table is unreadable.
    pub unknown: u32,
    pub live_bytes: u64,
}

/// A zone.
#[derive(Debug, Serialize)]
pub struct Zone {
    pub zone: u32,
    pub address: u64,
    pub state: &'static str,
    pub kind: &'static str,
    pub incarnation: u32,
    pub live_bytes: u64,
    pub mirror: Option<u32>,
    pub opened_op: u64,
    pub filled_op: u64,
    /// Whether the root lists it for the log behind it.
    pub probed: bool,
}

/// A segment.
#[derive(Debug, Serialize)]
pub struct Segment {
    pub zone: u32,
    pub block: u32,
    pub blocks: u32,
    pub kind: &'static str,
    pub sequence: u64,
    pub epoch: u32,
    pub incarnation: u32,
    pub op_base: u64,
    pub flushed: u64,
    pub root_generation: u64,
    pub entries: u16,
    /// Whether the header was read from the copy at the end.
    pub by_footer: bool,
    pub summary: bool,
    pub bad_fragments: u32,
    /// A user segment behind the root's cut: to be replayed if no number before it is missing.
    pub replayable: bool,
}

/// An entry of a summary.
#[derive(Debug, Serialize)]
pub struct Entry {
    pub zone: u32,
    /// Offset in the zone, in units.
    pub offset: u32,
    pub units: u32,
    pub op: u64,
    #[serde(flatten)]
    pub item: Item,
}

/// What an entry of a summary says.
#[derive(Debug, Serialize)]
#[serde(tag = "item", rename_all = "snake_case")]
pub enum Item {
    Void,
    Data {
        lbn: u64,
        blocks: u32,
        codec: &'static str,
        intact: bool,
    },
    Metadata {
        kind: &'static str,
        level: u8,
        index: u64,
        intact: bool,
    },
    Zeros {
        lbn: u64,
        blocks: u64,
    },
}

/// A page of the map.
#[derive(Debug, Serialize)]
pub struct Page {
    pub level: u8,
    pub index: u64,
    pub first_lbn: u64,
    pub base: Location,
    pub delta: Option<Location>,
    pub mapped: u32,
    pub lost: u32,
    /// Words that the delta changes.
    pub changed: u32,
    /// Copies that were unreadable though another was not.
    pub bad_copies: u32,
}

/// A word of a leaf.
#[derive(Debug, Serialize)]
pub struct Word {
    pub lbn: u64,
    /// Missing: lost to unreadable media.
    pub location: Option<Location>,
    pub extent_blocks: u32,
}

/// The map as a whole, as of the root.
#[derive(Debug, Default, Serialize)]
pub struct Map {
    pub pages: u64,
    pub unreadable_pages: u64,
    pub mapped_blocks: u64,
    pub lost_blocks: u64,
}

fn yes(flag: bool, text: &str) -> String {
    if flag {
        format!(" {text}")
    } else {
        String::new()
    }
}

fn place(location: &Option<Location>) -> String {
    match location {
        Some(at) => format!("{}:{}+{}", at.zone, at.offset, at.units),
        None => "none".into(),
    }
}

impl Record {
    /// The record for people. Places are written zone:offset+length, in units of 16 bytes.
    pub fn text(&self) -> String {
        match self {
            Record::Image { path, bytes } => format!("{path}: {} ({bytes} bytes)", human(*bytes)),
            Record::Root(root) => root.text(),
            Record::Volume(volume) => volume.text(),
            Record::Zones(zones) => zones.text(),
            Record::Zone(zone) => zone.text(),
            Record::Segment(segment) => segment.text(),
            Record::Entry(entry) => entry.text(),
            Record::Page(page) => page.text(),
            Record::Word(word) => match word.location {
                Some(_) => format!(
                    "      block {} at {}{}",
                    word.lbn,
                    place(&word.location),
                    yes(
                        word.extent_blocks > 1,
                        &format!("of {} blocks", word.extent_blocks)
                    )
                ),
                None => format!("      block {} LOST", word.lbn),
            },
            Record::Map(map) => format!(
                "map: {} pages, {} blocks mapped{}{}",
                map.pages,
                map.mapped_blocks,
                yes(map.lost_blocks > 0, &format!("{} LOST", map.lost_blocks)),
                yes(
                    map.unreadable_pages > 0,
                    &format!("{} pages UNREADABLE", map.unreadable_pages)
                ),
            ),
            Record::Damage { damage } => format!("DAMAGE: {damage}"),
            Record::End { damaged: 0 } => "no damage found".into(),
            Record::End { damaged } => format!("DAMAGED: {damaged} findings"),
        }
    }
}

impl Root {
    fn text(&self) -> String {
        let mut text = format!(
            "root at {:#x}: generation {} epoch {}{}{}{}, {} bytes, cut op {} sequence {}, next {}, last op {}, {} blocks mapped, top {} {}",
            self.address,
            self.generation,
            self.epoch,
            yes(self.clean, "clean"),
            yes(self.newest, "NEWEST"),
            yes(!self.in_place, "OUT OF PLACE"),
            self.bytes,
            self.cut_op,
            self.cut_sequence,
            self.next_sequence,
            self.last_op,
            self.mapped_blocks,
            place(&self.top[0]),
            place(&self.top[1]),
        );
        if let Some(lists) = &self.lists {
            lists.add_to(&mut text);
        }
        text
    }
}

impl Lists {
    fn add_to(&self, text: &mut String) {
        for open in &self.open {
            text.push_str(&format!(
                "\n    open {} zone {} at block {}{}",
                open.stream,
                open.zone,
                open.cursor,
                open.mirror.map_or(String::new(), |zone| format!(
                    ", second copy in zone {zone}"
                ))
            ));
        }
        for (at, page) in self.table.iter().enumerate() {
            let (location, incarnation) = (place(&page.location), page.incarnation);
            text.push_str(&format!(
                "\n    zone table page {at} at {location} incarnation {incarnation}"
            ));
        }
        for (zone, mirror) in &self.mirrors {
            text.push_str(&format!(
                "\n    zone {zone} has its second copy in zone {mirror}"
            ));
        }
        for probe in &self.probes {
            text.push_str(&format!(
                "\n    probe zone {} incarnation {} from block {}{}",
                probe.zone,
                probe.incarnation,
                probe.cursor,
                yes(probe.log, "log")
            ));
        }
        for start in &self.epochs {
            text.push_str(&format!(
                "\n    epoch {} from sequence {}",
                start.epoch, start.sequence
            ));
        }
    }
}

impl Volume {
    fn text(&self) -> String {
        let features = [
            self.features_compatible,
            self.features_read_only,
            self.features_incompatible,
        ];
        let lines = [
            format!("volume {}", self.uuid),
            format!("  label            {}", self.label),
            format!(
                "  generation       {}{}",
                self.generation,
                yes(self.clean, "(clean)")
            ),
            format!(
                "  logical size     {} ({} bytes)",
                human(self.logical_bytes),
                self.logical_bytes
            ),
            format!("  data             {}", human(self.mapped_bytes)),
            format!(
                "  zones            {} of {}",
                self.zones,
                human(self.zone_bytes)
            ),
            format!("  metadata copies  {}", self.metadata_copies),
            format!(
                "  codec            {}{}",
                self.codec,
                yes(!self.straddle, "(no straddling)")
            ),
            format!(
                "  map              {} levels above the leaves",
                self.map_levels
            ),
            format!(
                "  features         {:#x} {:#x} {:#x}",
                features[0], features[1], features[2]
            ),
        ];
        lines.map(|line| line.trim_end().to_string()).join("\n")
    }
}

impl Zones {
    fn text(&self) -> String {
        format!(
            "zones: {} free, {} full, {} open, {} mirror, {} superblock{}{}, {} live",
            self.free,
            self.full,
            self.open,
            self.mirror,
            self.superblock,
            yes(self.unusable > 0, &format!("{} unusable", self.unusable)),
            yes(self.unknown > 0, &format!("{} UNKNOWN", self.unknown)),
            human(self.live_bytes)
        )
    }
}

impl Zone {
    fn text(&self) -> String {
        format!(
            "zone {} at {:#x}: {} {} incarnation {}, {} live, opened at op {}, filled at {}{}{}",
            self.zone,
            self.address,
            self.state,
            self.kind,
            self.incarnation,
            human(self.live_bytes),
            self.opened_op,
            self.filled_op,
            self.mirror
                .map_or(String::new(), |zone| format!(", paired with zone {zone}")),
            yes(self.probed, "probed")
        )
    }
}

impl Segment {
    fn text(&self) -> String {
        format!(
            "  segment zone {} block {}+{}: {} {} epoch {} op {} flushed {} root {}, {} entries{}{}{}{}",
            self.zone,
            self.block,
            self.blocks,
            self.kind,
            self.sequence,
            self.epoch,
            self.op_base,
            self.flushed,
            self.root_generation,
            self.entries,
            yes(self.by_footer, "HEADER LOST"),
            yes(!self.summary, "SUMMARY LOST"),
            yes(self.bad_fragments > 0, &format!("{} BAD FRAGMENTS", self.bad_fragments)),
            yes(self.replayable, "replayable")
        )
    }
}

impl Entry {
    fn text(&self) -> String {
        let bad = |intact: bool| yes(!intact, "BAD");
        let item = match &self.item {
            Item::Void => "void".into(),
            Item::Data {
                lbn,
                blocks,
                codec,
                intact,
            } => {
                format!("data block {lbn}+{blocks} {codec}{}", bad(*intact))
            }
            Item::Metadata {
                kind,
                level,
                index,
                intact,
            } => {
                format!("{kind} level {level} index {index}{}", bad(*intact))
            }
            Item::Zeros { lbn, blocks } => format!("zeros block {lbn}+{blocks}"),
        };
        format!(
            "    {}:{}+{} op {} {item}",
            self.zone, self.offset, self.units, self.op
        )
    }
}

impl Page {
    fn text(&self) -> String {
        format!(
            "  page level {} index {} (from block {}): base {} delta {}, {} mapped{}{}{}",
            self.level,
            self.index,
            self.first_lbn,
            place(&Some(self.base)),
            place(&self.delta),
            self.mapped,
            yes(self.changed > 0, &format!("{} by delta", self.changed)),
            yes(self.lost > 0, &format!("{} LOST", self.lost)),
            yes(
                self.bad_copies > 0,
                &format!("{} COPIES BAD", self.bad_copies)
            )
        )
    }
}
