//! Reports the begin and the end of reads to the listener.

use std::ops::Range;

use super::{OpenHandle, Operations};
use crate::mount::{ReadCall, ReadEvent, Told};

/// A read in progress; its end is told when it is dropped.
#[must_use]
pub(super) struct ReadTold<'a> {
    operations: &'a Operations,
    open: &'a OpenHandle,
    call: ReadCall,
}

impl Operations {
    /// A read begins, at an offset and of a number of bytes. `None` if the listener wants no reads,
    /// or if no byte of it is in the file.
    pub(super) fn tell_read<'a>(
        &'a self,
        open: &'a OpenHandle,
        thread: u32,
        (offset, length): (u64, u64),
    ) -> Option<ReadTold<'a>> {
        if !self.options.tells_reads {
            return None;
        }
        let length = length.min(open.file().size().saturating_sub(offset));
        let call = ReadCall { thread, offset, length, event: ReadEvent::Begin };
        (length > 0).then(|| {
            (self.listener)(&open.path, Told::Read(call));
            ReadTold { operations: self, open, call }
        })
    }

    /// A range is read ahead.
    pub(super) fn tell_ahead(&self, open: &OpenHandle, thread: u32, range: Range<u64>) {
        if self.options.tells_reads {
            let (offset, length) = (range.start, range.end - range.start);
            let call = ReadCall { thread, offset, length, event: ReadEvent::WillNeed };
            (self.listener)(&open.path, Told::Read(call));
        }
    }
}

impl Drop for ReadTold<'_> {
    fn drop(&mut self) {
        let call = ReadCall { event: ReadEvent::End, ..self.call };
        (self.operations.listener)(&self.open.path, Told::Read(call));
    }
}
