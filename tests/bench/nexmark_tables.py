"""NEXMark's tables and queries (Tucker, Tufte, Papadimos, Maier 2002, and q11 to q20 of github.com/nexmark/nexmark).

Persons, auctions and bids come in the order of their times: of 50 events one is a person, 3 are auctions, and the rest
are bids for open auctions, most of them for hot ones. A bid has a number here, by which its table has a key. Queries
whose windows are those of the time of processing in NEXMark have windows of the time of the bid, since the result of a
view has to follow from rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa

from tablestore import Store, Table

__all__ = ["QUERIES", "Events", "Nexmark"]

_PERSONS, _AUCTIONS, _EVENTS = 1, 3, 50
_BIDS = _EVENTS - _PERSONS - _AUCTIONS
_OPEN = 100
"""Bids are for the last so many auctions."""
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_NO_LOG = {"log.system": "none"}
_STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
_CITIES = ("Phoenix", "Los Angeles", "Boise", "Portland", "Bend", "Seattle", "Cheyenne")
_CHANNELS = ("apple", "google", "facebook", "baidu")

_WINDOW = "window(at, '10 seconds')"
_BIDS_BY_WINDOW = (
    "SELECT auction, count(*) AS num, window(at, '10 seconds', '2 seconds').start AS begin FROM n.bid "
    "GROUP BY auction, window(at, '10 seconds', '2 seconds')"
)
_RANKS = "count(*) FILTER (WHERE price < 10000) AS low, count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS "
_RANKS += "middle, count(*) FILTER (WHERE price >= 1000000) AS high"
QUERIES: Mapping[str, str] = {
    "q0": "SELECT id, auction, bidder, price, at, extra FROM n.bid",
    "q1": "SELECT id, auction, bidder, 0.908 * price AS price, at, extra FROM n.bid",
    "q2": "SELECT id, auction, price FROM n.bid WHERE auction % 123 = 0",
    "q3": "SELECT a.id, p.name, p.city, p.state FROM n.auction AS a JOIN n.person AS p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT category, avg(final) AS final FROM (SELECT a.id, a.category, max(b.price) AS final FROM n.auction "
    "AS a JOIN n.bid AS b ON a.id = b.auction WHERE b.at BETWEEN a.at AND a.expires GROUP BY a.id, a.category) "
    "GROUP BY category",
    "q5": f"WITH bids AS ({_BIDS_BY_WINDOW}) SELECT b.auction, b.begin, b.num FROM bids AS b JOIN (SELECT max(num) AS "
    "most, begin FROM bids GROUP BY begin) AS m ON b.begin = m.begin AND b.num >= m.most",
    "q7": "SELECT b.id, b.auction, b.price, b.bidder, b.at, m.until FROM n.bid AS b JOIN (SELECT max(price) AS most, "
    f"{_WINDOW}.end AS until FROM n.bid GROUP BY {_WINDOW}) AS m ON b.price = m.most "
    "WHERE b.at >= m.until - INTERVAL 10 SECONDS AND b.at < m.until",
    "q8": f"SELECT p.id, p.name, p.begin FROM (SELECT id, name, {_WINDOW}.start AS begin FROM n.person GROUP BY id, "
    f"name, {_WINDOW}) AS p JOIN (SELECT seller, {_WINDOW}.start AS begin FROM n.auction GROUP BY seller, {_WINDOW}) "
    "AS a ON p.id = a.seller AND p.begin = a.begin",
    "q9": "SELECT id, item, seller, category, auction, bidder, price, bid_at FROM (SELECT a.*, b.auction, b.bidder, "
    "b.price, b.at AS bid_at, row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.at, b.id) AS place "
    "FROM n.auction AS a JOIN n.bid AS b ON a.id = b.auction WHERE b.at BETWEEN a.at AND a.expires) WHERE place <= 1",
    "q11": "SELECT bidder, count(*) AS bids, session_window(at, '10 seconds').start AS begin FROM n.bid "
    "GROUP BY bidder, session_window(at, '10 seconds')",
    "q12": f"SELECT bidder, count(*) AS bids, {_WINDOW}.start AS begin FROM n.bid GROUP BY bidder, {_WINDOW}",
    "q13": "SELECT b.id, b.auction, b.bidder, b.price, s.value FROM n.bid AS b JOIN n.side AS s "
    "ON b.auction % 100 = s.key",
    "q14": "SELECT id, auction, bidder, 0.908 * price AS price, CASE WHEN hour(at) BETWEEN 8 AND 18 THEN 'day' WHEN "
    "hour(at) <= 6 OR hour(at) >= 20 THEN 'night' ELSE 'other' END AS part, length(extra) - length(replace(extra, 'c', "
    "'')) AS cs FROM n.bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT to_date(at) AS day, count(*) AS bids, {_RANKS}, count(DISTINCT bidder) AS bidders, "
    "count(DISTINCT auction) AS auctions FROM n.bid GROUP BY to_date(at)",
    "q16": f"SELECT channel, to_date(at) AS day, count(*) AS bids, {_RANKS}, count(DISTINCT bidder) AS bidders "
    "FROM n.bid GROUP BY channel, to_date(at)",
    "q17": f"SELECT auction, to_date(at) AS day, count(*) AS bids, {_RANKS}, min(price) AS least, max(price) AS most, "
    "avg(price) AS mean, sum(price) AS total FROM n.bid GROUP BY auction, to_date(at)",
    "q18": "SELECT id, auction, bidder, price, at FROM (SELECT *, row_number() OVER (PARTITION BY bidder, auction "
    "ORDER BY at DESC, id DESC) AS place FROM n.bid) WHERE place <= 1",
    "q19": "SELECT id, auction, bidder, price, at, place FROM (SELECT *, row_number() OVER (PARTITION BY auction "
    "ORDER BY price DESC, id) AS place FROM n.bid) WHERE place <= 10",
    "q20": "SELECT b.id, b.auction, b.bidder, b.price, a.item, a.seller, a.category FROM n.bid AS b JOIN "
    "n.auction AS a ON b.auction = a.id WHERE a.category = 10",
}
"""NEXMark's queries that are joins, groups, and rows of them, by number."""


@dataclass(frozen=True, slots=True)
class Events:
    """Rows of each table, in the order of their times."""

    persons: pa.Table
    auctions: pa.Table
    bids: pa.Table


class Nexmark:
    """NEXMark's tables in a store, and the events that come next.

    Attributes:
        person: The persons.
        auction: The auctions.
        bid: The bids.
        side: The rows of the side input of q13.
    """

    def __init__(self, store: Store, seed: int = 1) -> None:
        self._dice = np.random.default_rng(seed)
        self._next = 0
        store.create_database("n")

        def made(name: str, columns: str, key: str = "id") -> Table:
            return store.create_table(f"n.{name}", columns, primary_key=[key], options=_NO_LOG)

        columns = "id BIGINT, name STRING NOT NULL, city STRING, state STRING, at TIMESTAMP NOT NULL"
        self.person = made("person", columns)
        columns = (
            "id BIGINT, item STRING, initial BIGINT, reserve BIGINT, at TIMESTAMP NOT NULL, expires TIMESTAMP NOT "
        )
        self.auction = made("auction", columns + "NULL, seller BIGINT NOT NULL, category INT NOT NULL")
        columns = (
            "id BIGINT, auction BIGINT NOT NULL, bidder BIGINT NOT NULL, price BIGINT NOT NULL, channel STRING NOT "
        )
        self.bid = made("bid", columns + "NULL, at TIMESTAMP NOT NULL, extra STRING")
        self.side = made("side", "key BIGINT, value STRING", "key")
        self.side.write([{"key": key, "value": f"side {key}"} for key in range(100)])

    def write(self, events: int, *, per_second: int = 1000) -> None:
        """Writes the next so many events, a commit of each table."""
        made = self._events(events, per_second)
        for table, rows in ((self.person, made.persons), (self.auction, made.auctions), (self.bid, made.bids)):
            if rows.num_rows:
                table.write(rows)

    def _events(self, count: int, per_second: int) -> Events:
        numbers = np.arange(self._next, self._next + count)
        self._next += count
        epoch, place = np.divmod(numbers, _EVENTS)
        begin = int(_BEGIN.timestamp() * 1_000_000)
        at = pa.array(begin + numbers * (1_000_000 // per_second), pa.timestamp("us", "UTC"))
        is_person, is_auction = place < _PERSONS, (place >= _PERSONS) & (place < _PERSONS + _AUCTIONS)
        is_bid = ~(is_person | is_auction)
        of_persons, of_auctions, of_bids = (self._taken(at, chosen) for chosen in (is_person, is_auction, is_bid))
        auctions = epoch[is_auction] * _AUCTIONS + place[is_auction] - _PERSONS
        bids = epoch[is_bid] * _BIDS + place[is_bid] - _PERSONS - _AUCTIONS
        latest = epoch[is_bid] * _AUCTIONS + _AUCTIONS - 1
        hot = self._dice.random(len(bids)) < 0.5
        offered = np.where(hot, latest // _OPEN * _OPEN, latest - self._dice.integers(0, _OPEN, len(bids)))
        return Events(
            pa.table(
                {
                    "id": epoch[is_person],
                    "name": [f"person {number}" for number in epoch[is_person]],
                    "city": self._one_of(_CITIES, int(is_person.sum())),
                    "state": self._one_of(_STATES, int(is_person.sum())),
                    "at": of_persons,
                }
            ),
            pa.table(
                {
                    "id": auctions,
                    "item": [f"item {number}" for number in auctions],
                    "initial": self._prices(len(auctions)),
                    "reserve": self._prices(len(auctions)),
                    "at": of_auctions,
                    "expires": self._later(of_auctions),
                    "seller": np.maximum(epoch[is_auction] - self._dice.integers(0, 10, len(auctions)), 0),
                    "category": self._dice.integers(10, 15, len(auctions)).astype("int32"),
                }
            ),
            pa.table(
                {
                    "id": bids,
                    "auction": np.maximum(offered, 0),
                    "bidder": np.maximum(epoch[is_bid] - self._dice.integers(0, 50, len(bids)), 0),
                    "price": self._prices(len(bids)),
                    "channel": self._one_of(_CHANNELS, len(bids)),
                    "at": of_bids,
                    "extra": self._one_of(("abc", "cc", "", "xyz"), len(bids)),
                }
            ),
        )

    def _taken(self, values: pa.Array, chosen: np.ndarray) -> pa.Array:
        return values.filter(pa.array(chosen))

    def _later(self, times: pa.Array) -> pa.Array:
        most = int(timedelta(seconds=20).total_seconds() * 1_000_000)
        after = times.cast(pa.int64()).to_numpy() + self._dice.integers(1, most, len(times))
        return pa.array(after, pa.timestamp("us", "UTC"))

    def _prices(self, count: int) -> np.ndarray:
        return np.round(10 ** (self._dice.random(count) * 6) * 100).astype("int64")

    def _one_of(self, values: tuple[str, ...], count: int) -> pa.Array:
        return pa.array(values).take(pa.array(self._dice.integers(0, len(values), count)))
