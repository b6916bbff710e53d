"""Calls that were begun early and do not count: everything is as if they had never run."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event as Gate
from typing import Any

import pytest

from odin.core.call_events import (
    CallDiscarded,
    CallSpeculated,
    FileCached,
    ReplyRolledBack,
    RetryScheduled,
    ToolEnded,
    ToolStarted,
)
from odin.core.event import FilesChanged, TurnEnded, Warned
from odin.core.op import Interrupt, Rewind, SetMode
from odin.core.policy import CallbackHook
from odin.testing import call, say
from odin.testing.script import Turn

from .conftest import Start, Talk
from .hookkit import claude, new_kit
from .speculation import calls, follow, heard, held, order, picture, read, reasons, run, runs, until, write

LOOSE = {"read_before_edit": False}


async def begin(talk: Talk) -> str:
    """Send a prompt; come back when its change has been made early."""
    prompt = await talk.submit("go")
    await talk.until(FilesChanged)
    return prompt


def edit(path: Path, old: str, new: str) -> Turn:
    return call("EditTool", {"file_path": str(path), "old_string": old, "new_string": new}, id="w")


def delete(*paths: Path) -> Turn:
    return call("Delete", {"paths": [str(path) for path in paths], "reason": "r"}, id="w")


def _text(folder: Path) -> Turn:
    (folder / "a").write_text("old\n")
    return write(folder / "a", "new\n")


def _private(folder: Path) -> Turn:
    (folder / "a").write_text("#!/bin/sh\n")
    (folder / "a").chmod(0o751)
    return edit(folder / "a", "sh", "bash")


def _crlf(folder: Path) -> Turn:
    (folder / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    return edit(folder / "a", "two", "three")


def _binary(folder: Path) -> Turn:
    (folder / "a").write_bytes(bytes(range(256)) * 10)
    return delete(folder / "a")


def _through_a_link(folder: Path) -> Turn:
    (folder / "real").write_text("old\n")
    (folder / "real").chmod(0o600)
    (folder / "a").symlink_to("real")
    return write(folder / "a", "new\n")


def _the_link_itself(folder: Path) -> Turn:
    (folder / "real").write_text("old\n")
    (folder / "a").symlink_to("real")
    return delete(folder / "a")


def _new_folders(folder: Path) -> Turn:
    (folder / "here").mkdir(mode=0o700)
    return write(folder / "here" / "b" / "c" / "d.txt", "new\n")


def _several(folder: Path) -> Turn:
    (folder / "a").write_text("a\n")
    (folder / "b").write_bytes(b"\0\1\2")
    (folder / "b").chmod(0o640)
    return delete(folder / "a", folder / "b")


def _appended(folder: Path) -> Turn:
    (folder / "a").write_text("old\n")
    return call("AppendFile", {"file_path": str(folder / "a"), "content": "more\n"}, id="w")


def _hard_link(folder: Path) -> Turn:
    (folder / "a").write_text("old\n")
    os.link(folder / "a", folder / "b")
    return write(folder / "a", "new\n")


CHANGES: list[Callable[[Path], Turn]] = [
    _text,
    _private,
    _crlf,
    _binary,
    _through_a_link,
    _the_link_itself,
    _new_folders,
    _several,
    _appended,
    _hard_link,
]


class TestEveryByte:
    @pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
    async def test_an_interrupt_puts_everything_back(
        self, start: Start, workspace: Path, make: Callable[[Path], Turn]
    ) -> None:
        turn = make(workspace)
        before = picture(workspace)
        talk = await start([held(calls(turn), Gate())], config=LOOSE)
        prompt = await begin(talk)
        assert picture(workspace) != before, "the call was begun early"
        await talk.client.submit(Interrupt())
        ended = await talk.until_end(prompt)
        assert ended.reason == "interrupted"
        assert picture(workspace) == before
        (event,) = talk.all(CallDiscarded)
        assert (event.call_id, event.reason, event.started, event.completed) == ("w", "interrupted", True, True)
        assert event.restored and not event.skipped_files
        assert talk.all(ToolStarted) == []

    async def test_a_folder_that_somebody_uses_meanwhile_stays(self, start: Start, workspace: Path) -> None:
        talk = await start([held(calls(write(workspace / "made" / "a", "x")), Gate())])
        prompt = await begin(talk)
        (workspace / "made" / "theirs").write_text("theirs")
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert [item.name for item in (workspace / "made").iterdir()] == ["theirs"]

    async def test_what_somebody_else_changed_is_left_alone(self, start: Start, workspace: Path) -> None:
        (workspace / "a").write_text("old\n")
        talk = await start([held(calls(write(workspace / "a", "new\n")), Gate())], config=LOOSE)
        prompt = await begin(talk)
        (workspace / "a").write_text("theirs\n")
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert (workspace / "a").read_text() == "theirs\n"
        (event,) = talk.all(CallDiscarded)
        assert [
            (Path(file.path).name, "changed outside this session" in file.reason) for file in event.skipped_files
        ] == [("a", True)]
        assert any(str(workspace / "a") in event.text for event in talk.all(Warned))

    async def test_a_change_of_mode_by_somebody_else_counts_too(self, start: Start, workspace: Path) -> None:
        (workspace / "a").write_text("old\n")
        talk = await start([held(calls(write(workspace / "a", "new\n")), Gate())], config=LOOSE)
        prompt = await begin(talk)
        (workspace / "a").chmod(0o600)
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert (workspace / "a").read_text() == "new\n"
        assert len(talk.all(CallDiscarded)[0].skipped_files) == 1


class TestWhen:
    async def test_a_stream_that_fails_is_asked_again_and_the_call_runs_once(
        self, start: Start, workspace: Path
    ) -> None:
        """The first try is cut after its call; the second brings the same call, and it is appended once."""
        gate = Gate()
        (workspace / "a").write_text("one\n")
        append = call("AppendFile", {"file_path": str(workspace / "a"), "content": "two\n"}, id="w")
        turn = calls(append)
        cut = held(turn, gate).cut(events=heard(turn))
        talk = await start([cut, turn, say("ok")], config=LOOSE)
        prompt = await begin(talk)
        assert (workspace / "a").read_text() == "one\ntwo\n"
        ended = await follow(talk, prompt, gate)
        assert ended.text == "ok"
        assert (workspace / "a").read_text() == "one\ntwo\n"
        assert reasons(talk) == [("w", "rollback")]
        assert order(talk, (CallDiscarded, RetryScheduled, ToolStarted, ToolEnded)) == [
            "CallDiscarded w",
            "RetryScheduled",
            "ToolStarted w",
            "ToolEnded w",
        ]

    async def test_an_error_in_the_middle_of_the_stream(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        turn = calls(write(workspace / "a", "x\n"))
        failing = turn.error(after=heard(turn)).hold(gate, after=heard(turn))
        talk = await start([failing, say("never mind")])
        prompt = await begin(talk)
        await follow(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert reasons(talk) == [("w", "rollback")]
        assert len(talk.all(ReplyRolledBack)) == 1

    async def test_a_reply_that_is_cut_off_by_its_length(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        cut = calls(write(workspace / "a", "x\n"), call("Read", '{"file_pa', id="bad"), stop="max_tokens")
        talk = await start([cut.hold(gate, after=6), say("ok")])
        prompt = await begin(talk)
        await follow(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert reasons(talk) == [("w", "length_recovery")]
        assert talk.server.rejected == []

    async def test_a_call_that_the_recovery_leaves_out(self, start: Start, workspace: Path) -> None:
        """After a cut the model is to take one step, so only the first call of the next reply is kept."""
        gate = Gate()
        cut = calls(call("Read", '{"file_pa', id="bad"), stop="max_tokens")
        two = calls(run("pwd", "kept"), write(workspace / "a", "x\n"))
        talk = await start([cut, held(two, gate), say("ok")])
        prompt = await begin(talk)
        await follow(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert reasons(talk) == [("w", "filtered")]
        assert [event.call_id for event in talk.all(ToolEnded)] == ["kept"]

    async def test_a_hook_that_says_no_to_a_look(self, start: Start, workspace: Path, tmp_path: Path) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PreToolUse": [claude(kit.blocks("not that"), "Bash")]}}
        talk = await start([held(calls(run("pwd")), gate), say("ok")], config=config)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await follow(talk, prompt, gate)
        assert reasons(talk) == [("c", "hook_block")]
        assert "not that" in talk.all(ToolEnded)[0].text
        assert kit.events() == ["PreToolUse"]
        assert talk.all(ToolStarted) == []

    async def test_a_hook_that_changes_the_arguments(self, start: Start, workspace: Path, tmp_path: Path) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        answer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "echo other"}}}
        config = {"hooks": {"PreToolUse": [claude(kit.says(answer), "Bash")]}}
        talk = await start([held(calls(run("echo first", "a"), run("pwd", "b")), gate), say("ok")], config=config)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await follow(talk, prompt, gate)
        assert reasons(talk)[-1] == ("a", "args_drift")
        assert "other" in talk.all(ToolEnded)[0].text and "first" not in talk.all(ToolEnded)[0].text.split("\n")[0]
        assert kit.events() == ["PreToolUse", "PreToolUse"], "each call is shown once"

    async def test_a_hook_about_edits_sees_them_before_they_happen(
        self, start: Start, workspace: Path, tmp_path: Path
    ) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PreToolUse": [claude(kit.script(f'ls "{workspace}" >&2; exit 2'), "Write")]}}
        talk = await start([held(calls(run("pwd"), write(workspace / "a", "x")), gate), say("ok")], config=config)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await follow(talk, prompt, gate)
        assert [event.call_id for event in talk.all(CallSpeculated)] == ["c"]
        assert not (workspace / "a").exists()

    async def test_a_hook_about_other_tools_does_not_hold_edits_up(
        self, start: Start, workspace: Path, tmp_path: Path
    ) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PreToolUse": [claude(kit.script("exit 0"), "Bash")]}}
        talk = await start([held(calls(write(workspace / "a", "x")), gate), say("ok")], config=config)
        await follow(talk, await begin(talk), gate)
        assert (workspace / "a").read_text() == "x"
        assert reasons(talk) == []

    async def test_hooks_about_results_run_once(self, start: Start, workspace: Path, tmp_path: Path) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PostToolUse": [claude(kit.script("exit 0"))]}}
        talk = await start([held(calls(write(workspace / "a", "x")), gate), say("ok")], config=config)
        await follow(talk, await begin(talk), gate)
        assert kit.events() == ["PostToolUse"]

    async def test_a_mode_that_became_stricter(self, start: Start, workspace: Path) -> None:
        """The rules are applied again before the call counts: a switch to plan mode takes effect."""
        gate = Gate()
        talk = await start([held(calls(write(workspace / "a", "x")), gate), say("ok")])
        prompt = await begin(talk)
        await talk.client.submit(SetMode("plan_mode"))
        await follow(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert reasons(talk) == [("w", "not_run")]
        assert talk.all(ToolEnded)[0].status == "denied"

    async def test_an_interrupt_ends_the_process_and_what_it_started(self, start: Start, workspace: Path) -> None:
        talk = await start([held(calls(run("sleep 59.87 | cat")), Gate())])
        prompt = await talk.submit("go")
        await until(lambda: runs("59.87"))
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        await until(lambda: not runs("59.87"))
        (event,) = talk.all(CallDiscarded)
        assert (event.started, event.completed) == (True, False)

    async def test_an_interrupt_between_the_reply_and_its_calls(self, start: Start, workspace: Path) -> None:
        """The reply stays in the conversation, the model reads that its call did not run, and the file is gone."""
        gate, replied = Gate(), asyncio.Event()

        async def linger(told: dict[str, Any]) -> None:
            replied.set()
            await asyncio.Event().wait()

        talk = await start([held(calls(write(workspace / "a", "x")), gate), say("ok")])
        talk.client.add_hook(CallbackHook("lingers", "on_after_llm_call", linger))
        prompt = await begin(talk)
        gate.set()
        await replied.wait()
        assert (workspace / "a").exists()
        await talk.client.submit(Interrupt())
        ended = await talk.until_end(prompt)
        assert ended.reason == "interrupted"
        assert not (workspace / "a").exists()
        assert reasons(talk) == [("w", "interrupted")]
        (result,) = talk.all(ToolEnded)
        assert result.status == "cancelled" and "Not run" in result.text
        assert talk.all(ToolStarted) == []

    async def test_closing_the_session_takes_it_back(self, start: Start, workspace: Path) -> None:
        talk = await start([held(calls(write(workspace / "a", "x")), Gate())])
        await begin(talk)
        await talk.client.close()
        assert not (workspace / "a").exists()


class TestKnowledge:
    async def test_what_was_read_early_and_discarded_is_not_known(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        turn = calls(read(workspace / "a"))
        script = [held(turn, gate).cut(events=heard(turn)), calls(edit(workspace / "a", "one", "two")), say("ok")]
        talk = await start(script)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await follow(talk, prompt, gate)
        assert reasons(talk) == [("r", "rollback")]
        assert (workspace / "a").read_text() == "one\n"
        assert "read" in talk.all(ToolEnded)[0].text.lower()
        assert talk.all(FileCached) == []
        assert (await talk.client.snapshot()).files == ()

    async def test_what_was_known_before_is_known_again(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        wrong = calls(edit(workspace / "a", "one", "wrong"))
        script: list[Any] = [calls(read(workspace / "a")), held(wrong, gate).cut(events=heard(wrong))]
        script += [calls(edit(workspace / "a", "one", "two")), say("ok")]
        talk = await start(script)
        await follow(talk, await begin(talk), gate)
        assert (workspace / "a").read_text() == "two\n"
        assert [event.status for event in talk.all(ToolEnded)] == ["success", "success"]

    async def test_a_deleted_file_is_known_again(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        wrong = calls(delete(workspace / "a"))
        script: list[Any] = [calls(read(workspace / "a")), held(wrong, gate).cut(events=heard(wrong))]
        script += [calls(edit(workspace / "a", "one", "two")), say("ok")]
        talk = await start(script)
        await follow(talk, await begin(talk), gate)
        assert (workspace / "a").read_text() == "two\n"

    async def test_a_discarded_change_is_none_of_the_turn(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        wrong = calls(write(workspace / "a", "wrong\n"))
        script = [held(wrong, gate).cut(events=heard(wrong)), say("ok")]
        talk = await start(script, config=LOOSE)
        await follow(talk, await begin(talk), gate)
        snapshot = await talk.client.snapshot()
        assert snapshot.messages[0].files == 0
        (workspace / "a").write_text("the user's own\n")
        await talk.client.submit(Rewind("p1", files=True, chat=False))
        assert (workspace / "a").read_text() == "the user's own\n"

    async def test_a_change_that_counts_can_be_taken_back_by_a_rewind(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        talk = await start([held(calls(write(workspace / "a", "two\n")), gate), say("ok")], config=LOOSE)
        await follow(talk, await begin(talk), gate)
        assert (await talk.client.snapshot()).messages[0].files == 1
        await talk.client.submit(Rewind("p1", files=True, chat=False))
        assert (workspace / "a").read_text() == "one\n"


async def test_a_turn_that_ends_leaves_nothing_begun(start: Start, workspace: Path) -> None:
    gate = Gate()
    talk = await start([held(calls(read(workspace / "none"), run("pwd")), gate), say("ok")])
    prompt = await talk.submit("go")
    await talk.until(CallSpeculated)
    await follow(talk, prompt, gate)
    begun = {event.call_id for event in talk.all(CallSpeculated)}
    counted = {event.call_id for event in talk.all(ToolStarted)}
    assert begun <= counted
    assert isinstance(talk.events[-1], TurnEnded)
