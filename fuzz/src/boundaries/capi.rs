//! Calls of the C API in any order, with any arguments the header permits.
#![allow(unsafe_code, reason = "calls the C API")]

use std::ffi::{CStr, CString, c_int, c_uint};
use std::ptr;
use std::sync::LazyLock;

use bowwave::counters::{bowwave_region_counters, bowwave_store_counters};
use bowwave::failure::{bowwave_last_errno, bowwave_last_error, bowwave_version};
use bowwave::file::{
    File, GivenRange, bowwave_file_advise, bowwave_file_close, bowwave_file_open, bowwave_file_plan,
    bowwave_file_size, bowwave_read_at,
};
use bowwave::region::{
    Region, bowwave_map, bowwave_region_address, bowwave_region_advise, bowwave_region_populate,
    bowwave_region_read, bowwave_region_size, bowwave_unmap,
};
use bowwave::store::{Store, bowwave_close, bowwave_open, bowwave_open_beside};
use bowwave::swap::{
    Memory, Swap, bowwave_memory_address, bowwave_memory_advise, bowwave_memory_free, bowwave_memory_new,
    bowwave_memory_size, bowwave_swap_close, bowwave_swap_counters, bowwave_swap_open,
};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use tempfile::TempDir;

use super::steps::Steps;

/// A sequence of calls. Handles are indices of open ones; indices past the end mean NULL.
#[derive(Arbitrary, Debug)]
pub struct Input {
    calls: Steps<Call>,
}

#[derive(Arbitrary, Debug)]
enum Call {
    Open { url: Url, options: Options },
    OpenBeside { store: u8, url: Url },
    Close(u8),
    FileOpen { store: u8, path: Name },
    FileClose(u8),
    FileSize(u8),
    Read { file: u8, offset: Offset, len: u16, null: bool },
    Advise { file: u8, offset: Offset, len: Offset, advice: i8 },
    Plan { file: u8, ranges: Option<Vec<(Offset, Offset)>> },
    Map { store: u8, path: Name, offset: Offset, len: Offset, flags: u8 },
    Unmap(u8),
    Touch { region: u8, offset: u32 },
    Populate { region: u8, offset: Offset, len: Offset },
    RegionRead { region: u8, offset: Offset, len: u16, null: bool },
    RegionAdvise { region: u8, offset: Offset, len: Offset, advice: i8 },
    Counters { store: u8, bytes: u8, null: bool },
    RegionCounters { region: u8, bytes: u8, null: bool },
    SwapOpen { null: bool, spill: Offset, memory: Offset },
    SwapClose(u8),
    SwapCounters { swap: u8, bytes: u8, null: bool },
    MemoryNew { swap: u8, len: Offset },
    MemoryFree(u8),
    MemoryWrite { memory: u8, offset: u32, byte: u8 },
    MemoryAdvise { memory: u8, offset: Offset, len: Offset, advice: i8 },
    LastError,
}

#[derive(Arbitrary, Debug)]
enum Url {
    Pattern,
    Odd,
    Null,
    Any(Vec<u8>),
}

/// A path; the store is one file, whose path is empty.
#[derive(Arbitrary, Debug)]
enum Name {
    Null,
    Empty,
    Any(Vec<u8>),
}

impl Name {
    fn text(&self) -> Option<CString> {
        match self {
            Self::Null => None,
            Self::Empty => Some(text(b"")),
            Self::Any(bytes) => Some(text(bytes)),
        }
    }
}

#[derive(Arbitrary, Debug)]
enum Options {
    Usual,
    Null,
    Any(Vec<u8>),
    Pairs(Vec<(u8, u8)>),
}

/// Mostly within the file, and often at a page boundary.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Offset {
    Page(u8),
    Near(u32),
    Any(u64),
}

impl Offset {
    fn get(self) -> u64 {
        match self {
            Self::Page(page) => u64::from(page) * 4096,
            Self::Near(offset) => u64::from(offset) % (FILE_BYTES + 5000),
            Self::Any(offset) => offset,
        }
    }
}

const FILE_BYTES: u64 = 1_000_003;
/// Maximum open handles of a kind: each store has threads and memory.
const HANDLES_MAX: usize = 4;

/// For spill files.
static DIRECTORY: LazyLock<TempDir> = LazyLock::new(|| tempfile::tempdir().expect("a temporary directory"));

/// Open handles. The second of each pair is the handle it was opened from.
#[derive(Default)]
struct Open {
    stores: Vec<*mut Store>,
    files: Vec<*mut File>,
    regions: Vec<*mut Region>,
    swaps: Vec<*mut Swap>,
    memories: Vec<*mut Memory>,
    succeeded: bool,
}

/// Performs the calls and closes all handles. Returns whether a call on an open handle succeeded.
pub fn run(input: Input) -> bool {
    let mut open = Open::default();
    // SAFETY: a version is a string.
    assert!(!unsafe { CStr::from_ptr(bowwave_version()) }.is_empty());
    // Most other calls would fail without a store, a file and a region.
    open.open(&Url::Pattern, &Options::Usual);
    open.call(&Call::FileOpen { store: 0, path: Name::Empty });
    let (offset, len) = (Offset::Page(0), Offset::Page(0));
    open.call(&Call::Map { store: 0, path: Name::Empty, offset, len, flags: 0 });
    for call in &input.calls.0 {
        open.call(call);
    }
    // SAFETY: handles from the library, not used afterwards; closed in the input's order, not in
    // reverse.
    unsafe {
        open.stores.iter().for_each(|&store| bowwave_close(store));
        open.swaps.iter().for_each(|&swap| bowwave_swap_close(swap));
        open.regions.iter().for_each(|&region| bowwave_unmap(region));
        open.files.iter().for_each(|&file| bowwave_file_close(file));
        open.memories.iter().for_each(|&memory| bowwave_memory_free(memory));
    }
    open.succeeded
}

/// The handle of an index; NULL past the end.
fn at<T>(handles: &[*mut T], index: u8) -> *mut T {
    handles.get(usize::from(index) % (handles.len() + 1)).copied().unwrap_or(ptr::null_mut())
}

/// Closes the handle of an index, or NULL.
fn take<T>(handles: &mut Vec<*mut T>, index: u8) -> *mut T {
    let index = usize::from(index) % (handles.len() + 1);
    if index < handles.len() { handles.swap_remove(index) } else { ptr::null_mut() }
}

/// Stores a new handle, or checks that the library reports an error.
fn keep<T>(handles: &mut Vec<*mut T>, handle: *mut T) {
    if handle.is_null() {
        said();
    } else {
        handles.push(handle);
    }
}

/// The message of a failed call: one line, without a panic of ours.
fn said() {
    // SAFETY: a string of this thread, until its next call that fails.
    let message = unsafe { CStr::from_ptr(bowwave_last_error()) }.to_string_lossy().into_owned();
    let code = bowwave_last_errno();
    assert!(!message.is_empty() && !message.contains('\n') && (1..134).contains(&code), "{code}: {message}");
    assert!(!message.contains("a defect of bowwave"), "{message}");
}

/// The bytes as a C string, up to the first NUL.
fn text(bytes: &[u8]) -> CString {
    CString::new(bytes.split(|&byte| byte == 0).next().unwrap_or_default()).expect("no zero")
}

impl Open {
    fn note(&mut self, result: c_int) {
        match result {
            0 => self.succeeded = true,
            error => {
                assert!(error < 0, "{error}");
                said();
                assert_eq!(bowwave_last_errno(), -error);
            }
        }
    }

    fn open(&mut self, url: &Url, options: &Options) {
        let options = match options {
            Options::Usual => Some(text(b"cache=4MiB shards=1")),
            Options::Null => None,
            Options::Any(bytes) => Some(text(&[b"cache=4MiB ", &**bytes].concat())),
            Options::Pairs(pairs) => Some(text(&pairs_of(pairs))),
        };
        let url = url.text();
        let (url, options) = (pointer(&url), pointer(&options));
        if self.stores.len() < HANDLES_MAX {
            // SAFETY: strings or NULL.
            keep(&mut self.stores, unsafe { bowwave_open(url, options) });
        }
    }

    fn call(&mut self, call: &Call) {
        match call {
            Call::Open { url, options } => self.open(url, options),
            Call::OpenBeside { store, url } if self.stores.len() < HANDLES_MAX => {
                let url = url.text();
                // SAFETY: an open store or NULL, a string or NULL.
                let opened = unsafe { bowwave_open_beside(at(&self.stores, *store), pointer(&url)) };
                keep(&mut self.stores, opened);
            }
            // SAFETY: the handle is forgotten.
            Call::Close(store) => unsafe { bowwave_close(take(&mut self.stores, *store)) },
            Call::FileOpen { store, path } if self.files.len() < HANDLES_MAX => {
                let path = path.text();
                // SAFETY: an open store or NULL, a string or NULL.
                let opened = unsafe { bowwave_file_open(at(&self.stores, *store), pointer(&path)) };
                keep(&mut self.files, opened);
            }
            // SAFETY: the handle is forgotten.
            Call::FileClose(file) => unsafe { bowwave_file_close(take(&mut self.files, *file)) },
            Call::Counters { .. } | Call::RegionCounters { .. } | Call::SwapCounters { .. } => {
                self.counters(call)
            }
            Call::Map { .. } | Call::Unmap(_) | Call::Touch { .. } | Call::Populate { .. } => {
                self.region(call)
            }
            Call::RegionRead { .. } | Call::RegionAdvise { .. } => self.region(call),
            Call::SwapOpen { .. } | Call::SwapClose(_) | Call::MemoryNew { .. } => self.swap(call),
            Call::MemoryFree(_) | Call::MemoryWrite { .. } | Call::MemoryAdvise { .. } => self.swap(call),
            Call::LastError => {
                // SAFETY: a string of this thread.
                let message = unsafe { CStr::from_ptr(bowwave_last_error()) };
                assert!(!message.to_bytes().contains(&b'\n'));
            }
            _ => self.file(call),
        }
    }

    fn file(&mut self, call: &Call) {
        match call {
            Call::FileSize(file) => {
                // SAFETY: an open file or NULL.
                let size = unsafe { bowwave_file_size(at(&self.files, *file)) };
                assert!(size >= 0 || at(&self.files, *file).is_null());
            }
            Call::Read { file, offset, len, null } => {
                let (file, len) = (at(&self.files, *file), usize::from(*len));
                let mut bytes = vec![0u8; len];
                let buffer = if *null { ptr::null_mut() } else { bytes.as_mut_ptr() };
                // SAFETY: an open file or NULL, and a buffer of that length or NULL.
                let count = unsafe { bowwave_read_at(file, offset.get(), buffer.cast(), len) };
                assert!(count <= len as i64);
                if count < 0 {
                    said();
                } else {
                    // SAFETY: an open file, for the read succeeded.
                    let size = unsafe { bowwave_file_size(file) } as u64;
                    assert_eq!(count as u64, size.saturating_sub(offset.get()).min(len as u64));
                    self.succeeded |= count > 0;
                }
            }
            Call::Advise { file, offset, len, advice } => {
                let file = at(&self.files, *file);
                // SAFETY: an open file or NULL.
                let result = unsafe { bowwave_file_advise(file, offset.get(), len.get(), (*advice).into()) };
                assert_eq!(result == 0, !file.is_null() && (0..6).contains(advice));
                self.note(result);
            }
            Call::Plan { file, ranges } => {
                let given: Option<Vec<_>> = ranges.as_ref().map(|ranges| {
                    ranges
                        .iter()
                        .map(|(offset, len)| GivenRange { offset: offset.get(), len: len.get() })
                        .collect()
                });
                let (pointer, count) =
                    given.as_ref().map_or((ptr::null(), 1), |ranges| (ranges.as_ptr(), ranges.len()));
                // SAFETY: an open file or NULL, and ranges that stay as they are, or NULL.
                let result = unsafe { bowwave_file_plan(at(&self.files, *file), pointer, count) };
                self.note(result);
            }
            _ => {}
        }
    }

    fn region(&mut self, call: &Call) {
        match call {
            Call::Map { store, path, offset, len, flags } if self.regions.len() < HANDLES_MAX => {
                let path = path.text();
                // Signals are for programs that do not handle SIGBUS, which libFuzzer does.
                let flags = c_uint::from(*flags) & !2;
                let (offset, len) = (offset.get(), len.get());
                // SAFETY: an open store or NULL, a string or NULL.
                let region =
                    unsafe { bowwave_map(at(&self.stores, *store), pointer(&path), offset, len, flags) };
                keep(&mut self.regions, region);
            }
            // SAFETY: the handle is forgotten.
            Call::Unmap(region) => unsafe { bowwave_unmap(take(&mut self.regions, *region)) },
            Call::Touch { region, offset } => {
                let region = at(&self.regions, *region);
                // SAFETY: a region or NULL; the byte lies within it.
                unsafe {
                    let (first, len) = (bowwave_region_address(region), bowwave_region_size(region));
                    assert_eq!(first.is_null(), region.is_null());
                    if len > 0 {
                        let byte = first.cast::<u8>().add(*offset as usize % len);
                        let _touched = ptr::read_volatile(byte);
                        self.succeeded = true;
                    }
                }
            }
            Call::Populate { region, offset, len } => {
                // SAFETY: a region or NULL.
                let result =
                    unsafe { bowwave_region_populate(at(&self.regions, *region), offset.get(), len.get()) };
                self.note(result);
            }
            Call::RegionRead { region, offset, len, null } => {
                let (region, len) = (at(&self.regions, *region), usize::from(*len));
                let mut bytes = vec![0u8; len];
                let buffer = if *null { ptr::null_mut() } else { bytes.as_mut_ptr() };
                // SAFETY: a region or NULL, and a buffer of that length or NULL.
                let result = unsafe { bowwave_region_read(region, offset.get(), buffer.cast(), len) };
                // SAFETY: a region or NULL.
                let size = unsafe { bowwave_region_size(region) } as u64;
                let within = offset.get().checked_add(len as u64).is_some_and(|end| end <= size);
                assert!(result != 0 || within, "{len} bytes at {} of {size}", offset.get());
                self.note(result);
            }
            Call::RegionAdvise { region, offset, len, advice } => {
                let region = at(&self.regions, *region);
                // SAFETY: a region or NULL.
                let result =
                    unsafe { bowwave_region_advise(region, offset.get(), len.get(), (*advice).into()) };
                self.note(result);
            }
            _ => {}
        }
    }

    fn counters(&mut self, call: &Call) {
        // Larger than all structures, as in a program newer than the library.
        let mut space = [u64::MAX; 40];
        let bytes_of = |bytes: u8| usize::from(bytes) % (size_of_val(&space) + 1);
        let room =
            |null: bool, space: &mut [u64; 40]| if null { ptr::null_mut() } else { space.as_mut_ptr() };
        // SAFETY: a handle or NULL, and room for that many bytes or NULL.
        let (result, bytes) = unsafe {
            match call {
                Call::Counters { store, bytes, null } => {
                    let bytes = bytes_of(*bytes);
                    let room = room(*null, &mut space);
                    (bowwave_store_counters(at(&self.stores, *store), room.cast(), bytes), bytes)
                }
                Call::RegionCounters { region, bytes, null } => {
                    let bytes = bytes_of(*bytes);
                    let room = room(*null, &mut space);
                    (bowwave_region_counters(at(&self.regions, *region), room.cast(), bytes), bytes)
                }
                Call::SwapCounters { swap, bytes, null } => {
                    let bytes = bytes_of(*bytes);
                    let room = room(*null, &mut space);
                    (bowwave_swap_counters(at(&self.swaps, *swap), room.cast(), bytes), bytes)
                }
                _ => return,
            }
        };
        let used = if result == 0 { bytes / 8 } else { 0 };
        assert!(space[used..].iter().all(|word| *word == u64::MAX), "nothing is written past {bytes} bytes");
        self.note(result);
    }

    fn swap(&mut self, call: &Call) {
        match call {
            Call::SwapOpen { null, spill, memory } if self.swaps.len() < 2 => {
                let directory = (!null).then(|| text(DIRECTORY.path().as_os_str().as_encoded_bytes()));
                // Disk space is reserved, and memory may be locked.
                let (spill, memory) = (spill.get() % (32 << 20), memory.get() % (16 << 20) + 1);
                // SAFETY: a string or NULL.
                let swap = unsafe { bowwave_swap_open(pointer(&directory), spill, memory) };
                keep(&mut self.swaps, swap);
            }
            // SAFETY: the handle is forgotten; memory keeps what it needs.
            Call::SwapClose(swap) => unsafe { bowwave_swap_close(take(&mut self.swaps, *swap)) },
            Call::MemoryNew { swap, len } if self.memories.len() < HANDLES_MAX => {
                let len = usize::try_from(len.get()).expect("64 bits");
                // SAFETY: a swap or NULL.
                let memory = unsafe { bowwave_memory_new(at(&self.swaps, *swap), len) };
                keep(&mut self.memories, memory);
            }
            // SAFETY: the handle is forgotten.
            Call::MemoryFree(memory) => unsafe { bowwave_memory_free(take(&mut self.memories, *memory)) },
            Call::MemoryWrite { memory, offset, byte } => {
                let memory = at(&self.memories, *memory);
                // SAFETY: memory or NULL; the byte lies within it. Only the first MiB is written,
                // which fits without the spill file.
                unsafe {
                    let (first, len) = (bowwave_memory_address(memory), bowwave_memory_size(memory));
                    if len > 0 {
                        let place = first.cast::<u8>().add(*offset as usize % len.min(1 << 20));
                        ptr::write_volatile(place, *byte);
                        assert_eq!(ptr::read_volatile(place), *byte);
                        self.succeeded = true;
                    }
                }
            }
            Call::MemoryAdvise { memory, offset, len, advice } => {
                let (offset, len) = (offset.get() as usize, len.get() as usize);
                // SAFETY: memory or NULL; nobody has a use for what it gives up.
                let result = unsafe {
                    bowwave_memory_advise(at(&self.memories, *memory), offset, len, (*advice).into())
                };
                self.note(result);
            }
            _ => {}
        }
    }
}

impl Url {
    fn text(&self) -> Option<CString> {
        match self {
            Self::Pattern => Some(text(format!("pattern:/{FILE_BYTES}").as_bytes())),
            Self::Odd => Some(text(b"emulate:s3:pattern:/10")),
            Self::Null => None,
            // Local files and servers are no input.
            Self::Any(bytes) => Some(text(&[b"pattern:", &**bytes].concat())),
        }
    }
}

fn pointer(text: &Option<CString>) -> *const std::ffi::c_char {
    text.as_ref().map_or(ptr::null(), |text| text.as_ptr())
}

/// Known options, with values that are not all valid.
fn pairs_of(pairs: &[(u8, u8)]) -> Vec<u8> {
    const KEYS: [&str; 12] = [
        "page_size",
        "ra_pages",
        "ahead_max",
        "policy",
        "range_bytes",
        "range_whole",
        "range_max",
        "range_clusters",
        "shards",
        "scheduler",
        "device_depth",
        "retries",
    ];
    const VALUES: [&str; 16] = [
        "0",
        "1",
        "3",
        "64",
        "4KiB",
        "64KiB",
        "2MiB",
        "4MiB",
        "stream",
        "none",
        "range",
        "linux",
        "deadline:starved=4",
        "noop",
        "fixed",
        "18446744073709551615",
    ];
    let mut text = b"cache=4MiB".to_vec();
    for (key, value) in pairs {
        let (key, value) = (KEYS[usize::from(*key) % KEYS.len()], VALUES[usize::from(*value) % VALUES.len()]);
        text.extend(format!(" {key}={value}").into_bytes());
    }
    text
}
