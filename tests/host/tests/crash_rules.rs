// SPDX-License-Identifier: GPL-2.0

//! The crash rules of the design: each is shown to hold by scripts that are explored crash by
//! crash, and each is shown to be needed: with the rule switched off a script finds it.

use zbd_engine::engine::planted::Bug;
use zbd_host_tests::explore::Step::*;
use zbd_host_tests::explore::{explore, Damage, Script};

/// Operation order, prefix and epochs: what follows a crash that has lost some segments.
const ORDER: Script = Script::new(
    "order",
    &[
        &[
            Write(1),
            Flush,
            WriteCrossed(1),
            Seal,
            Write(2),
            Seal,
            Write(1),
            Seal,
            Write(3),
            Seal,
        ],
        &[Write(1), Seal, Write(2), Flush, Write(3)],
        &[Write(3), Flush],
    ],
);

/// Segments of several blocks, torn inside.
const TORN: Script = Script::new(
    "torn",
    &[
        &[
            WriteRaw(1),
            Write(2),
            Flush,
            WriteRaw(1),
            WriteRaw(2),
            Seal,
            WriteRaw(3),
            WriteRaw(1),
            StartFlush,
            Quiesce,
        ],
        &[WriteRaw(1), Write(2), Flush],
    ],
);

/// Checkpoints under way while data is written.
const CHECKPOINT: Script = Script {
    orders: 8,
    width: 4,
    ..Script::new(
        "checkpoint",
        &[
            &[
                Write(1),
                Write(600),
                Flush,
                Write(1),
                Seal,
                Write(2),
                Checkpoint,
                Write(1),
                Seal,
                Write(2),
                Write(600),
                Flush,
            ],
            &[Write(1), Checkpoint, Write(1), Zero(2, 1), Flush],
        ],
    )
};

/// Flushes that overtake and join.
const FLUSH: Script = Script {
    orders: 12,
    ..Script::new(
        "flush",
        &[&[
            Write(1),
            Seal,
            StartFlush,
            Write(2),
            Seal,
            StartFlush,
            Write(1),
            StartFlush,
            Write(3),
            Seal,
            Write(3),
            StartFlush,
            Quiesce,
        ]],
    )
};

/// Failed writes, before and after a checkpoint's cut.
const FAILURES: Script = Script {
    orders: 24,
    width: 2,
    ..Script::new(
        "failures",
        &[
            &[
                FailWrites(1),
                Write(1),
                Seal,
                Write(1),
                Write(2),
                Seal,
                Checkpoint,
                Write(3),
                StartFlush,
                Quiesce,
            ],
            &[Write(2), FailWrites(2), Write(3), Flush],
        ],
    )
};

/// Zeroed blocks and ranges.
const DISCARD: Script = Script::new(
    "discard",
    &[
        &[
            Write(1),
            Write(2),
            Write(700),
            Flush,
            Zero(1, 1),
            Flush,
            Zero(0, 900),
            Flush,
            Write(2),
            Seal,
            Checkpoint,
            Zero(2, 20),
            Flush,
        ],
        &[Zero(1, 700), Write(700), Flush],
    ],
);

/// Base and delta of a page.
const DELTA: Script = Script::new(
    "delta",
    &[&[
        Write(1),
        Write(2),
        Checkpoint,
        Quiesce,
        Write(2),
        Write(3),
        Checkpoint,
        Quiesce,
        Restart,
        Write(4),
        Flush,
        Restart,
    ]],
);

/// A zone is emptied, becomes free and is written again.
const COLLECT: Script = Script {
    orders: 6,
    width: 4,
    ..Script::new(
        "collect",
        &[
            &[
                Write(1),
                Write(2),
                Write(3),
                Flush,
                Cut,
                Write(2),
                Checkpoint,
                Quiesce,
                Collect,
                Write(4),
                Seal,
                Quiesce,
                Seal,
                Quiesce,
                Cut,
                Write(5),
                Seal,
                Write(3),
                Flush,
                Checkpoint,
                Quiesce,
                Write(6),
                Flush,
            ],
            &[Write(1), Flush],
        ],
    )
};

/// The collector has emptied a zone, and the user's stream needs one before the next root.
const REUSE: Script = Script {
    orders: 2,
    width: 4,
    ..Script::new(
        "reuse",
        &[&[
            Write(1),
            Write(2),
            Flush,
            Cut,
            Write(3),
            Checkpoint,
            Quiesce,
            Collect,
            Quiesce,
            Seal,
            Quiesce,
            FailWrites(1),
            Write(3),
            Flush,
            Write(4),
            Flush,
        ]],
    )
};

/// A reader holds a zone that dies: it is discarded only when the reader has let go.
const READER: Script = Script {
    orders: 8,
    discard: true,
    ..Script::new(
        "reader",
        &[&[
            Write(1),
            Flush,
            Cut,
            StartRead(1),
            Write(1),
            Checkpoint,
            Quiesce,
            FinishRead,
        ]],
    )
};

/// Zones gain and lose blocks while a checkpoint writes down what they hold.
const COUNTERS: Script = Script {
    orders: 12,
    closely: 1,
    ..Script::new(
        "counters",
        &[&[
            Write(1),
            Flush,
            Checkpoint,
            Write(2),
            Write(3),
            Seal,
            Write(1),
            Write(2),
            Flush,
            Quiesce,
        ]],
    )
};

/// More zones than a root can list.
const MANY_ZONES: Script = Script {
    zones: 200,
    orders: 2,
    ..Script::new(
        "many zones",
        &[&[Write(1), Flush, Write(2), Flush], &[Write(3), Flush]],
    )
};

/// Durable blocks of the log and of the map go bad.
const ROT: Script = Script {
    orders: 2,
    damage: Damage::Rot,
    ..Script::new(
        "rot",
        &[&[
            Write(1),
            Flush,
            Checkpoint,
            Quiesce,
            Write(1),
            Flush,
            Write(2),
            Flush,
            Mark,
            Write(3),
            Flush,
        ]],
    )
};

/// A device drops writes over what an earlier life of a zone has left there.
const STALE: Script = Script {
    orders: 2,
    damage: Damage::Stale,
    ..Script::new(
        "stale",
        &[&[
            Write(1),
            Flush,
            Cut,
            Mark,
            Write(1),
            Checkpoint,
            Quiesce,
            Cut,
            Write(1),
            Seal,
            Cut,
            Write(1),
            Seal,
            Cut,
            Write(1),
            Flush,
            Checkpoint,
            Quiesce,
            Mark,
            Write(2),
            Flush,
        ]],
    )
};

/// Roots are lost.
const ONE_ROOT: Script = Script {
    damage: Damage::OneRoot,
    ..Script::new(
        "one root",
        &[&[
            Write(1),
            Checkpoint,
            Quiesce,
            Write(1),
            Write(2),
            Checkpoint,
            Quiesce,
            Write(3),
            Flush,
        ]],
    )
};
const NEWEST_ROOT: Script = Script {
    damage: Damage::NewestRoot,
    ..ONE_ROOT
};

/// Every planted bug, and the script that finds it.
const CAUGHT: [(Bug, Script); Bug::ALL.len()] = [
    (Bug::SegmentOrder, ORDER),
    (Bug::NoPrefix, ORDER),
    (Bug::EarlyReuse, REUSE),
    (Bug::AnyEpoch, ORDER),
    (Bug::RootBeforeSegments, CHECKPOINT),
    (Bug::CountersNotAtCut, COUNTERS),
    (Bug::ReaderNotPinned, READER),
    (Bug::OnePlace, ONE_ROOT),
    (Bug::FallBack, NEWEST_ROOT),
    (Bug::UnlistedZones, MANY_ZONES),
    (Bug::RotIsTail, ROT),
    (Bug::TornReplay, TORN),
    (Bug::LateJoin, FLUSH),
    (Bug::FuaOvertakes, FLUSH),
    (Bug::IgnoreWriteError, FAILURES),
    (Bug::ReplayForgetsCut, FAILURES),
    (Bug::DiscardNotLogged, DISCARD),
    (Bug::ChangedAfterChecksum, ORDER),
    (Bug::DropDelta, DELTA),
    (Bug::UnseededChecksum, STALE),
];

/// The engine as it is passes a script.
fn holds(script: &Script) {
    assert_eq!(explore(script, None), Ok(()));
}

/// Each of these bugs is found by its script.
fn needed(bugs: &[Bug]) {
    for bug in bugs {
        let (_, script) = CAUGHT
            .iter()
            .find(|(other, _)| other == bug)
            .expect("listed");
        match explore(script, Some(*bug)) {
            Ok(()) => panic!("{bug:?} is not found by the script \"{}\"", script.name),
            Err(error) => println!("{bug:?}: {error}"),
        }
    }
}

#[test]
fn every_bug_has_a_script() {
    for bug in Bug::ALL {
        assert!(CAUGHT.iter().any(|(other, _)| *other == bug), "{bug:?}");
    }
}

macro_rules! all_hold {
    ($($name:ident: $script:expr;)*) => {
        $(#[test]
        fn $name() {
            holds(&$script);
        })*
    };
}

all_hold! {
    order_holds: ORDER;
    torn_segments_hold: TORN;
    checkpoints_hold: CHECKPOINT;
    flushes_hold: FLUSH;
    failed_writes_hold: FAILURES;
    discards_hold: DISCARD;
    deltas_hold: DELTA;
    collection_holds: COLLECT;
    reuse_holds: REUSE;
    readers_hold: READER;
    counters_hold: COUNTERS;
    many_zones_hold: MANY_ZONES;
    rot_holds: ROT;
    stale_blocks_hold: STALE;
    one_lost_root_holds: ONE_ROOT;
    lost_roots_are_refused: NEWEST_ROOT;
}

macro_rules! rules {
    ($($name:ident: $($bug:ident),*;)*) => {
        $(#[test]
        fn $name() {
            needed(&[$(Bug::$bug),*]);
        })*
    };
}

rules! {
    rule_1_operation_order: SegmentOrder;
    rule_2_only_a_prefix_of_user_segments: NoPrefix, EarlyReuse;
    rule_3_epochs: AnyEpoch;
    rule_4_a_checkpoint_is_a_cut: RootBeforeSegments, CountersNotAtCut, ReaderNotPinned, OnePlace;
    rule_5_no_falling_back: FallBack;
    rule_6_only_listed_zones: UnlistedZones;
    rule_7_torn_or_rotten: RotIsTail, TornReplay;
    rule_8_fua_and_flush: LateJoin, FuaOvertakes;
    rule_9_failed_writes: IgnoreWriteError;
    rule_10_replay_and_the_cut: ReplayForgetsCut;
    rule_11_discards_are_logged: DiscardNotLogged;
    rule_12_one_copy: ChangedAfterChecksum;
    pages_and_seeds: DropDelta, UnseededChecksum;
}
