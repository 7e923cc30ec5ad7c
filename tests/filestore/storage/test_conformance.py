"""What every storage must do, on each that we have: local, S3 through both libraries on both servers, and fsspec."""

from __future__ import annotations

import os
import pickle
import secrets
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from filestore.errors import AlreadyExists, Conflict, NotFound, Unavailable, Unsupported
from filestore.files.parquet import ParquetReader
from filestore.storage.client import PART_BYTES, TAIL_BYTES
from filestore.storage.local import LocalStorage
from filestore.storage.locations import storage_of
from filestore.storage.objects import ObjectStorage
from filestore.storage.race_probe import require_exclusive
from tests.filestore.storage import hosted_files  # noqa: F401  # it registers hosted://
from tests.filestore.storage.places import Place, content, put, s3_place
from tests.servers.s3 import S3Endpoint

pytestmark = pytest.mark.s3

STORES = (
    "moto-obstore",
    "moto-s3fs",
    *(pytest.param(name, marks=pytest.mark.deep) for name in ("versity-obstore", "versity-s3fs")),
)
FSSPEC = {"memory": "memory://{}/a/table", "hosted": "hosted://host-{}:8020/a/table"}
"""File systems that cannot replace a file on a condition."""
EXCLUSIVE = pytest.mark.parametrize("place", ["local", *STORES, "hosted"], indirect=True)
"""``memory://`` looks whether a file exists and creates it in two steps, between which another thread may come."""


@pytest.fixture(params=["local", *STORES, *FSSPEC])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if request.param == "local":
        yield Place(LocalStorage(), str(tmp_path / "t"))
        return
    if (folder := FSSPEC.get(request.param)) is not None:
        location = folder.format(secrets.token_hex(4))
        yield Place(storage_of(location), location)
        return
    server, _, library = request.param.partition("-")
    yield s3_place(request.getfixturevalue(server), library, monkeypatch)


@pytest.fixture(params=STORES)
def remote(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A place whose files can be tagged."""
    server, _, library = request.param.partition("-")
    return s3_place(request.getfixturevalue(server), library, monkeypatch)


def test_a_new_file_is_read_by_everybody(place: Place) -> None:
    path = place.path("_delta_log/1.json")
    place.storage.write_new(path, b"one")
    assert place.storage.read(path) == place.anew().read(path) == b"one"
    assert place.storage.exists(path)


def test_a_file_is_created_once(place: Place) -> None:
    path = place.path("x.json")
    place.storage.write_new(path, b"one")
    for data in (b"two", b"one"):  # equal bytes of another writer are no success of ours
        with pytest.raises(AlreadyExists):
            place.anew().write_new(path, data)
    assert place.storage.read(path) == b"one"


def test_what_is_not_there(place: Place) -> None:
    path = place.path("no/such.json")
    with pytest.raises(NotFound):
        place.storage.read(path)
    with pytest.raises(NotFound), place.storage.open_read(path) as source, source.part([(0, 1)]):
        pass
    assert not place.storage.exists(path)
    assert place.storage.list_names(place.path("no")) == []
    assert list(place.storage.walk(place.path("no"))) == []
    place.storage.delete(path)
    place.storage.delete_all([path, place.path("other")])
    place.storage.delete_tree(place.path("no"))


def test_an_existing_file_is_replaced(place: Place) -> None:
    put(place, "other", b"")
    path = place.path("_consumers/c.json")
    place.storage.replace(path, b"one")
    place.storage.replace(path, b"two")
    assert place.anew().read(path) == b"two"


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ["plain", "with space", "p=v/ü#?%25+&.bin", "a..b"])
def test_names_stay_what_they_are(place: Place, name: str) -> None:
    path = put(place, name, b"x")
    assert place.anew().read(path) == b"x"
    assert [info.path for info in place.anew().walk(place.folder)] == [path]
    place.storage.delete(path)
    assert list(place.anew().walk(place.folder)) == []


@pytest.mark.few(3)
@pytest.mark.parametrize("size", [0, 1, TAIL_BYTES, TAIL_BYTES + 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 5])
def test_files_of_any_size(place: Place, size: int) -> None:
    data = os.urandom(size)
    path = place.path("f")
    with place.storage.open_write(path) as file:
        for start in range(0, size, 1_000_003):
            file.write(data[start : start + 1_000_003])
        assert file.tell() == size
    place.storage.sync(path)
    assert content(place.anew(), path) == data
    assert content(place.storage, path) == data  # what it wrote itself
    assert [(info.path, info.size) for info in place.storage.walk(place.folder)] == [(path, size)]


@pytest.mark.few(3)
def test_parts_have_the_bytes_that_were_asked_for(place: Place) -> None:
    data = os.urandom(3 << 20)
    path = put(place, "f", data)
    wanted = [(5, 10), (1 << 20, (1 << 20) + 7), (8, 20), (len(data) - 3, len(data))]
    with place.anew().open_read(path) as source, source.part(wanted) as part:
        assert source.size == len(data)
        for start, end in wanted:
            assert part.file.read_at(end - start, start) == data[start:end]
            with open(part.path, "rb") as file:
                assert os.pread(file.fileno(), end - start, start) == data[start:end]


def test_what_was_read_stays_when_its_part_is_closed(place: Place) -> None:
    path = place.path("f.parquet")
    rows = pa.table({"id": list(range(50_000)), "text": [f"text {n}" for n in range(50_000)]})
    with place.storage.open_write(path) as file:
        pq.write_table(rows, file, row_group_size=10_000, compression="none", use_dictionary=False)
    place.storage.sync(path)
    storage = place.anew()
    with ParquetReader(storage, path) as parquet:
        groups = [parquet.read(group) for group in range(5)]
        one = parquet.read(3, ["text"])
    assert pa.concat_tables(groups).equals(rows)
    assert one.equals(rows.select(["text"]).slice(30_000, 10_000))


@pytest.mark.few(2)
def test_a_footer_that_is_longer_than_the_tail(place: Place) -> None:
    path = place.path("wide.parquet")
    rows = pa.table({f"column {n} {'x' * 50}": [n, n + 1] for n in range(1500)})
    with place.storage.open_write(path) as file:
        pq.write_table(rows, file)
    place.storage.sync(path)
    with ParquetReader(place.anew(), path) as parquet:
        assert parquet.footer.serialized_size > TAIL_BYTES
        assert parquet.read(0).equals(rows)


def test_listings(place: Place) -> None:
    names = ["_delta_log/1.json", "_delta_log/2.json", "_delta_log/deep/3.json", "b/x", "c"]
    for name in names:
        put(place, name, name.encode())
    put(Place(place.storage, place.folder + "2"), "neighbour", b"")
    storage = place.anew()
    assert {"1.json", "2.json"} <= set(storage.list_names(place.path("_delta_log"))) <= {"1.json", "2.json", "deep"}
    found = {info.path: info for info in storage.walk(place.folder)}
    assert set(found) == {place.path(name) for name in names}
    assert all(info.size == len(path) - len(place.folder) - 1 for path, info in found.items())
    times = [info.modified_ms for info in found.values()]
    assert max(times) - min(times) < 60_000 and min(times) > 1_600_000_000_000
    storage.delete_tree(place.path("_delta_log"))
    assert {info.path for info in storage.walk(place.folder)} == {place.path("b/x"), place.path("c")}
    storage.delete_all([place.path("b/x"), place.path("c"), place.path("not there")])
    assert list(storage.walk(place.folder)) == []


@pytest.mark.few(1)
def test_more_files_than_a_page_has(place: Place) -> None:
    # the faster client creates them, and each lists them itself
    storage = place.storage if isinstance(place.storage, LocalStorage) else storage_of(place.folder)
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: storage.write_new(place.path(f"d/{n}"), b""), range(1100)))
    assert len(place.anew().list_names(place.path("d"))) == 1100
    assert len(list(place.anew().walk(place.folder))) == 1100
    place.storage.delete_tree(place.folder)
    assert list(place.anew().walk(place.folder)) == []


@EXCLUSIVE
def test_one_of_many_writers_wins(place: Place) -> None:
    barrier = threading.Barrier(8)

    def race(number: int) -> bytes | None:
        data = f"writer {number}".encode()
        barrier.wait()
        try:
            place.storage.write_new(place.path("v.json"), data)
        except AlreadyExists:
            return None
        return data

    with ThreadPoolExecutor(8) as pool:
        winners = [data for data in pool.map(race, range(8)) if data is not None]
    assert winners == [place.anew().read(place.path("v.json"))]


def test_a_tagged_file_is_replaced_by_whoever_knows_its_tag(remote: Place) -> None:
    path, other = remote.path("leases/a b"), remote.anew()
    first = remote.storage.replace_tagged(path, b"1", None)
    second = remote.storage.replace_tagged(path, b"2", first)
    assert first != second
    found = other.read_tagged(path)
    assert (found.data, found.tag) == (b"2", second) and found.modified_ms > 1_600_000_000_000
    assert other.list_tagged(remote.path("leases")) == {"a b": second}
    for tag in (None, first, "0" * 32):
        with pytest.raises(Conflict) as refused:
            other.replace_tagged(path, b"3", tag)
        assert refused.value.code == "file-changed"
    assert remote.storage.read(path) == b"2"
    third = other.replace_tagged(path, b"3", second)
    assert remote.storage.replace_tagged(path, b"3", second) == third  # as if the reply to an earlier try was lost
    remote.storage.delete(path)
    with pytest.raises(Conflict):
        other.replace_tagged(path, b"4", third)
    with pytest.raises(NotFound):
        other.read_tagged(path)
    assert not other.exists(path) and other.list_tagged(remote.path("leases")) == {}


def test_tags_of_files_in_folders_below_are_not_listed(remote: Place) -> None:
    put(remote, "leases/x/deep", b"")
    put(remote, "leases2", b"")
    assert remote.storage.list_tagged(remote.path("leases")) == {}


@pytest.mark.few(1)
def test_one_of_many_who_know_the_tag_wins(remote: Place) -> None:
    path, barrier = remote.path("lease"), threading.Barrier(8)
    tag: str | None = None

    def race(number: int) -> str | None:
        barrier.wait()
        try:
            return remote.storage.replace_tagged(path, f"{tag} {number}".encode(), tag)
        except Conflict:
            return None

    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            won = [found for found in pool.map(race, range(8)) if found is not None]
            assert won == [remote.anew().read_tagged(path).tag]
            tag = won[0]


@pytest.mark.parametrize("folder", ["/tmp/leases", "memory://leases"])
def test_stores_without_conditions_refuse_them_in_a_sentence(folder: str) -> None:
    storage = storage_of(folder)
    for call in (
        lambda: storage.read_tagged(f"{folder}/x"),
        lambda: storage.replace_tagged(f"{folder}/x", b"", None),
        lambda: storage.list_tagged(folder),
    ):
        with pytest.raises(Unsupported, match=r"If-Match.*needs a local disk or S3") as refused:
            call()
        assert refused.value.code == "no-conditional-writes"


@pytest.mark.few(2)
@EXCLUSIVE
def test_the_probe_passes_and_leaves_nothing(place: Place) -> None:
    numbers = iter(range(100))
    require_exclusive(place.storage, place.path("_probe"), lambda: str(next(numbers)))
    assert list(place.anew().walk(place.folder)) == []


def test_a_file_that_is_given_up_is_no_file(place: Place) -> None:
    for size in (10, 2 * PART_BYTES):
        file = place.storage.open_write(place.path("f"))
        file.write(bytes(size))
        del file
        place.storage.delete(place.path("f"))
        assert not place.anew().exists(place.path("f"))


def test_a_file_that_was_deleted_is_gone_for_its_writer(place: Place) -> None:
    path = put(place, "f", b"x")
    place.storage.delete(path)
    with pytest.raises(NotFound), place.storage.open_read(path) as source, source.part([(0, 1)]):
        pass


def test_a_bucket_that_does_not_exist(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("obstore", "s3fs"):
        storage = s3_place(moto, library, monkeypatch).storage
        with pytest.raises(NotFound, match="bucket"):
            storage.write_new("s3://no-such-bucket/x", b"")
        with pytest.raises(NotFound):
            storage.read("s3://no-such-bucket/x")


def test_wrong_credentials_are_refused_at_once(versity: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("obstore", "s3fs"):
        place = s3_place(versity, library, monkeypatch)
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
        with pytest.raises(Unavailable) as error:
            place.anew().read(place.path("x"))
        assert error.value.code == "no-permission"
        assert "wrong" not in str(error.value)


def test_a_pickle_has_no_secret(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    place = s3_place(moto, "obstore", monkeypatch)
    place.storage.write_new(place.path("x"), b"")
    pickled = pickle.dumps(place.storage) + repr(place.storage).encode()
    assert moto.secret_key.encode() not in pickled
    assert moto.access_key.encode() not in pickled


def test_a_forked_child_raises_an_error_and_does_not_hang(moto: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    place = s3_place(moto, "obstore", monkeypatch)
    path = put(place, "x", b"parent")
    for storage in (place.storage, place.anew()):
        pid = os.fork()
        if pid == 0:
            ended = 1
            try:
                storage.read(path)
            except Unsupported as error:
                ended = 0 if error.code == "forked-process" else 2
            finally:
                os._exit(ended)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert place.storage.read(path) == b"parent"


def test_the_storage_of_a_location(tmp_path: Path) -> None:
    assert isinstance(storage_of(str(tmp_path)), LocalStorage)
    assert isinstance(storage_of("file:///tmp"), LocalStorage)
    assert isinstance(storage_of("s3a://bucket/x", {"path-style": "true"}), ObjectStorage)
    storage = storage_of("memory://somewhere")
    storage.write_new("memory://somewhere/x", b"x")
    with pytest.raises(AlreadyExists):
        storage.write_new("memory://somewhere/x", b"y")
