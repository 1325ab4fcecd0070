"""fsspec's own tests of file systems, over writable targets, and with the cache."""

import fsspec
import fsspec.tests.abstract as abstract
import pytest
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


class CachedFixtures(Fixtures):
    """Local files opened with the cache."""

    @pytest.fixture
    def fs(self):
        return _Cached(auto_mkdir=True)


class _Cached(LocalFileSystem):
    cachable = False

    def _open(self, path, mode="rb", block_size=None, **options):
        if mode == "rb":
            return _CachedFile(self, path, mode, cache_type="bowwave", size=self.info(path)["size"])
        return super()._open(path, mode=mode, block_size=block_size, **options)


class _CachedFile(fsspec.spec.AbstractBufferedFile):
    def _fetch_range(self, start, end):
        with open(self.path, "rb") as file:
            file.seek(start)
            return file.read(end - start)


class MvTests:
    """fsspec's own tests of `mv` are of local files only."""

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
