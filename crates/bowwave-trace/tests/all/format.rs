//! Valid and invalid inputs of the reader, and its messages.

use std::io::{self, BufRead, Read};

use bowwave_trace::{HEADER, Op, ROW_BYTES_MAX, Reader, Record, Writer};

fn read(text: impl AsRef<[u8]>) -> Result<Vec<Record>, String> {
    Reader::new(text.as_ref(), "t.csv").collect::<Result<_, _>>().map_err(|error| error.to_string())
}

fn rows(rows: &str) -> Result<Vec<Record>, String> {
    read(format!("{HEADER}\n{rows}"))
}

fn refusal(text: &str) -> String {
    rows(text).expect_err("this row must be refused")
}

#[test]
fn every_operation_and_column_is_read() {
    for op in Op::ALL {
        let records = rows(&format!("7,8,{op},a/b c,4096,10\n")).expect("a row of the format");
        let expected = Record { time_ns: 7, pid: 8, op, file: "a/b c".into(), offset: 4096, length: 10 };
        assert_eq!(records, [expected]);
    }
}

#[test]
fn quoted_names_preserve_commas_quotes_and_line_ends() {
    let records = rows("0,1,read,\"a,\"\"b\"\"\r\nc\",0,1\n1,1,read,\"\",0,1").expect("RFC 4180");
    assert_eq!(records.iter().map(|record| record.file.as_str()).collect::<Vec<_>>(), ["a,\"b\"\r\nc", ""]);
}

#[test]
fn windows_line_ends_byte_order_mark_and_blank_tail_are_accepted() {
    let text = format!("\u{feff}{HEADER}\r\n0,1,read,a,0,1\r\n1,1,\"read\",a,0,\"1\"\r\n\r\n\n");
    assert_eq!(read(text).expect("CRLF").len(), 2);
    assert_eq!(read(HEADER).expect("a header alone is an empty trace").len(), 0);
}

#[test]
fn a_wrong_header_is_reported_with_the_expected_one() {
    assert_eq!(
        read("").expect_err("no header"),
        format!("t.csv:1: the file is empty: the first line must be '{HEADER}'")
    );
    assert_eq!(
        read("time,pid\n0,1\n").expect_err("another header"),
        format!("t.csv:1: the header is 'time,pid': the first line must be '{HEADER}'")
    );
    assert!(read(format!("{HEADER},extra\n")).is_err());
    assert!(read("\n").is_err());
    assert!(read(vec![b'\0'; ROW_BYTES_MAX * 2]).is_err());
}

#[test]
fn invalid_numbers_are_reported_with_line_and_column() {
    assert_eq!(refusal("0,1,read,a,12x,1\n"), "t.csv:2: offset: '12x' is not a whole number of bytes");
    assert_eq!(
        refusal("0,1,read,a,0,1\n-5,1,read,a,0,1\n"),
        "t.csv:3: time_ns: '-5' has a sign; expected a whole number of nanoseconds without one"
    );
    assert_eq!(refusal("0,,read,a,0,1\n"), "t.csv:2: pid: is empty");
    assert_eq!(
        refusal("0,1,read,a,0,18446744073709551616\n"),
        "t.csv:2: length: '18446744073709551616' is more than 18446744073709551615"
    );
    assert_eq!(refusal("0, 1,read,a,0,1\n"), "t.csv:2: pid: ' 1' is not a whole number");
    assert_eq!(
        refusal("0,1,read,a,\u{661},1\n"),
        "t.csv:2: offset: '\u{661}' is not a whole number of bytes"
    );
}

#[test]
fn a_range_past_the_largest_offset_is_rejected() {
    assert_eq!(rows("0,1,read,a,18446744073709551614,1\n").expect("the last byte").len(), 1);
    assert_eq!(
        refusal("0,1,read,a,18446744073709551615,1\n"),
        "t.csv:2: length: offset 18446744073709551615 and length 1 together pass 18446744073709551615, the largest \
         offset there is"
    );
}

#[test]
fn unknown_operations_are_reported_with_the_known_ones() {
    assert_eq!(
        refusal("0,1,Read,a,0,1\n"),
        "t.csv:2: op: 'Read' is not an operation (one of read, write, load, store, fsync, willneed, dontneed, random, \
         sequential, evict, plan, done)"
    );
}

#[test]
fn lines_are_right_after_quoted_line_ends() {
    let error = refusal("0,1,read,\"a\nb\",0,1\n0,1,read,\"\n\n\",zero,1\n");
    assert_eq!(error, "t.csv:6: offset: 'zero' is not a whole number of bytes");
    let error = refusal("0,1,read,\"a\nb\nc\",0,1\n0,1,read,a,0,-1\n");
    assert_eq!(error, "t.csv:5: length: '-1' has a sign; expected a whole number of bytes without one");
}

#[test]
fn names_that_are_not_utf_8_are_rejected_with_the_byte() {
    let text = [HEADER.as_bytes(), b"\n0,1,read,ab\xff,0,1\n"].concat();
    assert_eq!(read(text).expect_err("not UTF-8"), "t.csv:2: file: byte 3 is not UTF-8");
    let text = [HEADER.as_bytes(), b"\n0,1,read,a,\xff\xfe,1\n"].concat();
    assert_eq!(
        read(text).expect_err("not a number"),
        "t.csv:2: offset: '\u{fffd}\u{fffd}' is not a whole number of bytes"
    );
}

#[test]
fn rows_of_the_wrong_shape_are_rejected() {
    assert_eq!(refusal("# note\n"), format!("t.csv:2: 1 column, expected the 6 of '{HEADER}'"));
    assert_eq!(refusal("0,1,read,a,b,0,1\n"), format!("t.csv:2: 7 columns, expected the 6 of '{HEADER}'"));
    assert_eq!(
        refusal("0,1,read,a\"b,0,1\n"),
        "t.csv:2: a quote stands inside a value (quote the whole value and double its quotes)"
    );
    assert!(refusal("0,1,read,\"a\"b,0,1\n").contains("a quote stands inside a value"));
    assert_eq!(
        refusal("0,1,read,a,0,1\n0,1,read,\"a,0,1\n0,1,"),
        "t.csv:3: a quoted value begins here and never ends"
    );
    assert_eq!(
        refusal("0,1,read,a,0,1\n\n0,1,read,a,0,1\n"),
        "t.csv:3: blank line before the end of the trace (remove it)"
    );
}

#[test]
fn endless_rows_are_rejected_within_bounded_memory() {
    /// An infinite input that counts the bytes read.
    struct Endless<'a>(&'a [u8], &'a mut usize);
    impl Read for Endless<'_> {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            unreachable!("the reader uses the buffer")
        }
    }
    impl BufRead for Endless<'_> {
        fn fill_buf(&mut self) -> io::Result<&[u8]> {
            Ok(self.0)
        }
        fn consume(&mut self, count: usize) {
            *self.1 += count;
        }
    }
    for row in ["0,1,read,aaaaaaa", "0,1,read,\"aaa\na"] {
        let (mut taken, start) = (0, format!("{HEADER}\n{row}"));
        let endless = Endless(b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", &mut taken);
        let mut reader = Reader::new(start.as_bytes().chain(endless), "t.csv");
        let error = reader.next().expect("an answer").expect_err("the row has no end");
        assert_eq!(error.to_string(), "t.csv:2: the row is longer than 65536 bytes: is this a trace?");
        drop(reader);
        assert!(taken <= ROW_BYTES_MAX, "{taken} bytes taken");
    }
}

#[test]
fn nothing_follows_an_error() {
    let text = format!("{HEADER}\n0,1,read,a,x,1\n0,1,read,a,0,1\n");
    let mut reader = Reader::new(text.as_bytes(), "t.csv");
    assert!(reader.next().expect("a row").is_err());
    assert!(reader.next().is_none());
    assert_eq!(reader.bytes_read(), (text.len() - "0,1,read,a,0,1\n".len()) as u64);
}

#[test]
fn input_errors_keep_their_cause_and_line() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let start = format!("{HEADER}\n0,1,read,a,0,1\n");
    let input = io::BufReader::new(start.as_bytes().chain(Broken));
    let error = Reader::new(input, "t.csv").nth(1).expect("an answer").expect_err("a broken input");
    assert_eq!(error.to_string(), "t.csv:3: the disk is gone");
    assert!(std::error::Error::source(&error).is_some());
}

#[test]
fn the_writer_rejects_records_that_readers_reject() {
    let mut writer = Writer::new(Vec::new()).expect("memory");
    let long = Record { file: "a".repeat(ROW_BYTES_MAX), ..Record::default() };
    let far = Record { offset: u64::MAX, length: 1, ..Record::default() };
    for record in [long, far] {
        assert_eq!(writer.write(&record).expect_err("refused").kind(), io::ErrorKind::InvalidInput);
    }
    assert_eq!(writer.finish().expect("memory"), format!("{HEADER}\n").as_bytes());
}
