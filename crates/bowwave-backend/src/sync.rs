//! Locks that ignore poisoning: after a panic under a lock, the next `lock()` succeeds. The value
//! may be half changed then, and its users must tolerate that; where this is not clear, the field
//! says why.

/// Defines `Mutex`, `RwLock` and `Condvar` as wrappers of the types in `$sync`: `std::sync`, or a
/// model checker's replacement.
#[doc(hidden)]
#[macro_export]
macro_rules! locks_without_poison {
    ($sync:path) => {
        use $sync as inner;

        /// As [`std::sync::Mutex`].
        #[derive(Debug, Default)]
        pub struct Mutex<T>(inner::Mutex<T>);

        impl<T> Mutex<T> {
            /// Creates an unlocked mutex.
            pub const fn new(value: T) -> Self {
                Self(inner::Mutex::new(value))
            }

            /// Locks; blocks while another thread holds the lock.
            #[inline]
            pub fn lock(&self) -> inner::MutexGuard<'_, T> {
                self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
            }

            /// Locks if no thread holds the lock.
            #[inline]
            pub fn try_lock(&self) -> Option<inner::MutexGuard<'_, T>> {
                match self.0.try_lock() {
                    Ok(guard) => Some(guard),
                    Err(std::sync::TryLockError::Poisoned(guard)) => Some(guard.into_inner()),
                    Err(std::sync::TryLockError::WouldBlock) => None,
                }
            }

            /// The value; `&mut self` proves that no guard exists.
            pub fn get_mut(&mut self) -> &mut T {
                self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner)
            }

            /// Returns the value.
            pub fn into_inner(self) -> T {
                self.0.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
            }
        }

        /// As [`std::sync::RwLock`].
        #[derive(Debug, Default)]
        pub struct RwLock<T>(inner::RwLock<T>);

        impl<T> RwLock<T> {
            /// Creates an unlocked lock.
            pub const fn new(value: T) -> Self {
                Self(inner::RwLock::new(value))
            }

            /// Locks for shared access; blocks while a writer holds the lock.
            pub fn read(&self) -> inner::RwLockReadGuard<'_, T> {
                self.0.read().unwrap_or_else(std::sync::PoisonError::into_inner)
            }

            /// Locks for exclusive access; blocks while another thread holds the lock.
            pub fn write(&self) -> inner::RwLockWriteGuard<'_, T> {
                self.0.write().unwrap_or_else(std::sync::PoisonError::into_inner)
            }
        }

        /// As [`std::sync::Condvar`].
        #[derive(Debug, Default)]
        pub struct Condvar(inner::Condvar);

        impl Condvar {
            /// Creates a condition variable without waiters.
            pub const fn new() -> Self {
                Self(inner::Condvar::new())
            }

            /// Unlocks, waits for a notification, and locks again.
            pub fn wait<'a, T>(&self, guard: inner::MutexGuard<'a, T>) -> inner::MutexGuard<'a, T> {
                self.0.wait(guard).unwrap_or_else(std::sync::PoisonError::into_inner)
            }

            /// As [`wait`](Self::wait), for at most `limit`.
            pub fn wait_timeout<'a, T>(
                &self,
                guard: inner::MutexGuard<'a, T>,
                limit: std::time::Duration,
            ) -> inner::MutexGuard<'a, T> {
                self.0.wait_timeout(guard, limit).unwrap_or_else(std::sync::PoisonError::into_inner).0
            }

            /// Wakes one waiting thread.
            pub fn notify_one(&self) {
                self.0.notify_one();
            }

            /// Wakes all waiting threads.
            pub fn notify_all(&self) {
                self.0.notify_all();
            }
        }
    };
}

locks_without_poison!(std::sync);
