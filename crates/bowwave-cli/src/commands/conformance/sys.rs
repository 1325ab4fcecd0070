//! System calls without a safe wrapper: private mounts, loop devices, mappings and `mincore`.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

use bowwave_core::{PageRange, Pattern};
use rustix::ioctl::{Setter, ioctl};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// The kernel's page size in bytes; the caller has checked it.
pub(super) const PAGE: u64 = 4096;

/// Gives this thread a private mount namespace, which ends with it.
pub(super) fn private_mounts() -> io::Result<()> {
    #[expect(unsafe_code, reason = "unshare")]
    // SAFETY: a new mount namespace does not affect memory safety; no files are unshared.
    unsafe {
        unshare_unsafe(UnshareFlags::NEWNS)?;
    }
    Ok(mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?)
}

/// A loop device; the kernel frees it when it is no longer open or mounted.
#[derive(Debug)]
pub(super) struct LoopDevice {
    /// Held open, so that the device stays between mounts.
    _device: File,
    number: i32,
}

impl LoopDevice {
    const CTL_GET_FREE: u32 = 0x4C82;
    const CONFIGURE: u32 = 0x4C0A;
    const AUTOCLEAR: u32 = 4;

    /// Attaches a free loop device to `image`. Retries, because another process may take the free
    /// one first.
    pub(super) fn attach(image: &File) -> io::Result<Self> {
        let control = File::options().read(true).write(true).open("/dev/loop-control")?;
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..16 {
            match Self::attach_one(&control, image) {
                Ok(device) => return Ok(device),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn attach_one(control: &File, image: &File) -> io::Result<Self> {
        #[expect(unsafe_code, reason = "ioctl")]
        // SAFETY: LOOP_CTL_GET_FREE takes no argument; the number is its return value.
        let number = unsafe { ioctl(control, FreeLoop)? };
        let device = File::options().read(true).write(true).open(format!("/dev/loop{number}"))?;
        let mut config = LoopConfig { fd: image.as_raw_fd().cast_unsigned(), ..LoopConfig::default() };
        config.info.flags = Self::AUTOCLEAR;
        #[expect(unsafe_code, reason = "ioctl")]
        // SAFETY: LOOP_CONFIGURE reads one `struct loop_config`, whose layout `LoopConfig` has.
        unsafe {
            ioctl(&device, Setter::<{ Self::CONFIGURE }, LoopConfig>::new(config))?;
        }
        Ok(Self { _device: device, number })
    }

    /// Its path.
    pub(super) fn path(&self) -> String {
        format!("/dev/loop{}", self.number)
    }

    /// The directory of its settings.
    pub(super) fn queue(&self) -> String {
        format!("/sys/block/loop{}/queue", self.number)
    }
}

/// `LOOP_CTL_GET_FREE`.
struct FreeLoop;

#[expect(unsafe_code, reason = "ioctl")]
// SAFETY: the call has no argument and changes nothing in user memory; the output is the return value.
unsafe impl rustix::ioctl::Ioctl for FreeLoop {
    type Output = i32;
    const IS_MUTATING: bool = false;

    fn opcode(&self) -> rustix::ioctl::Opcode {
        LoopDevice::CTL_GET_FREE
    }

    fn as_ptr(&mut self) -> *mut c_void {
        std::ptr::null_mut()
    }

    unsafe fn output_from_ptr(out: rustix::ioctl::IoctlOutput, _: *mut c_void) -> rustix::io::Result<i32> {
        Ok(out)
    }
}

/// `struct loop_config` of `linux/loop.h`.
#[repr(C)]
#[derive(Default)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

/// `struct loop_info64` of `linux/loop.h`.
#[repr(C)]
struct LoopInfo {
    /// `lo_device` to `lo_sizelimit`.
    head: [u64; 5],
    /// `lo_number` to `lo_encrypt_key_size`.
    numbers: [u32; 3],
    flags: u32,
    /// `lo_file_name`, `lo_crypt_name`, `lo_encrypt_key`.
    names: [u8; 64 + 64 + 32],
    init: [u64; 2],
}

impl Default for LoopInfo {
    fn default() -> Self {
        Self { head: [0; 5], numbers: [0; 3], flags: 0, names: [0; 160], init: [0; 2] }
    }
}

/// A private, writable mapping of a file.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Mapping {
    /// Maps the first `pages` pages of a file.
    pub(super) fn new(file: &File, pages: u64) -> io::Result<Self> {
        let bytes = usize::try_from(pages * PAGE).map_err(io::Error::other)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        #[expect(unsafe_code, reason = "mmap")]
        // SAFETY: a new mapping at an address of the kernel's choosing overlaps nothing.
        let start =
            unsafe { mmap(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags, file, 0)? };
        let start = NonNull::new(start).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        Ok(Self { start, bytes })
    }

    /// Stores a byte into a page. Faults this page only, since copy-on-write does not map around.
    pub(super) fn touch(&mut self, page: u64) {
        let at = usize::try_from(page * PAGE).expect("the mapping is no longer than memory");
        assert!(at < self.bytes, "page {page} is not mapped");
        #[expect(unsafe_code, reason = "touches mapped memory")]
        // SAFETY: the byte lies within this private, writable mapping, and no reference into it exists. The file is ours
        // and never cut short.
        unsafe {
            self.start.as_ptr().cast::<u8>().add(at).write_volatile(1);
        }
    }

    /// Calls `madvise` on the mapping.
    pub(super) fn advise(&self, pattern: Pattern) -> io::Result<()> {
        let advice = match pattern {
            Pattern::Normal => Advice::Normal,
            Pattern::Sequential => Advice::Sequential,
            Pattern::Random => Advice::Random,
        };
        #[expect(unsafe_code, reason = "madvise")]
        // SAFETY: these three change only readahead, never the contents.
        unsafe {
            madvise(self.start.as_ptr(), self.bytes, advice)?;
        }
        Ok(())
    }

    /// Pages of `range` that are resident and up to date.
    pub(super) fn resident(&self, range: PageRange) -> io::Result<u64> {
        let range = range.intersect(PageRange::new(0, self.bytes as u64 / PAGE));
        let pages = usize::try_from(range.count().0).map_err(io::Error::other)?;
        let mut present = vec![0u8; pages];
        if pages == 0 {
            return Ok(0);
        }
        let at = usize::try_from(range.start.0 * PAGE).map_err(io::Error::other)?;
        #[expect(unsafe_code, reason = "mincore")]
        // SAFETY: the range lies within the mapping, and `present` has a byte for each of its pages.
        let outcome = unsafe {
            libc::mincore(self.start.as_ptr().byte_add(at), pages * PAGE as usize, present.as_mut_ptr())
        };
        if outcome != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(present.iter().filter(|&&byte| byte & 1 != 0).count() as u64)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        #[expect(unsafe_code, reason = "munmap")]
        // SAFETY: this is the whole mapping, and no reference into it is left.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
