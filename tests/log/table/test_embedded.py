"""The embedded log: the contract of every log, and what only files can get wrong."""

from __future__ import annotations

import json
import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.ambient import system_ambient
from filestore.errors import AlreadyExists, Corrupt, InvalidRequest, NotFound, Unavailable
from filestore.model.log_range import LogTransaction
from filestore.sqlite_files import Connection, open_sqlite
from log.table.config import LogConfig
from log.table.embedded import segments
from log.table.embedded.store import EmbeddedLog
from log.table.store import LogBatch, LogStore
from log.table.systems import open_log
from tests.conformance.log_store import (
    LogTransactionTests,
    changes,
    ids_of,
    make_config,
    prepared,
    transaction_id,
)
from tests.depth import Depth
from tests.flips import flipped
from tests.log.table.processes import WriterProcess


def both_kinds(log: LogStore, config: LogConfig) -> LogTransaction:
    """Stores a record batch of each kind."""
    writer = log.begin(transaction_id(config))
    writer.append(0, changes([1, 2]))
    writer.control(0, {"control": "mark"})
    transaction = writer.prepare()
    assert transaction is not None
    log.end([transaction], commit=True)
    return transaction


class TestEmbeddedLog(LogTransactionTests):
    @pytest.fixture
    def config(self, tmp_path: Path) -> LogConfig:
        return make_config(f"{tmp_path}/shop/orders")

    def test_an_aborted_offset_is_never_given_again(self, log: LogStore, config: LogConfig) -> None:
        aborted = prepared(log, config, 0, changes([1, 2]))
        log.end([aborted], commit=False)
        kept = prepared(log, config, 0, changes([3]))
        assert kept.ranges[0].start == aborted.ranges[0].end
        with pytest.raises(NotFound, match="2 of 2 records"):
            list(log.read([aborted]))

    def test_a_record_of_exactly_that_age_is_not_older(self, config: LogConfig) -> None:
        clock = iter([1_000, 2_000])
        with open_log(config, replace(system_ambient(), now_ms=lambda: next(clock))) as log:
            log.create()
            first, second = prepared(log, config, 0, changes([1])), prepared(log, config, 0, changes([2]))
            log.end([first, second], commit=True)
            assert [log.older_than(ms)[0] for ms in (1_000, 1_001, 2_000, 2_001)] == [0, 1, 1, 2]

    def test_a_range_whose_beginning_was_trimmed_is_a_gap(self, log: LogStore, config: LogConfig) -> None:
        """Its record batch is still stored, since the offset is inside."""
        transaction = prepared(log, config, 0, changes([1, 2, 3]))
        log.end([transaction], commit=True)
        log.trim({0: 1})
        with pytest.raises(NotFound, match="offsets 0 to 0 were trimmed"):
            list(log.read([transaction]))

    def test_an_id_that_is_open_is_not_opened_again(self, log: LogStore, config: LogConfig) -> None:
        name = transaction_id(config)
        for number in range(2):
            writer = log.begin(name)
            writer.append(0, changes([number]))
            if number == 0:
                writer.prepare()
            else:
                with pytest.raises(Exception, match="already open"):
                    writer.prepare()

    def test_a_transaction_is_on_disk_once_it_is_prepared(
        self, log: LogStore, config: LogConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A version may name it from then on. SQLite syncs at a COMMIT with ``synchronous = FULL``, and only then."""
        statements: list[str] = []

        def traced(path: Path, **settings: Any) -> Connection:
            connection = open_sqlite(path, **settings)
            connection.set_trace_callback(statements.append)
            return connection

        monkeypatch.setattr(segments, "open_sqlite", traced)
        with open_log(config, system_ambient()) as another:
            writer = another.begin(transaction_id(config))
            writer.append(0, changes([1]))
            writer.control(0, {"control": "mark"})  # stores both: it is the first of two commits
            writer.prepare()
        levels: list[str] = []
        for statement in statements:
            if statement.startswith("PRAGMA synchronous"):
                level = statement
            elif statement == "COMMIT":
                levels.append(level.rpartition(" ")[2])
        assert levels == ["NORMAL", "FULL"]

    @pytest.mark.parametrize("aborts", ["its writer", "another process", "a search for dead writers"])
    def test_an_abort_keeps_the_records_of_an_eventual_log(self, tmp_path: Path, aborts: str) -> None:
        """Readers may have them already: a repair writes behind them what is right."""
        config = make_config(f"{tmp_path}/shop/orders", **{"log.consistency": "eventual"})
        with open_log(config, system_ambient()) as log:
            log.create()
            writer = log.begin(transaction_id(config))
            writer.append(0, changes([1, 2]))
            if aborts == "its writer":
                writer.control(0, {"control": "mark"})  # stores the rows, too
                writer.abort()
            else:
                transaction = writer.prepare()
                assert transaction is not None
                if aborts == "another process":
                    log.end([transaction], commit=False)
                else:
                    assert log.abort_unnamed(lambda ids: ids) == [transaction.id]
            assert log.open_transactions() == []
            with log.tail({0: 0}) as tail:
                assert ids_of(event for event in tail.poll(0) if isinstance(event, LogBatch)) == [1, 2]

    def test_a_partition_that_is_damaged_is_named(self, log: LogStore, config: LogConfig) -> None:
        log.end([prepared(log, config, 0, changes([1]))], commit=True)
        log.close()
        path = Path(config.location) / "bucket-00000.sqlite"
        path.write_bytes(b"no database" * 1000)
        words = rf"^the log's partition {path} is damaged: file is not a database"
        with open_log(config, system_ambient()) as again, pytest.raises(Corrupt, match=words) as caught:
            again.end_offsets()
        assert caught.value.code == "log-corrupt"

    @pytest.mark.parametrize("part", [b"CREATE TABLE segments", b"tablesegments", b"CREATE TABLE bounds"])
    def test_damage_that_sqlite_quotes_is_named(self, log: LogStore, config: LogConfig, part: bytes) -> None:
        """Its message was no UTF-8 then, so Python raised an error of its own."""
        log.end([prepared(log, config, 0, changes([1]))], commit=True)
        log.close()
        path = Path(config.location) / "bucket-00000.sqlite"
        data = path.read_bytes()
        assert part in data
        path.write_bytes(data.replace(part, part[:-3] + b"\xa0" + part[-2:]))
        with open_log(config, system_ambient()) as again, pytest.raises(Corrupt) as caught:
            again.end_offsets()
        assert caught.value.code == "log-corrupt"

    @pytest.mark.parametrize("kind", ["data", "control"])
    def test_a_record_batch_that_is_damaged_is_named_with_its_place(
        self, log: LogStore, config: LogConfig, kind: str
    ) -> None:
        transaction = both_kinds(log, config)
        with closing(sqlite3.connect(Path(config.location) / "bucket-00000.sqlite")) as file, file:
            file.execute("UPDATE segments SET payload = substr(payload, 1, 9) WHERE kind = ?", (kind,))
        words = rf"record.* of the log \(table .*, bucket 0, offset {0 if kind == 'data' else 2}\) is damaged"
        with pytest.raises(Corrupt, match=words) as caught:
            list(log.events([transaction]))
        assert caught.value.code == "log-record"
        with log.tail({0: 0}) as tail, pytest.raises(Corrupt, match=words):
            tail.poll(0)

    def test_a_control_record_that_seems_to_have_no_checksum_is_decoded(self, log: LogStore, config: LogConfig) -> None:
        """The doctor took it for one of before, which has none."""
        both_kinds(log, config)
        with closing(sqlite3.connect(Path(config.location) / "bucket-00000.sqlite")) as file, file:
            [(payload,)] = file.execute("SELECT payload FROM segments WHERE kind = 'control'")
            damaged = payload[:5] + b"\xec" + payload[6:-33] + b"\x0b" + payload[-32:]
            file.execute("UPDATE segments SET payload = ? WHERE kind = 'control'", (damaged,))
        [found] = log.damages({0: 3})
        assert "a control record of the log" in found and "offset 2" in found

    def test_no_flipped_bit_of_a_record_batch_gives_other_changes(
        self, log: LogStore, config: LogConfig, depth: Depth
    ) -> None:
        transaction = both_kinds(log, config)
        good, dice = list(log.events([transaction])), random.Random(21)
        path = Path(config.location) / "bucket-00000.sqlite"
        for number in range(depth.times(60, deep=2000)):
            with closing(sqlite3.connect(path)) as file, file:
                [(offset, before)] = file.execute("SELECT base_offset, payload FROM segments ORDER BY random() LIMIT 1")
                damaged = flipped(before, dice, 1 + number % 2 * 2)
                file.execute("UPDATE segments SET payload = ? WHERE base_offset = ?", (damaged, offset))
            try:
                assert list(log.events([transaction])) == good, "white space behind JSON that is another digit of a bit"
            except Corrupt as error:
                assert error.code == "log-record"
                assert f"offset {offset}" in error.message
                assert [error.message] == log.damages({0: 3})
            with closing(sqlite3.connect(path)) as file, file:
                file.execute("UPDATE segments SET payload = ? WHERE base_offset = ?", (before, offset))
        assert log.damages({0: 3}) == []

    @pytest.mark.parametrize("column", ["count = 3", "transaction_id = transaction_id || 'x'", "written_ms = 1"])
    def test_what_is_stored_beside_a_record_batch_is_checked_with_it(
        self, log: LogStore, config: LogConfig, column: str
    ) -> None:
        transaction = both_kinds(log, config)
        with closing(sqlite3.connect(Path(config.location) / "bucket-00000.sqlite")) as file, file:
            file.execute(f"UPDATE segments SET {column} WHERE kind = 'data'")
        with pytest.raises((Corrupt, NotFound)) as caught:
            list(log.events([transaction]))
        assert caught.value.code in ("log-record", "log-gap")
        assert any("offset 0) is damaged" in what for what in log.damages({0: 3}))

    def test_former_versions_read_record_batches_with_checksums(self, log: LogStore, config: LogConfig) -> None:
        both_kinds(log, config)
        with closing(sqlite3.connect(Path(config.location) / "bucket-00000.sqlite")) as file:
            data, control = [row[0] for row in file.execute("SELECT payload FROM segments ORDER BY base_offset")]
        assert pa.ipc.open_stream(data).read_all().num_rows == 2
        assert json.loads(control) == {"control": "mark"}

    def test_record_batches_of_former_versions_are_read(self, log: LogStore, config: LogConfig) -> None:
        transaction = both_kinds(log, config)
        good = list(log.events([transaction]))
        with closing(sqlite3.connect(Path(config.location) / "bucket-00000.sqlite")) as file, file:
            file.execute("UPDATE segments SET payload = substr(payload, 1, length(payload) - 8) WHERE kind = 'data'")
            file.execute("UPDATE segments SET payload = CAST('{\"control\": \"mark\"}' AS BLOB) WHERE kind = 'control'")
        assert list(log.events([transaction])) == good
        assert log.damages({0: 3}) == []

    @pytest.mark.parametrize(
        ("bounds", "covered"), [("end_offset = 2", 2), ("start_offset = 9", 3), ("end_offset = 3", 4)]
    )
    def test_bounds_that_are_damaged_are_named(
        self, log: LogStore, config: LogConfig, bounds: str, covered: int
    ) -> None:
        both_kinds(log, config)
        with closing(sqlite3.connect(Path(config.location) / "bucket-00000.sqlite")) as file, file:
            file.execute(f"UPDATE bounds SET {bounds}")
        [found] = log.damages({0: covered})
        assert "bucket-00000.sqlite is damaged: it has offsets from" in found

    def test_a_partition_that_another_process_locks_is_busy(
        self, log: LogStore, config: LogConfig, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(segments, "BUSY_SECONDS", 0.01)
        path = Path(config.location) / "bucket-00000.sqlite"
        with closing(sqlite3.connect(path, isolation_level=None)) as other, open_log(config, system_ambient()) as again:
            other.execute("BEGIN IMMEDIATE")
            writer = again.begin(transaction_id(config))
            words = rf"^the log's partition {path} cannot be used now \(database is locked\): retry later"
            with pytest.raises(Unavailable, match=words) as caught:
                writer.append(0, changes([1]))
                writer.prepare()
            assert caught.value.code == "log-unavailable"
            other.execute("ROLLBACK")

    def test_another_tables_log_in_the_folder_is_a_clear_error(self, log: LogStore, config: LogConfig) -> None:
        other = EmbeddedLog(replace(config, table_id="another"), system_ambient())
        with pytest.raises(AlreadyExists, match="table_id"):
            other.create()
        with pytest.raises(Corrupt, match=r"is that of table .*, and not of table another") as caught:
            other.identity()
        assert caught.value.code == "log-replaced"
        other.close()

    def test_an_object_store_is_refused(self) -> None:
        with pytest.raises(InvalidRequest) as caught:
            make_config("s3://bucket/shop/orders")
        assert caught.value.code == "log-location"

    def test_a_file_url_is_a_path(self, tmp_path: Path) -> None:
        assert make_config(f"file://{tmp_path}/t").location == f"{tmp_path}/t/_log"

    def test_many_creators_make_one_log(self, config: LogConfig) -> None:
        logs = [open_log(config, system_ambient()) for _ in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda log: log.create(), logs))
        assert len({log.identity()["topic_id"] for log in logs}) == 1
        assert [p.name for p in Path(config.location).parent.iterdir()] == ["_log"]
        for log in logs:
            log.close()

    def test_a_folder_that_cannot_be_made_is_unavailable(self, tmp_path: Path) -> None:
        (tmp_path / "shop").write_text("a file")
        with (
            open_log(make_config(f"{tmp_path}/shop/orders"), system_ambient()) as log,
            pytest.raises(Unavailable),
        ):
            log.create()

    def test_a_partition_that_is_gone_is_not_made_again(self, log: LogStore, config: LogConfig) -> None:
        log.close()
        file = Path(config.location) / "bucket-00000.sqlite"
        file.unlink()
        with pytest.raises(NotFound) as caught:
            prepared(log, config, 0, changes([1]))
        assert caught.value.code == "log-not-found"
        assert not file.exists()

    @pytest.mark.slow
    def test_killed_writers_never_damage_a_partition(self, log: LogStore, config: LogConfig) -> None:
        committed = [prepared(log, config, 0, changes(range(10)))]
        log.end(committed, commit=True)
        for number in range(5):
            ids = [transaction_id(config) for _ in range(200)]
            with WriterProcess(config, *ids, buckets=[0, 1], rows=100 + number) as process:
                transaction = process.prepared()
                for _ in range(number * 3):
                    process.prepared()
                process.kill()
            assert log.end([transaction], commit=True).lost == ()
            committed.append(transaction)
            log.abort_unnamed(lambda ids: ids)
        for number, transaction in enumerate(committed[1:]):
            assert ids_of(log.read([transaction], bucket=1)) == list(range(100 + number))
        assert ids_of(log.read(committed[:1])) == list(range(10))
        log.close()
        for file in Path(config.location).glob("*.sqlite"):
            connection = sqlite3.connect(file)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            connection.close()
