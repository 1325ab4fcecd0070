"""Lazy maps: children of fork, and stores that fail."""

import errno
import gc
import importlib.util
import multiprocessing
import os
import pickle
import signal
import subprocess
import threading
import time

import bowwave
import numpy as np
import pytest
from conftest import run, status_of


def lazy(url, **options):
    """A lazy map, where the process may have one."""
    try:
        return bowwave.map(url, lazy=True, **options)
    except OSError as error:
        if os.environ.get("CI") == "true" or "userfaultfd" not in str(error):
            raise
        pytest.skip(str(error))


def test_populating_shows_its_progress(shaped, capsys):
    memory = lazy("s3://data/large", **dict(shaped.options, cache="48MiB"))
    memory.populate(4096, 20 << 20, progress=True)
    shown = capsys.readouterr().err
    assert "20.0M/20.0M" in shown or importlib.util.find_spec("tqdm") is None, shown
    assert memory[1 << 20:(1 << 20) + 100] == shaped.bytes(1 << 20, 100)
    with pytest.raises(ValueError, match="20971520 bytes from 62914560"):
        memory.populate(60 << 20, 20 << 20, progress=True)
    assert capsys.readouterr().err == "", "nothing is fetched"


def test_a_lazy_map_fetches_what_is_touched(shaped):
    memory = lazy("s3://data/large", **dict(shaped.options, cache="32MiB"))
    before = shaped.counters()["bytes"]
    array = np.frombuffer(memory, dtype=np.uint8)
    assert array[50_000_000:50_000_100].tobytes() == shaped.bytes(50_000_000, 100)
    memory.populate(1 << 20, 1 << 20)
    assert array[1 << 20:(1 << 20) + 100].tobytes() == shaped.bytes(1 << 20, 100)
    assert shaped.counters()["bytes"] - before < 8 << 20
    assert memory.failures() == [] and memory.stats()["faults"] > 0


def test_views_keep_a_lazy_map_alive(shaped):
    import pyarrow

    options = dict(shaped.options, cache="32MiB")
    array = np.frombuffer(lazy("s3://data/large", **options), np.uint8)
    buffer = pyarrow.py_buffer(lazy("s3://data/large", writable=False, **options))
    gc.collect()
    assert array[33_000_000:33_000_100].tobytes() == shaped.bytes(33_000_000, 100)
    assert buffer.slice(22_000_000, 100).to_pybytes() == shaped.bytes(22_000_000, 100) and not buffer.is_mutable
    array[33_000_000] ^= 255
    assert array[33_000_001:33_000_100].tobytes() == shaped.bytes(33_000_001, 99)


def test_populating_a_lazy_map_raises_the_error_of_the_store():
    memory = lazy("fault:errors=1:pattern:/1MiB", retries=0)
    assert memory.failures() == []
    with pytest.raises(OSError, match="fault"):
        memory.populate(8192, 4096)
    (offset, cause), = memory.failures()
    assert offset == 8192 and "fault" in cause
    with pytest.raises(ValueError, match="4096 bytes from 1048576"):
        memory.populate(1 << 20, 4096)


@pytest.mark.parametrize("before", ["", "try: memory.populate(0, 4096)\nexcept OSError: pass"])
def test_only_a_touch_of_a_page_that_cannot_be_fetched_is_a_sigbus(before):
    lazy("pattern:/1MiB")
    program = f"import bowwave\nmemory = bowwave.map('fault:errors=1:pattern:/1MiB', lazy=True, retries=0, retry_for=0)\n{before}\n"
    ended = run(program)
    assert ended.returncode == 0, ended.stderr
    ended = run(program + "memoryview(memory)[0]")
    assert ended.returncode == -signal.SIGBUS
    assert "bowwave: cannot read a page of a mapped file at offset 0" in ended.stderr


def test_slices_of_a_lazy_map_are_copies_with_what_was_written(shaped):
    memory = lazy("s3://data/large", **dict(shaped.options, cache="16MiB"))
    array = np.frombuffer(memory, np.uint8)
    array[1_000_000:1_010_000] = 7
    assert memory[999_990:1_000_010] == shaped.bytes(999_990, 10) + b"\7" * 10
    assert memory[1_009_999] == 7 and memory[-1] == shaped.bytes((64 << 20) - 1, 1)[0]
    assert memory[5:5] == b"" and memory[(64 << 20) - 3:1 << 40] == shaped.bytes((64 << 20) - 3, 3)
    assert memory[20 << 20:40 << 20] == shaped.bytes(20 << 20, 20 << 20), "more than the cache"
    with pytest.raises(IndexError):
        memory[64 << 20]
    with pytest.raises(ValueError, match="step"):
        memory[::2]
    whole = lazy("s3://data/small", writable=False, **shaped.options)
    assert bytes(whole) == shaped.bytes(0, 1 << 20)


@pytest.mark.parametrize("writable", [True, False])
def test_a_child_of_fork_has_the_lazy_map_and_so_has_its_child(writable, shaped):
    memory = lazy("s3://data/large", writable=writable, **dict(shaped.options, cache="16MiB"))
    array = np.frombuffer(memory, np.uint8)
    assert array[1000] == shaped.bytes(1000, 1)[0]
    if writable:
        array[3_000_000:3_009_000] = 7
        array[5] = 9

    def check(at):
        assert array[at:at + 1000].tobytes() == shaped.bytes(at, 1000)
        assert array[:5].tobytes() == shaped.bytes(0, 5), "the rest of a written page"
        assert memory[2_999_900:3_000_000] == shaped.bytes(2_999_900, 100)
        if writable:
            assert (array[3_000_000:3_009_000] == 7).all() and array[5] == 9

    def child():
        check(40_000_000)
        memory.populate(0, 1 << 20)
        assert memory.failures() == [] and memory.stats()["faults"] > 0
        if writable:
            array[6] = 10

        def grandchild():
            check(50_000_000)
            assert not writable or array[6] == 10

        assert status_of(grandchild) == 0
        check(41_000_000)

    assert status_of(child) == 0
    check(42_000_000)
    assert array[6] == shaped.bytes(6, 1)[0], "what a child writes is its own"


def test_a_child_that_does_not_touch_a_lazy_map_sends_no_request(shaped):
    memory = lazy("s3://data/large", **dict(shaped.options, cache="16MiB", policy="none"))
    assert memory[0] == shaped.bytes(0, 1)[0]
    time.sleep(0.3)
    before = shaped.counters()["requests"]
    assert status_of(lambda: None) == 0
    assert shaped.counters()["requests"] == before


def test_forks_in_the_middle_of_touches_give_right_bytes(served):
    data = os.urandom(8 << 20)
    server = served(a=data)
    memory = lazy(server.bucket + "a", **dict(server.options, cache="2MiB"))
    array, stop = np.frombuffer(memory, np.uint8), threading.Event()

    def touch(start):
        at = start
        while not stop.is_set():
            assert array[at] == data[at]
            at = (at + 50_021) % len(data)

    threads = [threading.Thread(target=touch, args=(number << 20,)) for number in range(3)]
    for thread in threads:
        thread.start()

    def child():
        for at in range(number * 1000, len(data), 1 << 20):
            assert array[at:at + 5000].tobytes() == data[at:at + 5000]

    try:
        for number in range(30):
            assert status_of(child) == 0, number
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_child_has_the_lazy_map_after_its_parent_has_ended(tmp_path):
    lazy("pattern:/1MiB")
    data = os.urandom(4 << 20)
    (tmp_path / "a").write_bytes(data)
    ended = run("""
        import os, sys, time, bowwave, numpy
        memory = bowwave.map(sys.argv[1], lazy=True, cache="1MiB")
        array = numpy.frombuffer(memory, "u1")
        array[0] = 7
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == parent:
            time.sleep(0.01)
        sys.stdout.buffer.write(array[:3_000_000].tobytes())
    """, tmp_path / "a", text=False)
    assert ended.stdout == b"\7" + data[1:3_000_000], ended.stderr


SHARED = None


def total(start, memory=None):
    array = np.frombuffer(SHARED if memory is None else memory, np.uint8)
    return int(array[start:start + 100_000].sum())


def test_workers_of_a_pool_share_a_lazy_map_by_fork(shaped):
    global SHARED
    SHARED = lazy("s3://data/large", **dict(shaped.options, cache="16MiB"))
    starts = range(0, 60_000_000, 3_000_000)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        found = pool.map(total, starts)
    assert found == [sum(shaped.bytes(start, 100_000)) for start in starts]
    SHARED = None


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_lazy_map_pickles_to_url_and_version(method, tmp_path):
    data = os.urandom(1 << 20)
    path = tmp_path / "a"
    path.write_bytes(data)
    memory = lazy(path, writable=False)
    with multiprocessing.get_context(method).Pool(1) as pool:
        assert pool.apply(total, (500_000, memory)) == sum(data[500_000:600_000])
    pickled = pickle.dumps(memory)
    again = pickle.loads(pickled)
    assert again[:10] == data[:10] and memoryview(again).readonly
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(OSError, match="replaced"):
        pickle.loads(pickled)


def test_a_child_never_mixes_versions(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"a" * (1 << 20))
    memory = lazy(path, cache="1MiB", retry_for=30)
    array = np.frombuffer(memory, np.uint8)
    array[:4096] = ord("w")
    path.unlink()
    path.write_bytes(b"b" * (1 << 20))

    def child():
        assert array[:4096].tobytes() == b"w" * 4096, "what was written stays"
        for call in (lambda: memory[500_000:500_010], lambda: memory.populate(500_000, 10)):
            with pytest.raises(OSError, match="changed") as raised:
                call()
            assert raised.value.errno == errno.ESTALE and str(path) in str(raised.value)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        array[700_000]

    begun = time.monotonic()
    status = status_of(child)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS
    assert time.monotonic() - begun < 20, "waiting does not help"


#: A store whose requests fail within a second.
SHORT = {"retries": 0, "timeout": "1s"}


def test_a_touch_waits_until_the_store_is_back(served, capfd):
    data = os.urandom(8 << 20)
    server = served(a=data)
    memory = lazy(server.bucket + "a", policy="none", **server.options, **SHORT)
    array = np.frombuffer(memory, np.uint8)
    os.kill(server.child.pid, signal.SIGSTOP)
    begun = time.monotonic()
    # In a process of its own: the touch holds the GIL.
    back = subprocess.Popen(["sh", "-c", f"sleep 3; kill -CONT {server.child.pid}"])
    assert array[5_000_000:5_000_100].tobytes() == data[5_000_000:5_000_100]
    assert time.monotonic() - begun > 2
    back.wait()
    said = capfd.readouterr().err
    assert f"{server.bucket}a" in said and "its reader waits while the read is repeated, for 60s" in said
    assert memory.failures() == []


def test_calls_raise_and_succeed_once_the_store_is_back(served):
    data = os.urandom(8 << 20)
    server = served(a=data)
    memory = lazy(server.bucket + "a", policy="none", **server.options, **SHORT)
    os.kill(server.child.pid, signal.SIGSTOP)
    try:
        for call in (lambda: memory[5_000_000:5_000_010], lambda: memory.populate(5_000_000, 10)):
            with pytest.raises(OSError):
                call()
    finally:
        os.kill(server.child.pid, signal.SIGCONT)
    assert len(memory.failures()) == 1
    memory.populate(5_000_000, 10)
    assert memory[5_000_000:5_000_010] == data[5_000_000:5_000_010] and memory.failures() == []
    assert memoryview(memory)[5_000_000] == data[5_000_000]


def test_a_touch_of_a_store_that_stays_away_ends_with_file_offset_and_cause(served):
    lazy("pattern:/1MiB")
    server = served(a=bytes(8 << 20))
    ended = run("""
        import ast, os, signal, sys, time, bowwave, faulthandler
        faulthandler.enable()
        memory = bowwave.map(sys.argv[1], lazy=True, policy="none", retry_for=2, **ast.literal_eval(sys.argv[2]))
        os.kill(int(sys.argv[3]), signal.SIGKILL)
        time.sleep(0.2)
        try:
            memory[5_000_000]
        except OSError as error:
            print("raised", flush=True)
        memoryview(memory)[5_000_000]
    """, server.bucket + "a", server.options | SHORT, server.child.pid)
    assert ended.returncode == -signal.SIGBUS and ended.stdout == "raised\n", ended.stderr
    offset = 5_000_000 // 4096 * 4096
    assert f"at offset {offset} of {server.bucket}a: " in ended.stderr and "is repeated, for 2s" in ended.stderr
    assert "its reader gets SIGBUS. A call that fetches" in ended.stderr and "<module>" in ended.stderr


def test_retry_for_is_checked():
    with pytest.raises(ValueError, match="lazy=True"):
        bowwave.map("pattern:/1MiB", retry_for=1)
    with pytest.raises(ValueError, match="0 or more"):
        bowwave.map("pattern:/1MiB", lazy=True, retry_for=-1)
