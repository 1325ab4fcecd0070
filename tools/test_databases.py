#!/usr/bin/env python3
"""Injects losses that tools/databases.py must find: a check that cannot fail proves nothing."""

import glob
import os
import re
import shutil
import struct
import sys
import tempfile
import types
import unittest

import databases


class Nothing:
    """Replaces a mount by a plain directory, and damages the directory after the kill."""

    def __init__(self, damage):
        self.damage = damage

    def kill(self):
        """The directory stays."""

    def close(self):
        """No mount is to be unmounted."""

    def remove(self):
        self.damage()


class Plain(databases.Postgres):
    """A cluster in a plain directory."""

    def mount(self, _options):
        self.daemon = Nothing(getattr(self, "damage", lambda: None))


class PostgreSql(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        os.chmod(self.directory, 0o755)
        programs = databases.find_postgres()
        if not programs:
            self.assertNotEqual(os.environ.get("CI"), "true", "PostgreSQL is missing")
            self.skipTest("PostgreSQL is missing (try: tools/setup.sh databases)")
        options = types.SimpleNamespace(bowwave="", seed=1, rounds=1, serve=None)
        self.trial = databases.Trial(options, self.directory)

    def test_a_flipped_bit_and_a_lost_end_of_the_log_are_found(self):
        under_test = Plain(self.trial)
        self.addCleanup(under_test.close)
        rng = types.SimpleNamespace(choice=lambda many: many[0], uniform=lambda _low, high: min(high, 1), random=lambda: 1)
        faults, _ = under_test.round(0, rng)
        self.assertEqual(faults, [])
        self.flip(under_test.cluster.data)
        self.assertIn("checksum", under_test.checksums()[0])
        self.flip(under_test.cluster.data)
        self.assertEqual(under_test.checksums(), [])
        for number in range(1, 6):
            lost = []
            under_test.damage = lambda number=number, lost=lost: lost.extend(self.lose_log(under_test, number))
            try:
                faults, _ = under_test.round(number, rng)
            except databases.Failed as error:
                # If the checkpoint record was lost, the server does not start.
                faults = [str(error)]
            if lost:
                self.assertRegex("\n".join(faults), "committed transactions are lost|does not start", lost)
                return
            # A checkpoint followed the last row, so the log was no longer needed.
            self.assertEqual(faults, [])
        self.fail("in no round did the log have rows that a checkpoint had not written")

    @staticmethod
    def flip(data):
        """Flips one bit of the largest table."""
        largest = max(glob.glob(os.path.join(data, "base", "*", "*")), key=os.path.getsize)
        with open(largest, "r+b") as file:
            file.seek(100_001)
            byte = file.read(1)[0]
            file.seek(100_001)
            file.write(bytes([byte ^ 4]))

    @staticmethod
    def lose_log(under_test, number):
        """Zeroes the last segment of the write-ahead log that recovery needs and that inserts a client's last committed row."""
        cluster = under_test.cluster
        needed = re.search(r"REDO WAL file: *(\w+)", cluster.run("pg_controldata", cluster.data))[1]
        with open(os.path.join(under_test.directory, "committed"), encoding="ascii") as file:
            # By client: the last one stays.
            rows = {row.rpartition("-")[0]: row for row in file.read().split() if row.startswith(f"{number}-")}
        inserted = {}
        for segment in sorted(glob.glob(os.path.join(cluster.data, "pg_wal", "00000001*"))):
            name = os.path.basename(segment)
            with open(segment, "rb") as file:
                log = file.read()
            # A recycled segment still has the address of the one it was.
            if struct.unpack_from("<Q", log, 8)[0] != int(name[8:16], 16) << 32 | int(name[16:], 16) << 20:
                continue
            for row in rows.values():
                # Later ones have the row in images of its page.
                if row not in inserted and re.search(rb"%b(?!\d)" % row.encode(), log):
                    inserted[row] = segment
        last = max(inserted.values(), default="")
        if os.path.basename(last) < needed:
            return []
        with open(last, "r+b") as file:
            file.write(bytes(os.path.getsize(last)))
        return [os.path.basename(last)]


class Objects(unittest.TestCase):
    def test_mixed_missing_and_foreign_objects_are_found(self):
        bucket = databases.Bucket.__new__(databases.Bucket)
        with tempfile.TemporaryDirectory() as directory:
            bucket.at = directory
            bucket.known = {"old": {b"1", b"2"}, "mixed": {b"11", b"22"}, "gone": {b"1"}, "maybe": {None, b"1"}}
            for name, data in (("old", b"1"), ("mixed", b"12"), ("foreign", b"")):
                with open(os.path.join(directory, name), "wb") as file:
                    file.write(data)
            faults = bucket.faults()
        self.assertEqual([fault.split(":")[0] for fault in faults], ["objects that nothing wrote", "mixed", "gone"])
        self.assertIn("['foreign']", faults[0])


if __name__ == "__main__":
    sys.exit(unittest.main())
