//! `bowwave report`: its page in a browser, and errors for bad input.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bowwave_sim::experiment::Experiment;
use bowwave_sim::machine::RecordOptions;
use bowwave_sim::record::{Recording, Row, Run};
use bowwave_sim::sweep::{self, Common};
use bowwave_testkit::skipped;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::browser::{self, Browser};
use super::layout;
use crate::common::{bowwave, failure, output_with_input, run, run_with_input};

/// Names that contain markup or scripts.
const HOSTILE: [&str; 4] = [
    "</script><script>throw 1</script>",
    "\"'><img src=x onerror=alert(1)>",
    "\u{202e}שלום.bin",
    "{{script}}<!--",
];

const POLICIES: [&str; 4] = ["none", "legacy", "ondemand", "stream"];

/// Charts of the page drawn by a script.
const CHARTS: u64 = 9;

fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory for the test")
}

/// Runs of `policies` on `devices`: one reader for each of these files, in order, and at random for
/// the last of several. The cache is too small for all windows, and some reads miss their deadline.
/// Four readers or more of a disk keep it always busy.
fn recording(policies: &[&str], devices: &[&str], files: &[&str], reads: usize) -> Recording {
    let random = usize::from(files.len() > 1);
    let think_ns = if files.len() < 4 { 150_000 } else { 10_000 };
    let group = |pattern: &str, count: usize| {
        let reads = reads / files.len();
        format!(
            "[[readers]]\npattern = \"{pattern}\"\ncount = {count}\nreads = {reads}\n\
             file_bytes = 1_073_741_824\nread_bytes = 8192\nthink_ns = {think_ns}\n"
        )
    };
    let text = format!(
        "[sweep]\npolicies = {policies:?}\ndevices = {devices:?}\ncache_bytes = [131_072]\n\
         schedulers = [\"deadline:sync_expire_ms=20\"]\n{}{}",
        group("clustered", files.len() - random),
        if random > 0 { group("random", random) } else { String::new() }
    );
    let experiment = Experiment::parse(&text, "mix", Path::new("")).expect("it is valid");
    let record = Some(RecordOptions { events_max: usize::MAX, ..RecordOptions::default() });
    let common = Common { record, ..experiment.common.clone() };
    let cases = experiment.axes.cases();
    let load = |machine: &mut _, case: &_| experiment.load(machine, case);
    let mut runs = sweep::run(&cases, &common, &load, NonZeroUsize::MIN, &Arc::default()).expect("it runs");
    for run in &mut runs {
        run.files = files.iter().map(|&name| name.to_owned()).collect();
    }
    let command = "bowwave replay mix.toml --save run.json".to_owned();
    Recording { title: experiment.title, command, runs, ..Recording::new() }
}

fn report(directory: &TempDir, name: &str, recording: &Recording) -> PathBuf {
    let at = |ending: &str| directory.path().join(format!("{name}.{ending}"));
    let (json, html) = (at("json"), at("html"));
    fs::write(&json, serde_json::to_vec(recording).expect("it can be written")).expect("written");
    assert_eq!(run(bowwave().arg("report").arg(&json).arg("-o").arg(&html)), "");
    html
}

/// A browser, if this machine has one.
fn browser(directory: &TempDir) -> Option<Browser> {
    Browser::start(&directory.path().join("profile")).inspect_err(skipped).ok()
}

/// What users see of the page, collected by a script in it.
fn look(browser: &mut Browser) -> Value {
    browser.value(
        "(() => {
            const inks = canvas => {
                const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
                const found = new Set();
                for (let at = 0; at < data.length; at += 4) found.add(data[at] << 16 | data[at + 1] << 8 | data[at + 2]);
                return found.size;
            };
            const root = document.documentElement;
            const plots = [...document.querySelectorAll('.plot')];
            return {
                errors: root.dataset.errors || '',
                ready: root.dataset.ready || '',
                drawn: plots.filter(plot => plot.dataset.drawn === 'chart').length,
                hidden: plots.filter(plot => plot.dataset.drawn === 'none' && plot.closest('figure').hidden).length,
                inks: Math.min(...[...document.querySelectorAll('.plot canvas')].map(inks)),
                named: plots.filter(plot => (plot.getAttribute('aria-label') || '').length > 30).length,
                overflow: root.scrollWidth - root.clientWidth,
                ground: getComputedStyle(document.body).backgroundColor,
                ink: getComputedStyle(document.body).color,
                says: [...document.querySelectorAll('.says li')].filter(line => line.offsetParent !== null).map(line => line.textContent),
                rows: document.querySelectorAll('#table tr[data-run]').length,
                headings: [...document.querySelectorAll('h1, h2, h3')].map(heading => heading.tagName + ' ' + heading.textContent.length),
                scripts: document.scripts.length, images: document.images.length,
            };
        })()",
    )
}

/// Saves a screenshot if the environment names a directory.
fn keep(browser: &mut Browser, name: &str) {
    let Some(directory) = std::env::var_os("BOWWAVE_SCREENSHOTS") else { return };
    let picture = browser.call("Page.captureScreenshot", json!({ "captureBeyondViewport": true }));
    let picture = browser::bytes_of(picture["data"].as_str().expect("a picture"));
    fs::write(Path::new(&directory).join(format!("{name}.png")), picture)
        .expect("the directory can be written");
}

/// Red, green and blue of `rgb(1, 2, 3)`, added.
fn brightness(colour: &Value) -> u32 {
    let digits =
        |part: &str| part.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0);
    colour.as_str().expect("a colour").split(',').take(3).map(digits).sum::<u32>()
}

#[test]
fn the_page_is_drawn_at_every_width_and_in_both_schemes() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    let page = report(&directory, "mix", &recording(&POLICIES, &["hdd", "nvme"], &HOSTILE, 1500));
    for (width, scheme) in [(1280, "light"), (1280, "dark"), (375, "light"), (375, "dark")] {
        browser.open(&page, width, scheme);
        let seen = look(&mut browser);
        let at = format!("{width} {scheme}: {seen:#}");
        assert_eq!(browser.complaints(), Vec::<String>::new(), "{at}");
        assert_eq!((&seen["errors"], &seen["ready"]), (&json!(""), &json!("yes")), "{at}");
        // The disk is always busy: a constant line is omitted.
        let drawn = json!(CHARTS - 1);
        assert_eq!((&seen["drawn"], &seen["named"], &seen["hidden"]), (&drawn, &drawn, &json!(1)), "{at}");
        // Background, grid, axis, labels in their shades, and a drawing.
        assert!(seen["inks"].as_u64() > Some(8), "{at}");
        assert_eq!(seen["overflow"], json!(0), "{at}");
        assert_eq!(seen["rows"], json!(8), "{at}");
        // Four of the chosen device, and six of the chosen run; sentences in HTML figures are
        // separate.
        assert_eq!(seen["says"].as_array().map(Vec::len), Some(10), "{at}");
        let (ground, ink) = (brightness(&seen["ground"]), brightness(&seen["ink"]));
        if scheme == "dark" {
            assert!(ground < 150 && ink > 600, "{at}");
        } else {
            assert!(ground > 600 && ink < 200, "{at}");
        }
        // No name has become a script or an image.
        assert_eq!((&seen["scripts"], &seen["images"]), (&json!(4), &json!(0)), "{at}");
        let asked = browser.requests();
        assert!(
            asked.iter().all(|address| address.starts_with("\"file:") || address.starts_with("\"data:")),
            "{asked:?}"
        );
        keep(&mut browser, &format!("report-{width}-{scheme}"));
    }
}

#[test]
fn choices_sorting_and_keys_change_the_page() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    let page = report(&directory, "mix", &recording(&POLICIES, &["hdd", "nvme"], &["a", "b"], 800));
    browser.open(&page, 1280, "light");
    let order = browser.value(
        "(() => {
            const head = [...document.querySelectorAll('#table thead th')].find(head => head.textContent === 'time');
            head.querySelector('button').click();
            const place = [...document.querySelectorAll('#table thead th')].indexOf(head);
            const times = () => [...document.querySelectorAll('#table tbody.chosen tr[data-run]')].map(row => Number(row.cells[place].dataset.v));
            const up = times();
            head.querySelector('button').click();
            return { up, down: times(), sort: head.getAttribute('aria-sort') };
        })()",
    );
    let times: Vec<f64> = order["up"].as_array().expect("rows").iter().filter_map(Value::as_f64).collect();
    assert!(times.len() == 4 && times.is_sorted(), "{order}");
    let down: Vec<f64> = times.into_iter().rev().collect();
    assert_eq!((&order["down"], &order["sort"]), (&json!(down), &json!("descending")));

    let change = "(async () => {
        const canvas = name => document.querySelector(`[data-chart=${name}] canvas`).toDataURL();
        const settle = () => new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
        const pick = (id, value) => { const it = document.getElementById(id); it.value = value; it.dispatchEvent(new Event('change')); };
        const said = () => document.querySelector('#f-map .of-run li.chosen').textContent;
        const seen = [[canvas('map'), said()]];
        pick('run', '0'); await settle(); seen.push([canvas('map'), said()]);
        pick('file', '1'); await settle(); seen.push([canvas('map')]);
        const map = document.querySelector('[data-chart=map]');
        const key = name => map.dispatchEvent(new KeyboardEvent('keydown', { key: name, bubbles: true }));
        key('+'); await settle(); seen.push([canvas('map')]);
        document.querySelector('[data-zoom=right]').click(); await settle(); seen.push([canvas('map')]);
        key('0'); await settle(); const whole = canvas('map') === seen[2][0];
        const over = canvas('over-busy');
        document.querySelectorAll('#overlay-runs input')[1].click(); await settle();
        const own = canvas('over-request');
        pick('axis', 'common'); await settle(); const axis = own !== canvas('over-request');
        return {
            maps: new Set(seen.map(([map]) => map)).size, said: seen[0][1] !== seen[1][1], whole,
            over: over !== canvas('over-busy'), axis, focus: map.tabIndex,
        };
    })()";
    let changed = browser.value(change);
    let all = json!({ "maps": 5, "said": true, "whole": true, "over": true, "axis": true, "focus": 0 });
    assert_eq!(changed, all);
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn the_printed_page_is_light_in_the_dark_scheme() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    let page = report(&directory, "mix", &recording(&POLICIES, &["hdd"], &["a"], 400));
    browser.open(&page, 1280, "dark");
    browser.media("print", "dark");
    let ground = browser.value("getComputedStyle(document.body).backgroundColor");
    assert_eq!(ground, json!("rgb(255, 255, 255)"));
    let corner = "(() => { dispatchEvent(new Event('beforeprint')); return new Promise(resolve => requestAnimationFrame(() => {
        const pixel = document.querySelector('[data-chart=map] canvas').getContext('2d').getImageData(1, 1, 1, 1).data;
        resolve([pixel[0], pixel[1], pixel[2]]);
    })); })()";
    assert_eq!(browser.value(corner), json!([255, 255, 255]));
    let pdf = browser.call("Page.printToPDF", json!({}));
    // Base64 of `%PDF-`; an empty sheet has about a kilobyte.
    let pdf = pdf["data"].as_str().expect("a file");
    assert!(pdf.starts_with("JVBERi") && pdf.len() > 50_000, "{}", pdf.len());
}

#[test]
fn without_scripts_the_table_and_all_sentences_are_there() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    let page = report(&directory, "mix", &recording(&POLICIES, &["hdd"], &["a"], 400));
    browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    for width in [1280, 375] {
        browser.open(&page, width, "light");
        let seen = look_without_scripts(&mut browser);
        assert_eq!(seen["rows"], json!(4), "{seen:#}");
        // The verdict, and six pictures of each of four runs; curves of several runs need the
        // script.
        assert_eq!(seen["says"], json!(1 + 6 * 4), "{seen:#}");
        assert_eq!((&seen["blocks"], &seen["figures"]), (&json!(1), &json!(3)), "{seen:#}");
        assert_eq!(
            (&seen["told"], &seen["controls"], &seen["overflow"]),
            (&json!(true), &json!(0), &json!(0)),
            "{seen:#}"
        );
    }
}

fn look_without_scripts(browser: &mut Browser) -> Value {
    browser.value(
        "(() => {
            const seen = selector => [...document.querySelectorAll(selector)].filter(it => it.offsetParent !== null).length;
            return {
                rows: seen('#table tr[data-run]'), blocks: seen('.block .bars'), figures: seen('figure .bars'), says: seen('.says li'), controls: seen('select, button, input'),
                told: document.body.innerText.includes('switched off'),
                overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
            };
        })()",
    )
}

#[test]
fn runs_without_events_have_no_pictures_of_events() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    let row =
        Row { policy: "none".into(), device: "hdd".into(), accesses: 1, seconds: 0.5, ..Row::default() };
    let runs = vec![Run { row, page_bytes: 4096, ..Run::default() }];
    let page = report(&directory, "rows", &Recording { runs, ..Recording::new() });
    browser.open(&page, 375, "light");
    let seen = look(&mut browser);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!((&seen["drawn"], &seen["hidden"]), (&json!(0), &json!(CHARTS)), "{seen:#}");
}

#[test]
fn a_page_of_a_million_events_opens_and_states_its_sampling() {
    let directory = directory();
    let recording = recording(&["legacy"], &["nvme"], &["a", "b", "c"], 250_000);
    let run = &recording.runs[0];
    let events = run.reads.time_ns.len() + run.decisions.time_ns.len() + run.requests.pages.len();
    assert!(events > 1_000_000, "{events}");
    let page = report(&directory, "million", &recording);
    let bytes = fs::metadata(&page).expect("the page").len();
    assert!(bytes < 2_000_000, "{bytes}");
    let html = fs::read_to_string(&page).expect("UTF-8");
    assert!(html.contains("picked evenly over time"), "the sampling is not stated");
    let Some(mut browser) = browser(&directory) else { return };
    browser.open(&page, 1280, "light");
    let seen = look(&mut browser);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    assert_eq!((&seen["drawn"], &seen["ready"]), (&json!(CHARTS), &json!("yes")), "{seen:#}");
}

/// Pages of traces that made the old page look wrong: 24 runs, one run, a thrashing cache, one row,
/// five rows, long names.
fn pages(directory: &TempDir) -> Vec<(&'static str, PathBuf)> {
    let at = |name: &str| directory.path().join(name);
    let app = at("app.bwt");
    let spec = ["--rows", "3000", "--file-size", "64MiB", "-o"];
    run(bowwave().args(["generate", "interleaved"]).args(spec).arg(&app));
    let head = "time_ns,pid,op,file,offset,length\n";
    let (one, five) = (at("one.csv"), at("five.csv"));
    fs::write(&one, format!("{head}0,1,read,a,0,4096\n")).expect("written");
    let rows: String =
        (0..5).map(|row| format!("{},1,read,f{},{},4096\n", row * 1000, row / 3, row * 4096)).collect();
    fs::write(&five, format!("{head}{rows}")).expect("written");
    let long = at(&format!("{}.csv", "trace-".repeat(40)));
    let file = "/srv/a-directory-with-a-long-name".repeat(9);
    let rows: String = (0..300)
        .map(|row| format!("{},{},read,{file}{},{},4096\n", row * 1000, row % 3, row % 5, row * 4096))
        .collect();
    fs::write(&long, format!("{head}{rows}")).expect("written");
    let runs: [(&str, &Path, &[&str]); 7] = [
        ("runs", &app, &["--ra-pages", "32,256", "--cache", "16MiB,1GiB"]),
        ("all", &app, &["--policy", "all", "--device", "hdd:rpm=5400,s3"]),
        ("single", &app, &["--policy", "stream", "--device", "s3"]),
        ("thrashing", &app, &["--device", "hdd", "--cache", "128KiB", "--ra-pages", "128"]),
        ("one-row", &one, &["--policy", "all", "--device", "nvme"]),
        ("five-rows", &five, &[]),
        ("long-names", &long, &["--policy", "all", "--device", "hdd,s3"]),
    ];
    let page = |(name, trace, arguments): (&'static str, &Path, &[&str])| {
        let html = at(name).with_extension("html");
        run(bowwave().arg("replay").arg(trace).args(arguments).arg("--html").arg(&html));
        (name, html)
    };
    runs.into_iter().map(page).collect()
}

/// The last column was cut off by its scroll bar, labels overlapped, and 24 runs were in a
/// scrolling box.
#[test]
fn nothing_is_cut_covered_or_empty_at_1300_and_400_pixels() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    layout::record_labels(&mut browser);
    for (name, page) in pages(&directory) {
        for width in [1300, 400] {
            browser.open(&page, width, "light");
            assert_eq!(browser.complaints(), Vec::<String>::new(), "{name} {width}");
            let found = layout::faults(&mut browser);
            assert_eq!(found, json!([]), "{name} {width}: {found:#}");
            keep(&mut browser, &format!("{name}-{width}"));
        }
    }
}

/// Each card had the sentences of all devices, regardless of the selector.
#[test]
fn the_selector_leaves_one_device_and_cache_on_the_page() {
    let directory = directory();
    let Some(mut browser) = browser(&directory) else { return };
    let page = report(&directory, "mix", &recording(&POLICIES, &["hdd", "nvme"], &["a", "b"], 800));
    browser.open(&page, 1280, "light");
    for (group, device, other, runs) in [(0, "hdd", "nvme", [0, 1, 2, 3]), (1, "nvme", "hdd", [4, 5, 6, 7])] {
        let seen = browser.value(&format!(
            "(() => {{
                const it = document.getElementById('group');
                it.value = '{group}';
                it.dispatchEvent(new Event('change'));
                const shown = selector => [...document.querySelectorAll(selector)].filter(it => it.offsetParent !== null);
                return {{
                    groups: [...new Set(shown('.of-group').map(it => it.dataset.group))],
                    runs: [...document.getElementById('run').options].map(option => Number(option.value)),
                    overlays: shown('#overlay-runs label').map(it => it.textContent),
                    rows: shown('#table tr[data-run]').map(row => Number(row.dataset.run)),
                    text: ['compare', 'time', 'detail'].map(id => document.getElementById(id).innerText).join(' '),
                }};
            }})()"
        ));
        assert_eq!((&seen["groups"], &seen["runs"]), (&json!([group.to_string()]), &json!(runs)), "{seen:#}");
        assert_eq!(
            (&seen["rows"], seen["overlays"].as_array().map(Vec::len)),
            (&json!(runs), Some(4)),
            "{seen:#}"
        );
        let text = seen["text"].as_str().expect("text");
        assert!(text.contains(device) && !text.contains(other), "{text}");
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn standard_input_and_output_serve_as_files() {
    let json = serde_json::to_vec(&recording(&POLICIES, &["hdd"], &["a"], 50)).expect("JSON");
    let html = run_with_input(bowwave().args(["report", "-", "-o", "-"]), &json);
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
}

#[test]
fn bad_input_is_one_line_that_names_file_and_place() {
    let directory = directory();
    let (path, html) = (directory.path().join("run.json"), directory.path().join("out.html"));
    let sound = recording(&POLICIES, &["hdd"], &["a"], 50);
    let json = serde_json::to_string(&sound).expect("JSON");
    let mut short = sound.clone();
    short.runs[2].reads.pages.pop();
    let short = serde_json::to_string(&short).expect("JSON");
    let cases: [(&[u8], &[&str]); 8] = [
        (b"", &["cut off", "line 1 column 0"]),
        (b"time_ns,pid,op\n", &["not JSON", "line 1 column"]),
        (b"\xff\xfe{}", &["not JSON", "line 1 column 1"]),
        (&json.as_bytes()[..json.len() / 2], &["cut off", "line 1 column"]),
        (b"{\"version\":7,\"runs\":[]}", &["version 7", "knows version 1"]),
        (b"{\"version\":1,\"title\":\"\",\"command\":\"\",\"runs\":[]}", &["holds no runs"]),
        (
            short.as_bytes(),
            &["runs[2] (ondemand on hdd)", "reads.pages has 49 values", "reads.time_ns has 50"],
        ),
        (b"[1,2]", &["not a sound recording", "line 1 column"]),
    ];
    for (input, parts) in cases {
        fs::write(&path, input).expect("written");
        let (code, line) = failure(bowwave().arg("report").arg(&path).arg("-o").arg(&html));
        assert_eq!(code, 1, "{line}");
        assert!(line.contains("run.json: ") && parts.iter().all(|part| line.contains(part)), "{line}");
        assert!(!html.exists(), "a page was left behind");
    }
    let (code, line) = failure(bowwave().args(["report", "/no/such/run.json", "-o", "x.html"]));
    assert!(code == 1 && line.contains("/no/such/run.json") && line.contains("No such file"), "{line}");
    fs::write(&path, &json).expect("written");
    let (code, line) = failure(bowwave().arg("report").arg(&path).args(["-o", "/no/such/directory/x.html"]));
    assert!(code == 1 && line.contains("cannot write /no/such/directory/x.html"), "{line}");
    let usage = output_with_input(bowwave().arg("report").arg(&path), b"");
    assert_eq!(usage.status.code(), Some(2));
}

#[test]
fn the_chart_library_is_the_one_that_was_released() {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bowwave-sim/src/report/assets");
    let readme = fs::read_to_string(assets.join("README.md")).expect("its sums");
    let sums: Vec<(&str, &str)> =
        readme.lines().filter_map(|line| line.split_once("  ")).filter(|(sum, _)| sum.len() == 64).collect();
    assert_eq!(sums.len(), 3);
    for (sum, name) in sums {
        let bytes = fs::read(assets.join(name)).expect("a vendored file");
        let found: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, sum, "{name}");
    }
}
