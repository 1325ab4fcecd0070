"""Client programs of tools/power_loss.py. Each writes through a mount and notes when its writes became durable.

Afterwards each client checks its files in an image of the disk. Time is a position in the log of the disk: the image must
have every write that was acknowledged as durable before its position, and no write that began after it.
"""

import bisect
import contextlib
import ctypes
import hashlib
import mmap
import os
import random
import sqlite3
import struct

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE, PUNCH_HOLE = 1, 2


class Client:
    """The common part: a seed, and notes of (position, value)."""

    def __init__(self, at, name, seed, position):
        self.at, self.name, self.position = at, name, position
        self.rng = random.Random(f"{seed} {name}")
        self.begun, self.synced = [], []
        # Some clients sync often, others have much in flight.
        self.patience = self.rng.choice((1, 20))

    def many(self, most):
        """How many operations come before the next sync."""
        return self.rng.randint(1, most * self.patience)

    def path(self, root=None):
        return os.path.join(root or self.at, self.name)

    def begin(self, value):
        """Notes a change before it is issued."""
        self.begun.append((self.position(), value))

    def sync(self, value):
        """Notes a state that was acknowledged as durable."""
        self.synced.append((self.position(), value))

    def close(self):
        """Closes what it has open, so that the mount can end."""
        if getattr(self, "map", None):
            self.map.close()
        if hasattr(self, "fd"):
            os.close(self.fd)

    def marks(self):
        return [position for position, _ in self.synced]


def last(notes, position):
    """The last value noted up to `position`."""
    found = bisect.bisect_right(notes, position, key=lambda note: note[0])
    return notes[found - 1][1] if found else None


def since(notes, synced, position):
    """The values noted up to `position`, from the note with index `synced` on."""
    return [value for _, value in notes[synced:bisect.bisect_right(notes, position, key=lambda note: note[0])]]


def synced_fd(path):
    """Calls fsync for a file or directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Log(Client):
    """Appends to a file, and syncs it in one of four ways."""

    HOW = {"fsync": 0, "fdatasync": 0, "O_DSYNC": os.O_DSYNC, "O_SYNC": os.O_SYNC}
    BYTES_MAX = 3 << 20

    def __init__(self, at, name, seed, position, how):
        super().__init__(at, name, seed, position)
        self.how = how
        self.bytes = self.rng.randbytes(self.BYTES_MAX)
        # No byte is zero, so a zero byte in the file was never written.
        self.bytes = self.bytes.replace(b"\0", b"\1")
        self.fd = os.open(self.path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND | self.HOW[how], 0o644)
        self.length = 0

    def step(self):
        for _ in range(1 if self.HOW[self.how] else self.many(5)):
            end = self.length + self.rng.choice((1, 100, 511, 512, 4096, self.rng.randint(1, 20000)))
            if end > self.BYTES_MAX:
                return False
            self.begin(end)
            if os.write(self.fd, self.bytes[self.length:end]) != end - self.length:
                raise OSError(f"{self.name}: a short write")
            self.length = end
        if not self.HOW[self.how]:
            getattr(os, self.how)(self.fd)
        self.sync(end)
        return True

    def faults(self, root, position):
        with open(self.path(root), "rb") as file:
            data = file.read()
        durable, begun = last(self.synced, position) or 0, last(self.begun, position) or 0
        if not durable <= len(data) <= begun:
            yield f"{self.name}: {len(data)} bytes, of which {durable} were synced and {begun} written"
        if data[:durable] != self.bytes[:min(durable, len(data))]:
            yield f"{self.name}: byte {different(data, self.bytes)} of {durable} synced is another"
        # A write that was in flight may have left a hole.
        if any(byte not in (0, wanted) for byte, wanted in zip(data[durable:], self.bytes[durable:])):
            yield f"{self.name}: after {durable} synced bytes there are some that nothing wrote"


def different(data, wanted):
    return next((number for number, (one, other) in enumerate(zip(data, wanted)) if one != other), len(data))


class Table(Client):
    """Writes cells of a sector each in random order: by pwrite, or in a shared mapping."""

    CELL, CELLS = 512, 400

    def __init__(self, at, name, seed, position, mapped):
        super().__init__(at, name, seed, position)
        self.versions = [0] * self.CELLS
        self.fd = os.open(self.path(), os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(self.fd, b"".join(self.cell(number, 0) for number in range(self.CELLS)), 0)
        self.map = mmap.mmap(self.fd, self.CELLS * self.CELL) if mapped else None
        self.sync(tuple(self.versions))

    def cell(self, number, version):
        head = struct.pack("=II", number, version)
        return head + hashlib.shake_128(head + self.name.encode()).digest(self.CELL - len(head))

    def step(self):
        for _ in range(self.many(20)):
            number = self.rng.randrange(self.CELLS)
            self.versions[number] += 1
            self.begin(tuple(self.versions))
            start, cell = number * self.CELL, self.cell(number, self.versions[number])
            if self.map:
                self.map[start:start + self.CELL] = cell
            else:
                os.pwrite(self.fd, cell, start)
        if self.map:
            self.map.flush()
        else:
            self.rng.choice((os.fsync, os.fdatasync))(self.fd)
        self.sync(tuple(self.versions))
        return True

    def faults(self, root, position):
        with open(self.path(root), "rb") as file:
            data = file.read()
        if len(data) != self.CELLS * self.CELL:
            yield f"{self.name}: {len(data)} bytes"
        durable = last(self.synced, position)
        begun = last(self.begun, position) or durable
        for number in range(self.CELLS):
            cell = data[number * self.CELL:(number + 1) * self.CELL]
            version = struct.unpack_from("=II", cell)[1] if len(cell) == self.CELL else -1
            if cell != self.cell(number, version if version >= 0 else 0):
                yield f"{self.name}: cell {number} was written by nothing"
            elif not durable[number] <= version <= begun[number]:
                yield f"{self.name}: cell {number} has version {version}, synced {durable[number]}, begun {begun[number]}"


class Replacer(Client):
    """Replaces a file by rename, each time after an fsync of the new one, and syncs the directory now and then."""

    def __init__(self, at, name, seed, position):
        super().__init__(at, name, seed, position)
        os.mkdir(self.path())
        self.version = 0
        self.replace()
        self.sync(0)

    def content(self, version):
        head = struct.pack("=Q", version)
        rng = random.Random(f"{self.name} {version}")
        return head + rng.randbytes(rng.choice((0, 10, 4096, rng.randint(0, 50000))))

    def replace(self):
        new = os.path.join(self.path(), "new")
        with open(new, "wb", buffering=0) as file:
            file.write(self.content(self.version))
            os.fsync(file.fileno())
        os.rename(new, os.path.join(self.path(), "target"))

    def step(self):
        self.version += 1
        self.begin(self.version)
        self.replace()
        if self.rng.random() < 0.5:
            synced_fd(self.path())
            self.sync(self.version)
        return True

    def faults(self, root, position):
        path = os.path.join(self.path(root), "target")
        if not os.path.exists(path):
            yield f"{self.name}: the replaced file is missing"
            return
        with open(path, "rb") as file:
            data = file.read()
        durable, begun = last(self.synced, position), last(self.begun, position) or 0
        version = struct.unpack_from("=Q", data)[0] if len(data) >= 8 else -1
        if not durable <= version <= begun:
            yield f"{self.name}: version {version} ({len(data)} bytes), synced {durable}, begun {begun}"
        elif data != self.content(version):
            yield f"{self.name}: version {version} is mixed with something else"


class Names(Client):
    """Creates, links, renames and removes names, and syncs the directory now and then."""

    def __init__(self, at, name, seed, position):
        super().__init__(at, name, seed, position)
        os.mkdir(self.path())
        # The content of each name: bytes of a file, or None for a directory.
        self.here, self.created = {}, 0
        self.sync((0, {}))

    def content(self, number):
        return f"{self.name} {number}\n".encode() * (1 + number % 300)

    def change(self, *names):
        self.begin(names)
        return [os.path.join(self.path(), name) for name in names]

    def step(self):
        for _ in range(self.many(6)):
            self.one()
        synced_fd(self.path())
        self.sync((len(self.begun), dict(self.here)))
        return True

    def one(self):
        self.created += 1
        fresh = f"n{self.created}"
        files = sorted(name for name, content in self.here.items() if content is not None)
        what = self.rng.choice(("create", "create", "directory", "link", "rename", "replace", "remove", "remove"))
        if what == "create" or len(files) < 3:
            path, = self.change(fresh)
            with open(path, "xb") as file:
                file.write(self.content(self.created))
                file.flush()
                os.fsync(file.fileno())
            self.here[fresh] = self.content(self.created)
        elif what == "directory":
            path, = self.change(fresh)
            os.mkdir(path)
            self.here[fresh] = None
        elif what == "link":
            old = self.rng.choice(files)
            os.link(os.path.join(self.path(), old), *self.change(fresh))
            self.here[fresh] = self.here[old]
        elif what == "rename":
            old = self.rng.choice(files)
            os.rename(*self.change(old, fresh))
            self.here[fresh] = self.here.pop(old)
        elif what == "replace":
            old, other = self.rng.sample(files, 2)
            same = os.path.samefile(os.path.join(self.path(), old), os.path.join(self.path(), other))
            os.rename(*self.change(old, other))
            # Two names of one file: POSIX has rename do nothing then.
            if not same:
                self.here[other] = self.here.pop(old)
        else:
            old = self.rng.choice(sorted(self.here))
            path, = self.change(old)
            (os.rmdir if self.here.pop(old) is None else os.unlink)(path)

    def faults(self, root, position):
        number, wanted = last(self.synced, position)
        touched = {name for names in since(self.begun, number, position) for name in names}
        found = {}
        for entry in os.scandir(self.path(root)):
            found[entry.name] = None
            if entry.is_file(follow_symlinks=False):
                with open(entry.path, "rb") as file:
                    found[entry.name] = file.read()
        for name in sorted((set(found) | set(wanted)) - touched):
            if name not in found:
                yield f"{self.name}: {name} is missing, though the directory was synced with it"
            elif name not in wanted:
                yield f"{self.name}: {name} is there, though the directory was synced without it"
            elif found[name] != wanted[name]:
                yield f"{self.name}: {name} has other bytes than were synced"


class Shape(Client):
    """Writes, truncates, extends and punches holes in a small file, and syncs it now and then."""

    BYTES = 40000

    def __init__(self, at, name, seed, position):
        super().__init__(at, name, seed, position)
        self.fd = os.open(self.path(), os.O_RDWR | os.O_CREAT, 0o644)
        self.state = b""
        self.sync((0, b""))

    def step(self):
        for _ in range(self.many(4)):
            self.one()
        self.rng.choice((os.fsync, os.fdatasync))(self.fd)
        self.sync((len(self.begun), self.state))
        return True

    def one(self):
        state, start = self.state, self.rng.randrange(self.BYTES)
        length = self.rng.randint(1, 9000)
        what = self.rng.choice(("write", "write", "truncate", "extend", "hole"))
        if what == "write":
            data = bytes([self.rng.randint(1, 255)]) * length
            self.state = state[:start].ljust(start, b"\0") + data + state[start + length:]
            self.begin(self.state)
            os.pwrite(self.fd, data, start)
        elif what == "hole":
            end = min(start + length, len(state))
            self.state = state[:start] + bytes(max(end - start, 0)) + state[max(end, start):]
            self.begin(self.state)
            if LIBC.fallocate(self.fd, PUNCH_HOLE | KEEP_SIZE, ctypes.c_long(start), ctypes.c_long(length)):
                raise OSError(ctypes.get_errno(), "fallocate")
        else:
            size = self.rng.randrange(len(state) + 1) if what == "truncate" else min(len(state) + length, self.BYTES + 9000)
            self.state = state[:size].ljust(size, b"\0")
            self.begin(self.state)
            os.ftruncate(self.fd, size)

    def faults(self, root, position):
        with open(self.path(root), "rb") as file:
            data = file.read()
        number, durable = last(self.synced, position)
        states = [durable, *since(self.begun, number, position)]
        sizes = [len(state) for state in states]
        if not min(sizes) <= len(data) <= max(sizes):
            yield f"{self.name}: {len(data)} bytes, which is none of {sorted(set(sizes))} and not between"
        if data in states:
            return
        for offset, byte in enumerate(data):
            # Beyond the end of a state the file reads as zeros.
            if not any((state[offset] if offset < len(state) else 0) == byte for state in states):
                yield f"{self.name}: byte {offset} is {byte}, which no state since the last sync has"
                return


class Sqlite(Client):
    """Transactions of SQLite: each adds a numbered row and moves money between two accounts."""

    ACCOUNTS = 10

    def __init__(self, at, name, seed, position, mode, synchronous, may_lose=0):
        super().__init__(at, name, seed, position)
        self.may_lose = may_lose
        os.mkdir(self.path())
        self.base = sqlite3.connect(self.file(at), isolation_level=None, check_same_thread=False)
        got = self.base.execute(f"pragma journal_mode = {mode}").fetchone()[0]
        if got != mode:
            raise OSError(f"{name}: SQLite has journal mode {got} in place of {mode}")
        self.base.execute(f"pragma synchronous = {synchronous}")
        self.base.execute("pragma wal_autocheckpoint = 20")
        self.base.execute("create table entry (number integer primary key, text blob)")
        self.base.execute("create table account (number integer primary key, balance integer)")
        self.base.executemany("insert into account values (?, 0)", [(number,) for number in range(self.ACCOUNTS)])
        self.number = 0

    def file(self, root):
        return os.path.join(self.path(root), "base")

    def close(self):
        self.base.close()

    def step(self):
        number = self.number + 1
        self.begin(number)
        amount, (one, other) = self.rng.randint(1, 99), self.rng.sample(range(self.ACCOUNTS), 2)
        self.base.execute("begin immediate")
        self.base.execute("insert into entry values (?, ?)", (number, sqlite_text(number)))
        self.base.execute("update account set balance = balance - ? where number = ?", (amount, one))
        self.base.execute("update account set balance = balance + ? where number = ?", (amount, other))
        self.base.execute("commit")
        self.sync(number)
        self.number = number
        return True

    def faults(self, root, position):
        durable, begun = last(self.synced, position) or 0, last(self.begun, position) or 0
        for fault in sqlite_faults(self.file(root), durable - self.may_lose, begun):
            yield f"{self.name}: {fault}"


def sqlite_text(number):
    """The content of a transaction's row."""
    return random.Random(number).randbytes(number * 37 % 3000)


def sqlite_faults(path, durable, begun):
    """Faults of a database of `Sqlite` with `durable` transactions committed and `begun` started."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as base:
            said = base.execute("pragma integrity_check").fetchall()
            if said != [("ok",)]:
                yield f"integrity_check: {said[:3]}"
            total, = base.execute("select sum(balance) from account").fetchone()
            if total != 0:
                yield f"the balances sum up to {total}"
            rows = base.execute("select number, text from entry order by number").fetchall()
            if [number for number, _ in rows] != list(range(1, len(rows) + 1)):
                yield f"transactions are missing among {len(rows)}"
            if not durable <= len(rows) <= begun:
                yield f"{len(rows)} transactions, {durable} must be there, {begun} were begun"
            if any(text != sqlite_text(number) for number, text in rows):
                yield "a row has other bytes"
    except sqlite3.Error as error:
        yield str(error)


def all_clients(at, seed, position):
    """One of each kind, by the name of its files."""
    logs = [Log(at, f"log-{how}", seed, position, how) for how in Log.HOW]
    return [
        *logs,
        Table(at, "table", seed, position, mapped=False),
        Table(at, "mapped", seed, position, mapped=True),
        Replacer(at, "replaced", seed, position),
        Names(at, "names", seed, position),
        Shape(at, "shape", seed, position),
        Sqlite(at, "wal", seed, position, "wal", "full"),
        # SQLite commits by removing the journal, and only EXTRA syncs the directory afterwards. With FULL a power loss may
        # restore the journal and so roll back the last transaction, as SQLite documents.
        Sqlite(at, "delete", seed, position, "delete", "extra"),
        Sqlite(at, "delete-full", seed, position, "delete", "full", may_lose=1),
    ]
