# SPDX-License-Identifier: MIT
"""
The second half of the verifier: read everything back and hold it against what was acknowledged.
Each function returns how many of the acknowledged writes are there. A write that was sent and not
acknowledged (its connection broke) may be there or not, but only at the end of its connection's
order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from resp import Connection

if TYPE_CHECKING:
    from verifier import Writer

EXAMPLES_MAX = 5


@dataclass
class Findings:
    """What is wrong, by kind; empty (and false) when nothing is."""

    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, text: str, count: int = 1) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + count
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(text)

    def __bool__(self) -> bool:
        return bool(self.counts)

    def lines(self) -> list[str]:
        return [
            f"{kind}: {count}  e.g. {'; '.join(self.examples[kind])}"
            for kind, count in sorted(self.counts.items())
        ]


@dataclass
class Audit:
    """The outcome: every acknowledged write, and how many of them are there."""

    acknowledged: int
    present: int
    findings: Findings


def audit(connection: Connection, writers: list[Writer], findings: Findings) -> int:
    present = 0
    for writer in writers:
        present += _strings(connection, writer, findings)
        present += _counter(connection, writer, findings)
        present += _list(connection, writer, findings)
        present += _queue(connection, writer, findings)
    present += _shared_counter(connection, writers, findings)
    present += _shared_list(connection, writers, findings)
    return present


def _get_all(connection: Connection, keys: list[str]) -> list:
    values: list = []
    for reply in connection.pipeline(
        [("MGET", *keys[i : i + 200]) for i in range(0, len(keys), 200)]
    ):
        values.extend(reply)  # type: ignore[arg-type]
    return values


def _strings(connection: Connection, writer: Writer, findings: Findings) -> int:
    present = 0
    keys = list(writer.unique)
    for key, value in zip(keys, _get_all(connection, keys)):
        if value == writer.unique[key]:
            present += 1
        else:
            findings.add("lost", f"{key} is {str(value)[:40]!r}")
    # Writes that were overwritten on purpose count as there if the key holds the last one.
    keys = list(writer.overwritten)
    for key, value in zip(keys, _get_all(connection, keys)):
        present += writer.overwrites[key]
        # What was sent after the last acknowledged one may have been done, if the connection broke.
        if value != writer.overwritten[key] and value not in writer.overwritten_sent[key]:
            lost = 1 if value is not None else writer.overwrites[key]
            present -= lost
            findings.add("lost", f"{key} is {str(value)[:40]!r}, not the last write", lost)
    return present


def _between(what: str, found: int, least: int, most: int, findings: Findings) -> int:
    """found must lie in [least, most]; returns how many of `least` are there."""
    if found < least:
        findings.add("lost", f"{what} is {found}, not {least}", least - found)
    elif found > most:
        findings.add("duplicated", f"{what} is {found}, not {most}", found - most)
    return min(found, least)


def _counter(connection: Connection, writer: Writer, findings: Findings) -> int:
    found = int(connection.call("GET", f"c:{writer.index}") or 0)  # type: ignore[arg-type]
    return _between(f"c:{writer.index}", found, writer.counter, writer.counter_sent, findings)


def _sequence(what: str, items: list[int], first: int, findings: Findings) -> None:
    """items must be first, first+1, ..."""
    expected = list(range(first, first + len(items)))
    if items == expected:
        return
    if sorted(items) == expected:
        findings.add("reordered", f"{what} is out of order")
        return
    twice = sum(count - 1 for count in Counter(items).values())
    if twice:
        findings.add("duplicated", f"{what} holds items twice", twice)
    missing = set(range(first, max(items) + 1)) - set(items)
    if missing:
        findings.add("lost", f"{what} lacks {min(missing)}", len(missing))
    if min(items) < first:
        findings.add("duplicated", f"{what} holds {min(items)} again")


def _list(connection: Connection, writer: Writer, findings: Findings) -> int:
    key = f"l:{writer.index}"
    items = [int(item) for item in connection.call("LRANGE", key, 0, -1)]  # type: ignore[union-attr]
    _sequence(key, items, 0, findings)
    return _between(key, len(set(items)), writer.list, writer.list_sent, findings)


def _queue(connection: Connection, writer: Writer, findings: Findings) -> int:
    """Acknowledged pops must have happened, and what was pushed and not popped is there."""
    key = f"q:{writer.index}"
    items = [int(item) for item in connection.call("LRANGE", key, 0, -1)]  # type: ignore[union-attr]
    if not items:
        missing = max(0, writer.pushed - writer.popped_sent)
        if missing:
            findings.add("lost", f"{key} is empty", missing)
        return writer.pushed + writer.popped - missing
    undone = max(0, writer.popped - items[0])
    if undone:
        findings.add("lost", f"{key}: {undone} LPOPs were taken back", undone)
    _sequence(key, items, items[0], findings)
    there = _between(key, items[0] + len(set(items)), writer.pushed, writer.pushed_sent, findings)
    return there + writer.popped - undone


def _shared_counter(connection: Connection, writers: list[Writer], findings: Findings) -> int:
    numbers = Counter(number for w in writers for number in w.shared_numbers)
    twice = sum(count - 1 for count in numbers.values())
    if twice:
        findings.add("lost", f"shared:c gave {twice} numbers twice", twice)
    found = int(connection.call("GET", "shared:c") or 0)  # type: ignore[arg-type]
    least = sum(numbers.values())
    most = sum(w.shared_counter_sent for w in writers)
    return _between("shared:c", found, least, most, findings)


def _shared_list(connection: Connection, writers: list[Writer], findings: Findings) -> int:
    items: dict[int, list[int]] = {}
    length = int(connection.call("LLEN", "shared:l"))  # type: ignore[arg-type]
    for begin in range(0, length, 10000):
        for item in connection.call("LRANGE", "shared:l", begin, begin + 9999):  # type: ignore[union-attr]
            index, _, number = item.partition(b":")
            items.setdefault(int(index), []).append(int(number))
    present = 0
    for writer in writers:
        mine = items.pop(writer.index, [])
        what = f"shared:l of {writer.index}"
        if mine:
            _sequence(what, mine, 0, findings)
        present += _between(
            what, len(set(mine)), writer.shared_items, writer.shared_items_sent, findings
        )
    if items:
        findings.add("duplicated", f"shared:l holds items of nobody: {sorted(items)[:3]}")
    return present
