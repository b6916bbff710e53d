"""A session as one JSON document: what it is, its prompts, its messages in order, and its usage."""

from collections.abc import Callable, Iterable

import msgspec

from odin.session.export.overview import Overview
from odin.session.export.story import Entry

VERSION = 1


def write_json(about: Overview, told: Iterable[Entry], mark: str, write: Callable[[str], None]) -> None:
    """`mark` begins the document and says whose it is. Messages are written one by one."""
    facts = msgspec.to_builtins(about)
    facts["prompts"] = facts.pop("turns")
    head = msgspec.json.encode(facts).decode()
    write(f"{mark}{head[1:-1]},\n")
    write('"messages":[')
    between = "\n"
    for entry in told:
        write(between + msgspec.json.encode(entry).decode())
        between = ",\n"
    write("\n]}\n")
