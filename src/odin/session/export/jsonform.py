"""A session as one JSON document: what it is, its prompts, its messages in order, and its usage."""

from collections.abc import Callable, Iterable

import msgspec

from odin.session.export.overview import SessionOverview
from odin.session.export.story import TranscriptEntry

EXPORT_VERSION = 1


def write_json(
    overview: SessionOverview, entries: Iterable[TranscriptEntry], mark: str, write: Callable[[str], None]
) -> None:
    """`mark` begins the document and says whose it is. Messages are written one by one."""
    facts = msgspec.to_builtins(overview)
    facts["prompts"] = facts.pop("turns")
    head = msgspec.json.encode(facts).decode()
    write(f"{mark}{head[1:-1]},\n")
    write('"messages":[')
    between = "\n"
    for entry in entries:
        write(between + msgspec.json.encode(entry).decode())
        between = ",\n"
    write("\n]}\n")
