//! Programs and shared libraries: the loader maps them, and their pages are touched in no order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first reads of an open file.
#[derive(Debug, Default)]
pub(super) struct Mapped {
    /// Reads that did not begin where the last one ended, of an executable; 0 for other files.
    apart: AtomicU32,
    /// End of the last read.
    end: AtomicU64,
}

impl Mapped {
    /// A read got these bytes at `offset` of a file of `size` bytes. Whether the file is an
    /// executable that the loader maps, and is read whole from now on: each touch of a page that is
    /// not there waits for the store. True once.
    pub(super) fn is_executable(&self, offset: u64, bytes: &[u8], size: u64) -> bool {
        let end = self.end.swap(offset + bytes.len() as u64, Ordering::Relaxed);
        if size > WHOLE_BYTES_MAX {
            return false;
        }
        if offset == 0 && bytes.starts_with(MAGIC) {
            // Only the first time.
            let _ = self.apart.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            return false;
        }
        let before = self.apart.load(Ordering::Relaxed);
        if before == 0 || before > APART_MIN || offset == end {
            return false;
        }
        self.apart.fetch_add(1, Ordering::Relaxed) == APART_MIN
    }
}

const MAGIC: &[u8] = b"\x7fELF";
/// Reads elsewhere in an executable before it is read whole. Fewer: tools that show its headers
/// cause a read of all of it.
const APART_MIN: u32 = 2;
/// Executables up to this size are read whole: what a file may waste at least, sixteen windows of a
/// slow store.
const WHOLE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn reads(first: &[u8], size: u64, offsets: &[u64]) -> Vec<bool> {
        let mapped = Mapped::default();
        mapped.is_executable(0, first, size);
        offsets.iter().map(|&offset| mapped.is_executable(offset, &[0; 4096], size)).collect()
    }

    #[test]
    fn an_executable_is_read_whole_at_its_second_read_elsewhere_and_once() {
        let library = [MAGIC, &[0; 4092]].concat();
        let elsewhere = [9 << 20, 4 << 20, 1 << 20, 5 << 20];
        assert_eq!(reads(&library, 10 << 20, &elsewhere), [false, true, false, false]);
    }

    #[test]
    fn a_read_in_order_a_large_file_and_other_files_cause_none() {
        let library = [MAGIC, &[0; 4092]].concat();
        assert!(!reads(&library, 10 << 20, &[4096, 8192, 12288]).contains(&true));
        assert!(!reads(&library, 17 << 20, &[9 << 20, 4 << 20, 1 << 20]).contains(&true));
        assert!(!reads(&[0; 4096], 10 << 20, &[9 << 20, 4 << 20, 1 << 20]).contains(&true));
    }
}
