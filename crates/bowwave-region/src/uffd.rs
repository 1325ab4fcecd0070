//! userfaultfd: the system call, its ioctls and its messages, as of Linux 6.8.
//!
//! A layer of our own: the headers of stable distributions, and the crates made from them, lack `MOVE`, `POISON` and
//! asynchronous write protection. Facts are from the kernel's `Documentation/admin-guide/mm/userfaultfd.rst` and its
//! `include/uapi/linux/userfaultfd.h`.
#![allow(unsafe_code, reason = "ioctls that map and unmap memory")]

use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::raw::c_int;

use rustix::io::Errno;
use rustix::ioctl::{Updater, ioctl, opcode};
use rustix::mm::{UserfaultfdFlags, userfaultfd};

/// A userfaultfd: tells of touches in the ranges registered with it, and resolves them.
#[derive(Debug)]
pub struct Uffd {
    fd: OwnedFd,
}

/// Whose touches are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of the program, and those that the kernel makes for it in system calls. Wants root or `CAP_SYS_PTRACE`, leave
    /// to open `/dev/userfaultfd`, or the sysctl `vm.unprivileged_userfaultfd`.
    All,
    /// Those of the program alone: a system call that is handed a missing page returns `EFAULT`. Wants no privilege.
    Program,
}

/// How a touch is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// By a message to whoever reads the descriptor; the thread sleeps until it is woken.
    #[default]
    Message,
    /// By `SIGBUS` to the thread itself. System calls get `EFAULT`.
    Signal,
}

/// Which touches of a range are told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Of pages that hold nothing.
    pub missing: bool,
    /// Of pages of shared memory that hold something but are not mapped here.
    pub minor: bool,
    /// Writes to write-protected pages.
    pub protected: bool,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// Address of the page.
    pub address: usize,
    /// The thread wants to write.
    pub write: bool,
    /// Which mode told it.
    pub modes: Modes,
    /// The thread that touched, as the system numbers it.
    pub thread: u32,
}

impl Uffd {
    /// Opens one for this process.
    ///
    /// # Errors
    /// `EPERM` if `scope` is [`Scope::All`] and this process may not, `ENOSYS` in a kernel without userfaultfd, `EINVAL` in one
    /// that is too old.
    pub fn open(scope: Scope, delivery: Delivery) -> io::Result<Self> {
        Self::open_with(scope, delivery, FEATURES)
    }

    /// The same, for shared memory whose pages can be mapped write-protected: the first write to one is not told but taken
    /// note of by the kernel, in the page table, and goes on.
    ///
    /// # Errors
    /// As [`open`](Self::open); `EINVAL` before Linux 6.7.
    pub fn open_tracking(scope: Scope, delivery: Delivery) -> io::Result<Self> {
        Self::open_with(scope, delivery, FEATURES | FEATURES_TRACKING)
    }

    fn open_with(scope: Scope, delivery: Delivery, features: u64) -> io::Result<Self> {
        let flags = UserfaultfdFlags::CLOEXEC | UserfaultfdFlags::NONBLOCK;
        let fd = match scope {
            Scope::Program => call(flags | UserfaultfdFlags::from_bits_retain(USER_MODE_ONLY))?,
            Scope::All => call(flags).or_else(|refused| match refused.kind() {
                io::ErrorKind::PermissionDenied => open_device(flags).map_err(|_also| refused),
                _ => Err(refused),
            })?,
        };
        let signal = if delivery == Delivery::Signal { FEATURE_SIGBUS } else { 0 };
        let mut api = Api { api: UFFD_API, features: features | signal, ioctls: 0 };
        // SAFETY: the kernel reads and writes this one structure.
        unsafe { ioctl(&fd, Updater::<{ opcode::read_write::<Api>(GROUP, 0x3F) }, _>::new(&mut api)) }?;
        Ok(Self { fd })
    }

    /// From now on touches of `range` (addresses, whole pages) are told.
    ///
    /// # Errors
    /// As the kernel says: `EINVAL` for memory of a kind that a mode cannot watch, `EBUSY` if another descriptor watches it.
    ///
    /// # Safety
    /// The range is a mapping of the caller's, and somebody serves its touches as long as it is registered.
    pub unsafe fn register(&self, range: Range<usize>, modes: Modes) -> io::Result<()> {
        let mode = u64::from(modes.missing) | u64::from(modes.protected) << 1 | u64::from(modes.minor) << 2;
        let mut register = Register { range: Span::from(range), mode, ioctls: 0 };
        const CODE: u32 = opcode::read_write::<Register>(GROUP, 0x00);
        // SAFETY: the kernel reads and writes this one structure; the rest is the caller's promise.
        Ok(unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut register)) }?)
    }

    /// Maps copies of `len` bytes at `source` to the pages at `target`, which must be missing, and wakes who sleeps on them.
    ///
    /// # Errors
    /// [`Partial`]: `EEXIST` at a page that is there, `EAGAIN` if the address space is changing, `ENOENT` if the range is not mapped or not registered.
    ///
    /// # Safety
    /// `source` is valid for reads; `target` lies in a registered range of the caller's, and nobody counts on its pages being missing.
    pub unsafe fn copy(&self, target: usize, source: *const u8, len: usize) -> Result<(), Partial> {
        // SAFETY: as the caller promises.
        unsafe { self.copy_as(target, source, len, false) }
    }

    /// The same, write-protected if `protected`.
    ///
    /// # Errors
    /// As [`copy`](Self::copy).
    ///
    /// # Safety
    /// As [`copy`](Self::copy); `protected` only where writes are told or tracked.
    pub unsafe fn copy_as(
        &self,
        target: usize,
        source: *const u8,
        len: usize,
        protected: bool,
    ) -> Result<(), Partial> {
        let mode = mode_of(protected);
        let mut copy = Copy { dst: target as u64, src: source as u64, len: len as u64, mode, copied: 0 };
        const CODE: u32 = opcode::read_write::<Copy>(GROUP, 0x03);
        // SAFETY: as the caller promises; the kernel reads and writes this one structure besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut copy)) };
        Partial::check(result, copy.copied)
    }

    /// Maps the pages that the shared memory behind `range` holds, and wakes who sleeps on them.
    ///
    /// # Errors
    /// [`Partial`]: `EEXIST` at a page that is mapped, `EFAULT` at one that the memory does not hold, else as [`copy`](Self::copy).
    ///
    /// # Safety
    /// The range lies in a registered range of the caller's whose pages are what readers should see.
    pub unsafe fn map(&self, range: Range<usize>) -> Result<(), Partial> {
        // SAFETY: as the caller promises.
        unsafe { self.map_as(range, false) }
    }

    /// The same, write-protected if `protected`.
    ///
    /// # Errors
    /// As [`map`](Self::map).
    ///
    /// # Safety
    /// As [`map`](Self::map); `protected` only where writes are told or tracked.
    pub unsafe fn map_as(&self, range: Range<usize>, protected: bool) -> Result<(), Partial> {
        let mut map = Continue { range: Span::from(range), mode: mode_of(protected), mapped: 0 };
        const CODE: u32 = opcode::read_write::<Continue>(GROUP, 0x07);
        // SAFETY: as the caller promises; the kernel reads and writes this one structure besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut map)) };
        Partial::check(result, map.mapped)
    }

    /// Maps pages of zeros at `range`, whose pages must be missing, and wakes who sleeps on them.
    ///
    /// # Errors
    /// [`Partial`], as [`copy`](Self::copy).
    ///
    /// # Safety
    /// As [`copy`](Self::copy).
    pub unsafe fn zero(&self, range: Range<usize>) -> Result<(), Partial> {
        let mut zero = Continue { range: Span::from(range), mode: 0, mapped: 0 };
        const CODE: u32 = opcode::read_write::<Continue>(GROUP, 0x04);
        // SAFETY: as the caller promises; the kernel reads and writes this one structure besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut zero)) };
        Partial::check(result, zero.mapped)
    }

    /// Moves private pages from `source` to `target`, which must be missing; `source` is missing then.
    ///
    /// # Errors
    /// [`Partial`]: `EBUSY` at a page that somebody else has a hold of, else as [`copy`](Self::copy).
    ///
    /// # Safety
    /// Both are anonymous private memory of the caller's; nobody uses what lies at `source`.
    pub unsafe fn move_pages(&self, target: usize, source: *mut u8, len: usize) -> Result<(), Partial> {
        let mut pages = Copy { dst: target as u64, src: source as u64, len: len as u64, mode: 0, copied: 0 };
        const CODE: u32 = opcode::read_write::<Copy>(GROUP, 0x05);
        // SAFETY: as the caller promises; the kernel reads and writes this one structure besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut pages)) };
        Partial::check(result, pages.copied)
    }

    /// Makes the missing pages of `range` fatal to touch: `SIGBUS` for the program, an error for system calls.
    ///
    /// # Errors
    /// [`Partial`], as [`copy`](Self::copy).
    ///
    /// # Safety
    /// The range lies in a registered range of the caller's.
    pub unsafe fn poison(&self, range: Range<usize>) -> Result<(), Partial> {
        let mut poison = Continue { range: Span::from(range), mode: 0, mapped: 0 };
        const CODE: u32 = opcode::read_write::<Continue>(GROUP, 0x08);
        // SAFETY: as the caller promises; the kernel reads and writes this one structure besides.
        let result = unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut poison)) };
        Partial::check(result, poison.mapped)
    }

    /// Wakes the threads that sleep on `range`; those whose page is still missing tell it again.
    ///
    /// # Errors
    /// `EINVAL` if the range is not whole pages.
    pub fn wake(&self, range: Range<usize>) -> io::Result<()> {
        let mut span = Span::from(range);
        const CODE: u32 = opcode::read::<Span>(GROUP, 0x02);
        // SAFETY: changes no memory; the kernel reads this one structure.
        Ok(unsafe { ioctl(&self.fd, Updater::<CODE, _>::new(&mut span)) }?)
    }

    /// Takes the messages that are there, as many as fit, without waiting; the descriptor polls readable when there are some.
    ///
    /// # Errors
    /// As the kernel says; that there is none is no error.
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

/// An operation that stopped on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partial {
    /// Bytes done before.
    pub done: usize,
    /// Why it stopped; `AGAIN`: go on from there.
    pub error: Errno,
}

impl Partial {
    /// The kernel leaves the bytes done in the structure, or an error's number below zero.
    fn check(result: rustix::io::Result<()>, done: i64) -> Result<(), Self> {
        let done = usize::try_from(done).unwrap_or(0);
        result.map_err(|error| Self { done, error })
    }
}

/// Bytes of a `struct uffd_msg`.
const MESSAGE_BYTES: usize = 32;
/// Messages taken at once.
const MESSAGES_MAX: usize = 16;
const EVENT_PAGEFAULT: u8 = 0x12;

/// The page faults among the messages in `bytes`.
pub(crate) fn decode(bytes: &[u8]) -> impl Iterator<Item = Touch> {
    bytes.chunks_exact(MESSAGE_BYTES).filter_map(parse)
}

/// A page fault as the kernel lays it out: event, 7 bytes, flags, address, thread. Other events were not asked for.
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

/// Bytes of a page of the machine; the kernels that this runs on have 4 KiB.
pub const SYSTEM_PAGE: usize = 4096;

const GROUP: u8 = 0xAA;
const UFFD_API: u64 = 0xAA;
/// Serve touches of the program only.
const USER_MODE_ONLY: u32 = 1;
const FEATURE_SIGBUS: u64 = 1 << 7;
const FEATURE_THREAD_ID: u64 = 1 << 8;
const FEATURE_MINOR_SHMEM: u64 = 1 << 10;
const FEATURE_MISSING_SHMEM: u64 = 1 << 5;
const FEATURE_POISON: u64 = 1 << 14;
/// What regions cannot do without: Linux 6.6.
const FEATURES: u64 = FEATURE_MISSING_SHMEM | FEATURE_THREAD_ID | FEATURE_MINOR_SHMEM | FEATURE_POISON;

/// Write protection of shared memory, and of pages that are not there, that the kernel lifts by itself at the first write.
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

/// `struct uffdio_copy` and `struct uffdio_move`.
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

fn call(flags: UserfaultfdFlags) -> io::Result<OwnedFd> {
    // SAFETY: nothing is registered yet; what is, is promised to `register`.
    Ok(unsafe { userfaultfd(flags) }?)
}

/// The same through the device, for those who may open it.
fn open_device(flags: UserfaultfdFlags) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/userfaultfd")?;
    // SAFETY: `USERFAULTFD_IOC_NEW` takes flags in place of a pointer and returns a descriptor that is ours.
    let fd = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&device), 0xAA00, flags.bits() as c_int) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
