"""Writes what a refresh computes as a script of SQL over versions of tables: what changes reach and the new rows. Pure.

    keys of the result that may differ   from the changed rows of each table, in both versions
    new rows of these keys               the query's own text, over inputs that have only what these keys need

Both are supersets. What differs from the stored rows is found by comparing, so rows that changes do not alter are never
written. All values are computed by the text that the user wrote; what is added to it chooses rows (decision 111).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from filestore.model.names import quoted
from tablestore.views.plan.nodes import (
    Address,
    Block,
    Form,
    Input,
    Name,
    Node,
    Scan,
    Term,
    UnionAll,
    columns_of,
    scans_of,
)
from tablestore.views.plan.row_key import key_of, row_key, sources_of_key
from tablestore.views.plan.script import (
    OWN,
    Changed,
    Made,
    Matching,
    Query,
    Rows,
    Sampled,
    Script,
    distinct,
    exists,
    matching,
)
from tablestore.views.plan.view_plan import Incremental
from tablestore.views.sql.select_text import Span
from tablestore.views.sql.view_query import TableUse

__all__ = ["check_script", "refresh_script"]


def refresh_script(plan: Incremental, since: Mapping[str, int], until: Mapping[str, int]) -> Script:
    """Writes the script of a refresh.

    Args:
        plan: The plan of the view.
        since: For each of its tables the version whose result is stored.
        until: The version whose result will be stored.
    """
    writer = _Writer(plan, since, until)
    if writer.has_changed(plan.node):
        keys = writer.touched()
        rows = writer.relation(matching(writer.new_rows(keys), plan.key, keys, plan.key))
    else:  # only tables of queries have changed that WITH names and nothing reads
        rows = writer.no_rows(plan.node)
        keys = writer.relation(f"SELECT {', '.join(map(quoted, plan.key))} FROM {rows}", is_keys=True)
    return Script(dict(writer.relations), keys, rows)


def check_script(plan: Incremental, versions: Mapping[str, int], output: Rows) -> Script:
    """Writes the script that computes a few rows of a view anew, as far as they do not depend on what it has stored.

    A few rows of each table stand for changed ones, and the rows of the result are found that they reach; to these come
    rows of a few stored keys, where rows are searched by keys. A stored row of these keys that differs is wrong, and so
    is one that is missing, or too many.

    Args:
        plan: The plan of the view.
        versions: For each of its tables the version whose result is stored.
        output: The stored rows.
    """
    writer = _Writer(plan, versions, versions, samples=True)
    listed = ", ".join(map(quoted, plan.key))
    keys = writer.touched()
    if not (isinstance(plan.node, Block) and writer.has_images(plan.node)):
        drawn = writer.reading(Sampled(output))
        keys = writer.relation(distinct([f"SELECT {listed} FROM {one}" for one in (keys, drawn)]), is_keys=True)
    rows = writer.relation(matching(writer.new_rows(keys), plan.key, keys, plan.key))
    stored = writer.reading(Matching(output, plan.key, keys, plan.key))
    return Script(dict(writer.relations), keys, rows, stored)


@dataclass
class _Writer:
    """Writes relations.

    Attributes:
        plan: The plan of the view.
        since: The earlier version of each table.
        until: The later one.
        samples: Whether a few rows of each table stand for its changed ones; then the versions are the same.
        relations: What was written.
    """

    plan: Incremental
    since: Mapping[str, int]
    until: Mapping[str, int]
    samples: bool = False
    relations: dict[str, Made] = field(default_factory=dict)
    _names: dict[object, str] = field(default_factory=dict)

    def relation(self, text: str, *, is_keys: bool = False) -> str:
        """Adds what a query makes; returns its name."""
        return self._added(Query(text, is_keys))

    def _added(self, made: Made) -> str:
        name = f"{OWN}{len(self.relations)}"
        self.relations[name] = made
        return name

    # ---------------------------------------------------------------------------------------- what changes reach

    def touched(self) -> str:
        """Returns the relation with the keys of the result that may differ."""
        node, key = self.plan.node, self.plan.key
        if isinstance(node, Block) and _is_by_groups(node, key):
            named = ", ".join(f"{quoted(_address(n))} AS {quoted(name)}" for n, name in enumerate(key))
            return self.relation(f"SELECT {named} FROM {self._addresses(node)}")
        if isinstance(node, Block) and node.form is Form.ROWS and self.has_images(node):
            own = row_key(node.inputs) or ()
            if key_of(node) == tuple(key):  # else the key has more columns, or two of them are one of the result
                [number] = self._changed(node)
                columns = [name.column for name in own]
                return self._values_of_images(node.inputs[number].node, columns, key, is_keys=False)
        return self._values_of_images(node, key, key, is_keys=True)

    def _values_of_images(self, node: Node, columns: Sequence[str], names: Sequence[str], *, is_keys: bool) -> str:
        """Returns the relation with the values of some columns, under other names, in the images of both versions."""
        pairs = zip(columns, names, strict=True)
        listed = ", ".join(f"{quoted(column)} AS {quoted(name)}" for column, name in pairs)
        texts = [f"SELECT {listed} FROM {self._images(node, new)}" for new in self._sides]
        return self.relation(distinct(texts), is_keys=is_keys)

    def new_rows(self, keys: str) -> str:
        """Returns the relation with the new rows of some keys; others may be in it."""
        node, key = self.plan.node, self.plan.key
        if not isinstance(node, Block):
            return self._all(node, new=True)
        if _is_by_groups(node, key):
            return self._restricted(node, node.address, keys, key, new=True)
        if self.has_images(node):
            return self._images(node, new=True)
        return self._restricted(node, [_column(node, name) for name in key], keys, key, new=True)

    def no_rows(self, node: Node, *, new: bool = True) -> str:
        """Returns the relation with the columns of a node and no rows."""
        return self.relation(f"SELECT * FROM {self._all(node, new)} WHERE false")

    def has_images(self, block: Block) -> bool:
        """Returns whether the images of the query are all new rows of the keys that changes reach, each once."""
        if self.plan.given:
            return False  # rows that have not changed may have the key of one that has, and that is an error
        if block.form is Form.PARTITIONS:
            return True
        if self.samples:
            return False  # rows of stored keys are computed, too
        # a key of the result is that of the only input that has changed
        own = block.form is Form.ROWS and sources_of_key(block.inputs) == self._changed(block)
        return own and self._has_each_once(block)

    def _has_each_once(self, node: Node) -> bool:
        """Returns whether images of a node have no row twice, as they may if both tables of a join have changed."""
        if not isinstance(node, Block) or node.form is not Form.ROWS:
            return True
        changed = [node.inputs[number] for number in self._changed(node)]
        return len(changed) == 1 and changed[0].member and self._has_each_once(changed[0].node)

    def _changed(self, block: Block) -> tuple[int, ...]:
        return tuple(number for number, source in enumerate(block.inputs) if self.has_changed(source.node))

    def _images(self, node: Node, new: bool) -> str:
        """Returns a relation with rows of a node in one version: all that the other one does not have, and maybe more.

        The rows that it leaves out are the same in both versions.
        """
        return self._once((id(node), new), lambda: self._images_of(node, new))

    def _images_of(self, node: Node, new: bool) -> str:
        match node:
            case Scan():
                return self.reading(Sampled(self._rows(node.table, new)) if self.samples else Changed(node.table, new))
            case UnionAll():
                # a branch that has not changed stays for its types, by which those of the others may become wider
                return self._united(node, [self._images_or_none(one, new) for one in node.branches])
            case Block(form=Form.ROWS):
                return self.relation("\nUNION ALL ".join(self._reached(node, new)))
        addresses = self._addresses(node)
        names = [_address(n) for n in range(len(node.address))]
        return self._restricted(node, node.address, addresses, names, new=new)

    def _addresses(self, block: Block) -> str:
        """Returns the relation with the groups, or partitions, that changes reach in either version."""

        def made() -> str:
            named = ", ".join(f"{one.text} AS {quoted(_address(n))}" for n, one in enumerate(block.address))
            return self.relation(
                distinct([t for new in self._sides for t in self._reached(block, new, named)]), is_keys=True
            )

        return self._once((id(block), None), made)

    def _reached(self, block: Block, new: bool, items: str | None = None) -> list[str]:
        """Returns queries of the joined rows of one version that changes reach, for each input that has changed.

        Args:
            block: The SELECT.
            new: Whether the later version is meant.
            items: What to select of them; None: the rows that the SELECT makes of them.
        """
        found = []
        for number, source in enumerate(block.inputs):
            if not self.has_changed(source.node):
                continue
            if source.member:
                taken = [_in_place_of(source, self._images(source.node, new))]
                found.append(self._select(block, new, taken, items))
            else:
                found.append(self._naming_a_changed_row(block, number, new, items))
        return found

    def _naming_a_changed_row(self, block: Block, number: int, new: bool, items: str | None) -> str:
        """Returns a query of the joined rows whose columns that have to equal an input's have those of a changed row.

        A member has only rows with such values: each joined row is made of one of its rows.
        """
        source = block.inputs[number]
        own = [f"{OWN}equal_{place}" for place in range(len(source.equal))]
        columns = [column for column, _ in source.equal]
        make = partial(self._values_of_images, source.node, columns, own, is_keys=True)
        keys = self._once((id(source), None), make)
        equal = [(name, value) for (_, name), value in zip(source.equal, own, strict=True)]
        taken = []
        for at, other in enumerate(block.inputs):
            pairs = [(one.column, value) for one, value in equal if isinstance(one, Name) and one.source == at]
            if pairs and other.member and isinstance(other.node, Scan):
                named, values = zip(*pairs, strict=True)
                made = Matching(self._rows(other.node.table, new), named, keys, values)
                taken.append(_in_place_of(other, self.reading(made)))
        condition = exists(keys, own, [_text(block, other) for _, other in source.equal])
        return self._select(block, new, taken, items, condition)

    # ---------------------------------------------------------------------------------------- the query's own text

    def _all(self, node: Node, new: bool) -> str:
        """Returns the relation with all rows of a node in one version."""
        match node:
            case Scan():
                return self.reading(self._rows(node.table, new))
            case Block():
                return self._once((id(node), new, "all"), lambda: self.relation(self._select(node, new, [], None)))
            case UnionAll():
                return self._united(node, [self._all(one, new) for one in node.branches])

    def _images_or_none(self, block: Block, new: bool) -> str:
        return self._images(block, new) if self.has_changed(block) else self.no_rows(block, new=new)

    def _united(self, node: UnionAll, relations: Sequence[str]) -> str:
        names = columns_of(node)
        texts = []
        for branch, relation in zip(node.branches, relations, strict=True):
            pairs = zip(columns_of(branch), names, strict=True)
            texts.append(f"SELECT {', '.join(f'{quoted(a)} AS {quoted(b)}' for a, b in pairs)} FROM {relation}")
        return self.relation("\nUNION ALL ".join(texts))

    def _restricted(
        self, block: Block, address: Sequence[Address], keys: str, columns: Sequence[str], *, new: bool
    ) -> str:
        """Returns the relation with the rows that a SELECT makes of joined rows with some addresses, and maybe others.

        Each member from whose rows some of these expressions follow has only rows with such values.

        Args:
            block: The SELECT.
            address: The expressions.
            keys: The relation with their values.
            columns: Its column for each of them.
            new: Whether the later version is meant.
        """
        taken = []
        for number, source in enumerate(block.inputs):
            places = [place for place, one in enumerate(address) if one.local == number]
            if not places:
                continue
            values = tuple(columns[place] for place in places)
            plain = [address[place].column for place in places]
            if isinstance(source.node, Scan) and all(plain):
                made = Matching(self._rows(source.node.table, new), tuple(plain), keys, values)
                taken.append(_in_place_of(source, self._added(made)))
                continue
            own = [f"{OWN}local_{place}" for place in places]
            parts = [f"{address[place].text} AS {quoted(name)}" for place, name in zip(places, own, strict=True)]
            mine = [_text(block, Name(number, column)) for column in columns_of(source.node)]
            alias = f" AS {quoted(source.alias)}" if source.alias else ""
            rows = self.relation(f"SELECT {', '.join([*mine, *parts])} FROM {self._all(source.node, new)}{alias}")
            listed = ", ".join(map(quoted, columns_of(source.node)))
            found = matching(rows, own, keys, values, listed)
            taken.append(_in_place_of(source, self.relation(found)))
        return self.relation(self._select(block, new, taken, None))

    def _select(
        self,
        block: Block,
        new: bool,
        taken: Sequence[tuple[Span, str]],
        items: str | None,
        condition: str | None = None,
    ) -> str:
        """Returns a SELECT of the query over one version of its tables.

        Args:
            block: The SELECT.
            new: Whether the later version is meant.
            taken: The inputs in whose place others are read.
            items: What to select of its joined rows; None: what it selects itself.
            condition: What joined rows have to fulfil beside its WHERE.
        """
        query, clauses, edits = self.plan.query, block.text.clauses, [*taken]
        names = [self._table(use, block, taken, new) for use in query.uses]
        end = clauses["from"][1]
        if condition is not None and "where" in clauses:
            end = clauses["where"][1]
            own = query.part(clauses["where"], names, taken)
            edits.append((clauses["where"], f"({own}\n) AND {condition}"))  # it may end with a comment
        elif condition is not None:
            edits.append(((end, end), f"\nWHERE {condition}"))
        elif "where" in clauses:
            end = clauses["where"][1]
        items = items or block.listed
        if not items:
            return query.part(block.text.span, names, edits)
        return f"SELECT {items}\nFROM {query.part((clauses['from'][0], end), names, edits)}"

    def _table(self, use: TableUse, block: Block, taken: Sequence[tuple[Span, str]], new: bool) -> str:
        """Returns the relation in the place of a table; "" where the text of a SELECT has no such place any more."""
        begin, end = block.text.span
        if not begin <= use.span[0] < end or any(one[0] <= use.span[0] < one[1] for one, _ in taken):
            return ""
        return self.reading(self._rows(use.name, new))

    # ---------------------------------------------------------------------------------------- tables

    def has_changed(self, node: Node) -> bool:
        """Returns whether a node reads a table that has changed, or of which rows stand for changed ones."""
        return self.samples or any(self.since[scan.table] != self.until[scan.table] for scan in scans_of(node))

    def reading(self, what: Rows | Changed | Sampled | Matching) -> str:
        """Returns the relation with rows of a table, which is there once."""
        return self._once(what, lambda: self._added(what))

    @property
    def _sides(self) -> tuple[bool, ...]:
        """The versions in which rows are looked at: for each whether it is the later one."""
        return (True,) if self.samples else (False, True)

    def _rows(self, table: str, new: bool) -> Rows:
        return Rows(table, (self.until if new else self.since)[table])

    def _once(self, place: object, make: Callable[[], str]) -> str:
        if place not in self._names:
            self._names[place] = make()
        return self._names[place]


def _is_by_groups(block: Block, key: Sequence[str]) -> bool:
    """Returns whether the rows of a SELECT are known by its groups."""
    return block.form is Form.GROUPS and tuple(one.name for one in block.address) == tuple(key)


def _column(block: Block, name: str) -> Address:
    """Returns a column of the result as an address."""
    item = next(item for item in block.items if item.name == name)
    if item.origin is None or block.form is not Form.ROWS or not block.inputs[item.origin.source].member:
        return Address(name, name, name, None, item.nullable)
    return Address(name, _text(block, item.origin), name, item.origin.source, item.nullable, item.origin.column)


def _address(number: int) -> str:
    return f"{OWN}address_{number}"


def _in_place_of(source: Input, relation: str) -> tuple[Span, str]:
    """Returns an edit of the text: another relation in the place of an input."""
    assert source.span is not None, "nothing takes the place of a subquery of an expression"
    return source.span, relation + (f" AS {quoted(source.alias)}" if source.needs_alias else "")


def _text(block: Block, name: Name | Term) -> str:
    """Returns the text for a column of an input, or for an expression."""
    if isinstance(name, Term):
        return name.text
    return block.inputs[name.source].text_of(name.column)
