// SPDX-License-Identifier: GPL-2.0

//! Tests of arenas, and of handing values over.

use crate::linux::{
    arena::{
        Arena,
        ArenaOwner, //
    },
    handoff::Handoff,
    workqueue::{
        Place,
        Workqueue, //
    }, //
};
use kernel::{
    new_mutex,
    page::PAGE_SIZE,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc,
        Mutex, //
    }, //
};

/// An arena whose owner and users work at the same time.
#[pin_data]
struct Shared {
    #[pin]
    owner: Mutex<ArenaOwner>,
    arena: Arc<Arena>,
    torn: Atomic<i32>,
}

impl Shared {
    /// Writes a pattern through a copy, and reads it back through one.
    fn use_it(&self, me: u8) {
        let mut bytes = [me; 64];
        let at = usize::from(me) * 64;
        for _ in 0..500 {
            let written = self.arena.write_at(0, at, &bytes);
            let read = self.arena.read_at(0, at, &mut bytes);
            if written.is_err() || read.is_err() || bytes != [me; 64] {
                self.torn.fetch_add(1, Relaxed);
            }
        }
    }

    /// Looks at everything, as the owner.
    fn own_it(&self) {
        for _ in 0..500 {
            let mut owner = self.owner.lock();
            for piece in owner.bytes(0).chunks(64) {
                if piece.iter().any(|byte| Some(byte) != piece.first()) {
                    self.torn.fetch_add(1, Relaxed);
                }
            }
            owner.release();
        }
    }
}

#[kunit_tests(zbd_arena)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_claims() -> Result {
        assert!(Arena::new([PAGE_SIZE, 1].into_iter()).is_err());
        let mut owner = Arena::new([PAGE_SIZE, 2 * PAGE_SIZE].into_iter())?;
        let arena = owner.arena().clone();
        assert_eq!(arena.bytes(), 3 * PAGE_SIZE);
        assert_eq!(owner.bytes(1).len(), 2 * PAGE_SIZE);
        assert_eq!(owner.bytes(2).len(), 0);
        owner.bytes_mut(1).fill(1);
        owner.write(1, 2 * PAGE_SIZE - 2, &[2, 3])?;
        assert_eq!(owner.write(1, 2 * PAGE_SIZE - 1, &[2, 3]), Err(EINVAL));
        assert_eq!(owner.write(1, usize::MAX, &[2, 3]), Err(EINVAL));
        owner.copy((1, 2 * PAGE_SIZE - 4), (0, 0), 4)?;
        assert_eq!(owner.copy((1, PAGE_SIZE), (0, 1), PAGE_SIZE), Err(EINVAL));
        // A device may not write to what the owner looks at.
        assert_eq!(arena.io(0, true).map(drop), Ok(()));
        assert_eq!(owner.bytes(0).get(..4), Some([1, 1, 2, 3].as_slice()));
        assert_eq!(arena.io(0, true).map(drop), Err(EBUSY));
        owner.release();
        let read = arena.io(0, true)?;
        assert_eq!(owner.bytes(0).len(), 0);
        drop(read);
        owner.release();
        assert_eq!(owner.bytes(0).len(), PAGE_SIZE);
        owner.release();
        let mut bytes = [0; 2];
        arena.read_at(1, 2 * PAGE_SIZE - 2, &mut bytes)?;
        assert_eq!(bytes, [2, 3]);
        assert_eq!(arena.read_at(1, 2 * PAGE_SIZE - 1, &mut bytes), Err(EINVAL));
        assert_eq!(arena.write_at(2, 0, &bytes), Err(EINVAL));
        Ok(())
    }

    #[test]
    fn at_the_same_time() -> Result {
        let owner = Arena::new([PAGE_SIZE].into_iter())?;
        let arena = owner.arena().clone();
        let shared: Arc<Shared> = Arc::pin_init(
            pin_init!(Shared {
                owner <- new_mutex!(owner),
                arena,
                torn: Atomic::new(0),
            }),
            GFP_KERNEL,
        )?
        .into();
        let queue = Workqueue::new(c"zbd_test", Place::Unbound, 8)?;
        for me in 0..6u8 {
            let shared = shared.clone();
            queue.try_spawn(GFP_KERNEL, move || match me {
                0 | 1 => shared.own_it(),
                _ => shared.use_it(me),
            })?;
        }
        queue.flush();
        assert_eq!(shared.torn.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn handoff() {
        let place = Handoff::new();
        assert!(place.take().is_none());
        assert!(place.put(1).is_ok());
        assert!(place.is_full());
        assert_eq!(place.put(2), Err(2));
        assert_eq!(place.take(), Some(1));
        assert!(!place.is_full());
        // What is left inside is dropped with it.
        let counted = Arc::new(0, GFP_KERNEL);
        if let Ok(counted) = counted {
            let place = Handoff::new();
            assert!(place.put(counted.clone()).is_ok());
            drop(place);
            assert!(Arc::into_unique_or_drop(counted).is_some());
        }
    }
}
