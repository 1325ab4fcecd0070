//! The async runtime of this crate, and its entry points.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::future::{Either, select};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;

use crate::process::PerProcess;
use crate::{Error, ErrorKind, Result};

/// Runs `future` on the runtime and waits for it. Blocks, even if the caller is a task of another
/// runtime.
pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    let (sender, receiver) = mpsc::sync_channel(1);
    get()?.spawn(async move {
        // The caller waits below, so the receiver exists.
        sender.send(future.await).ok();
    });
    receiver.recv().unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a network task broke off")))
}

/// Runs `future` on the runtime without waiting.
pub(crate) fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    // Without network threads there is nothing to do.
    if let Ok(runtime) = get() {
        runtime.spawn(future);
    }
}

/// Runs `work` to its end, or drops it soon after `unwanted` becomes true.
pub(crate) async fn unless<T>(unwanted: Option<Arc<AtomicBool>>, work: impl Future<Output = T>) -> Option<T> {
    let Some(unwanted) = unwanted else { return Some(work.await) };
    let mut work = std::pin::pin!(work);
    loop {
        let pause = std::pin::pin!(tokio::time::sleep(GLANCE));
        match select(work.as_mut(), pause).await {
            Either::Left((result, _)) => return Some(result),
            Either::Right(_) if unwanted.load(Ordering::Relaxed) => return None,
            Either::Right(_) => {}
        }
    }
}

/// Lets at most `slots` futures run at once; others wait in order, up to a limit.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    slots: Arc<Semaphore>,
    /// A permit for each read that runs or waits.
    inside: Arc<Semaphore>,
}

impl Gate {
    pub(crate) fn new(slots: u32) -> Self {
        let semaphore = |permits| Arc::new(Semaphore::new(permits));
        Self { slots: semaphore(slots.max(1) as usize), inside: semaphore(WAITING_MAX) }
    }

    /// Starts `work` once it is ready and a slot is free; returns it with an error if too many
    /// wait.
    pub(crate) fn spawn<W>(&self, mut work: W) -> std::result::Result<(), (W, Error)>
    where
        W: AsyncWork + Send + 'static,
    {
        let runtime = match get() {
            Ok(runtime) => runtime,
            Err(error) => return Err((work, error)),
        };
        let Ok(inside) = Arc::clone(&self.inside).try_acquire_owned() else {
            return Err((work, Error::new(ErrorKind::Throttled, "too many requests are waiting")));
        };
        let slots = Arc::clone(&self.slots);
        runtime.spawn(async move {
            work.ready().await;
            // The semaphore is never closed; if it were, only the count of waiters would limit the
            // work.
            let slot = slots.acquire().await;
            work.run().await;
            drop((slot, inside));
        });
        Ok(())
    }
}

/// Work for a slot.
pub(crate) trait AsyncWork: Send {
    /// Waits for other work that needs a slot, too. In a slot, such a wait could use up the slots
    /// that it waits for.
    fn ready(&mut self) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    fn run(self) -> impl Future<Output = ()> + Send;
}

fn get() -> Result<&'static Runtime> {
    static RUNTIME: PerProcess<std::result::Result<Runtime, String>> = PerProcess::new();
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        // Two workers copy a few GB/s, more than networks here deliver.
        builder.worker_threads(2).thread_name("bowwave-net").enable_all().build().map_err(|e| e.to_string())
    });
    runtime
        .as_ref()
        .map_err(|error| Error::new(ErrorKind::Io, format!("cannot start network threads: {error}")))
}

/// Time between two checks whether a read is still needed.
const GLANCE: Duration = Duration::from_millis(20);
/// Most reads that may wait for a slot; only a caller that ignores the profile reaches it.
const WAITING_MAX: usize = 4096;
