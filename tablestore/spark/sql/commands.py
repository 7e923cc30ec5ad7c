"""The one list of statements that become a ``CALL``, and of those that are refused with what to do instead. Pure.

A row is a pattern (`tablestore.spark.sql.patterns`) and a procedure. The first row that fits decides; what begins like
a command and is none falls to the last row with its words. Statements about tables of others stay as they are. The
Java side asks for a statement only if it has one of the words in ``StatementParser.java``; a test compares both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot.tokenizer_core import Token

from filestore.errors import Unsupported
from tablestore.spark.sql.names import Names
from tablestore.spark.sql.patterns import Found, Optional, matched, parts_of

__all__ = ["COMMANDS", "VERBS", "Command", "command", "is_of_spark"]


@dataclass(frozen=True, slots=True)
class Command:
    """A statement, by its words.

    Attributes:
        pattern: Its words and its arguments.
        procedure: The procedure of ``CALL catalog.sys.…``; empty if it is refused.
        fixed: Arguments that are the same in each.
        instead: The sentence of the refusal; ``{table}`` is the name of the table.
        code: The code of the refusal.
        of_spark: Whether Spark's own grammar has the statement, for its tables.
    """

    pattern: str
    procedure: str = ""
    fixed: Mapping[str, str] = field(default_factory=dict)
    instead: str = ""
    code: str = "other-command"
    of_spark: bool = False

    @property
    def parts(self) -> tuple[str | Optional, ...]:
        """The pattern's parts."""
        return parts_of(self.pattern)

    @property
    def verbs(self) -> frozenset[str]:
        """The words with which the statement may begin."""
        return frozenset(self.pattern.split()[0].split("|"))

    def rewritten(self, found: Found) -> str:
        """Returns the call.

        Raises:
            Unsupported: the statement is refused.
        """
        if self.instead:
            raise Unsupported(self.instead.format(table=found.name, catalog=found.catalog), code=self.code)
        return found.call(self.procedure, self.fixed)


_FULL = {"full": "true"}
_VALUES = (
    "takes values of partition columns, as in WHERE day = '2026-01-31' AND region IS NULL, and nothing else: a bucket "
    "is compacted as a whole"
)
_ROWS_OF_FILES = (
    "INSERT INTO {table} SELECT … FROM parquet.`/path` (or json.`/path`) does it, and `tablestore write` on the "
    "command line. Neither remembers which files it has read; in a table with a key the rows of a file that comes "
    "again replace themselves"
)

COMMANDS: Sequence[Command] = (
    Command("ALTER TABLE {table} [{partition:partition}] COMPACT", "compact", _FULL),
    Command("ALTER TABLE {table} RECOVER PARTITIONS", of_spark=True, instead=(
        "the partitions of {table} are those of its commits, so none has to be found: SHOW PARTITIONS lists them"
    )),
    Command("ALTER TABLE {table} DROP FEATURE ...", instead=(
        "the features of Delta that {table} needs follow from its options: ALTER TABLE … SET TBLPROPERTIES changes "
        "those"
    )),
    Command("OPTIMIZE {table} [WHERE {partition:where}] [FULL]", "compact", _FULL),
    Command("OPTIMIZE {table} [WHERE {partition:where}] ZORDER BY ...", instead=(
        "rows of {table} are stored by partition, bucket and key, and files have the bounds of their columns: leave "
        "ZORDER BY out. PARTITIONED BY, or a primary key that begins with the column, stores rows together"
    )),
    Command("OPTIMIZE {table} ...", instead=f"OPTIMIZE of {{table}} {_VALUES}"),
    Command("OPTIMIZE FULL {table} ...", instead="FULL follows the name: OPTIMIZE {table} FULL"),
    Command("VACUUM {table} [RETAIN {retain_hours:number} HOURS] [DRY RUN]=dry_run", "vacuum"),
    Command("VACUUM {table} ...", instead=(
        "VACUUM {table} takes RETAIN with a whole number of HOURS, then DRY RUN, and nothing else: it always looks at "
        "all files"
    )),
    Command("RESTORE [TABLE] {table} TO VERSION AS OF {tag:text}", "rollback"),
    Command("RESTORE [TABLE] {table} TO VERSION AS OF {version:number}", "rollback"),
    Command("RESTORE [TABLE] {table} TO TIMESTAMP AS OF [TIMESTAMP] {timestamp:moment}", "rollback"),
    Command("RESTORE [TABLE] {table} ...", instead=(
        "RESTORE {table} takes TO VERSION AS OF a number or a tag, or TO TIMESTAMP AS OF a text such as "
        "'2026-01-31 12:00:00'"
    )),
    Command("DESCRIBE|DESC DETAIL EXTENDED {table} [{partition:partition}]", "describe_detail"),
    Command("DESCRIBE|DESC DETAIL {table} {partition:partition}", "describe_detail"),
    Command("DESCRIBE|DESC DETAIL {table}", "describe_as_delta"),
    Command("DESCRIBE|DESC DETAIL [EXTENDED] {table} ...", code="describe-partition", instead=(
        "DESCRIBE DETAIL takes a table and a PARTITION (…), and nothing else; the partitions are in its system table "
        "{table}$partitions"
    )),
    Command("DESCRIBE|DESC HISTORY {table} [LIMIT {limit:number}]", "describe_history"),
    Command("DESCRIBE|DESC HISTORY {table} ...", code="describe-partition", instead=(
        "DESCRIBE HISTORY takes a table and a LIMIT, and nothing else; the partitions are in its system table "
        "{table}$partitions"
    )),
    Command("ANALYZE TABLE {table} [PARTITION ( {} [= {}] )] COMPUTE STATISTICS ...", "analyze", of_spark=True),
    Command("ANALYZE TABLES [IN|FROM {database}] COMPUTE STATISTICS ...", of_spark=True, instead=(
        "each commit has counts of rows, nulls and the bounds of columns, so there are no statistics to compute"
    )),
    Command("REORG TABLE {table} [WHERE {partition:where}] APPLY ( PURGE )", "compact", _FULL),
    Command("REORG TABLE {table} WHERE ...", instead=f"REORG TABLE {{table}} WHERE {_VALUES}"),
    Command("REORG TABLE {table} ...", instead=(
        "REORG TABLE {table} takes APPLY (PURGE), which writes files with deleted rows anew. Tables have no UniForm: "
        "readers of Delta read them as they are"
    )),
    Command("CREATE [OR REPLACE] TABLE [IF NOT EXISTS] {table} [SHALLOW|DEEP] CLONE ...", instead=(
        "a table shares no files with another one. CREATE TABLE {table} TBLPROPERTIES ('primary-key' = …) AS SELECT "
        "copies the rows, also of an older version; CREATE TABLE … LIKE copies columns, key and options; and CALL "
        "{catalog}.sys.create_tag keeps a version where it is"
    )),
    Command("COPY INTO {table} ...", instead=f"COPY INTO is no statement here: {_ROWS_OF_FILES}"),
    Command("LOAD DATA [LOCAL] INPATH {} [OVERWRITE] INTO TABLE {table} ...", of_spark=True, instead=(
        f"LOAD DATA moves files into a folder, and {{table}} has only what was committed: {_ROWS_OF_FILES}"
    )),
    Command("GENERATE {} FOR TABLE {table}", instead=(
        "{table} has no manifests of symbolic links: readers of Delta find its files by its log, and the system table "
        "{table}$files lists them"
    )),
    Command("CONVERT TO DELTA {table} ...", instead="{table} is a Delta table already: DESCRIBE DETAIL says where"),
    Command("FSCK REPAIR TABLE {table} ...", instead=(
        "CALL {catalog}.sys.doctor('{table}') checks the files of {table} and says what to do; it changes nothing"
    )),
    Command("MSCK REPAIR TABLE {table} ...", of_spark=True, instead=(
        "the partitions of {table} are those of its commits, so none has to be found: SHOW PARTITIONS lists them"
    )),
    Command("UNDROP TABLE {table}", instead=(
        "the files of a dropped table are removed with it, so {table} cannot come back; RESTORE restores older rows "
        "of a table that is there"
    )),
)  # fmt: skip
"""All commands. Their order matters."""

VERBS: frozenset[str] = frozenset().union(*(row.verbs for row in COMMANDS))
"""The words with which commands begin."""

_PARSED = tuple((row, row.verbs, row.parts) for row in COMMANDS)


def command(tokens: Sequence[Token], names: Names) -> str | None:
    """Returns the call that a statement becomes; None if it is no command about a table of ours.

    Raises:
        Unsupported: the statement is one of others that tables here have no use for, with what to do instead.
    """
    verb = tokens[0].text.upper() if tokens else ""
    if verb == "CREATE":
        names = names.without_views
    for row, verbs, parts in _PARSED:
        if verb in verbs and (found := matched(parts, tokens, names)) is not None:
            return row.rewritten(found)
    return None


_ANY = Names(frozenset({"any"}), "any", "any")
"""A session in which each name of one or two parts is that of a table of ours."""


def is_of_spark(tokens: Sequence[Token]) -> bool:
    """Returns whether Spark's own grammar has a statement, so that it may be left to Spark."""
    return any(row.of_spark and matched(parts, tokens, _ANY) is not None for row, _, parts in _PARSED)
