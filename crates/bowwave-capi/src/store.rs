//! Stores and their caches.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bowwave_engine::{Engine, NamedFiles, Settings};

use crate::arguments::{drop_handle, hand_over_text, handle, into_handle, text, word};
use crate::failure::call;

/// `bowwave_store`.
#[derive(Debug)]
pub struct Store {
    pub(crate) engine: Engine,
    pub(crate) files: NamedFiles,
    /// Stores that have shared the cache so far.
    stores: Arc<AtomicU64>,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open(url: *const c_char, options: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (url, options) = unsafe { (word(url, "the URL")?, text(options, "the options")?) };
        let settings: Settings = options.unwrap_or_default().parse()?;
        let (engine, store) = settings.open(url)?;
        Ok(into_handle(Store {
            engine,
            files: NamedFiles::new(store, 1),
            stores: Arc::new(AtomicU64::new(1)),
        }))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open_beside(store: *const Store, url: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (first, url) = unsafe { (handle(store, "store")?, word(url, "the URL")?) };
        let store = first.engine.store(url)?;
        let stores = Arc::clone(&first.stores);
        let files = NamedFiles::new(store, stores.fetch_add(1, Ordering::Relaxed) + 1);
        Ok(into_handle(Store { engine: first.engine.clone(), files, stores }))
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
        // SAFETY: guaranteed by the caller.
        unsafe { hand_over_text(&text, value, size) }
    })
}
