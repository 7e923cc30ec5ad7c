"""The use cases of views. A view is a row of the catalog; only engines read its query."""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog_service.database.name_errors import table_exists
from catalog_service.database.schema import State, TableRow
from catalog_service.model.names import fold_name
from catalog_service.model.view_definition import ViewDefinition
from catalog_service.tables.construction import key_of
from catalog_service.tables.lifecycle import Lifecycle
from catalog_service.use_cases import answers
from catalog_service.wire import page_tokens
from catalog_service.wire.views import CreateView, ViewInfo, ViewPage
from filestore.errors import NotFound

__all__ = ["Views"]


@dataclass(frozen=True, slots=True)
class Views:
    """Creates, replaces, lists and drops views. Each method raises `Unavailable` if the catalog's database fails."""

    lifecycle: Lifecycle

    def create(
        self, database: str, request: CreateView, *, if_not_exists: bool = False, or_replace: bool = False
    ) -> tuple[ViewInfo, bool]:
        """Creates a view; returns it, and whether this call created it.

        Args:
            database: The name of its database.
            request: The view.
            if_not_exists: Whether a view of that name is returned as it is.
            or_replace: Whether a view of that name is replaced.

        Raises:
            InvalidRequest: ``bad-name``, ``empty-query``, ``too-long``, ``bad-text``.
            NotFound: ``database-not-found``.
            AlreadyExists: ``table-exists``: a table has the name, or a view has it and none of the two is set.
        """
        database, name = fold_name("database", database), fold_name("view", request.name)
        definition = ViewDefinition.of(
            request.query, request.columns, request.context, request.properties, request.comment
        )
        lifecycle = self.lifecycle
        with lifecycle.locks.hold(key_of(database, name)):
            row = lifecycle.finished(database, name)
            if row is None:
                row = lifecycle.construction.new_row(database, name, definition, staged=False)
                lifecycle.repository.add_table(row)
                return answers.view_info(row, definition), True
            if not isinstance(row.definition, ViewDefinition) or not (if_not_exists or or_replace):
                raise table_exists(database, name)
            if not or_replace:
                return answers.view_info(row, row.definition), False
            lifecycle.repository.replace_definition(row, definition)
            return answers.view_info(replace(row, definition=definition), definition), False

    def get(self, database: str, name: str) -> ViewInfo:
        """Returns a view; raises `NotFound` (``database-not-found``, ``view-not-found``)."""
        row, definition = self._view(database, name)
        return answers.view_info(row, definition)

    def list(self, database: str, page_size: int = page_tokens.PAGE_SIZE, page_token: str | None = None) -> ViewPage:
        """Returns a page of views by name; raises `NotFound`, or `InvalidRequest` (``bad-page-token``)."""
        database = fold_name("database", database)
        scope = f"views:{database}"
        after = page_tokens.decode_token(scope, page_token)
        rows = self.lifecycle.repository.tables(database, after, page_size + 1, views=True)
        page, token = page_tokens.cut(rows, page_size, scope, lambda row: row.name)
        return ViewPage(views=[answers.view_summary(row) for row in page], next_page_token=token)

    def rename(self, database: str, name: str, new_name: str, *, replaces: bool = False) -> ViewInfo:
        """Gives a view another name, in the same database; returns it.

        Raises:
            InvalidRequest: ``bad-name``.
            NotFound: ``database-not-found``, ``view-not-found``.
            AlreadyExists: ``table-exists``: another one has the name; a view is dropped with `replaces`.
        """
        new_name = fold_name("view", new_name)
        row, definition = self._view(database, name)
        return answers.view_info(self.lifecycle.rename(row.database, row.name, new_name, replaces=replaces), definition)

    def drop(self, database: str, name: str, *, if_exists: bool = False) -> None:
        """Drops a view; raises `NotFound` (``database-not-found``, ``view-not-found``), unless `if_exists`."""
        try:
            row, _ = self._view(database, name)
            with self.lifecycle.locks.hold(key_of(row.database, row.name)):
                self.lifecycle.construction.discard(row)
        except NotFound:
            if not if_exists:
                raise

    def _view(self, database: str, name: str) -> tuple[TableRow, ViewDefinition]:
        database, name = fold_name("database", database), fold_name("view", name)
        row = self.lifecycle.repository.table(database, name)
        if row is None or row.state is not State.ACTIVE:
            raise self.lifecycle.repository.no_view(database, name)
        if not isinstance(row.definition, ViewDefinition):
            raise NotFound(f"{database}.{name} is a table, and not a view", code="view-not-found")
        return row, row.definition
