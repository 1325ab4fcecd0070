//! userfaultfd messages, and memory served by it: a mapped file, and swapped memory.
#![allow(unsafe_code, reason = "accesses mapped memory")]

use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use bowwave_engine::backend::pattern;
use bowwave_engine::{Advice, Engine, Options, Store};
use bowwave_region::fuzzing::decode;
use bowwave_region::{MapOptions, Protection, Region, RegionAdvice, Spill, Swap, SwapOptions, SwapRegion};
use libfuzzer_sys::arbitrary::{self, Arbitrary};

use super::steps::Steps;

/// Messages, and operations on a file's region and a swap's region.
#[derive(Arbitrary, Debug)]
pub struct Input {
    messages: Vec<u8>,
    map: Map,
    swap_bytes: u32,
    steps: Steps<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    File(FileStep),
    Swap(SwapStep),
}

#[derive(Arbitrary, Debug)]
struct Map {
    range: Option<(Offset, Offset)>,
    writable: bool,
    around: u16,
    streams: u8,
}

#[derive(Arbitrary, Debug)]
enum FileStep {
    Touch(u32),
    Write(u32, u8),
    Read(Offset, u16),
    Populate(Offset, Offset),
    Advise(Offset, Offset, u8),
}

#[derive(Arbitrary, Debug)]
enum SwapStep {
    Write { page: u16, pages: u8, byte: u8 },
    Read { page: u16, pages: u8 },
    Advise { start: Offset, end: Offset, advice: u8 },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Offset {
    Page(u8),
    Near(u32),
    Any(u64),
}

impl Offset {
    fn get(self) -> u64 {
        match self {
            Self::Page(page) => u64::from(page) * PAGE as u64,
            Self::Near(offset) => u64::from(offset) % (FILE_BYTES + 5000),
            Self::Any(offset) => offset,
        }
    }
}

const PAGE: usize = 4096;
const FILE_BYTES: u64 = 3_000_001;
/// Range of writes to a swap's region: more than fits in its memory.
const SWAP_BYTES_MAX: usize = 8 << 20;

static STORE: LazyLock<Store> = LazyLock::new(|| {
    let engine =
        Engine::new(Options { cache_bytes: Some(4 << 20), ..Options::default() }).expect("a small cache");
    engine.store(&format!("pattern:/{FILE_BYTES}")).expect("a pattern")
});

/// `None` if this process may not create one.
static SWAP: LazyLock<Mutex<Option<Swap>>> = LazyLock::new(|| {
    let directory = std::env::temp_dir();
    let options = SwapOptions { memory_bytes: Some(4 << 20), ..SwapOptions::default() };
    Mutex::new(Swap::new(&Spill::file(&directory, 64 << 20), &options).ok())
});

/// Decodes the messages and uses both regions. Returns whether a region was touched.
pub fn run(input: Input) -> bool {
    for touch in decode(&input.messages) {
        assert_eq!(touch.address % PAGE, 0);
        let modes = [touch.modes.missing, touch.modes.minor, touch.modes.protected];
        assert!(modes.contains(&true), "{touch:?}");
    }
    let (mut files, mut swaps) = (Vec::new(), Vec::new());
    for step in input.steps.0 {
        match step {
            Step::File(step) => files.push(step),
            Step::Swap(step) => swaps.push(step),
        }
    }
    let file = file(&input.map, &files);
    let swap = SWAP.lock().unwrap_or_else(PoisonError::into_inner);
    let region =
        swap.as_ref().and_then(|swap| swap.region(input.swap_bytes as usize % (2 * SWAP_BYTES_MAX)).ok());
    region.map_or(file, |region| swapped(region, &swaps) || file)
}

/// A file's memory holds the file's bytes, or later writes.
fn file(map: &Map, steps: &[FileStep]) -> bool {
    let options = MapOptions {
        range: map.range.map(|(start, end)| start.get()..end.get()),
        protection: if map.writable { Protection::CopyOnWrite } else { Protection::ReadOnly },
        around_bytes: u64::from(map.around) * 64,
        streams: std::num::NonZeroUsize::new(map.streams.into()).unwrap_or(std::num::NonZeroUsize::MIN),
        ..MapOptions::default()
    };
    let start = options.range.as_ref().map_or(0, |range| range.start);
    let end = options.range.as_ref().map_or(FILE_BYTES, |range| range.end);
    let Ok(mut region) = Region::map(&STORE, "".as_ref(), &options) else { return false };
    assert!(start < end && end <= FILE_BYTES && region.len() as u64 == end - start);
    let mut right = vec![0; region.len()];
    pattern::fill(pattern::seed(FILE_BYTES.to_string().as_ref()), start, &mut right);
    let original = right.clone();
    let len = region.len() as u64;
    let within = |offset: u64, bytes: u64| offset.checked_add(bytes).is_some_and(|end| end <= len);
    let mut touched = false;
    for step in steps {
        match step {
            FileStep::Touch(offset) => {
                let at = *offset as usize % region.len();
                assert_eq!(region.as_slice()[at], right[at], "byte {at} of {options:?}");
                touched = true;
            }
            FileStep::Write(offset, byte) => {
                let at = *offset as usize % region.len();
                match region.as_mut_slice() {
                    Some(bytes) => {
                        bytes[at] = *byte;
                        right[at] = *byte;
                    }
                    None => assert!(!map.writable),
                }
            }
            FileStep::Read(offset, len) => {
                let mut bytes = vec![0; usize::from(*len)];
                let read = region.read(offset.get(), &mut bytes);
                assert_eq!(read.is_ok(), within(offset.get(), (*len).into()), "{read:?}");
                if read.is_ok() {
                    let at = offset.get() as usize;
                    // The file's bytes, regardless of writes to the memory.
                    assert!(bytes == original[at..at + bytes.len()], "{} bytes at {at}", bytes.len());
                }
            }
            FileStep::Populate(offset, len) => {
                let populated = region.populate(offset.get(), len.get());
                assert_eq!(populated.is_ok(), within(offset.get(), len.get()), "{populated:?}");
            }
            FileStep::Advise(offset, len, advice) => {
                const ADVICE: [Advice; 6] = [
                    Advice::Normal,
                    Advice::Sequential,
                    Advice::Random,
                    Advice::WillNeed,
                    Advice::DontNeed,
                    Advice::NoReuse,
                ];
                let advice = ADVICE[usize::from(*advice) % ADVICE.len()];
                let advised = region.advise(offset.get(), len.get(), advice);
                assert_eq!(advised.is_ok(), within(offset.get(), len.get()), "{advised:?}");
            }
        }
    }
    touched
}

/// A swap's memory holds what was written, and zeros elsewhere.
fn swapped(mut region: SwapRegion, steps: &[SwapStep]) -> bool {
    let pages = region.len().min(SWAP_BYTES_MAX) / PAGE;
    if pages == 0 {
        return false;
    }
    // The first and last byte of each page.
    let mut right = vec![(0u8, 0u8); pages];
    let first = region.as_ptr();
    let mut touched = false;
    for step in steps {
        match step {
            SwapStep::Write { page, pages: count, byte } => {
                for (page, byte) in (usize::from(*page) % pages..pages)
                    .take((*count).into())
                    .zip((0..).map(|count: u8| byte.wrapping_add(count)))
                {
                    // SAFETY: within the region, which is not used elsewhere.
                    unsafe {
                        ptr::write_volatile(first.add(page * PAGE), byte);
                        ptr::write_volatile(first.add(page * PAGE + PAGE - 1), !byte);
                    }
                    right[page] = (byte, !byte);
                    touched = true;
                }
            }
            SwapStep::Read { page, pages: count } => {
                for page in (usize::from(*page) % pages..pages).take((*count).into()) {
                    check(first, page, right[page]);
                }
            }
            SwapStep::Advise { start, end, advice } => {
                const ADVICE: [RegionAdvice; 6] = [
                    RegionAdvice::Normal,
                    RegionAdvice::Sequential,
                    RegionAdvice::Random,
                    RegionAdvice::WillNeed,
                    RegionAdvice::DontNeed,
                    RegionAdvice::PageOut,
                ];
                let (start, end) = (start.get() as usize, end.get() as usize);
                let advice = ADVICE[usize::from(*advice) % ADVICE.len()];
                let advised = region.advise(start..end, advice);
                assert_eq!(
                    advised.is_ok(),
                    start <= end && end <= region.len(),
                    "{start}..{end}: {advised:?}"
                );
                if advised.is_ok() && advice == RegionAdvice::DontNeed {
                    let gone = start.div_ceil(PAGE)..(end / PAGE).min(pages);
                    right.get_mut(gone).unwrap_or_default().fill((0, 0));
                }
            }
        }
    }
    (0..pages).filter(|&page| right[page] != (0, 0)).for_each(|page| check(first, page, right[page]));
    touched
}

fn check(first: *mut u8, page: usize, right: (u8, u8)) {
    // SAFETY: within the region, which is not used elsewhere.
    let found = unsafe {
        (ptr::read_volatile(first.add(page * PAGE)), ptr::read_volatile(first.add(page * PAGE + PAGE - 1)))
    };
    assert_eq!(found, right, "page {page}");
}
