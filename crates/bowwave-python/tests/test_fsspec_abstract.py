"""fsspec's own tests of file systems, over writable targets, and with the cache."""

import itertools
import os
import shutil
import tempfile

import fsspec
import fsspec.tests.abstract as abstract
import fsspec.tests.abstract.mv
import py.path
import pytest
from conftest import CachedFiles, Directory, status_of
from fsspec.implementations.local import LocalFileSystem, make_path_posix


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self):
        import bowwave.fsspec  # noqa: F401

        return fsspec.filesystem("bowwave", target_protocol="file", target_options={"auto_mkdir": True})

    @pytest.fixture
    def fs_path(self, tmpdir):
        return make_path_posix(str(tmpdir))

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class MemoryFixtures(Fixtures):
    @pytest.fixture
    def fs(self):
        target = fsspec.filesystem("memory")
        target.store.clear()
        target.pseudo_dirs[:] = [""]
        yield fsspec.filesystem("bowwave", fs=target)
        target.store.clear()
        target.pseudo_dirs[:] = [""]

    @pytest.fixture
    def fs_path(self):
        return ""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Directory(tmp_path_factory.mktemp("bucket"))
    yield server
    server.end()


#: Each test of objects has a directory of its own.
numbers = itertools.count()


class S3Fixtures(Fixtures):
    """Objects that bowwave lists and writes itself, or by s3fs where that is installed."""

    @pytest.fixture
    def fs(self, server):
        options = {"key": server.options["key"], "secret": server.options["secret"],
                   "client_kwargs": {"endpoint_url": server.endpoint, "region_name": "us-east-1"}}
        return fsspec.filesystem("bowwave", target_protocol="s3", target_options=options, skip_instance_cache=True)

    @pytest.fixture
    def fs_path(self, server):
        name = str(next(numbers))
        yield server.bucket.removeprefix("s3://") + name
        # The server's listings take as long as all of its files.
        shutil.rmtree(server.path / name, ignore_errors=True)

    @pytest.fixture
    def supports_empty_directories(self):
        return False


class CachedFixtures(Fixtures):
    """Local files opened with the cache."""

    @pytest.fixture
    def fs(self):
        return CachedFiles(auto_mkdir=True)


@pytest.fixture
def unprivileged():
    """A directory, and a function that calls another one as a user who may not write where the mode forbids it."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        user = os.getuid() or 65534
        os.chown(directory, user, -1)

        def call(function, *arguments):
            def child():
                os.setuid(user)
                function(*arguments)

            assert status_of(child) == 0

        yield py.path.local(directory), call


@pytest.mark.parametrize("recursive", [None, True, False])
@pytest.mark.parametrize("kind", ["file system", "cache"])
def test_mv_of_local_files(kind, recursive, unprivileged, monkeypatch):
    """fsspec's own, which take the file system of local files by its name."""
    directory, call = unprivileged
    local = CachedFiles() if kind == "cache" else fsspec.filesystem("bowwave", fs=LocalFileSystem())
    monkeypatch.setattr(fsspec, "filesystem", {"file": local}.get)
    if recursive is None:
        call(abstract.mv.test_move_raises_error_with_tmpdir, directory)
    else:
        call(abstract.mv.test_move_raises_error_with_tmpdir_permission, recursive, directory)


class MvTests:
    """What fsspec's own tests of `mv`, which are of errors only, leave out."""

    def test_mv_moves_a_file(self, fs, fs_path, fs_join):
        source, target = fs_join(fs_path, "source"), fs_join(fs_path, "target")
        fs.pipe_file(target, b"old")
        assert fs.cat_file(target) == b"old"
        fs.pipe_file(source, b"new")
        assert fs.cat_file(source) == b"new"
        fs.mv(source, target)
        assert not fs.exists(source) and fs.cat_file(target) == b"new"
        with pytest.raises(FileNotFoundError):
            fs.cat_file(source)

    def test_mv_of_a_missing_file_changes_nothing(self, fs, fs_path, fs_join):
        target = fs_join(fs_path, "target")
        fs.pipe_file(target, b"old")
        with pytest.raises(FileNotFoundError):
            fs.mv(fs_join(fs_path, "missing"), target)
        assert fs.cat_file(target) == b"old"

    def test_mv_moves_a_directory(self, fs, fs_path, fs_join):
        source, target = fs_join(fs_path, "source"), fs_join(fs_path, "target")
        fs.mkdir(source)
        for name in ("a", "b"):
            fs.pipe_file(fs_join(source, name), name.encode())
            assert fs.cat_file(fs_join(source, name)) == name.encode()
        fs.mv(source, target, recursive=True)
        assert {fs.cat_file(path) for path in fs.find(target)} == {b"a", b"b"}
        assert not fs.exists(fs_join(source, "a"))


class TestCopyLocal(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGetLocal(abstract.AbstractGetTests, Fixtures):
    pass


class TestOpenLocal(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipeLocal(abstract.AbstractPipeTests, Fixtures):
    pass


class TestPutLocal(abstract.AbstractPutTests, Fixtures):
    pass


class TestCopyMemory(abstract.AbstractCopyTests, MemoryFixtures):
    pass


class TestGetMemory(abstract.AbstractGetTests, MemoryFixtures):
    pass


class TestOpenMemory(abstract.AbstractOpenTests, MemoryFixtures):
    pass


class TestPipeMemory(abstract.AbstractPipeTests, MemoryFixtures):
    pass


class TestPutMemory(abstract.AbstractPutTests, MemoryFixtures):
    pass


class TestCopyS3(abstract.AbstractCopyTests, S3Fixtures):
    # Many, and slow: patterns are expanded as for local files.
    test_copy_glob_edge_cases = None
    # The server's bucket is a directory, which keeps directories without files.
    test_copy_directory_to_new_directory = None
    test_copy_directory_without_files_with_same_name_prefix = None


class TestGetS3(abstract.AbstractGetTests, S3Fixtures):
    test_get_glob_edge_cases = None


class TestOpenS3(abstract.AbstractOpenTests, S3Fixtures):
    pass


class TestPipeS3(abstract.AbstractPipeTests, S3Fixtures):
    pass


class TestPutS3(abstract.AbstractPutTests, S3Fixtures):
    # As above.
    test_put_glob_edge_cases = None
    test_put_directory_to_new_directory = None
    test_put_directory_without_files_with_same_name_prefix = None


class TestMvS3(MvTests, S3Fixtures):
    pass


class TestMvLocal(MvTests, Fixtures):
    pass


class TestMvMemory(MvTests, MemoryFixtures):
    pass


class TestCopyCached(abstract.AbstractCopyTests, CachedFixtures):
    pass


class TestGetCached(abstract.AbstractGetTests, CachedFixtures):
    pass


class TestMvCached(MvTests, CachedFixtures):
    pass


class TestOpenCached(abstract.AbstractOpenTests, CachedFixtures):
    pass


class TestPipeCached(abstract.AbstractPipeTests, CachedFixtures):
    pass


class TestPutCached(abstract.AbstractPutTests, CachedFixtures):
    pass
