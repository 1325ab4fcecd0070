//! Checksums that stores keep of objects and their parts: verification of received bytes.
//!
//! S3 and Google send the checksum of an object with its size, Azure the MD5 of one that was
//! uploaded at once, and S3 the checksums of parts in a separate table. A composite checksum covers
//! the checksums of the parts, so each part is compared with its own.
//!
//! ```text
//!   object   |======= part 1 ======|======= part 2 ======|
//!   reads       |---a---|---b---|------c------|             each holds only pieces of parts
//!   tally    …  a + b + c's first bytes  = part 1, compared when its last bytes arrive
//! ```
//!
//! A read that holds a whole range with a checksum is verified before any byte of the range is
//! passed on, and retried if it does not match. CRCs of smaller reads are combined; SHA sums cannot
//! be. If the partial sums of a whole range do not match, the last of these reads fails, because
//! the sums do not show which read was damaged.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crc_fast::{CrcAlgorithm, Digest, checksum_combine};
use http::header::{HeaderMap, HeaderName};
use md5::{Digest as _, Md5};
use ring::digest;
use tokio::sync::OnceCell;

use super::ranged::Version;
use super::validator::text;
use crate::sync::Mutex;
use crate::{Error, ErrorKind};

/// `crc32c=` and `md5=` of Google's objects, in one line or several.
const GOOGLE_HASH: HeaderName = HeaderName::from_static("x-goog-hash");
const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
/// Requests checksums, if `ENABLED`.
pub(super) const MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");
/// The element of a CRC-64/NVME, the checksum of our uploads.
pub(super) const CRC64NVME: &str = "ChecksumCRC64NVME";

/// A checksum algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Algorithm {
    Crc32,
    Crc32c,
    Crc64Nvme,
    Sha1,
    Sha256,
    Md5,
}

impl Algorithm {
    /// Those of S3, fastest first: an object may have several.
    pub(super) const ALL: [Self; 5] = [Self::Crc64Nvme, Self::Crc32c, Self::Crc32, Self::Sha256, Self::Sha1];

    /// Names in headers and documents.
    pub(super) fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Crc32 => ("x-amz-checksum-crc32", "ChecksumCRC32"),
            Self::Crc32c => ("x-amz-checksum-crc32c", "ChecksumCRC32C"),
            Self::Crc64Nvme => ("x-amz-checksum-crc64nvme", CRC64NVME),
            Self::Sha1 => ("x-amz-checksum-sha1", "ChecksumSHA1"),
            Self::Sha256 => ("x-amz-checksum-sha256", "ChecksumSHA256"),
            Self::Md5 => ("content-md5", "ContentMD5"),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    /// The library's algorithm, if sums of parts of a range can be combined.
    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 | Self::Md5 => None,
        }
    }

    fn begin(self) -> Sum {
        match (self, self.crc()) {
            (_, Some(crc)) => Sum::Crc(Digest::new(crc), self.bytes()),
            (Self::Md5, _) => Sum::Md5(Md5::new()),
            (Self::Sha1, _) => Sum::Sha(digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY)),
            (_, None) => Sum::Sha(digest::Context::new(&digest::SHA256)),
        }
    }
}

/// A sum in progress.
enum Sum {
    /// A CRC, and its length in bytes.
    Crc(Digest, usize),
    Sha(digest::Context),
    Md5(Md5),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc(digest, _) => digest.update(bytes),
            Self::Sha(context) => context.update(bytes),
            Self::Md5(digest) => digest.update(bytes),
        }
    }

    /// In the byte order of headers.
    fn end(self) -> Vec<u8> {
        match self {
            Self::Crc(digest, bytes) => digest.finalize().to_be_bytes()[8 - bytes..].to_vec(),
            Self::Sha(context) => context.finish().as_ref().to_vec(),
            Self::Md5(digest) => digest.finalize().to_vec(),
        }
    }
}

/// The store's checksum of some bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Checksum {
    algorithm: Algorithm,
    value: Vec<u8>,
    /// Over the checksums of this many parts, not over the bytes.
    parts: Option<u32>,
}

impl Checksum {
    /// Parses a store's text form: Base64, for a composite checksum followed by a dash and the
    /// number of parts.
    pub(super) fn parse(algorithm: Algorithm, text: &str) -> Option<Self> {
        let (text, parts) = match text.trim().split_once('-') {
            Some((sum, parts)) => (sum, Some(parts.parse().ok()?)),
            None => (text.trim(), None),
        };
        let value = BASE64_STANDARD.decode(text).ok()?;
        (value.len() == algorithm.bytes()).then_some(Self { algorithm, value, parts })
    }

    /// The checksum of a whole object, from the headers of a response that describes all of it.
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let amazon = |algorithm: Algorithm| {
            let name = HeaderName::from_static(algorithm.names().0);
            Self::parse(algorithm, &text(headers, name)?)
        };
        let google = || {
            let lines = headers.get_all(GOOGLE_HASH).iter().filter_map(|line| line.to_str().ok());
            let sum =
                lines.flat_map(|line| line.split(',')).find_map(|sum| sum.trim().strip_prefix("crc32c="));
            Self::parse(Algorithm::Crc32c, sum?)
        };
        let azure = || Self::parse(Algorithm::Md5, &text(headers, CONTENT_MD5)?);
        Algorithm::ALL.into_iter().find_map(amazon).or_else(google).or_else(azure)
    }

    /// Whether it is a checksum of bytes, not of the checksums of several parts.
    fn is_of_bytes(&self) -> bool {
        self.parts.is_none_or(|parts| parts == 1)
    }

    /// Compares it with the sum of the received bytes.
    ///
    /// # Errors
    /// The difference, if they are not the store's bytes.
    fn compare(&self, sum: Vec<u8>) -> Result<(), String> {
        let sum = match self.parts {
            None => sum,
            Some(_) => {
                let mut over = self.algorithm.begin();
                over.add(&sum);
                over.end()
            }
        };
        if sum == self.value {
            return Ok(());
        }
        let name = self.algorithm.names().0;
        Err(format!(
            "the bytes do not match the store's checksum ({name}): they were damaged on the way; try again later"
        ))
    }
}

/// A range of a body that has a checksum, or belongs to a range of the object that has one.
#[derive(Debug)]
struct Item {
    /// Bytes of the body.
    range: Range<u64>,
    /// Bytes of the object that the checksum covers, as offsets in the body; some may lie before or
    /// after it.
    span: Range<i128>,
    checksum: Checksum,
}

impl Item {
    fn is_whole(&self) -> bool {
        self.span == (i128::from(self.range.start)..i128::from(self.range.end))
    }
}

/// Sums a body as it arrives, and compares what it can.
#[derive(Default)]
pub(super) struct Verifier {
    items: VecDeque<Item>,
    sum: Option<Sum>,
    at: u64,
    /// Sums of incomplete ranges.
    partial_sums: Vec<PartialSum>,
    compared: bool,
}

/// The sum of some bytes of an object.
#[derive(Debug)]
pub(super) struct PartialSum {
    range: Range<u64>,
    sum: u64,
}

impl Verifier {
    /// A verifier for a body that holds `range` of an object. `sums` are the object's ranges that
    /// have checksums.
    fn new(range: &Range<u64>, sums: &[(Range<u64>, Checksum)]) -> Self {
        let item = |(span, checksum): &(Range<u64>, Checksum)| {
            let inside = span.start.max(range.start)..span.end.min(range.end);
            // Partial sums can be combined only for cyclic checksums.
            let useful = inside == *span || checksum.algorithm.crc().is_some();
            let place = |at: u64| i128::from(at) - i128::from(range.start);
            (inside.start < inside.end && useful).then(|| Item {
                range: inside.start - range.start..inside.end - range.start,
                span: place(span.start)..place(span.end),
                checksum: checksum.clone(),
            })
        };
        Self { items: sums.iter().filter_map(item).collect(), ..Self::default() }
    }

    /// How many of the first `received` bytes may be passed on: verified bytes, and bytes of
    /// incomplete ranges.
    pub(super) fn known(&self, received: usize) -> usize {
        match self.items.front() {
            Some(item) if item.is_whole() => {
                received.min(usize::try_from(item.range.start).unwrap_or(usize::MAX))
            }
            _ => received,
        }
    }

    /// Whether a checksum was compared.
    pub(super) fn has_compared(&self) -> bool {
        self.compared
    }

    /// Adds the next bytes of the body.
    ///
    /// # Errors
    /// The difference, if they are not the store's bytes.
    pub(super) fn add(&mut self, mut bytes: &[u8]) -> Result<(), String> {
        while let Some(item) = self.items.front() {
            let skipped = item.range.start.saturating_sub(self.at).min(bytes.len() as u64);
            if self.at + skipped < item.range.start {
                break;
            }
            let wanted = (item.range.end - self.at - skipped).min(bytes.len() as u64 - skipped);
            let (skipped, wanted) = (skipped as usize, wanted as usize);
            let sum = self.sum.get_or_insert_with(|| item.checksum.algorithm.begin());
            sum.add(&bytes[skipped..skipped + wanted]);
            self.at += (skipped + wanted) as u64;
            bytes = &bytes[skipped + wanted..];
            if self.at < item.range.end {
                return Ok(());
            }
            self.end_item()?;
        }
        self.at += bytes.len() as u64;
        Ok(())
    }

    /// The partial sums of the body, as ranges of the object. The body began at offset `start`.
    pub(super) fn partial_sums(mut self, start: u64) -> Vec<PartialSum> {
        if let (Some(item), Some(Sum::Crc(digest, _))) = (self.items.front(), self.sum.take())
            && !item.is_whole()
        {
            self.partial_sums.push(PartialSum { range: item.range.start..self.at, sum: digest.finalize() });
        }
        for partial in &mut self.partial_sums {
            partial.range = partial.range.start + start..partial.range.end + start;
        }
        self.partial_sums
    }

    fn end_item(&mut self) -> Result<(), String> {
        let (Some(item), Some(sum)) = (self.items.pop_front(), self.sum.take()) else { return Ok(()) };
        match sum {
            sum if item.is_whole() => {
                self.compared = true;
                item.checksum.compare(sum.end())
            }
            Sum::Crc(digest, _) => {
                self.partial_sums.push(PartialSum { range: item.range, sum: digest.finalize() });
                Ok(())
            }
            Sum::Sha(_) | Sum::Md5(_) => Ok(()),
        }
    }
}

/// Checksums of one version of an object.
#[derive(Debug, Default)]
pub(super) struct Checksums {
    /// Checksum of the whole object; empty until it is known whether there is one.
    whole: OnceLock<Option<Checksum>>,
    /// Checksums of its parts, requested on first use.
    parts: OnceCell<Vec<(Range<u64>, Checksum)>>,
    /// Sums of read ranges, by start: end and sum. They do not overlap.
    tally: Mutex<BTreeMap<u64, (u64, u64)>>,
    /// Bytes did not match, and have not been read correctly since.
    damaged: AtomicBool,
}

impl Checksums {
    /// The checksums of an object of which a HEAD has shown `whole`.
    pub(super) fn of_whole(whole: Option<Checksum>) -> Self {
        Self { whole: OnceLock::from(whole), ..Self::default() }
    }

    /// A HEAD has shown the checksum of the whole object.
    pub(super) fn learn(&self, whole: Option<Checksum>) {
        // Of one version all responses have the same.
        let _known = self.whole.set(whole);
    }

    /// The checksum of the whole object, if it is known.
    pub(super) fn whole(&self) -> Option<&Checksum> {
        self.whole.get()?.as_ref()
    }

    /// Whether bytes of the version did not match and have not been read correctly since: then
    /// unverified bytes are not passed on.
    pub(super) fn is_damaged(&self) -> bool {
        self.damaged.load(Ordering::Relaxed)
    }

    /// For a body that is `range` of the version; `headers` came with it.
    pub(super) async fn verifier(
        &self,
        version: &Version,
        range: &Range<u64>,
        headers: &HeaderMap,
    ) -> Verifier {
        let whole = 0..version.size();
        let whole_checksum =
            Checksum::of(headers).filter(|_| *range == whole).or_else(|| self.whole().cloned());
        match whole_checksum {
            Some(sum) if sum.is_of_bytes() => Verifier::new(range, &[(whole, sum)]),
            // A checksum of part checksums, so each part has one.
            Some(_) => {
                // A transient failure is not remembered: the next read requests the table again.
                match self.parts.get_or_try_init(|| version.part_checksums()).await {
                    Ok(table) => Verifier::new(range, table),
                    Err(_) => Verifier::default(),
                }
            }
            None => Verifier::default(),
        }
    }

    /// Records the end of a body, and its partial sums.
    ///
    /// # Errors
    /// The difference, if all bytes of a range with a checksum are known now and do not match.
    pub(super) fn record(
        &self,
        version: &Version,
        result: &Result<(), Error>,
        partial_sums: Vec<PartialSum>,
    ) -> Result<(), String> {
        if result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt) {
            self.damaged.store(true, Ordering::Relaxed);
        }
        let whole =
            self.whole().into_iter().filter(|sum| sum.is_of_bytes()).map(|sum| (0..version.size(), sum));
        let parts = self.parts.get().into_iter().flatten().map(|(range, sum)| (range.clone(), sum));
        let spans: Vec<_> = whole.chain(parts).collect();
        let mut tally = self.tally.lock();
        for partial in partial_sums {
            let holds = |(span, _): &&(Range<u64>, &Checksum)| {
                span.start <= partial.range.start && partial.range.end <= span.end
            };
            let Some((span, checksum)) = spans.iter().find(holds) else { continue };
            let Some(algorithm) = checksum.algorithm.crc() else { continue };
            let Some((start, end, sum)) = joined(&mut tally, &partial, span, algorithm) else { continue };
            if (start..end) == *span {
                tally.remove(&start);
                let bytes = sum.to_be_bytes()[8 - checksum.algorithm.bytes()..].to_vec();
                checksum.compare(bytes).inspect_err(|_| self.damaged.store(true, Ordering::Relaxed))?;
            }
        }
        Ok(())
    }

    /// A whole range was read correctly.
    pub(super) fn verified(&self) {
        self.damaged.store(false, Ordering::Relaxed);
    }
}

/// Adds a partial sum to the known ones, and joins it with its neighbours within `span`. None if it
/// overlaps one of them: it was read before.
fn joined(
    tally: &mut BTreeMap<u64, (u64, u64)>,
    partial: &PartialSum,
    span: &Range<u64>,
    algorithm: CrcAlgorithm,
) -> Option<(u64, u64, u64)> {
    let (mut start, mut end, mut sum) = (partial.range.start, partial.range.end, partial.sum);
    let before = tally.range(..=start).next_back().map(|(&at, &(until, sum))| (at, until, sum));
    let after = tally.range(start..).next().map(|(&at, &(until, sum))| (at, until, sum));
    if start >= end
        || before.is_some_and(|(_, until, _)| until > start)
        || after.is_some_and(|(at, ..)| at < end)
    {
        return None;
    }
    if let Some((at, until, first)) = before.filter(|(at, until, _)| *until == start && *at >= span.start) {
        sum = checksum_combine(algorithm, first, sum, end - start);
        tally.remove(&at);
        start = at;
        debug_assert!(until <= end, "the range begins where the one before ends");
    }
    if let Some((at, until, second)) = after.filter(|(at, until, _)| *at == end && *until <= span.end) {
        sum = checksum_combine(algorithm, sum, second, until - at);
        tally.remove(&at);
        end = until;
    }
    tally.insert(start, (end, sum));
    Some((start, end, sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sums of "123456789", the check value of each algorithm's catalogue entry.
    const SUMS: [(Algorithm, &str); 6] = [
        (Algorithm::Crc32, "y/Q5Jg=="),
        (Algorithm::Crc32c, "4waSgw=="),
        (Algorithm::Crc64Nvme, "rosUhgp5mIg="),
        (Algorithm::Sha1, "98O8HYCOBHMq32eZZczDTKeuNEE="),
        (Algorithm::Sha256, "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU="),
        (Algorithm::Md5, "JfnnlDI7RTiF9RgfG2JNCw=="),
    ];

    #[test]
    fn a_checksum_is_found_in_the_headers_of_each_cloud() {
        for (lines, algorithm) in [
            (&[("x-amz-checksum-crc32", "y/Q5Jg==")][..], Algorithm::Crc32),
            (
                &[("x-goog-hash", "md5=JfnnlDI7RTiF9RgfG2JNCw=="), ("x-goog-hash", "crc32c=4waSgw==")],
                Algorithm::Crc32c,
            ),
            (&[("x-goog-hash", "crc32c=4waSgw==,md5=JfnnlDI7RTiF9RgfG2JNCw==")], Algorithm::Crc32c),
            (&[("content-md5", "JfnnlDI7RTiF9RgfG2JNCw==")], Algorithm::Md5),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let found = Checksum::of(&headers).expect("a checksum");
            assert_eq!(found.algorithm, algorithm, "{lines:?}");
            let mut sum = algorithm.begin();
            sum.add(b"123456789");
            assert!(found.compare(sum.end()).is_ok(), "{lines:?}");
        }
        assert!(Checksum::of(&HeaderMap::new()).is_none());
    }

    fn verifier(spans: &[(Range<u64>, &str)], body: Range<u64>) -> Verifier {
        let sum = |text: &str| Checksum::parse(Algorithm::Crc32c, text).expect("a sum");
        let sums: Vec<_> = spans.iter().map(|(span, text)| (span.clone(), sum(text))).collect();
        Verifier::new(&body, &sums)
    }

    #[test]
    fn sums_are_those_of_the_catalogues() {
        for (algorithm, text) in SUMS {
            let mut sum = algorithm.begin();
            sum.add(b"1234");
            sum.add(b"56789");
            assert_eq!(Checksum::parse(algorithm, text).unwrap().value, sum.end(), "{algorithm:?}");
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_the_body_is_cut() {
        let sum = "4waSgw==";
        for cut in 0..=9 {
            let mut right = verifier(&[(0..9, sum)], 0..9);
            let body = b"123456789";
            assert_eq!(right.known(5), 0, "nothing is known before the end");
            assert!(right.add(&body[..cut]).and_then(|()| right.add(&body[cut..])).is_ok());
            assert_eq!(right.known(9), 9);
            let mut wrong = verifier(&[(0..9, sum)], 0..9);
            let body = b"123456788";
            assert!(wrong.add(&body[..cut]).and_then(|()| wrong.add(&body[cut..])).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn parts_within_a_read_are_verified_one_by_one() {
        let sum = "4waSgw==";
        let body = b"xx123456789123456789yy";
        for step in 1..body.len() {
            let mut right = verifier(&[(102..111, sum), (111..120, sum)], 100..122);
            assert!(body.chunks(step).try_for_each(|bytes| right.add(bytes)).is_ok(), "by {step}");
            assert!(right.has_compared() && right.partial_sums(100).is_empty());
        }
        let mut wrong = verifier(&[(102..111, sum), (111..120, sum)], 100..122);
        assert!(wrong.add(&body[..11]).is_ok());
        assert_eq!(wrong.known(15), 11);
        assert!(wrong.add(b"123456798").is_err());
    }

    #[test]
    fn a_composite_sum_of_one_part_is_a_sum_of_its_sum() {
        let mut inner = Algorithm::Crc32.begin();
        inner.add(b"123456789");
        let mut outer = Algorithm::Crc32.begin();
        outer.add(&inner.end());
        let value = outer.end();
        let composite = Checksum { algorithm: Algorithm::Crc32, value, parts: Some(1) };
        let sum = |bytes: &[u8]| {
            let mut sum = Algorithm::Crc32.begin();
            sum.add(bytes);
            sum.end()
        };
        assert!(composite.is_of_bytes());
        assert!(composite.compare(sum(b"123456789")).is_ok());
        assert!(composite.compare(sum(b"123456788")).is_err());
        assert!(!Checksum { parts: Some(2), ..composite }.is_of_bytes());
    }

    /// Ranges in any order, cut anywhere, some read twice.
    #[test]
    fn partial_sums_combine_in_any_order() {
        let body: Vec<u8> = (0..200u32).map(|n| (n * 7) as u8).collect();
        let mut all = Algorithm::Crc64Nvme.begin();
        all.add(&body);
        let Sum::Crc(digest, _) = all else { unreachable!("is cyclic") };
        let expected = digest.finalize();
        let sum = |range: &Range<usize>| {
            let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
            digest.update(&body[range.clone()]);
            digest.finalize()
        };
        let cuts = [0usize, 13, 50, 51, 120, 200];
        let partial_sums: Vec<_> = cuts.windows(2).map(|pair| pair[0]..pair[1]).collect();
        for first in 0..partial_sums.len() {
            for step in [1, 2, 3, 4] {
                let mut tally = BTreeMap::new();
                let order =
                    (0..partial_sums.len()).map(|n| &partial_sums[(first + n * step) % partial_sums.len()]);
                let mut last = None;
                for range in order.chain([&(10..60)]) {
                    let partial = PartialSum { range: range.start as u64..range.end as u64, sum: sum(range) };
                    last = joined(&mut tally, &partial, &(0..200), CrcAlgorithm::Crc64Nvme).or(last);
                }
                assert_eq!(last, Some((0, 200, expected)), "from {first} by {step}");
            }
        }
    }

    #[test]
    fn a_truncated_body_counts_as_far_as_it_came() {
        let mut half = verifier(&[(0..9, "4waSgw==")], 3..9);
        assert!(half.add(b"45").is_ok());
        assert_eq!(half.known(2), 2, "unverifiable bytes are passed on at once");
        let partial_sums = half.partial_sums(3);
        assert!(matches!(&partial_sums[..], [partial] if partial.range == (3..5)), "{partial_sums:?}");
    }

    #[test]
    fn what_is_no_sum_is_none() {
        for text in ["", "Z!==", "Zm9v", "y/Q5Jg==-x", "y/Q5Jg==-"] {
            assert_eq!(Checksum::parse(Algorithm::Crc32, text), None, "{text}");
        }
    }
}
