// SPDX-License-Identifier: GPL-2.0

//! From a fragment's bytes to a block's.

use super::workspace::Workspace;
use crate::{
    engine::{
        format::fragment::Codec,
        read::ReadPiece,
        units::BLOCK_BYTES,
        BufferId, //
    },
    linux::{
        arena::Arena,
        codec::{
            lz4_decompress,
            ZstdDecompressor, //
        }, //
    }, //
};

/// Decodes blocks one after the other.
pub(super) struct Decoder<'a> {
    workspace: &'a mut Workspace,
    arena: &'a Arena,
    /// The piece whose extent is in the workspace, decompressed.
    last: Option<ReadPiece>,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(workspace: &'a mut Workspace, arena: &'a Arena) -> Self {
        Self {
            workspace,
            arena,
            last: None,
        }
    }

    /// A block whose fragment is in a buffer of the engine's, at byte `at`; `None` if it is not
    /// what should be there.
    pub(super) fn in_memory(
        &mut self,
        piece: &ReadPiece,
        buffer: BufferId,
        at: usize,
    ) -> Option<&[u8]> {
        let Workspace {
            fragment,
            extent,
            unzstd,
            ..
        } = &mut *self.workspace;
        let room = fragment.get_mut(..piece.bytes)?;
        self.arena.read_at(buffer.into(), at, room).ok()?;
        decode(unzstd, extent, &mut self.last, piece, room)
    }

    /// A block whose fragment is in `bytes`, read from `start` on the device.
    pub(super) fn on_device<'b>(
        &'b mut self,
        piece: &ReadPiece,
        bytes: &'b [u8],
        start: u64,
    ) -> Option<&'b [u8]> {
        let (address, _, skip) = piece.device_range()?;
        let at = usize::try_from(address.checked_sub(start)?).ok()? + skip;
        let bytes = bytes.get(at..at + piece.bytes)?;
        let Workspace { extent, unzstd, .. } = &mut *self.workspace;
        decode(unzstd, extent, &mut self.last, piece, bytes)
    }
}

/// Verifies and decompresses a fragment, and picks the piece's block from it.
fn decode<'a>(
    unzstd: &mut ZstdDecompressor,
    extent: &'a mut [u8],
    last: &mut Option<ReadPiece>,
    piece: &ReadPiece,
    bytes: &'a [u8],
) -> Option<&'a [u8]> {
    let start = piece.index() * BLOCK_BYTES;
    let block = start..start + BLOCK_BYTES;
    if last.as_ref().is_some_and(|last| last.same_fragment(piece)) {
        return extent.get(block);
    }
    let (codec, payload) = piece.open(bytes)?;
    if codec == Codec::Raw {
        return payload.get(block);
    }
    *last = None;
    let room = extent.get_mut(..piece.extent_blocks() * BLOCK_BYTES)?;
    let len = match codec {
        Codec::Lz4 => lz4_decompress(payload, room),
        _ => unzstd.decompress(payload, room),
    };
    if len.ok()? != room.len() {
        return None;
    }
    *last = Some(*piece);
    extent.get(block)
}
