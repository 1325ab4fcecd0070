//! The entry point of a fuzzer: only pages that match their checksum leave a segment.

use std::io;

use super::key::Key;
use super::segment::{
    CHUNK, DATA, Found, PAGE, SEGMENT, SUMS, Source, Sums, header, page_of, parts, read_from,
};
use crate::Identity;

impl Source for &[u8] {
    fn read_some(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.get(offset..)).unwrap_or_default();
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
}

fn page_len(size: u64, number: u64, at: u64) -> usize {
    size.saturating_sub(number * SEGMENT + at * PAGE).min(PAGE) as usize
}

/// Reads a segment file of arbitrary bytes, as a cache that finds it on its disk: the target of a
/// fuzzer. Six bytes choose the object's size, the range that is read, and whether the segment has
/// the right header and the right checksums of all pages but one; the rest is the file. Returns the
/// number of delivered bytes. Needs memory for one copy of the input and less than 1 MiB more.
///
/// # Panics
/// If a delivered byte is not at its place in the segment, or its page does not match its checksum.
pub fn fuzz_disk_segment(input: &[u8]) -> u64 {
    let Some((choice, file)) = input.split_at_checked(6) else { return 0 };
    let pages = u64::from(u16::from_le_bytes([choice[0], choice[1]])) % (3 * SEGMENT / PAGE) + 1;
    let size = pages * PAGE - u64::from(choice[2]) * 16;
    let identity = Identity { etag: Some("\"e\"".to_owned()), size, ..Identity::default() };
    let key = Key::new("fuzz:", "object".as_ref(), &identity).expect("a strong entity tag");
    let start = u64::from(choice[3]) * size.div_ceil(PAGE) / 256 * PAGE;
    let Some(range) = key.pages(start, usize::from(choice[4]) * PAGE as usize) else { return 0 };
    let mut all = 0;
    let mut file = file.to_vec();
    for (number, part) in parts(range) {
        let text = key.place(number).0;
        if choice[5] & 1 != 0 {
            let head = header(&text);
            file.resize(file.len().max(head.len()), 0);
            file[..head.len()].copy_from_slice(&head);
        }
        let sums = Sums::of(&text);
        if choice[5] & 2 != 0 {
            for at in (0..SEGMENT / PAGE).filter(|at| at % 64 != u64::from(choice[5] >> 2)) {
                let place = (DATA + at * PAGE) as usize;
                let len = page_len(size, number, at);
                let Some(page) = file.get(place..place + len) else { break };
                let sum = sums.sum(at, page).to_le_bytes();
                file[(SUMS + 4 * at) as usize..][..4].copy_from_slice(&sum);
            }
        }
        let mut scratch = vec![0; CHUNK];
        let mut delivered = part.start;
        let found = read_from(&file.as_slice(), &text, &part, &mut scratch, &mut |offset, bytes| {
            assert_eq!(offset, delivered, "bytes come in order");
            delivered += bytes.len() as u64;
            for (page, at) in bytes.chunks(PAGE as usize).zip(page_of(offset)..) {
                let place = (DATA + at * PAGE) as usize;
                let table = (SUMS + 4 * at) as usize;
                assert_eq!(*page, file[place..place + page.len()]);
                assert_eq!(sums.sum(at, page).to_le_bytes(), file[table..table + 4]);
            }
            true
        });
        let found = found.expect("memory does not fail");
        assert!(delivered <= part.end && (found != Found::Here || delivered == part.end), "{found:?}");
        all += delivered - part.start;
    }
    all
}
