//! Advice on open files, which FUSE does not carry: by an ioctl.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bowwave_engine::backend::sync::Mutex;
use bowwave_engine::{Advice, File};
use fuser::Errno;

use super::Operations;

/// The ioctl, `_IOW('B', 1, struct advice)`: offset and length in bytes, 64 bits each; then
/// the number of the advice and of the scope, 32 bits each.
pub(crate) const IOCTL_ADVISE: u32 = 1 << 30 | (IOCTL_BYTES as u32) << 16 | (b'B' as u32) << 8 | 1;
/// Size of the ioctl's argument in bytes.
pub(crate) const IOCTL_BYTES: usize = 24;

/// Which descriptors advice applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdviceScope {
    /// The file descriptor.
    Handle,
    /// All descriptors of the file, now and later. For the user of the mount and root.
    File,
}

/// The argument of the ioctl.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviceRequest {
    /// First byte.
    pub offset: u64,
    /// Bytes; 0 means to the end.
    pub len: u64,
    /// The advice.
    pub advice: Advice,
    /// Which descriptors it applies to.
    pub scope: AdviceScope,
}

/// In the order of their numbers.
const ADVICE: [Advice; 6] =
    [Advice::Normal, Advice::Sequential, Advice::Random, Advice::WillNeed, Advice::DontNeed, Advice::NoReuse];

impl AdviceRequest {
    /// The bytes of the ioctl's argument.
    #[must_use]
    pub fn to_bytes(self) -> [u8; IOCTL_BYTES] {
        let advice = ADVICE.iter().position(|&advice| advice == self.advice).unwrap_or(0) as u32;
        let mut bytes = [0; IOCTL_BYTES];
        bytes[..8].copy_from_slice(&self.offset.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_ne_bytes());
        bytes[16..20].copy_from_slice(&advice.to_ne_bytes());
        bytes[20..].copy_from_slice(&u32::from(self.scope == AdviceScope::File).to_ne_bytes());
        bytes
    }

    /// Parses the ioctl's argument; `None` if it is invalid.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; IOCTL_BYTES] = bytes.try_into().ok()?;
        let (words, numbers) = bytes.split_at(16);
        let word = |at: usize| Some(u64::from_ne_bytes(words[at..at + 8].try_into().ok()?));
        let number = |at: usize| Some(u32::from_ne_bytes(numbers[at..at + 4].try_into().ok()?));
        let scope = match number(4)? {
            0 => AdviceScope::Handle,
            1 => AdviceScope::File,
            _ => return None,
        };
        let advice = *ADVICE.get(number(0)? as usize)?;
        Some(Self { offset: word(0)?, len: word(8)?, advice, scope })
    }
}

/// Advice that holds for files opened later, by path.
#[derive(Debug, Default)]
pub(super) struct Advised(Mutex<BTreeMap<PathBuf, Advice>>);

impl Advised {
    /// Gives a newly opened file the advice of its path.
    pub(super) fn apply(&self, path: &Path, file: &File) {
        if let Some(&advice) = self.0.lock().get(path) {
            file.advise(0, 0, advice);
        }
    }

    /// Remembers advice. ENOSPC for too many files.
    fn remember(&self, path: &Path, advice: Advice) -> Result<(), Errno> {
        let mut all = self.0.lock();
        if advice == Advice::Normal {
            all.remove(path);
            return Ok(());
        }
        if all.len() >= ADVISED_MAX && !all.contains_key(path) {
            return Err(Errno::ENOSPC);
        }
        all.insert(path.to_owned(), advice);
        Ok(())
    }
}

impl Operations {
    /// Applies advice to an open file. EPERM: `user` may not advise for others.
    pub(crate) fn advise(&self, handle: u64, request: AdviceRequest, user: u32) -> Result<(), Errno> {
        let open = self.files.find(handle).ok_or(Errno::EBADF)?;
        let AdviceRequest { offset, len, advice, scope } = request;
        let of_range = matches!(advice, Advice::WillNeed | Advice::DontNeed);
        if of_range {
            open.file().advise(offset, len, advice);
            return Ok(());
        }
        if scope == AdviceScope::Handle {
            open.files().iter().for_each(|file| file.advise(offset, len, advice));
            return Ok(());
        }
        if user != 0 && user != rustix::process::geteuid().as_raw() {
            return Err(Errno::EPERM);
        }
        self.advised.remember(&open.path, advice)?;
        for other in self.files.all().iter().filter(|other| other.inode == open.inode) {
            other.files().iter().for_each(|file| file.advise(offset, len, advice));
        }
        Ok(())
    }
}

/// Most files with advice for later descriptors; each takes memory until it is advised `Normal`.
const ADVISED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_survives_the_ioctl_and_other_bytes_are_refused() {
        for advice in ADVICE {
            for scope in [AdviceScope::Handle, AdviceScope::File] {
                let request = AdviceRequest { offset: 1 << 40, len: 7, advice, scope };
                assert_eq!(AdviceRequest::of_bytes(&request.to_bytes()), Some(request));
            }
        }
        let request = AdviceRequest { offset: 0, len: 0, advice: Advice::Normal, scope: AdviceScope::Handle };
        let mut bytes = request.to_bytes();
        bytes[16] = 6;
        assert_eq!(AdviceRequest::of_bytes(&bytes), None, "no such advice");
        bytes[16] = 0;
        bytes[20] = 2;
        assert_eq!(AdviceRequest::of_bytes(&bytes), None, "no such scope");
        assert_eq!(AdviceRequest::of_bytes(&bytes[..23]), None);
        assert_eq!(IOCTL_ADVISE, 0x4018_4201);
    }
}
