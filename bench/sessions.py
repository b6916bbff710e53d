"""Time listing thousands of sessions, with and without the index, and a full-text search of all of them."""

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from odin.core.call_events import Replied, ToolEnded, UsageRecorded
from odin.core.event import Envelope, SessionOpened, TitleSet, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, ToolCall, Usage
from odin.session.index import INDEX_NAME, SessionIndex
from odin.session.log import LOG_FORMAT, LOG_NAME, LogHeader
from odin.session.search import search_sessions
from odin.session.store import SessionStore
from odin.tools.ripgrep import find_ripgrep
from row import Row

SESSIONS = 5_000
TURNS = 3
NEEDLE = "xylophone"


def write_session(folder: Path, number: int) -> int:
    """Write a session of a few turns, each with a large tool result; return its size in bytes."""
    session = f"{20260101000000000 + number}"
    lines = [msgspec.json.encode(LogHeader(LOG_FORMAT, session, "/w", float(number)))]
    needle = f" {NEEDLE}" if number % 500 == 7 else ""
    events: list[object] = [SessionOpened("/w", "anthropic/some-model", "1"), TitleSet(f"Session number {number}")]
    for turn in range(TURNS):
        call = ToolCall(f"c{turn}", "Read", {"file_path": "/w/a.py"})
        events += [
            TurnStarted(f"t{turn}", f"please look at file {number} of the project", "edit_mode"),
            UsageRecorded("anthropic/some-model", Usage(100, 10), 0.01),
            Replied(ReplyMessage((Text("I will read it."), call))),
            ToolEnded(call.id, "Read", "success", f"def function_{number}(): pass\n" * 60 + needle),
            TurnEnded(f"t{turn}", "end_turn", "It is fine."),
        ]
    lines += [msgspec.json.encode(Envelope(seq, 1.0, session, event)) for seq, event in enumerate(events)]  # pyright: ignore[reportArgumentType]
    path = folder / session / LOG_NAME
    path.parent.mkdir()
    data = b"\n".join(lines) + b"\n"
    path.write_bytes(data)
    return len(data)


def took_ms(*acts: Callable[[], object], rounds: int = 9) -> list[float]:
    """Return the time of the fastest of the rounds for each of these, which run in turns. Noise only adds time."""
    samples: list[list[float]] = [[] for _ in acts]
    for _ in range(rounds):
        for act, times in zip(acts, samples, strict=True):
            started = time.perf_counter()
            act()
            times.append((time.perf_counter() - started) * 1000)
    return [min(times) for times in samples]


def _rebuilt(folder: Path) -> None:
    (folder / INDEX_NAME).unlink(missing_ok=True)
    assert len(SessionIndex(folder).list_summaries()) == SESSIONS


def _looked_at(folder: Path) -> None:
    """The floor: stat every log file, which every correct listing must do."""
    for entry in os.scandir(folder):
        if "." not in entry.name:
            os.stat(f"{entry.path}/{LOG_NAME}")  # noqa: PTH116


def _grown(folder: Path) -> None:
    with next(iter(folder.glob(f"*/{LOG_NAME}"))).open("ab") as file:
        file.write(b"\n")
    assert len(SessionIndex(folder).list_summaries()) == SESSIONS


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = SessionStore(name, "/w").folder
        folder.mkdir(parents=True)
        size = sum(write_session(folder, number) for number in range(SESSIONS))
        (cold,) = took_ms(lambda: _rebuilt(folder), rounds=3)
        floor, warm, one = took_ms(
            lambda: _looked_at(folder), lambda: SessionIndex(folder).list_summaries(), lambda: _grown(folder)
        )
        rg = find_ripgrep() or ""
        found = search_sessions(folder, NEEDLE, ripgrep=rg)
        assert len(found) == SESSIONS // 500, len(found)
        seek, common = took_ms(
            lambda: search_sessions(folder, NEEDLE, ripgrep=rg),
            lambda: search_sessions(folder, f"function_{SESSIONS // 2}", ripgrep=rg),
        )
    megabytes = size / 1e6
    return [
        Row(f"list {SESSIONS} sessions, index warm", warm, floor, 4, "ms", True, 30),
        Row(f"list {SESSIONS} sessions, one log grew", one, floor, 6, "ms", True, 40),
        Row(f"list {SESSIONS} sessions, index rebuilt ({megabytes:.0f} MB)", cold, floor, 3000, "ms", False),
        Row("search a rare word in all of them", seek, None, 500, "ms", False),
        Row("search a word of one of them", common, None, 500, "ms", False),
    ]
