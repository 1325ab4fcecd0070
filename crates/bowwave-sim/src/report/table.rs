//! The table of runs, which needs no script.

use std::fmt::Write;

use super::page::escaped;
use super::say::Groups;
use super::units::{bytes, count, percent, three, time, visible};
use super::view::View;
use crate::record::Row;

/// A column: its head, what the head's tip says, and the cell: what sorts it and what is shown.
struct Column {
    head: &'static str,
    tip: &'static str,
    cell: fn(&Row) -> (f64, String),
}

const fn column(head: &'static str, tip: &'static str, cell: fn(&Row) -> (f64, String)) -> Column {
    Column { head, tip, cell }
}

/// The head of the column that is shown where runs differ in it only.
const SEED: &str = "seed";

const COLUMNS: &[Column] = &[
    column("cache", "size of the cache", |row| match row.cache_bytes {
        Some(cache) => (cache as f64, bytes(cache as f64)),
        None => (f64::MAX, "unlimited".to_owned()),
    }),
    column("ra_pages", "most pages of a readahead window", |row| whole(row.ra_pages.into())),
    column(SEED, "seed of what was drawn", |row| (row.seed as f64, row.seed.to_string())),
    column("time", "simulated time", |row| (row.seconds, time(row.seconds * 1e9))),
    column("read / wanted", "bytes read from the device for each byte wanted", |row| {
        (row.amplification, three(row.amplification))
    }),
    column("hits", "pages that were there when they were wanted", |row| share(row.hits, row.accesses)),
    column("late", "pages that were on their way", |row| share(row.late, row.accesses)),
    column("misses", "pages that were neither", |row| share(row.misses, row.accesses)),
    column("requests", "requests to the device", |row| whole(row.requests)),
    column("avg I/O", "average size of a request", |row| (row.avg_io_bytes, bytes(row.avg_io_bytes))),
    column("busy", "share of the time that the device was busy", |row| {
        (row.utilisation, short(percent(row.utilisation, 1.0)))
    }),
    column("p50", "median latency of a read", |row| nanoseconds(row.latency_ns.p50)),
    column("p90", "90 of 100 reads are no slower", |row| nanoseconds(row.latency_ns.p90)),
    column("p99", "99 of 100 reads are no slower", |row| nanoseconds(row.latency_ns.p99)),
    column("max", "the slowest read", |row| nanoseconds(row.latency_ns.max)),
    column("used", "pages read ahead and used", |row| whole(row.pages_used)),
    column("wasted", "pages read ahead and never wanted", |row| whole(row.pages_wasted)),
    column("thrashed", "pages read ahead, evicted unused and then wanted", |row| whole(row.pages_thrashed)),
];

fn whole(number: u64) -> (f64, String) {
    (number as f64, count(number))
}

fn share(part: u64, whole: u64) -> (f64, String) {
    (part as f64 / whole.max(1) as f64, short(percent(part as f64, whole as f64)))
}

/// A share in the width of a cell.
fn short(percent: String) -> String {
    percent.replace("over ", "&gt;").replace("under ", "&lt;")
}

fn nanoseconds(latency: u64) -> (f64, String) {
    (latency as f64, time(latency as f64))
}

/// The table as HTML.
pub(super) fn html(views: &[View], groups: &Groups) -> String {
    let mut html = String::from("<thead><tr>");
    let mut head = |name: &str, tip: &str, class: &str| {
        let _never_fails = write!(html, "<th scope=\"col\"{class} title=\"{}\">{name}</th>", escaped(tip));
    };
    head("#", "number of the run", "");
    head("policy", "readahead policy; a star marks the best of a device and cache size", " class=\"word\"");
    head("device", "device model", " class=\"word\"");
    let evictions = views.iter().any(|view| !view.row.eviction.is_empty());
    if evictions {
        head("eviction", "which pages go first", " class=\"word\"");
    }
    let seeds = views.iter().any(|view| view.row.seed != views[0].row.seed);
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| seeds || column.head != SEED).collect();
    columns.iter().for_each(|column| head(column.head, column.tip, ""));
    html += "</tr></thead>\n<tbody>\n";
    for (index, view) in views.iter().enumerate() {
        row(&mut html, index, view, groups.is_best(index), evictions, &columns);
    }
    html + "</tbody>"
}

/// Requests by class, a table a run; scripts show that of the chosen run alone.
pub(super) fn classes(views: &[View]) -> String {
    let with = views.iter().enumerate().filter(|(_, view)| !view.row.classes.is_empty());
    with.map(|(index, view)| of_run(index, view)).collect()
}

fn of_run(index: usize, view: &View) -> String {
    let heads =
        ["class", "requests", "past deadline", "queued", "at most", "p50", "p90", "p99", "max", "waited p99"];
    let heads: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let name = escaped(view.name());
    let mut html = format!(
        "<li data-run=\"{index}\"><div class=\"scroll\"><table class=\"classes\"><caption><bdi>{name}</bdi></caption>\
         <thead><tr>{heads}</tr></thead><tbody>"
    );
    for class in &view.row.classes {
        let what = match (&*class.class, &*class.op) {
            ("sync", "read") => "reads waited for".to_owned(),
            ("async", "read") => "readahead".to_owned(),
            ("sync", "write") => "writes waited for".to_owned(),
            ("async", "write") => "write-back".to_owned(),
            (class, op) => escaped(&visible(&format!("{class} {op}"))),
        };
        let latency = class.latency_ns;
        let cells = [
            count(class.requests),
            count(class.expired),
            three(class.depth),
            count(class.depth_max.into()),
            time(latency.p50 as f64),
            time(latency.p90 as f64),
            time(latency.p99 as f64),
            time(latency.max as f64),
            time(class.waited_ns.p99 as f64),
        ];
        let cells: String = cells.iter().map(|cell| format!("<td>{cell}</td>")).collect();
        html += &format!("<tr><th scope=\"row\">{what}</th>{cells}</tr>");
    }
    html + "</tbody></table></div></li>\n"
}

fn row(html: &mut String, index: usize, view: &View, best: bool, evictions: bool, columns: &[&Column]) {
    let class = if best { " class=\"best\"" } else { "" };
    let star = if best {
        " <span class=\"star\" title=\"best\">★<span class=\"hidden\"> best</span></span>"
    } else {
        ""
    };
    let (policy, device) = (escaped(&view.row.policy), escaped(&view.row.place()));
    let number = index + 1;
    let _never_fails = write!(
        html,
        "<tr{class} data-run=\"{index}\"><td data-v=\"{number}\">{number}</td>\
         <th scope=\"row\" class=\"word\"><bdi>{policy}</bdi>{star}</th><td class=\"word\"><bdi>{device}</bdi></td>"
    );
    if evictions {
        *html += &format!("<td class=\"word\"><bdi>{}</bdi></td>", escaped(&view.row.eviction));
    }
    for column in columns {
        let (value, shown) = (column.cell)(&view.row);
        let _never_fails = write!(html, "<td data-v=\"{value}\">{shown}</td>");
    }
    *html += "</tr>\n";
}
