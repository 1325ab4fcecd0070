//! Kernel mappings of files, and a thread's page faults.
#![allow(unsafe_code, reason = "maps a file, asks for the usage of a thread")]

use std::fs::File;
use std::io;
use std::path::Path;

use memmap2::Mmap;

/// Maps a file for reading.
pub(super) fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: as with every file mapping, others may change the bytes. They are plain `u8`s, read
    // once; if the file is truncated, a touch raises SIGBUS.
    unsafe { Mmap::map(&file) }
}

/// Page faults of this thread so far, including those another thread served. Fault-around pages do
/// not count.
pub(super) fn faults_of_thread() -> u64 {
    // SAFETY: zeros are a valid value of this structure of numbers, which the kernel fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    (usage.ru_minflt as u64).wrapping_add(usage.ru_majflt as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    #[test]
    fn each_page_of_fresh_memory_is_a_fault() {
        let before = faults_of_thread();
        let mut memory = memmap2::MmapMut::map_anon(4096).expect("a page");
        memory[0] = black_box(1);
        assert!(faults_of_thread() > before);
        let after = faults_of_thread();
        memory[1] = black_box(1);
        assert_eq!(faults_of_thread(), after, "the page is there");
    }
}
