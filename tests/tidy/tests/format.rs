// SPDX-License-Identifier: GPL-2.0

//! `Documentation/format.md` and the code that it describes: structures are encoded, and looked at
//! where the document says that their fields are.

use zbd_engine::format::entry::Entry;
use zbd_engine::format::fragment::{self, Codec, Identity, Metadata};
use zbd_engine::format::packed;
use zbd_engine::format::root::{self, EpochStart, Features, OpenZone, Options, Probe, Root};
use zbd_engine::format::segment::{
    self, Item, Layout, SegmentHeader, SegmentKind, SummaryEntry, HEADER_BYTES,
};
use zbd_engine::format::zone_table::{self, RecordKind, RecordState, ZoneRecord};
use zbd_engine::hash::xxh64;
use zbd_engine::state::volume_seed;
use zbd_engine::units::{
    self, place_seed, Geometry, BLOCK_BYTES, FANOUT, PAGE_WORDS, UNIT_BYTES, ZONES_MAX, ZONES_MIN,
};
use zbd_tidy::read;

const FORMAT: &str = "Documentation/format.md";

/// A line of a table: where, how long (0: to the end), what.
#[derive(Clone, Debug)]
struct Row {
    at: usize,
    length: usize,
    text: String,
}

/// The rows of the table whose last column has this title.
fn table(title: &str) -> Vec<Vec<String>> {
    let text = read(FORMAT);
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner
            .split('|')
            .map(|cell| cell.trim().to_string())
            .collect()
    };
    let mut lines = text.lines().skip_while(|line| {
        !line.starts_with('|') || cells(line).last().map(String::as_str) != Some(title)
    });
    assert!(
        lines.next().is_some(),
        "{FORMAT} has no table of \"{title}\""
    );
    lines
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(cells)
        .collect()
}

/// A table of bytes: offset, length, field. Rows follow each other without gaps.
fn bytes_of(title: &str) -> Vec<Row> {
    let rows = table(title).into_iter().map(|cells| Row {
        at: cells[0].parse().expect("an offset"),
        length: cells[1].parse().unwrap_or(0),
        text: cells[2].clone(),
    });
    follow(title, rows.collect())
}

/// A table of bits: range, field.
fn bits_of(title: &str) -> Vec<Row> {
    let rows = table(title).into_iter().map(|cells| {
        let (first, last) = cells[0].split_once('–').expect("a range of bits");
        let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
        Row {
            at: first,
            length: last - first + 1,
            text: cells[1].clone(),
        }
    });
    rows.collect()
}

fn follow(title: &str, rows: Vec<Row>) -> Vec<Row> {
    assert_eq!(rows[0].at, 0, "{title}: starts behind the start");
    for pair in rows.windows(2) {
        let end = pair[0].at + pair[0].length;
        assert_eq!(
            end, pair[1].at,
            "{title}: a gap or an overlap behind \"{}\"",
            pair[0].text
        );
    }
    rows
}

/// Where a table ends: the end of its last row that has a length.
fn end(rows: &[Row]) -> usize {
    let last = rows.iter().rev().find(|row| row.length > 0).expect("a row");
    last.at + last.length
}

/// Compares what stands at each row with what should, by the start of the row's text. Every row
/// must have an expectation, and every expectation a row.
fn compare(title: &str, rows: &[Row], encoded: &[u8], expected: &[(&str, &[u8])]) {
    let mut left: Vec<&(&str, &[u8])> = expected.iter().collect();
    for row in rows.iter().filter(|row| row.length > 0) {
        let found = &encoded[row.at..row.at + row.length];
        if row.text.starts_with("zero") {
            assert!(found.iter().all(|byte| *byte == 0), "{title}: {}", row.text);
            continue;
        }
        let at = left.iter().position(|(name, _)| row.text.starts_with(name));
        let (_, value) =
            left.remove(at.unwrap_or_else(|| panic!("{title}: what is \"{}\"?", row.text)));
        assert_eq!(found, *value, "{title}: {} at {}", row.text, row.at);
    }
    assert!(left.is_empty(), "{title}: not in the document: {left:?}");
}

fn geometry() -> Geometry {
    Geometry {
        zone_blocks: 1024,
        zone_capacity_blocks: 1000,
        zones: 100,
        logical_blocks: 5000,
        metadata_copies: 2,
    }
}

fn sample_root() -> Root {
    let entry = |location| Entry::mapped(location, 7, 0).unwrap();
    let mut root = Root::empty(&geometry()).unwrap();
    root.features = Features {
        compatible: 0x11,
        read_only: 0x22,
        incompatible: 0,
    };
    root.uuid = *b"0123456789abcdef";
    root.label = [b'l'; 32];
    root.generation = 33;
    root.epoch = 44;
    root.clean = true;
    root.options = Options {
        straddle: true,
        codec: 2,
        level: 9,
    };
    root.cut_op = 55;
    root.cut_sequence = 66;
    root.next_sequence = 77;
    root.last_op = 88;
    root.other_sequences = [99, 111];
    root.mapped_blocks = 122;
    root.top = [entry(1000), entry(2000)];
    root.open = [1u32, 2, 3].map(|n| OpenZone {
        zone: n,
        mirror: 10 + n,
        cursor: 20 + n,
    });
    root.places = [0, 99, 1];
    root.table = vec![entry(3000).word()];
    root.table_incarnations = vec![5];
    root.mirrors = vec![(6, 7)];
    root.probes = vec![Probe {
        zone: 8,
        incarnation: 9,
        cursor: 10,
        log: true,
    }];
    root.epochs = vec![EpochStart {
        sequence: 66,
        epoch: 44,
    }];
    root
}

fn words(values: &[u32]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn roots() {
    let rows = bytes_of("field of a root");
    let root = sample_root();
    let mut out = vec![0; root::BYTES_MAX];
    let length = root.encode(&mut out).unwrap();
    let sum = xxh64(xxh64(0x7a62_6452_4f4f_5431, &out[..8]), &out[16..length]).to_le_bytes();
    let expected: &[(&str, &[u8])] = &[
        ("magic `zbdROOT1`", b"zbdROOT1"),
        ("checksum", &sum),
        ("length", &(length as u32).to_le_bytes()),
        ("version, 1", &1u32.to_le_bytes()),
        ("compatible features", &0x11u64.to_le_bytes()),
        ("read-only compatible features", &0x22u64.to_le_bytes()),
        ("incompatible features", &[0; 8]),
        ("UUID", b"0123456789abcdef"),
        ("label", &[b'l'; 32]),
        ("generation", &33u64.to_le_bytes()),
        ("epoch", &44u32.to_le_bytes()),
        ("flags: 1", &1u32.to_le_bytes()),
        ("logical blocks that hold data", &122u64.to_le_bytes()),
        ("logical blocks", &5000u64.to_le_bytes()),
        ("blocks of a zone", &1024u32.to_le_bytes()),
        ("writable blocks of a zone", &1000u32.to_le_bytes()),
        ("zones", &100u32.to_le_bytes()),
        ("copies of metadata", &[2]),
        ("fragments may straddle", &[1]),
        ("codec for new data", &[2]),
        ("its level", &[9]),
        ("cut: last operation", &55u64.to_le_bytes()),
        ("first user segment that the map", &66u64.to_le_bytes()),
        ("first user segment of this epoch", &77u64.to_le_bytes()),
        ("last operation number", &88u64.to_le_bytes()),
        (
            "next sequence number of the collector",
            &99u64.to_le_bytes(),
        ),
        (
            "next sequence number of the metadata",
            &111u64.to_le_bytes(),
        ),
        (
            "top page of the map: base",
            &root.top[0].word().to_le_bytes(),
        ),
        (
            "top page of the map: delta",
            &root.top[1].word().to_le_bytes(),
        ),
        ("open zones", &words(&[1, 11, 21, 2, 12, 22, 3, 13, 23])),
        ("the three zones", &words(&[0, 99, 1])),
        ("pages of the zone table", &1u32.to_le_bytes()),
        ("mirrors", &1u32.to_le_bytes()),
        ("probes", &1u16.to_le_bytes()),
        ("epochs", &1u16.to_le_bytes()),
    ];
    compare("root", &rows, &out, expected);
    let mut at = end(&rows);
    assert_eq!(
        rows.last().unwrap().at,
        at,
        "the arrays start behind the fixed part"
    );
    let arrays: &[(&str, Vec<u8>)] = &[
        ("zone table", root.table[0].to_le_bytes().to_vec()),
        ("incarnations", words(&[5])),
        ("mirrors", words(&[6, 7])),
        ("probes", words(&[8, 9, 10, 1])),
        ("epochs", words(&[66, 0, 44, 0])),
    ];
    let documented = table("content of an array");
    assert_eq!(documented.len(), arrays.len());
    for (cells, (name, bytes)) in documented.iter().zip(arrays) {
        assert_eq!(
            (cells[0].as_str(), cells[1].parse()),
            (*name, Ok(bytes.len()))
        );
        assert_eq!(&out[at..at + bytes.len()], bytes, "{name}");
        at += bytes.len();
    }
    assert!(out[at..length].iter().all(|byte| *byte == 0));
}

#[test]
fn segment_headers() {
    let rows = bytes_of("header and footer");
    assert_eq!(end(&rows), HEADER_BYTES);
    let header = SegmentHeader {
        kind: SegmentKind::Gc,
        epoch: 11,
        incarnation: 22,
        sequence: 33,
        op_base: 44,
        flushed: 55,
        root_generation: 66,
        layout: Layout::plan(1000, 20),
        entries: 20,
    };
    for (magic, out) in [
        (b"zbdS", header.encode_header(5)),
        (b"zbdF", header.encode_footer(5)),
    ] {
        let mut cleared = out;
        cleared[8..16].fill(0);
        let expected: &[(&str, &[u8])] = &[
            ("magic `zbdS`, in the footer `zbdF`", magic),
            ("version, 1", &[1]),
            ("kind: 1 user, 2 collector, 3 metadata", &[2]),
            ("xxh64 of the 64 bytes", &xxh64(5, &cleared).to_le_bytes()),
            ("epoch", &11u32.to_le_bytes()),
            ("incarnation", &22u32.to_le_bytes()),
            ("sequence number", &33u64.to_le_bytes()),
            ("operation number base", &44u64.to_le_bytes()),
            ("flushed", &55u64.to_le_bytes()),
            ("generation of the root", &66u64.to_le_bytes()),
            ("blocks", &(header.layout.blocks as u16).to_le_bytes()),
            ("offset of the summary", &1000u16.to_le_bytes()),
            (
                "offset of the second summary",
                &(header.layout.second.unwrap() as u16).to_le_bytes(),
            ),
            ("entries", &20u16.to_le_bytes()),
        ];
        compare("segment header", &rows, &out, expected);
    }
}

/// The field of a row in an encoded number of up to 128 bits.
fn bits(row: &Row, word: u128) -> u128 {
    (word >> row.at) & ((1 << row.length) - 1)
}

fn named<'a>(rows: &'a [Row], start: &str) -> &'a Row {
    let mut found = rows.iter().filter(|row| row.text.starts_with(start));
    found.next().unwrap_or_else(|| panic!("no row \"{start}\""))
}

#[test]
fn summary_entries() {
    let rows = bits_of("summary entry");
    assert_eq!(end(&rows), 8 * UNIT_BYTES);
    let data = SummaryEntry {
        item: Item::Fragment(Identity::Data {
            lbn: 0x3f_ffff_ff01,
            log2: 5,
            codec: Codec::Zstd,
        }),
        units: 0x1abc,
        op_delta: 0x3ff_ff02,
    };
    let word = u128::from_le_bytes(data.encode());
    for (name, value) in [
        ("LBN", 0x3f_ffff_ff01),
        ("log2", 5),
        ("stored length", 0x1abc),
        ("codec", 2),
        ("kind", 1),
        ("operation number", 0x3ff_ff02),
        ("number of blocks", 0),
    ] {
        assert_eq!(bits(named(&rows, name), word), value, "{name}");
    }
    let zeros = SummaryEntry {
        item: Item::Zeros { lbn: 7, blocks: 99 },
        units: 0,
        op_delta: 1,
    };
    let word = u128::from_le_bytes(zeros.encode());
    assert_eq!(bits(named(&rows, "number of blocks"), word), 99);
    assert_eq!(bits(named(&rows, "kind"), word), 3);
}

#[test]
fn map_words() {
    let rows = bits_of("word");
    assert_eq!(end(&rows), 64);
    let word = Entry::mapped(0x3fff_ffff_ff01, 0x1abc, 5)
        .unwrap()
        .word()
        .into();
    for (name, value) in [
        ("location", 0x3fff_ffff_ff01),
        ("its length", 0x1abc),
        ("log2", 5),
        ("kind", 1),
    ] {
        assert_eq!(bits(named(&rows, name), word), value, "{name}");
    }
    assert_eq!(bits(named(&rows, "kind"), Entry::LOST.word().into()), 2);
}

#[test]
fn fragments() {
    let rows = bytes_of("field of a fragment");
    assert_eq!(end(&rows), fragment::HEADER_BYTES);
    let payload = [7u8; 33];
    let identity = Identity::Metadata {
        kind: Metadata::ZoneTable,
        level: 3,
        index: 0x3f_ffff_ff01,
    };
    let mut room = vec![0; fragment::stored_units(payload.len()) as usize * UNIT_BYTES];
    assert!(fragment::seal(&mut room, 9, identity, &payload));
    let word = 0x3f_ffff_ff01u64 | (3 << 38) | (33 << 41) | (2 << 59) | (2 << 62);
    let expected: &[(&str, &[u8])] = &[
        ("xxh64 of the rest", &xxh64(9, &room[8..]).to_le_bytes()),
        ("bits 0–37 LBN or index; 38–40 log2 of blocks or level; 41–58 payload bytes; 59–61 codec", &word.to_le_bytes()),
    ];
    compare("fragment", &rows, &room, expected);
}

#[test]
fn packed_pages() {
    let rows = bytes_of("packed page");
    let mut words = [0; PAGE_WORDS];
    words[3] = Entry::mapped(1000, 20, 1).unwrap().word();
    words[4] = Entry::mapped(1015, 23, 0).unwrap().word();
    words[9] = Entry::LOST.word();
    let mut out = [0; packed::BYTES_MAX];
    let length = packed::encode_base(&mut out, &words).unwrap();
    let expected: &[(&str, &[u8])] = &[
        ("version, 1", &[1]),
        ("0 base, 1 delta", &[0]),
        ("words listed", &3u16.to_le_bytes()),
        ("bits of a location", &[4]),
        ("bits of a length", &[2]),
        ("bits of log2", &[3]),
        ("bits of kind", &[2]),
        ("smallest location", &1000u64.to_le_bytes()),
        ("smallest length", &20u16.to_le_bytes()),
    ];
    compare("packed page", &rows, &out, expected);
    let start = end(&rows);
    assert_eq!(rows.last().unwrap().at, start);
    assert_eq!(
        out[start..start + 64]
            .iter()
            .map(|byte| byte.count_ones())
            .sum::<u32>(),
        3
    );
    let bits: usize = (2 + 3 + 2 + 4) * 2 + 2;
    assert_eq!(length, start + 64 + bits.div_ceil(8));
}

#[test]
fn zone_records() {
    let rows = bytes_of("record");
    assert_eq!(end(&rows), zone_table::RECORD_BYTES);
    let record = ZoneRecord {
        incarnation: 11,
        live: 22,
        mirror: 33,
        state: RecordState::Mirror,
        kind: RecordKind::Metadata,
        opened_op: 44,
        filled_op: 55,
    };
    let expected: &[(&str, &[u8])] = &[
        ("incarnation", &11u32.to_le_bytes()),
        ("live units", &22u32.to_le_bytes()),
        ("the other zone", &33u32.to_le_bytes()),
        (
            "state: 0 free, 1 roots, 2 open, 3 full, 4 second copy of another, 5 unusable",
            &[4],
        ),
        (
            "kind of segments: 0 none, 1 user, 2 collector, 3 metadata",
            &[3],
        ),
        ("operation number when it was opened", &44u64.to_le_bytes()),
        ("operation number when it was filled", &55u64.to_le_bytes()),
    ];
    compare("zone record", &rows, &record.encode(), expected);
}

#[test]
fn seeds() {
    fn mix(mut w: u64) -> u64 {
        w ^= w >> 30;
        w = w.wrapping_mul(0xbf58_476d_1ce4_e5b9);
        w ^= w >> 27;
        w = w.wrapping_mul(0x94d0_49bb_1331_11eb);
        w ^ (w >> 31)
    }
    let uuid = *b"0123456789abcdef";
    let volume = volume_seed(&uuid);
    assert_eq!(volume, xxh64(0x7a62_6476_6f6c_0001, &uuid));
    let (zone, incarnation, offset) = (5u32, 6u32, 7u32);
    let word = (u64::from(zone) << 32) | u64::from(incarnation);
    let expected = mix(mix(volume ^ mix(word)).wrapping_add(offset.into()));
    assert_eq!(place_seed(volume, zone, incarnation, offset), expected);
    let text = read(FORMAT);
    for number in [
        "0xbf58476d1ce4e5b9",
        "0x94d049bb133111eb",
        "0x7a6264766f6c0001",
        "0x7a6264524f4f5431",
    ] {
        assert!(text.contains(number), "{FORMAT} does not have {number}");
    }
}

#[test]
fn bounds() {
    let rows = table("value");
    let documented = |name: &str| -> u64 {
        let row = rows.iter().find(|cells| cells[0] == name);
        let row = row.unwrap_or_else(|| panic!("no bound \"{name}\" in {FORMAT}"));
        row[1]
            .parse()
            .unwrap_or_else(|_| panic!("\"{name}\" is not a number"))
    };
    let bounds = [
        ("bytes of a unit", UNIT_BYTES as u64),
        ("bytes of a block", BLOCK_BYTES as u64),
        ("blocks of a zone, least", units::ZONE_BLOCKS_MIN.into()),
        ("blocks of a zone, most", units::ZONE_BLOCKS_MAX.into()),
        ("zones, least", ZONES_MIN.into()),
        ("zones, most", ZONES_MAX.into()),
        ("logical blocks, most", units::LOGICAL_BLOCKS_MAX),
        (
            "blocks of an extent, most",
            1 << zbd_engine::format::entry::EXTENT_SHIFT_MAX,
        ),
        (
            "units of a fragment, most",
            zbd_engine::format::entry::FRAGMENT_UNITS_MAX.into(),
        ),
        ("blocks of a segment, most", segment::BLOCKS_MAX.into()),
        ("entries of a segment, most", segment::ENTRIES_MAX as u64),
        ("bytes of a root, most", root::BYTES_MAX as u64),
        ("bytes of a place for roots", root::REGION_BYTES),
        ("probes of a root, most", root::PROBES_MAX as u64),
        ("epochs of a root, most", root::EPOCHS_MAX as u64),
        ("words of a page", PAGE_WORDS as u64),
        ("children of a directory page", FANOUT),
        (
            "zones of a page of the zone table",
            zone_table::RECORDS_PER_PAGE.into(),
        ),
    ];
    assert_eq!(rows.len(), bounds.len());
    for (name, value) in bounds {
        assert_eq!(documented(name), value, "{name}");
    }
}
