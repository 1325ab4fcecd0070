//! A driver whose device completes every fill at once.

use bowwave_core::{Action, Cache, FillError, FrameId, Instant, PageAccess, ReadOutcome, Waiter};

/// A read or a fault, with its completed fills. Returns its outcome; none if it failed. `see` gets
/// each action.
pub(crate) fn access(cache: &mut Cache, access: PageAccess, see: impl FnMut(&Action)) -> Option<ReadOutcome> {
    let (mut frames, mut out) = (Vec::new(), Vec::new());
    let outcome = cache.access(Instant(0), Waiter(0), access, &mut frames, &mut out);
    if outcome == ReadOutcome::Hit {
        out.push(Action::Wake { waiter: Waiter(0), result: Ok(frames) });
    }
    let woken = complete(cache, out, see).expect("with every fill completed the read continues");
    cache.unpin(Instant(0), &woken.ok()?, &mut Vec::new());
    Some(outcome)
}

/// Completes all fills; returns how a waiting read was woken.
pub(crate) fn complete(
    cache: &mut Cache,
    mut actions: Vec<Action>,
    mut see: impl FnMut(&Action),
) -> Option<Result<Vec<FrameId>, FillError>> {
    let mut woken = None;
    while !actions.is_empty() {
        for action in std::mem::take(&mut actions) {
            see(&action);
            match action {
                Action::Fill(fill) => cache.filled(Instant(0), fill.id, Ok(()), &mut actions),
                Action::Wake { result, .. } => woken = Some(result),
                _ => {}
            }
        }
    }
    woken
}
