//! Verifies bytes.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bowwave_backend::pattern;
use sha2::{Digest, Sha256};

use super::jobs::Job;
use crate::Failure;

/// How a store's bytes can be verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verify {
    /// Not at all.
    No,
    /// They are a function of path and offset; this is the path of the store's root.
    Pattern(PathBuf),
    /// By their SHA-256, for the user to compare.
    Digest,
}

impl Verify {
    /// How to verify the store at `url`.
    pub(super) fn of(url: &str) -> Self {
        let mut rest = url;
        while let Some((_, inner)) = rest.strip_prefix("emulate:").and_then(|rest| rest.split_once(':')) {
            rest = inner;
        }
        match rest.strip_prefix("pattern:/") {
            Some(base) => Self::Pattern(PathBuf::from(base)),
            None => Self::Digest,
        }
    }
}

/// Verifies the bytes of one thread.
#[derive(Debug)]
pub(super) enum Checker {
    Nothing,
    Pattern { base: PathBuf, seed: u64, expected: Vec<u8> },
    Digest(Box<Sha256>),
}

impl Checker {
    pub(super) fn new(verify: &Verify) -> Self {
        match verify {
            Verify::No => Self::Nothing,
            Verify::Pattern(base) => Self::Pattern { base: base.clone(), seed: 0, expected: Vec::new() },
            Verify::Digest => Self::Digest(Box::default()),
        }
    }

    /// Starts verifying the bytes of this job.
    pub(super) fn begin(&mut self, job: &Job) {
        if let Self::Pattern { base, seed, .. } = self {
            *seed = pattern::seed(&joined(base, &job.path));
        }
    }

    /// Verifies bytes from `offset` on.
    pub(super) fn take(&mut self, job: &Job, offset: u64, bytes: &[u8]) -> Result<(), Failure> {
        match self {
            Self::Nothing => Ok(()),
            Self::Digest(digest) => {
                digest.update(bytes);
                Ok(())
            }
            Self::Pattern { seed, expected, .. } => {
                expected.resize(bytes.len(), 0);
                pattern::fill(*seed, offset, expected);
                if bytes == expected.as_slice() {
                    return Ok(());
                }
                let wrong =
                    bytes.iter().zip(expected.iter()).position(|(got, want)| got != want).unwrap_or(0);
                Err(failed!(
                    "{}: the byte at {} is wrong: this is a defect of bowwave or of this machine's memory",
                    job.path.display(),
                    offset + wrong as u64
                ))
            }
        }
    }

    /// The digest, in hexadecimal digits.
    pub(super) fn digest(self) -> Option<String> {
        let Self::Digest(digest) = self else { return None };
        Some(digest.finalize().iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").expect("writing to a string cannot fail");
            text
        }))
    }
}

/// Joining an empty path would add a slash, and with it another seed.
fn joined(base: &Path, path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { base.to_owned() } else { base.join(path) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::read::pattern::Span;

    fn job() -> Job {
        Job { path: PathBuf::new(), span: Span { start: 0, end: 64 }, budget: 64, seed: 0 }
    }

    #[test]
    fn made_up_data_is_known_through_emulated_devices() {
        for url in ["pattern:/1KiB", "emulate:s3:pattern:/1KiB", "emulate:s3:emulate:hdd:pattern:/1KiB"] {
            assert_eq!(Verify::of(url), Verify::Pattern("1KiB".into()), "{url}");
        }
        for url in ["file:///pattern:/1KiB", "emulate:s3:file:///pattern:/1KiB"] {
            assert_eq!(Verify::of(url), Verify::Digest, "{url}");
        }
    }

    #[test]
    fn a_wrong_byte_is_found_and_its_place_told() {
        let mut checker = Checker::new(&Verify::of("pattern:/1KiB"));
        checker.begin(&job());
        let mut bytes = [0; 32];
        pattern::fill(pattern::seed("1KiB".as_ref()), 8, &mut bytes);
        assert_eq!(checker.take(&job(), 8, &bytes), Ok(()));
        bytes[5] ^= 1;
        let failure = checker.take(&job(), 8, &bytes).expect_err("one bit is wrong");
        assert!(failure.to_string().contains("the byte at 13 is wrong"), "{failure}");
    }

    #[test]
    fn the_digest_is_that_of_the_bytes_in_order() {
        let mut checker = Checker::new(&Verify::Digest);
        for part in [&b"a"[..], b"bc"] {
            assert_eq!(checker.take(&job(), 0, part), Ok(()));
        }
        assert_eq!(
            checker.digest().as_deref(),
            Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        );
    }
}
