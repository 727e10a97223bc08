// SPDX-License-Identifier: GPL-2.0

//! Any sequence of operations, power cuts and failed writes, compared with the reference; what
//! fails is shrunk to the shortest script.

use proptest::collection::vec;
use proptest::prelude::*;
use zbd_host_tests::world::{Outcome, World};

#[derive(Clone, Debug)]
enum Op {
    Write(u64, usize),
    Extent(u64, u8),
    Zero(u64, u64),
    DiscardAll,
    Read(u64),
    Flush,
    StartFlush,
    Seal,
    Checkpoint,
    Collect,
    Quiesce,
    Restart,
    Crash,
    FailWrites(u32),
}

const BLOCKS: u64 = 1200;

fn op() -> impl Strategy<Value = Op> {
    // Most blocks are among few, so that they are overwritten often.
    let lbn = prop_oneof![3 => 0..24u64, 1 => 0..BLOCKS];
    prop_oneof![
        12 => (lbn.clone(), 16..4097usize).prop_map(|(lbn, bytes)| Op::Write(lbn, bytes)),
        3 => (0..30u64, 0..6u8).prop_map(|(at, log2)| Op::Extent(at << log2, log2)),
        3 => (lbn.clone(), prop_oneof![1..10u64, 1..BLOCKS]).prop_map(|(lbn, n)| Op::Zero(lbn, n)),
        1 => Just(Op::DiscardAll),
        3 => lbn.prop_map(Op::Read),
        3 => Just(Op::Flush),
        2 => Just(Op::StartFlush),
        2 => Just(Op::Seal),
        2 => Just(Op::Checkpoint),
        2 => Just(Op::Collect),
        1 => Just(Op::Quiesce),
        1 => Just(Op::Restart),
        3 => Just(Op::Crash),
        1 => (1..3u32).prop_map(Op::FailWrites),
    ]
}

fn perform(world: &mut World, op: &Op) {
    match *op {
        Op::Write(lbn, bytes) => {
            world.payload = bytes;
            assert_eq!(world.write(lbn), Outcome::Done);
        }
        Op::Extent(lbn, log2) => {
            world.payload = 400 << log2;
            assert_eq!(world.write_extent(lbn, log2), Outcome::Done);
        }
        Op::Zero(lbn, blocks) => {
            let blocks = blocks.min(BLOCKS - lbn);
            assert_eq!(world.zero(lbn, blocks), Outcome::Done);
        }
        Op::DiscardAll => {
            let blocks = world.engine().geometry().logical_blocks;
            assert_eq!(world.zero(0, blocks), Outcome::Done);
        }
        Op::Read(lbn) => world.check(lbn),
        Op::Flush => world.flush().unwrap(),
        Op::StartFlush => {
            world.start_flush();
        }
        Op::Seal => world.tick(),
        Op::Checkpoint => world.engine().request_checkpoint(),
        Op::Collect => world.engine().request_collection(),
        Op::Quiesce => world.quiesce(),
        Op::Restart => {
            world.detach();
            assert!(world.attach().unwrap().clean);
        }
        Op::Crash => {
            world.crash();
            world.recover().unwrap();
        }
        Op::FailWrites(count) => world.fail_next = count,
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 250,
        failure_persistence: None,
        max_shrink_iters: 4000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_script(seed in 0..1000u64, ops in vec(op(), 1..120)) {
        let mut world = World::new(seed, 48, None);
        for op in &ops {
            perform(&mut world, op);
        }
        world.quiesce();
        world.check_all();
    }
}
