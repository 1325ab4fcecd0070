//! The table of runs, which needs no script.

use std::fmt::Write;

use super::compare;
use super::groups::Groups;
use super::page::escaped;
use super::units::{bytes, count, percent, three, time, visible};
use super::view::View;
use crate::record::Row;

/// A column: heading, tooltip, and the cell's sort key and text.
struct Column {
    head: &'static str,
    tip: &'static str,
    cell: fn(&Row) -> (f64, String),
    /// Whether to omit it if all runs have the same value.
    only_if_varied: bool,
    /// Whether bounds have it, too.
    of_bounds: bool,
}

impl Column {
    const fn only_if_varied(self) -> Self {
        Self { only_if_varied: true, ..self }
    }

    const fn of_bounds(self) -> Self {
        Self { of_bounds: true, ..self }
    }
}

const fn column(head: &'static str, tip: &'static str, cell: fn(&Row) -> (f64, String)) -> Column {
    Column { head, tip, cell, only_if_varied: false, of_bounds: false }
}

const COLUMNS: &[Column] = &[
    column("ra_pages", "most pages of a readahead window", |row| whole(row.ra_pages.into())).only_if_varied(),
    column("seed", "seed of what was drawn", |row| (row.seed as f64, row.seed.to_string())).only_if_varied(),
    column("time", "simulated time", |row| (row.seconds, time(row.seconds * 1e9))).of_bounds(),
    column("read / wanted", "bytes read from the device for each byte wanted", |row| {
        (row.amplification, three(row.amplification))
    })
    .of_bounds(),
    column("hits", "pages that were there when they were wanted", |row| share(row.hits, row.accesses))
        .of_bounds(),
    column("late", "pages that were in flight", |row| share(row.late, row.accesses)),
    column("misses", "pages that were neither", |row| share(row.misses, row.accesses)).of_bounds(),
    column("requests", "requests to the device", |row| whole(row.requests)).of_bounds(),
    column("avg I/O", "average size of a request", |row| (row.avg_io_bytes, bytes(row.avg_io_bytes)))
        .of_bounds(),
    column("busy", "share of the time that the device was busy", |row| {
        (row.utilisation, short(percent(row.utilisation, 1.0)))
    }),
    column("p50", "median latency of a read", |row| nanoseconds(row.latency_ns.p50)),
    column("p90", "90 of 100 reads are no slower", |row| nanoseconds(row.latency_ns.p90)),
    column("p99", "99 of 100 reads are no slower", |row| nanoseconds(row.latency_ns.p99)),
    column("max", "the slowest read", |row| nanoseconds(row.latency_ns.max)),
    column("used", "pages read ahead and used", |row| whole(row.pages_used)),
    column("wasted", "pages read ahead and never wanted", |row| whole(row.pages_wasted)),
    column("thrashed", "pages read ahead, evicted unused and then wanted", |row| whole(row.pages_thrashed))
        .only_if_varied(),
];

fn whole(number: u64) -> (f64, String) {
    (number as f64, count(number))
}

fn share(part: u64, whole: u64) -> (f64, String) {
    (part as f64 / whole.max(1) as f64, short(percent(part as f64, whole as f64)))
}

/// A percentage in the width of a cell.
fn short(percent: String) -> String {
    percent.replace("over ", "&gt;").replace("under ", "&lt;")
}

fn nanoseconds(latency: u64) -> (f64, String) {
    (latency as f64, time(latency as f64))
}

/// The table as HTML, with a body for each device and cache size.
pub(super) fn html(views: &[View], groups: &Groups) -> String {
    let evictions = views.iter().any(|view| view.row.eviction != views[0].row.eviction);
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| column.is_worth_it(views)).collect();
    let mut html = String::from("<thead><tr>");
    let mut head = |name: &str, tip: &str, class: &str| {
        let _never_fails = write!(html, "<th scope=\"col\"{class} title=\"{}\">{name}</th>", escaped(tip));
    };
    head("#", "number of the run", "");
    head("policy", "readahead policy; a star marks the best of a device and cache size", " class=\"word\"");
    if evictions {
        head("eviction", "which pages go first", " class=\"word\"");
    }
    columns.iter().for_each(|column| head(column.head, column.tip, ""));
    html += "</tr></thead>\n";
    for (number, group) in groups.0.iter().enumerate() {
        let _never_fails = writeln!(
            html,
            "<tbody class=\"of-group\" data-group=\"{number}\"><tr class=\"group\"><th scope=\"rowgroup\" colspan=\"{}\">\
             <bdi>{}</bdi></th></tr>",
            columns.len() + 2 + usize::from(evictions),
            escaped(&compare::name(views, group))
        );
        for &index in &group.runs {
            row(&mut html, index, &views[index], groups.is_best(index), evictions, &columns);
        }
        if let Some(bound) = &group.bound {
            of_bound(&mut html, bound, evictions, &columns);
        }
        html += "</tbody>\n";
    }
    html
}

impl Column {
    /// Whether the column differs between runs, or is an essential one.
    fn is_worth_it(&self, views: &[View]) -> bool {
        !self.only_if_varied
            || views.iter().any(|view| (self.cell)(&view.row).0 != (self.cell)(&views[0].row).0)
    }
}

/// The row of a bound, without columns that need a simulation.
fn of_bound(html: &mut String, bound: &Row, evictions: bool, columns: &[&Column]) {
    let policy = escaped(&bound.policy);
    let _never_fails = write!(
        html,
        "<tr class=\"bound\"><td></td><th scope=\"row\" class=\"word\"><bdi>{policy}</bdi></th>"
    );
    if evictions {
        *html += "<td></td>";
    }
    for column in columns {
        let shown = if column.of_bounds { (column.cell)(bound).1 } else { String::new() };
        let _never_fails = write!(html, "<td data-label=\"{}\">{shown}</td>", escaped(column.head));
    }
    *html += "</tr>\n";
}

/// Requests by class, one table per run; scripts show that of the chosen run only.
pub(super) fn classes(views: &[View]) -> String {
    let with = views.iter().enumerate().filter(|(_, view)| !view.row.classes.is_empty());
    with.map(|(index, view)| of_run(index, view)).collect()
}

fn of_run(index: usize, view: &View) -> String {
    let heads =
        ["class", "requests", "past deadline", "queued", "at most", "p50", "p90", "p99", "max", "waited p99"];
    let head: String = heads.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let name = escaped(view.name());
    let mut html = format!(
        "<li data-run=\"{index}\"><table class=\"classes\"><caption><bdi>{name}</bdi></caption>\
         <thead><tr>{head}</tr></thead><tbody>"
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
        let labelled = heads[1..].iter().zip(&cells);
        let cells: String =
            labelled.map(|(head, cell)| format!("<td data-label=\"{head}\">{cell}</td>")).collect();
        html += &format!("<tr><th scope=\"row\">{what}</th>{cells}</tr>");
    }
    html + "</tbody></table></li>\n"
}

fn row(html: &mut String, index: usize, view: &View, best: bool, evictions: bool, columns: &[&Column]) {
    let class = if best { " class=\"best\"" } else { "" };
    let star = if best {
        " <span class=\"star\" title=\"best\">★<span class=\"hidden\"> best</span></span>"
    } else {
        ""
    };
    let policy = escaped(&view.row.policy);
    let number = index + 1;
    let _never_fails = write!(
        html,
        "<tr{class} data-run=\"{index}\"><td data-v=\"{number}\" data-label=\"#\">{number}</td>\
         <th scope=\"row\" class=\"word\"><bdi>{policy}</bdi>{star}</th>"
    );
    if evictions {
        *html += &format!(
            "<td class=\"word\" data-label=\"eviction\"><bdi>{}</bdi></td>",
            escaped(&view.row.eviction)
        );
    }
    for column in columns {
        let (value, shown) = (column.cell)(&view.row);
        let _never_fails =
            write!(html, "<td data-v=\"{value}\" data-label=\"{}\">{shown}</td>", escaped(column.head));
    }
    *html += "</tr>\n";
}
