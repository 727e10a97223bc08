// SPDX-License-Identifier: GPL-2.0

//! Performs the engine's actions one by one, for format, attach and tools, where nothing else
//! uses the device.

use super::error::{Error, Result};
use super::io::{Action, Barrier, Buffers, Media};
use super::state::Engine;

impl Engine {
    /// Runs background work and performs its actions until `done`.
    ///
    /// # Errors
    ///
    /// `Error::Poisoned` if the engine gives up; `Error::Corrupt` if it waits for nothing.
    pub fn run_until<M: Media, B: Buffers>(
        &mut self,
        media: &mut M,
        buffers: &mut B,
        mut done: impl FnMut(&Engine) -> bool,
    ) -> Result {
        loop {
            if self.poisoned.is_some() {
                return Err(Error::Poisoned);
            }
            if done(self) {
                return Ok(());
            }
            let more = self.run(buffers);
            let performed = self.perform_all(media, buffers);
            if !more && !performed {
                return if done(self) {
                    Ok(())
                } else {
                    Err(Error::Corrupt)
                };
            }
        }
    }

    /// Performs what is queued; answers whether there was anything.
    pub fn perform_all<M: Media, B: Buffers>(&mut self, media: &mut M, buffers: &mut B) -> bool {
        let mut any = false;
        while let Some(action) = self.next_action() {
            any = true;
            self.perform(media, buffers, action);
        }
        any
    }

    fn perform<M: Media, B: Buffers>(&mut self, media: &mut M, buffers: &mut B, action: Action) {
        let (token, result) = match action {
            Action::Read {
                token,
                buffer,
                at,
                bytes,
                address,
            } => {
                let range = at as usize..at as usize + bytes as usize;
                let result = match buffers.bytes_mut(buffer).get_mut(range) {
                    Some(room) => media.read(address, room),
                    None => Err(Error::Io),
                };
                (token, result)
            }
            Action::Write {
                token,
                buffer,
                bytes,
                address,
                barrier,
            } => {
                let before = match barrier {
                    Barrier::FlushFua => media.flush(),
                    _ => Ok(()),
                };
                let written =
                    before.and_then(|()| match buffers.bytes(buffer).get(..bytes as usize) {
                        Some(bytes) => media.write(address, bytes),
                        None => Err(Error::Io),
                    });
                let after = written.and_then(|()| match barrier {
                    Barrier::None => Ok(()),
                    _ => media.flush(),
                });
                (token, after)
            }
            Action::Flush { token } => (token, media.flush()),
            Action::Discard { token, .. } => (token, Ok(())),
            Action::Wake { .. } | Action::Complete { .. } => return,
        };
        self.io_done(buffers, token, result);
    }
}
