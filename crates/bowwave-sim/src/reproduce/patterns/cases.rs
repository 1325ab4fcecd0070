//! Sizes (2.1), tables 2 and 3, and what on-demand readahead changed (2.4).

use bowwave_core::{PageCount, PageIndex, Reason, Window};

use super::{RA_PAGES, Sheet, of, pair};
use crate::reproduce::script::{self, Script, Seen};
use crate::reproduce::{Bar, Pair, ReproduceError};

/// A case of table 2, and its row of table 3.
struct Case {
    reason: Reason,
    play: fn(&mut Script),
    /// `ra_index`, `ra_size` and `la_size` of table 3; from the patch (000) where that is garbled.
    window: (u64, u64, u64),
}

const CASES: [Case; 7] = [
    Case { reason: Reason::Initial, play: |script| script.read(0, 1), window: (0, 4, 3) },
    Case { reason: Reason::Oversize, play: |script| script.read(1000, 300), window: (1000, 256, 256) },
    Case { reason: Reason::Random, play: |script| script.read(700, 2), window: (700, 2, 0) },
    Case {
        reason: Reason::Lookahead,
        play: |script| {
            script.read(0, 1);
            script.look();
            script.read(1, 1);
        },
        window: (4, 16, 16),
    },
    Case {
        reason: Reason::Readahead,
        play: |script| {
            script.read(0, 1);
            script.congested(true);
            script.read_all(1..4, 1);
            script.congested(false);
            script.look();
            script.read(4, 1);
        },
        window: (4, 16, 16),
    },
    Case {
        reason: Reason::Miss,
        play: |script| {
            script.read(99, 1);
            script.look();
            script.read(100, 1);
        },
        window: (100, 4, 3),
    },
    Case {
        reason: Reason::Interleaved,
        play: |script| {
            script.read_all(299..301, 1);
            script.open();
            script.look();
            script.read(301, 1);
        },
        window: (302, 16, 3),
    },
];

pub(super) fn fill(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    sizes(sheet)?;
    tables(sheet)?;
    changes(sheet)
}

/// 2.1: initial sizes, ramp-up, chunks.
fn sizes(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    const TABLE: &str = "2.1, readahead size";
    let windows = |seen: &Seen| -> Vec<u64> {
        seen.decided.iter().map(|one| one.window().1).filter(|&size| size > 0).collect()
    };
    for (pages, times) in [(4, 4.0), (32, 2.0)] {
        let seen = script::both(RA_PAGES, 4096, |script| script.read(0, pages))?;
        let ours = of(&seen, |seen| windows(seen)[0] / pages);
        let row = format!("first window of a reader of {pages} pages, times the read");
        sheet.exact(TABLE, &row, "times", [times; 2], ours);
    }
    let seen = sheet.play("2.1, pages one after the other", RA_PAGES, 4096, |script| {
        script.read_all(0..600, 1);
    })?;
    for (place, times) in [(1, 4.0), (2, 2.0)] {
        let ours = of(&seen, |seen| windows(seen)[place] / windows(seen)[place - 1]);
        let row = format!("window {} of a reader of single pages, times the one before", place + 1);
        sheet.exact(TABLE, &row, "times", [times; 2], ours);
    }
    let ours = of(&seen, |seen| windows(seen).into_iter().max().unwrap_or(0));
    sheet.exact(TABLE, "largest window", "pages", [256.0; 2], ours);
    let seen = script::both(RA_PAGES, 4096, |script| script.read(0, 1024))?;
    let theirs = Pair { baseline: Some(4.0), improved: None };
    let ours = pair(of(&seen, |seen| seen.calls));
    sheet.add(
        "2.1, over-size reads",
        "calls of a read of 4 MiB: once a chunk",
        "calls",
        (theirs, ours),
        Bar::Within(0.0),
    );
    Ok(())
}

/// Tables 2 and 3.
fn tables(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    for Case { reason, play, window: (start, size, ahead) } in CASES {
        let name = format!("table 2, {}", reason.name());
        let seen = sheet.play(&name, RA_PAGES, 4096, play)?;
        let first = seen[1].decided.first().map(|one| one.decision.plan);
        let wanted = Window { start: PageIndex(start), size: PageCount(size), async_size: PageCount(ahead) };
        let same = first.is_some_and(|plan| plan.reason == reason && plan.window == wanted);
        let theirs = Pair { baseline: None, improved: Some(size as f64) };
        let asked = |seen: &Seen| seen.decided.first().map(|one| one.window().1 as f64);
        let ours = Pair { baseline: asked(&seen[0]), improved: asked(&seen[1]) };
        let row = format!("{}: ra_size", reason.name());
        let figure = sheet.add("tables 2 and 3", &row, "pages", (theirs, ours), Bar::Within(0.0));
        figure.bar = format!("{} at {start}+{size}/{ahead}", reason.name());
        if !same {
            figure.differ();
        }
    }
    Ok(())
}

/// 2.4: "notable changes".
fn changes(sheet: &mut Sheet) -> Result<(), ReproduceError> {
    let overlapped = "2.4, 8 pages at random of which the first 4 are cached";
    let seen = sheet.play(overlapped, RA_PAGES, 4096, |script| {
        script.read(1000, 4);
        script.open();
        script.look();
        script.read(1000, 8);
    })?;
    let page = of(&seen, |seen| seen.decided.first().map_or(0, |one| one.decision.page.0 - 1000));
    sheet.exact(
        "2.4, overlapped random reads",
        "page of the read at which I/O is asked for",
        "page",
        [0.0, 4.0],
        page,
    );
    let lookups = of(&seen, |seen| seen.lookups);
    let bar = Bar::GainFrom(0.0, 0.999);
    let pairs = (Pair::default(), pair(lookups));
    sheet.change("2.4, overlapped random reads", "page-cache look-ups", "look-ups", pairs, bar, |figure| {
        figure.stated().note("\"avoids some unnecessary page-cache lookups\"")
    });
    let mut cheated = [0.0; 2];
    for stride in 2..=64 {
        let seen = script::both(RA_PAGES, 1 << 14, |script| {
            (0..200).for_each(|read| script.read(read * stride, 1));
        })?;
        let largest = |seen: &Seen| seen.decided.iter().any(|one| one.window().1 >= u64::from(RA_PAGES));
        cheated[0] += f64::from(u8::from(largest(&seen[0])));
        cheated[1] += f64::from(u8::from(largest(&seen[1])));
    }
    let theirs = Pair { baseline: None, improved: Some(0.0) };
    let bar = Bar::Within(0.0);
    sheet.add(
        "2.4, stride reads",
        "strides of 2 to 64 pages that ramp up to the largest window",
        "strides",
        (theirs, pair(cheated)),
        bar,
    );
    sheet.play("2.4, every second page (figure 4 asks \"random?\" first; its prose and the patch have \"readahead\" here)", RA_PAGES, 4096, |script| {
        (0..50).for_each(|read| script.read(read * 2, 1));
    })?;
    Ok(())
}
