#!/usr/bin/env python3
"""Injects faults that tools/verify.py must find: a check that cannot fail proves nothing."""

import contextlib
import os
import pathlib
import shutil
import tempfile
import threading
import types
import unittest

import verify

LIES = r"""#!/bin/sh
printf 'chmod::first \033[32mok\033[0m\nopen::second   FAILED\n\tit was so\nlink::third  skipped\n\tno reason\n'
exit 1
"""


class Faults(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.store = os.path.join(self.directory, "store")
        os.mkdir(self.store)
        tools = os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "tools", "bin")
        path = os.environ["PATH"]
        os.environ["PATH"] = os.path.abspath(tools) + os.pathsep + path
        self.addCleanup(os.environ.update, {"PATH": path})
        options = types.SimpleNamespace(on=None, whole=False, seed=1, bowwave=None)
        self.verify = verify.Verify(options, self.directory)

    def needs(self, program):
        if not shutil.which(program):
            self.skipTest(f"{program} is missing")

    @contextlib.contextmanager
    def sound(self):
        yield self.store

    @contextlib.contextmanager
    def with_a_saboteur(self):
        """The directory, in which bytes change that nobody wrote."""
        over = threading.Event()

        def spoil():
            while not over.wait(0.005):
                for path in pathlib.Path(self.store).glob("fsx-*"):
                    with contextlib.suppress(OSError), open(path, "r+b") as file:
                        file.seek(path.stat().st_size // 2)
                        file.write(b"\xee" * 64)

        saboteur = threading.Thread(target=spoil)
        saboteur.start()
        try:
            yield self.store
        finally:
            over.set()
            saboteur.join()

    @contextlib.contextmanager
    def with_a_flipped_bit(self):
        """The directory, in one file of which one bit is another one afterwards."""
        yield self.store
        path = sorted(pathlib.Path(self.store).glob("job.*"))[3]
        with open(path, "r+b") as file:
            file.seek(700_001)
            byte = file.read(1)[0]
            file.seek(700_001)
            file.write(bytes([byte ^ 4]))

    def test_fsx_finds_bytes_that_nobody_wrote(self):
        self.needs("fsx")
        self.assertIn("0 differences", self.verify.fsx_on(self.sound, 3, 500))
        with self.assertRaises(verify.Different):
            self.verify.fsx_on(self.with_a_saboteur, 3, 200_000)

    def test_fio_finds_one_bit_in_the_directory_below(self):
        self.needs("fio")
        settings = ("--rw=randwrite", "--bs=4k", "--ioengine=psync")
        self.assertIn("verified twice", self.verify.fio_on(self.sound, self.store, settings, True))
        with self.assertRaises(verify.Different) as caught:
            self.verify.fio_on(self.with_a_flipped_bit, self.store, settings, True)
        self.assertIn("--verify_only", str(caught.exception))

    def lying(self):
        bin = os.path.join(self.directory, "bin")
        os.mkdir(bin)
        path = pathlib.Path(bin, "pjdfstest")
        path.write_text(LIES, encoding="utf-8")
        path.chmod(0o755)
        os.environ["PATH"] = bin + os.pathsep + os.environ["PATH"]

    def test_a_posix_case_that_fails_on_the_mount_alone_is_a_failure(self):
        self.lying()
        outcome = self.verify.pjdfstest(self.store, False)
        self.assertEqual(outcome.cases, {"chmod::first": "ok", "open::second": "FAILED", "link::third": "skipped"})
        # The directory itself fails it, too: not the mount's fault.
        self.assertIn("1 of 3 pass", self.verify.posix_on(self.sound, outcome))
        own = verify.Outcome("chmod::first ok\nopen::second ok\nlink::third ok\n")
        with self.assertRaises(verify.Different) as caught:
            self.verify.posix_on(self.sound, own)
        self.assertEqual(str(caught.exception), "open::second: it was so\nlink::third: no reason")

    def test_an_exclusion_that_is_no_longer_needed_is_a_failure(self):
        self.lying()
        self.addCleanup(verify.EXCLUDED.clear)
        own = verify.Outcome("open::second ok\n")
        verify.EXCLUDED.update({"open::second": "its reason"})
        self.assertIn("excluded: open::second: its reason", self.verify.posix_on(self.sound, own))
        verify.EXCLUDED.update({"chmod::first": "another"})
        with self.assertRaises(verify.Different) as caught:
            self.verify.posix_on(self.sound, own)
        self.assertIn("chmod::first: passes, but is excluded", str(caught.exception))


if __name__ == "__main__":
    unittest.main()
