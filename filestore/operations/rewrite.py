"""Rewrites all rows of a table into files of a new schema, for a commit that changes it (FORMAT.md section 3.1).

The live rows of each file, in their order, become new files of its slot and level, so that sorted runs stay sorted.
Files that others add meanwhile are rewritten, too; rows that die meanwhile are marked dead in the new files. Each
thread needs the memory of two row groups. The caller chooses where the tasks run: in threads, or in a Spark job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from filestore.delta.state import TableState
from filestore.delta.vectors import vector_file
from filestore.errors import Conflict
from filestore.files.leftovers import discard, remove
from filestore.files.row_groups import RowGroups
from filestore.files.writer import DataWriter, TableFiles
from filestore.lazily import pl
from filestore.model.definition import TableDefinition
from filestore.model.files import DataFile
from filestore.model.schema import Schema
from filestore.operations.carry_over import died_meanwhile, keys_at, without
from filestore.rows.frames import arrow_table, polars_schema, row_group_frames
from filestore.table import FileStore
from filestore.threads import in_threads

__all__ = ["RewriteRunner", "RewriteTask", "TableRewrite", "rewrite_file", "rewrite_files"]


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """The rewrite of one file. It is picklable, and independent of all others.

    Attributes:
        before: The table with the schema by which the file is read.
        after: The table with the schema by which its rows are written.
        file: The file.
    """

    before: TableFiles
    after: TableFiles
    file: DataFile


RewriteRunner = Callable[[Sequence[RewriteTask]], Sequence[tuple[DataFile, ...]]]
"""Runs `rewrite_file` for each task, anywhere and in any order; the results are in the order of the tasks."""


def rewrite_file(task: RewriteTask) -> tuple[DataFile, ...]:
    """Writes the live rows of a file to new files; none if all rows are dead. After an error no file is left."""
    definition = task.after.definition
    with DataWriter(task.after, task.file.slot, task.file.level) as writer:
        for frame in row_group_frames(_rows(task), definition.options["row-group.rows"]):
            writer.write(arrow_table(frame, task.after.file_schema))
        return writer.finish()


def _rows(task: RewriteTask) -> Iterator[pl.DataFrame]:
    before, after = task.before.definition.schema.numbered(), task.after.definition.schema.numbered()
    kept = [column.name for column in before if any(column.id == c.id for c in after)]
    columns = _columns(before, after)
    groups = RowGroups(task.before, task.file)
    for group in range(len(groups)):
        alive = groups.alive(group)
        if alive.any():
            rows = groups.read(group, kept, alive)
            # without a kept column, `select` would return one row, because all expressions are literals
            yield rows.select(columns) if kept else pl.DataFrame(height=int(alive.sum())).with_columns(columns)


def _columns(before: Schema, after: Schema) -> list[pl.Expr]:
    """Returns expressions for a schema's columns in rows of another schema: a column has the same id in both."""
    names = {column.id: column.name for column in before}
    types = polars_schema(after.to_arrow())
    return [
        (pl.col(names[column.id]) if column.id in names else pl.lit(None, types[column.name])).alias(column.name)
        for column in after
    ]


def rewrite_files(tasks: Sequence[RewriteTask]) -> list[tuple[DataFile, ...]]:
    """Runs the tasks in a thread for each core. If one fails, the files of the others are removed."""

    def discard_files(written: Iterable[tuple[DataFile, ...]]) -> None:
        discard(tasks[0].after, (file for files in written for file in files))

    return in_threads("rewrite", rewrite_file, tasks, discard_files)


@dataclass(slots=True)
class _Done:
    """A file that was rewritten.

    Attributes:
        alive: The new files with the rows marked that died since; without files that have no live row left.
        seen: The file as of the version to which `alive` was adapted.
    """

    alive: tuple[DataFile, ...]
    seen: DataFile


class TableRewrite:
    """Rewrites a table in tasks, one for each file (`filestore.operations.alter.Rewrite`)."""

    def __init__(
        self, store: FileStore, base: TableState, definition: TableDefinition, runner: RewriteRunner = rewrite_files
    ) -> None:
        self._before = store.table_files(base)
        self._after = TableFiles(store.storage, store.location, definition, store.ambient)
        self._runner = runner
        self._done: dict[str, _Done] = {}
        self._made: set[str] = set()

    def write_files(self, state: TableState) -> tuple[DataFile, ...]:
        """Returns new files with the live rows of a version, which has the schema of the first one."""
        self._done = {path: done for path, done in self._done.items() if state.files.current(done.seen) is not None}
        todo = [file for file in state.files if not self._caught_up(file)]
        tasks = [RewriteTask(self._before, self._after, file) for file in todo]
        for file, written in zip(todo, self._runner(tasks) if tasks else (), strict=True):
            self._done[file.path] = _Done(written, file)
            self._made.update(new.path for new in written)
        return tuple(file for done in self._done.values() for file in done.alive)

    def _caught_up(self, file: DataFile) -> bool:
        """Returns whether the file's rows are rewritten; the new files mark rows that died since, if possible."""
        done = self._done.get(file.path)
        if done is None or done.seen.vector == file.vector:
            return done is not None
        if not self._before.definition.primary_key:
            return False
        try:
            rows = died_meanwhile(self._before, done.seen, file)
        except Conflict:
            return False  # dead rows are alive again, as after a rollback
        dead = keys_at(self._before, file, rows) if len(rows) else []
        done.alive = without(self._after, done.alive, dead) if dead else done.alive
        done.seen = file
        self._made.update(vector_file(new.vector) for new in done.alive if new.vector is not None)
        return True

    def finish(self) -> None:
        """Removes new files whose rows died or were removed meanwhile, and vectors that were replaced."""
        alive = [file for done in self._done.values() for file in done.alive]
        vectors = {vector_file(file.vector) for file in alive if file.vector is not None}
        remove(self._after, self._made - {file.path for file in alive} - vectors)

    def discard(self) -> None:
        """Removes all files that were written."""
        remove(self._after, self._made)
