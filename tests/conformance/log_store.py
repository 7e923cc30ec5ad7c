"""What every log must do. A test class of a log inherits `LogStoreTests` and gives it a `config`."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from filestore.ambient import Ambient, system_ambient
from filestore.errors import AlreadyExists, Conflict, InvalidRequest, NotFound, TableStoreError
from filestore.model.definition import TableDefinition
from filestore.model.log_range import LogRange, LogTransaction
from filestore.model.schema import Column, Schema
from log.slices import BATCH_ROWS
from log.table.config import LogConfig, log_config
from log.table.store import EndReport, LogBatch, LogControl, LogStore, LogTail
from log.table.systems import open_log
from tests.depth import Depth
from tests.log.table.processes import WriterProcess, write_in_processes
from tests.waiting import until

__all__ = [
    "BUCKETS",
    "COLUMNS",
    "LogStoreTests",
    "LogTransactionTests",
    "changes",
    "make_config",
    "rows_of",
    "transaction_id",
]

BUCKETS = 3
COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string(), nullable=False),
        pa.field("price", pa.decimal128(20, 2)),
    ]
)

Row = tuple[Any, ...]


def make_config(location: str, table_id: str | None = None, **options: str) -> LogConfig:
    """Returns the configuration of a keyed table's log."""
    definition = TableDefinition.of(Schema.from_arrow(COLUMNS), ["id"], options={"bucket": str(BUCKETS), **options})
    table_id = table_id or str(uuid.uuid4())
    config = log_config(
        definition, database="shop", table="orders", folder="orders", table_id=table_id, location=location
    )
    assert config is not None
    return config


def changes(ids: Iterable[int], kind: str = "+I") -> pa.Table:
    """Returns one change for each id."""
    wanted = list(ids)
    return pa.table(
        {
            "_kind": [kind] * len(wanted),
            "id": pa.array(wanted, pa.int64()),
            "name": [f"name {i}" for i in wanted],
            "price": pa.array(wanted, pa.int32()).cast(pa.decimal128(20, 2)),
        }
    )


def ids_of(batches: Iterable[LogBatch]) -> list[int]:
    """The ids in the order in which they arrived."""
    return [i for b in batches for i in b.rows["id"].to_pylist()]


def rows_of(batches: Iterable[LogBatch]) -> list[Row]:
    """The rows in the order in which they arrived."""
    return [tuple(row.values()) for b in batches for row in b.rows.to_pylist()]


def transaction_id(config: LogConfig, attempt: str = "0.0", commit: str | None = None) -> str:
    """Returns an id that was never used before."""
    return f"{config.table_id}/{commit or uuid.uuid4()}/{attempt}"


def prepared(log: LogStore, config: LogConfig, bucket: int, rows: pa.Table) -> LogTransaction:
    """Prepares a transaction with those rows."""
    writer = log.begin(transaction_id(config))
    writer.append(bucket, rows)
    transaction = writer.prepare()
    assert transaction is not None
    return transaction


class LogStoreTests:
    """The contract of `log.table.store.LogStore`."""

    @pytest.fixture
    def config(self) -> LogConfig:
        raise NotImplementedError

    @pytest.fixture
    def ambient(self) -> Ambient:
        return system_ambient()

    @pytest.fixture
    def log(self, config: LogConfig, ambient: Ambient) -> Iterator[LogStore]:
        with open_log(config, ambient) as log:
            log.create()
            yield log
            log.drop()

    # ------------------------------------------------------------------------------------- rows

    def test_rows_come_back_as_they_were_with_their_kinds_and_in_order(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        for number, kind in enumerate(["+I", "-U", "+U", "-D"]):
            writer.append(1, changes([number * 10, number * 10 + 1], kind))
        transaction = writer.prepare()
        assert transaction is not None

        expected = [
            tuple(row[name] for name in ("id", "name", "price", "_kind"))
            for number, kind in enumerate(["+I", "-U", "+U", "-D"])
            for row in changes([number * 10, number * 10 + 1], kind).to_pylist()
        ]
        batches = list(log.read([transaction]))
        assert rows_of(batches) == expected
        assert batches[0].rows.schema.names == ["id", "name", "price", "_kind"]
        assert {b.bucket for b in batches} == {1}
        assert {b.transaction_id for b in batches} == {transaction.id}
        assert batches[-1].end_offset == transaction.ranges[0].end

    def test_a_transaction_spans_buckets_and_one_bucket_can_be_read(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        for bucket in range(BUCKETS):
            writer.append(bucket, changes([bucket, bucket + 100]))
        transaction = writer.prepare()
        assert transaction is not None
        assert [(r.bucket, r.count) for r in transaction.ranges] == [(b, 2) for b in range(BUCKETS)]
        assert sorted(ids_of(log.read([transaction]))) == [0, 1, 2, 100, 101, 102]
        assert ids_of(log.read([transaction], bucket=2)) == [2, 102]

    def test_with_tombstones_whatever_takes_a_row_away_is_a_delete_of_its_key(
        self, log: LogStore, config: LogConfig, ambient: Ambient
    ) -> None:
        with open_log(replace(config, tombstones=True), ambient) as upserts:
            writer = upserts.begin(transaction_id(config))
            writer.append(0, changes([1, 2], "+I"))
            mixed = pa.concat_tables([changes([1], "-D"), changes([3], "+U"), changes([2], "-U")])
            writer.append(0, mixed)
            transaction = writer.prepare()
            assert transaction is not None
            assert [r.count for r in transaction.ranges] == [5]
            log.end([transaction], commit=True)
            assert rows_of(upserts.read([transaction])) == [
                (1, "name 1", 1, "+I"),
                (2, "name 2", 2, "+I"),
                (1, None, None, "-D"),
                (3, "name 3", 3, "+U"),
                (2, None, None, "-D"),
            ]
            assert flat(read_tail(upserts, {0: 0})) == flat(upserts.events([transaction]))

    def test_only_the_columns_asked_for_come(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([7]))
        assert rows_of(log.read([transaction], columns=["name"])) == [("name 7", "+I")]
        assert rows_of(log.read([transaction], columns=["price", "id"])) == [(7, 7, "+I")]
        assert rows_of(log.read([transaction], columns=[])) == [("+I",)]
        with pytest.raises(NotFound, match="no column 'colour'"):
            list(log.read([transaction], columns=["colour"]))

    def test_batches_are_bounded_and_large_transactions_complete(self, log: LogStore, config: LogConfig) -> None:
        count = BATCH_ROWS + 1234
        transaction = prepared(log, config, 0, changes(range(count)))
        batches = list(log.read([transaction]))
        assert ids_of(batches) == list(range(count))
        assert max(b.rows.num_rows for b in batches) <= BATCH_ROWS
        assert transaction.ranges[0].count == count

    def test_reading_goes_on_after_any_batch(self, log: LogStore, config: LogConfig) -> None:
        count = BATCH_ROWS + 500
        transaction = prepared(log, config, 0, changes(range(count)))
        first = next(iter(log.read([transaction])))
        part = transaction.ranges[0]
        rest = LogRange(part.bucket, first.end_offset, part.end, part.count - first.rows.num_rows)
        later = log.read([replace(transaction, ranges=(rest,))])
        assert ids_of([first]) + ids_of(later) == list(range(count))

    def test_a_part_of_a_range_has_exactly_its_records(self, log: LogStore, config: LogConfig) -> None:
        whole = prepared(log, config, 1, changes(range(100)))
        [part] = whole.ranges
        for low, high in ((0, 1), (0, 40), (40, 99), (99, 100), (0, 100)):
            narrow = LogRange(1, part.start + low, part.start + high, high - low)
            assert ids_of(log.read([replace(whole, ranges=(narrow,))])) == list(range(low, high))

    def test_a_column_added_later_is_null_in_older_records(
        self, log: LogStore, config: LogConfig, ambient: Ambient
    ) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        wider = Schema((*config.schema, Column("colour", pa.string())))
        with open_log(replace(config, schema=wider), ambient) as later:
            assert rows_of(later.read([transaction])) == [(1, "name 1", 1, None, "+I")]

    @pytest.mark.parametrize(
        ("rows", "message"),
        [
            (changes([1]).drop_columns(["name"]), "lack column 'name'"),
            (changes([1]).drop_columns(["_kind"]), "lack column '_kind'"),
            (changes([1], "+X"), "_kind is none of"),
            (changes([1]).set_column(1, "id", pa.array(["one"])), "do not fit"),
        ],
    )
    def test_rows_that_do_not_fit_are_refused(
        self, log: LogStore, config: LogConfig, rows: pa.Table, message: str
    ) -> None:
        writer = log.begin(transaction_id(config))
        with pytest.raises(InvalidRequest, match=message):
            writer.append(0, rows)
        writer.abort()

    # ----------------------------------------------------------------------- transactions, offsets

    def test_interleaved_writers_read_back_apart(self, log: LogStore, config: LogConfig) -> None:
        one, two = log.begin(transaction_id(config, "0.0")), log.begin(transaction_id(config, "1.0"))
        for number in range(3):
            for writer, base in ((one, 0), (two, 1000)):
                writer.append(0, changes(range(base + number * 10, base + number * 10 + 10)))
                writer.control(0, {"control": "mark", "number": number})
        second, first = two.prepare(), one.prepare()
        assert first is not None
        assert second is not None
        assert ids_of(log.read([first])) == list(range(30))
        assert ids_of(log.read([second])) == list(range(1000, 1030))
        assert first.ranges[0].count == 33

    def test_readers_follow_the_order_of_snapshots_not_of_the_log(self, log: LogStore, config: LogConfig) -> None:
        early, late = prepared(log, config, 0, changes([1])), prepared(log, config, 0, changes([2]))
        assert ids_of(log.read([late, early])) == [2, 1]
        assert ids_of(log.read([early, late], bucket=0)) == [1, 2]

    def test_nothing_of_dead_attempts_is_read(self, log: LogStore, config: LogConfig) -> None:
        commit = str(uuid.uuid4())
        dead = log.begin(transaction_id(config, "0.0", commit))
        dead.append(0, changes(range(100)))
        dead.control(0, {"control": "mark"})
        retried = log.begin(transaction_id(config, "0.1", commit))
        retried.append(0, changes(range(100, 200)))
        dead.append(0, changes(range(200, 300)))
        transaction = retried.prepare()
        assert transaction is not None
        assert ids_of(log.read([transaction])) == list(range(100, 200))
        dead.abort()
        assert ids_of(log.read([transaction])) == list(range(100, 200))

    def test_control_records_stand_between_rows_and_plain_readers_pass_over_them(
        self, log: LogStore, config: LogConfig
    ) -> None:
        payload = {"control": "overwrite", "partitions": ['p="ü"'], "version": 3}
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([1]))
        writer.control(0, payload)
        writer.append(0, changes([2]))
        writer.control(1, {"control": "overwrite"})
        transaction = writer.prepare()
        assert transaction is not None
        assert [r.count for r in transaction.ranges] == [3, 1]
        seen: list[object] = []
        for event in log.events([transaction], bucket=0):
            seen.append(event.payload if isinstance(event, LogControl) else ids_of([event]))
        assert seen == [[1], payload, [2]]
        assert ids_of(log.read([transaction])) == [1, 2]

    def test_offsets_go_up_and_cover_what_was_prepared(self, log: LogStore, config: LogConfig) -> None:
        assert log.start_offsets() == dict.fromkeys(range(BUCKETS), 0)
        assert log.end_offsets() == dict.fromkeys(range(BUCKETS), 0)
        ends: list[int] = []
        for number in range(3):
            transaction = prepared(log, config, 1, changes([number]))
            log.end([transaction], commit=True)
            ends.append(log.end_offsets()[1])
            part = transaction.ranges[0]
            assert part.start >= (ends[-2] if number else 0)
            assert part.start + part.count <= part.end <= ends[-1]
        assert log.end_offsets()[0] == 0

    def test_an_empty_transaction_is_none_at_all(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([]))
        assert writer.prepare() is None
        assert log.end_offsets() == dict.fromkeys(range(BUCKETS), 0)
        assert log.begin(transaction_id(config)).prepare() is None

    def test_a_writer_is_used_once(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([1]))
        writer.prepare()
        for again in (
            writer.prepare,
            lambda: writer.append(0, changes([2])),
            lambda: writer.control(0, {"control": "mark"}),
        ):
            with pytest.raises(Conflict, match="begin another"):
                again()

    def test_a_writer_takes_nothing_after_its_abort(self, log: LogStore, config: LogConfig) -> None:
        """Otherwise its records would be in a transaction that nobody ends."""
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([1]))
        writer.abort()
        for again in (
            lambda: writer.append(0, changes([2])),
            lambda: writer.control(0, {"control": "mark"}),
            writer.prepare,
        ):
            with pytest.raises(Conflict, match="begin another"):
                again()
        until(lambda: log.stable_offsets() == log.end_offsets())

    def test_a_bucket_that_is_not_there_is_refused(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        for bucket in (-1, BUCKETS):
            with pytest.raises(InvalidRequest, match=f"bucket {bucket} is not in the log"):
                writer.append(bucket, changes([1]))
        with pytest.raises(InvalidRequest, match="is not <table uuid>"):
            log.begin("nonsense")

    # ------------------------------------------------------------------------------------- ending

    def test_ending_twice_is_ending_once(self, log: LogStore, config: LogConfig, ambient: Ambient) -> None:
        transactions = [prepared(log, config, b, changes([b])) for b in range(2)]
        ids = tuple(t.id for t in transactions)
        assert log.end(transactions, commit=True) == EndReport(ended=ids)
        with open_log(config, ambient) as another:
            assert another.end(transactions, commit=True) == EndReport(ended=ids)
        assert sorted(ids_of(log.read(transactions))) == [0, 1]

    def test_a_transaction_is_a_json_value(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        travelled = LogTransaction.from_json(json.loads(json.dumps(transaction.to_json())))
        assert log.end([travelled], commit=True) == EndReport(ended=(transaction.id,))
        assert ids_of(log.read([travelled])) == [1]

    # ------------------------------------------------------------------------------------ the tail

    def test_a_tail_has_everything_in_the_logs_order(self, log: LogStore, config: LogConfig) -> None:
        one, two = log.begin(transaction_id(config, "0.0")), log.begin(transaction_id(config, "1.0"))
        for number in range(2):
            one.append(0, changes([number]))
            one.control(0, {"control": "mark", "number": number})
            two.append(0, changes([number + 10, number + 20]))
            two.control(1, {"control": "mark", "number": number})
        first, second = one.prepare(), two.prepare()
        assert first is not None
        assert second is not None
        found = read_tail(log, dict.fromkeys(range(BUCKETS), 0))
        for transaction in (first, second):
            for bucket in range(2):
                mine = [e for e in found if (e.transaction_id, e.bucket) == (transaction.id, bucket)]
                reported = log.events([transaction], bucket=bucket)
                assert flat(mine) == flat(reported)
        for bucket in range(BUCKETS):
            ends = [event.end_offset for event in found if event.bucket == bucket]
            assert ends == sorted(ends)

    def test_a_tail_goes_on_where_it_was_and_gives_what_comes(
        self, log: LogStore, config: LogConfig, ambient: Ambient
    ) -> None:
        count = BATCH_ROWS + 10
        prepared(log, config, 1, changes(range(count)))
        with log.tail({1: count - 15}, ["id"]) as tail:
            found: list[int] = []
            while len(found) < 15:
                found += [
                    i for event in tail.poll(5.0) if isinstance(event, LogBatch) for i in event.rows["id"].to_pylist()
                ]
            assert found == list(range(count - 15, count))
            assert tail.offsets == {1: count}
            assert tail.poll(0.05) == []
            with open_log(config, ambient) as another:
                prepared(another, config, 1, changes([7], "-D"))
                prepared(another, config, 0, changes([8]))
            batches = [event for event in _until_some(tail) if isinstance(event, LogBatch)]
            assert rows_of(batches) == [(7, "-D")]

    def test_a_tail_whose_records_are_gone_says_so(self, log: LogStore, config: LogConfig) -> None:
        old, _ = prepared(log, config, 0, changes([1, 2])), prepared(log, config, 0, changes([3]))
        log.trim({0: old.ranges[0].end})
        with log.tail({0: 0}) as tail, pytest.raises(NotFound, match='scan="full"') as caught:
            _until_some(tail)
        assert caught.value.code == "log-gap"

    def test_nothing_is_held_back_once_all_is_ended(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        log.end([transaction], commit=True)
        until(lambda: log.stable_offsets() == log.end_offsets())

    # --------------------------------------------------------------------------------------- gaps

    def test_trimmed_records_are_a_gap_that_says_what_to_do(self, log: LogStore, config: LogConfig) -> None:
        old, new = prepared(log, config, 0, changes([1, 2])), prepared(log, config, 0, changes([3]))
        log.end([old, new], commit=True)
        log.trim({0: new.ranges[0].start})
        with pytest.raises(NotFound, match='scan="full"') as caught:
            list(log.read([old]))
        assert caught.value.code == "log-gap"
        assert ids_of(log.read([new])) == [3]
        assert log.start_offsets()[0] == new.ranges[0].start
        assert log.end([old], commit=True) == EndReport(ended=(old.id,))

    def test_records_that_are_not_there_are_a_gap(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1, 2]))
        following = prepared(log, config, 0, changes([3]))
        log.end([transaction, following], commit=True)
        part = transaction.ranges[0]
        more = replace(transaction, ranges=(replace(part, count=3),))
        with pytest.raises(NotFound, match="1 of 3 records") as caught:
            list(log.read([more]))
        assert caught.value.code == "log-gap"

    def test_trimming_nothing_is_allowed(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        log.trim({})
        log.trim({1: 0})
        assert ids_of(log.read([transaction])) == [1]

    # ------------------------------------------------------------------------------ making, dropping

    def test_creating_twice_is_creating_once(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        identity = log.identity()
        log.create()
        assert log.exists()
        assert log.identity() == identity
        assert set(identity) == {"system", "topic", "topic_id", "cluster_id"}
        assert ids_of(log.read([transaction])) == [1]

    def test_another_number_of_partitions_is_a_clear_error(
        self, log: LogStore, config: LogConfig, ambient: Ambient
    ) -> None:
        with (
            open_log(replace(config, buckets=BUCKETS + 2), ambient) as other,
            pytest.raises(AlreadyExists) as caught,
        ):
            other.create()
        assert caught.value.code == "log-exists"
        assert str(BUCKETS) in caught.value.message

    def test_a_log_that_is_made_again_is_another(self, log: LogStore, config: LogConfig) -> None:
        prepared(log, config, 0, changes([1]))
        before = log.identity()
        log.drop()
        log.drop()
        assert not log.exists()
        with pytest.raises(NotFound):
            log.identity()
        log.create()
        assert log.identity()["topic_id"] != before["topic_id"]
        assert log.end_offsets()[0] == 0

    def test_a_log_that_is_not_there_is_not_found(self, config: LogConfig, ambient: Ambient) -> None:
        with open_log(config, ambient) as log:
            assert not log.exists()
            with pytest.raises(NotFound) as caught:
                log.end_offsets()
            assert caught.value.code == "log-not-found"
            assert config.topic is None or f"the log of table {config.database}.{config.table}" in str(caught.value)

    def test_a_config_opens_the_log_anywhere(self, log: LogStore, config: LogConfig, ambient: Ambient) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        with open_log(pickle.loads(pickle.dumps(config)), ambient) as another:
            assert another.exists()
            assert another.identity() == log.identity()
            assert ids_of(another.read([transaction])) == [1]

    # --------------------------------------------------------------------------- processes that die

    def test_a_prepared_transaction_outlives_its_writer(self, log: LogStore, config: LogConfig) -> None:
        with WriterProcess(config, transaction_id(config), buckets=[0, 2], rows=1000) as process:
            transaction = process.prepared()
            process.kill()
        assert log.end([transaction], commit=True) == EndReport(ended=(transaction.id,))
        assert ids_of(log.read([transaction], bucket=2)) == list(range(1000))
        assert ids_of(log.read([transaction], bucket=0)) == list(range(1000))

    def test_what_a_killed_writer_left_unprepared_is_aborted(self, log: LogStore, config: LogConfig) -> None:
        with WriterProcess(config, transaction_id(config), buckets=[0], rows=1000, prepare=False) as process:
            process.appended()
            process.kill()
        assert len(log.abort_unnamed(lambda ids: ids)) <= 1
        assert log.abort_unnamed(lambda ids: ids) == []
        transaction = prepared(log, config, 0, changes([1]))
        assert ids_of(log.read([transaction])) == [1]

    @pytest.mark.slow
    def test_processes_write_at_once(self, log: LogStore, config: LogConfig, depth: Depth) -> None:
        writers, commits, rows = depth.times(2, deep=4), 5, 300
        ids = [[transaction_id(config, f"{w}.0") for _ in range(commits)] for w in range(writers)]
        transactions = write_in_processes(config, ids, buckets=range(BUCKETS), rows=rows)
        assert {t.id for t in transactions} == {i for mine in ids for i in mine}
        assert log.end(transactions, commit=True).lost == ()
        for transaction in transactions:
            for bucket in range(BUCKETS):
                assert ids_of(log.read([transaction], bucket=bucket)) == list(range(rows))
        for bucket in range(BUCKETS):
            assert _distinct(bucket, transactions)


class LogTransactionTests(LogStoreTests):
    """The contract of logs that can also abort a transaction."""

    def test_what_was_aborted_cannot_be_committed(self, log: LogStore, config: LogConfig) -> None:
        transaction = prepared(log, config, 0, changes([1]))
        assert log.end([transaction], commit=False) == EndReport(ended=(transaction.id,))
        assert log.end([transaction], commit=False) == EndReport(ended=(transaction.id,))
        assert log.end([transaction], commit=True) == EndReport(lost=(transaction.id,))

    def test_a_writer_can_abort_before_and_after_prepare(self, log: LogStore, config: LogConfig) -> None:
        before = log.begin(transaction_id(config))
        before.append(0, changes([1]))
        before.abort()
        after = log.begin(transaction_id(config))
        after.append(0, changes([2]))
        transaction = after.prepare()
        assert transaction is not None
        after.abort()
        assert log.end([transaction], commit=True) == EndReport(lost=(transaction.id,))
        assert log.abort_unnamed(lambda ids: ids) == []
        kept = prepared(log, config, 0, changes([3]))
        assert ids_of(log.read([kept])) == [3]

    def test_recovery_aborts_the_dead_and_nobody_else(self, log: LogStore, config: LogConfig, ambient: Ambient) -> None:
        dead, living = prepared(log, config, 0, changes([1])), prepared(log, config, 0, changes([2]))
        done = prepared(log, config, 0, changes([3]))
        log.end([done], commit=True)
        asked: list[str] = []

        def dead_among(open_ids: Sequence[str]) -> list[str]:
            asked.extend(open_ids)
            return [dead.id]

        with open_log(config, ambient) as recovery:
            assert recovery.abort_unnamed(dead_among) == [dead.id]
        assert sorted(asked) == sorted([dead.id, living.id])
        assert log.end([dead, living], commit=True) == EndReport(ended=(living.id,), lost=(dead.id,))
        assert ids_of(log.read([living])) == [2]

    def test_which_transactions_were_aborted(self, log: LogStore, config: LogConfig) -> None:
        gone, kept, opened = (prepared(log, config, 0, changes([n])) for n in range(3))
        both = log.begin(transaction_id(config))
        both.append(0, changes([4]))
        both.append(1, changes([5]))
        wide = both.prepare()
        assert wide is not None
        log.end([kept, wide], commit=True)
        assert log.aborted([gone, kept, opened, wide]) == []
        log.end([gone], commit=False)
        assert log.aborted([gone, kept, opened, wide]) == [gone.id]
        assert log.aborted([]) == []
        assert log.abort_unnamed(lambda ids: [id_ for id_ in ids if id_ == opened.id]) == [opened.id]
        assert log.aborted([wide, opened, kept]) == [opened.id]

    def test_the_first_committed_record_behind_offsets(self, log: LogStore, config: LogConfig) -> None:
        ends = {b: 0 for b in range(BUCKETS)}
        assert log.committed_behind(ends) == {}
        gone, first, second = (prepared(log, config, 0, changes(range(n, n + 3))) for n in range(3))
        control = log.begin(transaction_id(config))
        control.control(1, {"control": "mark"})
        mark = control.prepare()
        opened = prepared(log, config, 2, changes([1]))
        assert mark is not None
        assert log.committed_behind(ends) == {}, "all are open"
        log.end([gone], commit=False)
        log.end([second, first, mark], commit=True)
        [begin], [then], [marked] = (t.ranges for t in (first, second, mark))
        until(lambda: log.stable_offsets() == log.end_offsets() | {2: opened.ranges[0].start})
        assert log.committed_behind(ends) == {0: begin.start, 1: marked.start}
        assert log.committed_behind({0: begin.end}) == {0: then.start}
        assert log.committed_behind({0: then.end, 1: marked.end}) == {}
        log.trim({0: then.end})
        assert log.committed_behind({0: 0}) == {}

    def test_a_writer_taken_for_dead_adds_nothing_more(self, log: LogStore, config: LogConfig) -> None:
        writer = log.begin(transaction_id(config))
        writer.append(0, changes([1]))
        writer.control(0, {"control": "mark"})
        _until_open(log)
        assert len(log.abort_unnamed(lambda ids: ids)) == 1
        with pytest.raises(TableStoreError):
            writer.append(0, changes(range(10)))
            writer.prepare()
        writer.abort()
        assert log.abort_unnamed(lambda ids: ids) == []


def read_tail(log: LogStore, offsets: dict[int, int]) -> list[LogBatch | LogControl]:
    """Reads all that the log holds from those offsets on."""
    found: list[LogBatch | LogControl] = []
    kept = sum(log.end_offsets().values())
    with log.tail(offsets) as tail:
        while (events := tail.poll(0.5)) or (not found and kept):
            found += events
    return found


def flat(found: Iterable[LogBatch | LogControl]) -> list[object]:
    """Lists rows and messages one by one, in whatever batches they were read."""
    listed: list[object] = []
    for event in found:
        listed += [event.payload] if isinstance(event, LogControl) else event.rows.to_pylist()
    return listed


def _until_some(tail: LogTail) -> list[LogBatch | LogControl]:
    """Waits for the next events."""
    found: list[LogBatch | LogControl] = []
    until(lambda: found.extend(tail.poll(1.0)) or found)
    return found


def _until_open(log: LogStore) -> None:
    """Waits until the log has noticed the open transaction, without aborting it."""
    seen: list[str] = []

    def none_dead(open_ids: Sequence[str]) -> tuple[str, ...]:
        seen.extend(open_ids)
        return ()

    for _ in range(1000):
        log.abort_unnamed(none_dead)
        if seen:
            return
    raise AssertionError("no open transaction")


def _distinct(bucket: int, transactions: Sequence[LogTransaction]) -> bool:
    """Whether the first offsets in that bucket are all different."""
    starts = [r.start for t in transactions for r in t.ranges if r.bucket == bucket]
    return len(set(starts)) == len(starts) == len(transactions)
