//! Throughput of file writes beside the kernel's own calls: `cargo bench -p bowwave-backend --bench
//! writes`.
//!
//! Each row writes a new file of 512 MiB in order, in requests of 1 MiB, and syncs it. Rows take
//! turns, so that other load on the machine affects all of them. The median of the rounds is
//! printed, of the writes alone and with the sync.

#![expect(clippy::print_stdout, reason = "a benchmark's output is its purpose")]

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Instant;

use bowwave_backend::{
    FileBackend, FileIo, Namespace as _, OpenWrite, Result, Write as _, WriteBuf, WriteObject, WriteSink,
};

fn main() {
    let place = std::env::current_exe().expect("a program knows its file").with_extension("bench-writes");
    fs::create_dir_all(&place).expect("the build directory can be written");
    let cases: [(&str, Option<(FileIo, u64)>); 5] = [
        ("write(2)", None),
        ("ring, 1 in flight", Some((FileIo::Ring, 1))),
        ("ring, 4 in flight", Some((FileIo::Ring, 4))),
        ("threads, 1 in flight", Some((FileIo::Threads, 1))),
        ("threads, 4 in flight", Some((FileIo::Threads, 4))),
    ];
    let mut times = vec![Vec::new(); cases.len()];
    for _ in 0..ROUNDS {
        for (case, times) in cases.iter().zip(&mut times) {
            times.push(match case.1 {
                None => plain(&place.join("file")),
                Some((io, depth)) => store(&place, io, depth),
            });
        }
    }
    println!("{:24} {:>12} {:>12}", "case", "writes MB/s", "synced MB/s");
    for ((name, _), times) in cases.iter().zip(&mut times) {
        let median = |pick: fn(&(f64, f64)) -> f64| {
            let mut sorted: Vec<f64> = times.iter().map(pick).collect();
            sorted.sort_by(f64::total_cmp);
            TOTAL as f64 / sorted[sorted.len() / 2] / 1e6
        };
        println!("{name:24} {:>12.0} {:>12.0}", median(|time| time.0), median(|time| time.1));
    }
    fs::remove_dir_all(&place).expect("was made above");
}

/// Seconds of the writes, and until all lasts.
fn plain(path: &Path) -> (f64, f64) {
    fs::remove_file(path).ok();
    let mut file = File::create(path).expect("the directory can be written");
    let bytes = vec![7u8; LEN as usize];
    let begun = Instant::now();
    for _ in 0..TOTAL / LEN {
        file.write_all(&bytes).expect("there is room");
    }
    let written = begun.elapsed().as_secs_f64();
    file.sync_data().expect("can be made to last");
    (written, begun.elapsed().as_secs_f64())
}

fn store(place: &PathBuf, io: FileIo, depth: u64) -> (f64, f64) {
    let store = FileBackend::open(place, io, true, None).expect("the directory is there");
    store.remove_file("file".as_ref()).ok();
    let create = OpenWrite { create: true, mode: 0o644, ..OpenWrite::default() };
    let object = store.open_write("file".as_ref(), &create).expect("the directory can be written");
    let (ended, ends) = sync_channel(depth as usize);
    let mut bufs: Vec<_> = (0..depth).map(|_| aligned(LEN as usize)).collect();
    let begun = Instant::now();
    for offset in (0..TOTAL).step_by(LEN as usize) {
        let buf = bufs.pop().unwrap_or_else(|| ends.recv().expect("each write ends"));
        write(&object, offset, buf, &ended);
    }
    for _ in bufs.len()..depth as usize {
        ends.recv().expect("each write ends");
    }
    let written = begun.elapsed().as_secs_f64();
    object.sync(true).expect("can be made to last");
    (written, begun.elapsed().as_secs_f64())
}

fn write(object: &Arc<dyn WriteObject>, offset: u64, buf: WriteBuf, ended: &SyncSender<WriteBuf>) {
    object.write(offset, buf, Box::new(End(ended.clone())));
}

struct End(SyncSender<WriteBuf>);

impl WriteSink for End {
    fn done(self: Box<Self>, buf: WriteBuf, result: Result<usize>) {
        assert_eq!(result.expect("there is room") as u64, LEN);
        self.0.send(buf).expect("main waits");
    }
}

fn aligned(len: usize) -> WriteBuf {
    let mut buf = WriteBuf::from_vec(vec![7; len + 4096]);
    let base = buf.segments()[0].iov_base.addr();
    let mut inner = buf.split_off(base.next_multiple_of(4096) - base);
    drop(inner.split_off(len));
    inner
}

const LEN: u64 = 1 << 20;
const TOTAL: u64 = 512 << 20;
const ROUNDS: usize = 5;
