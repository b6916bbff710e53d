"""What was asked lately in a project, for whoever wants to say it again. Read from the ends of its newest logs."""

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.session.store import is_session_id, scan_logs

MAX_LOGS = 30
"""Logs that are looked at, the newest first."""

TAIL_BYTES = 2_000_000
"""How much of the end of one log is looked at."""

MAX_PROMPT_CHARS = 100_000
"""A longer prompt is not one that somebody typed."""

_PROMPT_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptJoined"')
_MARK_WITHIN_BYTES = 400


class _PromptEvent(msgspec.Struct):
    text: str = ""
    shown: str = ""
    continues: bool = False


class _PromptLine(msgspec.Struct):
    event: _PromptEvent
    agent: str = ""


_prompt_decoder = msgspec.json.Decoder(_PromptLine)


def read_recent_prompts(folder: Path, most: int) -> tuple[str, ...]:
    """As they were typed, the newest first, each once."""
    found: dict[str, None] = {}
    logs = sorted(scan_logs(folder), key=lambda log: -log[2].st_mtime_ns)
    for session, path, info in logs[:MAX_LOGS]:
        if not is_session_id(session):
            continue
        for prompt in reversed(list(_read_prompts(path, info.st_size))):
            found.setdefault(prompt)
            if len(found) >= most:
                return tuple(found)
    return tuple(found)


def _read_prompts(path: str, size: int) -> Iterator[str]:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 (paths come as text)
            if size > TAIL_BYTES:
                file.seek(size - TAIL_BYTES, os.SEEK_SET)
                file.readline(TAIL_BYTES)
            for line in file.read(TAIL_BYTES).split(b"\n"):
                prompt = _prompt_of(line)
                if prompt:
                    yield prompt
    except OSError:
        return


def _prompt_of(line: bytes) -> str:
    """What a person said in this line of a log; empty when it is anything else."""
    if len(line) > 4 * MAX_PROMPT_CHARS or not any(mark in line[:_MARK_WITHIN_BYTES] for mark in _PROMPT_MARKS):
        return ""
    try:
        found = _prompt_decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError):
        return ""
    text = found.event.shown or found.event.text
    return "" if found.agent or found.event.continues or len(text) > MAX_PROMPT_CHARS else text
