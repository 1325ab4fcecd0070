//! The modes, and what each call makes of them.
//!
//! An expectation has a letter for each of [`Call::ALL`]: `+` the call works, `F` it fails with an
//! errno (or the mount is refused), `?` either, `.` the store has no such call. Invariants hold
//! whatever the letter is.

use bowwave_testkit::hostile::{Dialect, Fault, Mode};

bowwave_core::named_enum! {
    /// A call on a mount, in the order of the letters.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Call {
        Mount = "mount",
        Stat = "stat",
        List = "list",
        Open = "open",
        Read = "read",
        Write = "write",
        /// A file of more than one part.
        Upload = "upload",
        /// SIGTERM while a read is in flight.
        End = "end",
    }
}

impl Call {
    pub(crate) fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Upload)
    }
}

/// A mode, the stores it is tried with, and the expectation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) mode: &'static str,
    pub(crate) stores: &'static str,
    pub(crate) expected: &'static str,
}

impl Row {
    pub(crate) fn dialects(&self) -> Vec<Dialect> {
        let named = self.stores.split(' ');
        named.filter_map(|name| Dialect::ALL.into_iter().find(|dialect| dialect.scheme() == name)).collect()
    }

    /// The letter of `call`. A mount ends whatever the mode is.
    pub(crate) fn letter(&self, call: Call) -> char {
        if call == Call::End { '+' } else { char::from(self.expected.as_bytes()[call as usize]) }
    }
}

const fn row(mode: &'static str, stores: &'static str, expected: &'static str) -> Row {
    assert!(expected.len() == Call::ALL.len() - 1, "a letter for each call but the end");
    Row { mode, stores, expected }
}

/// Every fault of the server, some of them for a part of the requests only.
pub(crate) const ROWS: &[Row] = &[
    // Letters: mount, stat, list, open, read, write, upload.
    row("honest", "s3 az gs", "+++++++"),
    row("honest", "http", "++.++.."),
    // A cloud store's requests are signed: no redirect to another host is followed. Web servers
    // redirect routinely.
    row("redirect-301-other-host", "s3 gs az", "FFFFFFF"),
    row("redirect-302-other-host", "az s3 gs", "FFFFFFF"),
    row("redirect-303-other-host", "gs s3 az", "FFFFFFF"),
    row("redirect-307-other-host", "s3 az gs", "FFFFFFF"),
    row("redirect-308-other-host", "s3 gs az", "FFFFFFF"),
    row("redirect-302-other-host", "http", "++.++.."),
    row("redirect-307-other-host", "http", "++.++.."),
    row("redirect-302-same-host", "s3 az gs", "???????"),
    row("redirect-307-same-host", "s3 gs az", "???????"),
    row("redirect-302-same-host", "http", "++.++.."),
    row("redirect-loop", "s3 az gs", "FFFFFFF"),
    row("redirect-loop", "http", "+F.FF.."),
    row("redirect-nowhere", "gs s3 az", "FFFFFFF"),
    row("redirect-nowhere", "http", "+F.FF.."),
    row("redirect-garbage", "az s3 gs", "FFFFFFF"),
    row("redirect-garbage", "http", "+F.FF.."),
    row("redirect-file", "s3 az gs", "FFFFFFF"),
    row("redirect-file", "http", "+F.FF.."),
    // Transient errors are retried, others are reported within the deadline.
    row("status-503,calls=metadata,every=4", "s3 az gs", "+++++++"),
    row("status-503,calls=metadata,every=4", "http", "++.++.."),
    row("status-503,first=1", "s3 gs az", "+++++++"),
    row("status-503,first=2", "az s3 gs", "+++++++"),
    row("status-500,first=1", "s3 az gs", "+++++++"),
    row("status-500", "s3 az gs", "FFFFFFF"),
    row("status-502", "gs s3 az", "FFFFFFF"),
    row("status-503", "s3 gs az", "FFFFFFF"),
    row("status-503", "http", "+F.FF.."),
    row("status-503,calls=metadata", "s3 az gs", "FFFF+??"),
    row("status-504", "az s3 gs", "FFFFFFF"),
    row("status-429", "s3 az gs", "FFFFFFF"),
    row("status-409", "s3 gs az", "FFFFFFF"),
    row("status-409,calls=writes", "s3 gs az", "+++++FF"),
    row("status-412", "s3 az gs", "FFFFFFF"),
    row("status-412,calls=writes", "s3 gs az", "+++++FF"),
    row("status-204", "s3 az gs", "FFFFFFF"),
    row("status-999", "s3 gs az", "FFFFFFF"),
    row("status-999", "http", "+F.FF.."),
    row("retry-after-1", "s3 az gs", "FFFFFFF"),
    row("retry-after-1,first=1", "s3 gs az", "+++++++"),
    row("retry-after-billion", "gs s3 az", "FFFFFFF"),
    row("retry-after-billion", "http", "+F.FF.."),
    row("retry-after-billion,first=1", "s3 az gs", "???????"),
    row("retry-after-date", "s3 az gs", "FFFFFFF"),
    row("retry-after-negative", "az s3 gs", "FFFFFFF"),
    row("retry-after-garbage", "s3 gs az", "FFFFFFF"),
    row("retry-after-1-of-429", "s3 az gs", "FFFFFFF"),
    row("retry-after-billion-of-429", "s3 gs az", "FFFFFFF"),
    row("reset-before-head", "s3 az gs", "FFFFFFF"),
    row("reset-before-head,every=3", "s3 gs az", "+++++++"),
    row("reset-in-head", "s3 gs az", "FFFFFFF"),
    row("reset-in-body", "s3 az gs", "F+F+??F"),
    row("reset-in-body", "http", "++.+?.."),
    row("reset-in-body,calls=reads,every=3", "s3 gs az", "+++++++"),
    row("reset-in-body,calls=reads,after=1", "http", "++.+F.."),
    row("refused", "s3 az gs", "FFFFFFF"),
    row("refused", "http", "+F.FF.."),
    // Bodies, heads and pages are limited in bytes and time.
    row("error-body-huge", "s3 az gs", "FFFFFFF"),
    row("error-body-huge", "http", "+F.FF.."),
    row("error-body-chunked", "gs s3 az", "FFFFFFF"),
    row("error-body-unannounced", "s3 gs az", "FFFFFFF"),
    row("error-body-drip", "az s3 gs", "FFFFFFF"),
    row("error-body-huge-of-500", "s3 az gs", "FFFFFFF"),
    row("error-body-chunked-of-503", "s3 gs az", "FFFFFFF"),
    row("endless-header", "s3 az gs", "FFFFFFF"),
    row("endless-header", "http", "+F.FF.."),
    row("endless-headers", "gs s3 az", "FFFFFFF"),
    row("huge-length", "s3 az gs", "F+F+F??"),
    row("huge-length", "http", "++.+F.."),
    // A response without a store's headers is not from the store.
    row("portal", "s3 az gs", "FFFFF??"),
    row("portal,calls=reads", "http", "++.+F.."),
    row("empty-200", "s3 gs az", "FFFFF??"),
    row("empty-200,calls=reads", "http", "++.+F.."),
    // Listings are complete or fail. A mount needs only their first page. A new file is also looked
    // up as a prefix, where pages with invented entries have some.
    row("list-repeated-token", "s3 az gs", "?+F++??"),
    row("list-empty-pages", "s3 gs az", "?+F++??"),
    row("list-repeated-pages", "az s3 gs", "?+F++??"),
    row("list-token-at-the-end", "s3 gs", "?+?++??"),
    row("list-truncated-without-token", "s3 gs", "?+F++??"),
    row("list-cut-off", "s3 az gs", "F+F++??"),
    row("list-wrong-root", "s3 gs az", "F+F++??"),
    row("list-nested", "s3 az gs", "?+?++??"),
    row("list-attributes", "s3 gs az", "?+?++??"),
    row("list-laughs", "az s3 gs", "?+?++??"),
    row("list-external-entity", "s3 az gs", "?+?++??"),
    row("list-10000", "s3 az gs", "+++++??"),
    row("list-wrong-type", "s3 gs az", "?+?++??"),
    row("list-not-utf8", "s3 az gs", "?+?++??"),
    row("list-hostile-keys", "s3 gs az", "+++++??"),
    row("list-negative-size", "s3 az gs", "?+?++??"),
    row("list-overflowing-size", "gs s3 az", "?+?++??"),
    row("list-duplicate-keys", "s3 az gs", "+++++++"),
    row("list-endless", "s3 az gs", "F+F++??"),
    // Every read returns the bytes of one version, or fails.
    row("replaced-after-head", "s3 az gs", "++++???"),
    row("replaced-after-head", "http", "++.+?.."),
    row("replaced-after-get", "s3 az gs", "++++?++"),
    row("replaced-after-get", "http", "++.+?.."),
    row("replaced-in-body", "s3 gs az", "++++?++"),
    row("replaced-in-body", "http", "++.+?.."),
    row("replaced-same-weak-tag", "s3 az gs", "++++???"),
    row("replaced-same-weak-tag", "http", "++.+?.."),
    row("replaced-tag-dropped-in-gets", "s3 gs az", "++++???"),
    row("replaced-tag-dropped-in-gets", "http", "++.+?.."),
    row("replaced-modified-alone", "s3", "++++???"),
    row("replaced-modified-alone", "http", "++.+?.."),
    row("replaced-modified-alone-unconditional", "s3", "++++???"),
    row("replaced-modified-alone-unconditional", "http", "++.+?.."),
    row("no-validators", "s3", "+?+????"),
    row("no-validators", "http", "++.++.."),
    row("replaced-no-validators-other-size", "http", "++.+?.."),
    row("replaced-unconditional", "s3 az gs", "++++?++"),
    row("replaced-unconditional", "http", "++.+?.."),
    row("replaced-same-tag-other-size", "s3 gs az", "++++???"),
    row("replaced-same-tag-other-size", "http", "++.+?.."),
    // A response with another range is rejected.
    row("range-other", "s3 az gs", "++++F++"),
    row("range-other", "http", "++.+F.."),
    row("range-other-total", "s3 gs az", "++++F++"),
    row("range-other-total", "http", "++.+F.."),
    row("range-short", "az s3 gs", "++++?++"),
    row("range-short", "http", "++.+?.."),
    row("range-whole-200", "s3 az gs", "++++F++"),
    row("range-whole-200", "http", "++.+?.."),
    row("range-part-200", "gs s3 az", "++++F++"),
    // A range request with status 200 delivers the whole file.
    row("range-part-200", "http", "++.++.."),
    row("range-gzip", "s3 az gs", "++++F++"),
    row("range-gzip", "http", "++.+F.."),
    row("range-multipart", "s3 gs az", "++++F++"),
    row("range-multipart", "http", "++.+F.."),
    row("body-short", "s3 az gs", "F+F+??F"),
    row("body-short", "http", "++.+?.."),
    row("body-short,calls=reads,every=3", "http", "++.++.."),
    row("body-long", "s3 gs az", "???????"),
    row("body-long", "http", "++.+?.."),
    row("two-lengths", "s3 az gs", "F?F?F?F"),
    row("two-lengths", "http", "+?.?F.."),
    row("chunked-garbage", "s3 az gs", "F+F+F?F"),
    row("chunked-garbage", "http", "++.+F.."),
    row("informational-flood", "s3 gs az", "FFFFFFF"),
    row("informational-flood", "http", "+F.FF.."),
    row("http-0.9", "s3 az gs", "FFFFFFF"),
    row("http-1.0", "s3 az gs", "+++++++"),
    row("http-1.0", "http", "++.++.."),
    row("header-garbage", "s3 gs az", "FFFFFFF"),
    row("extra-response", "s3 az gs", "+++++++"),
    row("extra-response", "http", "++.++.."),
    // Nothing waits beyond the deadline, however slowly bytes arrive.
    row("silent", "s3 az gs", "FFFFFFF"),
    row("silent", "http", "+F.FF.."),
    row("silent-after-head", "s3 gs az", "F+F+F?F"),
    row("silent-after-head", "http", "++.+F.."),
    row("silent-in-body", "s3 az gs", "F+F+??F"),
    row("silent-in-body,calls=reads,every=4", "http", "++.++.."),
    row("drip-head", "s3 az gs", "FFFFFFF"),
    row("drip-head", "http", "+F.FF.."),
    row("drip-body", "gs s3 az", "F+F+F?F"),
    row("drip-body", "http", "++.+F.."),
    row("trickle", "s3 az gs", "F+F+F??"),
    row("trickle", "http", "++.+F.."),
    row("upload-half-read", "s3 az gs", "+++++FF"),
    row("upload-unread", "s3 gs az", "+++++FF"),
    // An upload that is not in the store has failed.
    row("upload-error-in-200", "s3 gs az", "++++++F"),
    row("upload-no-tag", "s3 gs az", "+++++??"),
    row("upload-wrong-tag", "s3 gs az", "+++++??"),
    row("upload-done-but-412", "s3 gs az", "+++++??"),
    row("upload-done-but-404", "s3 gs", "+++++++"),
    row("upload-discarded", "s3 gs az", "+++++FF"),
    // The object is read in one request, so its checksum is known.
    row("flip", "s3 gs", "++++F++"),
    row("flip,first=1", "s3 gs", "++++?++"),
];

#[test]
fn every_fault_of_the_server_is_in_the_table() {
    let modes: Vec<Mode> = ROWS.iter().map(|row| row.mode.parse().expect("a mode of the server")).collect();
    for (name, fault) in Fault::all() {
        assert!(modes.contains(&Mode::of(fault)), "no row has `{name}`");
    }
    for row in ROWS {
        assert_eq!(row.dialects().len(), row.stores.split(' ').count(), "{row:?}: an unknown store");
        assert!(row.expected.chars().all(|letter| "+F?.".contains(letter)), "{row:?}: an unknown letter");
    }
}
