//! Creates files on behalf of another user.
//!
//! A mount that runs as root creates files for its callers. Creating them as root and changing the
//! owner afterwards would show the wrong owner for a moment, and a crash would keep it. Instead the
//! thread takes the caller's file system user and group for the one system call, as file servers
//! do. It keeps the capabilities that bypass the directory's permissions, which the mount has
//! checked.

#![expect(unsafe_code, reason = "setfsuid and setfsgid have no safe wrapper")]

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::Owner;

/// While it lives, this thread creates files as the owner.
#[derive(Debug)]
pub(super) struct Acting {
    before: Option<Owner>,
}

impl Acting {
    /// Creates files as `owner` from here on; `None` for this process's user.
    ///
    /// Fails with a permission error if this process may not.
    pub(super) fn begin(owner: Option<Owner>) -> Result<Self, Errno> {
        let before = Owner::of_process();
        let Some(owner) = owner.filter(|owner| *owner != before) else { return Ok(Self { before: None }) };
        // Created first, so that its drop undoes completed steps when a later one fails.
        let acting = Self { before: Some(before) };
        // The group first: without the user's privileges it could no longer be set.
        set_group(owner.gid)?;
        set_user(owner.uid)?;
        raise()?;
        Ok(acting)
    }
}

impl Drop for Acting {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // Returning to the effective user is always allowed; the kernel then restores the
            // capabilities.
            let back = set_user(before.uid).and_then(|()| set_group(before.gid));
            debug_assert!(back.is_ok(), "the effective user may always be taken on");
        }
    }
}

fn set_user(uid: u32) -> Result<(), Errno> {
    // SAFETY: changes only this thread's credentials; no memory is involved.
    let now = unsafe {
        libc::setfsuid(uid);
        // The call reports no error; a call with an invalid user returns the current one.
        libc::setfsuid(u32::MAX)
    };
    if now.cast_unsigned() == uid { Ok(()) } else { Err(Errno::PERM) }
}

fn set_group(gid: u32) -> Result<(), Errno> {
    // SAFETY: as above.
    let now = unsafe {
        libc::setfsgid(gid);
        libc::setfsgid(u32::MAX)
    };
    if now.cast_unsigned() == gid { Ok(()) } else { Err(Errno::PERM) }
}

/// Restores root's capabilities that creating a file for another user needs; the change of user
/// dropped them.
///
/// Not `CAP_FSETID`: the kernel must clear the set-group-id bit if the owner is not a member of the
/// group.
fn raise() -> Result<(), Errno> {
    let wanted = CapabilitySet::DAC_OVERRIDE
        | CapabilitySet::DAC_READ_SEARCH
        | CapabilitySet::FOWNER
        | CapabilitySet::MKNOD;
    let mut sets = capabilities(None)?;
    sets.effective |= wanted & sets.permitted;
    set_capabilities(None, sets)
}
