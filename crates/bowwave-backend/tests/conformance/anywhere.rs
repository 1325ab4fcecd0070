//! Bytes and sizes of files in stores that take writes anywhere.

use super::{PATIENCE, bytes_of, create, shown, text_path, whole};
use crate::{
    Allocate, Backend, ErrorKind, Namespace as _, OpenWrite, ReadBuf, Seek, Write as _, WriteBuf,
    WriteObject, read_once, start_read, start_write, write_exact,
};

pub(super) fn run(store: &dyn Backend) {
    store.create_directory("bytes".as_ref(), 0o755, None).expect("the root can be written");
    opening(store);
    holes_and_sizes(store);
    scattered(store);
    concurrent(store);
    own_writes_are_read(store);
    truncation(store);
    allocation(store);
    unlinked_but_open(store);
    seeking(store);
    past_the_largest(store);
    dropped_with_writes_in_flight(store);
}

fn opening(store: &dyn Backend) {
    let path = "bytes/opening".as_ref();
    let there = OpenWrite::default();
    let made = OpenWrite { create: true, mode: 0o640, ..there };
    let only = OpenWrite { exclusive: true, ..made };
    assert_eq!(store.open_write(path, &there).expect_err("not there").kind(), ErrorKind::NotFound);
    let object = store.open_write(path, &only).expect("made");
    assert_eq!((object.size(), object.identity().size), (0, 0));
    assert_eq!(
        shown(store, "bytes/opening").mode,
        Some(0o640),
        "the mode is the caller's, whatever the umask"
    );
    write_exact(&*object, 0, b"twelve bytes", PATIENCE).expect("written");
    assert_eq!(store.open_write(path, &only).expect_err("is there").kind(), ErrorKind::Exists);
    let again = store.open_write(path, &made).expect("there");
    assert_eq!(again.size(), 12, "opening changes nothing");
    let cut = store.open_write(path, &OpenWrite { truncate: true, ..there }).expect("there");
    assert_eq!((cut.size(), shown(store, "bytes/opening").size), (0, 0));
    for (path, kind) in [("bytes", ErrorKind::IsADirectory), ("", ErrorKind::IsADirectory)] {
        assert_eq!(store.open_write(path.as_ref(), &made).expect_err(path).kind(), kind, "{path:?}");
    }
    let kind = store.open_write("bytes/opening/below".as_ref(), &made).expect_err("below a file").kind();
    assert_eq!(kind, ErrorKind::NotADirectory);
    let kind = store.open_write("bytes/none/below".as_ref(), &made).expect_err("below nothing").kind();
    assert_eq!(kind, ErrorKind::NotFound);
}

fn holes_and_sizes(store: &dyn Backend) {
    let object = create(store, "bytes/holes");
    write_exact(&*object, 10_000, b"end", PATIENCE).expect("past the end");
    write_exact(&*object, 5, b"begin", PATIENCE).expect("before");
    let mut wanted = vec![0; 10_003];
    wanted[5..10].copy_from_slice(b"begin");
    wanted[10_000..].copy_from_slice(b"end");
    assert_eq!(shown(store, "bytes/holes").size, 10_003, "the size is seen at once");
    assert!(bytes_of(store, "bytes/holes") == wanted);
    let now = object.finish().expect("finished");
    assert_eq!(&now, store.open("bytes/holes".as_ref()).expect("there").identity());
    assert_eq!(object.attributes().expect("a file system").stat().expect("open").size, 10_003);
    write_exact(&*object, 0, b"x", PATIENCE).expect("again");
    assert_ne!(object.finish().expect("finished"), now, "other bytes, another identity");
    let (_, result) =
        start_write(&*object, 0, WriteBuf::from_vec(Vec::new())).recv_timeout(PATIENCE).expect("ends");
    assert_eq!(result.expect("an empty write succeeds"), 0);
    object.sync(true).expect("synced");
    object.sync(false).expect("synced");
    store.sync_directory("bytes".as_ref()).expect("synced");
}

/// A buffer of pieces of odd sizes is written as one, and reads back unchanged.
fn scattered(store: &dyn Backend) {
    let object = create(store, "bytes/scattered");
    let bytes: Vec<u8> = (0..200_000u32).map(|index| (index / 5) as u8).collect();
    let mut buf = WriteBuf::from_vec(bytes.clone());
    for cut in [1, 4097, 131_072] {
        let tail = buf.split_off(cut);
        buf.unsplit(tail);
    }
    let (buf, result) = start_write(&*object, 77, buf).recv_timeout(PATIENCE).expect("ends");
    let count = result.expect("written");
    assert!(count > 0 && buf.to_vec() == bytes, "the buffer comes back as it was");
    write_exact(&*object, 77 + count as u64, &bytes[count..], PATIENCE).expect("the rest of a short write");
    assert!(bytes_of(store, "bytes/scattered")[77..] == bytes);
}

/// Sixteen concurrent writes to separate ranges; each ends once.
fn concurrent(store: &dyn Backend) {
    let object = create(store, "bytes/concurrent");
    let part = |index: usize| vec![index as u8 + 1; 150_001];
    let writes: Vec<_> = (0..16)
        .rev()
        .map(|index| (index, start_write(&*object, index as u64 * 150_001, WriteBuf::from_vec(part(index)))))
        .collect();
    for (index, end) in writes {
        let (buf, result) = end.recv_timeout(PATIENCE).expect("ends");
        let count = result.unwrap_or_else(|error| panic!("{index}: {error}"));
        assert!(buf.to_vec() == part(index));
        write_exact(&*object, (index * 150_001 + count) as u64, &part(index)[count..], PATIENCE)
            .expect("rest");
        assert!(end.recv_timeout(PATIENCE).is_err(), "a write ended twice");
    }
    let wanted: Vec<u8> = (0..16).flat_map(part).collect();
    assert!(bytes_of(store, "bytes/concurrent") == wanted);
}

fn own_writes_are_read(store: &dyn Backend) {
    let object = create(store, "bytes/own");
    let other = store.open_write("bytes/own".as_ref(), &OpenWrite::default()).expect("there");
    let mut wanted = Vec::new();
    // Aligned and unaligned sizes: direct and buffered I/O must see each other's bytes.
    for (index, len) in [4096, 3, 8192, 100_000, 1, 4096].into_iter().enumerate() {
        let bytes = vec![index as u8 + 1; len];
        let writer: &dyn WriteObject = if index % 2 == 0 { &*object } else { &*other };
        write_exact(writer, wanted.len() as u64, &bytes, PATIENCE).expect("written");
        wanted.extend(bytes);
        for reader in [&object, &other] {
            let (_, buf, result) = whole(start_read(&**reader, 0, ReadBuf::zeroed(wanted.len() + 4096)));
            let count = result.expect("what was written through this store is no change");
            assert!(count > 0 && buf.to_vec()[..count] == wanted[..count], "write {index}");
            let (_, buf, result) = whole(start_read(&**reader, wanted.len() as u64 - 1, ReadBuf::zeroed(99)));
            assert_eq!((result.expect("the last byte"), buf.to_vec()[0]), (1, index as u8 + 1));
        }
    }
    let (_, _, result) = whole(start_read(&*object, wanted.len() as u64, ReadBuf::zeroed(10)));
    assert_eq!(result.expect("behind the end is empty"), 0);
}

fn truncation(store: &dyn Backend) {
    let object = create(store, "bytes/cut");
    write_exact(&*object, 0, &[7; 9000], PATIENCE).expect("written");
    object.set_len(5000).expect("shorter");
    object.set_len(6000).expect("longer");
    let mut wanted = vec![7; 5000];
    wanted.resize(6000, 0);
    assert!(bytes_of(store, "bytes/cut") == wanted, "what was cut off does not come back");
    object.set_len(0).expect("empty");
    assert_eq!(shown(store, "bytes/cut").size, 0);
}

fn allocation(store: &dyn Backend) {
    let object = create(store, "bytes/room");
    write_exact(&*object, 0, &[7; 40_000], PATIENCE).expect("written");
    let steps = [
        (Allocate::Punch, 8192, 8192, 40_000),
        (Allocate::Zero { keep_size: true }, 20_000, 100_000, 40_000),
        (Allocate::Reserve { keep_size: true }, 0, 80_000, 40_000),
        (Allocate::Reserve { keep_size: false }, 0, 50_000, 50_000),
        (Allocate::Zero { keep_size: false }, 50_000, 10_000, 60_000),
    ];
    for (how, offset, len, size) in steps {
        match object.allocate(offset, len, how) {
            Ok(()) => assert_eq!(shown(store, "bytes/room").size, size, "{how:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unsupported, "{how:?}: {error}");
                return;
            }
        }
    }
    let mut wanted = vec![7; 20_000];
    wanted[8192..16_384].fill(0);
    wanted.resize(60_000, 0);
    assert!(bytes_of(store, "bytes/room") == wanted);
    let nothing = object.allocate(0, 0, Allocate::Punch).expect_err("no bytes at all");
    assert_eq!(nothing.kind(), ErrorKind::Invalid);
}

fn unlinked_but_open(store: &dyn Backend) {
    let path = "bytes/unlinked";
    let object = create(store, path);
    write_exact(&*object, 0, b"here still", PATIENCE).expect("written");
    store.remove_file(path.as_ref()).expect("removed");
    assert_eq!(store.stat(path.as_ref()).expect_err("gone").kind(), ErrorKind::NotFound);
    write_exact(&*object, 4, b"!", PATIENCE).expect("nobody else knows it");
    assert_eq!(read_once(&*object, 0, 10, PATIENCE).expect("readable"), b"here!still");
    let entry = object.attributes().expect("a file system").stat().expect("open");
    assert_eq!((entry.size, entry.unix.expect("a file system").links), (10, 0));
    let anew = create(store, path);
    assert_ne!(anew.identity().inode, object.identity().inode);
    assert_eq!(bytes_of(store, path), b"", "the new file is another one");
    object.sync(false).expect("synced");
}

fn past_the_largest(store: &dyn Backend) {
    let object = create(store, &text_path("bytes/", 'n', 200));
    for offset in [u64::MAX, u64::MAX - 4096, i64::MAX as u64, i64::MAX as u64 + 1] {
        let error = write_exact(&*object, offset, b"far", PATIENCE).expect_err("no file is so large");
        assert!(matches!(error.kind(), ErrorKind::TooLarge | ErrorKind::Invalid), "{offset}: {error}");
    }
    assert_eq!(object.finish().expect("nothing happened").size, 0);
    object.set_len(u64::MAX).expect_err("no file is so large");
}

/// Writes in flight end, each once, although the object was dropped; their bytes are stored.
fn dropped_with_writes_in_flight(store: &dyn Backend) {
    let object = create(store, "bytes/dropped");
    let bytes = vec![5; 1_000_000];
    let end = start_write(&*object, 0, WriteBuf::from_vec(bytes.clone()));
    drop(object);
    let (_, result) = end.recv_timeout(PATIENCE).expect("ends");
    let count = result.expect("written");
    assert!(bytes_of(store, "bytes/dropped") == bytes[..count]);
}

/// A store with holes finds them; other stores return `Unsupported`.
fn seeking(store: &dyn Backend) {
    let object = create(store, "bytes/seek");
    write_exact(&*object, 4 << 20, &[1; 4096], PATIENCE).expect("written");
    let reader = store.open("bytes/seek".as_ref()).expect("there");
    match reader.seek(0, Seek::Data) {
        // A file system without holes has only data.
        Ok(at) => {
            assert!(at == 0 || at == 4 << 20, "{at}");
            assert_eq!(reader.seek(4 << 20, Seek::Hole).expect("the end is one"), (4 << 20) + 4096);
            reader.seek((4 << 20) + 4096, Seek::Data).expect_err("behind the end");
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}"),
    }
}
