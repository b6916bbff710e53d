"""`read_recent_prompts`: the newest prompts of a project, read from the ends of its logs."""

import os
from pathlib import Path

import msgspec
import pytest

from odin.core.event import AnyEvent, Envelope, PromptInjected, TurnEnded, TurnStarted
from odin.session import search
from odin.session.log import LOG_NAME
from odin.session.search import read_recent_prompts


def append_to_log(folder: Path, session: str, *events: AnyEvent, agent: str = "", when: int = 0) -> Path:
    path = folder / session / LOG_NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [msgspec.json.encode(Envelope(seq, 1.0, session, event, agent)) for seq, event in enumerate(events)]
    with path.open("ab") as file:
        file.write(b"".join(line + b"\n" for line in ([b"{}", *lines] if file.tell() == 0 else lines)))
    os.utime(path, (when, when))
    return path


def started(text: str, **more: bool | str) -> TurnStarted:
    return TurnStarted(text, text, "edit_mode", **more)  # pyright: ignore[reportArgumentType]


def test_recent_prompts_are_newest_first_without_duplicates(tmp_path: Path) -> None:
    append_to_log(tmp_path, "20260101000000000", started("old"), started("twice"), when=1)
    append_to_log(
        tmp_path, "20260102000000000", started("twice"), TurnEnded("twice", "end_turn"), started("new"), when=2
    )
    assert read_recent_prompts(tmp_path, 10) == ("new", "twice", "old")
    assert read_recent_prompts(tmp_path, 2) == ("new", "twice")
    assert read_recent_prompts(tmp_path / "nowhere", 2) == ()


def test_recent_prompts_are_those_the_user_typed(tmp_path: Path) -> None:
    session = "20260101000000000"
    append_to_log(
        tmp_path, session, started("whole text", display_text="/command"), PromptInjected("j", "joined", "ask_mode")
    )
    append_to_log(tmp_path, session, TurnStarted("again", "", "ask_mode", continues=True), started("x" * 200_000))
    append_to_log(tmp_path, session, started("of a helper"), agent="child")
    append_to_log(
        tmp_path, session, started("of an agent", source="mail"), TurnStarted("m", "old", "ask_mode", mail=("m",))
    )
    path = tmp_path / session / LOG_NAME
    path.write_bytes(path.read_bytes() + b'{"seq":1,"event":{"type":"TurnStarted","text":"torn')
    assert read_recent_prompts(tmp_path, 10) == ("joined", "/command")


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TAIL_BYTES", 2_000)
    append_to_log(tmp_path, "20260101000000000", *(started(f"number {number}") for number in range(100)))
    found = read_recent_prompts(tmp_path, 200)
    assert found[0] == "number 99"
    assert 5 < len(found) < 50
