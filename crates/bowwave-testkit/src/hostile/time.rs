//! HTTP and listing time formats.

/// `Sun, 06 Nov 1994 08:49:37 GMT`.
pub(super) fn rfc1123(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = parts(seconds);
    let weekday = DAYS[(seconds / 86_400 % 7) as usize];
    let month = MONTHS[month - 1];
    format!("{weekday}, {day:02} {month} {year} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `1994-11-06T08:49:37.000Z`.
pub(super) fn rfc3339(seconds: u64) -> String {
    let (year, month, day, hour, minute, second) = parts(seconds);
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.000Z")
}

fn parts(seconds: u64) -> (u64, usize, u64, u64, u64, u64) {
    let (mut days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let length = |month: usize| LENGTHS[month] + u64::from(month == 1 && is_leap(year));
    while days >= length(month) {
        days -= length(month);
        month += 1;
    }
    (year, month + 1, days + 1, second / 3600, second / 60 % 60, second % 60)
}

/// 1 January 1970 was a Thursday.
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const LENGTHS: [u64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_both_forms() {
        for (seconds, http, list) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00.000Z"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT", "1994-11-06T08:49:37.000Z"),
            (1_709_208_000, "Thu, 29 Feb 2024 12:00:00 GMT", "2024-02-29T12:00:00.000Z"),
        ] {
            assert_eq!((rfc1123(seconds).as_str(), rfc3339(seconds).as_str()), (http, list));
        }
    }
}
