//! Arithmetic of readahead windows: initial and next size (Linux since 2005; figure 4 of the OLS
//! paper of 2007, and the on-demand patch).

/// Size of the first window for a request of `req` pages, at most `max` pages.
///
/// The request rounded up to a power of two, times four if that is at most `max / 32`, times two if
/// at most `max / 4`, else `max`. For `max` = 32: 1–2 → 4, 3–4 → 8, 5–8 → 16, more → 32. A request
/// of 0 counts as 1.
pub fn initial_size(req: u64, max: u64) -> u64 {
    // Past 2^63 there is no next power of two, and the size is `max` anyway.
    let rounded = req.max(1).checked_next_power_of_two().unwrap_or(u64::MAX);
    if rounded <= max / 32 {
        rounded * 4
    } else if rounded <= max / 4 {
        rounded * 2
    } else {
        max
    }
}

/// Size of the window after one of `size` pages: times four below `max / 16`, else times two, at
/// most `max`.
///
/// At least 1: a window of 0 pages would otherwise stay at 0 for ever.
pub fn next_size(size: u64, max: u64) -> u64 {
    let grown = if size < max / 16 { size.saturating_mul(4) } else { size.saturating_mul(2) };
    grown.clamp(1, max.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_sizes_match_the_published_steps() {
        let steps =
            |max, reqs: &[u64]| reqs.iter().map(|&req| initial_size(req, max)).collect::<std::vec::Vec<_>>();
        assert_eq!(steps(32, &[0, 1, 2, 3, 4, 5, 8, 9, 32, 100]), [4, 4, 4, 8, 8, 16, 16, 32, 32, 32]);
        assert_eq!(
            steps(256, &[1, 2, 3, 4, 5, 16, 17, 32, 33, 64, 65]),
            [4, 8, 16, 16, 32, 32, 64, 64, 128, 128, 256]
        );
    }

    #[test]
    fn sizes_stay_in_bounds_and_never_shrink() {
        for max in 1..=4096u64 {
            for req in [1, 2, 3, max / 33, max / 32, max / 31, max / 4, max / 4 + 1, max, max + 1, u64::MAX] {
                let size = initial_size(req, max);
                assert!(size >= 1 && size <= max.max(4), "initial_size({req}, {max}) = {size}");
                assert!(size <= max, "initial_size({req}, {max}) = {size} is above max");
                assert!(size >= req.min(max), "initial_size({req}, {max}) = {size} is below the request");
            }
            for size in [0, 1, max / 16, max / 2, max - 1, max] {
                let next = next_size(size, max);
                assert!(next >= size && (1..=max).contains(&next), "next_size({size}, {max}) = {next}");
            }
        }
    }
}
