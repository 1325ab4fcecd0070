//! Decisions of a running mount, in a file and in memory.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use crate::common::explained::lines;
use crate::common::place::Place;
use crate::common::served::Served;
use crate::common::{bowwave, failure, mounting, run, until, with_keys};
use bowwave_engine::{Engine, Options};
use bowwave_fuse::{Mount, MountOptions};
use bowwave_testkit::hostile::{Dialect, HostileServer, Recorded};
use serde_json::Value;

fn journal(path: &Path) -> Vec<Value> {
    lines(&fs::read_to_string(path).expect("the mount created it"))
}

/// The number of this thread, by which the kernel names it to a mount.
fn thread() -> u32 {
    let link = fs::read_link("/proc/thread-self").expect("every Linux has it");
    link.file_name().and_then(|name| name.to_str()?.parse().ok()).expect("a number")
}

/// `bowwave mount` of the place's store with a journal.
fn mount(place: &Place, options: &[&str]) -> Served {
    let mut command = bowwave();
    command.env("XDG_RUNTIME_DIR", place.root()).arg("mount").arg(place.store()).arg(place.at());
    // The kernel then reads what programs read.
    command.args(["--set", "kernel_cache=off", "--journal"]).arg(place.root().join("journal")).args(options);
    Served::of(&mut command, &place.at())
}

#[test]
fn a_journal_has_the_decisions_of_each_policy_that_ctl_sets_during_a_copy() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("journal");
    fs::write(place.store().join("a"), vec![1; 8 << 20]).expect("room");
    let served = mount(&place, &[]);
    let mut file = File::open(place.at().join("a")).expect("it is there");
    let mut copy = vec![0; 4 << 20];
    file.read_exact(&mut copy).expect("half of it");
    let mut ctl = bowwave();
    ctl.env("XDG_RUNTIME_DIR", place.root()).arg("ctl").arg(place.at());
    run(ctl.args(["set", "policy", "ondemand"]));
    file.read_to_end(&mut copy).expect("the other half");
    assert_eq!(copy.len(), 8 << 20);
    drop(file);
    let (status, said) = served.unmount();
    assert!(status.success(), "{said}");
    let all = journal(&place.root().join("journal"));
    let of = |policy: &str| all.iter().filter(|line| line["policy"] == policy).collect::<Vec<_>>();
    let (stream, ondemand) = (of("stream"), of("ondemand"));
    assert!(stream.len() > 1 && ondemand.len() > 1 && stream.len() + ondemand.len() == all.len(), "{all:?}");
    assert!(all.is_sorted_by_key(|line| line["time_ns"].as_u64()), "one reader decides in order");
    assert!(all.is_sorted_by_key(|line| line["policy"] == "ondemand"), "the setting separates them");
    for line in &all {
        let half = if line["policy"] == "stream" { 0..1024 } else { 1024..2048 };
        assert!(line["page"].as_u64().is_some_and(|page| half.contains(&page)), "{line}");
        assert_eq!((&line["file"], &line["pid"]), (&"a".into(), &thread().into()), "{line}");
        assert!(line["store"].as_str().is_some_and(|store| store.starts_with("file://")), "{line}");
        assert_eq!(line.get("detectors").is_some(), line["policy"] == "stream", "{line}");
    }
    let known = ["initial", "oversize", "random", "lookahead", "readahead", "miss", "interleaved", "demand"];
    for line in ondemand {
        assert!(line["reason"].as_str().is_some_and(|reason| known.contains(&reason)), "{line}");
    }
}

/// A line has the members of `explain`, in the same order and with the same values, before its own.
#[test]
fn a_journal_has_the_lines_that_explain_prints_for_the_same_reads() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("journal-explain");
    fs::write(place.store().join("a"), vec![1; 1 << 20]).expect("room");
    let served = mount(&place, &["--policy", "ondemand", "--ra-pages", "32"]);
    let mut file = File::open(place.at().join("a")).expect("it is there");
    let mut trace = "time_ns,pid,op,file,offset,length\n".to_owned();
    for number in 0..32 {
        file.read_exact(&mut [0; 32 << 10]).expect("32 KiB");
        trace.push_str(&format!("{number},7,read,a,{},32768\n", number << 15));
    }
    drop(file);
    assert!(served.unmount().0.success());
    let path = place.root().join("trace.csv");
    fs::write(&path, trace).expect("room");
    let mut explain = bowwave();
    let printed =
        run(explain.arg("explain").arg(path).args(["--json", "--policy", "ondemand", "--file-pages", "256"]));
    let text = fs::read_to_string(place.root().join("journal")).expect("the mount created it");
    let without = |line: &str, own: &str| {
        let (access, rest) = line.split_once(",\"pid\":").expect("members in order");
        let end = rest.find(own).unwrap_or(rest.len() - 1);
        assert!(access.starts_with("{\"access\":"), "{line}");
        rest[rest.find(',').expect("more members")..end].to_owned()
    };
    let ours: Vec<String> = text.lines().map(|line| without(line, ",\"time_ns\":")).collect();
    let theirs: Vec<String> = printed.lines().map(|line| without(line, "}\n")).collect();
    assert_eq!(ours, theirs);
    assert!(ours.len() > 8, "{ours:?}");
}

#[test]
fn a_journal_ends_at_its_size_with_a_line_that_says_so_and_a_full_one_is_refused() {
    let Some(_alone) = mounting() else { return };
    let place = Place::new("journal-full");
    fs::write(place.store().join("a"), vec![1; 4 << 20]).expect("room");
    let served = mount(&place, &["--journal-size", "2KiB", "--policy", "ondemand"]);
    assert_eq!(fs::read(place.at().join("a")).expect("readers do not notice").len(), 4 << 20);
    assert!(served.unmount().0.success());
    let path = place.root().join("journal");
    let (all, len) = (journal(&path), fs::metadata(&path).expect("there").len());
    let (last, decisions) = all.split_last().expect("lines");
    assert_eq!(last["full"], 2048, "{last}");
    assert!((1..20).contains(&decisions.len()) && (2048..2300).contains(&len), "{len}: {all:?}");
    assert!(decisions.iter().all(|line| line.get("page").is_some()), "{all:?}");
    let mut command = bowwave();
    command.arg("mount").arg(place.store()).arg(place.at()).arg("--journal").arg(&path);
    let (code, said) = failure(command.args(["--journal-size", "2KiB"]));
    assert!(code == 1 && said.contains("remove it or allow more"), "{said}");
}

const FILES: u64 = 40;

#[test]
fn a_journal_has_the_files_that_are_read_ahead_and_why() {
    let Some(_alone) = mounting() else { return };
    let (place, server) = (Place::new("journal-files"), HostileServer::start(Dialect::S3).expect("loopback"));
    (0..FILES).for_each(|number| server.put(&format!("many/{number:02}"), vec![1; 10_000]));
    let path = place.root().join("journal");
    let mut command = with_keys(("any", "any"));
    command.env("AWS_REGION", "us-east-1").args(["mount", &server.url()]).arg(place.at());
    command.args(["--endpoint", &server.endpoint(), "--allow-http", "--ttl", "1h", "--journal"]).arg(&path);
    let served = Served::of(&mut command, &place.at());
    read_all(&place.at().join("many"));
    assert!(served.unmount().0.success());
    let all = journal(&path);
    let across: Vec<_> = all.iter().filter(|line| line.get("files").is_some()).collect();
    assert!(!across.is_empty(), "{all:?}");
    for line in &across {
        assert_eq!((&line["reason"], &line["policy"]), (&"sequence".into(), &"stream".into()), "{line}");
        assert_eq!(line["pid"], thread(), "{line}");
        let file = line["file"].as_str().expect("a name");
        let ahead = line["files"].as_array().expect("names");
        assert!(ahead.iter().all(|name| name.as_str().is_some_and(|name| name > file)), "{line}");
    }
    let planned: usize = across.iter().filter_map(|line| line["files"].as_array()).map(Vec::len).sum();
    assert!(planned as u64 >= FILES / 2 && planned as u64 <= FILES, "{planned} of {FILES}");
}

/// Places of a large file in which a program reads 4 KiB each.
const PLACES: [u64; 5] = [0, 5_000_000, 2_000_000, 4_000_000, 1_000_000];

#[test]
fn large_files_that_are_read_alike_are_requested_ahead_and_the_journal_says_why() {
    let Some(_alone) = mounting() else { return };
    let (place, server) = (Place::new("journal-alike"), HostileServer::start(Dialect::S3).expect("loopback"));
    (0..6).for_each(|number| server.put(&format!("large/{number}"), vec![number; 6_000_000]));
    let path = place.root().join("journal");
    let mut command = with_keys(("any", "any"));
    command.env("AWS_REGION", "us-east-1").args(["mount", &server.url()]).arg(place.at());
    command.args(["--endpoint", &server.endpoint(), "--allow-http", "--ttl", "1h", "--journal"]).arg(&path);
    let served = Served::of(&mut command, &place.at());
    let directory = place.at().join("large");
    assert_eq!(fs::read_dir(&directory).expect("a directory").count(), 6);
    for number in 0..6 {
        let file = File::open(directory.join(number.to_string())).expect("a file of the bucket");
        for (at, offset) in PLACES.into_iter().enumerate() {
            let mut byte = [0];
            file.read_exact_at(&mut byte, offset).expect("readable");
            assert_eq!(byte, [number]);
            // After the first read, the others are requested without a further one.
            let gets = || {
                let of_file = |request: &Recorded| request.target.ends_with(&format!("/large/{number}"));
                server.recorded().iter().filter(|one| one.method == "GET" && of_file(one)).count()
            };
            if number == 5 && at == 0 {
                until("the rest of the last file is requested", || gets() >= PLACES.len());
            }
        }
    }
    assert!(served.unmount().0.success());
    let all = journal(&path);
    let alike: Vec<_> = all.iter().filter(|line| line["reason"] == "alike").collect();
    assert!(!alike.is_empty(), "{all:?}");
    for line in &alike {
        assert_eq!((&line["policy"], &line["pid"]), (&"stream".into(), &thread().into()), "{line}");
        let files = line["files"].as_array().expect("names");
        assert!(line["file"].is_string() && files.iter().all(Value::is_string), "{line}");
    }
}

#[test]
fn the_journal_of_readahead_across_files_replays_to_the_same_files() {
    let Some(_alone) = mounting() else { return };
    let (place, server) =
        (Place::new("sibling-journal"), HostileServer::start(Dialect::S3).expect("loopback"));
    for (directory, number) in (0..3).flat_map(|directory| (0..FILES).map(move |number| (directory, number)))
    {
        server.put(&format!("tree/{directory}/{number:02}"), vec![1; 1000]);
    }
    let mut options = Options { cache_bytes: Some(64 << 20), ..Options::default() };
    options.store.endpoint = Some(server.endpoint());
    options.store.region = Some("us-east-1".to_owned());
    (options.store.allow_http, options.store.anonymous) = (true, true);
    let store = Engine::new(options).and_then(|engine| engine.store(&server.url())).expect("a bucket");
    let options = MountOptions { journal_events: 1 << 16, ..MountOptions::default() };
    let mount = Mount::new(store, &place.at(), options).expect("mounts work here");
    (0..3).for_each(|directory| read_all(&place.at().join(format!("tree/{directory}"))));
    let journal = mount.sibling_journal().expect("it is requested");
    mount.unmounter().unmount().expect("nothing is open");
    assert!(!journal.is_truncated() && journal.replays(), "{:?}", journal.events());
    let decisions = journal.decisions();
    assert!(decisions.len() as u64 >= FILES, "{decisions:?}");
    assert!(journal.events().len() as u64 >= 3 * FILES, "each open is an event");
}

/// Reads the files of a directory in the order of their names.
fn read_all(directory: &Path) {
    let mut files: Vec<_> =
        fs::read_dir(directory).expect("a directory").map(|entry| entry.expect("a name").path()).collect();
    files.sort_unstable();
    files.iter().for_each(|file| assert!(!fs::read(file).expect("a file").is_empty()));
}
