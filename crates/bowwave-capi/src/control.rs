//! The control channel, and announcements of files to mounts.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int};

use bowwave_control::{Announcement, Map, Program, Server};

use crate::arguments::{drop_handle, into_handle, path, strings};
use crate::failure::{Failure, call};
use crate::store::Store;
use crate::swap::Swap;

/// `bowwave_control`.
#[derive(Debug)]
pub struct Control(#[allow(dead_code, reason = "ends the channel when it is dropped")] Server);

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_serve(store: *const Store, swap: *const Swap) -> *mut Control {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (store, swap) = unsafe { (store.as_ref(), swap.as_ref()) };
        if store.is_none() && swap.is_none() {
            return Err(Failure::invalid("both store and swap are NULL: there is nothing to serve"));
        }
        let maps = store.map(|store| Map { url: store.files.store().url().to_owned(), path: String::new() });
        let program = Program {
            engine: store.map(|store| store.engine.clone()),
            swap: swap.map(|swap| swap.0.clone()),
            maps: maps.into_iter().collect(),
        };
        Ok(into_handle(Control(program.serve()?)))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_serve_end(control: *mut Control) {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { drop_handle(control) };
        Ok(0)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_plan(
    mount: *const c_char,
    files: *const *const c_char,
    count: usize,
    append: c_int,
) -> c_int {
    call(|| {
        if mount.is_null() {
            return Err(Failure::invalid("the mount is NULL"));
        }
        // SAFETY: guaranteed by the caller.
        let (mount, files) = unsafe { (path(mount), strings(files, count, "files")?) };
        if files.iter().any(|file| file.is_null()) {
            return Err(Failure::invalid("one of the files is NULL"));
        }
        let mut announcement = Announcement::new(mount, append != 0)?;
        for &file in files {
            // SAFETY: guaranteed by the caller.
            announcement.add(unsafe { path(file) })?;
        }
        announcement.finish()?;
        Ok(0)
    })
}
