#!/usr/bin/env python3
"""Injects losses that tools/power_loss.py must find: a check that cannot fail proves nothing."""

import contextlib
import io
import os
import random
import shutil
import tempfile
import unittest

import power_loss
from block_images import FLUSH, HEADER, MODES, SECTOR, WRITE, Images
from power_clients import Names, all_clients

TARGET = os.environ.get("CARGO_TARGET_DIR", "target")


class Dropped(unittest.TestCase):
    """A mount whose calls of fsync or fdatasync do nothing."""

    def faults(self, *dropped):
        arguments = ["--bowwave", os.path.join(TARGET, "debug", "bowwave"), "--images", "6", "--seconds", "1"]
        options = power_loss.parse([*arguments, *(word for call in dropped for word in ("--drop", call))])
        missing = power_loss.why_not(options)
        if missing:
            self.assertFalse(power_loss.IN_CI, missing)
            self.skipTest(missing)
        power_loss.watch(300)
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as directory, contextlib.redirect_stdout(said):
            options.bowwave = power_loss.wrapped(options, directory)
            return power_loss.run(options, *power_loss.SHORT[0], seed=1)

    def test_a_mount_without_fsync_and_fdatasync_loses_bytes(self):
        self.assertGreater(self.faults("fsync", "fdatasync"), 0)

    def test_a_mount_without_fsync_loses_bytes(self):
        self.assertGreater(self.faults("fsync"), 0)

    def test_a_mount_without_fdatasync_loses_bytes(self):
        self.assertGreater(self.faults("fdatasync"), 0)


class Clients(unittest.TestCase):
    """Clients in a plain directory, whose files are then rolled back or overwritten."""

    def setUp(self):
        self.directory = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.directory)
        self.at = os.path.join(self.directory, "at")
        os.mkdir(self.at)
        self.clock = 0
        self.clients = all_clients(self.at, 1, self.tick)

    def tick(self):
        self.clock += 1
        return self.clock

    def work(self):
        for client in self.clients:
            for _ in range(12):
                client.step()

    def faults(self):
        """The faults each client finds in a copy; the check of SQLite changes its files."""
        copy = os.path.join(self.directory, "copy")
        shutil.copytree(self.at, copy)
        found = {client.name: list(client.faults(copy, self.clock)) for client in self.clients}
        shutil.rmtree(copy)
        return found

    def test_each_client_notices_that_synced_data_is_rolled_back(self):
        self.work()
        self.assertEqual([said for said in self.faults().values() if said], [])
        shutil.copytree(self.at, os.path.join(self.directory, "before"))
        self.work()
        self.assertEqual([said for said in self.faults().values() if said], [])
        for client in self.clients:
            client.close()
        shutil.rmtree(self.at)
        shutil.copytree(os.path.join(self.directory, "before"), self.at)
        self.assertEqual([name for name, said in self.faults().items() if not said], [])

    def test_each_client_notices_bytes_that_no_client_wrote(self):
        self.work()
        for client in self.clients:
            client.close()
        for place, _, names in os.walk(self.at):
            for name in names:
                with open(os.path.join(place, name), "r+b") as file:
                    middle = os.path.getsize(file.fileno()) // 2
                    file.seek(middle)
                    # More than one page of SQLite, so that it hits a used one.
                    file.write(b"\xee\x00" * 4096)
        self.assertEqual([name for name, said in self.faults().items() if not said], [])

    def test_a_name_that_no_client_created_is_noticed(self):
        names, = (client for client in self.clients if isinstance(client, Names))
        names.step()
        open(os.path.join(names.path(), "foreign"), "xb").close()
        self.assertEqual(list(names.faults(self.at, self.clock)),
                         ["names: foreign is there, though the directory was synced without it"])


class Legal(unittest.TestCase):
    """Images of a log of three writes, with a flush after the first two."""

    WRITES = ((0, b"a" * 1024), (512, b"b" * 512), (512, b"c" * 1024))

    def setUp(self):
        records = [HEADER.pack(WRITE, len(data), at) + data for at, data in self.WRITES]
        records.insert(2, HEADER.pack(FLUSH, 0, 0))
        self.ends = [sum(map(len, records[:number + 1])) for number in range(len(records))]
        with tempfile.NamedTemporaryFile(delete=False) as file:
            # The last record is incomplete.
            file.write(b"".join(records) + HEADER.pack(WRITE, 512, 0) + b"x" * 511)
        self.addCleanup(os.remove, file.name)
        self.log = file.name

    def built(self, position, mode, seed=1):
        images = Images(self.log, 2048, SECTOR)
        with tempfile.NamedTemporaryFile() as image:
            images.build(image.name, position, mode, random.Random(seed))
            return image.read()

    def test_every_image_has_flushed_writes_and_no_later_writes(self):
        flushed = (b"a" * 512 + b"b" * 512).ljust(2048, b"\0")
        for mode in MODES:
            self.assertEqual(self.built(self.ends[2], mode), flushed, mode)
            self.assertEqual(self.built(self.ends[3], mode)[:512], b"a" * 512, mode)
        self.assertEqual(self.built(self.ends[3], "none"), flushed)
        self.assertEqual(self.built(self.ends[3], "all"), (b"a" * 512 + b"c" * 1024).ljust(2048, b"\0"))
        self.assertEqual(self.built(10**9, "all"), self.built(self.ends[3], "all"))

    def test_a_sector_is_never_torn_and_a_write_may_be(self):
        images = {self.built(self.ends[3], "torn", seed) for seed in range(40)}
        sectors = {image[at:at + SECTOR] for image in images for at in range(0, 2048, SECTOR)}
        self.assertEqual({bytes(sector[:1]) for sector in sectors}, {b"a", b"b", b"c", b"\0"})
        self.assertTrue(all(len(set(sector)) == 1 for sector in sectors))
        self.assertEqual(len(images), 4)

    def test_writes_of_one_sector_may_be_kept_in_another_order(self):
        images = {self.built(self.ends[1], "reordered", seed)[512:513] for seed in range(40)}
        self.assertEqual(images, {b"\0", b"a", b"b"})


if __name__ == "__main__":
    unittest.main()
