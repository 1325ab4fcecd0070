//! Random writes, truncations, holes and syncs, compared with a plain array of bytes at every step.

use std::path::Path;

use bowwave_backend::{Allocate, ErrorKind};
use bowwave_core::Random;
use bowwave_engine::{File, Namespace as _, OpenOptions, Options, Store};

use crate::common::{Directory, directory_store, random_bytes, small};

/// Longest file.
const SIZE_MAX: u64 = 5 << 20;

/// The file, and its model.
struct Model {
    store: Store,
    file: File,
    bytes: Vec<u8>,
    random: Random,
    /// Steps so far, for messages.
    step: u32,
    seed: u64,
}

impl Model {
    fn new(store: &Store, seed: u64) -> Self {
        let file = store.create(Path::new("file"), 0o644).expect("a new file");
        Self { store: store.clone(), file, bytes: Vec::new(), random: Random::new(seed), step: 0, seed }
    }

    fn fail(&self, what: &str) -> String {
        format!("seed {}, step {}: {what}", self.seed, self.step)
    }

    fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn len(&mut self) -> usize {
        // Mostly small, sometimes larger than what is copied at once.
        let most = match self.random.below(40) {
            0..15 => 100,
            15..30 => 5_000,
            30..39 => 70_000,
            _ => 1_500_000,
        };
        1 + usize::try_from(self.random.below(most)).expect("small")
    }

    fn write(&mut self, offset: u64, append: bool) {
        let len = self.len().min(usize::try_from(SIZE_MAX.saturating_sub(offset)).expect("small"));
        let bytes = random_bytes(self.random.bits(), len);
        if append {
            let at = self.file.append(&bytes).expect("room");
            assert_eq!(at, (self.size(), len), "{}", self.fail("append"));
        } else {
            assert_eq!(self.file.write_at(offset, &bytes).expect("room"), len, "{}", self.fail("write"));
        }
        if len == 0 {
            return;
        }
        let start = usize::try_from(offset).expect("small");
        if self.bytes.len() < start + len {
            self.bytes.resize(start + len, 0);
        }
        self.bytes[start..start + len].copy_from_slice(&bytes);
    }

    fn read(&mut self, offset: u64, len: usize) {
        let mut buf = vec![0xEE; len];
        let count = self.file.read_at(offset, &mut buf).expect("readable");
        let start = usize::try_from(offset.min(self.size())).expect("small");
        let expected = &self.bytes[start..self.bytes.len().min(start + len)];
        assert_eq!(count, expected.len(), "{}", self.fail("length of a read"));
        if let Some(at) = (0..count).find(|&at| buf[at] != expected[at]) {
            let place = start + at;
            panic!("{}: byte {place} is {} and not {}", self.fail("read"), buf[at], expected[at]);
        }
    }

    fn clear(&mut self, how: Allocate) {
        let offset = self.random.below(self.size() + 10_000).min(SIZE_MAX - 1);
        let len = 1 + self.random.below(300_000).min(SIZE_MAX - 1 - offset);
        match self.file.allocate(offset, len, how) {
            Err(error) if error.kind() == Some(ErrorKind::Unsupported) => return,
            result => result.unwrap_or_else(|error| panic!("{}: {error}", self.fail("allocate"))),
        }
        let end = usize::try_from(offset + len).expect("small");
        let grows =
            matches!(how, Allocate::Reserve { keep_size: false } | Allocate::Zero { keep_size: false });
        if grows && end > self.bytes.len() {
            self.bytes.resize(end, 0);
        }
        if !matches!(how, Allocate::Reserve { .. }) {
            let end = end.min(self.bytes.len());
            let start = usize::try_from(offset).expect("small").min(end);
            self.bytes[start..end].fill(0);
        }
    }

    fn reopen(&mut self) {
        let write = OpenOptions { write: true, ..OpenOptions::default() };
        self.file = self.store.open_with(Path::new("file"), &write).expect("it is there");
    }

    fn one_step(&mut self) {
        self.step += 1;
        let anywhere = self.random.below(self.size() + 20_000);
        match self.random.below(100) {
            0..30 => self.write(anywhere, false),
            30..40 => self.write(self.size(), true),
            40..70 => {
                let len = self.len();
                self.read(anywhere, len);
            }
            70..76 => {
                let len = self.random.below(self.size() + 50_000).min(SIZE_MAX);
                self.file.set_len(len).expect("room");
                self.bytes.resize(usize::try_from(len).expect("small"), 0);
            }
            76..80 => self.clear(Allocate::Punch),
            80..83 => self.clear(Allocate::Zero { keep_size: self.step.is_multiple_of(2) }),
            83..85 => self.clear(Allocate::Reserve { keep_size: self.step.is_multiple_of(2) }),
            85..90 => self.file.flush().expect("room"),
            90..92 => self.file.sync(self.step.is_multiple_of(2)).expect("room"),
            92..95 => self.reopen(),
            95..97 => {
                let end = usize::try_from(SIZE_MAX).expect("small");
                self.read(0, end);
            }
            _ => assert_eq!(
                self.store.stat(Path::new("file")).expect("it is there").size,
                self.size(),
                "{}",
                self.fail("stat")
            ),
        }
        assert_eq!(self.file.size(), self.size(), "{}", self.fail("size"));
    }
}

/// Runs one seed; after each part also compares the directory's bytes.
fn run(options: Options, seed: u64, steps: u32) {
    let (directory, _engine, store) = directory_store(options);
    let mut model = Model::new(&store, seed);
    for _ in 0..4 {
        for _ in 0..steps / 4 {
            model.one_step();
        }
        model.file.sync(false).expect("room");
        compare(&directory, &model);
    }
}

fn compare(directory: &Directory, model: &Model) {
    let there = directory.bytes("file");
    assert_eq!(there.len(), model.bytes.len(), "{}", model.fail("length in the directory"));
    let differs = (0..there.len()).find(|&at| there[at] != model.bytes[at]);
    assert_eq!(differs, None, "{}", model.fail("first byte that differs in the directory"));
}

#[test]
fn a_cache_smaller_than_the_file_keeps_every_byte() {
    for seed in 0..6 {
        run(small(), seed, 800);
    }
}

#[test]
fn a_cache_larger_than_the_file_keeps_every_byte() {
    for seed in 10..14 {
        run(Options { cache_bytes: Some(64 << 20), ..Options::default() }, seed, 800);
    }
}

#[test]
fn large_pages_keep_every_byte() {
    for seed in 20..23 {
        run(
            Options { cache_bytes: Some(16 << 20), page_bytes: 64 << 10, ra_pages: 8, ..Options::default() },
            seed,
            600,
        );
    }
}
