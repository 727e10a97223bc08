// SPDX-License-Identifier: GPL-2.0

//! Tests of buffers.

use crate::linux::iobuf::{
    IoBuf,
    IoBufPool,
    BYTES_MAX, //
};
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

#[kunit_tests(zbd_iobuf)]
mod tests {
    use super::*;

    #[test]
    fn sizes() -> Result {
        for len in [0, 1, PAGE_SIZE - 1, PAGE_SIZE + 1, BYTES_MAX + PAGE_SIZE] {
            assert!(IoBuf::new(len).is_err());
        }
        for len in [PAGE_SIZE, 512 << 10, BYTES_MAX] {
            let mut buf = IoBuf::new(len)?;
            assert_eq!(buf.len(), len);
            assert!(buf.as_slice().iter().all(|&byte| byte == 0));
            assert_eq!(buf.as_slice().as_ptr() as usize % PAGE_SIZE, 0);
            buf.as_mut_slice().fill(7);
            assert!(buf.as_slice().iter().all(|&byte| byte == 7));
            // Not from a pool.
            assert!(buf.share().is_err());
        }
        Ok(())
    }

    #[test]
    fn ranges() -> Result {
        let buf = IoBuf::new(2 * PAGE_SIZE)?;
        assert!(buf.raw_range(&(0..2 * PAGE_SIZE)).is_ok());
        assert!(buf.raw_range(&(0..2 * PAGE_SIZE + 1)).is_err());
        assert!(buf.raw_range(&(5..5)).is_err());
        // The arguments can come from anywhere.
        #[expect(clippy::reversed_empty_ranges)]
        let backwards = 6..5;
        assert!(buf.raw_range(&backwards).is_err());
        assert_eq!(buf.raw_range(&(PAGE_SIZE - 1..PAGE_SIZE + 1))?.pages(), 2);
        assert_eq!(buf.raw_range(&(PAGE_SIZE..2 * PAGE_SIZE))?.pages(), 1);
        Ok(())
    }

    #[test]
    fn pool_runs_out_and_recovers() -> Result {
        // More than one word of the free list.
        const COUNT: usize = 70;
        let pool = IoBufPool::new(COUNT, PAGE_SIZE)?;
        let mut taken = KVec::with_capacity(COUNT, GFP_KERNEL)?;
        for round in 0..2u8 {
            while let Some(mut buf) = pool.take() {
                // Each buffer is somebody's alone.
                buf.as_mut_slice().fill(taken.len() as u8 ^ round);
                taken.push(buf, GFP_KERNEL)?;
            }
            assert_eq!(taken.len(), COUNT);
            assert_eq!(pool.free_count(), 0);
            for (i, buf) in taken.iter().enumerate() {
                assert!(buf.as_slice().iter().all(|&byte| byte == i as u8 ^ round));
            }
            taken.clear();
            assert_eq!(pool.free_count(), COUNT);
        }
        Ok(())
    }

    #[test]
    fn share_and_seal() -> Result {
        let pool = IoBufPool::new(1, 2 * PAGE_SIZE)?;
        let Ok(buf) = pool.take().ok_or(ENOMEM)?.share() else {
            return Err(EINVAL);
        };
        let other = buf.clone();
        assert!(pool.take().is_none());
        assert!(buf.as_sealed().is_none());
        assert!(buf.raw_range(&(0..PAGE_SIZE)).is_err());

        buf.write_at(10, &[1, 2, 3])?;
        other.write_at(2 * PAGE_SIZE - 2, &[4, 5])?;
        assert_eq!(other.write_at(2 * PAGE_SIZE - 1, &[4, 5]), Err(EINVAL));
        assert_eq!(other.write_at(usize::MAX, &[4, 5]), Err(EINVAL));
        let mut bytes = [0; 3];
        other.read_at(10, &mut bytes)?;
        assert_eq!(bytes, [1, 2, 3]);
        assert_eq!(other.read_at(2 * PAGE_SIZE - 2, &mut bytes), Err(EINVAL));

        buf.seal()?;
        other.seal()?;
        assert_eq!(buf.write_at(0, &[1]), Err(EBUSY));
        let sealed = other.as_sealed().ok_or(EINVAL)?;
        assert_eq!(sealed.get(10..13), Some([1, 2, 3].as_slice()));
        assert_eq!(sealed.last(), Some(&5));
        assert!(buf.raw_range(&(0..PAGE_SIZE)).is_ok());

        drop(other);
        assert!(pool.take().is_none());
        drop(buf);
        // A new life begins unsealed.
        let Ok(buf) = pool.take().ok_or(ENOMEM)?.share() else {
            return Err(EINVAL);
        };
        assert!(buf.as_sealed().is_none());
        buf.write_at(0, &[1])?;
        Ok(())
    }
}
