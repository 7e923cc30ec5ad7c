"""A program with a session in a Thrift server or in Spark Connect, as others write them: it imports nothing of ours.

    python sql_client.py thrift://127.0.0.1:10000
    python sql_client.py sc://127.0.0.1:15002

It reads statements as JSON texts, one a line, and answers each with a line: a list of rows, or the text of the error.
With ``{"unset": name}`` it removes a setting of its session. With ``{"renew": true}`` it ends its session and begins
another one. With ``{"save": query, "over": table}`` it saves the rows of a query by
``mode("overwrite").saveAsTable``. With ``{"stream": table, "calls": […], "into": table, "checkpoint": folder}`` it
writes what a stream of a table has by now, by such calls of the DataFrame as ``["select", "id"]``.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Any
from urllib.parse import urlsplit

__all__ = ["OURS", "plain", "text_of"]

OURS = {"tablestore", "filestore", "catalog_service", "log", "managed_table", "compaction", "tests"}


def plain(value: object) -> Any:
    """Returns a value as JSON has it: numbers with a fraction, times and what is nested are texts."""
    return value if value is None or isinstance(value, bool) else str(value)


def text_of(values: Iterable[object]) -> list[str]:
    """Returns a row's text, as lines without the padding and the indentation that some clients show."""
    texts = ["NULL" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in values]
    return [line.strip() for line in " | ".join(text.strip() for text in texts).split("\n")]


class ThriftClient:
    def __init__(self, host: str, port: int) -> None:
        from pyhive import hive

        self._connection = hive.connect(host=host, port=port, username="anybody")
        self._cursor = self._connection.cursor()

    def run(self, statement: str) -> list[Any]:
        self._cursor.execute(statement)
        return list(self._cursor.fetchall()) if self._cursor.description else []

    def end(self) -> None:
        self._connection.close()

    def unset(self, setting: str) -> None:
        raise NotImplementedError

    def save(self, query: str, table: str) -> None:
        raise NotImplementedError

    def stream(self, table: str, calls: list[list[str]], into: str, checkpoint: str) -> None:
        raise NotImplementedError


class ConnectClient:
    def __init__(self, url: str) -> None:
        from pyspark.sql.connect.session import SparkSession

        self._session = SparkSession.builder.remote(url).create()

    def run(self, statement: str) -> list[Any]:
        return list(self._session.sql(statement).collect())

    def end(self) -> None:
        self._session.stop()

    def unset(self, setting: str) -> None:
        self._session.conf.unset(setting)

    def save(self, query: str, table: str) -> None:
        self._session.sql(query).write.mode("overwrite").saveAsTable(table)

    def stream(self, table: str, calls: list[list[str]], into: str, checkpoint: str) -> None:
        rows = self._session.readStream.table(table)
        for name, *arguments in calls:
            rows = getattr(rows, name)(*arguments)
        writer = rows.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        writer.toTable(into).awaitTermination()


def begin(url: str) -> ConnectClient | ThriftClient:
    """Begins a session."""
    place = urlsplit(url)
    return ConnectClient(url) if place.scheme == "sc" else ThriftClient(str(place.hostname), int(place.port or 0))


def main(url: str) -> None:
    client = begin(url)
    strange = OURS & {name.partition(".")[0] for name in sys.modules}
    assert not strange, f"the client imports {strange}"
    for line in sys.stdin:
        request = json.loads(line)
        answer: Any = []
        try:
            if isinstance(request, str):
                answer = [[plain(value) for value in row] for row in client.run(request)]
            elif "renew" in request:
                client.end()
                client = begin(url)
            elif "unset" in request:
                client.unset(request["unset"])
            elif "save" in request:
                client.save(request["save"], request["over"])
            else:
                client.stream(request["stream"], request["calls"], request["into"], request["checkpoint"])
        except Exception as error:  # noqa: BLE001 - whoever has sent the statement judges it
            answer = str(error)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
