"""Replies that stay open after their calls, so that a test can see what happens before they end."""

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event as Gate
from typing import Any

from odin.checkpoints.file_state import state_of
from odin.checkpoints.project_listing import hash_file
from odin.core.call_events import CallDiscarded
from odin.core.event import AnyEvent, TurnEnded
from odin.core.event_values import FileState
from odin.testing import call, reply
from odin.testing.script import Turn

from .conftest import Talk

ONE_PIECE = 1_000_000
"""Arguments come in one delta, so that the events of a reply can be counted."""


def calls(*items: Turn, stop: str | None = None) -> Turn:
    """A reply of nothing but calls, each of which has arguments."""
    return reply(calls=items, chunk=ONE_PIECE, stop=stop)


def heard(turn: Turn) -> int:
    """Number of Anthropic stream events up to the end of the last call, before the end of the reply."""
    return 2 + 4 * len(turn.calls)


def held(turn: Turn, gate: Gate) -> Turn:
    """All calls arrive; then nothing does until the gate is set."""
    return turn.hold(gate, after=heard(turn))


def write(path: Path, content: str, id: str = "w") -> Turn:
    return call("WriteFile", {"file_path": str(path), "content": content}, id=id)


def run(command: str, id: str = "c") -> Turn:
    return call("ExecuteCommand", {"command": command}, id=id)


def read(path: Path, id: str = "r") -> Turn:
    return call("Read", {"file_path": str(path)}, id=id)


async def follow(talk: Talk, prompt_id: str, gate: Gate) -> TurnEnded:
    """Let the reply end and the turn with it."""
    gate.set()
    return await talk.until_end(prompt_id)


def picture(folder: Path) -> dict[str, FileState]:
    """Everything in a folder: bytes, modes, links."""
    names = [os.path.join(top, name) for top, dirs, files in os.walk(folder) for name in [*dirs, *files]]
    return {name: state_of(name, hash_file) for name in names}


def reasons(talk: Talk) -> list[tuple[str, str]]:
    return [(event.call_id, event.reason) for event in talk.all(CallDiscarded)]


def order(talk: Talk, kinds: Sequence[type[AnyEvent]]) -> list[str]:
    """The events of these kinds, in order, each with the call it is about."""
    return [
        f"{type(event).__name__} {getattr(event, 'call_id', '')}".strip()
        for event in talk.events
        if isinstance(event, tuple(kinds))
    ]


async def until(true: Callable[[], Any]) -> None:
    """Wait for something that happens outside the session."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


def runs(word: str) -> bool:
    """Whether a process has this word on its command line."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and entry.name != str(os.getpid()):
            try:
                if word.encode() in entry.joinpath("cmdline").read_bytes().split(b"\0"):
                    return True
            except OSError:
                continue
    return False
