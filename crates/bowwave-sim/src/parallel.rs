//! Independent work on all processors, with results in the order of the work.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Does `work` for each of `items`, as many at once as there are `workers`. After an error nothing new is begun; the first
/// one in the order of the items is returned.
///
/// # Errors
/// Those of `work`.
pub fn try_map<T: Sync, R: Send, E: Send>(
    items: &[T],
    workers: NonZeroUsize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<Result<R, E>>>> = items.iter().map(|_| Mutex::new(None)).collect();
    thread::scope(|scope| {
        for _ in 0..workers.get().min(items.len()) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let (Some(item), Some(place)) = (items.get(index), results.get(index))
                {
                    let result = work(item);
                    if result.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                    *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
            });
        }
    });
    // A worker that panics ends the scope with its panic; what was not begun is behind an error.
    let result = |place: Mutex<Option<_>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.into_iter().filter_map(result).collect()
}

/// As many workers as there are processors for this program.
#[must_use]
pub fn workers() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let two = NonZeroUsize::new(2).expect("two");
        let items: Vec<u32> = (0..100).collect();
        assert_eq!(try_map(&items, two, |&item| Ok::<_, ()>(item + 1)), Ok((1..101).collect()));
        assert_eq!(try_map(&items, two, |&item| if item == 7 { Err(item) } else { Ok(()) }), Err(7));
    }
}
