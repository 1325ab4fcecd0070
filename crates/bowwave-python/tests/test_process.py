"""Forks, spawned processes, signals and ends."""

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections import deque

import bowwave
import pytest
from conftest import ended, run, status_of

SIZE = 1 << 20


def read_all(file, results, number):
    total = 0
    for offset in range(number * 1000, file.size, 64 << 10):
        total += sum(file.pread(offset, 100))
    results.put((number, total))


def expected(file, number):
    return sum(sum(file.pread(offset, 100)) for offset in range(number * 1000, file.size, 64 << 10))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_read_right_bytes(method, served):
    server = served(a=bytes(os.urandom(SIZE)))
    context = multiprocessing.get_context(method)
    with bowwave.open(server.bucket + "a", **server.options) as file:
        file.read(1000)
        results = context.Queue()
        workers = [context.Process(target=read_all, args=(file, results, number)) for number in range(8)]
        for worker in workers:
            worker.start()
        found = dict(results.get(timeout=60) for _ in workers)
        for worker in workers:
            worker.join(20)
            assert worker.exitcode == 0
        assert found == {number: expected(file, number) for number in range(8)}


#: Forks in the middle of reads.
FORKS = 200


def test_forks_in_the_middle_of_reads_do_not_hang(served):
    data = bytes(os.urandom(SIZE))
    server = served(a=data)
    file = bowwave.open(server.bucket + "a", **server.options)
    stop = threading.Event()

    def busy():
        while not stop.is_set():
            file.advise("dontneed")
            file.pread(0, SIZE)

    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads:
        thread.start()
    children = deque()
    try:
        for number in range(FORKS):
            children.append((number, os.fork()))
            if children[-1][1] == 0:
                offset = number * 4000
                try:
                    os._exit(file.pread(offset, 5000) != data[offset:offset + 5000])
                finally:
                    os._exit(2)
            # Some children at a time: each opens the object anew.
            while len(children) > (8 if number < FORKS - 1 else 0):
                round_, child = children.popleft()
                assert ended(child) == 0, f"round {round_}"
    finally:
        stop.set()
        for _, child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    for thread in threads:
        thread.join()


def test_a_child_notices_that_the_object_was_replaced(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    file = bowwave.open(path)
    path.unlink()
    path.write_bytes(b"new!")

    def child():
        with pytest.raises(OSError, match="replaced"):
            file.pread(0, 3)

    assert status_of(child) == 0


def test_a_process_ends_in_the_middle_of_reads():
    ended = run("""
        import threading, time, bowwave
        file = bowwave.open("emulate:s3,latency=2s/64MiB")
        for at in range(8):
            threading.Thread(target=file.pread, args=(at << 20, 1000), daemon=True).start()
        time.sleep(0.2)
    """)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_process_ends_in_the_middle_of_fetches():
    ended = run("""
        import threading, time, bowwave.fsspec
        def fetch(start, end):
            time.sleep(1)
            return bytes(end - start)
        cache = bowwave.fsspec.BowwaveCache(4096, fetch, 64 << 20)
        for at in range(8):
            threading.Thread(target=cache._fetch, args=(at << 20, (at << 20) + 1000), daemon=True).start()
        time.sleep(0.2)
    """)
    assert (ended.returncode, ended.stderr) == (0, "")


PRELUDE = """
import json, os, signal, sys, threading, time
import bowwave, bowwave.fsspec, bowwave.tar, bowwave.torch
bucket, options, server, interrupted = json.loads(sys.argv[1])
urls = [f"{bucket}{number}" for number in range(100)]
# A shell starts background processes with SIGINT ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def hang():
    # What was announced arrives; from now on, nothing does.
    time.sleep(0.3)
    os.kill(server, signal.SIGSTOP)
    if interrupted:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
"""
#: Programs whose server hangs. The first line of each is read before, and the last ones wait.
PROGRAMS = {
    "open": ("hang()", "bowwave.open(urls[0], **options)"),
    "read": ("file = bowwave.open(bucket + 'large', **options); hang()", "file.read()"),
    "map": ("hang()", "bowwave.map(bucket + 'large', **options)"),
    "copy": ("file = bowwave.open(bucket + 'large', **options); source = file._source; hang()",
             "import bowwave._map; bowwave._map._copied(source)"),
    "populate": ("memory = bowwave.map(bucket + 'large', lazy=True, **options); hang()", "memory.populate(0, 40 << 20)"),
    "cat": ("import fsspec; hang()",
            "target = {'key': options['key'], 'secret': options['secret'], 'endpoint_url': options['endpoint']}",
            "system = fsspec.filesystem('bowwave', target_protocol='s3', target_options=target)",
            "system.cat([url.removeprefix('s3://') for url in urls])"),
    "tar": ("shards = bowwave.tar.shards(urls, ahead=40, **options); next(shards).read(); hang(); next(shards)",
            "for shard in shards: shard.read()"),
    "torch": ("files = bowwave.torch.Files(urls, **options); files[0]; hang(); files._ahead.announce(urls)",
              "for at in range(1, 100): files[at]"),
    "zarr": ("import zarr, bowwave.zarr; array = zarr.open_array(bowwave.zarr.Store(bucket + 'array', **options))",
             "for at in range(3): array[at]",
             "hang()",
             "for at in range(3, 64): array[at]"),
    "asyncio": ("import asyncio; hang()",
                "async def main(): await asyncio.gather(*(bowwave.open_async(url, **options) for url in urls))",
                "asyncio.run(main())"),
}


def run_over_a_server_that_hangs(program, served, interrupted):
    server = served(large=bytes(40 << 20), **{str(number): bytes(1000) for number in range(100)})
    if "zarr" in program:
        import zarr

        array = zarr.create_array(str(server.path / "array"), shape=(64,), chunks=(1,), dtype="u1", compressors=None)
        array[:] = 1
    arguments = json.dumps([server.bucket, server.options, server.child.pid, interrupted])
    begun = time.monotonic()
    try:
        ended = subprocess.run([sys.executable, "-c", PRELUDE + program, arguments], timeout=60, capture_output=True,
                               text=True)
    finally:
        os.kill(server.child.pid, signal.SIGCONT)
    # A request of a store that hangs ends after 30 s.
    assert time.monotonic() - begun < 20, ended
    return ended


@pytest.mark.parametrize("name", PROGRAMS)
def test_ctrl_c_ends_a_program_whose_store_hangs(name, served):
    lines = "".join(f"    {line}\n" for line in PROGRAMS[name])
    program = f"try:\n{lines}except KeyboardInterrupt:\n    print('interrupted')\n"
    ended = run_over_a_server_that_hangs(program, served, True)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("interrupted\n", "", 0)


@pytest.mark.parametrize("name", ["tar", "torch", "zarr"])
def test_a_program_that_ends_early_waits_for_no_announced_lookup(name, served):
    announced = "array[3]" if name == "zarr" else "pass"
    ended = run_over_a_server_that_hangs("\n".join([*PROGRAMS[name][:-1], announced]), served, False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("", "", 0)


def test_ctrl_c_ends_a_read():
    begun = time.monotonic()
    ended = run("""
        import os, signal, threading, bowwave
        # A shell starts background processes with SIGINT ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        file = bowwave.open("emulate:s3,latency=20s/64MiB")
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            file.read(10)
        except KeyboardInterrupt:
            print("interrupted")
    """)
    assert ended.stdout == "interrupted\n", ended.stderr
    assert time.monotonic() - begun < 10


LEAK = """
import os
import bowwave

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

with bowwave.open("pattern:/4MiB") as file:
    def read(times):
        for at in range(times):
            file.pread(at % (4 << 20), 64)

    file.read()
    read(20_000)
    before = resident()
    read(1_000_000)
    print(resident() - before)
"""


def test_small_reads_leak_nothing():
    # In a process of its own: engines of other tests still give memory back and take some.
    done = subprocess.run([sys.executable, "-c", LEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2 << 20


def test_pickled_sources_open_in_a_spawned_process():
    file = bowwave.open("pattern:/1MiB")
    assert pickle.loads(pickle.dumps(file)).read(5) == file.read(5)


def test_a_lock_that_a_thread_holds_is_free_in_a_child(tmp_path):
    import fsspec

    (tmp_path / "a").write_bytes(b"hello")
    system = fsspec.filesystem("bowwave", target_protocol="file")
    system.cat_file(str(tmp_path / "a"))
    with system._lock:
        child = os.fork()
        if child == 0:
            with system.open(str(tmp_path / "a")) as file:
                os._exit(0 if file.read() == b"hello" else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_child_of_fork_makes_an_asynchronous_target_again(served):
    import fsspec

    data = os.urandom(3 << 20)
    server = served(a=data)
    fs = fsspec.filesystem("bowwave", fs=fsspec.filesystem("http", client_kwargs={"trust_env": True}))
    assert fs._scheme is None and fs.cat_file(server.http + "a", 3, 9) == data[3:9]
    nested = fsspec.filesystem("bowwave", fs=fsspec.filesystem("dir", path=server.http, fs=fs.fs, skip_instance_cache=True))
    assert nested.cat_file("a", 3, 9) == data[3:9]

    def child():
        assert fs.cat_file(server.http + "a", 1_000_000, 1_000_005) == data[1_000_000:1_000_005]
        assert fs.info(server.http + "a")["size"] == len(data)
        assert nested.cat_file("a", 2_000_000, 2_000_005) == data[2_000_000:2_000_005]

    assert status_of(child) == 0
    assert fs.cat_file(server.http + "a", 13, 19) == data[13:19]


def test_a_target_over_an_open_file_is_made_again_in_a_child(served, tmp_path):
    """One that reads a remote archive needs the event loop for it, which must not wait for the target."""
    import fsspec

    data = os.urandom(3 << 20)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x", data)
    server = served(a__zip=(tmp_path / "a.zip").read_bytes())
    options = {"fo": server.http + "a.zip", "remote_protocol": "http"}
    fs = fsspec.filesystem("bowwave", target_protocol="zip", target_options=options, skip_instance_cache=True)
    assert fs.cat_file("x", 10, 20) == data[10:20]

    def child():
        assert fs.cat_file("x", 1_000_000, 1_000_100) == data[1_000_000:1_000_100]
        with fs.open("x") as file:
            assert file.read() == data
        again = pickle.loads(pickle.dumps(fs))
        threads = [threading.Thread(target=again.cat_file, args=("x", 5, 9)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert status_of(child) == 0
    assert fs.cat_file("x", 30, 40) == data[30:40]
