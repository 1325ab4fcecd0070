//! userfaultfd: the system call, its ioctls and its messages, as of Linux 6.7.
//!
//! The headers of stable distributions, and crates generated from them, lack `POISON` and
//! asynchronous write protection. The source is the kernel's
//! `Documentation/admin-guide/mm/userfaultfd.rst` and `include/uapi/linux/userfaultfd.h`.
#![allow(unsafe_code, reason = "ioctls that map and unmap memory")]

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::raw::c_int;

use bowwave_backend::descriptors::own;
use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// A userfaultfd: reports and resolves page faults in registered ranges.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

/// Whose page faults are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The program's and the kernel's, in system calls. Needs root or `CAP_SYS_PTRACE`, permission
    /// to open `/dev/userfaultfd`, or the sysctl `vm.unprivileged_userfaultfd`.
    All,
    /// Only the program's: a system call that gets a missing page returns `EFAULT`. Needs no
    /// privilege.
    Program,
}

/// How a page fault is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// As a message on the descriptor; the faulting thread sleeps until it is woken.
    #[default]
    Message,
    /// As `SIGBUS` to the faulting thread. System calls return `EFAULT`.
    Signal,
}

/// Which accesses to a range are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Accesses to missing pages.
    pub missing: bool,
    /// Accesses to pages of shared memory that exist but are not mapped here.
    pub minor: bool,
    /// Writes to write-protected pages.
    pub protected: bool,
}

/// A page fault message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Address of the page.
    pub address: usize,
    /// Whether the access is a write.
    pub write: bool,
    /// The mode that reported it.
    pub modes: Modes,
    /// ID of the faulting thread.
    pub thread: u32,
}

impl Uffd {
    /// Opens a userfaultfd for this process.
    ///
    /// # Errors
    /// `EPERM` if `scope` is [`Scope::All`] and this process lacks permission, `ENOSYS` if the
    /// kernel has no userfaultfd, `EINVAL` if the kernel is too old.
    pub fn open(scope: Scope, delivery: Delivery) -> io::Result<Self> {
        Self::open_with(scope, delivery, FEATURES)
    }

    /// As `open`, for shared memory whose pages can be mapped write-protected. The kernel does not
    /// report the first write to such a page but records it in the page table.
    ///
    /// # Errors
    /// As [`open`](Self::open); `EINVAL` before Linux 6.7.
    pub fn open_tracking(scope: Scope, delivery: Delivery) -> io::Result<Self> {
        Self::open_with(scope, delivery, FEATURES | FEATURES_TRACKING)
    }

    fn open_with(scope: Scope, delivery: Delivery, features: u64) -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let fd = match scope {
            Scope::Program => own(|| call(flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY)))?,
            Scope::All => own(|| call(flags)).or_else(|refused| match refused.kind() {
                io::ErrorKind::PermissionDenied => own(|| open_device(flags)).map_err(|_also| refused),
                _ => Err(refused),
            })?,
        };
        let signal = if delivery == Delivery::Signal { FEATURE_SIGBUS } else { 0 };
        let mut api = Api { api: UFFD_API, features: features | signal, ioctls: 0 };
        // SAFETY: the kernel reads and writes only this structure.
        unsafe { ioctl(&fd, Updater::<{ opcode::read_write::<Api>(GROUP, 0x3F) }, _>::new(&mut api)) }?;
        Ok(Self { fd })
    }

    /// Reports accesses to `range` (addresses, whole pages) from now on.
    ///
    /// # Errors
    /// The kernel's error: `EINVAL` for memory that a mode cannot watch, `EBUSY` if another
    /// descriptor watches it.
    ///
    /// # Safety
    /// The range is a mapping of the caller, and its faults are served while it is registered.
    pub unsafe fn register(&self, range: Range<usize>, modes: Modes) -> io::Result<()> {
        let mode = u64::from(modes.missing) | u64::from(modes.protected) << 1 | u64::from(modes.minor) << 2;
        let mut register = Register { range: Span::from(range), mode, ioctls: 0 };
        const CODE: u32 = opcode::read_write::<Register>(GROUP, 0x00);
        // SAFETY: the kernel reads and writes only this structure; the caller guarantees the rest.
        Ok(unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut register)) }?)
    }

    /// Copies `len` bytes from `source` to the pages at `target`, which must be missing,
    /// write-protected if `protected`, and wakes threads that sleep on them.
    ///
    /// # Errors
    /// [`Partial`]: `EEXIST` at an existing page, `EAGAIN` if the address space is changing,
    /// `ENOENT` if the range is not mapped or not registered.
    ///
    /// # Safety
    /// `source` is valid for reads; `target` lies in a registered range of the caller, and no code
    /// relies on its pages being missing. `protected` only if writes are reported or tracked.
    pub unsafe fn copy(
        &self,
        target: usize,
        source: *const u8,
        len: usize,
        protected: bool,
    ) -> Result<(), Partial> {
        let mode = mode_of(protected);
        let mut copy = Copy { dst: target as u64, src: source as u64, len: len as u64, mode, copied: 0 };
        const CODE: u32 = opcode::read_write::<Copy>(GROUP, 0x03);
        // SAFETY: guaranteed by the caller; the kernel reads and writes only this structure
        // besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut copy)) };
        Partial::check(result, copy.copied)
    }

    /// Maps the existing pages of the shared memory behind `range`, write-protected if `protected`,
    /// and wakes threads that sleep on them.
    ///
    /// # Errors
    /// [`Partial`]: `EEXIST` at a mapped page, `EFAULT` at a missing one, otherwise as
    /// [`copy`](Self::copy).
    ///
    /// # Safety
    /// The range lies in a registered range of the caller, and its pages have the content that
    /// readers should see. `protected` only if writes are reported or tracked.
    pub unsafe fn map(&self, range: Range<usize>, protected: bool) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.resolve::<MAP>(range, mode_of(protected)) }
    }

    /// Maps zero pages at `range`, whose pages must be missing, and wakes threads that sleep on
    /// them.
    ///
    /// # Errors
    /// [`Partial`], as [`copy`](Self::copy).
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    pub unsafe fn zero(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.resolve::<ZERO>(range, 0) }
    }

    /// Poisons the missing pages of `range`: an access raises `SIGBUS`, a system call returns an
    /// error.
    ///
    /// # Errors
    /// [`Partial`], as [`copy`](Self::copy).
    ///
    /// # Safety
    /// The range lies in a registered range of the caller.
    pub unsafe fn poison(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.resolve::<POISON>(range, 0) }
    }

    /// An ioctl that maps pages of a range.
    ///
    /// # Safety
    /// As for the ioctl with this code.
    unsafe fn resolve<const CODE: u32>(&self, range: Range<usize>, mode: u64) -> Result<(), Partial> {
        let mut pages = Continue { range: Span::from(range), mode, mapped: 0 };
        // SAFETY: guaranteed by the caller; the kernel reads and writes only this structure
        // besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut pages)) };
        Partial::check(result, pages.mapped)
    }

    /// Wakes the threads that sleep on `range`; a thread whose page is still missing faults again.
    ///
    /// # Errors
    /// `EINVAL` if the range is not whole pages.
    pub fn wake(&self, range: Range<usize>) -> io::Result<()> {
        let mut span = Span::from(range);
        const CODE: u32 = opcode::read::<Span>(GROUP, 0x02);
        // SAFETY: changes no memory; the kernel reads only this structure.
        Ok(unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut span)) }?)
    }

    /// Reads the waiting messages, as many as fit, without blocking. The descriptor polls readable
    /// while there are messages.
    ///
    /// # Errors
    /// The kernel's error; the absence of messages is not an error.
    pub fn receive(&self, touches: &mut Vec<Touch>) -> io::Result<()> {
        let mut raw = [0u8; MESSAGE_BYTES * MESSAGES_MAX];
        let bytes = match rustix::io::read(&self.fd, &mut raw[..]) {
            Ok(bytes) => bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        touches.extend(decode(&raw[..bytes]));
        Ok(())
    }
}

impl AsFd for Uffd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// An operation that stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Bytes completed.
    pub done: usize,
    /// Cause; with `AGAIN`, continue from there.
    pub error: Errno,
}

impl Partial {
    /// The kernel returns the completed bytes in the structure, or a negative error number.
    fn check(result: rustix::io::Result<()>, done: i64) -> Result<(), Self> {
        let done = usize::try_from(done).unwrap_or(0);
        result.map_err(|error| Self { done, error })
    }
}

/// Size of a `struct uffd_msg` in bytes.
const MESSAGE_BYTES: usize = 32;
/// Maximum messages per read.
const MESSAGES_MAX: usize = 16;
const EVENT_PAGEFAULT: u8 = 0x12;

/// The page faults among the messages in `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> impl Iterator<Item = Touch> {
    bytes.chunks_exact(MESSAGE_BYTES).filter_map(parse)
}

/// Parses a page fault: event, 7 bytes, flags, address, thread. Other events are not enabled.
fn parse(message: &[u8]) -> Option<Touch> {
    let word = |at: usize| u64::from_ne_bytes(message[at..at + 8].try_into().expect("eight bytes"));
    (message[0] == EVENT_PAGEFAULT).then(|| {
        let flags = word(8);
        let (protected, minor) = (flags & 2 != 0, flags & 4 != 0);
        let thread = u32::from_ne_bytes(message[24..28].try_into().expect("four bytes"));
        Touch {
            address: word(16) as usize & !(SYSTEM_PAGE - 1),
            write: flags & 1 != 0,
            modes: Modes { missing: !protected && !minor, minor, protected },
            thread,
        }
    })
}

/// Page size in bytes of the supported kernels.
pub const SYSTEM_PAGE: usize = 4096;

/// Group of the ioctls.
const GROUP: u8 = 0xAA;
/// Version of the interface.
const UFFD_API: u64 = 0xAA;
/// `UFFD_USER_MODE_ONLY`: serve page faults of user mode only.
const USER_MODE_ONLY: u32 = 1;

const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_POISON: u64 = 1 << 14;
/// Features that regions require: Linux 6.6.
const FEATURES: u64 = FEATURE_MISSING_SHMEM | FEATURE_THREAD_ID | FEATURE_MINOR_SHMEM | FEATURE_POISON;

/// Write protection of shared memory and of missing pages, which the kernel lifts by itself at the
/// first write.
const FEATURES_TRACKING: u64 = 1 << 12 | 1 << 13 | 1 << 15;

/// `UFFDIO_COPY_MODE_WP` and `UFFDIO_CONTINUE_MODE_WP` are the same bit.
const fn mode_of(protected: bool) -> u64 {
    if protected { 1 << 1 } else { 0 }
}

/// `struct uffdio_api`.
#[repr(C)]
struct Api {
    api: u64,
    features: u64,
    ioctls: u64,
}

/// `struct uffdio_range`.
#[repr(C)]
struct Span {
    start: u64,
    len: u64,
}

impl From<Range<usize>> for Span {
    fn from(range: Range<usize>) -> Self {
        Self { start: range.start as u64, len: (range.end - range.start) as u64 }
    }
}

/// `struct uffdio_register`.
#[repr(C)]
struct Register {
    range: Span,
    mode: u64,
    ioctls: u64,
}

/// `struct uffdio_copy`.
#[repr(C)]
struct Copy {
    dst: u64,
    src: u64,
    len: u64,
    mode: u64,
    copied: i64,
}

/// `struct uffdio_continue`, `struct uffdio_zeropage` and `struct uffdio_poison`.
#[repr(C)]
struct Continue {
    range: Span,
    mode: u64,
    mapped: i64,
}

const ZERO: u32 = opcode::read_write::<Continue>(GROUP, 0x04);
const MAP: u32 = opcode::read_write::<Continue>(GROUP, 0x07);
const POISON: u32 = opcode::read_write::<Continue>(GROUP, 0x08);

fn call(flags: UserfaultfdFlags) -> io::Result<OwnedFd> {
    // SAFETY: nothing is registered yet; `register` states its own requirements.
    Ok(unsafe { userfaultfd(flags) }?)
}

/// Opens a userfaultfd through the device, if permitted.
fn open_device(flags: UserfaultfdFlags) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
    // SAFETY: `USERFAULTFD_IOC_NEW` takes flags instead of a pointer and returns a new descriptor.
    let fd = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&device), 0xAA00, flags.bits() as c_int) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
