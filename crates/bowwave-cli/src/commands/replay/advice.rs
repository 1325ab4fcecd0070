//! Recommendations from the rows of a replay: up to four sentences per device.

use bowwave_sim::record::Row;

use super::table::{is_bound, size, time};

/// Of the runs within this factor of the best, the cheapest is named, too.
const AS_GOOD: f64 = 1.05;
/// Values whose ratio is at most this count as equal.
const THE_SAME: f64 = 1.01;

/// The quantity by which runs are compared; less is better.
#[derive(Clone, Copy)]
enum Measure {
    Seconds,
    Latency,
    Misses,
}

/// Maximum number of tied runs to name.
const NAMES_MAX: usize = 4;

/// One line per device. If `default`, the policy of a mount, did not run, the line says how to add
/// it. A device with a single run gets a line only in that case.
pub(super) fn advice(rows: &[Row], default: &str) -> Vec<String> {
    let mut places: Vec<String> = Vec::new();
    for row in rows {
        if !places.contains(&row.place()) {
            places.push(row.place());
        }
    }
    let of = |place: &String| {
        let rows: Vec<&Row> = rows.iter().filter(|row| row.place() == *place && !is_bound(row)).collect();
        match (about(&rows, default), left_out(&rows, default)) {
            (Some(about), Some(left_out)) => Some(format!("{place}: {about}. The {left_out}")),
            (Some(about), None) => Some(format!("{place}: {about}")),
            (None, Some(left_out)) => Some(format!("{place}: the {left_out}")),
            (None, None) => None,
        }
    };
    places.iter().filter_map(of).collect()
}

/// Says that the default policy did not run, and how to run it. `None` on a device that takes no
/// time: there, runs compare eviction, not readahead.
fn left_out(rows: &[&Row], default: &str) -> Option<String> {
    let mut policies: Vec<&str> = rows.iter().map(|row| row.policy.as_str()).collect();
    policies.sort_by_key(|policy| rows.iter().position(|row| row.policy == *policy));
    policies.dedup();
    let timed = rows.iter().any(|row| row.latency_ns.max > 0);
    (timed && !policies.contains(&default)).then(|| {
        format!("default policy, {default}, did not run: add --policy {},{default}", policies.join(","))
    })
}

fn about(rows: &[&Row], default: &str) -> Option<String> {
    let measure = Measure::of(rows);
    let by = |a: &&&Row, b: &&&Row| {
        measure.value(a).total_cmp(&measure.value(b)).then_with(|| cost(a).cmp(&cost(b)))
    };
    let best = *rows.iter().min_by(by)?;
    let worst = *rows.iter().max_by(by)?;
    let Some(times) = times(measure, best, worst) else {
        return (rows.len() > 1).then(|| {
            let least = name(cheapest(rows), rows);
            let all = if rows.len() == 2 { "both".to_owned() } else { format!("all {}", rows.len()) };
            format!("{all} runs tie, {}; {least} costs least", measure.say(best))
        });
    };
    let tied = |with: &Row| -> Vec<String> {
        let (value, of_it) = (measure.value(with), |row: &&&Row| measure.value(row));
        let same = |row: &&&Row| of_it(row).max(value) <= of_it(row).min(value) * THE_SAME;
        rows.iter().filter(same).map(|row| name(row, rows)).collect()
    };
    let (firsts, lasts) = (tied(best), tied(worst));
    let mut text = list(&firsts);
    text.push_str(if firsts.len() > 1 { " tie for best" } else { " is best" });
    if left_out(rows, default).is_some() {
        text.push_str(" of those that ran");
    }
    text.push_str(&format!(", {}", measure.say(best)));
    if let Some(regret) = best.regret {
        text.push_str(&format!(" ({regret:.2} times the oracle's)"));
    }
    let takes = match measure {
        _ if lasts.len() > 1 => "tie at",
        Measure::Misses => "has",
        Measure::Seconds | Measure::Latency => "takes",
    };
    text.push_str(&format!("; {} {takes} {}, {times}", list(&lasts), measure.say(worst)));
    let limit = measure.value(best) * AS_GOOD;
    let as_good: Vec<&Row> = rows.iter().copied().filter(|row| measure.value(row) <= limit).collect();
    let cheap = cheapest(&as_good);
    if cost(cheap) < cost(best) {
        text.push_str(&format!(
            ". Within 5 % of it, {} costs least ({} fetched)",
            name(cheap, rows),
            bytes(cheap.bytes_fetched)
        ));
    }
    if let Some(more) = more_cache(rows, measure) {
        text.push_str(&more);
    }
    Some(text)
}

/// `a`, `a and b`, `a, b and c`; at most `NAMES_MAX` names.
fn list(names: &[String]) -> String {
    match names {
        [one] => one.clone(),
        names if names.len() > NAMES_MAX => {
            format!("{} and {} more", names[..NAMES_MAX].join(", "), names.len() - NAMES_MAX)
        }
        [firsts @ .., last] => format!("{} and {last}", firsts.join(", ")),
        [] => String::new(),
    }
}

/// The gain of the largest cache over the smallest.
fn more_cache(rows: &[&Row], measure: Measure) -> Option<String> {
    let key = |row: &Row| row.cache_bytes.unwrap_or(u64::MAX);
    let smallest = rows.iter().map(|row| key(row)).min()?;
    let largest = rows.iter().map(|row| key(row)).max()?;
    if smallest == largest {
        return None;
    }
    let best_of = |cache| {
        let of_size = rows.iter().copied().filter(|row| key(row) == cache);
        of_size.min_by(|a, b| measure.value(a).total_cmp(&measure.value(b)))
    };
    let (small, large) = (best_of(smallest)?, best_of(largest)?);
    let sizes = format!("{} instead of {}", cache(large), cache(small));
    Some(match times(measure, large, small) {
        Some(_) => {
            format!(". A cache of {sizes} makes it {} instead of {}", measure.say(large), measure.say(small))
        }
        None => format!(". A cache of {sizes} gains nothing"),
    })
}

impl Measure {
    /// Time if it differs between runs, else latency if that differs. If neither does: misses on a
    /// device that takes no time, time on others. Times are equal if the trace sets the pace.
    fn of(rows: &[&Row]) -> Self {
        let differs = |measure: Self| {
            let values = || rows.iter().map(|row| measure.value(row));
            let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            most > least * THE_SAME
        };
        let timed = rows.iter().any(|row| row.latency_ns.max > 0);
        let tie = if timed { Self::Seconds } else { Self::Misses };
        [Self::Seconds, Self::Latency].into_iter().find(|&measure| differs(measure)).unwrap_or(tie)
    }

    fn value(self, row: &Row) -> f64 {
        match self {
            Self::Seconds => row.seconds,
            Self::Latency => row.latency_ns.p99 as f64,
            Self::Misses => row.misses as f64,
        }
    }

    fn say(self, row: &Row) -> String {
        match self {
            Self::Seconds => time((row.seconds * 1e9) as u64),
            Self::Latency => format!("{} for 99 of 100 reads", time(row.latency_ns.p99)),
            Self::Misses => format!("{} misses", row.misses),
        }
    }

    /// A worse value is `more` than another, or some times as `much`.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Seconds | Self::Latency => ("longer", "long"),
            Self::Misses => ("more", "many"),
        }
    }
}

/// How many times worse, as text; `None` if about the same.
fn times(measure: Measure, best: &Row, worst: &Row) -> Option<String> {
    let (best, worst) = (measure.value(best), measure.value(worst));
    let (more, much) = measure.words();
    if worst <= best * THE_SAME {
        return None;
    }
    Some(match worst / best {
        factor if factor.is_infinite() => "where it has none".to_owned(),
        factor if factor < 2.0 => format!("{:.0} % {more}", (factor - 1.0) * 100.0),
        factor => format!("{factor:.1} times as {much}"),
    })
}

/// Cost of a run: memory first, then bytes fetched, requests and the window.
fn cost(row: &Row) -> (u64, u64, u64, u32) {
    (row.cache_bytes.unwrap_or(u64::MAX), row.bytes_fetched, row.requests, row.ra_pages)
}

fn cheapest<'a>(rows: &[&'a Row]) -> &'a Row {
    rows.iter().copied().min_by_key(|row| cost(row)).expect("there is at least the best")
}

/// Names a run by its differences from the others.
fn name(row: &Row, rows: &[&Row]) -> String {
    let mut name = row.policy.clone();
    if rows.iter().any(|other| other.ra_pages != row.ra_pages) {
        name.push_str(&format!(" with windows of {} pages", row.ra_pages));
    }
    if rows.iter().any(|other| other.cache_bytes != row.cache_bytes) {
        name.push_str(&format!(" in {}", cache(row)));
    }
    if rows.iter().any(|other| other.seed != row.seed) {
        name.push_str(&format!(" (seed {})", row.seed));
    }
    name
}

fn cache(row: &Row) -> String {
    row.cache_bytes.map_or_else(|| "unlimited memory".to_owned(), size)
}

fn bytes(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        10_000_000..10_000_000_000 => format!("{} MB", bytes / 1_000_000),
        _ => format!("{} GB", bytes / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(policy: &str, cache_bytes: Option<u64>, seconds: f64, bytes_fetched: u64) -> Row {
        let device = "hdd".to_owned();
        Row { policy: policy.to_owned(), device, cache_bytes, seconds, bytes_fetched, ..Row::default() }
    }

    #[test]
    fn advice_names_the_best_the_cheapest_and_the_gain_of_more_cache() {
        let rows = [
            row("none", Some(1 << 20), 10.0, 50_000),
            row("ondemand", Some(1 << 20), 4.0, 70_000),
            row("none", Some(1 << 30), 3.1, 50_000),
            row("ondemand", Some(1 << 30), 3.0, 90_000),
        ];
        assert_eq!(
            advice(&rows, "none"),
            [
                "hdd: ondemand in 1 GiB is best, 3000 ms; none in 1 MiB takes 10 s, 3.3 times as long. Within 5 % of it, none \
              in 1 GiB costs least (50 kB fetched). A cache of 1 GiB instead of 1 MiB makes it 3000 ms instead of 4000 ms"
            ]
        );
    }

    #[test]
    fn of_a_tie_of_many_the_first_are_named() {
        let rows = ["none", "a", "b", "c", "d", "e"].map(|policy| row(policy, None, 5.0, 1));
        let rows = [&rows[..], &[row("f", None, 1.0, 1)]].concat();
        assert_eq!(
            advice(&rows, "none"),
            ["hdd: f is best, 1000 ms; none, a, b, c and 2 more tie at 5000 ms, 5.0 times as long"]
        );
    }

    #[test]
    fn runs_of_equal_time_are_compared_by_latency_then_by_misses() {
        let mut rows = [row("none", None, 5.0, 1), row("linux", None, 5.0, 1)];
        rows[0].latency_ns.p99 = 20_000_000;
        rows[1].latency_ns.p99 = 1000;
        assert_eq!(
            advice(&rows, "none"),
            [
                "hdd: linux is best, 1000 ns for 99 of 100 reads; none takes 20 ms for 99 of 100 reads, 20000.0 times as long"
            ]
        );
        rows[0].latency_ns.p99 = 1000;
        rows[1].misses = 7;
        assert_eq!(
            advice(&rows, "none"),
            ["hdd: none is best, 0 misses; linux has 7 misses, where it has none"]
        );
        rows[1].misses = 0;
        rows[1].requests = 1;
        assert_eq!(advice(&rows, "none"), ["hdd: both runs tie, 0 misses; none costs least"]);
        assert_eq!(advice(&rows[..1], "none"), [""; 0]);
    }
}
