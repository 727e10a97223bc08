// SPDX-License-Identifier: GPL-2.0

//! Tests of compression and checksum.

use super::Random;
use crate::linux::{
    codec::{
        lz4_decompress,
        Lz4Compressor,
        ZstdCompressor,
        ZstdDecompressor,
        LZ4_ACCELERATION_DEFAULT,
        UNIT_BYTES_MAX, //
    },
    xxhash::xxh64, //
};
use kernel::prelude::*;

/// Sizes that an extent can have.
const SIZES: [usize; 6] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10];

fn zeroed(len: usize) -> Result<KVVec<u8>> {
    Ok(KVVec::from_elem(0, len, GFP_KERNEL)?)
}

/// The first `len` bytes, or an error where a test went wrong.
fn first(bytes: &[u8], len: usize) -> Result<&[u8]> {
    bytes.get(..len).ok_or(EINVAL)
}

/// The first `len` bytes, for writing.
fn first_mut(bytes: &mut [u8], len: usize) -> Result<&mut [u8]> {
    bytes.get_mut(..len).ok_or(EINVAL)
}

#[kunit_tests(zbd_codec)]
mod tests {
    use super::*;

    #[test]
    fn lz4_round_trip() -> Result {
        let mut codec = Lz4Compressor::new()?;
        let mut random = Random(1);
        let (mut src, mut packed, mut out) = (
            zeroed(UNIT_BYTES_MAX)?,
            zeroed(UNIT_BYTES_MAX)?,
            zeroed(UNIT_BYTES_MAX)?,
        );
        for size in SIZES {
            for percent in [100, 90, 50] {
                for acceleration in [LZ4_ACCELERATION_DEFAULT, 8] {
                    let src = first_mut(&mut src, size)?;
                    random.fill(src, percent);
                    let len = codec.compress(acceleration, src, &mut packed).ok_or(EIO)?;
                    assert!(len < size);
                    let out = first_mut(&mut out, size)?;
                    assert_eq!(lz4_decompress(first(&packed, len)?, out)?, size);
                    assert!(*out == *src);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn zstd_round_trip() -> Result {
        let mut random = Random(2);
        let (mut src, mut packed, mut out) = (
            zeroed(UNIT_BYTES_MAX)?,
            zeroed(UNIT_BYTES_MAX)?,
            zeroed(UNIT_BYTES_MAX)?,
        );
        let mut decompressor = ZstdDecompressor::new()?;
        for level in [-1, 1, 3, 9] {
            let mut codec = ZstdCompressor::new(level)?;
            for size in SIZES {
                for percent in [100, 90, 50] {
                    let src = first_mut(&mut src, size)?;
                    random.fill(src, percent);
                    let len = codec.compress(src, &mut packed).ok_or(EIO)?;
                    assert!(len < size);
                    let out = first_mut(&mut out, size)?;
                    assert_eq!(decompressor.decompress(first(&packed, len)?, out)?, size);
                    assert!(*out == *src);
                }
            }
        }
        Ok(())
    }

    #[test]
    fn does_not_fit() -> Result {
        let mut lz4 = Lz4Compressor::new()?;
        let mut zstd = ZstdCompressor::new(1)?;
        let mut random = Random(3);
        let (mut src, mut packed) = (zeroed(UNIT_BYTES_MAX)?, zeroed(UNIT_BYTES_MAX)?);
        for size in SIZES {
            let src = first_mut(&mut src, size)?;
            random.fill(src, 0);
            let less = first_mut(&mut packed, size - 1)?;
            assert!(lz4.compress(1, src, less).is_none());
            assert!(zstd.compress(src, less).is_none());
            // One byte less than it needs, and exactly what it needs.
            random.fill(src, 80);
            let len = lz4.compress(1, src, &mut packed).ok_or(EIO)?;
            assert!(lz4
                .compress(1, src, first_mut(&mut packed, len - 1)?)
                .is_none());
            assert_eq!(
                lz4.compress(1, src, first_mut(&mut packed, len)?),
                Some(len)
            );
            let len = zstd.compress(src, &mut packed).ok_or(EIO)?;
            assert!(zstd
                .compress(src, first_mut(&mut packed, len - 1)?)
                .is_none());
        }
        assert!(lz4.compress(1, &[], &mut packed).is_none());
        assert!(zstd.compress(&[], &mut packed).is_none());
        let long = zeroed(UNIT_BYTES_MAX + 1)?;
        assert!(lz4.compress(1, &long, &mut packed).is_none());
        assert!(zstd.compress(&long, &mut packed).is_none());
        Ok(())
    }

    /// Damaged input gives an error or wrong bytes, and touches nothing beyond the output.
    #[test]
    fn damaged_input() -> Result {
        const SIZE: usize = 4096;
        const GUARD: usize = 64;
        let mut random = Random(4);
        let mut lz4 = Lz4Compressor::new()?;
        let mut zstd = ZstdCompressor::new(3)?;
        let mut decompressor = ZstdDecompressor::new()?;
        let (mut src, mut packed, mut out) = (zeroed(SIZE)?, zeroed(SIZE)?, zeroed(SIZE + GUARD)?);
        random.fill(&mut src, 60);
        for use_zstd in [false, true] {
            let mut decompress = |packed: &[u8], out: &mut [u8]| {
                if use_zstd {
                    decompressor.decompress(packed, out)
                } else {
                    lz4_decompress(packed, out)
                }
            };
            let len = if use_zstd {
                zstd.compress(&src, &mut packed)
            } else {
                lz4.compress(1, &src, &mut packed)
            };
            let packed = first_mut(&mut packed, len.ok_or(EIO)?)?;
            for _ in 0..4000 {
                let at = random.below(packed.len());
                let bit = 1 << (random.next() % 8);
                let cut = random.below(packed.len());
                let (inside, guard) = out.split_at_mut(SIZE);
                guard.fill(0xa5);
                if let Some(byte) = packed.get_mut(at) {
                    *byte ^= bit;
                }
                for len in [packed.len(), cut] {
                    if let Ok(n) = decompress(first(packed, len)?, inside) {
                        assert!(n <= SIZE);
                    }
                }
                if let Some(byte) = packed.get_mut(at) {
                    *byte ^= bit;
                }
                assert!(guard.iter().all(|&byte| byte == 0xa5));
            }
            // A destination that is too short, and noise.
            assert!(decompress(packed, first_mut(&mut out, SIZE - 1)?).is_err());
            assert!(decompress(&[], first_mut(&mut out, SIZE)?).is_err() || use_zstd);
            random.fill(packed, 0);
            if let Ok(n) = decompress(packed, first_mut(&mut out, SIZE)?) {
                assert!(n <= SIZE);
            }
        }
        Ok(())
    }

    #[test]
    fn zstd_levels() -> Result {
        let levels = ZstdCompressor::levels();
        assert!(levels.contains(&1) && levels.contains(&19));
        assert!(ZstdCompressor::new(levels.end() + 1).is_err());
        let codec = ZstdCompressor::new(1)?;
        assert_eq!(codec.level(), 1);
        // What is documented as memory per worker.
        assert!(codec.workspace_bytes() < 700 << 10);
        Ok(())
    }

    /// Values computed with the reference implementation.
    #[test]
    fn xxh64_vectors() -> Result {
        let mut bytes = zeroed(4096)?;
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = (i * 7 + 3) as u8;
        }
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        for (seed, len, expected) in [
            (0, 0, 0xef46_db37_51d8_e999),
            (0, 31, 0xa2aa_5f33_cc4a_6119),
            (0, 32, 0x23c3_c17e_f790_fd97),
            (0, 33, 0x50a7_cfc7_ba58_8784),
            (0, 4096, 0x7963_98cd_4327_97cc),
            (1, 0, 0xd5af_ba13_36a3_be4b),
            (1, 33, 0x17b3_df31_3de9_a40e),
            (1, 4096, 0x2215_4cb5_a9b7_bbef),
            (GOLDEN, 31, 0x7554_3727_1d1d_0a84),
            (GOLDEN, 4096, 0xc12f_9891_3fe0_f03d),
        ] {
            assert_eq!(xxh64(first(&bytes, len)?, seed), expected);
        }
        assert_eq!(xxh64(b"abc", 0), 0x44bc_2cf5_ad77_0999);
        assert_eq!(crate::hash::xxh64(1, b"abc"), 0xbea9_ca81_9932_8908);
        Ok(())
    }
}
