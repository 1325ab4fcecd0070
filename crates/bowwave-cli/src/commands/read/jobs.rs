//! Splits the files of a store into jobs for threads.

use std::path::{Path, PathBuf};

use bowwave_engine::{EntryKind, Namespace as _, Store};

use super::pattern::{Pattern, Shape, Span};
use crate::Failure;

/// A part of a file for one thread to read through a handle of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    /// Path in the store; empty if the store is one file.
    pub(super) path: PathBuf,
    pub(super) span: Span,
    /// Maximum bytes to read.
    pub(super) budget: u64,
    pub(super) seed: u64,
}

/// How much to read, and how to split it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) shape: Shape,
    pub(super) threads: u64,
    /// Total bytes to read; `None` for everything, or a sample.
    pub(super) size: Option<u64>,
    pub(super) seed: u64,
}

/// The jobs of a store: parts of its file, or its files in turn.
pub(super) fn jobs(store: &Store, share: Share) -> Result<Vec<Job>, Failure> {
    let root = store.stat(Path::new(""))?;
    let files = match root.kind {
        EntryKind::Directory => files(store)?,
        _ => vec![(PathBuf::new(), root.size)],
    };
    if files.is_empty() {
        return Err(failed!("{}: there is no file to read", store.url())
            .try_this("the URL of a file, or of a directory with files"));
    }
    let jobs = share.out(files);
    if jobs.is_empty() {
        crate::output::note("there are no bytes to read: the files are empty");
    }
    Ok(jobs)
}

impl Share {
    fn out(self, files: Vec<(PathBuf, u64)>) -> Vec<Job> {
        let block = self.shape.block;
        let sampling = self.shape.pattern.is_sampling();
        let sample = match self.shape.pattern {
            Pattern::Clustered => SAMPLE_CLUSTERED_BYTES,
            _ => block.saturating_mul(SAMPLE_READS),
        };
        let total: u64 = files.iter().map(|file| file.1).fold(0, u64::saturating_add);
        let mut left = self.size.unwrap_or_else(|| if sampling { sample.min(total) } else { u64::MAX });
        // Files of a directory go to one thread each; a single file is split.
        let parts = if files.len() == 1 { self.threads } else { 1 };
        let count = files.len() as u64;
        let mut jobs = Vec::new();
        for (number, (path, size)) in (0..).zip(files) {
            let spans: Vec<Span> = if sampling {
                vec![Span { start: 0, end: size }; if size > 0 { parts as usize } else { 0 }]
            } else {
                self.clip(size, left).parts(parts, self.unit()).collect()
            };
            let budget = if sampling { (left / (count - number)).div_ceil(parts) } else { left };
            for (part, span) in (0u64..).zip(spans) {
                let seed = self.seed.wrapping_mul(1 << 20).wrapping_add(number << 10).wrapping_add(part);
                let job = Job { path: path.clone(), span, budget: budget.min(left), seed };
                if sampling {
                    left -= job.budget;
                } else if self.shape.pattern != Pattern::Stride {
                    left = left.saturating_sub(span.len());
                } else {
                    left = left.saturating_sub(span.len().div_ceil(self.shape.stride).saturating_mul(block));
                }
                if job.budget > 0 {
                    jobs.push(job);
                }
            }
        }
        jobs
    }

    /// The range of a file of `size` bytes that patterns with an end cover within `left` bytes.
    fn clip(self, size: u64, left: u64) -> Span {
        match self.shape.pattern {
            Pattern::Backward => Span { start: size.saturating_sub(left), end: size },
            Pattern::Stride => {
                let blocks = (left / self.shape.block).max(u64::from(left > 0));
                Span { start: 0, end: blocks.saturating_mul(self.shape.stride).min(size) }
            }
            _ => Span { start: 0, end: left.min(size) },
        }
    }

    /// Alignment of parts.
    fn unit(self) -> u64 {
        if self.shape.pattern == Pattern::Stride { self.shape.stride } else { self.shape.block }
    }
}

/// The files in a directory and below it, with their sizes, in the order of their names.
fn files(store: &Store) -> Result<Vec<(PathBuf, u64)>, Failure> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    let lists_sizes = store.profile().lists_sizes;
    while let Some(directory) = directories.pop() {
        let mut below = Vec::new();
        for entry in store.list(&directory)? {
            let path = directory.join(&entry.name);
            match entry.kind {
                EntryKind::Directory => below.push(path),
                EntryKind::File if lists_sizes => found.push((path, entry.size)),
                EntryKind::File => {
                    let size = store.stat(&path)?.size;
                    found.push((path, size));
                }
                // A link's target is read at its own path, if at all.
                EntryKind::Link => {}
                EntryKind::Fifo | EntryKind::Socket | EntryKind::CharDevice | EntryKind::BlockDevice => {}
            }
            if found.len() + directories.len() > FILES_MAX {
                return Err(failed!("{}: more than {FILES_MAX} files", store.url())
                    .try_this("a directory further down"));
            }
        }
        directories.extend(below.into_iter().rev());
    }
    Ok(found)
}

/// Default reads of a random pattern: 30 s on a store with 30 ms latency.
const SAMPLE_READS: u64 = 1000;
/// Default bytes of a clustered pattern: about 100 clusters.
const SAMPLE_CLUSTERED_BYTES: u64 = 64 << 20;
const FILES_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn share(pattern: Pattern, threads: u64, size: Option<u64>) -> Share {
        let shape = Shape { pattern, block: 10, stride: 40, streams: 2 };
        Share { shape, threads, size, seed: 1 }
    }

    fn bytes(share: Share, files: &[u64]) -> (usize, u64) {
        let files = files.iter().map(|&size| (PathBuf::from(size.to_string()), size)).collect();
        let jobs = share.out(files);
        let read = jobs
            .iter()
            .flat_map(|job| share.shape.accesses(job.span, job.budget, job.seed))
            .map(|access| access.1)
            .sum();
        (jobs.len(), read)
    }

    #[test]
    fn a_file_is_cut_into_parts_and_files_go_round() {
        assert_eq!(bytes(share(Pattern::Seq, 4, None), &[1000]), (4, 1000));
        assert_eq!(bytes(share(Pattern::Seq, 4, None), &[100, 0, 55]), (2, 155));
        assert_eq!(bytes(share(Pattern::Stride, 4, None), &[1000]), (4, 250));
        assert_eq!(bytes(share(Pattern::Random, 4, None), &[1_000_000]), (4, 10_000));
    }

    #[test]
    fn the_size_bounds_what_is_read_in_all() {
        for pattern in
            [Pattern::Seq, Pattern::Backward, Pattern::Interleaved, Pattern::Random, Pattern::Clustered]
        {
            assert_eq!(bytes(share(pattern, 3, Some(120)), &[1000]).1, 120, "{pattern:?}");
            assert_eq!(bytes(share(pattern, 3, Some(120)), &[100, 100]).1, 120, "{pattern:?}");
        }
        assert_eq!(bytes(share(Pattern::Stride, 2, Some(125)), &[1000]).1, 120);
        assert_eq!(bytes(share(Pattern::Stride, 2, Some(4)), &[1000]).1, 4);
    }
}
