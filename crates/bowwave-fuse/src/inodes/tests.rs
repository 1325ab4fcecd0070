//! Tests the table as the kernel uses it: lookups, names, links, renames, reused numbers.

use super::*;
use bowwave_engine::backend::Unix;

fn entry(kind: EntryKind, size: u64, seconds: u64) -> Entry {
    let modified = Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
    Entry { size, modified, ..Entry::new("x", kind) }
}

/// An entry of a file system with `links` links.
fn keyed(kind: EntryKind, inode: u64, links: u64) -> Entry {
    let epoch = SystemTime::UNIX_EPOCH;
    let unix = Unix {
        device: 7,
        inode,
        links,
        uid: 0,
        gid: 0,
        special_device: 0,
        accessed: epoch,
        changed: epoch,
        blocks: 0,
    };
    Entry { unix: Some(unix), ..Entry::new("x", kind) }
}

fn inodes() -> Inodes {
    Inodes::new(entry(EntryKind::Directory, 0, 0))
}

/// A file system with a directory `d`, inode 10.
fn file_system() -> Inodes {
    let inodes = Inodes::new(keyed(EntryKind::Directory, 2, 3));
    assert_eq!(lookup(&inodes, ROOT, "d", &keyed(EntryKind::Directory, 10, 2)), 10);
    inodes
}

fn lookup(inodes: &Inodes, parent: u64, name: &str, entry: &Entry) -> u64 {
    inodes.remember(parent, OsStr::new(name), entry).expect("the directory is there")
}

fn path(inodes: &Inodes, number: u64) -> Option<String> {
    inodes.path(number).map(|path| path.to_str().expect("test names are ASCII").to_owned())
}

fn opening(etag: &str, version: u64, size: u64) -> Opening {
    let identity = Identity { etag: Some(etag.to_owned()), size, ..Identity::default() };
    Opening { identity, version, size, writes: false }
}

/// Opens and compares with no change in between.
fn open(inodes: &Inodes, number: u64, file: &Opening) -> Opened {
    inodes.opened(number, file, inodes.changes(number))
}

/// Requests and compares with no change in between.
fn refresh(inodes: &Inodes, number: u64, entry: &Entry) -> Described {
    inodes.refresh(number, entry, inodes.changes(number))
}

fn count(inodes: &Inodes) -> usize {
    inodes.table.lock().nodes.len()
}

#[test]
fn an_inode_lives_from_first_lookup_to_last_forget() {
    let inodes = inodes();
    let directory = lookup(&inodes, ROOT, "a", &entry(EntryKind::Directory, 0, 5));
    let file = entry(EntryKind::File, 10, 5);
    let number = lookup(&inodes, directory, "x", &file);
    assert_eq!(lookup(&inodes, directory, "x", &file), number);
    inodes.forget(number, 1);
    assert_eq!(inodes.peek(directory, OsStr::new("x")), Some(number));
    inodes.forget(number, 1);
    assert_eq!((inodes.peek(directory, OsStr::new("x")), count(&inodes)), (None, 2));
    inodes.forget(ROOT, 100);
    assert_eq!(count(&inodes), 2);
}

#[test]
fn a_directory_stays_until_its_entries_are_forgotten() {
    let inodes = inodes();
    let directory = lookup(&inodes, ROOT, "a", &entry(EntryKind::Directory, 0, 5));
    let file = lookup(&inodes, directory, "x", &entry(EntryKind::File, 1, 5));
    inodes.forget(directory, 1);
    assert_eq!(path(&inodes, file).as_deref(), Some("a/x"));
    inodes.forget(file, 1);
    assert_eq!(count(&inodes), 1);
}

#[test]
fn a_changed_object_gets_a_new_inode_and_the_old_one_stays() {
    let inodes = inodes();
    let old = lookup(&inodes, ROOT, "x", &entry(EntryKind::File, 10, 5));
    for changed in [entry(EntryKind::File, 11, 5), entry(EntryKind::File, 11, 9)] {
        let new = lookup(&inodes, ROOT, "x", &changed);
        assert_ne!(new, old);
        assert_eq!(inodes.peek(ROOT, OsStr::new("x")), Some(new));
    }
    assert_eq!(inodes.last(old).expect("not forgotten").size, 10);
    inodes.forget(old, 1);
    assert!(inodes.peek(ROOT, OsStr::new("x")).is_some(), "the old inode's end must not unbind the new one");
}

#[test]
fn an_open_of_another_identity_unbinds_the_name() {
    let inodes = inodes();
    let file = entry(EntryKind::File, 10, 5);
    let number = lookup(&inodes, ROOT, "x", &file);
    assert_eq!(open(&inodes, number, &opening("one", 1, 10)), Opened::Same);
    assert_eq!(open(&inodes, number, &opening("one", 2, 10)), Opened::Same, "read anew, but the same");
    assert_eq!(open(&inodes, number, &opening("two", 2, 10)), Opened::Same, "written by us");
    assert_eq!(open(&inodes, number, &opening("three", 3, 10)), Opened::Stale);
    assert_ne!(lookup(&inodes, ROOT, "x", &file), number);
}

#[test]
fn an_object_written_through_the_mount_keeps_its_inode() {
    let inodes = inodes();
    let number = lookup(&inodes, ROOT, "x", &entry(EntryKind::File, 10, 5));
    let writing = Opening { writes: true, ..opening("one", 1, 10) };
    assert_eq!(open(&inodes, number, &writing), Opened::Same);
    assert_eq!(lookup(&inodes, ROOT, "x", &entry(EntryKind::File, 99, 50)), number);
    assert_eq!(refresh(&inodes, number, &entry(EntryKind::File, 120, 60)), Described::Same);
    let left = inodes.closed(number, || Opening { writes: true, ..opening("two", 1, 130) });
    inodes.settle(number, entry(EntryKind::File, 130, 70), left.expect("the last that writes"));
    assert_eq!(open(&inodes, number, &opening("two", 5, 130)), Opened::Same);
    let other = entry(EntryKind::File, 131, 70);
    assert_eq!(refresh(&inodes, number, &other), Described::Other, "this was another file");
}

#[test]
fn the_published_version_of_an_object_being_written_is_not_cached() {
    let inodes = inodes();
    let number = lookup(&inodes, ROOT, "x", &entry(EntryKind::File, 10, 5));
    let writing = Opening { writes: true, ..opening("two", 2, 0) };
    assert_eq!(open(&inodes, number, &writing), Opened::Stale, "cut before anybody looked");
    let number = lookup(&inodes, ROOT, "x", &entry(EntryKind::File, 0, 6));
    assert_eq!(open(&inodes, number, &writing), Opened::Same);
    assert_eq!(open(&inodes, number, &opening("one", 1, 10)), Opened::Apart);
    assert!(inodes.is_current(number, 2), "the writer's");
    assert!(inodes.closed(number, || opening("one", 1, 10)).is_none());
    assert!(inodes.closed(number, || writing.clone()).is_some());
    assert_eq!(open(&inodes, number, &opening("two", 2, 0)), Opened::Same);
}

#[test]
fn an_object_has_its_last_writers_state_once_that_is_closed() {
    let inodes = inodes();
    let number = lookup(&inodes, ROOT, "x", &entry(EntryKind::File, 0, 5));
    let writing = |size| Opening { writes: true, ..opening("new", 1, size) };
    assert_eq!(open(&inodes, number, &Opening { writes: true, ..opening("old", 1, 0) }), Opened::Same);
    assert!(inodes.closed(number, || writing(700)).is_some());
    // No request has reached the store since; stat and open find the written version.
    assert_eq!(open(&inodes, number, &opening("new", 2, 700)), Opened::Same);
    assert_eq!(refresh(&inodes, number, &entry(EntryKind::File, 700, 90)), Described::Same);
    assert_eq!(open(&inodes, number, &opening("new", 2, 700)), Opened::Same);
}

#[test]
fn a_response_from_before_our_change_is_not_a_change_from_outside() {
    let inodes = inodes();
    let (name, old) = (OsStr::new("x"), entry(EntryKind::File, 10, 5));
    let number = lookup(&inodes, ROOT, "x", &old);
    let (before, reader) = (inodes.changes(number), opening("old", 1, 10));
    assert_eq!(inodes.changes_at(ROOT, name), before);
    // A write starts and ends between a reader's open and its comparison; the same for a stat.
    let writer = Opening { writes: true, ..opening("old", 2, 10) };
    assert_eq!(inodes.opened(number, &writer, before), Opened::Same);
    assert!(!inodes.is_overtaken(ROOT, name, &old, before), "as it is");
    let left = inodes.closed(number, || Opening { writes: true, ..opening("new", 2, 30) }).expect("the last");
    assert_eq!(inodes.opened(number, &reader, before), Opened::Again);
    assert_eq!(inodes.refresh(number, &old, before), Described::Again);
    assert!(inodes.is_overtaken(ROOT, name, &old, before));
    assert_eq!(inodes.peek(ROOT, name), Some(number), "it has kept its name");
    // Requested again.
    assert_eq!(open(&inodes, number, &opening("new", 3, 30)), Opened::Same);
    assert!(!inodes.is_overtaken(ROOT, name, &entry(EntryKind::File, 30, 9), left));
    // A late response does not describe the current object.
    inodes.settle(number, old.clone(), before);
    assert_eq!(inodes.last(number).expect("known").size, 30);
    assert_eq!(refresh(&inodes, number, &old), Described::Other, "nobody of ours was at it");
}

#[test]
fn directories_keep_their_inode_when_touched() {
    let inodes = inodes();
    let number = lookup(&inodes, ROOT, "d", &entry(EntryKind::Directory, 0, 5));
    assert_eq!(refresh(&inodes, number, &entry(EntryKind::Directory, 0, 99)), Described::Same);
    assert_eq!(refresh(&inodes, number, &entry(EntryKind::File, 0, 99)), Described::Other);
}

#[test]
fn hard_links_are_one_inode_until_the_last_name_is_removed() {
    let inodes = file_system();
    let number = lookup(&inodes, ROOT, "a", &keyed(EntryKind::File, 20, 2));
    assert_eq!((number, lookup(&inodes, 10, "b", &keyed(EntryKind::File, 20, 2))), (20, 20));
    inodes.removed(10, OsStr::new("b"));
    assert_eq!(path(&inodes, 20).as_deref(), Some("a"));
    assert_eq!(inodes.last(20).and_then(|entry| entry.unix).map(|unix| unix.links), Some(1));
    inodes.removed(ROOT, OsStr::new("a"));
    assert_eq!(path(&inodes, 20), None);
    assert_eq!(inodes.last(20).and_then(|entry| entry.unix).map(|unix| unix.links), Some(0));
}

#[test]
fn renaming_a_directory_renames_everything_below_it() {
    let inodes = file_system();
    let deep = lookup(&inodes, 10, "e", &keyed(EntryKind::Directory, 11, 2));
    let file = lookup(&inodes, deep, "f", &keyed(EntryKind::File, 12, 1));
    inodes.renamed((ROOT, OsStr::new("d")), (ROOT, OsStr::new("moved")));
    assert_eq!(path(&inodes, file).as_deref(), Some("moved/e/f"));
    assert_eq!(inodes.child_path(deep, OsStr::new("g")), Some(PathBuf::from("moved/e/g")));
    assert_eq!(inodes.peek(ROOT, OsStr::new("d")), None);
}

#[test]
fn a_rename_unlinks_its_target_but_keeps_links_to_one_file() {
    let inodes = file_system();
    lookup(&inodes, ROOT, "a", &keyed(EntryKind::File, 20, 1));
    lookup(&inodes, ROOT, "b", &keyed(EntryKind::File, 21, 1));
    inodes.renamed((ROOT, OsStr::new("a")), (ROOT, OsStr::new("b")));
    assert_eq!((path(&inodes, 20).as_deref(), path(&inodes, 21)), (Some("b"), None));
    lookup(&inodes, ROOT, "c", &keyed(EntryKind::File, 20, 2));
    inodes.renamed((ROOT, OsStr::new("b")), (ROOT, OsStr::new("c")));
    for name in ["b", "c"] {
        assert_eq!(inodes.peek(ROOT, OsStr::new(name)), Some(20), "{name}");
    }
}

#[test]
fn exchanged_names_swap_their_files() {
    let inodes = file_system();
    lookup(&inodes, ROOT, "a", &keyed(EntryKind::File, 20, 1));
    let inner = lookup(&inodes, 10, "f", &keyed(EntryKind::File, 21, 1));
    inodes.exchanged((ROOT, OsStr::new("a")), (ROOT, OsStr::new("d")));
    assert_eq!(path(&inodes, inner).as_deref(), Some("a/f"));
    assert_eq!(path(&inodes, 20).as_deref(), Some("d"));
}

#[test]
fn a_number_reused_while_the_kernel_knows_the_old_file_is_only_shown() {
    let inodes = file_system();
    lookup(&inodes, ROOT, "a", &keyed(EntryKind::File, 20, 1));
    inodes.removed(ROOT, OsStr::new("a"));
    let other = lookup(&inodes, ROOT, "b", &keyed(EntryKind::File, 20, 1));
    assert!(other != 20 && path(&inodes, other).as_deref() == Some("b"));
    assert_eq!((inodes.shown(other), inodes.shown(20)), (20, 20));
    assert_eq!(lookup(&inodes, ROOT, "b", &keyed(EntryKind::File, 20, 1)), other);
    assert_eq!(inodes.last(20).and_then(|entry| entry.unix).map(|unix| unix.links), Some(0));
    inodes.forget(20, 1);
    assert_eq!(lookup(&inodes, ROOT, "b", &keyed(EntryKind::File, 20, 1)), other);
    // Removed from outside; another kind of entry reuses its number.
    let directory = lookup(&inodes, ROOT, "c", &keyed(EntryKind::Directory, 20, 2));
    assert!(directory != other && inodes.shown(directory) == 20);
}

#[test]
fn a_number_reused_before_the_removal_is_recorded_is_a_new_file() {
    let inodes = file_system();
    let name = OsStr::new("x");
    let old = lookup(&inodes, ROOT, "x", &keyed(EntryKind::File, 20, 1));
    // The store has removed it and reused its number; the new file is looked up before we record
    // that.
    assert_eq!(inodes.begin_remove(ROOT, name), Some(old));
    let new = lookup(&inodes, 10, "y", &keyed(EntryKind::File, 20, 1));
    assert_ne!(new, old);
    inodes.removed(ROOT, name);
    assert_eq!((path(&inodes, old), path(&inodes, new)), (None, Some("d/y".to_owned())));
    assert_eq!(inodes.last(new).and_then(|entry| entry.unix).map(|unix| unix.links), Some(1));
    assert_eq!(lookup(&inodes, 10, "y", &keyed(EntryKind::File, 20, 1)), new);
    // The store rejects the removal.
    assert_eq!(inodes.begin_remove(10, OsStr::new("y")), Some(new));
    inodes.cancel_remove(new);
    assert_eq!(lookup(&inodes, ROOT, "z", &keyed(EntryKind::File, 20, 2)), new);
    // It has another name.
    assert_eq!(inodes.begin_remove(10, OsStr::new("y")), None);
    assert_eq!(inodes.begin_remove(10, OsStr::new("none")), None);
    inodes.removed(10, OsStr::new("y"));
    assert_eq!(lookup(&inodes, ROOT, "z", &keyed(EntryKind::File, 20, 1)), new);
}

#[test]
fn files_of_another_device_and_the_roots_number_do_not_collide() {
    let inodes = file_system();
    let mut mounted = keyed(EntryKind::File, 10, 1);
    if let Some(unix) = &mut mounted.unix {
        unix.device = 8;
    }
    let number = lookup(&inodes, 10, "mounted", &mounted);
    assert!(number > 1 << 62);
    assert!(lookup(&inodes, 10, "one", &keyed(EntryKind::File, 1, 1)) > number);
}

#[test]
fn a_file_changed_from_outside_keeps_its_inode() {
    let inodes = file_system();
    let file = Entry { size: 10, ..keyed(EntryKind::File, 20, 1) };
    let number = lookup(&inodes, ROOT, "a", &file);
    let of = |inode, etag: &str, version, size| {
        let mut opening = opening(etag, version, size);
        opening.identity.inode = Some(inode);
        opening
    };
    assert_eq!(open(&inodes, number, &of(20, "one", 1, 10)), Opened::Same);
    assert_eq!(open(&inodes, number, &of(20, "two", 2, 10)), Opened::Other);
    assert!(inodes.is_current(number, 2) && !inodes.is_current(number, 1));
    assert_eq!(
        open(&inodes, number, &of(20, "three", 3, 11)),
        Opened::Other,
        "the size was asked for just now"
    );
    std::thread::sleep(JUST_NOW * 2);
    assert_eq!(open(&inodes, number, &of(20, "three", 3, 11)), Opened::Stale);
    assert_eq!(refresh(&inodes, number, &Entry { size: 11, ..file }), Described::Same);
    assert_eq!(open(&inodes, number, &of(20, "three", 3, 11)), Opened::Same);
    assert_eq!(open(&inodes, number, &of(21, "other", 4, 11)), Opened::Stale, "another file took the name");
    assert_eq!(path(&inodes, number), None);
}
