"""Changes a catalog back for an older version of Tablestore: ``python -m catalog_service.downgrade REVISION``.

The URL of the database may have a password, which the command line would show to all users of the machine. So it is
read from the file that ``TABLESTORE_DATABASE_FILE`` names, or from ``TABLESTORE_DATABASE``.
"""

from __future__ import annotations

import argparse
import sys

from catalog_service.database.engine import downgrade, locks_of, open_engine
from filestore.ambient import system_ambient
from filestore.errors import InvalidRequest, TableStoreError
from filestore.secrets import secret

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; it prints an error of the catalog as one line and exits with 1."""
    parser = argparse.ArgumentParser(
        prog="python -m catalog_service.downgrade",
        description="Changes a catalog back to an older revision, so that an older version of Tablestore opens it.",
        epilog="Stop all services and compactors first, and back the database up: what the older schema has no place "
        "for is deleted. The database is that of $TABLESTORE_DATABASE_FILE or $TABLESTORE_DATABASE, as in "
        "postgresql://user@host/catalog.",
    )
    parser.add_argument("revision", help="the newest revision that the older version knows, as in 0003")
    given = parser.parse_args(arguments)
    ambient = system_ambient()
    try:
        engine = open_engine(_database())
        locks = locks_of(engine, ambient)
        try:
            downgrade(engine, locks, given.revision)
        finally:
            locks.close()
            engine.dispose()
    except TableStoreError as error:
        sys.exit(f"{error}")


def _database() -> str:
    found = secret("TABLESTORE_DATABASE")
    if not found:
        raise InvalidRequest(
            "set TABLESTORE_DATABASE_FILE or TABLESTORE_DATABASE to the catalog's database", code="database-needed"
        )
    return found


if __name__ == "__main__":
    main()
