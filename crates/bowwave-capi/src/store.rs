//! Stores and their caches.
#![allow(unsafe_code, reason = "functions that C calls")]

use std::ffi::c_char;

use bowwave_engine::{Engine, Settings};

use crate::failure::{Failure, call};
use crate::given::{give, handle, take, text};

/// `bowwave_store`.
#[derive(Debug)]
pub struct Store {
    pub(crate) engine: Engine,
    pub(crate) store: bowwave_engine::Store,
}

/// Opens the store at a URL behind a cache of its own.
///
/// # Safety
/// Both are strings that end with a zero byte, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open(url: *const c_char, options: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: as the caller says.
        let (url, options) = unsafe { (url_of(url)?, text(options, "the options")?) };
        let settings: Settings = options.unwrap_or_default().parse()?;
        let (engine, store) = settings.open(url)?;
        Ok(give(Store { engine, store }))
    })
}

/// Opens another store behind the cache of one that is open.
///
/// # Safety
/// A store that is open, or NULL; a string that ends with a zero byte, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open_beside(store: *const Store, url: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: as the caller says.
        let (first, url) = unsafe { (handle(store, "store")?, url_of(url)?) };
        let store = first.engine.store(url)?;
        Ok(give(Store { engine: first.engine.clone(), store }))
    })
}

/// Closes a store.
///
/// # Safety
/// A store that nobody uses any more, or NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_close(store: *mut Store) {
    call(|| {
        // SAFETY: as the caller says.
        unsafe { take(store) };
        Ok(0)
    });
}

unsafe fn url_of<'a>(url: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: as the caller says.
    unsafe { text(url, "the URL")? }.ok_or_else(|| Failure::invalid("the URL is NULL"))
}
