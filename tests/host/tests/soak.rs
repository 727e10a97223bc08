// SPDX-License-Identifier: GPL-2.0

//! Long random runs on volumes of random shape. `ZBD_SEEDS=from..to` chooses the seeds.

use std::panic::{catch_unwind, AssertUnwindSafe};
use zbd_host_tests::workload::Workload;

fn run(seeds: std::ops::Range<u64>) {
    let mut failed = Vec::new();
    for seed in seeds {
        let workload = Workload::random(seed);
        if catch_unwind(AssertUnwindSafe(|| workload.run(seed))).is_err() {
            eprintln!("seed {seed} failed: {workload:?}");
            failed.push(seed);
        }
    }
    assert!(failed.is_empty(), "failed seeds: {failed:?}");
}

#[test]
fn a_few_seeds() {
    run(0..24);
}

#[test]
#[ignore = "takes as long as it is told to"]
fn chosen_seeds() {
    let range = std::env::var("ZBD_SEEDS").unwrap_or_else(|_| "1000..1200".into());
    let (from, to) = range.split_once("..").expect("ZBD_SEEDS=from..to");
    run(from.parse().expect("a number")..to.parse().expect("a number"));
}
