"""Helpers for tests of speculation: replies that stay open after their calls, and the events of calls."""

import os
from collections.abc import Sequence
from pathlib import Path
from threading import Event as Gate

from odin.checkpoints.file_state import read_file_state
from odin.checkpoints.project_listing import hash_file
from odin.core.call_events import CallDiscarded
from odin.core.event import AnyEvent, TurnEnded
from odin.core.event_values import FileState
from odin.testing import call, reply
from odin.testing.script import Turn

from .conftest import Talk

ONE_PIECE = 1_000_000
"""Chunk size that sends all arguments in one delta, so that the events of a reply can be counted."""


def reply_with_calls(*items: Turn, stop: str | None = None) -> Turn:
    """Return a reply that has only calls, each with arguments."""
    return reply(calls=items, chunk=ONE_PIECE, stop=stop)


def count_call_events(turn: Turn) -> int:
    """Return the number of Anthropic stream events up to the end of the last call."""
    return 2 + 4 * len(turn.calls)


def hold_after_calls(turn: Turn, gate: Gate) -> Turn:
    """Send all calls, then nothing until the gate is set."""
    return turn.hold(gate, after=count_call_events(turn))


def write(path: Path, content: str, id: str = "w") -> Turn:
    return call("WriteFile", {"file_path": str(path), "content": content}, id=id)


def run(command: str, id: str = "c") -> Turn:
    return call("ExecuteCommand", {"command": command}, id=id)


def read(path: Path, id: str = "r") -> Turn:
    return call("Read", {"file_path": str(path)}, id=id)


async def finish_turn(talk: Talk, prompt_id: str, gate: Gate) -> TurnEnded:
    """Let the reply and the turn end."""
    gate.set()
    return await talk.until_end(prompt_id)


def snapshot_folder(folder: Path) -> dict[str, FileState]:
    """Return the state of everything in a folder: bytes, modes, links."""
    names = [os.path.join(top, name) for top, dirs, files in os.walk(folder) for name in [*dirs, *files]]
    return {name: read_file_state(name, hash_file) for name in names}


def list_discard_reasons(talk: Talk) -> list[tuple[str, str]]:
    return [(event.call_id, event.reason) for event in talk.all(CallDiscarded)]


def describe_events(talk: Talk, kinds: Sequence[type[AnyEvent]]) -> list[str]:
    """Return the events of these kinds, in order, each with its call id."""
    return [
        f"{type(event).__name__} {getattr(event, 'call_id', '')}".strip()
        for event in talk.events
        if isinstance(event, tuple(kinds))
    ]


def is_running(word: str) -> bool:
    """Return whether a process has this word on its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if word.encode() in entry.joinpath("cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False
