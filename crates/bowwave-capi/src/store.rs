//! Stores and their caches.
#![allow(unsafe_code, reason = "functions called by C")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use bowwave_engine::{Engine, ManyFiles, Settings};

use crate::arguments::{drop_handle, hand_over_text, handle, into_handle, text, word};
use crate::failure::call;

/// `bowwave_store`.
#[derive(Debug)]
pub struct Store {
    pub(crate) engine: Engine,
    pub(crate) files: ManyFiles,
    /// As many references as stores share the cache.
    sharing: Arc<()>,
}

impl Store {
    fn new(engine: Engine, store: bowwave_engine::Store, url: &str, sharing: Arc<()>) -> Self {
        let (url, owners) = (url.to_owned(), Arc::strong_count(&sharing) as u64);
        let files = ManyFiles::new(store, owners, {
            let engine = engine.clone();
            move || engine.store(&url)
        });
        Self { engine, files, sharing }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open(url: *const c_char, options: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (url, options) = unsafe { (word(url, "the URL")?, text(options, "the options")?) };
        let settings: Settings = options.unwrap_or_default().parse()?;
        let (engine, store) = settings.open(url)?;
        Ok(into_handle(Store::new(engine, store, url, Arc::default())))
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn bowwave_open_beside(store: *const Store, url: *const c_char) -> *mut Store {
    call(|| {
        // SAFETY: guaranteed by the caller.
        let (first, url) = unsafe { (handle(store, "store")?, word(url, "the URL")?) };
        let store = first.engine.store(url)?;
        Ok(into_handle(Store::new(first.engine.clone(), store, url, Arc::clone(&first.sharing))))
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
