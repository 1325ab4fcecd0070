//! Runs independent work in parallel, with results in order.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Applies `work` to each of `items` on `workers` threads. After an error no new item starts; the
/// first error in item order is returned.
///
/// # Errors
///
/// Errors of `work`.
pub fn try_map<T: Sync, R: Send, E: Send>(
    items: &[T],
    workers: NonZeroUsize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let mut results = Vec::with_capacity(items.len());
    try_in_order(items, workers, work, |result| {
        results.push(result);
        Ok(())
    })?;
    Ok(results)
}

/// As [`try_map`], but passes each result to `sink` in item order, as soon as all earlier results
/// are there. Memory holds only results that wait for a slower earlier one.
///
/// # Errors
///
/// Errors of `work` and `sink`.
pub fn try_in_order<T: Sync, R: Send, E: Send>(
    items: &[T],
    workers: NonZeroUsize,
    work: impl Fn(&T) -> Result<R, E> + Sync,
    sink: impl FnMut(R) -> Result<(), E> + Send,
) -> Result<(), E> {
    let next = AtomicUsize::new(0);
    let ordered = Mutex::new(Ordered { next: 0, waiting: BTreeMap::new(), sink, outcome: Ok(()) });
    thread::scope(|scope| {
        for _ in 0..workers.get().min(items.len()) {
            scope.spawn(|| {
                while let index = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(item) = items.get(index)
                {
                    let result = work(item);
                    let failed = result.is_err();
                    let mut ordered = ordered.lock().unwrap_or_else(PoisonError::into_inner);
                    ordered.add(index, result);
                    if failed || ordered.outcome.is_err() {
                        next.store(items.len(), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    // A panic of a worker ends the scope.
    ordered.into_inner().unwrap_or_else(PoisonError::into_inner).outcome
}

/// Passes results to a sink in order.
struct Ordered<R, E, S> {
    /// The next item for the sink.
    next: usize,
    waiting: BTreeMap<usize, Result<R, E>>,
    sink: S,
    outcome: Result<(), E>,
}

impl<R, E, S: FnMut(R) -> Result<(), E>> Ordered<R, E, S> {
    fn add(&mut self, index: usize, result: Result<R, E>) {
        self.waiting.insert(index, result);
        while self.outcome.is_ok()
            && let Some(result) = self.waiting.remove(&self.next)
        {
            self.next += 1;
            self.outcome = result.and_then(&mut self.sink);
        }
    }
}

/// One worker per processor available to this program.
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

    #[test]
    fn a_sink_takes_results_in_order_until_the_first_error() {
        let four = NonZeroUsize::new(4).expect("four");
        let items: Vec<u32> = (0..50).collect();
        let mut taken = Vec::new();
        let work = |&item: &u32| {
            // Later items of each four are done before earlier ones.
            thread::sleep(std::time::Duration::from_millis(u64::from(3 - item % 4)));
            if item == 40 { Err(item) } else { Ok(item) }
        };
        let outcome = try_in_order(&items, four, work, |item| {
            taken.push(item);
            Ok(())
        });
        assert_eq!((outcome, taken), (Err(40), (0..40).collect()));
        let refused =
            try_in_order(&items, four, |&item| Ok(item), |item| if item < 3 { Ok(()) } else { Err(item) });
        assert_eq!(refused, Err(3));
    }
}
