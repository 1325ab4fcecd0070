//! HTTP and listing time formats.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn rfc1123(seconds: u64) -> String {
    httpdate::fmt_http_date(time(seconds))
}

/// `1994-11-06T08:49:37.000Z`.
pub(super) fn rfc3339(seconds: u64) -> String {
    humantime::format_rfc3339_millis(time(seconds)).to_string()
}
