"""The commands ``tags``, ``tag``, ``rollback``, ``expire``, ``consumers``, ``orphans`` and ``maintain``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from tablestore.cli.arguments import DEFAULT_WAREHOUSE, Catalog, Format, OutputFormat, TableName, Token, Yes, moment
from tablestore.cli.opening import open_table
from tablestore.cli.output import confirm, done, note, print_json, print_lines, print_table
from tablestore.cli.questions import about_expiry, about_orphans, about_rollback

__all__ = ["consumers", "expire", "maintain", "orphans", "rollback", "tag", "tags"]

_Version = Annotated[int | None, typer.Option("--version", "-v", min=0, help="This version.")]
_Timestamp = Annotated[
    datetime | None, typer.Option("--timestamp", parser=moment, metavar="TIME", help="The version at that time.")
]


def tags(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE
) -> None:
    """List a table's tags, with the versions that they keep from expiring."""
    with open_table(name, catalog, token) as table:
        found = table.tags()
    rows = [(t.name, t.version, _time(t.timestamp_ms), _time(t.created_ms), t.automatic) for t in found]
    titles = ["tag", "version", "committed", "created", "automatic"]
    if output is Format.JSON:
        print_json(*(dict(zip(titles, row, strict=True)) for row in rows))
    else:
        print_table(titles, rows, right=["version"])


def tag(  # noqa: PLR0913  # a command's options are its arguments
    name: TableName,
    tag_name: Annotated[str, typer.Argument(metavar="TAG", help="The tag's name.")],
    version: _Version = None,
    timestamp: _Timestamp = None,
    delete: Annotated[bool, typer.Option("--delete", "-d", help="Remove the tag instead.")] = False,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Name a version so that it does not expire: the newest one by default."""
    if delete and (version is not None or timestamp is not None):
        raise typer.BadParameter("--delete takes no version: a tag has only one", param_hint="--delete")
    with open_table(name, catalog, token) as table:
        if delete:
            table.delete_tag(tag_name)
            done(output, f"deleted {tag_name}", table=name, deleted=tag_name)
        else:
            made = table.create_tag(tag_name, version, timestamp=timestamp)
            done(output, f"{tag_name} is version {made.version}", table=name, tag=tag_name, version=made.version)


def rollback(  # noqa: PLR0913  # a command's options are its arguments
    name: TableName,
    version: _Version = None,
    timestamp: _Timestamp = None,
    tag: Annotated[str | None, typer.Option("--tag", "-t", help="The version with this tag.")] = None,
    yes: Yes = False,
    output: OutputFormat = Format.TABLE,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
) -> None:
    """Restore a table's rows of an older version, as a new version. The log gets the changes.

    Columns and options stay the current ones: columns that are newer are null.
    """
    if sum(given is not None for given in (version, timestamp, tag)) != 1:
        raise typer.BadParameter("name the target: pass one of --version, --timestamp and --tag")
    with open_table(name, catalog, token) as table:
        wanted = table.version_of(version, timestamp, tag)
        assert wanted is not None, "one of the three was given"
        if not yes:
            confirm(about_rollback(name, table, wanted))
        snapshot = table.rollback(wanted)
    text = f"version {snapshot.version} has the rows of that version again"
    done(output, text, table=name, version=snapshot.version, rows_of_version=wanted)


def expire(
    name: TableName,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would expire.")] = False,
    yes: Yes = False,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """Expire old versions by the options snapshot.*; those of tags and consumers are kept."""
    with open_table(name, catalog, token) as table:
        if not (yes or dry_run) and (planned := table.expire(dry_run=True)).anything:
            confirm(about_expiry(name, table, planned))
        expiry = table.expire(dry_run=dry_run)
    would = "would expire" if dry_run else "expired"
    text = (
        f"{expiry.versions} versions {would}, with {len(expiry.files)} files ({expiry.bytes:,} bytes) and "
        f"{expiry.log_entries} log entries; kept from version {expiry.first} on"
    )
    names = ("first", "versions", "files", "bytes", "log_entries")
    done(output, text, **{field: getattr(expiry, field) for field in names})


def consumers(
    name: TableName,
    forget: Annotated[str | None, typer.Option("--forget", metavar="ID", help="Remove this one.")] = None,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """List the readers that keep versions from expiring, and how far they are behind; or remove one."""
    with open_table(name, catalog, token) as table:
        if forget is not None:
            table.delete_consumer(forget)
            done(output, f"forgot {forget}", table=name, forgot=forget)
            return
        listed, lags = table.consumers(), table.consumer_lags()
    found = [
        (c.id, c.version, _time(c.touched_ms), lag.versions, lag.records)
        for c in listed
        if (lag := lags.get(c.id)) is not None
    ]
    titles = ["consumer", "version", "last seen", "versions behind", "records behind"]
    if output is Format.JSON:
        print_json(*(dict(zip(titles, row, strict=True)) for row in found))
    else:
        print_table(titles, found, right=["version", "versions behind", "records behind"])


def orphans(  # noqa: PLR0913  # a command's options are its arguments
    name: TableName,
    remove: Annotated[bool, typer.Option("--remove", help="Remove them; by default they are only listed.")] = False,
    older_than_hours: Annotated[
        float, typer.Option("--older-than-hours", min=0, help="Only files that were last written so long ago.")
    ] = 24,
    even_young: Annotated[
        bool, typer.Option("--even-young", help="Remove files that are younger than an hour, too.")
    ] = False,
    yes: Yes = False,
    catalog: Catalog = DEFAULT_WAREHOUSE,
    token: Token = None,
    output: OutputFormat = Format.TABLE,
) -> None:
    """List the files that no version names, or remove them. A writer that was about to name one begins again."""
    from filestore.life.orphans import check_age, remove_orphans  # loads Arrow

    age = timedelta(hours=older_than_hours)
    if remove:
        check_age(age // timedelta(milliseconds=1), even_young=even_young)
    with open_table(name, catalog, token) as table:
        found = table.remove_orphans(age)
        if output is Format.TABLE:
            print_lines(o.path for o in found)
        if remove and found:
            if not yes:
                confirm(about_orphans(found))
            found = remove_orphans(table.filestore, found)
    if output is Format.JSON:
        print_json(
            *({"path": o.path, "kind": o.kind, "bytes": o.size, "modified": _time(o.modified_ms)} for o in found)
        )
    note(f"{'removed' if remove else 'found'} {len(found)} files, {sum(o.size for o in found):,} bytes")


def maintain(
    name: TableName, catalog: Catalog = DEFAULT_WAREHOUSE, token: Token = None, output: OutputFormat = Format.TABLE
) -> None:
    """Do what is due: create the automatic tag, and expire old versions. For cron."""
    with open_table(name, catalog, token) as table:
        care = table.maintain()
    text = f"{care.expiry.versions} versions expired, with {len(care.expiry.files)} files"
    tagged = None if care.tag is None else care.tag.name
    if care.tag is not None:
        text = f"tag {tagged} is version {care.tag.version}\n{text}"
    done(output, text, table=name, tag=tagged, versions=care.expiry.versions, files=len(care.expiry.files))


def _time(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
