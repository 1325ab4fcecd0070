//! Warm reads, in process, beside the kernel's `pread` of a page-cached file and beside `memcpy`,
//! in one run.
//!
//! `cargo bench -p bowwave-engine --bench warm [-- MIB…]` prints, for each file size and block
//! size, the median over rounds of each and of their ratios, with the lowest and highest ratio. The
//! three take turns, so that noise of the machine meets them alike. Then what 1, 2 and 4 threads
//! get out of one file together, in random reads.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::fs::File as StdFile;
use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use bowwave_engine::{Engine, File, Options};

const ROUNDS: usize = 41;
/// Bytes read in each turn of a round.
const TURN: usize = 8 << 20;

fn main() {
    let sizes: Vec<u64> = std::env::args().filter_map(|arg| arg.parse().ok()).collect();
    let sizes = if sizes.is_empty() { vec![1, 16, 256] } else { sizes };
    println!(
        "{:>6} {:>6} {:>10} | {:>9} {:>9} {:>9} | pread/read_at, memcpy/read_at: median (min..max)",
        "MiB", "block", "order", "read_at", "pread", "memcpy"
    );
    for mib in sizes {
        bench(mib << 20);
    }
}

fn bench(size: u64) {
    let path = std::env::temp_dir().join(format!("bowwave-warm-{}", std::process::id()));
    let bytes = vec![7u8; usize::try_from(size).expect("fits into memory")];
    std::fs::write(&path, &bytes).expect("room for the file");
    let plain = StdFile::open(&path).expect("just written");
    let engine = Engine::new(Options { cache_bytes: Some(size * 2 + (16 << 20)), ..Options::default() })
        .expect("valid");
    let file = engine.open(path.to_str().expect("a plain name")).expect("just written");
    for block in [4096, 131_072] {
        for order in ["sequential", "random"] {
            let count = bytes.len() / block;
            let at = |turn: usize| if order == "random" { turn.wrapping_mul(7919) % count } else { turn % count } * block;
            let mut buf = vec![0u8; block];
            let mut warm_up = vec![0u8; bytes.len()];
            file.read_at(0, &mut warm_up).expect("it reads");
            plain.read_exact_at(&mut warm_up, 0).expect("it reads");
            let mut rounds = Vec::new();
            let mut turn = 0;
            for _ in 0..ROUNDS {
                let ours = time(block, &mut turn, |turn| {
                    file.read_at(at(turn) as u64, &mut buf).expect("it reads");
                });
                let kernel = time(block, &mut turn, |turn| {
                    plain.read_exact_at(&mut buf, at(turn) as u64).expect("it reads");
                });
                let copy = time(block, &mut turn, |turn| {
                    buf.copy_from_slice(&bytes[at(turn)..at(turn) + block]);
                    black_box(&buf);
                });
                rounds.push([ours, kernel, copy]);
            }
            report(size, block, order, &rounds);
        }
    }
    for block in [4096, 65_536, 131_072] {
        for threads in [1, 2, 4] {
            share(&file, size, block, threads);
        }
    }
    remove(&path);
}

/// Threads that read one file through one handle.
fn share(file: &File, size: u64, block: usize, threads: u64) {
    let count = size / block as u64;
    let reads = (4 * TURN / block) as u64;
    let mut rates: Vec<f64> = (0..ROUNDS / 4)
        .map(|_| {
            let gate = Barrier::new(threads as usize + 1);
            thread::scope(|scope| {
                let readers: Vec<_> = (0..threads)
                    .map(|number| {
                        let gate = &gate;
                        scope.spawn(move || {
                            let mut buf = vec![0u8; block];
                            gate.wait();
                            let start = Instant::now();
                            for turn in 0..reads {
                                let at = (turn + number * 101).wrapping_mul(7919) % count;
                                file.read_at(at * block as u64, &mut buf).expect("it reads");
                            }
                            (start, Instant::now())
                        })
                    })
                    .collect();
                gate.wait();
                let times: Vec<_> =
                    readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
                let start = times.iter().map(|&(start, _)| start).min().expect("a thread");
                let end = times.iter().map(|&(_, end)| end).max().expect("a thread");
                (reads * threads) as f64 / (end - start).as_secs_f64() / 1e6
            })
        })
        .collect();
    rates.sort_by(f64::total_cmp);
    println!(
        "{:>6} {block:>6} {threads} threads | {:.2} million reads a second together ({:.2}..{:.2})",
        size >> 20,
        rates[rates.len() / 2],
        rates[0],
        rates[rates.len() - 1],
    );
}

/// Nanoseconds a call.
fn time(block: usize, turn: &mut usize, mut call: impl FnMut(usize)) -> f64 {
    let calls = TURN / block;
    let start = Instant::now();
    for _ in 0..calls {
        call(*turn);
        *turn += 1;
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

fn report(size: u64, block: usize, order: &str, rounds: &[[f64; 3]]) {
    let sorted = |value: &dyn Fn(&[f64; 3]) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |value: &dyn Fn(&[f64; 3]) -> f64| sorted(value)[ROUNDS / 2];
    let ratio = |value: &dyn Fn(&[f64; 3]) -> f64| {
        let values = sorted(value);
        format!("{:.2} ({:.2}..{:.2})", values[ROUNDS / 2], values[0], values[ROUNDS - 1])
    };
    println!(
        "{:>6} {:>6} {:>10} | {:>6.0} ns {:>6.0} ns {:>6.0} ns | {}, {}",
        size >> 20,
        block,
        order,
        median(&|round| round[0]),
        median(&|round| round[1]),
        median(&|round| round[2]),
        ratio(&|round| round[1] / round[0]),
        ratio(&|round| round[2] / round[0]),
    );
}

fn remove(path: &Path) {
    std::fs::remove_file(path).expect("written by us");
}
