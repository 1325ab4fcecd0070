//! Random records and random bytes. A failure prints the reduced input and its seed.

use bowwave_trace::{HEADER, Op, Reader, Record, Writer};
use proptest::prelude::*;

fn record() -> impl Strategy<Value = Record> {
    let name = prop_oneof![
        "[a-z/]{1,12}",
        proptest::collection::vec(
            prop_oneof![Just(','), Just('"'), Just('\n'), Just('\r'), any::<char>()],
            0..9
        )
        .prop_map(String::from_iter),
    ];
    (any::<u64>(), any::<u64>(), 0..Op::ALL.len(), name, any::<u64>(), any::<u64>()).prop_map(
        |(time_ns, pid, op, file, offset, length)| Record {
            time_ns,
            pid,
            op: Op::ALL[op],
            file,
            offset,
            length: length.min(u64::MAX - offset),
        },
    )
}

/// Bytes similar enough to a trace to reach deep into the reader.
fn almost_a_trace() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        Just(b",".to_vec()),
        Just(b"\"".to_vec()),
        Just(b"\n".to_vec()),
        Just(b"\r\n".to_vec()),
        Just(b"0,1,read,a,".to_vec()),
        Just(b"4096,1\n".to_vec()),
        proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(records in proptest::collection::vec(record(), 0..20)) {
        let mut writer = Writer::new(Vec::new())?;
        for record in &records {
            writer.write(record)?;
        }
        let bytes = writer.finish()?;
        let back: Vec<Record> = Reader::new(&bytes[..], "t.csv").collect::<Result<_, _>>()?;
        prop_assert_eq!(back, records);
    }

    #[test]
    fn no_bytes_make_the_reader_panic_and_errors_are_one_line(tail in almost_a_trace(), header: bool) {
        let head = if header { format!("{HEADER}\n") } else { String::new() };
        let bytes = [head.as_bytes(), &tail].concat();
        let lines = bytes.iter().filter(|&&byte| byte == b'\n').count() as u64 + 1;
        // No more records than rows, at most one error, and that on an existing line.
        let mut reader = Reader::new(&bytes[..], "t.csv");
        for record in &mut reader {
            if let Err(error) = record {
                let error = error.to_string();
                prop_assert!(!error.contains('\n'), "{}", error);
                let line = error.split(':').nth(1).and_then(|line| line.parse().ok());
                prop_assert!(line.is_some_and(|line| (1..=lines).contains(&line)), "{error} of {lines} lines");
            }
        }
        prop_assert!(reader.next().is_none());
    }
}
