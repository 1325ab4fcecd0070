//! Stores and their caches.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::c_char;

use bowwave_engine::{Engine, Settings};

use crate::arguments::{drop_handle, handle, into_handle, text};
use crate::failure::{Failure, call};

/// `bowwave_store`.
#[derive(Debug)]
pub struct Store {
    pub(crate) engine: Engine,
    pub(crate) store: bowwave_engine::Store,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open(url: *const c_char, options: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (url, options) = unsafe { (url_of(url)?, text(options, "the options")?) };
        let settings: Settings = options.unwrap_or_default().parse()?;
        let (engine, store) = settings.open(url)?;
        Ok(into_handle(Store { engine, store }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open_beside(store: *const Store, url: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (first, url) = unsafe { (handle(store, "store")?, url_of(url)?) };
        let store = first.engine.store(url)?;
        Ok(into_handle(Store { engine: first.engine.clone(), store }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_close(store: *mut Store) {
    call(|| {
        // SAFETY: guaranteed by the caller.
        unsafe { drop_handle(store) };
        Ok(0)
    });
}

unsafe fn url_of<'a>(url: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(url, "the URL")? }.ok_or_else(|| Failure::invalid("the URL is NULL"))
}
