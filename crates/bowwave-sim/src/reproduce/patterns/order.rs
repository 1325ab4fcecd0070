//! Unaligned (3.4), retried (3.5) and interleaved (3.6) reads.

use bowwave_core::{PageSize, Reason};

use super::{RA_PAGES, Sheet, of, pair};
use crate::reproduce::script;
use crate::reproduce::{Bar, Pair, ReproduceError};

pub(super) fn fill(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    unaligned(sheet)?;
    retried(sheet)?;
    interleaved(sheet)
}

/// First page and pages of the reads that the paper prints.
const FLOW: [(u64, u64); 9] = [(0, 3), (2, 2), (4, 3), (7, 2), (9, 3), (12, 2), (14, 3), (17, 2), (19, 3)];

fn unaligned(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    const TABLE: &str = "3.4, unaligned reads";
    let flow: Vec<_> = (0..9).map(|read| PageSize::KIB_4.request_of(read * 10_000, 10_000).range).collect();
    let starts = flow.iter().zip(FLOW).filter(|(range, (start, _))| range.start.0 == *start).count() as f64;
    let sizes = flow.iter().zip(FLOW).filter(|(range, (_, pages))| range.count().0 == *pages).count() as f64;
    sheet.exact(
        TABLE,
        "reads of 10000 B that begin at the page printed, of 9",
        "reads",
        [9.0; 2],
        [starts; 2],
    );
    let bar = Bar::Within(0.0);
    let pairs = (pair([9.0; 2]), pair([sizes; 2]));
    sheet.add(TABLE, "reads of 10000 B that have the pages printed, of 9", "reads", pairs, bar).note =
        "the paper's slip: it prints 2+2 for bytes 10000 to 19999, which lie on pages 2 to 4".to_owned();
    let seen = sheet.play("3.4, reads of 10000 B", RA_PAGES, 4096, |script| {
        (0..400).for_each(|read| script.read_bytes(read * 10_000, 10_000));
    })?;
    let random = of(&seen, |seen| seen.count(Reason::Random) + seen.count(Reason::Demand));
    sheet.exact(TABLE, "taken for random, of 400", "reads", [0.0; 2], random);
    Ok(())
}

fn retried(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    const TABLE: &str = "3.5, retried reads";
    let plain = script::both(RA_PAGES, 4096, |script| script.read(0, 1000))?;
    let seen = sheet.play("3.5, reads 0+1000, 10+990, 20+980 and so on", RA_PAGES, 4096, |script| {
        (0..1000).step_by(10).for_each(|start| script.read_some(start, 1000 - start, 10));
    })?;
    let confused = of(&seen, |seen| seen.count(Reason::Random) + seen.count(Reason::Demand));
    let theirs = Pair { baseline: None, improved: Some(0.0) };
    let bar = Bar::Within(0.0);
    sheet
        .add(
            TABLE,
            "decisions that take a retry for a random read or read a page singly",
            "decisions",
            (theirs, pair(confused)),
            bar,
        )
        .note = "\"can confuse the 2.6.20 readahead\"; on-demand \"is not bothered\"".to_owned();
    let (retried, plain) = (of(&seen, |seen| seen.requests), of(&plain, |seen| seen.requests));
    let ours = Pair::new(retried[0] / plain[0], retried[1] / plain[1]);
    let theirs = Pair { baseline: None, improved: Some(1.0) };
    sheet.add(
        TABLE,
        "requests, over those of one read of 1000 pages",
        "ratio",
        (theirs, ours),
        Bar::Within(0.0),
    );
    Ok(())
}

/// Pages 0, 100, 1, 101 and so on, 50 of each stream, so that they do not meet.
fn interleaved(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    const TABLE: &str = "3.6, interleaved reads";
    const EACH: u64 = 50;
    // With the 1 MiB of the benchmarks, windows of the first stream would reach into the second.
    const RA_PAGES_DEFAULT: u32 = 32;
    let seen = sheet.play(
        "3.6, pages 0, 100, 1, 101 and so on, with 128 KiB",
        RA_PAGES_DEFAULT,
        4096,
        |script| {
            (0..EACH).for_each(|page| {
                script.read(page, 1);
                script.read(100 + page, 1);
            });
        },
    )?;
    // Pages of a stream that readahead had brought in when they were read.
    let ahead = |first: u64| {
        of(&seen, |seen| {
            let own = |page: u64| (first..first + EACH).contains(&page);
            let missed = |one: &&script::Decided| {
                own(one.decision.page.0) && one.sent.iter().any(|sent| sent.contains(one.decision.page))
            };
            EACH - seen.decided.iter().filter(missed).count() as u64
        })
    };
    let theirs = Pair { baseline: None, improved: Some(49.0) };
    let bar = Bar::Within(0.0);
    sheet.add(TABLE, "stream from 0: pages read ahead, of 50", "pages", (theirs, pair(ahead(0))), bar).note =
        "\"will get readahead service\"; 2.6.20 is \"totally confused\"".to_owned();
    sheet.exact(TABLE, "stream from 100: pages read ahead, of 50", "pages", [0.0; 2], ahead(100));
    let random = of(&seen, |seen| {
        seen.decided.iter().filter(|one| one.is(Reason::Random) && one.decision.page.0 >= 100).count() as u64
    });
    sheet.exact(TABLE, "stream from 100: taken for random, of 50", "pages", [50.0; 2], random);
    sheet.play("3.6, the same with 1 MiB", RA_PAGES, 4096, |script| {
        (0..EACH).for_each(|page| {
            script.read(page, 1);
            script.read(100 + page, 1);
        });
    })?;
    Ok(())
}
