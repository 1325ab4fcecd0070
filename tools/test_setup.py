#!/usr/bin/env python3
"""Runs tools/setup.sh as on machines that lack apt, sudo, a passwordless sudo, fuse or a compiler.

PATH contains only what a test puts there, so that each test defines its machine, whatever runs it. Stubs of apt-get and
sudo record their calls.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

SETUP = pathlib.Path(__file__).resolve().parent / "setup.sh"
NOT_ROOT = "echo 1000"
ROOT = "echo 0"


class Setup(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.bin = self.directory / "bin"
        self.bin.mkdir()
        self.calls = self.directory / "calls"
        self.calls.touch()
        self.device = self.directory / "fuse"
        self.device.touch()
        for name in ("bash", "env", "chmod"):
            os.symlink(shutil.which(name), self.bin / name)
        self.stub("id", NOT_ROOT)

    def stub(self, name, script="exit 0"):
        """A command that notes its call and then runs `script`."""
        path = self.bin / name
        path.write_text(f'#!{shutil.which("bash")}\necho "{name} $*" >> "{self.calls}"\n{script}\n')
        path.chmod(0o755)

    def apt_that_provides(self, command, when="true"):
        """An apt-get whose `install` brings `command`, if `when`."""
        self.stub("apt-get", f"""
[[ " $* " == *" install "* ]] || exit 0
{when} || exit 100
printf '#!/bin/sh\\n' > "{self.bin}/{command}"
chmod +x "{self.bin}/{command}"
""")

    def run_setup(self, *parts):
        environment = {"PATH": str(self.bin), "FUSE_DEVICE": str(self.device),
                       "POSTGRES_DIRECTORY": str(self.directory / "postgresql"),
                       # The checkout's own installed tools are not part of the test.
                       "CARGO_TARGET_DIR": str(self.directory / "target")}
        done = subprocess.run([str(self.bin / "bash"), str(SETUP), *parts], env=environment, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=30, check=False)
        self.assertEqual(done.stdout, "", "what it says is talk")
        return done.returncode, done.stderr

    def called(self, what):
        return [line for line in self.calls.read_text().splitlines() if line.startswith(what)]

    def test_with_everything_there_it_says_and_does_nothing(self):
        for name in ("cargo", "cc", "c++", "fusermount3", "python3", "apt-get", "sudo"):
            self.stub(name)
        self.assertEqual(self.run_setup("build", "fuse", "fuzz", "python"), (0, ""))
        self.assertEqual(self.called("apt-get") + self.called("sudo"), [])

    def test_without_rust_it_says_where_to_get_it(self):
        status, talk = self.run_setup("build")
        self.assertEqual(status, 1)
        self.assertIn("'cargo' is missing (try: install Rust from https://rustup.rs)", talk)

    def test_without_a_linker_apt_and_sudo_it_names_the_package_and_stops(self):
        self.stub("cargo")
        status, talk = self.run_setup("build")
        self.assertEqual(status, 1)
        self.assertEqual(talk, "setup: error: 'cc' is missing and could not be installed "
                               "(try: apt-get install build-essential, as root)\n")

    def test_without_fuse3_apt_and_sudo_it_names_the_package_and_goes_on(self):
        status, talk = self.run_setup("fuse", "fuse")
        self.assertEqual(status, 0)
        self.assertEqual(talk.count("try: apt-get install fuse3, as root"), 2)

    def test_a_user_without_sudo_does_not_call_apt(self):
        self.apt_that_provides("fusermount3")
        status, talk = self.run_setup("fuse")
        self.assertEqual(status, 0)
        self.assertIn("'fusermount3' is missing and could not be installed", talk)
        self.assertEqual(self.called("apt-get"), [])

    def test_a_sudo_that_would_ask_is_not_asked(self):
        self.apt_that_provides("fusermount3")
        self.stub("sudo", 'exit 1')
        status, talk = self.run_setup("fuse")
        self.assertEqual(status, 0)
        self.assertIn("could not be installed", talk)
        self.assertEqual(set(self.called("sudo")), {"sudo -n true"})

    def test_a_sudo_that_does_not_ask_installs(self):
        self.apt_that_provides("fusermount3")
        self.stub("sudo", 'shift; "$@"')
        self.stub("true")
        self.assertEqual(self.run_setup("fuse"), (0, "setup: installing fuse3\n"))
        self.assertEqual(len(self.called("apt-get")), 1)
        self.assertTrue((self.bin / "fusermount3").exists())

    def test_root_installs_and_refreshes_the_lists_only_if_they_do_not_know_the_package(self):
        self.stub("id", ROOT)
        self.stub("cargo")
        self.apt_that_provides("cc", when=f'[[ "$(< {self.calls})" == *" update"* ]]')
        self.assertEqual(self.run_setup("build")[0], 0)
        kinds = [("update" if "update" in call else "install") for call in self.called("apt-get")]
        self.assertEqual(kinds, ["install", "update", "install"])

    def test_an_apt_that_fails_stops_the_build_and_not_the_mount(self):
        self.stub("id", ROOT)
        self.stub("cargo")
        self.stub("apt-get", "echo 'E: no network' >&2; exit 100")
        status, talk = self.run_setup("fuse")
        self.assertEqual((status, "apt-get install fuse3, as root" in talk), (0, True))
        status, talk = self.run_setup("build")
        self.assertEqual((status, "apt-get install build-essential, as root" in talk), (1, True))

    def test_without_the_device_it_installs_nothing_to_mount_with(self):
        self.device.unlink()
        self.stub("id", ROOT)
        self.apt_that_provides("fusermount3")
        status, talk = self.run_setup("fuse")
        self.assertEqual(status, 0)
        self.assertIn("is missing: everything that mounts is left out", talk)
        self.assertEqual(self.called("apt-get"), [])

    def test_without_callgrind_apt_and_sudo_it_names_the_package_and_goes_on(self):
        status, talk = self.run_setup("cost")
        self.assertEqual((status, talk), (0, "setup: 'valgrind' is missing and could not be installed "
                                             "(try: apt-get install valgrind, as root)\n"))

    def test_postgresql_is_installed_once_and_its_lack_stops_nothing(self):
        status, talk = self.run_setup("databases")
        self.assertEqual(status, 0)
        self.assertIn("try: apt-get install postgresql, as root", talk)
        self.stub("id", ROOT)
        self.stub("apt-get")
        self.assertEqual(self.run_setup("databases")[0], 0)
        self.assertEqual([call.split()[-1] for call in self.called("apt-get")], ["postgresql", "postgresql-contrib"])
        programs = self.directory / "postgresql" / "15" / "bin"
        programs.mkdir(parents=True)
        for name in ("initdb", "pg_amcheck"):
            (programs / name).touch()
        self.assertEqual(self.run_setup("databases"), (0, ""))
        self.assertEqual(len(self.called("apt-get")), 2)

    def test_file_systems_that_cannot_be_made_are_named_and_stop_nothing(self):
        self.stub("mkfs.ext4")
        status, talk = self.run_setup("power")
        self.assertEqual((status, talk), (0, "setup: 'mkfs.xfs' is missing and could not be installed "
                                             "(try: apt-get install xfsprogs, as root)\n"))

    def test_a_cargo_deny_that_is_there_is_not_installed_again(self):
        self.stub("cargo-deny")
        self.stub("python3")
        self.assertEqual(self.run_setup("deny"), (0, ""))
        self.assertEqual(self.called("python3"), [])

    def test_without_python_it_says_how_to_get_cargo_deny_and_goes_on(self):
        status, talk = self.run_setup("deny")
        self.assertEqual(status, 0)
        self.assertIn("try: cargo install --locked cargo-deny", talk)

    def test_an_unknown_part_is_a_mistake(self):
        status, talk = self.run_setup("fues")
        self.assertEqual(status, 2)
        self.assertIn("unknown part 'fues'", talk)


if __name__ == "__main__":
    unittest.main()
