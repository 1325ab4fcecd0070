//! Cache hits: 3.1 and table 4.

use bowwave_core::Reason;

use super::{RA_PAGES, Sheet, of, pair};
use crate::reproduce::script::{self, Script, Seen};
use crate::reproduce::{Bar, Pair, ReproduceError};

const TABLE: &str = "table 4, readahead on cache hits";

pub(super) fn fill(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    large_chunk(sheet)?;
    small_files(sheet)?;
    small_chunk(sheet)?;
    miss(sheet)
}

fn cached(script: &mut Script, start: u64, pages: u64) {
    script.will_need(start, pages);
    script.open();
    script.look();
}

fn large_chunk(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    const PAGES: u64 = 25_600;
    let whole = sheet.play("table 4, 100 MB cached, in one call", RA_PAGES, PAGES, |script| {
        cached(script, 0, PAGES);
        script.read(0, PAGES);
    })?;
    let ours = of(&whole, |seen| seen.calls).map(|calls| calls / PAGES as f64);
    let bar = Bar::Within(0.05);
    let theirs = Pair::new(1.0, 0.0);
    sheet
        .add(
            TABLE,
            "large cached chunk, sendfile(100M): calls a page",
            "calls/page",
            (theirs, pair(ours)),
            bar,
        )
        .note = "\"called on every page to recheck\"; on-demand \"not called\"".to_owned();
    let single = sheet.play("table 4, 1 MB and more cached, page by page", RA_PAGES, 4096, |script| {
        cached(script, 0, 4096);
        script.read_all(0..4096, 1);
    })?;
    let ours = of(&single, |seen| seen.calls).map(|calls| calls / 4096.0);
    sheet.exact(TABLE, "large cached chunk, reads of a page: calls a page", "calls/page", [1.0, 0.0], ours);
    let hits =
        |seen: &Seen| seen.decided.iter().filter(|one| one.sent.is_empty()).map(|one| one.window().1).sum();
    let theirs = Pair { baseline: Some(256.0), improved: Some(0.0) };
    let bar = Bar::Within(0.0);
    sheet
        .add(
            TABLE,
            "cached pages looked at until readahead is off",
            "pages",
            (theirs, pair(of(&single, hits))),
            bar,
        )
        .note = "VM_MAX_CACHE_HIT; the window that reaches it counts whole".to_owned();
    Ok(())
}

/// Share of the files of 1 to 255 pages for which the policy runs in vain.
fn small_files(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    let share = |prepare: fn(&mut Script, u64), each: fn(u64) -> u64| {
        let mut called = [0.0; 2];
        for pages in 1..=255 {
            let seen = script::both(RA_PAGES, pages, |script| {
                prepare(script, pages);
                script.open();
                script.look();
                (0..pages).step_by(each(pages) as usize).for_each(|start| script.read(start, each(pages)));
            })?;
            called[0] += f64::from(u8::from(seen[0].calls > 0 && !seen[0].decided.is_empty())) / 255.0;
            called[1] += f64::from(u8::from(seen[1].calls > 0)) / 255.0;
        }
        Ok::<_, ReproduceError>(called.map(|share: f64| (share * 1e9).round() / 1e9))
    };
    let read = |script: &mut Script, pages| script.read_all(0..pages, 1);
    let asked = |script: &mut Script, pages| script.will_need(0, pages);
    let unit = "share of files";
    let row = "full cached small files, read by pages: called to do readahead";
    sheet.exact(TABLE, row, unit, [1.0, 0.0], share(read, |_| 1)?);
    let row = "full cached small files, read whole: called to do readahead";
    sheet.exact(TABLE, row, unit, [1.0, 0.0], share(read, |pages| pages)?);
    let row = "prefetched chunks (WILLNEED), read by pages: called to do readahead";
    sheet.exact(TABLE, row, unit, [1.0, 0.0], share(asked, |_| 1)?);
    sheet.play("table 4, a cached file of 25 pages, page by page", RA_PAGES, 25, |script| {
        script.read_all(0..25, 1);
        script.open();
        script.look();
        script.read_all(0..25, 1);
    })?;
    Ok(())
}

/// A cached chunk within an uncached file: read at random before, or left by a sequential reader
/// with its mark.
fn small_chunk(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    let ways = ["read at random", "left by a sequential reader, with a mark"];
    let mut called = [0.0; 2];
    for way in ways {
        let seen = sheet.play(&format!("table 4, small cached chunk, {way}"), RA_PAGES, 4096, |script| {
            if way == ways[0] {
                script.read(1000, 4);
            } else {
                script.read_all(999..1001, 1);
            }
            script.open();
            script.look();
            script.read_all(1000..1004, 1);
        })?;
        for (called, seen) in called.iter_mut().zip(&seen) {
            *called += if seen.calls > 0 { 0.5 } else { 0.0 };
        }
    }
    let row = "small cached chunk: called, of 2 ways that it came to be cached";
    let bar = Bar::Within(0.0);
    let theirs = Pair { baseline: Some(1.0), improved: None };
    sheet.add(TABLE, row, "share", (theirs, pair(called)), bar).note =
        "on-demand \"may or may not be called\"".to_owned();
    Ok(())
}

/// Out of a cached segment.
fn miss(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    let seen = sheet.play("table 4, a miss behind 512 cached pages", RA_PAGES, 4096, |script| {
        cached(script, 0, 512);
        script.read_all(0..512, 1);
        script.look();
        script.read_all(512..514, 1);
    })?;
    let late = of(&seen, |seen| {
        let first = seen.decided.iter().find(|one| !one.is(Reason::Demand) && !one.sent.is_empty());
        first.map_or(u64::MAX, |one| one.decision.page.0 - 512)
    });
    sheet.exact(TABLE, "cache miss: pages from the miss to the readahead", "pages", [1.0, 0.0], late);
    Ok(())
}
