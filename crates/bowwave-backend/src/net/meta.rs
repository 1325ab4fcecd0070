//! Metadata of objects: their version, and attributes of files in S3, as s3fs and rclone keep them.
//!
//! | header | s3fs | rclone | written here |
//! |---|---|---|---|
//! | `x-amz-meta-mode` | decimal, with the file's type or without | octal, with the file's type | as s3fs |
//! | `x-amz-meta-uid`, `-gid` | decimal | decimal | the same |
//! | `x-amz-meta-mtime` | seconds, 9 digits behind the point | seconds, up to 9 digits | as both |

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bowwave_core::network::Validators;
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_TYPE,
    EXPIRES, HeaderMap, HeaderName,
};
use object_store::path::Path as Key;

use super::checksum::Checksum;
use super::name_cache::{Head, Known, Listed};
use super::object_upload::{Location, ObjectUpload};
use super::plain::Kept;
use super::ranged::Version;
use super::validator::{self, identity, rfc1123, text, validators};
use crate::{EntryKind, Error, ErrorKind, Identity, Owner, Result, SetAttributes, SetTime};

/// An object of a cloud, as a HEAD, a listing or our own upload has it.
#[derive(Debug)]
pub(super) struct Meta {
    pub(super) key: Key,
    pub(super) size: u64,
    /// With the size.
    pub(super) version: Validators,
    /// Time of modification, for programs.
    pub(super) modified: Option<SystemTime>,
    /// `Content-Encoding`, which of object stores is a label: the bytes are as they were stored.
    pub(super) coding: Option<String>,
    /// Of the whole object.
    pub(super) checksum: Option<Checksum>,
    /// All headers of a HEAD, where attributes of files are stored in them.
    pub(super) headers: HeaderMap,
    /// When a HEAD has shown it; `None` for one of a listing, whose `coding` and `checksum` are not
    /// known.
    pub(super) head: Option<Instant>,
    /// The attributes stored with it, if they are known and `headers` are not.
    pub(super) known: Option<Stored>,
}

impl Meta {
    /// What the headers of a response to HEAD say; `None` without a size.
    pub(super) fn of(key: Key, headers: &HeaderMap) -> Option<Self> {
        let size = text(headers, CONTENT_LENGTH)?.trim().parse().ok()?;
        let version = Validators { size: Some(size), ..validators(headers) };
        let modified = version.modified.as_deref().and_then(rfc1123);
        let (coding, checksum) = (text(headers, CONTENT_ENCODING), Checksum::of(headers));
        let (headers, head) = (HeaderMap::new(), Some(Instant::now()));
        Some(Self { key, size, version, modified, coding, checksum, headers, head, known: None })
    }

    /// What the cache of names keeps of it.
    pub(super) fn known(&self) -> Known {
        let shown = self.head.unwrap_or_else(Instant::now);
        let listed = Listed::new(&self.version, self.size, self.modified, shown);
        let kept = if self.has_attributes() { Kept::new(self.stored()) } else { Kept::Unknown };
        let (coding, checksum) = (self.coding.clone(), self.checksum.clone());
        let head = self.head.map(|at| Box::new(Head { coding, checksum, at }));
        listed.map_or(Known::Unknown, |listed| Known::Object(Listed { kept, head, ..listed }))
    }

    /// Whether a HEAD has just shown it.
    pub(super) fn is_confirmed(&self) -> bool {
        self.head.is_some_and(|at| at.elapsed() <= CONFIRMED_MAX)
    }

    /// The attributes that are stored with the object.
    pub(super) fn stored(&self) -> Stored {
        self.known.unwrap_or_else(|| Stored::of(&self.headers, EntryKind::File))
    }

    /// Whether [`stored`](Self::stored) has all attributes.
    pub(super) fn has_attributes(&self) -> bool {
        self.head.is_some() || self.known.is_some()
    }

    pub(super) fn identity(&self) -> Identity {
        identity(&self.version, self.modified)
    }
}

/// File attributes in an object's metadata.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Stored {
    /// Permission bits.
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) modified: Option<SystemTime>,
}

/// A header of a request.
pub(super) type Header = (HeaderName, String);

impl Stored {
    /// Attributes in the headers of a response; an invalid value counts as missing.
    pub(super) fn of(headers: &HeaderMap, kind: EntryKind) -> Self {
        let text = |name| text(headers, name);
        let number = |name| text(name)?.trim().parse().ok();
        Self {
            mode: text(MODE).and_then(|text| mode(text.trim(), kind)),
            uid: number(UID),
            gid: number(GID),
            modified: text(MTIME).and_then(|text| time(text.trim())),
        }
    }

    /// Attributes of a new file or directory.
    pub(super) fn new(mode: u32, owner: Option<Owner>) -> Self {
        let (uid, gid) = owner.map_or((None, None), |owner| (Some(owner.uid), Some(owner.gid)));
        Self { mode: Some(mode & PERMISSIONS), uid, gid, modified: None }
    }

    /// With a program's changes applied.
    pub(super) fn with(self, changes: &SetAttributes) -> Self {
        let modified = changes.modified.map(|time| match time {
            SetTime::Now => SystemTime::now(),
            SetTime::At(time) => time,
        });
        Self {
            mode: changes.mode.map(|mode| mode & PERMISSIONS).or(self.mode),
            uid: changes.uid.or(self.uid),
            gid: changes.gid.or(self.gid),
            modified: modified.or(self.modified),
        }
    }

    /// The headers that store them.
    pub(super) fn headers(&self, kind: EntryKind) -> Vec<Header> {
        let format = if kind == EntryKind::Directory { DIRECTORY } else { REGULAR };
        let number = |name: &HeaderName, value: Option<u32>| Some((name.clone(), value?.to_string()));
        [
            number(&MODE, self.mode.map(|mode| format | mode & PERMISSIONS)),
            number(&UID, self.uid),
            number(&GID, self.gid),
            self.modified.map(|time| (MTIME, seconds(time))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Headers of a copy that replaces metadata: all that other programs have stored, and the
/// attributes `wanted`.
///
/// # Errors
/// `Unsupported` if a header cannot be sent unchanged: the copy would lose it.
pub(super) fn resent(
    headers: &HeaderMap,
    wanted: &Stored,
    kind: EntryKind,
    place: &str,
) -> Result<Vec<Header>> {
    let mut all = wanted.headers(kind);
    for (name, value) in headers {
        let ours = [MODE, UID, GID, MTIME].contains(name);
        let others = name.as_str().starts_with("x-amz-meta-");
        if *name == MISSING || others && value.to_str().is_err() {
            let message = format!(
                "{place}: attributes cannot be stored: the object has metadata that no header can carry, and a copy \
                 would lose it; mount with --metadata ignore"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if let Ok(value) = value.to_str()
            && (RESENT.contains(name) || others && !ours)
        {
            all.push((name.clone(), value.to_owned()));
        }
    }
    Ok(all)
}

/// Replaces an object's metadata by a copy onto itself; fails as `Changed` if the object was
/// replaced since `from`.
pub(super) async fn replace(place: &Location, from: Meta, headers: Vec<Header>) -> Result<()> {
    let size = from.size;
    let replaced = match size {
        0..=COPY_WHOLE_BYTES_MAX => place.cloud.copy_onto_itself(&from, &place.name, &headers).await,
        _ => replace_by_parts(place, from, headers.clone()).await,
    };
    match replaced {
        // It may be ours: an earlier attempt whose response was lost.
        Err(error) if error.kind() == ErrorKind::Changed => {
            let found = place.cloud.head(&place.key, &place.name).await?;
            let has = |found: &Meta, (name, value): &Header| {
                found.headers.get(name).is_some_and(|found| found == value.as_str())
            };
            let ours =
                found.filter(|found| found.size == size && headers.iter().all(|header| has(found, header)));
            ours.map(drop).ok_or(error)
        }
        replaced => replaced,
    }
}

/// As [`replace`], for any size.
pub(super) async fn replace_by_parts(place: &Location, from: Meta, headers: Vec<Header>) -> Result<()> {
    let (size, etag) = (from.size, from.version.strong().map(str::to_owned));
    let source = Version::of_object(&place.cloud, &place.name, from);
    let object_upload = ObjectUpload::new(place, Some(Arc::new(source)), size).replacing(etag);
    object_upload.set_headers(headers);
    let published = Box::pin(object_upload.publish(false)).await;
    if published.is_err() {
        object_upload.abort().await;
    }
    published.map(drop).map_err(|error| match error.kind() {
        ErrorKind::Exists => crate::path::changed(&place.name),
        _ => error,
    })
}

/// Permission bits in `text`, decimal or octal: the file's type bits decide where both are
/// possible.
fn mode(text: &str, kind: EntryKind) -> Option<u32> {
    let format = if kind == EntryKind::Directory { DIRECTORY } else { REGULAR };
    let is_of_kind = |mode: &u32| mode & FORMAT == format;
    let octal = u32::from_str_radix(text, 8).ok();
    let decimal = text.parse::<u32>().ok().filter(|mode| mode & FORMAT == 0 || is_of_kind(mode));
    let leading = octal.filter(|mode| text.starts_with('0') && mode & FORMAT == 0);
    octal.filter(is_of_kind).or(leading).or(decimal).map(|mode| mode & PERMISSIONS)
}

/// Parses seconds since 1970 with a fraction, or a time such as
/// `2006-01-02T15:04:05.999999999+07:00`.
fn time(text: &str) -> Option<SystemTime> {
    if text.contains('T') {
        return rfc3339(text);
    }
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let since = Duration::new(number(seconds)?, nanoseconds(fraction)?);
    // Times beyond a file system's range would fail each `stat`.
    if since.as_secs() > TIME_MAX_S {
        return None;
    }
    let epoch = SystemTime::UNIX_EPOCH;
    if negative { epoch.checked_sub(since) } else { epoch.checked_add(since) }
}

fn rfc3339(text: &str) -> Option<SystemTime> {
    let (date, clock) = text.split_once('T')?;
    let at = clock.find(['Z', '+', '-'])?;
    let (clock, zone) = clock.split_at(at);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let time = validator::rfc3339(&format!("{date}T{clock}Z"))?
        + Duration::from_nanos(nanoseconds(fraction)?.into());
    if zone == "Z" {
        return Some(time);
    }
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes)?);
    if hours > 23 || minutes > 59 {
        return None;
    }
    let offset = Duration::from_secs((hours * 60 + minutes) * 60);
    if zone.starts_with('+') { time.checked_sub(offset) } else { time.checked_add(offset) }
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// The digits after a point; digits beyond nine are cut.
fn nanoseconds(fraction: &str) -> Option<u32> {
    if fraction.is_empty() {
        return Some(0);
    }
    let digits = fraction.get(..9).unwrap_or(fraction);
    let value = u32::try_from(number(digits)?).ok()?;
    let missing = u32::try_from(9 - digits.len()).ok()?;
    Some(value * 10_u32.pow(missing))
}

fn seconds(time: SystemTime) -> String {
    let (sign, since) = match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => ("", since),
        Err(before) => ("-", before.duration()),
    };
    // s3fs reads the digits after the point as a number of nanoseconds.
    match since.subsec_nanos() {
        0 => format!("{sign}{}", since.as_secs()),
        nanoseconds => format!("{sign}{}.{nanoseconds:09}", since.as_secs()),
    }
}

const MODE: HeaderName = HeaderName::from_static("x-amz-meta-mode");
const UID: HeaderName = HeaderName::from_static("x-amz-meta-uid");
const GID: HeaderName = HeaderName::from_static("x-amz-meta-gid");
const MTIME: HeaderName = HeaderName::from_static("x-amz-meta-mtime");
/// Number of metadata headers that the server could not send.
const MISSING: HeaderName = HeaderName::from_static("x-amz-missing-meta");
/// Headers that a copy with new metadata would otherwise reset.
const RESENT: [HeaderName; 10] = [
    CACHE_CONTROL,
    CONTENT_DISPOSITION,
    CONTENT_ENCODING,
    CONTENT_LANGUAGE,
    CONTENT_TYPE,
    EXPIRES,
    HeaderName::from_static("x-amz-storage-class"),
    HeaderName::from_static("x-amz-website-redirect-location"),
    HeaderName::from_static("x-amz-server-side-encryption"),
    HeaderName::from_static("x-amz-server-side-encryption-aws-kms-key-id"),
];
/// Mode bits that are stored. Any reader of the bucket would have to obey set-user-id and
/// set-group-id.
const PERMISSIONS: u32 = 0o777;
/// Bits of a mode that are the type of the file (`S_IFMT`), and two types.
const FORMAT: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
/// Year 2446, the last of ext4.
const TIME_MAX_S: u64 = 15_032_385_535;
/// Age at which a response no longer confirms the version for an open. More: a file that was
/// replaced by a shorter one meanwhile fails at its first read. Less: opens of files that were just
/// looked up read them.
pub(super) const CONFIRMED_MAX: Duration = Duration::from_secs(1);
/// Largest object that S3 copies with one request.
pub(super) const COPY_WHOLE_BYTES_MAX: u64 = 5 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_of_s3fs_and_rclone_are_told_apart() {
        let file = |text| mode(text, EntryKind::File);
        let directory = |text| mode(text, EntryKind::Directory);
        assert_eq!((file("33188"), file("33256"), file("33261")), (Some(0o644), Some(0o750), Some(0o755)));
        assert_eq!((file("100644"), file("0100755"), file("0644")), (Some(0o644), Some(0o755), Some(0o644)));
        assert_eq!(
            (directory("16877"), directory("448"), directory("493")),
            (Some(0o755), Some(0o700), Some(0o755))
        );
        assert_eq!((directory("40755"), directory("040700")), (Some(0o755), Some(0o700)));
        for odd in ["", "-1", "0x1ff", "rw-r--r--", "99999999999", "41471"] {
            assert_eq!(file(odd), None, "{odd}");
        }
        assert_eq!(file("35309"), Some(0o755), "without set-user-id");
    }

    #[test]
    fn times_of_s3fs_and_rclone_are_read_to_the_nanosecond() {
        let at = |seconds, nanoseconds| SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
        assert_eq!(time("981173106.789000000"), Some(at(981_173_106, 789_000_000)));
        assert_eq!(time("981173106.789"), Some(at(981_173_106, 789_000_000)));
        assert_eq!(time("1700000000"), Some(at(1_700_000_000, 0)));
        assert_eq!(time("1.0000000019"), Some(at(1, 1)));
        assert_eq!(time("-1.5"), Some(SystemTime::UNIX_EPOCH - Duration::from_millis(1500)));
        assert_eq!(time("2001-02-03T04:05:06.789Z"), Some(at(981_173_106, 789_000_000)));
        assert_eq!(time("2001-02-03T05:05:06.789+01:00"), Some(at(981_173_106, 789_000_000)));
        assert_eq!(time("2001-02-03T02:35:06-01:30"), Some(at(981_173_106, 0)));
        for odd in ["", "x", "1e9", "99999999999", "18446744073709551615", "1.x", "+1", "2001-02-03T04:05:06"]
        {
            assert!(time(odd).is_none() || odd.is_empty(), "{odd}");
        }
        for text in ["981173106.789000001", "0", "-3.000000007"] {
            assert_eq!(seconds(time(text).unwrap()), text);
        }
    }

    #[test]
    fn a_copy_resends_what_others_have_stored() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("content-type", "text/html"),
            ("x-amz-meta-mode", "33188"),
            ("x-amz-meta-colour", "blue"),
            ("x-amz-storage-class", "STANDARD_IA"),
            ("etag", "\"1\""),
        ] {
            headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        }
        let wanted = Stored { mode: Some(0o600), ..Stored::default() };
        let mut sent = resent(&headers, &wanted, EntryKind::File, "x").unwrap();
        sent.sort_by(|one, other| one.0.as_str().cmp(other.0.as_str()));
        let sent: Vec<_> = sent.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            sent,
            [
                ("content-type", "text/html"),
                ("x-amz-meta-colour", "blue"),
                ("x-amz-meta-mode", "33152"),
                ("x-amz-storage-class", "STANDARD_IA"),
            ]
        );
        headers.insert(MISSING, "1".parse().unwrap());
        assert_eq!(
            resent(&headers, &wanted, EntryKind::File, "x").unwrap_err().kind(),
            ErrorKind::Unsupported
        );
    }
}
