//! A congested queue (3.2), and pages that are reclaimed before they are read (3.3).

use bowwave_core::Reason;

use super::{RA_PAGES, Sheet, of, pair};
use crate::reproduce::script::{self, Seen};
use crate::reproduce::{Bar, Pair, ReproduceError};

pub(super) fn fill(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    for pages in [1, 16] {
        congestion(sheet, pages)?;
    }
    thrashing(sheet)
}

/// A sequential reader with a congested queue, compared with an uncongested one.
fn congestion(sheet: &mut Sheet, pages: u64) -> Result<(), ReproduceError> {
    const TABLE: &str = "3.2, queue congestion";
    let read = |script: &mut script::Script| script.read_all(0..4096, pages);
    let free = script::both(RA_PAGES, 4096, read)?;
    let name = format!("3.2, reads of {pages} pages, the queue congested all the time");
    let seen = sheet.play(&name, RA_PAGES, 4096, |script| {
        script.congested(true);
        read(script);
    })?;
    let row = format!("reads of {pages} pages: sync readaheads for each deferred async one");
    // A deferred window comes back when the reader gets there; the last may lie past the end.
    let (deferred, served) = (seen[1].count(Reason::Deferred), seen[1].count(Reason::Readahead));
    let ours = Pair { baseline: None, improved: Some(served as f64 / deferred as f64) };
    let theirs = Pair { baseline: None, improved: Some(1.0) };
    sheet.add(TABLE, &row, "ratio", (theirs, ours), Bar::Within(0.1));
    let row = format!("reads of {pages} pages: requests, over those of a free queue");
    let requests = |seen: &[Seen; 2]| of(seen, |seen| seen.requests);
    let (busy, free) = (requests(&seen), requests(&free));
    let ours = Pair::new(busy[0] / free[0], busy[1] / free[1]);
    sheet.add(TABLE, &row, "ratio", (theirs, ours), Bar::Within(0.0)).note =
        "\"will not contribute more seeks\"".to_owned();
    Ok(())
}

/// A reader in the middle of its window loses the rest of it.
fn thrashing(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    const TABLE: &str = "3.3, readahead thrashing";
    // Windows of 4, 16, 32, 64 pages from 0, 4, 20, 52: the reader is at page 24, its window ends
    // at 52.
    const LOST: u64 = 28;
    let seen =
        sheet.play("3.3, 28 pages of the window lost before the reader", RA_PAGES, 4096, |script| {
            script.read_all(0..24, 1);
            script.lose(24, LOST);
            script.look();
            script.read_all(24..52, 1);
        })?;
    let single = of(&seen, |seen| seen.count(Reason::Demand));
    sheet.exact(TABLE, "lost pages that are faulted in one by one", "pages", [LOST as f64, 0.0], single);
    let requests = of(&seen, |seen| seen.requests);
    let theirs = Pair { baseline: Some(LOST as f64), improved: None };
    let bar = Bar::Within(0.0);
    sheet.add(TABLE, "requests until the window is back", "requests", (theirs, pair(requests)), bar).note =
        "on-demand: \"an initial readahead will be started from the current position\"".to_owned();
    let restart = seen[1].decided.first().map(|one| one.window());
    let theirs = Pair { baseline: None, improved: Some(24.0) };
    let ours = Pair { baseline: None, improved: restart.map(|(start, _)| start as f64) };
    sheet.add(TABLE, "page at which readahead begins anew", "page", (theirs, ours), Bar::Within(0.0));
    let seen = sheet.play("3.3, and on from there", RA_PAGES, 4096, |script| {
        script.read_all(0..24, 1);
        script.lose(24, LOST);
        script.read_all(24..52, 1);
        script.look();
        script.read_all(52..400, 1);
    })?;
    let sizes: Vec<f64> = seen[0].decided.iter().map(|one| one.window().1 as f64).collect();
    let theirs = Pair { baseline: Some(-2.0), improved: None };
    let ours = Pair { baseline: sizes.first().map(|size| size - 64.0), improved: None };
    sheet.add(
        TABLE,
        "2.6.20: the next window, less the one before",
        "pages",
        (theirs, ours),
        Bar::Within(0.0),
    );
    let theirs = Pair { baseline: Some(2.0), improved: None };
    let ours = Pair { baseline: sizes.get(1).map(|size| size / sizes[0]), improved: None };
    sheet
        .add(TABLE, "2.6.20: the window after that, times it", "times", (theirs, ours), Bar::Within(0.0))
        .note = "\"immediately reverts back to the normal behavior\"".to_owned();
    Ok(())
}
