// SPDX-License-Identifier: GPL-2.0

//! Requests arrive, and are worked on in steps.
//!
//! A step runs where the request arrives, if it is short, or on the queue for requests. It ends
//! the request, or leaves it to somebody who will call [`again`]: the engine (parked, see
//! [`Core::park`](super::volume::Core::park)), a completion, or a buffer's next user.

use super::{
    discard,
    read::{
        self,
        ReadState, //
    },
    volume::Volume,
    write::{
        self,
        WriteBuffer, //
    }, //
};
use crate::linux::{
    blk_mq::Operations,
    memalloc::NoIo,
    request::{
        Busy,
        Op,
        Request, //
    }, //
};
use kernel::{
    impl_has_work,
    new_mutex,
    new_work,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        Work,
        WorkItem, //
    }, //
};

/// Requests of a volume that there are at once.
pub(super) const QUEUE_DEPTH: u32 = 128;
/// Numbers of requests are below this.
pub(super) const REQUESTS: usize = QUEUE_DEPTH as usize + 1;
/// Largest request in bytes.
pub(super) const REQUEST_BYTES_MAX: usize = 128 << 10;
/// Blocks of the largest request.
pub(super) const REQUEST_BLOCKS_MAX: usize = REQUEST_BYTES_MAX / 4096;

/// Writes of up to this many bytes may be compressed where they arrive.
const SMALL_WRITE_BYTES: usize = 8 << 10;

/// Where a step runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Context {
    /// Where the request arrives: the block layer may hold back what is submitted, so that
    /// nothing may wait for I/O, not even for memory.
    Arrival,
    /// On the queue for requests.
    Worker,
}

/// The driver, for blk-mq.
pub(super) struct Driver;

/// What is in each request between two steps.
#[pin_data]
pub(super) struct RequestData {
    #[pin]
    work: Work<RequestData>,
    /// Used by one step at a time: never contended.
    #[pin]
    pub(super) state: Mutex<State>,
    /// Where completions leave what was read.
    pub(super) arrivals: read::Arrivals,
}

/// The state of a request between two steps.
pub(super) struct State {
    /// Blocks that are done.
    pub(super) done: usize,
    /// Of a write: its data, once it has a buffer.
    pub(super) write: Option<KBox<WriteBuffer>>,
    /// Of a read.
    pub(super) read: ReadState,
}

impl_has_work! {
    impl HasWork<Self> for RequestData { self.work }
}

impl WorkItem for RequestData {
    type Pointer = Request<Driver>;

    fn run(rq: Request<Driver>) {
        let _scope = NoIo::enter();
        step(&rq.queue_data_arc(), rq, Context::Worker);
    }
}

/// Goes on with a request on the queue for requests. Any context.
pub(super) fn again(rq: Request<Driver>) {
    // The volume lives until the request is ended, and the queue with it.
    let volume = rq.queue_data_arc();
    volume.requests.enqueue(rq);
}

fn step(volume: &Arc<Volume>, rq: Request<Driver>, context: Context) {
    match rq.op() {
        Op::Read => read::step(volume, rq, context),
        Op::Write => write::step(volume, rq),
        Op::Flush => flush(volume, rq),
        Op::Discard | Op::WriteZeroes => discard::step(volume, rq),
    }
}

/// Lets the engine end `rq` when all that was committed before is durable.
pub(super) fn flush(volume: &Arc<Volume>, rq: Request<Driver>) {
    volume.with(|core| {
        let tag = rq.tag();
        core.park(rq);
        core.engine.flush(&mut core.owner, tag);
    });
}

impl Operations for Driver {
    type QueueData = Volume;
    type HwData = ();
    type RequestData = RequestData;

    fn init_hctx(_volume: &Volume, _index: u32) -> Result {
        Ok(())
    }

    fn init_request() -> impl PinInit<RequestData, Error> {
        try_pin_init!(RequestData {
            work <- new_work!("zbd_request"),
            state <- new_mutex!(
                State {
                    done: 0,
                    write: None,
                    read: ReadState::NONE,
                },
                "zbd_request"
            ),
            arrivals: read::Arrivals::new(),
        }? Error)
    }

    fn queue_rq(
        _volume: &Volume,
        _hw: &(),
        rq: Request<Self>,
        last: bool,
    ) -> Result<(), Busy<Self>> {
        {
            let mut state = rq.data().state.lock();
            state.done = 0;
            state.read.reset();
        }
        let volume = rq.queue_data_arc();
        let here = match rq.op() {
            Op::Read | Op::Flush => true,
            // A hop costs about as much as compressing a block does. Of several writes that come
            // together, other CPUs take all but one.
            Op::Write => last && rq.bytes() <= SMALL_WRITE_BYTES,
            Op::Discard | Op::WriteZeroes => false,
        };
        if here {
            step(&volume, rq, Context::Arrival);
        } else {
            again(rq);
        }
        Ok(())
    }
}
