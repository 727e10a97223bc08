use zbd_host_tests::workload::Workload;
use zbd_host_tests::explore::*;
use zbd_host_tests::explore::Step::*;
#[test] fn dbg() { let seed: u64 = std::env::var("SEED").unwrap().parse().unwrap(); Workload::random(seed).run(seed); }
const FAILURES: Script = Script {
    orders: 1,
    width: 0,
    ..Script::new(
        "failures",
        &[
            &[FailWrites(1), Write(1), Seal, Write(1), Write(2), Seal, Checkpoint, Write(3), StartFlush, Quiesce],
            &[Write(2), FailWrites(2), Write(3), Flush],
        ],
    )
};
#[test] fn fail() { eprintln!("{:?}", explore(&FAILURES, None)); }
