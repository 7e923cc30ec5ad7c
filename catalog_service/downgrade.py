"""Changes a catalog back for an older version of Tablestore: ``python -m catalog_service.downgrade URL REVISION``."""

from __future__ import annotations

import argparse
import sys

from catalog_service.engine import downgrade, locks_of, open_engine
from filestore.ambient import system_ambient
from filestore.errors import TableStoreError

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Runs the command; it prints an error of the catalog as one line and exits with 1."""
    parser = argparse.ArgumentParser(
        prog="python -m catalog_service.downgrade",
        description="Changes a catalog back to an older revision, so that an older version of Tablestore opens it.",
        epilog="Stop all services and compactors first, and back the database up: what the older schema has no place "
        "for is deleted.",
    )
    parser.add_argument("database", help="the catalog's database, as in postgresql://user@host/catalog")
    parser.add_argument("revision", help="the newest revision that the older version knows, as in 0003")
    given = parser.parse_args(arguments)
    ambient = system_ambient()
    try:
        engine = open_engine(given.database)
        locks = locks_of(engine, ambient)
        try:
            downgrade(engine, locks, given.revision)
        finally:
            locks.close()
            engine.dispose()
    except TableStoreError as error:
        sys.exit(f"{error}")


if __name__ == "__main__":
    main()
