//! The objects of the hostile server, in memory.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use bowwave_core::{MIX_STEP, mix};
use md5::{Digest as _, Md5};

/// Initial keys and sizes. Each directory is for one kind of call, so that tests find uncached
/// names.
pub(super) const OBJECTS: &[(&str, usize)] = &[
    ("empty", 0),
    ("one", 1),
    ("small", 1000),
    ("page", 4096),
    ("page-and-one", 4097),
    ("medium", 100_000),
    ("stat/object", 70_000),
    ("stat/other", 100),
    ("list/a", 1),
    ("list/b", 22),
    ("list/c", 333),
    ("list/d", 4444),
    ("list/e", 5555),
    ("list/f", 0),
    ("list/sub/deep", 77),
    ("list/sub/er/still", 88),
    ("open/object", 70_000),
    ("open/other", 100),
    ("read/object", 2_000_003),
    ("read/small", 9000),
    ("write/there", 100),
    ("end/object", 2_000_003),
    ("end/small", 9000),
    ("honest/0", 70_000),
    ("honest/1", 70_001),
    ("honest/2", 70_002),
    ("honest/3", 70_003),
    ("honest/4", 70_004),
    ("honest/5", 70_005),
    ("honest/6", 70_006),
    ("honest/7", 70_007),
];

/// The bytes of an object version: no 8 bytes equal those of another key, offset or version.
pub fn content(key: &str, version: u64, size: usize) -> Vec<u8> {
    let seed = key.bytes().fold(version.wrapping_mul(MIX_STEP), |seed, byte| mixed(seed ^ u64::from(byte)));
    let mut bytes = Vec::with_capacity(size + 8);
    let mut word = 0;
    while bytes.len() < size {
        bytes.extend_from_slice(&mixed(seed.wrapping_add(word)).to_le_bytes());
        word += 1;
    }
    bytes.truncate(size);
    bytes
}

/// A SplitMix64 step.
fn mixed(word: u64) -> u64 {
    mix(word.wrapping_add(MIX_STEP))
}

/// The current version of an object.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) bytes: Arc<[u8]>,
    pub(super) version: u64,
    /// With its quotes.
    pub(super) etag: String,
    /// Seconds since 1970.
    pub(super) modified: u64,
    /// Part sizes of a multipart upload; empty for a single PUT.
    pub(super) parts: Vec<usize>,
}

#[derive(Clone, Debug, Default)]
struct Upload {
    key: String,
    parts: BTreeMap<u32, Vec<u8>>,
}

/// All objects and unfinished uploads.
#[derive(Clone, Debug)]
pub(super) struct Bucket {
    objects: BTreeMap<String, Stored>,
    /// The bytes of every version of each key, oldest first.
    history: BTreeMap<String, Vec<Arc<[u8]>>>,
    uploads: BTreeMap<String, Upload>,
    /// Azure's uncommitted blocks by key and identifier.
    blocks: BTreeMap<(String, String), Vec<u8>>,
    /// Seconds since 1970; each change advances it by a minute, so that times in seconds
    /// distinguish versions.
    clock: u64,
    begun: u64,
}

/// Why an upload cannot be completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Incomplete {
    NoSuchUpload,
    InvalidPart,
}

impl Bucket {
    /// The initial bucket, built once: tests start hundreds of servers.
    pub(super) fn new() -> Self {
        static INITIAL: OnceLock<Bucket> = OnceLock::new();
        INITIAL.get_or_init(Self::initial).clone()
    }

    fn initial() -> Self {
        let (objects, history) = (BTreeMap::new(), BTreeMap::new());
        let (uploads, blocks) = (BTreeMap::new(), BTreeMap::new());
        let mut bucket = Self { objects, history, uploads, blocks, clock: 1_700_000_000, begun: 0 };
        for (key, size) in OBJECTS {
            bucket.put(key, content(key, 1, *size));
        }
        bucket
    }

    pub(super) fn get(&self, key: &str) -> Option<&Stored> {
        self.objects.get(key)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = (&String, &Stored)> {
        self.objects.iter()
    }

    pub(super) fn versions(&self, key: &str) -> Vec<Arc<[u8]>> {
        self.history.get(key).cloned().unwrap_or_default()
    }

    pub(super) fn forget_versions(&mut self, key: &str) {
        if let Some(versions) = self.history.get_mut(key) {
            versions.drain(..versions.len().saturating_sub(1));
        }
    }

    pub(super) fn put(&mut self, key: &str, bytes: Vec<u8>) -> String {
        let etag = format!("\"{}\"", hex(&Md5::digest(&bytes)));
        self.store(key, bytes, etag.clone(), Vec::new());
        etag
    }

    fn store(&mut self, key: &str, bytes: Vec<u8>, etag: String, parts: Vec<usize>) {
        self.clock += 60;
        let version = self.objects.get(key).map_or(0, |stored| stored.version) + 1;
        let bytes: Arc<[u8]> = bytes.into();
        self.history.entry(key.to_owned()).or_default().push(Arc::clone(&bytes));
        let stored = Stored { bytes, version, etag, modified: self.clock, parts };
        self.objects.insert(key.to_owned(), stored);
    }

    /// Stores the next version of an object, `shorter` bytes shorter than the last one.
    pub(super) fn replace(&mut self, key: &str, shorter: usize) {
        if let Some(stored) = self.objects.get(key) {
            let size = stored.bytes.len().saturating_sub(shorter);
            self.put(key, content(key, stored.version + 1, size));
        }
    }

    pub(super) fn remove(&mut self, key: &str) -> bool {
        self.objects.remove(key).is_some()
    }

    pub(super) fn begin(&mut self, key: &str) -> String {
        self.begun += 1;
        let id = format!("upload-{}", self.begun);
        self.uploads.insert(id.clone(), Upload { key: key.to_owned(), ..Upload::default() });
        id
    }

    /// Stores a part and returns its tag; `None` for an unknown upload.
    pub(super) fn put_part(&mut self, id: &str, number: u32, bytes: Vec<u8>) -> Option<String> {
        let etag = format!("\"{}\"", hex(&Md5::digest(&bytes)));
        self.uploads.get_mut(id)?.parts.insert(number, bytes);
        Some(etag)
    }

    /// Completes an upload of these parts, each a number and a tag.
    pub(super) fn complete(&mut self, id: &str, parts: &[(u32, String)]) -> Result<String, Incomplete> {
        let upload = self.uploads.get(id).ok_or(Incomplete::NoSuchUpload)?;
        let (mut bytes, mut sums, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for (number, etag) in parts {
            let part = upload.parts.get(number).ok_or(Incomplete::InvalidPart)?;
            let sum = Md5::digest(part);
            if etag.trim_matches('"') != hex(&sum) {
                return Err(Incomplete::InvalidPart);
            }
            bytes.extend_from_slice(part);
            sums.extend_from_slice(&sum);
            sizes.push(part.len());
        }
        let key = upload.key.clone();
        self.uploads.remove(id);
        let etag = format!("\"{}-{}\"", hex(&Md5::digest(&sums)), sizes.len());
        self.store(&key, bytes, etag.clone(), sizes);
        Ok(etag)
    }

    pub(super) fn abort(&mut self, id: &str) -> bool {
        self.uploads.remove(id).is_some()
    }

    /// Keys and identifiers of unfinished uploads.
    pub(super) fn uploads(&self) -> impl Iterator<Item = (&str, &str)> {
        self.uploads.iter().map(|(id, upload)| (upload.key.as_str(), id.as_str()))
    }

    pub(super) fn put_block(&mut self, key: &str, id: &str, bytes: Vec<u8>) {
        self.blocks.insert((key.to_owned(), id.to_owned()), bytes);
    }

    /// Commits the blocks `ids`, as Azure does; `None` if one is missing.
    pub(super) fn put_block_list(&mut self, key: &str, ids: &[String]) -> Option<String> {
        let blocks: Option<Vec<_>> =
            ids.iter().map(|id| self.blocks.get(&(key.to_owned(), id.clone())).cloned()).collect();
        let etag = self.put(key, blocks?.concat());
        self.blocks.retain(|(known, _), _| known != key);
        Some(etag)
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
