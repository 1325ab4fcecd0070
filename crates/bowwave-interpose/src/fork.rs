//! Fork handlers.

/// Defines `watch`, which registers fork handlers: `$hold` locks before a fork, the parent drops
/// the `$Held`, and a child passes it to `$reset`.
#[macro_export]
macro_rules! fork_handlers {
    ($Held:ty, $hold:path, $reset:path) => {
        std::thread_local! {
            static HELD: std::cell::RefCell<Option<$Held>> = const { std::cell::RefCell::new(None) };
        }

        /// Registers the fork handlers.
        pub(crate) fn watch() {
            // SAFETY: three functions with static lifetime.
            let watched = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
            debug_assert_eq!(watched, 0, "no memory");
        }

        extern "C" fn before() {
            let _inside = $crate::Inside::enter();
            let held = $hold();
            HELD.set(Some(held));
        }

        extern "C" fn in_parent() {
            let _inside = $crate::Inside::enter();
            drop(HELD.take());
        }

        extern "C" fn in_child() {
            let _inside = $crate::Inside::enter();
            if let Some(held) = HELD.take() {
                $reset(held);
            }
        }
    };
}
