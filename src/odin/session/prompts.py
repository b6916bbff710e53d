"""What was asked lately in a project, for whoever wants to say it again. Read from the ends of its newest logs."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.session.store import is_id, logs_in

SESSIONS = 30
"""Logs that are looked at, the newest first."""

TAIL_BYTES = 2_000_000
"""How much of the end of one log is looked at."""

LONGEST = 100_000
"""A longer prompt is not one that somebody typed."""

_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptJoined"')
_HEAD = 400


class _Event(msgspec.Struct):
    text: str = ""
    shown: str = ""
    continues: bool = False


class _Line(msgspec.Struct):
    event: _Event
    agent: str = ""


_decoder = msgspec.json.Decoder(_Line)


def recent_prompts(folder: Path, most: int) -> tuple[str, ...]:
    """As they were typed, the newest first, each once."""
    found: dict[str, None] = {}
    logs = sorted(logs_in(folder), key=lambda log: -log[2].st_mtime_ns)
    for session, path, info in logs[:SESSIONS]:
        if not is_id(session):
            continue
        for prompt in reversed(list(_prompts(path, info.st_size))):
            found.setdefault(prompt)
            if len(found) >= most:
                return tuple(found)
    return tuple(found)


def _prompts(path: str, size: int) -> Iterator[str]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (paths come as text)
            if size > TAIL_BYTES:
                file.seek(size - TAIL_BYTES, os.SEEK_SET)
                file.readline(TAIL_BYTES)
            for line in file.read(TAIL_BYTES).split(b"\n"):
                prompt = _prompt(line)
                if prompt:
                    yield prompt
    except OSError:
        return


def _prompt(line: bytes) -> str:
    """What a person said in this line of a log; empty when it is anything else."""
    if len(line) > 4 * LONGEST or not any(mark in line[:_HEAD] for mark in _MARKS):
        return ""
    try:
        found = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    text = found.event.shown or found.event.text
    return "" if found.agent or found.event.continues or len(text) > LONGEST else text
