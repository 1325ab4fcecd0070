//! Stores and their caches.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_void};

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

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_store_set(
    store: *const Store,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (store, key, value) =
            unsafe { (handle(store, "store")?, word(key, "the key")?, word(value, "the value")?) };
        store.engine.set(key, value)?;
        Ok(0)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_store_get(
    store: *const Store,
    key: *const c_char,
    value: *mut c_void,
    size: usize,
) -> c_int {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (store, key) = unsafe { (handle(store, "store")?, word(key, "the key")?) };
        let text = store.engine.setting(key)?;
        if value.is_null() || size <= text.len() {
            return Err(Failure::invalid(format!("the value needs {} bytes", text.len() + 1)));
        }
        // SAFETY: the caller gives `size` bytes, which hold the text and its NUL.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), value.cast::<u8>(), text.len());
            value.cast::<u8>().add(text.len()).write(0);
        }
        Ok(0)
    })
}

/// A string that must not be NULL.
unsafe fn word<'a>(pointer: *const c_char, what: &str) -> Result<&'a str, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(pointer, what)? }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
}

unsafe fn url_of<'a>(url: *const c_char) -> Result<&'a str, Failure> {
    // SAFETY: guaranteed by the caller.
    unsafe { text(url, "the URL")? }.ok_or_else(|| Failure::invalid("the URL is NULL"))
}
