//! Each importer on a small sample: every record, the repairs, and format detection.

use std::fs;
use std::io::Cursor;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use bowwave_trace::import::{self, BlockAction, Format, Import, Objects, Options, Repair, TracefsEvents};
use bowwave_trace::{Error, Op, Reader, Record, Writer, binary};

/// A sample: its file, format and repairs. The expected records are in `expected/FILE.csv`.
type Sample = (&'static str, Format, &'static [(Repair, u64)]);

const SAMPLES: &[Sample] = &[
    ("job2.iolog", Format::Fio, &[(Repair::OtherRequest, 1)]),
    ("job3.iolog", Format::Fio, &[]),
    ("grep.strace", Format::Strace, &[(Repair::UnknownPosition, 1), (Repair::MappedFile, 4)]),
    ("sqlite.strace", Format::Strace, &[]),
    ("python.strace", Format::Strace, &[(Repair::MappedFile, 1)]),
    ("sda.blkparse", Format::Blkparse, &[(Repair::OtherRequest, 1)]),
    ("sdb.blkparse", Format::Blkparse, &[(Repair::OtherRequest, 1)]),
    ("cache.tracefs", Format::Tracefs, &[(Repair::OtherEvent, 13), (Repair::LostEvents, 1)]),
    ("msr.csv", Format::Msr, &[(Repair::TimeRaised, 1)]),
    ("alibaba.csv", Format::Alibaba, &[]),
    ("tencent.csv", Format::Tencent, &[]),
    ("financial.spc", Format::Spc, &[]),
    ("p6.lis", Format::Arc, &[]),
    ("sprite.trace", Format::Lirs, &[]),
    ("web.mqsim", Format::Mqsim, &[]),
    ("vm.csv", Format::VscsiCsv, &[(Repair::OtherRequest, 1)]),
    ("vm.vscsi1", Format::Vscsi, &[(Repair::OtherRequest, 1)]),
    ("vm.vscsi2", Format::Vscsi, &[(Repair::OtherRequest, 1)]),
    ("w.oracleGeneral", Format::OracleGeneral, &[]),
    ("packed.trace.gz", Format::Lirs, &[]),
    ("packed.lis.zst", Format::Arc, &[]),
];

fn samples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples")
}

fn open(file: &str, options: &Options) -> Import {
    import::open(&samples().join(file), None, options).expect("the sample opens")
}

fn records(import: Import) -> Result<Vec<Record>, Error> {
    import.collect()
}

/// The records of `text` as a log in `format`.
fn read(text: impl AsRef<[u8]>, format: Format) -> Result<Vec<Record>, Error> {
    let input = Cursor::new(text.as_ref().to_vec());
    records(import::from_reader(input, "log", Some(format), &Options::default())?)
}

/// Operation, file, offset and length of each record.
fn accesses(records: &[Record]) -> Vec<(Op, &str, u64, u64)> {
    records.iter().map(|record| (record.op, record.file.as_str(), record.offset, record.length)).collect()
}

fn csv(records: &[Record]) -> String {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    records.iter().for_each(|record| writer.write(record).expect("a record that can be read back"));
    String::from_utf8(writer.finish().expect("memory")).expect("UTF-8")
}

#[test]
fn samples_give_their_expected_records_and_repairs() {
    for &(file, format, repairs) in SAMPLES {
        let mut import = open(file, &Options::default());
        assert_eq!(import.format(), format, "{file}: format");
        let mut found = Vec::new();
        let mut record = Record::default();
        while import.read(&mut record).unwrap_or_else(|error| panic!("{file}: {error}")) {
            found.push(record.clone());
        }
        assert_eq!(import.repairs().iter().collect::<Vec<_>>(), repairs, "{file}: repairs");
        let expected = fs::read_to_string(samples().join("expected").join(format!("{file}.csv")))
            .unwrap_or_else(|error| panic!("{file}: {error}\n{}", csv(&found)));
        assert_eq!(csv(&found), expected, "{file}");
        assert!(!import.read(&mut record).expect("no error"), "{file}: nothing follows the end");
    }
}

#[test]
fn every_foreign_format_has_a_sample() {
    for format in Format::ALL {
        let sampled = SAMPLES.iter().any(|&(_, known, _)| known == format);
        assert!(sampled || matches!(format, Format::Csv | Format::Binary), "{format}");
    }
}

/// `strace` output without `-y`: descriptors without paths in angle brackets.
fn without_paths(log: &str) -> String {
    let mut bare = String::new();
    let mut inside = false;
    for letter in log.chars() {
        let after_descriptor = bare.ends_with(|last: char| last.is_ascii_digit() || last == 'D');
        inside |= letter == '<' && after_descriptor;
        if !inside {
            bare.push(letter);
        }
        inside &= letter != '>';
    }
    bare
}

#[test]
fn tracked_descriptors_match_their_logged_paths() {
    let log = fs::read_to_string(samples().join("grep.strace")).expect("the sample");
    let bare = without_paths(&log);
    assert!(log.contains("</srv/demo/notes/f2.txt>") && !bare.contains("</srv"), "{bare}");
    let place = |record: &Record| (record.time_ns, record.op, record.offset, record.length);
    let expected = read(&log, Format::Strace).expect("records");
    let followed = read(&bare, Format::Strace).expect("records");
    // Standard output was opened before the log began, so only its path identifies it.
    let (last, expected) = expected.split_last().expect("records");
    assert_eq!(last.file, "/srv/stdout");
    assert_eq!(
        followed.iter().map(place).collect::<Vec<_>>(),
        expected.iter().map(place).collect::<Vec<_>>()
    );
    for (followed, expected) in followed.iter().zip(expected).skip(1) {
        assert_eq!(format!("/srv/demo/{}", followed.file), expected.file);
    }
}

#[test]
fn imported_records_round_trip_through_both_own_formats() {
    for &(file, ..) in SAMPLES {
        let found = records(open(file, &Options::default())).expect(file);
        let text = csv(&found);
        let again: Vec<Record> =
            Reader::new(text.as_bytes(), file).collect::<Result<_, _>>().expect("our own CSV");
        assert_eq!(again, found, "{file}");
        assert_eq!(read(&text, Format::Csv).expect("our own CSV"), found, "{file}");
        let mut writer = binary::Writer::new(Vec::new()).expect("memory");
        found.iter().for_each(|record| writer.write(record).expect("memory"));
        let bytes = writer.finish().expect("memory");
        let import = import::from_reader(Cursor::new(bytes), file, None, &Options::default());
        let import = import.expect("it is ours, whatever its name says");
        assert_eq!(import.format(), Format::Binary);
        assert_eq!(records(import).expect("rows"), found, "{file}");
    }
}

#[test]
fn a_truncated_sample_gives_a_prefix_of_its_records_or_one_error() {
    for &(file, format, _) in SAMPLES {
        let whole = records(open(file, &Options::default())).expect(file);
        let bytes = fs::read(samples().join(file)).expect(file);
        for length in (0..bytes.len()).step_by(bytes.len() / 97 + 1) {
            let input = Cursor::new(bytes[..length].to_vec());
            let Ok(import) = import::from_reader(input, file, Some(format), &Options::default()) else {
                continue;
            };
            let mut found = Vec::new();
            let mut errors = 0;
            for record in import {
                assert_eq!(errors, 0, "{file}: something after an error");
                record.map_or_else(|_| errors += 1, |record| found.push(record));
            }
            // The last record may come from a line with a truncated number.
            found.pop();
            assert!(whole.starts_with(&found), "{file} cut to {length} bytes");
        }
    }
}

#[test]
fn block_sizes_and_kept_times_are_options() {
    let options = Options { block_bytes: NonZeroU64::new(512), keep_times: true, ..Options::default() };
    let found = records(open("p6.lis", &options)).expect("records");
    assert_eq!(accesses(&found)[0], (Op::Read, "blocks", 110_765 * 512, 64 * 512));
    let found = records(open("alibaba.csv", &options)).expect("records");
    assert_eq!(found[0].time_ns, 1_577_808_144_360_767_000);
    assert_eq!(found[0].offset, 8_792_731_648);
    let options = Options { objects: Objects::Files, ..Options::default() };
    let found = records(open("w.oracleGeneral", &options)).expect("records");
    assert_eq!(accesses(&found)[1], (Op::Read, "64", 0, 512));
}

#[test]
fn the_step_of_a_block_request_is_an_option() {
    let dispatched = Options { block_action: BlockAction::Dispatched, ..Options::default() };
    assert_eq!(
        accesses(&records(open("sda.blkparse", &dispatched)).expect("records")),
        [(Op::Read, "8,0", 1024 * 512, 264 * 512), (Op::Write, "8,0", 223_490 * 512, 8 * 512),]
    );
    let completed = Options { block_action: BlockAction::Completed, ..Options::default() };
    let found = records(open("sda.blkparse", &completed)).expect("records");
    assert_eq!(found.iter().map(|record| record.time_ns).collect::<Vec<_>>(), [0, 300_000]);
}

#[test]
fn page_cache_fills_are_imported_on_request() {
    let fills = Options { tracefs_events: TracefsEvents::Fills, ..Options::default() };
    let found = records(open("cache.tracefs", &fills)).expect("records");
    assert_eq!(
        accesses(&found),
        [
            (Op::Read, "254:0/10174834", 0, 4096),
            (Op::Read, "254:0/10174834", 4096, 4096),
            (Op::Read, "254:0/10174834", 8192, 4096),
            (Op::Evict, "254:0/10174834", 16_384, 16_384),
        ]
    );
    let only_fills =
        "a-1 [000] 1.000000: mm_filemap_add_to_page_cache: dev 8:1 ino 1 page=0x0 pfn=0x1 ofs=0\n";
    let error = read(only_fills, Format::Tracefs).expect_err("there are no accesses");
    assert!(error.to_string().contains("has no accesses") && error.to_string().contains("fills"), "{error}");
}

/// Regression: the shift was computed before its bound was checked, which panics with overflow
/// checks. Fuzzing joined two lines, so that an order continued into a process ID.
#[test]
fn an_impossible_folio_order_is_rejected() {
    let line = "a-1 [000] 1.0: mm_filemap_delete_from_page_cache: dev 1:1 ino 1 pfn=0x1 ofs=0 order=24170\n";
    let error = read(line, Format::Tracefs).expect_err("no folio has 2^24170 pages").to_string();
    assert!(error.starts_with("log:1: ofs: "), "{error}");
}

#[test]
fn errors_name_line_and_column() {
    for (format, text, message) in [
        (
            Format::Fio,
            "fio version 1 iolog\n",
            "log:1: a log of fio's begins with 'fio version 2 iolog' or 3",
        ),
        (Format::Fio, "fio version 2 iolog\nf read 0\n", "log:2: 3 words, but 'read' has other"),
        (Format::Fio, "fio version 3 iolog\n-5 f read 0 1\n", "log:2: timestamp: '-5' has a sign"),
        (Format::Fio, "fio version 2 iolog\nf frob 0 1\n", "log:2: action: 'frob' is not an action"),
        (Format::Strace, "hello\nworld\n", "log:2: there is no system call in this log"),
        (Format::Blkparse, "hello\n", "log:1: 'hello' is not an event of blkparse's"),
        (Format::Blkparse, "8,0 3 1 -1.0 697 Q R 1 + 8 [a]\n", "log:1: time: '-1.0' is a time before"),
        (Format::Blkparse, "8,0 3 1 1.0 697 Q R x + 8 [a]\n", "log:1: sector: 'x' is not a whole number"),
        (Format::Tracefs, "nonsense\n", "log:1: 'nonsense' is not an event"),
        (
            Format::Tracefs,
            "a-1 [000] 1.0: mm_filemap_fault: dev=1:1 ofs=0\n",
            "log:1: ino: 'dev=1:1 ofs=0' has no",
        ),
        (
            Format::Msr,
            "1,h,0,Read,0,1,1\n1,h,0,Peek,0,1,1\n",
            "log:2: type: 'Peek' is neither 'Read' nor 'Write'",
        ),
        (
            Format::Msr,
            "184467440737095517,h,0,Read,0,1,1\n",
            "log:1: timestamp: 184467440737095517 units of 100 ns",
        ),
        (
            Format::Alibaba,
            "1,R,18446744073709551615,2,0\n",
            "log:1: offset 18446744073709551615 and length 2 together",
        ),
        (Format::Alibaba, "1,R,-4096,2,0\n", "log:1: offset: '-4096' has a sign"),
        (Format::Tencent, "1,36028797018963968,1,0,9\n", "log:1: offset: 36028797018963968 sectors"),
        (
            Format::Tencent,
            "1,2,3\n",
            "log:1: 3 columns, expected the 5 of 'timestamp,offset,size,iotype,volumeid'",
        ),
        (Format::Spc, "0,1,2,r,1e3\n", "log:1: timestamp: '1e3' is not a time in seconds"),
        (Format::Arc, "1 2 3\n", "log:1: 3 columns, expected the 4 of 'start blocks ignored request'"),
        (Format::Lirs, "1\n\u{e4}\n", "log:2: block: 'ä' is not a whole number of blocks"),
        (Format::Mqsim, "1 0 0 8 2\n", "log:1: type: '2' is neither '1' nor '0'"),
        (Format::VscsiCsv, "1,1,zz,512,0\n", "log:1: op: 'zz' is not a SCSI command"),
        (Format::Vscsi, "short", "log: row 0: the version of neither form"),
    ] {
        let error = read(text, format).expect_err(text).to_string();
        assert!(error.starts_with(message), "{format}: {error}\n  wanted: {message}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn non_text_bytes_are_printed_without_a_panic() {
    for format in Format::ALL {
        for bytes in [&b"\xff\xfe\x00\x80\n\xff"[..], b"\0\0\0\0", b"\n\n\n", b"", b"\"\n", b"<\n[pid\n(\n"] {
            if let Err(error) = read(bytes, format) {
                assert!(error.to_string().starts_with("log:"), "{format}: {error}");
            }
        }
    }
}

#[test]
fn a_truncated_last_line_or_record_is_skipped_and_counted() {
    let input = Cursor::new(b"1,R,0,4096,5\n2,W,40".to_vec());
    let mut import =
        import::from_reader(input, "log", Some(Format::Alibaba), &Options::default()).expect("it opens");
    let mut record = Record::default();
    assert!(import.read(&mut record).expect("a row"));
    assert!(!import.read(&mut record).expect("the end"));
    assert_eq!(import.repairs().count(Repair::CutShort), 1);
    let bytes = fs::read(samples().join("vm.vscsi1")).expect("the sample");
    let input = Cursor::new(bytes[..bytes.len() - 1].to_vec());
    let mut import = import::from_reader(input, "log", None, &Options::default()).expect("it opens");
    assert_eq!(import.by_ref().filter(|record| record.is_ok()).count(), 2);
    assert_eq!(import.repairs().count(Repair::CutShort), 1);
    // With no record before it, it is not a truncated trace, but invalid.
    assert!(read("2,W,40", Format::Alibaba).is_err());
}

#[test]
fn a_bad_line_among_good_ones_is_an_error_of_their_format() {
    let text = "1,R,0,4096,5\n2,W,-4096,4096,6\n1,R,0,4096,7\n";
    let import = import::from_reader(Cursor::new(text), "x", None, &Options::default()).expect("Alibaba's");
    let error = records(import).expect_err("a negative offset").to_string();
    assert_eq!(error, "x:2: offset: '-4096' has a sign; expected a whole number of bytes without one");
    let error = read("0 1 2\n", Format::Arc).expect_err("no column of four").to_string();
    assert!(error.ends_with("; is this a trace in the format arc?"), "{error}");
}

#[test]
fn headers_of_publishers_are_skipped_once() {
    let text = "device_id,opcode,offset,length,timestamp\n1,R,0,4096,5\n";
    assert_eq!(read(text, Format::Alibaba).expect("a row").len(), 1);
    let twice = format!("{text}device_id,opcode,offset,length,timestamp\n");
    assert!(read(twice, Format::Alibaba).expect_err("a second header").to_string().starts_with("log:3:"));
    let import = import::from_reader(Cursor::new(text), "x", None, &Options::default()).expect("known");
    assert_eq!(import.format(), Format::Alibaba);
}

#[test]
fn an_unknown_format_is_rejected_with_the_known_names() {
    for (text, message) in
        [("", "x: the file is empty (say which of csv, bwt, fio, "), ("once upon\n", "x: the format")]
    {
        let error = import::from_reader(Cursor::new(text), "x", None, &Options::default()).expect_err(text);
        assert!(error.to_string().starts_with(message), "{error}");
    }
}

#[test]
fn a_missing_file_and_a_directory_are_reported_by_name() {
    for place in ["nowhere.csv", ""] {
        let path = samples().join(place);
        let error = import::open(&path, None, &Options::default()).expect_err("no trace").to_string();
        assert!(error.starts_with(&path.display().to_string()), "{error}");
    }
}
