//! Descriptor handling, one case per test.

use super::*;
use crate::{Op, Record};

/// The records and repairs of a log.
fn import(log: &str) -> (Vec<Record>, Vec<(Repair, u64)>) {
    let (mut strace, mut batch, mut records) = (Strace::default(), Batch::new(false), Vec::new());
    let mut record = Record::default();
    for line in log.trim_start().lines() {
        strace.line(line.as_bytes(), &mut batch).expect(line);
        while batch.take(&mut record) {
            records.push(record.clone());
        }
    }
    strace.end(&mut batch).expect("there are calls");
    (records, batch.repairs.iter().collect())
}

/// Process, operation, file, offset and length of each record of a log without repairs.
fn clean(log: &str) -> Vec<(u64, Op, String, u64, u64)> {
    let (records, repairs) = import(log);
    assert_eq!(repairs, [], "{log}");
    accesses(records)
}

fn accesses(records: Vec<Record>) -> Vec<(u64, Op, String, u64, u64)> {
    let parts = |record: Record| (record.pid, record.op, record.file, record.offset, record.length);
    records.into_iter().map(parts).collect()
}

fn read(pid: u64, file: &str, offset: u64, length: u64) -> (u64, Op, String, u64, u64) {
    (pid, Op::Read, file.to_owned(), offset, length)
}

fn write(pid: u64, file: &str, offset: u64, length: u64) -> (u64, Op, String, u64, u64) {
    (pid, Op::Write, file.to_owned(), offset, length)
}

#[test]
fn a_child_shares_positions_but_not_descriptors() {
    let log = r#"
1 open("a", O_RDONLY) = 3
1 fork() = 2
2 read(3, "", 10) = 10
1 read(3, "", 10) = 10
1 close(3) = 0
1 open("b", O_RDONLY) = 3
2 read(3, "", 10) = 10
1 read(3, "", 10) = 10"#;
    assert_eq!(
        clean(log),
        [read(2, "a", 0, 10), read(1, "a", 10, 10), read(2, "a", 20, 10), read(1, "b", 0, 10)]
    );
}

#[test]
fn a_thread_shares_descriptors_and_counts_as_its_process() {
    let log = r#"
1 clone3({flags=CLONE_VM|CLONE_FILES, exit_signal=0} => {parent_tid=[2]}, 88) = 2
2 openat(AT_FDCWD, "a", O_RDONLY) = 3
1 read(3, "", 10) = 10
2 +++ exited with 0 +++
1 read(3, "", 10) = 10"#;
    assert_eq!(clean(log), [read(1, "a", 0, 10), read(1, "a", 10, 10)]);
}

#[test]
fn a_child_seen_before_its_fork_returns_has_its_parents_files() {
    let log = r#"
1 open("a", O_RDONLY) = 3
1 vfork( <unfinished ...>
2 read(3, "", 10) = 10
1 <... vfork resumed>) = 2
1 read(3, "", 10) = 10"#;
    assert_eq!(clean(log), [read(2, "a", 0, 10), read(1, "a", 10, 10)]);
}

#[test]
fn an_ambiguous_child_goes_to_the_first_fork_and_is_counted() {
    let log = r#"
1 open("a", O_RDONLY) = 3
7 open("b", O_RDONLY) = 3
1 fork( <unfinished ...>
7 fork( <unfinished ...>
2 read(3, "", 10) = 10
1 <... fork resumed>) = 2
7 <... fork resumed>) = 8
8 read(3, "", 10) = 10"#;
    let (records, repairs) = import(log);
    assert_eq!(accesses(records), [read(2, "a", 0, 10), read(8, "b", 0, 10)]);
    assert_eq!(repairs, [(Repair::UnknownParent, 1)]);
}

#[test]
fn execve_closes_only_close_on_exec_descriptors() {
    let log = r#"
1 open("a", O_RDONLY|O_CLOEXEC) = 3
1 open("b", O_RDONLY) = 4
1 fcntl(4, F_DUPFD_CLOEXEC, 10) = 10
1 dup2(4, 5) = 5
1 fcntl(5, F_SETFD, FD_CLOEXEC) = 0
1 execve("/bin/cat", ["cat"], 0x7ff /* 3 vars */) = 0
1 read(4, "", 10) = 10
1 read(3, "", 10) = 10
1 read(10, "", 10) = 10
1 read(5, "", 10) = 10"#;
    let (records, repairs) = import(log);
    assert_eq!(accesses(records), [read(1, "b", 0, 10)]);
    assert_eq!(repairs, [(Repair::UnknownDescriptor, 3)]);
}

#[test]
fn a_thread_that_runs_another_program_becomes_its_process() {
    let log = r#"
1 open("a", O_RDONLY) = 3
1 clone(child_stack=0x7f, flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 2
2 execve("/bin/cat", ["cat"], 0x7ff /* 3 vars */ <unfinished ...>
1 +++ superseded by execve in pid 2 +++
1 <... execve resumed>) = 0
1 read(3, "", 10) = 10"#;
    let (records, repairs) = import(log);
    assert_eq!((records.len(), repairs), (1, vec![]));
    assert_eq!((records[0].file.as_str(), records[0].offset), ("a", 0));
}

#[test]
fn a_number_reused_while_close_is_in_flight_is_the_new_file() {
    let log = r#"
1 open("a", O_RDONLY) = 3
1 clone(flags=CLONE_VM|CLONE_FILES) = 2
1 close(3 <unfinished ...>
2 open("b", O_RDONLY) = 3
1 <... close resumed>) = 0
2 read(3, "", 10) = 10"#;
    assert_eq!(clean(log), [read(1, "b", 0, 10)]);
}

#[test]
fn duplicates_share_their_position_and_survive_a_close() {
    let log = r#"
open("a", O_RDONLY) = 3
dup(3) = 4
read(3, "", 10) = 10
close(3) = 0
read(4, "", 10) = 10
dup2(4, 4) = 4
close_range(4, 4294967295, CLOSE_RANGE_CLOEXEC) = 0
read(4, "", 5) = 5
close_range(3, 4294967295, 0) = 0
read(4, "", 5) = 5"#;
    let (records, repairs) = import(log);
    assert_eq!(accesses(records), [read(0, "a", 0, 10), read(0, "a", 10, 10), read(0, "a", 20, 5)]);
    assert_eq!(repairs, [(Repair::UnknownDescriptor, 1)]);
}

#[test]
fn seeks_move_the_position_and_offset_calls_do_not() {
    let log = r#"
open("a", O_RDWR) = 3
lseek(3, 100, SEEK_SET) = 100
pread64(3, "", 7, 5000) = 7
read(3, "", 10) = 4
readv(3, [{iov_base="", iov_len=4}, {iov_base="", iov_len=4}], 2) = 8
preadv(3, [{iov_base="", iov_len=4}], 1, 64) = 4
preadv2(3, [{iov_base="", iov_len=4}], 1, -1, RWF_HIPRI) = 4
_llseek(3, 9, [9], SEEK_SET) = 0
pwritev(3, [{iov_base="", iov_len=4}], 1, 70) = 4
read(3, "", 1) = 1
read(3, "", 1) = 0
read(3, "", 1) = -1 EIO (Input/output error)"#;
    let expected = [
        read(0, "a", 5000, 7),
        read(0, "a", 100, 4),
        read(0, "a", 104, 8),
        read(0, "a", 64, 4),
        read(0, "a", 112, 4),
        write(0, "a", 70, 4),
        read(0, "a", 9, 1),
    ];
    assert_eq!(clean(log), expected);
}

#[test]
fn appended_writes_go_to_the_end_known_from_the_log() {
    let log = r#"
open("new", O_WRONLY|O_CREAT|O_TRUNC|O_APPEND, 0644) = 3
write(3, "", 10) = 10
pwrite64(3, "", 5, 0) = 5
openat(AT_FDCWD, "old", O_WRONLY|O_APPEND) = 4
newfstatat(4, "", {st_mode=S_IFREG|0644, st_size=300, ...}, AT_EMPTY_PATH) = 0
write(4, "", 10) = 10
openat(AT_FDCWD, "log", O_WRONLY|O_APPEND) = 5
lseek(5, 0, SEEK_END) = 70
write(5, "", 10) = 10
ftruncate(5, 3) = 0
write(5, "", 10) = 10"#;
    assert_eq!(
        clean(log),
        [
            write(0, "new", 0, 10),
            write(0, "new", 10, 5),
            write(0, "old", 300, 10),
            write(0, "log", 70, 10),
            write(0, "log", 3, 10),
        ]
    );
    let (records, repairs) =
        import("open(\"a\", O_WRONLY|O_APPEND) = 3\nwrite(3, \"\", 4) = 4\nwrite(3, \"\", 4) = 4");
    assert_eq!(accesses(records), [write(0, "a", 0, 4), write(0, "a", 4, 4)]);
    assert_eq!(repairs, [(Repair::UnknownSize, 1)]);
}

#[test]
fn copies_between_files_are_a_read_and_a_write() {
    let log = r#"
open("a", O_RDONLY) = 3
open("b", O_WRONLY) = 4
socket(AF_INET, SOCK_STREAM, IPPROTO_TCP) = 5
pipe2([6, 7], O_CLOEXEC) = 0
sendfile(5, 3, [1000] => [3000], 2000) = 2000
sendfile(4, 3, NULL, 50) = 50
copy_file_range(3, NULL, 4, [9], 10, 0) = 10
splice(3, NULL, 7, NULL, 8, SPLICE_F_MOVE) = 8
read(6, "", 8) = 8"#;
    assert_eq!(
        clean(log),
        [
            read(0, "a", 1000, 2000),
            read(0, "a", 0, 50),
            write(0, "b", 0, 50),
            read(0, "a", 50, 10),
            write(0, "b", 9, 10),
            read(0, "a", 60, 8),
        ]
    );
}

#[test]
fn advice_and_flushes_are_imported_and_mappings_counted() {
    let log = r#"
open("a", O_RDWR) = 3
fadvise64(3, 0, 0, POSIX_FADV_RANDOM) = 0
newfstatat(3, "", {st_mode=S_IFREG|0644, st_size=9000, ...}, AT_EMPTY_PATH) = 0
fadvise64(3, 1000, 0, POSIX_FADV_WILLNEED) = 0
fadvise64(3, 0, 4096, POSIX_FADV_DONTNEED) = 0
fadvise64(3, 0, 4096, POSIX_FADV_NOREUSE) = 0
readahead(3, 4096, 8192) = 0
fdatasync(3) = 0
mmap(NULL, 8192, PROT_READ, MAP_SHARED, 3, 0) = 0x7f0000000000
mmap(NULL, 8192, PROT_READ, MAP_SHARED|MAP_POPULATE, 3, 0x1000) = 0x7f0000000000
mmap(NULL, 8192, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000"#;
    let (records, repairs) = import(log);
    let taken: Vec<_> = records.iter().map(|record| (record.op, record.offset, record.length)).collect();
    assert_eq!(
        taken,
        [
            (Op::Random, 0, 0),
            (Op::WillNeed, 1000, 8000),
            (Op::DontNeed, 0, 4096),
            (Op::WillNeed, 4096, 8192),
            (Op::Fsync, 0, 0),
            (Op::WillNeed, 4096, 8192),
        ]
    );
    assert_eq!(repairs, [(Repair::MappedFile, 2)]);
}

#[test]
fn paths_are_resolved_as_far_as_the_log_allows() {
    let log = r#"
chdir("/srv") = 0
open("./a", O_RDONLY) = 3
openat(AT_FDCWD, "dir", O_RDONLY|O_DIRECTORY) = 4
openat(4, "b", O_RDONLY) = 5
openat(4</srv/real>, "c", O_RDONLY) = 6</srv/real/c\76d>
fchdir(4) = 0
open("e\303\244", O_RDONLY) = 7
openat(AT_FDCWD</x>, "f", O_RDONLY) = 8
openat2(AT_FDCWD, "/g", {flags=O_RDONLY|O_CLOEXEC, resolve=0}, 24) = 9
read(3, "", 1) = 1
read(5, "", 1) = 1
read(6, "", 1) = 1
read(7, "", 1) = 1
read(8, "", 1) = 1
read(9, "", 1) = 1"#;
    let files: Vec<_> = clean(log).into_iter().map(|(_, _, file, ..)| file).collect();
    assert_eq!(files, ["/srv/a", "/srv/dir/b", "/srv/real/c>d", "/srv/dir/eä", "/x/f", "/g"]);
}

#[test]
fn non_storage_paths_give_no_record() {
    let log = r#"
open("/proc/self/maps", O_RDONLY) = 3
read(3, "", 10) = 10
read(0</dev/pts/0<char 136:0>>, "", 10) = 10
read(7<socket:[99]>, "", 10) = 10
write(1<pipe:[9]>, "", 10) = 10
write(2, "", 10) = 10"#;
    assert_eq!(clean(log), []);
}

#[test]
fn files_opened_before_the_log_need_a_path() {
    let (records, repairs) =
        import("read(5, \"\", 10) = 10\nread(6</a>, \"\", 10) = 10\nread(6</a>, \"\", 10) = 10");
    assert_eq!(accesses(records), [read(0, "/a", 0, 10), read(0, "/a", 10, 10)]);
    assert_eq!(repairs, [(Repair::UnknownDescriptor, 1), (Repair::UnknownPosition, 1)]);
}

#[test]
fn a_call_has_its_start_time_and_days_advance() {
    let log = r#"
1 23:59:58.000000 open("a", O_RDONLY) = 3
1 23:59:59.000000 read(3, "", 10) = 10
1 23:59:59.250000 read(3,  <unfinished ...>
2 23:59:59.500000 open("b", O_RDONLY) = 3
2 00:00:00.250000 read(3, "", 10) = 10
1 00:00:01.000000 <... read resumed>"", 10) = 10"#;
    let (records, repairs) = import(log);
    let times: Vec<_> = records.iter().map(|record| (record.file.as_str(), record.time_ns)).collect();
    // The read of a began earlier but is logged later, so its time is raised.
    assert_eq!(times, [("a", 0), ("b", 1_250_000_000), ("a", 1_250_000_000)]);
    assert_eq!(repairs, [(Repair::TimeRaised, 1)]);
}

#[test]
fn relative_times_add_up_over_all_lines() {
    let log = r#"
1      0.000000 open("a", O_RDONLY) = 3
1      0.000100 read(3, "", 10) = 10
1      0.000200 --- SIGCHLD {si_signo=SIGCHLD} ---
1      0.000300 read(3, "", 10) = 10"#;
    assert_eq!(import(log).0.iter().map(|record| record.time_ns).collect::<Vec<_>>(), [0, 500_000]);
}

#[test]
fn lines_of_the_traced_program_and_lost_calls_are_counted() {
    let log = r#"
usage: grep [OPTION]...
1 open("a", O_RDONLY) = 3
1 read(3,  <unfinished ...>
1 write(3,  <unfinished ...>
2 <... read resumed>"", 10) = 10
1 io_uring_enter(4, 1, 1, IORING_ENTER_GETEVENTS, NULL, 8) = 1
broken(3"#;
    let (records, repairs) = import(log);
    assert_eq!(records, []);
    let counts = [(Repair::ForeignLine, 2), (Repair::UnfinishedCall, 2), (Repair::UnseenSubmission, 1)];
    assert_eq!(repairs, counts);
}

#[test]
fn a_seek_reveals_the_position_of_a_file_opened_before_the_log() {
    let log = r#"
7 lseek(3</x>, 40960, SEEK_SET) = 40960
7 read(3</x>, "", 10) = 10
7 lseek(4</y>, 0, SEEK_CUR) = 500
7 read(4</y>, "", 10) = 10"#;
    assert_eq!(clean(log), [read(7, "/x", 40960, 10), read(7, "/y", 500, 10)]);
}

#[test]
fn duplicates_of_a_file_opened_before_the_log_share_its_position() {
    let log = r#"
7 dup(3</x>) = 4</x>
7 fcntl(3</x>, F_DUPFD, 5) = 5</x>
7 lseek(5</x>, 100, SEEK_SET) = 100
7 read(3</x>, "", 10) = 10
7 read(4</x>, "", 10) = 10
7 fcntl(4</x>, F_SETFL, O_RDWR|O_APPEND) = 0
7 lseek(3</x>, 0, SEEK_END) = 1000
7 write(5</x>, "", 10) = 10"#;
    assert_eq!(clean(log), [read(7, "/x", 100, 10), read(7, "/x", 110, 10), write(7, "/x", 1000, 10)]);
}
