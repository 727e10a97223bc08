// SPDX-License-Identifier: GPL-2.0

//! What becomes of each block of a write: zeros, compressed, or as it is.

use super::{
    workspace::Workspace,
    write::{
        Payload,
        WriteBuffer, //
    }, //
};
use crate::engine::{
    format::fragment::Codec,
    units::BLOCK_BYTES,
    write::Piece, //
};
use kernel::prelude::*;

/// A compressed block larger than this is stored as it is: reading it saves a decompression.
const PACKED_BYTES_MAX: usize = BLOCK_BYTES - BLOCK_BYTES / 16;

/// Makes pieces of the first `bytes` bytes of the buffer's copy, whose first block is `first`.
pub(super) fn pack(
    workspace: &mut Workspace,
    buffer: &mut WriteBuffer,
    first: u64,
    bytes: usize,
) -> Result {
    let mut at = 0;
    for index in 0..bytes / BLOCK_BYTES {
        let start = index * BLOCK_BYTES;
        let lbn = first + index as u64;
        let block = buffer.copy.get(start..start + BLOCK_BYTES).ok_or(EIO)?;
        if is_zero(block) {
            push_zero(buffer, lbn)?;
            continue;
        }
        let room = buffer
            .packed
            .get_mut(at..at + PACKED_BYTES_MAX)
            .ok_or(EIO)?;
        let (codec, len, payload) = match compress(workspace, block, room) {
            Some((codec, len)) => (codec, len, Payload::Packed(at, len)),
            None => (Codec::Raw, BLOCK_BYTES, Payload::Raw(start)),
        };
        if codec != Codec::Raw {
            at += len;
        }
        let piece = Piece::Data {
            lbn,
            log2: 0,
            codec,
            bytes: len,
        };
        buffer.push(piece, payload)?;
    }
    Ok(())
}

/// One more zeroed block: with those before it, if there are any.
fn push_zero(buffer: &mut WriteBuffer, block: u64) -> Result {
    if let Some(Piece::Zeros { lbn, blocks }) = buffer.pieces.last_mut() {
        if *lbn + *blocks == block {
            *blocks += 1;
            return Ok(());
        }
    }
    let piece = Piece::Zeros {
        lbn: block,
        blocks: 1,
    };
    buffer.push(piece, Payload::None)
}

/// Compresses a block; `None` if that is not worth it.
fn compress(workspace: &mut Workspace, block: &[u8], room: &mut [u8]) -> Option<(Codec, usize)> {
    let Some(zstd) = &mut workspace.zstd else {
        // lz4 gives up early by itself.
        let len = workspace
            .lz4
            .compress(workspace.acceleration, block, room)?;
        return Some((Codec::Lz4, len));
    };
    // What looks like noise is tried with the fast codec first: the slow one would take ten times
    // as long to find nothing either.
    if looks_random(block) {
        workspace.lz4.compress(1, block, room)?;
    }
    let len = zstd.compress(block, room)?;
    Some((Codec::Zstd, len))
}

/// Whether a block holds nothing but zeros.
fn is_zero(block: &[u8]) -> bool {
    // Most blocks that are not zero show it at once; in larger steps the rest is faster.
    block.chunks(64).all(|chunk| {
        let bits = chunk.iter().fold(0, |bits, byte| bits | byte);
        bits == 0
    })
}

/// Whether the values of bytes are spread so evenly that entropy coding cannot gain much.
///
/// Counts pairs of equal bytes in a sample of 256: noise has about 256 plus as many ordered pairs,
/// text several times as many.
fn looks_random(block: &[u8]) -> bool {
    let mut counts = [0u8; 256];
    let mut pairs = 0u32;
    for byte in block.iter().step_by(BLOCK_BYTES / 256) {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            pairs += u32::from(*count);
            *count = count.saturating_add(1);
        }
    }
    pairs < 220
}
