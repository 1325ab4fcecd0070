//! FUSE requests on a tree in memory, encoded as a kernel sends them, with a model of names and
//! contents.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::sync::LazyLock;
use std::thread;

use super::steps::Steps;
use bowwave_engine::{Engine, Options};
use bowwave_fuse::MountOptions;
use bowwave_fuse::fuzzing::serve;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

/// A sequence of requests.
#[derive(Arbitrary, Debug)]
pub struct Input {
    read_only: bool,
    steps: Steps<Step>,
}

/// A request. Inodes and handles are indices of those returned so far.
#[derive(Arbitrary, Debug)]
enum Step {
    Lookup(Node, Name),
    Forget(Node, u8),
    Attributes(Node),
    SetAttributes {
        node: Node,
        handle: Option<Handle>,
        valid: u16,
        size: Size,
        mode: u32,
        owner: u32,
        time: i64,
        nanos: u32,
    },
    ReadLink(Node),
    Create {
        parent: Node,
        name: Name,
        flags: u32,
        mode: u32,
    },
    MakeNode {
        parent: Node,
        name: Name,
        mode: u32,
        device: u32,
    },
    MakeFolder {
        parent: Node,
        name: Name,
        mode: u32,
    },
    MakeLink {
        parent: Node,
        name: Name,
        target: Vec<u8>,
    },
    Link {
        node: Node,
        parent: Node,
        name: Name,
    },
    Remove {
        parent: Node,
        name: Name,
        directory: bool,
    },
    Rename {
        from: Node,
        name: Name,
        to: Node,
        new: Name,
        flags: u8,
    },
    Open {
        node: Node,
        flags: u32,
    },
    Read {
        handle: Handle,
        offset: Size,
        size: u32,
    },
    Write {
        handle: Handle,
        offset: Size,
        flags: u32,
        write_flags: u8,
        byte: u8,
        len: u16,
    },
    Flush(Handle),
    Sync(Handle, bool),
    Release(Handle),
    Allocate {
        handle: Handle,
        offset: Size,
        len: Size,
        mode: i32,
    },
    Copy {
        from: Handle,
        at: Size,
        to: Handle,
        target: Size,
        len: Size,
    },
    OpenFolder(Node),
    List {
        node: Node,
        handle: Handle,
        offset: Size,
        size: u16,
        plus: bool,
    },
    ReleaseFolder(Handle),
    SyncFolder(Node),
    SetXattr {
        node: Node,
        name: Name,
        value: Vec<u8>,
        flags: u8,
    },
    Xattr {
        node: Node,
        name: Name,
        size: u8,
    },
    ListXattrs {
        node: Node,
        size: u8,
    },
    RemoveXattr {
        node: Node,
        name: Name,
    },
    Space,
    Access(Node, u8),
    BatchForget(Vec<(Node, u8)>),
    Seek {
        handle: Handle,
        offset: Size,
        whence: u8,
    },
    Other {
        opcode: u8,
        node: Node,
        body: Vec<u8>,
    },
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Node {
    Known(u8),
    Any(u64),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Handle {
    Known(u8),
    Any(u64),
}

#[derive(Arbitrary, Clone, Debug)]
enum Name {
    Short(u8),
    Long(u16),
    Any(Vec<u8>),
}

/// A size or offset: mostly small, so that requests overlap.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Size {
    Small(u16),
    Large(u32),
    Any(u64),
}

impl Size {
    fn get(self) -> u64 {
        match self {
            Self::Small(size) => size.into(),
            // Other tests cover files beyond the cache: here a memory store would hold them.
            Self::Large(size) => u64::from(size % (4 << 20)),
            // The kernel sends no negative offset.
            Self::Any(size) => size >> 1,
        }
    }
}

impl Name {
    fn bytes(&self) -> Vec<u8> {
        let name = match self {
            Self::Short(name) => vec![b'a' + name % 4],
            Self::Long(len) => vec![b'x'; usize::from(len % 300)],
            Self::Any(name) => name.iter().copied().filter(|byte| !matches!(byte, 0 | b'/')).collect(),
        };
        // The kernel resolves dots itself, and sends no empty names.
        if matches!(&*name, b"" | b"." | b"..") { b"dot".to_vec() } else { name }
    }
}

/// A path in the model: parent inode and name.
type Place = (u64, Vec<u8>);

/// State according to the replies so far.
#[derive(Default)]
struct Model {
    nodes: Vec<u64>,
    handles: Vec<u64>,
    /// Existing names with their inodes.
    names: BTreeMap<Place, u64>,
    /// Contents of files by inode, while all changes are modelled.
    contents: BTreeMap<u64, Vec<u8>>,
    /// Inodes of open files.
    open: BTreeMap<u64, u64>,
    /// Whether the server may have forgotten inodes that the kernel still counts: then their
    /// numbers are meaningless.
    blurred: bool,
}

/// Largest requested reply: a larger one does not fit the default socket buffer and is lost.
const REPLY_BYTES_MAX: u32 = 128 << 10;

struct Kernel {
    device: File,
    unique: u64,
    model: Model,
    buffer: Vec<u8>,
}

/// A reply that is no error.
type Reply = Result<Vec<u8>, i32>;

static ENGINE: LazyLock<Engine> = LazyLock::new(|| {
    Engine::new(Options { cache_bytes: Some(16 << 20), ..Options::default() }).expect("a small cache")
});

/// Sends the requests. Returns whether a request succeeded.
pub fn run(input: Input) -> bool {
    let store = ENGINE.store("memory:").expect("a store in memory");
    let flags = SocketFlags::CLOEXEC;
    let (ours, theirs) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair of sockets");
    let options = MountOptions { read_only: input.read_only, ..MountOptions::default() };
    let server = thread::spawn(move || serve(store, options, OwnedFd::from(theirs)));
    let mut kernel =
        Kernel { device: File::from(ours), unique: 0, model: Model::default(), buffer: vec![0; 2 << 20] };
    kernel.model.nodes.push(1);
    let init = [words(&[7, 40, 1 << 20, u32::MAX & !(1 << 30)]), vec![0; 48]].concat();
    kernel.send(26, 0, &init).expect("the versions fit");
    let mut accepted = false;
    for step in &input.steps.0 {
        accepted |= kernel.step(step);
    }
    kernel.send(38, 0, &[]).expect("it ends");
    server.join().expect("no panic").expect("all requests are well-formed");
    accepted
}

impl Kernel {
    /// Sends a request, and reads its reply.
    fn send(&mut self, opcode: u32, node: u64, body: &[u8]) -> Reply {
        self.post(opcode, node, body);
        let count = loop {
            match self.device.read(&mut self.buffer) {
                // Caused by libFuzzer's timer.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                count => break count.expect("the server lives"),
            }
        };
        let reply = &self.buffer[..count];
        assert!(count >= 16, "{opcode}: a reply of {count} bytes");
        let (len, error) = (word(reply, 0), word(reply, 4).cast_signed());
        let unique = long(reply, 8);
        assert_eq!((len as usize, unique), (count, self.unique), "{opcode}");
        assert!(
            (-133..=0).contains(&error) && (error == 0 || count == 16),
            "{opcode}: {error}, {count} bytes"
        );
        if error < 0 { Err(-error) } else { Ok(reply[16..].to_vec()) }
    }

    /// Sends a request that has no reply.
    fn post(&mut self, opcode: u32, node: u64, body: &[u8]) {
        self.unique += 2;
        let len = u32::try_from(40 + body.len()).expect("a packet");
        let head = [words(&[len, opcode]), longs(&[self.unique, node]), words(&[0, 0, 0, 0])].concat();
        self.device.write_all(&[&head, body].concat()).expect("the server lives");
    }

    fn node(&self, node: Node) -> u64 {
        match node {
            Node::Known(index) => self.model.nodes[usize::from(index) % self.model.nodes.len()],
            Node::Any(number) => number,
        }
    }

    fn handle(&self, handle: Handle) -> u64 {
        match handle {
            Handle::Known(index) if !self.model.handles.is_empty() => {
                self.model.handles[usize::from(index) % self.model.handles.len()]
            }
            Handle::Known(index) => index.into(),
            Handle::Any(number) => number,
        }
    }

    /// Records an inode of a reply.
    fn seen(&mut self, reply: &Reply, place: Option<Place>) -> Option<u64> {
        let node = long(reply.as_ref().ok()?, 0);
        if node == 0 {
            return None;
        }
        assert_ne!(node, u64::MAX);
        if let Some(place) = place {
            self.model.names.insert(place, node);
        }
        if self.model.nodes.len() < 256 && !self.model.nodes.contains(&node) {
            self.model.nodes.push(node);
        }
        Some(node)
    }

    /// Performs a step; returns whether it succeeded.
    fn step(&mut self, step: &Step) -> bool {
        match step {
            Step::Lookup(parent, name) => self.lookup(self.node(*parent), name.bytes()),
            Step::Forget(node, count) => {
                self.model.blurred = true;
                self.post(2, self.node(*node), &longs(&[(*count).into()]));
                true
            }
            Step::BatchForget(all) => {
                self.model.blurred = true;
                let count = u32::try_from(all.len()).expect("few");
                let list = all.iter().flat_map(|(node, count)| longs(&[self.node(*node), (*count).into()]));
                self.post(42, 0, &[words(&[count, 0]), list.collect()].concat());
                true
            }
            Step::Attributes(node) => self.attributes(self.node(*node)),
            Step::SetAttributes { .. } => self.set_attributes(step),
            Step::ReadLink(node) => self.send(5, self.node(*node), &[]).is_ok(),
            Step::Create { parent, name, flags, mode } => {
                self.create(self.node(*parent), name.bytes(), *flags, *mode)
            }
            Step::MakeNode { parent, name, mode, device } => {
                self.make(8, self.node(*parent), &words(&[*mode, *device, 0o22, 0]), name.bytes(), None)
            }
            Step::MakeFolder { parent, name, mode } => {
                self.make(9, self.node(*parent), &words(&[*mode, 0o22]), name.bytes(), None)
            }
            Step::MakeLink { parent, name, target } => {
                let target = target.iter().copied().filter(|byte| *byte != 0).collect();
                self.make(6, self.node(*parent), &[], name.bytes(), Some(target))
            }
            Step::Link { node, parent, name } => {
                self.make(13, self.node(*parent), &longs(&[self.node(*node)]), name.bytes(), None)
            }
            Step::Remove { parent, name, directory } => {
                self.remove(self.node(*parent), name.bytes(), *directory)
            }
            Step::Rename { from, name, to, new, flags } => {
                let (from, to) = ((self.node(*from), name.bytes()), (self.node(*to), new.bytes()));
                self.rename(from, to, u32::from(flags % 4))
            }
            Step::Open { .. }
            | Step::Read { .. }
            | Step::Write { .. }
            | Step::Flush(_)
            | Step::Sync(..)
            | Step::Release(_)
            | Step::Allocate { .. }
            | Step::Seek { .. }
            | Step::Copy { .. } => self.file(step),
            _ => self.rest(step),
        }
    }

    fn lookup(&mut self, parent: u64, name: Vec<u8>) -> bool {
        let reply = self.send(1, parent, &zero(&name));
        let place = (parent, name);
        let known = self.model.names.get(&place).copied();
        let found = self.seen(&reply, Some(place.clone()));
        if !self.model.blurred {
            assert!(known.is_none() || known == found, "{place:?} was {known:?}, is {found:?}, {reply:?}");
        }
        found.is_some()
    }

    fn attributes(&mut self, node: u64) -> bool {
        let Ok(reply) = self.send(3, node, &[0; 16]) else { return false };
        if let Some(bytes) = self.model.contents.get(&node).filter(|_| !self.model.blurred) {
            assert_eq!(long(&reply, 24), bytes.len() as u64, "the size of inode {node}");
        }
        true
    }

    fn set_attributes(&mut self, step: &Step) -> bool {
        let Step::SetAttributes { node, handle, valid, size, mode, owner, time, nanos } = step else {
            return false;
        };
        let (node, size) = (self.node(*node), size.get());
        let valid = u32::from(*valid) & !(1 << 6) | if handle.is_some() { 1 << 6 } else { 0 };
        let handle = handle.map_or(0, |handle| self.handle(handle));
        let body = [
            words(&[valid, 0]),
            longs(&[handle, size, 0, time.cast_unsigned(), time.cast_unsigned(), time.cast_unsigned()]),
            words(&[nanos % 1_000_000_000, nanos % 1_000_000_000, 0, *mode, 0, *owner, *owner, 0]),
        ];
        let changed = self.send(4, node, &body.concat());
        if valid & 8 != 0 {
            // A handle of another file: the kernel never sends that.
            let own = valid & (1 << 6) == 0 || self.model.open.get(&handle) == Some(&node);
            match self.model.contents.get_mut(&node).filter(|_| own && changed.is_ok()) {
                Some(bytes) if size <= MODEL_BYTES_MAX => bytes.resize(size as usize, 0),
                _ => {
                    self.model.contents.clear();
                }
            }
        }
        changed.is_ok()
    }

    fn create(&mut self, parent: u64, name: Vec<u8>, flags: u32, mode: u32) -> bool {
        // As the kernel sends create: an access mode, and O_CREAT.
        let flags = flags & !3 | if flags & 3 == 3 { 2 } else { flags & 3 } | 0o100;
        let body = [words(&[flags, mode & 0o7777 | 0o100_000, 0o22, 0]), zero(&name)].concat();
        let reply = self.send(35, parent, &body);
        let Some(node) = self.seen(&reply, Some((parent, name))) else { return false };
        let handle = long(reply.as_ref().expect("it names an inode"), 128);
        self.model.contents.insert(node, Vec::new());
        self.opened(handle, node);
        true
    }

    fn opened(&mut self, handle: u64, node: u64) {
        if self.model.open.insert(handle, node).is_none() {
            self.model.handles.push(handle);
        }
    }

    fn make(
        &mut self,
        opcode: u32,
        parent: u64,
        body: &[u8],
        name: Vec<u8>,
        target: Option<Vec<u8>>,
    ) -> bool {
        let body =
            [body.to_vec(), zero(&name), target.map_or_else(Vec::new, |target| zero(&target))].concat();
        let reply = self.send(opcode, parent, &body);
        self.seen(&reply, Some((parent, name))).is_some()
    }

    fn remove(&mut self, parent: u64, name: Vec<u8>, directory: bool) -> bool {
        let removed = self.send(if directory { 11 } else { 10 }, parent, &zero(&name)).is_ok();
        if removed {
            self.model.names.remove(&(parent, name));
        }
        removed
    }

    fn rename(&mut self, from: Place, to: Place, flags: u32) -> bool {
        let body = [longs(&[to.0]), words(&[flags, 0]), zero(&from.1), zero(&to.1)].concat();
        if self.send(45, from.0, &body).is_err() {
            return false;
        }
        let names = &mut self.model.names;
        let (old, new) = (names.remove(&from), names.remove(&to));
        match flags {
            2 => {
                names.extend(old.map(|node| (to, node)));
                names.extend(new.map(|node| (from, node)));
            }
            // Two links to one file: rename(2) keeps both.
            _ if old.is_some() && old == new => {
                names.extend(old.map(|node| (from, node)));
                names.extend(new.map(|node| (to, node)));
            }
            _ => names.extend(old.map(|node| (to, node))),
        }
        true
    }

    /// Requests of open files.
    fn file(&mut self, step: &Step) -> bool {
        match step {
            Step::Open { node, flags } => {
                let node = self.node(*node);
                // Open never gets O_CREAT or O_EXCL; O_TRUNC depends on the capabilities.
                let flags = flags & !0o1300;
                let Ok(reply) = self.send(14, node, &words(&[flags, 0])) else { return false };
                self.opened(long(&reply, 0), node);
                true
            }
            Step::Read { handle, offset, size } => {
                self.read(self.handle(*handle), offset.get(), *size % REPLY_BYTES_MAX)
            }
            Step::Write { .. } => self.write(step),
            Step::Flush(handle) => self.send(25, 1, &longs(&[self.handle(*handle), 0, 7])).is_ok(),
            Step::Sync(handle, data) => {
                let body = [longs(&[self.handle(*handle)]), words(&[u32::from(*data), 0])].concat();
                self.send(20, 1, &body).is_ok()
            }
            Step::Release(handle) => {
                let handle = self.handle(*handle);
                self.model.open.remove(&handle);
                self.model.handles.retain(|known| *known != handle);
                self.send(18, 1, &[longs(&[handle]), words(&[0, 0]), longs(&[0])].concat()).is_ok()
            }
            Step::Allocate { handle, offset, len, mode } => {
                let handle = self.handle(*handle);
                let body =
                    [longs(&[handle, offset.get(), len.get()]), words(&[mode.cast_unsigned(), 0])].concat();
                let done = self.send(43, 1, &body).is_ok();
                if let Some(node) = self.model.open.get(&handle).filter(|_| done) {
                    self.model.contents.remove(node);
                }
                done
            }
            Step::Seek { handle, offset, whence } => {
                let body =
                    [longs(&[self.handle(*handle), offset.get()]), words(&[u32::from(*whence), 0])].concat();
                self.send(46, 1, &body).is_ok()
            }
            Step::Copy { from, at, to, target, len } => {
                let (from, to) = (self.handle(*from), self.handle(*to));
                let body = longs(&[from, at.get(), 1, to, target.get(), len.get() % (1 << 32), 0]);
                let Ok(reply) = self.send(47, 1, &body) else { return false };
                self.copied((from, at.get()), (to, target.get()), word(&reply, 0).into());
                true
            }
            _ => false,
        }
    }

    fn read(&mut self, handle: u64, offset: u64, size: u32) -> bool {
        let body = [longs(&[handle, offset]), words(&[size, 0]), longs(&[0]), words(&[0, 0])].concat();
        let Ok(reply) = self.send(15, 1, &body) else { return false };
        assert!(reply.len() <= size as usize);
        let bytes = self.model.open.get(&handle).and_then(|node| self.model.contents.get(node));
        if let Some(bytes) = bytes.filter(|_| !self.model.blurred) {
            let start = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
            let end = bytes.len().min(start + size as usize);
            assert!(reply == bytes[start..end], "{size} bytes at {offset} of {}", bytes.len());
        }
        !reply.is_empty()
    }

    fn write(&mut self, step: &Step) -> bool {
        let Step::Write { handle, offset, flags, write_flags, byte, len } = step else { return false };
        let (handle, offset) = (self.handle(*handle), offset.get());
        let data: Vec<u8> = (0..*len).map(|at| byte.wrapping_add((at % 251) as u8)).collect();
        let len = u32::from(*len);
        let body = [
            longs(&[handle, offset]),
            words(&[len, u32::from(*write_flags)]),
            longs(&[0]),
            words(&[*flags, 0]),
            data.clone(),
        ];
        let Ok(reply) = self.send(16, 1, &body.concat()) else { return false };
        let count = word(&reply, 0) as usize;
        assert!(count <= data.len(), "{count} of {} bytes", data.len());
        if let Some(&node) = self.model.open.get(&handle) {
            self.wrote(node, offset, &data[..count]);
        }
        true
    }

    fn wrote(&mut self, node: u64, offset: u64, data: &[u8]) {
        let Some(bytes) = self.model.contents.get_mut(&node) else { return };
        let end = offset + data.len() as u64;
        if end > MODEL_BYTES_MAX {
            self.model.contents.remove(&node);
        } else if !data.is_empty() {
            bytes.resize(bytes.len().max(end as usize), 0);
            bytes[offset as usize..end as usize].copy_from_slice(data);
        }
    }

    fn copied(&mut self, from: (u64, u64), to: (u64, u64), len: u64) {
        let source = self.model.open.get(&from.0).and_then(|node| self.model.contents.get(node));
        let Some(&target) = self.model.open.get(&to.0) else { return };
        let part = source
            .and_then(|bytes| bytes.get(usize::try_from(from.1).ok()?..)?.get(..usize::try_from(len).ok()?));
        match part.map(<[u8]>::to_vec) {
            // Overlapping ranges of one file are copied part by part.
            Some(part) if self.model.open.get(&from.0) != Some(&target) => self.wrote(target, to.1, &part),
            _ => {
                self.model.contents.remove(&target);
            }
        }
    }

    /// Directories, extended attributes, and other requests.
    fn rest(&mut self, step: &Step) -> bool {
        match step {
            Step::OpenFolder(node) => {
                let Ok(reply) = self.send(27, self.node(*node), &words(&[0, 0])) else { return false };
                self.model.handles.push(long(&reply, 0));
                true
            }
            Step::List { node, handle, offset, size, plus } => {
                let opcode = if *plus { 44 } else { 28 };
                let size = u32::from(*size);
                let body = [longs(&[self.handle(*handle), offset.get()]), words(&[size, 0]), longs(&[0, 0])]
                    .concat();
                let Ok(reply) = self.send(opcode, self.node(*node), &body) else { return false };
                assert!(reply.len() <= size as usize, "{} bytes for {size}", reply.len());
                self.listed(&reply, *plus);
                true
            }
            Step::ReleaseFolder(handle) => {
                let handle = self.handle(*handle);
                self.send(29, 1, &[longs(&[handle]), words(&[0, 0]), longs(&[0])].concat()).is_ok()
            }
            Step::SyncFolder(node) => self.send(30, self.node(*node), &[0; 16]).is_ok(),
            Step::SetXattr { node, name, value, flags } => {
                let head = words(&[u32::try_from(value.len()).expect("short"), u32::from(*flags)]);
                self.send(21, self.node(*node), &[head, zero(&name.bytes()), value.clone()].concat()).is_ok()
            }
            Step::Xattr { node, name, size } => {
                let body = [words(&[u32::from(*size), 0]), zero(&name.bytes())].concat();
                self.sized(22, self.node(*node), &body, *size)
            }
            Step::ListXattrs { node, size } => {
                self.sized(23, self.node(*node), &words(&[u32::from(*size), 0]), *size)
            }
            Step::RemoveXattr { node, name } => self.send(24, self.node(*node), &zero(&name.bytes())).is_ok(),
            Step::Space => self.send(17, 1, &[]).is_ok(),
            Step::Access(node, mask) => {
                self.send(34, self.node(*node), &words(&[u32::from(*mask), 0])).is_ok()
            }
            Step::Other { opcode, node, body } => {
                // Unknown requests, long enough to be well-formed.
                const OTHERS: [u32; 6] = [31, 32, 33, 37, 39, 40];
                let body = [body.clone(), vec![0; 64]].concat();
                self.send(OTHERS[usize::from(*opcode) % OTHERS.len()], self.node(*node), &body).is_ok()
            }
            _ => false,
        }
    }

    /// A value, or its length where `size` is 0.
    fn sized(&mut self, opcode: u32, node: u64, body: &[u8], size: u8) -> bool {
        let Ok(reply) = self.send(opcode, node, body) else { return false };
        assert!(
            if size == 0 { reply.len() == 8 } else { reply.len() <= size.into() },
            "{reply:?} for {size}"
        );
        true
    }

    /// Directory entries: complete, each with a name.
    fn listed(&mut self, mut reply: &[u8], plus: bool) {
        while !reply.is_empty() {
            let head = if plus { 128 } else { 0 };
            let len = word(reply, head + 16) as usize;
            let name = &reply[head + 24..head + 24 + len];
            assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0), "{name:?}");
            let end = (head + 24 + len).next_multiple_of(8);
            reply = &reply[end..];
        }
    }
}

/// Larger files are not modelled.
const MODEL_BYTES_MAX: u64 = 1 << 20;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

fn zero(name: &[u8]) -> Vec<u8> {
    [name, &[0]].concat()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
