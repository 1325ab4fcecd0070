#!/usr/bin/env python3
"""Runs programs that find faults of file systems on a read-write mount, or on any directory.

    tools/verify.py [--bowwave target/debug/bowwave] [--on DIR] [--mount KIND]... [--whole] [--seed N] [PART...]

The parts, with several kinds of mount of a directory (caches of several sizes, with and without the kernel's cache; all
of them with --whole):

    fsx     random reads, writes, maps, truncations, holes and copies of one file, with each read compared with the
            expected bytes: 5,000 operations a kind of mount; with --whole 250,000, which is 1,000,000 in total
    posix   pjdfstest: about 400 cases of POSIX rules for calls and their errors. The directory itself is tested first:
            cases that its own file system fails are not required of the mount
    fio     8 jobs of random writes with checksums; read back from the mount and, after the unmount, from the directory
            below it

Exits with 1 if anything differs. tools/setup.sh verify installs the programs; a part whose program is missing is
skipped with a message, or is an error if the part was named. With --on, the tests run on that directory, without a
mount.
"""

import argparse
import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from mounts import can_mount, end_mounts_when_stopped, mounted

# Weights of fsx operations: more size changes and holes than by default. Maps are not always synced
# at once, so that truncation, holes and other reads meet changes that only the kernel has. No
# operation has zero bytes: posix_fallocate must fail then, which fsx reports as a fault (once in
# 400,000 operations).
FSX = """
flen = 1048576
nomsyncafterwrite = {no_msync}
[opsize]
min = 1
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
invalidate = 1
truncate = 10
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 3
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 3
"""

# Two users of every Debian, each in its own group.
PJDFSTEST = """
[features]
posix_fallocate = {{}}
utime_now = {{}}
utimensat = {{}}
rename_ctime = {{}}
[settings]
naptime = 0.02
allow_remount = {remount}
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
"""

# Cases of pjdfstest that the mount fails, each with its reason; an entry that passes is an error,
# too.
EXCLUDED = {
    "link::link_count_max": "the C library knows the largest link count of no file system in user space, so that the "
                            "case is skipped",
}

# Its EROFS tests mount the file system read-only through mount(8), which would start a program
# named like the type.
MOUNT = """#!/bin/sh
exec {mount} --internal-only "$@"
"""

# Kinds of mount: name and options.
MOUNTS = {
    "default": (),
    "small cache": ("--cache", "2MiB"),
    "no kernel cache": ("--set", "kernel_cache=off"),
    "no kernel cache, small cache": ("--set", "kernel_cache=off", "--cache", "2MiB"),
}
# Options of a short run, by part.
SHORT = {
    "fsx": tuple(MOUNTS),
    "posix": ("default",),
    "fio": ("small cache",),
}

# Modes of fio: name, options, and whether a later pass can verify the directory.
FIO = (
    ("random writes", ("--rw=randwrite", "--bssplit=4k/40:16k/30:64k/30", "--ioengine=psync"), True),
    ("mixed with reads", ("--rw=randrw", "--bs=8k", "--ioengine=psync"), False),
    ("with fsync", ("--rw=randwrite", "--bs=2k", "--ioengine=psync", "--fsync=64"), True),
    ("16 at once", ("--rw=randwrite", "--bs=4k", "--ioengine=libaio", "--iodepth=16"), True),
    ("direct", ("--rw=randwrite", "--bs=16k", "--ioengine=libaio", "--iodepth=8", "--direct=1"), True),
    ("mapped", ("--rw=randwrite", "--bs=4k", "--ioengine=mmap"), True),
)


class Different(Exception):
    """What was read is not what was written, or a call did not answer as it must."""


class Verify:
    def __init__(self, options, directory):
        self.options = options
        self.directory = directory
        self.seed = options.seed
        self.failures = 0

    @contextlib.contextmanager
    def places(self, part):
        """Yields (name, a way to the directory to test, the directory that holds what it wrote) for each kind of mount."""
        if self.options.on:
            yield [(self.options.on, lambda: contextlib.nullcontext(self.options.on), self.options.on)]
            return
        stores = []
        kinds = []
        wanted = self.options.mount or (MOUNTS if self.options.whole else SHORT[part])
        for number, (name, extra) in enumerate(MOUNTS.items()):
            if name not in wanted:
                continue
            store = os.path.join(self.directory, f"store{number}")
            os.mkdir(store)
            stores.append(store)
            kinds.append((name, self.mount(store, extra), store))
        try:
            yield kinds
        finally:
            for store in stores:
                shutil.rmtree(store)

    def mount(self, store, extra):
        """A way to mount `store`."""
        extra = list(extra) + (["--allow-other"] if os.geteuid() == 0 else [])

        @contextlib.contextmanager
        def make():
            with mounted(self.options.bowwave, store, self.directory, *extra) as (at, _):
                yield at
        return make

    def case(self, what, check):
        """Runs one check and says how it went."""
        start = time.monotonic()
        try:
            said = check()
        except Different as different:
            self.failures += 1
            print(f"{what}: FAILED\n{indent(str(different))}", flush=True)
        else:
            print(f"{what}: {said}, {time.monotonic() - start:.1f} s", flush=True)

    def fsx(self):
        with self.places("fsx") as kinds:
            count = 1_000_000 // len(MOUNTS) if self.options.whole else 5_000
            for number, (name, make, _) in enumerate(kinds):
                seed = self.seed + number
                self.case(f"fsx, {name}, seed {seed}", lambda make=make, seed=seed: self.fsx_on(make, seed, count))

    def fsx_on(self, make, seed, count):
        settings = self.write("fsx.toml", FSX.format(no_msync="true" if seed % 2 else "false"))
        with make() as at:
            path = os.path.join(at, f"fsx-{seed}")
            run(["fsx", "-q", "-f", settings, "-N", str(count), "-S", str(seed), "-P", self.directory, path])
            os.remove(path)
        return f"{count} operations, 0 differences"

    def fio(self):
        with self.places("fio") as kinds:
            for name, make, store in kinds:
                for way, settings, again in FIO:
                    check = lambda m=make, s=store, o=settings, a=again: self.fio_on(m, s, o, a)
                    self.case(f"fio, {name}, {way}, seed {self.seed}", check)

    def fio_on(self, make, store, settings, again):
        size = "64m" if self.options.whole else "2m"
        command = ["fio", "--name=job", "--numjobs=8", f"--size={size}", "--verify=crc32c", "--verify_fatal=1",
                   "--verify_state_save=0", f"--randseed={self.seed}", "--allrandrepeat=1", "--minimal",
                   "--fallocate=none", *settings]
        with make() as at:
            run([*command, f"--directory={at}"])
        # Now no mapping and no kernel cache hides the directory.
        if again:
            run([*command, f"--directory={store}", "--verify_only"])
        for name in os.listdir(store):
            if name.startswith("job."):
                os.remove(os.path.join(store, name))
        return f"8 jobs of {size}, verified twice" if again else f"8 jobs of {size}, verified"

    def posix(self):
        with self.places("posix") as kinds:
            own = self.pjdfstest(kinds[0][2], False)
            said = f"{own.count('ok')} of {len(own.cases)} cases pass in the directory itself"
            print(f"posix: {said}; not asked, because its file system fails them: {own.failed or 'none'}", flush=True)
            for name, make, _ in kinds:
                if not self.options.on:
                    self.case(f"posix, {name}", lambda make=make: self.posix_on(make, own))
            if self.options.on and own.failed:
                self.failures += 1

    def posix_on(self, make, own):
        with make() as at:
            # Its EROFS tests remount the file system read-only; never do that to the machine's own.
            got = self.pjdfstest(at, True)
        passing = [name for name in EXCLUDED if got.cases.get(name) == "ok"]
        bad = [name for name in got.failed if name not in own.failed and name not in EXCLUDED]
        lost = [name for name, how in own.cases.items()
                if how == "ok" and got.cases.get(name) == "skipped" and name not in EXCLUDED]
        if passing or bad or lost:
            details = [f"{name}: {got.why.get(name, 'skipped on the mount alone')}" for name in bad + lost]
            details += [f"{name}: passes, but is excluded: take it off the list" for name in passing]
            raise Different("\n".join(details))
        excluded = "".join(f"\n  excluded: {name}: {why}" for name, why in EXCLUDED.items() if name in got.cases)
        skipped = sorted({got.why.get(name, "?") for name, how in got.cases.items()
                          if how == "skipped" and name not in EXCLUDED})
        return f"{got.count('ok')} of {len(got.cases)} pass; skipped: {'; '.join(skipped) or 'none'}{excluded}"

    def pjdfstest(self, at, remount):
        """What became of each case at `at`."""
        outcome = self.pjdfstest_run(at, False)
        # Earlier cases leave files open, which prevents read-only mounts: run these in a separate
        # process.
        if remount and os.path.ismount(at) and os.geteuid() == 0:
            outcome.update(self.pjdfstest_run(at, True, "erofs"))
        return outcome

    def pjdfstest_run(self, at, remount, *patterns):
        """One run of the cases whose name has one of the patterns."""
        settings = self.write("pjdfstest.toml", PJDFSTEST.format(remount="true" if remount else "false"))
        command = ["pjdfstest", "-c", settings, "-p", at]
        other = next((place for place in (self.directory, "/dev/shm") if elsewhere(place, at)), None)
        done = attempt([*command, *(["-s", other] if other else []), *patterns], self.path_with_mount())
        outcome = Outcome(done.stdout)
        if not outcome.cases or done.returncode not in (0, 1):
            raise Different(f"pjdfstest ended with {done.returncode}: {done.stderr or done.stdout}")
        return outcome

    def path_with_mount(self):
        """Where programs are found, our mount(8) first."""
        directory = os.path.join(self.directory, "bin")
        if not os.path.isdir(directory):
            os.mkdir(directory)
            script = self.write("bin/mount", MOUNT.format(mount=shutil.which("mount")))
            os.chmod(script, 0o755)
        return directory + os.pathsep + os.environ["PATH"]

    def write(self, name, text):
        path = os.path.join(self.directory, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


class Outcome:
    """What pjdfstest said: each case with how it went, and why it failed or was skipped."""

    def __init__(self, output):
        self.cases, self.why = {}, {}
        name = None
        for line in re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines():
            found = re.match(r"(\S+::\S+) +(ok|FAILED|skipped)$", line)
            if found:
                name = found[1]
                self.cases[name] = found[2]
            elif line.startswith("\t") and name:
                self.why.setdefault(name, line.strip())

    @property
    def failed(self):
        return sorted(name for name, how in self.cases.items() if how == "FAILED")

    def update(self, other):
        """Puts what another run said of some cases in the place of what is here."""
        for name in other.cases:
            self.why.pop(name, None)
        self.cases.update(other.cases)
        self.why.update(other.why)

    def count(self, how):
        return sum(1 for each in self.cases.values() if each == how)


def elsewhere(place, at):
    """Whether `place` can be written and lies in another file system than `at`."""
    return os.access(place, os.W_OK) and os.stat(place).st_dev != os.stat(at).st_dev


def attempt(command, path=None):
    environment = {**os.environ, "PATH": path} if path else None
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          errors="replace", env=environment, check=False)


def run(command):
    """Runs a program that must succeed."""
    done = attempt(command)
    if done.returncode:
        said = (done.stderr.strip() or done.stdout).splitlines()
        raise Different("\n".join([f"{' '.join(command)}: ended with {done.returncode}", *said[-40:]]))


def indent(text):
    return "\n".join(f"  {line}" for line in text.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bowwave", default="target/debug/bowwave", help="the program to test")
    parser.add_argument("--on", metavar="DIR", help="test this directory instead")
    parser.add_argument("--mount", action="append", choices=MOUNTS, help="only this kind of mount")
    parser.add_argument("--whole", action="store_true", help="the long run: some minutes")
    parser.add_argument("--seed", type=int, default=1, help="of everything random")
    parser.add_argument("parts", metavar="PART", nargs="*", help="fsx, posix, fio; all if none")
    options = parser.parse_args()
    programs = {"fsx": "fsx", "posix": "pjdfstest", "fio": "fio"}
    for part in options.parts:
        if part not in programs:
            parser.error(f"unknown part '{part}' (one of {', '.join(programs)})")
    end_mounts_when_stopped()
    tools = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "tools", "bin")
    os.environ["PATH"] = os.path.abspath(tools) + os.pathsep + os.environ["PATH"]
    if options.on:
        options.on = os.path.abspath(options.on)
    elif not can_mount():
        print("verify: left out: /dev/fuse cannot be opened", file=sys.stderr)
        return
    elif not os.access(options.bowwave, os.X_OK):
        parser.error(f"{options.bowwave} is not there; build it with 'cargo build'")
    options.bowwave = os.path.abspath(options.bowwave)
    with tempfile.TemporaryDirectory(prefix="bowwave-verify-") as directory:
        os.chmod(directory, 0o755)
        verify = Verify(options, directory)
        for part in options.parts or programs:
            if shutil.which(programs[part]):
                getattr(verify, part)()
            elif options.parts:
                parser.error(f"'{programs[part]}' is missing; run tools/setup.sh verify")
            else:
                print(f"verify: {part} left out: '{programs[part]}' is missing (tools/setup.sh verify)", file=sys.stderr)
    if verify.failures:
        raise SystemExit(f"verify: {verify.failures} checks failed")


if __name__ == "__main__":
    main()
