//! Unit tests of the state machines; `bowwave-sim` drives them together against faulty servers.

use alloc::string::ToString as _;
use alloc::vec::Vec;

use super::*;
use crate::Instant;

const MS: u64 = 1_000_000;
const TRANSIENT: Failure = Failure { transient: true, retry_after_ns: None };

fn limits() -> RetryLimits {
    RetryLimits { attempts_max: 4, budget_ns: 1000 * MS, ..RetryLimits::default() }
}

#[test]
fn pauses_stay_between_the_minimum_and_three_times_the_previous_one() {
    for random in [0, u64::MAX, u64::MAX / 2] {
        let mut retry =
            Retry::new(RetryLimits { attempts_max: 30, budget_ns: u64::MAX, ..limits() }, Instant(0));
        let (mut now, mut before) = (0, 10 * MS);
        while let Verdict::Again(at) = retry.failed(Instant(now), TRANSIENT, random) {
            let pause = at.0 - now;
            assert!((10 * MS..=(3 * before).min(5000 * MS)).contains(&pause), "{pause} ns after {before} ns");
            (now, before) = (at.0, pause);
        }
        assert_eq!(retry.attempts(), 30);
    }
}

#[test]
fn attempts_time_and_permanent_errors_end_a_call() {
    let mut retry = Retry::new(limits(), Instant(0));
    assert_eq!(retry.deadline(), Some(Instant(1000 * MS)));
    for _ in 1..4 {
        assert!(matches!(retry.failed(Instant(0), TRANSIENT, 0), Verdict::Again(_)));
    }
    assert_eq!(retry.failed(Instant(0), TRANSIENT, 0), Verdict::GiveUp(GiveUp::Attempts));

    let mut retry = Retry::new(limits(), Instant(0));
    assert_eq!(retry.failed(Instant(995 * MS), TRANSIENT, 0), Verdict::GiveUp(GiveUp::Time));
    let permanent = Failure { transient: false, retry_after_ns: None };
    assert_eq!(retry.failed(Instant(0), permanent, 0), Verdict::GiveUp(GiveUp::Permanent));
}

#[test]
fn retry_after_is_waited_for_within_the_budget_only() {
    let asks = |ms: u64| Failure { transient: true, retry_after_ns: Some(ms.saturating_mul(MS)) };
    let mut retry = Retry::new(limits(), Instant(0));
    assert_eq!(retry.failed(Instant(0), asks(400), 0), Verdict::Again(Instant(400 * MS)));
    assert_eq!(retry.failed(Instant(400 * MS), asks(700), 0), Verdict::GiveUp(GiveUp::Time));
    assert_eq!(retry.failed(Instant(400 * MS), asks(u64::MAX), 0), Verdict::GiveUp(GiveUp::Time));
}

#[test]
fn the_budget_of_an_upload_starts_with_its_first_failure() {
    let mut retry = Retry::new(RetryLimits { from_first_failure: true, ..limits() }, Instant(0));
    assert_eq!(retry.deadline(), None);
    let late = 1_000_000 * MS;
    assert!(matches!(retry.failed(Instant(late), TRANSIENT, 0), Verdict::Again(_)));
    assert_eq!(retry.deadline(), Some(Instant(late + 1000 * MS)));
}

#[test]
fn a_response_needs_a_head_in_time_and_the_least_throughput_in_each_period() {
    let limits = PaceLimits { silence_ns: 1000 * MS, least_rate: 100 };
    let mut pace = Pace::new(limits, Instant(0));
    assert_eq!(pace.due(), Instant(1000 * MS));
    assert_eq!(pace.check(Instant(1000 * MS)), Err(TooSlow::Silent));

    // One byte each 0.8 s is no silence, and too slow.
    let mut pace = Pace::new(limits, Instant(0));
    pace.head(Instant(0));
    assert_eq!(pace.bytes(Instant(800 * MS), 1), Ok(()));
    assert_eq!(pace.due(), Instant(1000 * MS));
    assert_eq!(pace.check(Instant(1000 * MS)), Err(TooSlow::Dripping { bytes: 1 }));

    // Enough in one period does not count for the next.
    let mut pace = Pace::new(limits, Instant(0));
    pace.head(Instant(0));
    assert_eq!(pace.bytes(Instant(900 * MS), 10_000), Ok(()));
    assert_eq!(pace.check(Instant(1000 * MS)), Ok(()));
    assert_eq!(pace.bytes(Instant(1800 * MS), 99), Ok(()));
    assert_eq!(pace.check(Instant(2000 * MS)), Err(TooSlow::Dripping { bytes: 99 }));

    // Without a floor, only silence counts; empty pieces are silence.
    let mut pace = Pace::new(PaceLimits { least_rate: 0, ..limits }, Instant(0));
    pace.head(Instant(0));
    assert_eq!(pace.bytes(Instant(900 * MS), 1), Ok(()));
    assert_eq!(pace.bytes(Instant(1800 * MS), 0), Ok(()));
    assert_eq!(pace.check(Instant(1900 * MS)), Err(TooSlow::Silent));
}

fn version(etag: &str, modified: &str, size: u64) -> Validators {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_string());
    Validators { etag: text(etag), modified: text(modified), size: Some(size) }
}

#[test]
fn all_validators_that_both_have_must_agree() {
    let (same, changed, missing) = (Ok(()), Err(Difference::Changed), Err(Difference::Missing));
    for (then, now, expected) in [
        (version("\"a\"", "", 1), version("\"a\"", "", 1), same),
        (version("\"a\"", "", 1), version("\"b\"", "", 1), changed),
        (version("\"a\"", "", 1), version("\"a\"", "", 2), changed),
        (version("\"a\"", "t", 1), version("\"a\"", "u", 1), changed),
        (version("\"a\"", "t", 1), version("\"a\"", "", 1), same),
        (version("\"a\"", "t", 1), version("", "t", 1), missing),
        (version("\"a\"", "t", 1), version("W/\"a\"", "t", 1), changed),
        (version("W/\"a\"", "t", 1), version("W/\"a\"", "t", 1), same),
        (version("W/\"a\"", "t", 1), version("W/\"a\"", "u", 1), changed),
        (version("W/\"a\"", "t", 1), version("W/\"a\"", "", 1), missing),
        (version("", "t", 1), version("", "u", 1), changed),
        (version("", "t", 1), version("\"a\"", "", 1), missing),
        (version("W/\"a\"", "", 1), version("W/\"b\"", "", 1), changed),
        (version("", "", 1), version("", "", 1), same),
        (version("", "", 1), version("", "", 2), changed),
    ] {
        assert_eq!(then.check(&now), expected, "{then:?} and {now:?}");
    }
}

#[test]
fn weak_tags_are_no_condition_and_identify_nothing() {
    assert_eq!(version("\"a\"", "t", 1).condition(), Some(Condition::IfMatch("\"a\"")));
    for weak in ["W/\"a\"", "w/\"a\"", " W/\"a\""] {
        assert_eq!(version(weak, "t", 1).condition(), Some(Condition::IfUnmodifiedSinceNext("t")));
        assert_eq!(version(weak, "t", 1).strength(), Strength::Dated);
        assert_eq!(version(weak, "", 1).condition(), None);
        assert_eq!(version(weak, "", 1).strength(), Strength::None);
    }
    assert_eq!(version("\"W/a\"", "", 1).strength(), Strength::Strong);
}

#[test]
fn a_response_is_the_requested_range_of_the_version_or_refused() {
    let expected = Expected { version: version("\"a\"", "", 1000), start: 100, end: 200 };
    let right = Response {
        status: 206,
        version: version("\"a\"", "", 1000),
        range: Some((100, 200)),
        has_range: true,
        length: Some(100),
        encoded: false,
    };
    assert_eq!(expected.check(&right), Ok(()));
    let refused = |response: Response| expected.check(&response).expect_err("is refused");
    assert_eq!(refused(Response { range: Some((0, 100)), ..right.clone() }), Fault::OtherRange);
    assert_eq!(refused(Response { range: None, ..right.clone() }), Fault::OtherRange);
    assert_eq!(refused(Response { range: None, has_range: false, ..right.clone() }), Fault::Unplaced);
    assert_eq!(refused(Response { encoded: true, ..right.clone() }), Fault::Encoded);
    assert_eq!(refused(Response { length: Some(99), ..right.clone() }), Fault::Length(99));
    assert_eq!(refused(Response { version: version("", "", 1000), ..right.clone() }), Fault::Unversioned);
    assert_eq!(refused(Response { version: version("\"a\"", "", 999), ..right.clone() }), Fault::Changed);
    assert_eq!(refused(Response { status: 200, length: Some(1000), ..right.clone() }), Fault::NoRanges);
    assert_eq!(refused(Response { status: 404, ..right.clone() }), Fault::Changed);
    assert_eq!(refused(Response { status: 503, ..right.clone() }), Fault::Status);
    let whole = Expected { start: 0, end: 1000, ..expected.clone() };
    assert_eq!(whole.check(&Response { status: 200, length: Some(1000), ..right }), Ok(()));
}

#[test]
fn a_range_without_the_size_proves_a_version_by_its_strong_tag_only() {
    for (then, expected) in [
        (version("\"a\"", "t", 1000), Ok(())),
        (version("W/\"a\"", "t", 1000), Err(Fault::Unversioned)),
        (version("", "", 1000), Err(Fault::Unversioned)),
        (Validators { size: None, ..version("", "t", 0) }, Ok(())),
    ] {
        let sizeless = Validators { size: None, ..then.clone() };
        let response = Response {
            status: 206,
            version: sizeless,
            range: Some((100, 200)),
            has_range: true,
            ..Response::default()
        };
        let requested = Expected { version: then, start: 100, end: 200 };
        assert_eq!(requested.check(&response), expected, "{requested:?}");
    }
}

fn listing() -> Listing {
    Listing::new(ListingLimits {
        idle_pages_max: 3,
        entries_max: 100,
        bytes_max: 10_000,
        deadline: Instant(1000),
    })
}

fn page(new_entries: u64, truncated: Option<bool>, next: Option<&str>) -> Page<'_> {
    Page { new_entries, bytes: 100, truncated, next }
}

#[test]
fn a_listing_ends_where_the_store_says() {
    let mut pages = listing();
    assert_eq!(pages.page(Instant(0), page(10, Some(true), Some("a"))), Ok(true));
    // Stores skip deleted keys by pages without entries.
    assert_eq!(pages.page(Instant(0), page(0, Some(true), Some("b"))), Ok(true));
    assert_eq!(pages.page(Instant(0), page(10, Some(false), None)), Ok(false));
    assert_eq!(listing().page(Instant(0), page(1, Some(false), Some("a"))), Ok(false));
    assert_eq!(listing().page(Instant(0), page(1, None, Some(""))), Ok(false));
    assert_eq!(listing().page(Instant(0), page(1, None, Some("a"))), Ok(true));
}

#[test]
fn listings_without_progress_are_given_up() {
    assert_eq!(listing().page(Instant(0), page(1, Some(true), None)), Err(ListingEnd::NoToken));
    let mut repeated = listing();
    assert_eq!(repeated.page(Instant(0), page(1, Some(true), Some("a"))), Ok(true));
    assert_eq!(repeated.page(Instant(0), page(1, Some(true), Some("b"))), Ok(true));
    assert_eq!(repeated.page(Instant(0), page(1, Some(true), Some("a"))), Err(ListingEnd::Repeated));

    let tokens: Vec<_> = (0..200).map(|token: u32| token.to_string()).collect();
    let until_the_end = |entries: u64, at: u64| {
        let mut pages = listing();
        let mut ends = tokens
            .iter()
            .filter_map(|token| pages.page(Instant(at), page(entries, Some(true), Some(token))).err());
        ends.next().expect("ends")
    };
    assert_eq!(until_the_end(0, 0), ListingEnd::Idle { pages: 4 });
    assert_eq!(until_the_end(7, 0), ListingEnd::Entries(100));
    assert_eq!(until_the_end(1, 0), ListingEnd::Entries(100));
    assert_eq!(until_the_end(1, 1000), ListingEnd::Time);
    let large = Page { bytes: 20_000, ..page(1, Some(true), Some("a")) };
    assert_eq!(listing().page(Instant(0), large), Err(ListingEnd::Bytes(10_000)));
}

#[test]
fn at_most_the_given_share_of_reads_is_hedged() {
    for percent in [0, 1, 5, 40, 100] {
        let mut hedging = Hedging::new(30 * MS, percent);
        let mut granted = 0;
        for read in 1..=1000u64 {
            hedging.begin();
            granted += u64::from(hedging.grant());
            assert_eq!(granted, read * u64::from(percent) / 100, "{percent} % of {read}");
        }
    }
}

#[test]
fn late_is_what_takes_longer_than_nearly_all_reads() {
    let mut hedging = Hedging::new(30 * MS, 5);
    assert_eq!(hedging.begin(), 30 * MS * LATE_AT_FIRST);
    (0..100).for_each(|n| hedging.took((40 + n % 3) * MS));
    assert!((60 * MS..65 * MS).contains(&hedging.late_ns()), "{hedging:?}");
    // One very late read moves it for a while.
    hedging.took(1000 * MS);
    assert!(hedging.late_ns() < 200 * MS, "{hedging:?}");
    (0..20).for_each(|n| hedging.took((40 + n % 3) * MS));
    assert!(hedging.late_ns() < 70 * MS, "{hedging:?}");
}
