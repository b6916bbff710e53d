"""Memory: what is stored, what later sessions receive, and two sessions that write at once."""

import os
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from odin.app.memory import MAX_FILE_BYTES, MemoryFolder, SessionMemory
from odin.core.call_events import MemoryChanged, PermissionAsked, ToolEnded
from odin.core.errors import ConfigError, OdinError, UsageError
from odin.core.event import Envelope
from odin.core.event_values import Mode
from odin.core.op import AnswerPermission, ChangeMemory
from odin.core.policy import RedactedText, redact_nothing
from odin.testing import call, say
from odin.ui.slash_commands.extensions import change_memory, find_memory_line, format_memory, parse_memory_change
from tests.table import each
from tests.waiting import TimeLimit

from .conftest import Start, Talk


def today() -> str:
    """Return the current date, which may change during a run."""
    return time.strftime("%Y-%m-%d")


def call_memory(**args: Any) -> Any:
    return call("Memory", args)


def get_system(talk: Talk, number: int = -1) -> str:
    return str(talk.server.requests[number].json["system"])


def get_last_message(talk: Talk, number: int = -1) -> str:
    return str(talk.server.requests[number].json["messages"][-1])


async def get_path(talk: Talk, scope: str = "project") -> Path:
    return next(Path(file.path) for file in await talk.client.read_memory() if file.scope == scope and not file.daily)


async def test_nothing_is_sent_or_created_without_memory(start: Start, home: Path) -> None:
    talk = await start([say("a")])
    await talk.say("hi")
    assert "emory" not in get_system(talk) and "Memory" not in talk.server.requests[0].tool_names
    assert not list(home.rglob("memory"))
    assert (await format_memory(talk.client)).startswith("Nothing is remembered yet.")


async def test_added_memory_is_a_note_now_and_in_later_system_prompts(start: Start) -> None:
    talk = await start([say("a"), say("b"), say("c")])
    await talk.client.submit(ChangeMemory("use tabs"))
    await talk.say("one")
    await talk.say("two")
    assert "use tabs" not in get_system(talk, 0) and "The memory changed:" in get_last_message(talk, 0)
    assert "+ - use tabs" in get_last_message(talk, 0) and "memory" not in get_last_message(talk, 1)
    assert (
        get_system(talk, 0) == get_system(talk, 1)
        and talk.server.requests[0].tool_names == talk.server.requests[1].tool_names
    )
    path = await get_path(talk)
    assert path.read_text() == "- use tabs\n" and path.stat().st_mode & 0o077 == 0
    assert talk.all(MemoryChanged)[0].text.startswith("Added to ") and path.is_relative_to(
        Path.home() / ".local/state/odin/memory"
    )
    talk = await start([say("c")])
    await talk.say("three")
    assert "## About this project" in get_system(talk) and "- use tabs" in get_system(talk)
    assert "come first" in get_system(talk) and "memory changed" not in get_last_message(talk)
    assert "Memory" in talk.server.requests[0].tool_names
    await talk.client.submit(ChangeMemory("use tabs", remove=True))
    assert path.read_text() == ""
    with pytest.raises(UsageError, match="does not occur"):
        await talk.client.submit(ChangeMemory("use tabs", remove=True))


async def test_model_stores_and_reads_facts(start: Start, home: Path) -> None:
    script = [
        call_memory(action="add", text="the build needs make"),
        call_memory(action="note", text="fixed the parser"),
        call_memory(action="replace", old="make", text="ninja"),
        call_memory(action="read"),
        call_memory(action="read", text=today()),
        call_memory(action="read", text="yesterday"),
        call_memory(action="remove", old="nothing like it"),
        call_memory(action="add", text=" "),
        call_memory(action="add", text="likes tabs", scope="user"),
        say("done"),
        say("more"),
    ]
    talk = await start(script, config={"memory": {"mode": "on"}}, yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", allow=True)]
    await talk.say("go")
    await talk.say("again")
    results = [event.text for event in talk.all(ToolEnded)]
    assert results[3] == "- the build needs ninja"
    assert results[4] == f"# {today()}\n- fixed the parser"
    assert results[5].startswith("'yesterday' is not a day.")
    assert results[6].startswith("The text does not occur in ") and "needs a text" in results[7]
    assert "memory changed" not in get_last_message(talk)
    assert [event.args["scope"] for event in talk.all(PermissionAsked)] == ["user"]
    assert (home / ".config/odin/memory/MEMORY.md").read_text() == "- likes tabs\n"
    folder = (await get_path(talk)).parent
    assert (folder / today()[:7].replace("-", "") / f"{today().replace('-', '')}.md").exists()
    text = await format_memory(talk.client)
    assert "- likes tabs" in text and "- fixed the parser" in text


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
@pytest.mark.parametrize("answer", [True, False, None], ids=["allowed", "denied", "without a user"])
async def test_the_model_keeps_nothing_without_approval_outside_edit_mode(
    start: Start, mode: Mode, answer: bool | None
) -> None:
    script = [
        call_memory(action="add", text="run this first"),
        call_memory(action="note", text="run this first"),
        call_memory(action="read"),
        say("done"),
    ]
    config = {"memory": {"mode": "on"}, "permission_mode": "auto"}
    talk = await start(script, config=config, yes=False, can_ask=answer is not None)
    talk.answers = [AnswerPermission("", allow=bool(answer))] * 2
    await talk.say("go", mode)
    asked, ended = talk.all(PermissionAsked), talk.all(ToolEnded)
    assert [event.rules for event in asked] == ([] if answer is None else [("Memory(project)",)] * 2)
    assert {event.effect for event in asked} <= {"Changes what later sessions are told."}
    assert [event.status == "success" for event in ended] == [bool(answer), bool(answer), True]
    assert ("run this first" in ended[2].text) == bool(answer)


async def test_a_rule_lets_the_model_write_in_ask_mode(start: Start) -> None:
    talk = await start(
        [call_memory(action="add", text="use tabs"), say("done")],
        config={"memory": {"mode": "on"}},
        yes=False,
        allowed_tools=("Memory(project)",),
    )
    await talk.say("go", "ask_mode")
    assert (await get_path(talk)).read_text() == "- use tabs\n"


async def test_secrets_are_not_stored(start: Start) -> None:
    secret = "ghp_" + "a1B2c3D4e5" * 4
    talk = await start(
        [call_memory(action="add", text=f"the token is {secret}"), say("a")], config={"memory": {"mode": "on"}}
    )
    await talk.say("go")
    await talk.client.submit(ChangeMemory(f"deploy with {secret}"))
    path = await get_path(talk)
    assert secret not in path.read_text() and path.read_text().count("[redacted: ") == 2
    assert "A secret was left out" in talk.all(ToolEnded)[0].text
    path.write_text(f"by hand: {secret}\n")
    talk = await start([say("a")])
    await talk.say("go")
    assert secret not in get_system(talk) and "by hand: [redacted" in get_system(talk)


async def test_changes_by_other_programs_are_sent_as_notes(start: Start, home: Path) -> None:
    folder = home / ".config/odin/memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("# Me\n\n- one\n- two\n")
    talk = await start([say("a"), say("b"), say("c")])
    await talk.say("hi")
    (folder / "MEMORY.md").write_text("# Me\n\n- two\n- three\n")
    await talk.say("again")
    (folder / "MEMORY.md").unlink()
    await talk.say("gone")
    assert "- - one\\n+ - three" in get_last_message(talk, 1).replace("\n", "\\n")
    assert "two" not in get_last_message(talk, 1) and "- - three" in get_last_message(talk, 2)
    assert get_system(talk, 0) == get_system(talk, 2)


async def test_memory_can_be_switched_off(start: Start, home: Path, workspace: Path) -> None:
    folder = home / ".config/odin/memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("- one\n")
    talk = await start([say("a")], config={"memory": {"mode": "off"}})
    await talk.say("hi")
    assert "- one" not in get_system(talk)
    with pytest.raises(UsageError, match="Memory is off"):
        await talk.client.submit(ChangeMemory("x"))
    (workspace / "odinconfig.json").write_text('{"memory": {"mode": "on"}}')
    talk = await start([say("a")], config={"memory": {"mode": "off"}})
    assert "Memory" not in (await talk.client.get_info()).tools


def make_memory(tmp_path: Path) -> SessionMemory:
    return SessionMemory(tmp_path / "user", tmp_path / "project", redact_nothing, "/home/nobody")


def test_memory_block_is_bounded_and_has_the_newest_notes_first(tmp_path: Path) -> None:
    folder = MemoryFolder(tmp_path / "project", "project")
    for text in [f"fact {number} " + "x" * 200 for number in range(100)]:
        folder.add(text)
    days = [time.strftime("%Y-%m-%d", time.localtime(time.time() - back * 86_400)) for back in range(5)]
    for day in days:
        path = folder.get_note_path(day)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# {day}\n- did {day}\n")
    block = make_memory(tmp_path).block
    assert len(block) < 8_000 and "more characters; Memory with action read returns all of it]" in block
    assert block.index(days[0]) < block.index(days[1]) < block.index(days[2])
    assert days[3] not in block


def test_two_sessions_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(name: str) -> None:
        folder = MemoryFolder(tmp_path, "project")
        for number in range(10):
            folder.add(f"{name}{number}", daily=number % 2 == 0)

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    folder = MemoryFolder(tmp_path, "project")
    lines = folder.read(folder.long_term).splitlines() + folder.read(folder.get_note_path(today())).splitlines()[1:]
    assert sorted(lines) == sorted(f"- {name}{number}" for name in "abc" for number in range(10))


def test_unusable_memory_files_are_reported_and_left_alone(tmp_path: Path) -> None:
    folder = MemoryFolder(tmp_path / "project", "project")
    folder.folder.mkdir()
    for raw, problem in [
        (b"\0\1", "is not a text file. It is ignored."),
        (b"x" * (MAX_FILE_BYTES + 5), f"only the first {MAX_FILE_BYTES:,} are used."),
    ]:
        folder.long_term.write_bytes(raw)
        assert [text.endswith(problem) for text in make_memory(tmp_path).warnings] == [True]
        with pytest.raises(OdinError):
            folder.add("more")
        assert folder.long_term.read_bytes() == raw
    folder.long_term.unlink()
    folder.long_term.mkdir()
    assert make_memory(tmp_path).block == "" and len(make_memory(tmp_path).warnings) == 1
    folder.long_term.rmdir()
    os.mkfifo(folder.long_term)
    assert make_memory(tmp_path).block == ""
    folder.long_term.unlink()
    with pytest.raises(UsageError, match="at most"):
        folder.add("x" * 5_000)
    folder.add("a\nb")
    folder.add("## Title\n- c")
    assert folder.long_term.read_text() == "- a\n  b\n## Title\n- c\n"
    folder.replace("- c", "- d")
    folder.replace("a\n  b", "")
    assert folder.long_term.read_text() == "## Title\n- d\n"


@each(
    ("typed", "remembered"),
    [
        ("# use tabs", "use tabs"),
        ("#use tabs", "use tabs"),
        ("#12 is broken", ""),
        ("## Title", ""),
        ("#!/bin/sh", ""),
        ("# Title\nand text", ""),
        (" # not this", ""),
        ("#", ""),
        ("#  ", ""),
        ("a # b", ""),
    ],
)
def test_single_line_with_a_leading_hash_is_remembered(typed: str, remembered: str) -> None:
    assert find_memory_line(typed) == remembered


def test_memory_command_arguments_are_parsed() -> None:
    assert parse_memory_change("add --user likes tabs") == ChangeMemory("likes tabs", "user")
    assert parse_memory_change("note done") == ChangeMemory("done", daily=True)
    assert parse_memory_change("remove x y") == ChangeMemory("x y", remove=True)
    for wrong in ("ad x", "add", "add --user"):
        with pytest.raises(UsageError, match=r"Unknown argument|needs a text"):
            parse_memory_change(wrong)


def hide_key(text: str) -> RedactedText:
    clean = text.replace("KEY42", "[redacted: KEY]")
    return RedactedText(clean, ("KEY",) if clean != text else ())


def test_secret_assembled_in_two_steps_is_redacted(tmp_path: Path) -> None:
    """The model can also remove a line that it reads with a placeholder."""
    memory = SessionMemory(tmp_path / "user", tmp_path / "project", hide_key, "/home/nobody")
    path = tmp_path / "project/MEMORY.md"
    memory.add("project", "the token is KEY4")
    assert memory.replace("project", "KEY4", "KEY42").endswith("A secret was left out: KEY.")
    path.write_text(f"- one: KEY42\n- two: KEY42\n{path.read_text()}")
    with pytest.raises(UsageError, match="occurs 3 times"):
        memory.replace("project", "[redacted: KEY]", "")
    memory.replace("project", "- one: [redacted: KEY]", "")
    memory.replace("project", "is [redacted: KEY]", "is secret")
    assert path.read_text() == "- two: KEY42\n- the token is secret\n"


def test_changes_by_others_before_an_own_change_are_reported(tmp_path: Path) -> None:
    memory = make_memory(tmp_path)
    path = memory.list_files()[1].path
    memory.add("project", "mine")
    Path(path).write_text("- from an editor\n- mine\n")
    memory.add("project", "more")
    memory.replace("project", "mine", "my own")
    memory.add("project", "today", daily=True)
    assert memory.take_changes().splitlines()[2:] == ["+ - from an editor"]
    assert memory.take_changes() == ""


def test_folder_that_cannot_be_created_raises_a_config_error(tmp_path: Path) -> None:
    folder = MemoryFolder(tmp_path, "project")
    folder.get_note_path(today()).parent.symlink_to("nowhere")
    with pytest.raises(ConfigError, match="cannot be written: File exists"):
        folder.add("x", daily=True)


def test_a_day_with_25_hours_is_one_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        late = time.mktime((2026, 10, 25, 23, 30, 0, 0, 0, 0))
        names = [path.name for path in MemoryFolder(tmp_path, "project").list_recent_notes(late)]
    finally:
        monkeypatch.undo()
        time.tzset()
    assert names == ["20261025.md", "20261024.md", "20261023.md"]


async def test_a_change_leaves_no_subscription_behind(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    talk = await start([say("a")])
    streams: list[AsyncIterator[Envelope]] = []
    subscribe = talk.client.stream_events

    def watch() -> AsyncIterator[Envelope]:
        streams.append(subscribe())
        return streams[-1]

    monkeypatch.setattr(talk.client, "stream_events", watch)
    assert (await change_memory(talk.client, ChangeMemory("use tabs"))).startswith("Added to ")
    with pytest.raises(UsageError):
        await change_memory(talk.client, ChangeMemory("nothing like it", remove=True))
    async with TimeLimit():
        assert [[envelope async for envelope in stream] for stream in streams] == [[], []]
