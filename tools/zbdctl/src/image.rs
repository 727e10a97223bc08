// SPDX-License-Identifier: GPL-2.0

//! A device or image file, read only, as the engine's decoders want it.

use crate::failure::{Failure, Result};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;
use zbd_engine::units::BLOCK_BYTES;
use zbd_engine::{Error, Media};

/// An open device or file.
pub struct Image {
    file: File,
    bytes: u64,
}

impl Image {
    pub fn open(path: &Path) -> Result<Image> {
        let fail = |error| Failure::io(path.display(), &error);
        let mut file = File::open(path).map_err(fail)?;
        // Works for block devices, whose metadata says 0.
        let bytes = file.seek(SeekFrom::End(0)).map_err(fail)?;
        let bytes = bytes - bytes % BLOCK_BYTES as u64;
        Ok(Image { file, bytes })
    }
}

impl Media for Image {
    fn capacity_bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> zbd_engine::Result {
        self.file
            .read_exact_at(bytes, address)
            .map_err(|_| Error::Io)
    }

    fn write(&mut self, _address: u64, _bytes: &[u8]) -> zbd_engine::Result {
        Err(Error::Io)
    }

    fn flush(&mut self) -> zbd_engine::Result {
        Err(Error::Io)
    }
}
