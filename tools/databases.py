#!/usr/bin/env python3
"""Kills the process behind a mount with kill -9 while databases and copies use it, and checks which data survives.

    tools/databases.py [--bowwave target/debug/bowwave] [--rounds N] [--seed N] [PART...]

    postgres    a cluster with checksums in a mounted directory, with pgbench and with clients that insert rows of known ids.
                After each kill PostgreSQL recovers. Then every committed row is there, the sums of accounts, tellers,
                branches and history are equal, and pg_amcheck and pg_checksums find no fault
    sqlite      WAL and rollback journal with synchronous=FULL: every committed transaction is there, integrity_check passes
    bucket      cp, tar and Python write objects to a mounted S3 bucket: every object is the old or the new version, whole,
                and the new version if its writer succeeded

A round is one kill; kinds of mount take turns. The seed sets the operations and the times of the kills. The exit status is 1
if data was lost. A part whose programs are missing is skipped with a message; tools/setup.sh databases installs PostgreSQL.
"""

import argparse
import contextlib
import glob
import multiprocessing
import os
import pwd
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time

from mounts import can_mount, end_mounts_when_stopped, is_mounted
from power_clients import Sqlite, sqlite_faults

MOUNTS = ((), ("--cache", "8MiB"), ("--set", "kernel_cache=off"), ("--dirty-expire", "50ms"))
# Programs of PostgreSQL, which Debian keeps outside PATH.
POSTGRES = ("initdb", "postgres", "pgbench", "psql", "pg_amcheck", "pg_checksums", "pg_controldata")
CLIENTS = 4
MIB = 1 << 20

TRANSACTION = """BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + {delta} WHERE aid = {account};
UPDATE pgbench_tellers SET tbalance = tbalance + {delta} WHERE tid = {teller};
UPDATE pgbench_branches SET bbalance = bbalance + {delta} WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime, filler)
    VALUES ({teller}, 1, {account}, {delta}, CURRENT_TIMESTAMP, '{row}');
COMMIT;
\\echo answered
"""
SUMS = """SELECT (SELECT sum(abalance) FROM pgbench_accounts), (SELECT sum(tbalance) FROM pgbench_tellers),
    (SELECT sum(bbalance) FROM pgbench_branches), (SELECT coalesce(sum(delta), 0) FROM pgbench_history);"""


class Failed(Exception):
    """A program failed that had to succeed."""


class Daemon:
    """A mount whose process is killed instead of unmounted."""

    def __init__(self, bowwave, url, at, *options, environment=None):
        self.bowwave, self.at = bowwave, at
        command = [bowwave, "mount", url, at, *options]
        self.child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True,
                                      env={**os.environ, **(environment or {})})
        line = self.child.stderr.readline()
        if " is mounted at " not in line:
            self.kill()
            raise Failed(f"{' '.join(command)}: {line.strip() or 'ended without a word'}")
        self.said = []
        self.reader = threading.Thread(target=lambda: self.said.extend(self.child.stderr), daemon=True)
        self.reader.start()

    def kill(self):
        """kill -9: programs that use the mount get errors from now on."""
        self.child.kill()
        self.child.wait()

    def remove(self):
        """Unmounts the dead mount, once no process uses it."""
        if is_mounted(self.at):
            subprocess.run([self.bowwave, "umount", self.at], check=False)
        if is_mounted(self.at):
            subprocess.run(["fusermount3", "-u", "-z", self.at], check=False)

    def close(self):
        if self.child.poll() is None:
            self.kill()
        self.remove()


class Cluster:
    """A PostgreSQL cluster at a directory, run by a user who is not root."""

    def __init__(self, programs, directory, at):
        self.programs, self.directory = programs, directory
        self.data = os.path.join(at, "data")
        self.log = os.path.join(directory, "server.log")
        self.user = None
        if os.geteuid() == 0:
            names = {entry.pw_name for entry in pwd.getpwall()}
            self.user = "postgres" if "postgres" in names else "nobody"
        self.server = None

    def own(self, path):
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(path, entry.pw_uid, entry.pw_gid)

    def popen(self, name, *arguments, **how):
        entry = pwd.getpwnam(self.user) if self.user else None
        user = {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []} if entry else {}
        environment = {"PATH": os.environ["PATH"], "PGHOST": self.directory, "PGUSER": "postgres", "PGDATABASE": "postgres",
                       "LC_ALL": "C", "HOME": self.directory}
        return subprocess.Popen([self.programs[name], *arguments], text=True, env=environment, cwd=self.directory,
                                start_new_session=True, **user, **how)

    def run(self, name, *arguments):
        """Runs a program that must succeed; returns its output."""
        with self.popen(name, *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            output, errors = child.communicate(timeout=120)
        if child.returncode:
            raise Failed(f"{name} {' '.join(arguments)}: ended with {child.returncode}: {(errors or output).strip()[-2000:]}")
        return output

    def create(self):
        """Creates a cluster with checksums, small WAL segments and the tables of pgbench."""
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "trust", "--data-checksums", "--wal-segsize=1",
                 "--encoding=UTF8", "--locale=C")
        with open(os.path.join(self.data, "postgresql.auto.conf"), "a", encoding="utf-8") as file:
            # Small limits give checkpoints, recycled segments and evicted pages within seconds.
            file.write("listen_addresses = ''\nshared_buffers = 4MB\nmax_wal_size = 8MB\nmin_wal_size = 2MB\n"
                       "checkpoint_timeout = 30s\nautovacuum_naptime = 1s\nfsync = on\nsynchronous_commit = on\n")
        self.start("fdatasync")
        self.run("pgbench", "-i", "-q", "-s", "1")
        self.stop()

    def start(self, wal_sync):
        """Starts the server and waits until it accepts queries, which includes recovery after a crash."""
        self.begin(wal_sync)
        deadline = time.monotonic() + 120
        while True:
            try:
                self.ask("SELECT 1;")
                return
            except Failed as error:
                if self.server.poll() is not None or time.monotonic() > deadline:
                    raise Failed(f"PostgreSQL does not start: {error}\n{self.said()}") from error
            time.sleep(0.05)

    def begin(self, wal_sync):
        """Starts the server and does not wait."""
        with open(self.log, "a", encoding="utf-8") as log:
            self.server = self.popen("postgres", "-D", self.data, "-k", self.directory, "-c", f"wal_sync_method={wal_sync}",
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, statement):
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-c", statement).strip()

    def said(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return file.read()[-3000:]

    def stop(self):
        """A fast shutdown."""
        self.server.send_signal(signal.SIGINT)
        if self.server.wait(timeout=60):
            raise Failed(f"PostgreSQL ended with {self.server.returncode}\n{self.said()}")

    def kill(self):
        """Kills the server and its child processes, each of which has its own session."""
        if self.server is None or self.server.poll() is not None:
            return
        # A stopped server starts no more processes.
        self.server.send_signal(signal.SIGSTOP)
        own = children(self.server.pid)
        for child in own:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        self.server.kill()
        self.server.wait(timeout=60)
        # They keep the mount busy until they have exited.
        while any(status(child)[0] not in (None, "Z") for child in own):
            time.sleep(0.01)


def status(process):
    """State and parent of a process; (None, None) if it does not exist."""
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as file:
            state, parent = file.read().rpartition(")")[2].split()[:2]
            return state, int(parent)
    except OSError:
        return None, None


def children(parent):
    """The child processes of `parent`."""
    processes = [int(path.split("/")[2]) for path in glob.glob("/proc/[0-9]*")]
    return [process for process in processes if status(process)[1] == parent]


class Rows:
    """A client that inserts rows of known ids, and logs each committed one outside the mount."""

    def __init__(self, cluster, name, seed, log):
        self.name, self.log = name, log
        self.rng = random.Random(f"{seed} {name}")
        self.begun, self.committed = None, []
        self.psql = cluster.popen("psql", "-XAt", "-v", "ON_ERROR_STOP=1", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL)
        self.thread = threading.Thread(target=self.play)
        self.thread.start()

    def play(self):
        number = 0
        with self.psql, contextlib.suppress(BrokenPipeError):
            while True:
                number += 1
                self.begun = f"{self.name}-{number}"
                self.psql.stdin.write(TRANSACTION.format(row=self.begun, delta=self.rng.randint(-5000, 5000),
                                                         account=self.rng.randint(1, 100_000), teller=self.rng.randint(1, 10)))
                self.psql.stdin.flush()
                committed = False
                for line in self.psql.stdout:
                    committed = committed or line == "COMMIT\n"
                    if line == "answered\n":
                        break
                if not committed:
                    return
                os.write(self.log, f"{self.begun}\n".encode())
                os.fsync(self.log)
                self.committed.append(self.begun)
                self.begun = None


class Postgres:
    """A cluster on a mount, round after round."""

    def __init__(self, trial):
        self.trial = trial
        self.directory = trial.place("postgres", 0o755)
        self.store, self.at = os.path.join(self.directory, "store"), os.path.join(self.directory, "at")
        self.log = os.open(os.path.join(self.directory, "committed"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.known, self.recoveries, self.daemon = set(), 0, None
        for path in (self.store, self.at):
            os.mkdir(path)
        run = os.path.join(self.directory, "run")
        os.mkdir(run)
        self.cluster = Cluster(trial.postgres, run, self.at)
        for path in (self.store, self.at, run):
            self.cluster.own(path)
        try:
            self.mount(())
            self.cluster.create()
        except BaseException:
            self.close()
            raise

    def mount(self, options):
        other = ("--allow-other",) if os.geteuid() == 0 else ()
        self.daemon = Daemon(self.trial.bowwave, self.store, self.at, *other, *options)

    def round(self, number, rng):
        wal_sync = rng.choice(("fdatasync", "fsync", "open_datasync", "open_sync"))
        self.daemon.close()
        self.mount(MOUNTS[number % len(MOUNTS)])
        self.cluster.start(wal_sync)
        load = self.cluster.popen("pgbench", "-n", "-c", "4", "-T", "600", stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = [Rows(self.cluster, f"{number}-{one}", self.trial.seed, self.log) for one in range(CLIENTS)]
        deadline = time.monotonic() + 60
        while not all(one.committed for one in rows):
            # A round without commits checks nothing.
            if time.monotonic() > deadline:
                raise Failed(f"PostgreSQL does not commit anything\n{self.cluster.said()}")
            time.sleep(0.01)
        time.sleep(rng.uniform(0.2, 3))
        self.daemon.kill()
        self.cluster.kill()
        load.wait(timeout=60)
        for one in rows:
            one.thread.join(timeout=60)
        self.daemon.remove()
        self.mount(MOUNTS[number % len(MOUNTS)])
        if rng.random() < 0.3:
            # A second kill, during recovery.
            self.cluster.begin(wal_sync)
            time.sleep(rng.uniform(0, 0.5))
            self.daemon.kill()
            self.cluster.kill()
            self.daemon.remove()
            self.mount(MOUNTS[number % len(MOUNTS)])
        self.cluster.start(wal_sync)
        self.known.update(row for one in rows for row in one.committed)
        in_flight = {one.begun for one in rows if one.begun}
        faults = self.faults(in_flight)
        self.cluster.stop()
        faults += self.checksums()
        return faults, f"{sum(len(one.committed) for one in rows)} commits"

    def faults(self, in_flight=frozenset()):
        faults = []
        there = self.cluster.ask("SELECT filler FROM pgbench_history WHERE filler IS NOT NULL;").split()
        rows = set(there)
        lost, foreign = self.known - rows, rows - self.known - in_flight
        if lost:
            faults.append(f"{len(lost)} committed transactions are lost, such as {sorted(lost)[:5]}")
        if foreign or len(there) != len(rows):
            faults.append(f"rows that no client inserted: {sorted(foreign)[:5]}; {len(there) - len(rows)} duplicates")
        self.known |= rows
        sums = self.cluster.ask(SUMS).split("|")
        if len(set(sums)) != 1:
            faults.append(f"balances of accounts, tellers, branches and history differ: {sums}")
        try:
            self.cluster.run("pg_amcheck", "--install-missing", "--heapallindexed", "-d", "postgres")
        except Failed as error:
            faults.append(str(error))
        return faults

    def checksums(self):
        try:
            self.cluster.run("pg_checksums", "--check", "-D", self.cluster.data)
        except Failed as error:
            return [str(error)]
        return []

    def figures(self):
        with open(self.cluster.log, encoding="utf-8", errors="replace") as file:
            recoveries = len(re.findall("automatic recovery in progress", file.read()))
        return f"{len(self.known)} committed transactions checked after each round since, {recoveries} recoveries"

    def close(self):
        self.cluster.kill()
        if self.daemon:
            self.daemon.close()
        os.close(self.log)


def write_sqlite(at, log, seed, mode):
    """Commits transactions until an error, and logs those begun and committed. It needs its own process: the shared memory
    of WAL is a mapping of a file on the mount, and access to it raises SIGBUS once the mount is dead."""
    log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    client = Sqlite(at, mode, seed, lambda: 0, mode, "full")
    client.begin = lambda number: os.write(log, f"begun {number}\n".encode())
    client.sync = lambda number: (os.write(log, f"committed {number}\n".encode()), os.fsync(log))
    with contextlib.suppress(sqlite3.Error):
        while True:
            client.step()
    os._exit(0)


class SqliteBases:
    """Databases of SQLite, new ones in each round."""

    MODES = ("wal", "delete")

    def __init__(self, trial):
        self.trial = trial
        self.directory = trial.place("sqlite")
        self.store, self.at = os.path.join(self.directory, "store"), os.path.join(self.directory, "at")
        for path in (self.store, self.at):
            os.mkdir(path)
        self.daemon, self.checked = None, 0

    def round(self, number, rng):
        options = MOUNTS[number % len(MOUNTS)]
        self.daemon = Daemon(self.trial.bowwave, self.store, self.at, *options)
        os.mkdir(os.path.join(self.at, str(number)))
        logs = {mode: os.path.join(self.directory, f"{number}-{mode}") for mode in self.MODES}
        fork = multiprocessing.get_context("fork")
        writers = [fork.Process(target=write_sqlite, args=(os.path.join(self.at, str(number)), log, number, mode))
                   for mode, log in logs.items()]
        for writer in writers:
            writer.start()
        deadline = time.monotonic() + 60
        while not all(os.path.exists(log) and os.path.getsize(log) for log in logs.values()):
            if time.monotonic() > deadline:
                raise Failed("SQLite does not commit anything")
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 1.5))
        self.daemon.kill()
        for writer in writers:
            writer.join(60)
            if writer.is_alive():
                writer.kill()
        self.daemon.remove()
        self.daemon = Daemon(self.trial.bowwave, self.store, self.at, *options)
        faults, committed = [], 0
        for mode, log in logs.items():
            path = os.path.join(self.at, str(number), mode, "base")
            count, begun = numbers(log)
            faults += [f"{mode}: {fault}" for fault in sqlite_faults(path, count, begun)]
            committed += count
        self.daemon.close()
        self.checked += committed
        return faults, f"{committed} commits"

    def figures(self):
        return f"{self.checked} committed transactions checked"

    def close(self):
        if self.daemon:
            self.daemon.close()


def numbers(log):
    """The numbers of committed and of begun transactions."""
    last = {"committed": 0, "begun": 0}
    with open(log, encoding="utf-8") as file:
        for line in file:
            what, number = line.split()
            last[what] = int(number)
    return last["committed"], last["begun"]


class Bucket:
    """Objects of an S3 bucket, written by programs."""

    NAMES = 4

    def __init__(self, trial):
        self.trial = trial
        self.directory = trial.place("bucket")
        self.objects, self.at = os.path.join(self.directory, "objects"), os.path.join(self.directory, "at")
        self.sources = os.path.join(self.directory, "sources")
        for path in (self.objects, self.at, self.sources):
            os.mkdir(path)
        self.server = subprocess.Popen([trial.serve, self.objects], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                       start_new_session=True)
        said = [self.server.stdout.readline() for _ in range(4)]
        self.environment = dict(re.findall(r"(AWS_\w+)=(\S+)", "".join(said)))
        if len(self.environment) < 4:
            raise Failed(f"{trial.serve} does not serve: {said}")
        # The versions that each object may have; None if it may be absent. The server may still execute a complete request
        # after its sender was killed, so both versions stay possible until the next write.
        self.known, self.daemon, self.version, self.written = {}, None, 0, 0

    def mount(self):
        self.daemon = Daemon(self.trial.bowwave, "s3://objects", self.at, "--allow-http", environment=self.environment)

    def round(self, number, rng):
        self.mount()
        timer = threading.Timer(rng.uniform(0, 1.5), self.daemon.kill)
        timer.start()
        count = 0
        try:
            while self.daemon.child.poll() is None:
                count += self.write(rng)
        finally:
            timer.join()
            self.daemon.remove()
        self.mount()
        faults = self.faults()
        self.daemon.close()
        self.written += count
        return faults, f"{count} writes answered"

    def write(self, rng):
        """One program writes an object; returns whether it succeeded."""
        self.version += 1
        data = random.Random(self.version).randbytes(rng.choice((0, 1, 100_000, 3 * MIB, rng.randrange(20 * MIB))))
        name = str(rng.randrange(self.NAMES))
        source = os.path.join(self.sources, name)
        with open(source, "wb") as file:
            file.write(data)
        kind = rng.choice(("cp", "tar", "untar", "python"))
        target = f"{kind}-{name}"
        path = os.path.join(self.at, target)
        if kind == "cp":
            command = ["cp", source, path]
        elif kind == "python":
            command = [sys.executable, "-c", "import shutil, sys; shutil.copyfile(*sys.argv[1:])", source, path]
        else:
            archive = os.path.join(self.directory, "archive")
            subprocess.run(["tar", "-cf", archive, "-C", self.sources, name], check=True)
            if kind == "tar":
                with open(archive, "rb") as file:
                    data = file.read()
                command = ["tar", "-cf", path, "-C", self.sources, name]
            else:
                command = ["tar", "-xf", archive, "-C", self.at, "--no-same-owner", "--no-same-permissions", "--touch",
                           f"--transform=s/^/{kind}-/"]
        before = self.known.get(target, {None})
        self.known[target] = before | {data}
        if kind == "untar":
            # tar unlinks an existing file before it creates the new one.
            self.known[target].add(None)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        if done.returncode == 0:
            self.known[target] = {data}
            return True
        try:
            self.daemon.child.wait(timeout=5)
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{' '.join(command)}: {done.stderr}\n{''.join(self.daemon.said)}") from error
        return False

    def faults(self):
        faults = []
        names = set(os.listdir(self.at))
        foreign = names - set(self.known)
        if foreign:
            faults.append(f"objects that nothing wrote: {sorted(foreign)}")
        for name, allowed in self.known.items():
            data = None
            if name in names:
                with open(os.path.join(self.at, name), "rb") as file:
                    data = file.read()
            if data not in allowed:
                sizes = sorted(-1 if one is None else len(one) for one in allowed)
                faults.append(f"{name}: {'absent' if data is None else f'{len(data)} bytes'}, which is none of the "
                              f"versions it may have (bytes, -1 for absent: {sizes})")
        return faults

    def figures(self):
        return f"{self.written} objects answered"

    def close(self):
        if self.daemon:
            self.daemon.close()
        self.server.stdin.close()
        self.server.wait(timeout=20)


class Trial:
    """The options, and the directory of all parts."""

    PARTS = {"postgres": Postgres, "sqlite": SqliteBases, "bucket": Bucket}

    def __init__(self, options, directory):
        self.bowwave, self.seed, self.rounds = os.path.abspath(options.bowwave), options.seed, options.rounds
        self.serve = options.serve or os.path.join(os.path.dirname(self.bowwave), "examples", "serve")
        self.directory, self.postgres = directory, find_postgres()
        os.chmod(directory, 0o755)

    def place(self, name, mode=0o700):
        path = os.path.join(self.directory, name)
        os.mkdir(path)
        os.chmod(path, mode)
        return path

    def why_not(self, part):
        """The reason why a part cannot run, or None."""
        if not can_mount():
            return "/dev/fuse cannot be opened"
        if part == "postgres" and not self.postgres:
            return "PostgreSQL is missing (try: tools/setup.sh databases)"
        if part == "bucket" and not os.access(self.serve, os.X_OK):
            return f"{self.serve} is missing (try: cargo build -p bowwave-testkit --example serve)"
        return None

    def run(self, part):
        """Runs all rounds of a part; returns the number of rounds with faults."""
        missing = self.why_not(part)
        if missing:
            print(f"databases: {part} skipped: {missing}", file=sys.stderr, flush=True)
            # Continuous integration must have all that this needs.
            return int(os.environ.get("CI") == "true")
        start, bad = time.monotonic(), 0
        with contextlib.closing(self.PARTS[part](self)) as under_test:
            for number in range(self.rounds):
                rng = random.Random(f"{self.seed} {part} {number}")
                faults, said = under_test.round(number, rng)
                bad += bool(faults)
                for fault in faults:
                    print(f"  {part}, seed {self.seed}, round {number}: {fault}", flush=True)
                if self.rounds > 2 or faults:
                    print(f"{part}, round {number}: {said}, {len(faults)} faults", flush=True)
            print(f"{part}, seed {self.seed}: {self.rounds} kills, {under_test.figures()}, {bad} rounds with faults, "
                  f"{time.monotonic() - start:.1f} s", flush=True)
        return bad


def find_postgres():
    """The paths of the newest PostgreSQL's programs by name; None if one is missing."""
    directories = sorted(glob.glob("/usr/lib/postgresql/*/bin"), key=lambda path: float(path.split("/")[-2]), reverse=True)
    for path in (*(os.pathsep.join((directory, os.environ["PATH"])) for directory in directories), os.environ["PATH"]):
        found = {name: shutil.which(name, path=path) for name in POSTGRES}
        if all(found.values()):
            return found
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to test")
    parser.add_argument("--serve", help="the S3 server; examples/serve beside the program")
    parser.add_argument("--rounds", type=int, default=20, help="kills of each part")
    parser.add_argument("--seed", type=int, default=1, help="of everything random")
    parser.add_argument("parts", metavar="PART", nargs="*", help="postgres, sqlite, bucket; all if none")
    options = parser.parse_args()
    for part in options.parts:
        if part not in Trial.PARTS:
            parser.error(f"unknown part '{part}' (one of {', '.join(Trial.PARTS)})")
    end_mounts_when_stopped()
    with tempfile.TemporaryDirectory(prefix="bowwave-databases-") as directory:
        trial = Trial(options, directory)
        bad = [trial.run(part) for part in options.parts or Trial.PARTS]
    return 1 if any(bad) else 0


if __name__ == "__main__":
    sys.exit(main())
