"""Mounts for the other tools: created, and always unmounted at the end."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading

STOPPERS = (signal.SIGINT, signal.SIGTERM)


def can_mount():
    """Whether mounts can be made here."""
    return os.access("/dev/fuse", os.R_OK | os.W_OK)


def is_mounted(path):
    """Whether something is mounted at `path`, also if its process has died: os.path.ismount denies that."""
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as table:
        return any(line.split(" ")[1] == path for line in table)


@contextlib.contextmanager
def mounted(bowwave, url, parent, *options):
    """A mount of `url` in a new directory in `parent`: yields that directory, and a dict with the number of the process, which holds
    the counters afterwards."""
    at = tempfile.mkdtemp(dir=parent)
    command = [bowwave, "mount", url, at, "--stats-on-exit", "--json", *options]
    # A session of its own: Ctrl-C reaches the mount through this script, once nothing uses it.
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    counters, talk = {"process": child.pid}, []
    try:
        line = child.stderr.readline()
        if " is mounted at " not in line:
            raise SystemExit(f"{' '.join(command)}: {line.strip() or 'ended without a word'}")
        # Drained continuously, so that the mount never blocks on a full pipe.
        reader = threading.Thread(target=lambda: talk.extend(child.stderr), daemon=True)
        reader.start()
        yield at, counters
    finally:
        with undisturbed():
            output = end(child, at)
    if not output:
        raise SystemExit(f"{' '.join(command)}: ended with {child.returncode} and no counters: {''.join(talk).strip()}")
    reader.join()
    counters.update(json.loads(output))
    counters["said"] = talk


def end(child, at):
    """Ends a mount for certain; what the program printed."""
    child.send_signal(signal.SIGINT)
    try:
        child.wait(timeout=60)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    output = child.stdout.read()
    if is_mounted(at):
        subprocess.run(["fusermount3", "-u", "-z", at], check=False)
    os.rmdir(at)
    return output


@contextlib.contextmanager
def undisturbed():
    """Has Ctrl-C and SIGTERM wait for the end of what must not be cut short."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPPERS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_mounts_when_stopped():
    """From here on Ctrl-C and SIGTERM end the program by way of what ends its mounts."""
    for number in STOPPERS:
        signal.signal(number, stop)


def stop(number, _frame):
    """Ends the program by way of what ends its mounts."""
    for ignored in STOPPERS:
        signal.signal(ignored, signal.SIG_IGN)
    sys.exit(128 + number)
