"""Discarded speculative calls: the rollback leaves everything as if they had never run."""

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
from tests.waiting import until

from .conftest import Start, Talk
from .hook_programs import claude_hook, new_kit
from .speculation import (
    count_call_events,
    describe_events,
    finish_turn,
    hold_after_calls,
    is_running,
    list_discard_reasons,
    read,
    reply_with_calls,
    run,
    snapshot_folder,
    write,
)

LOOSE = {"read_before_edit": False}


async def begin(talk: Talk) -> str:
    """Send a prompt and wait until its speculative change was made."""
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


class TestRestoredFiles:
    @pytest.mark.parametrize("make", CHANGES, ids=lambda make: make.__name__)
    async def test_interrupt_restores_everything(
        self, start: Start, workspace: Path, make: Callable[[Path], Turn]
    ) -> None:
        turn = make(workspace)
        before = snapshot_folder(workspace)
        talk = await start([hold_after_calls(reply_with_calls(turn), Gate())], config=LOOSE)
        prompt = await begin(talk)
        assert snapshot_folder(workspace) != before, "the call was speculated"
        await talk.client.submit(Interrupt())
        ended = await talk.until_end(prompt)
        assert ended.reason == "interrupted"
        assert snapshot_folder(workspace) == before
        (event,) = talk.all(CallDiscarded)
        assert (event.call_id, event.reason, event.started, event.completed) == ("w", "interrupted", True, True)
        assert event.restored and not event.skipped_files
        assert talk.all(ToolStarted) == []

    async def test_created_folder_with_other_files_stays(self, start: Start, workspace: Path) -> None:
        talk = await start([hold_after_calls(reply_with_calls(write(workspace / "made" / "a", "x")), Gate())])
        prompt = await begin(talk)
        (workspace / "made" / "theirs").write_text("theirs")
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert [item.name for item in (workspace / "made").iterdir()] == ["theirs"]

    async def test_file_changed_by_another_program_is_left_alone(self, start: Start, workspace: Path) -> None:
        (workspace / "a").write_text("old\n")
        talk = await start([hold_after_calls(reply_with_calls(write(workspace / "a", "new\n")), Gate())], config=LOOSE)
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

    async def test_file_with_a_changed_mode_is_left_alone(self, start: Start, workspace: Path) -> None:
        (workspace / "a").write_text("old\n")
        talk = await start([hold_after_calls(reply_with_calls(write(workspace / "a", "new\n")), Gate())], config=LOOSE)
        prompt = await begin(talk)
        (workspace / "a").chmod(0o600)
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        assert (workspace / "a").read_text() == "new\n"
        assert len(talk.all(CallDiscarded)[0].skipped_files) == 1


class TestReasons:
    async def test_call_of_a_retried_stream_runs_once(self, start: Start, workspace: Path) -> None:
        """The first try is cut off after its call; the second has the same call, and the text is appended once."""
        gate = Gate()
        (workspace / "a").write_text("one\n")
        append = call("AppendFile", {"file_path": str(workspace / "a"), "content": "two\n"}, id="w")
        turn = reply_with_calls(append)
        cut = hold_after_calls(turn, gate).cut(events=count_call_events(turn))
        talk = await start([cut, turn, say("ok")], config=LOOSE)
        prompt = await begin(talk)
        assert (workspace / "a").read_text() == "one\ntwo\n"
        ended = await finish_turn(talk, prompt, gate)
        assert ended.text == "ok"
        assert (workspace / "a").read_text() == "one\ntwo\n"
        assert list_discard_reasons(talk) == [("w", "rollback")]
        assert describe_events(talk, (CallDiscarded, RetryScheduled, ToolStarted, ToolEnded)) == [
            "CallDiscarded w",
            "RetryScheduled",
            "ToolStarted w-1",  # the call that was rolled back is in the log, too
            "ToolEnded w-1",
        ]

    async def test_error_in_the_stream_rolls_the_call_back(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        turn = reply_with_calls(write(workspace / "a", "x\n"))
        failing = turn.error(after=count_call_events(turn)).hold(gate, after=count_call_events(turn))
        talk = await start([failing, say("never mind")])
        prompt = await begin(talk)
        await finish_turn(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert list_discard_reasons(talk) == [("w", "rollback")]
        assert len(talk.all(ReplyRolledBack)) == 1

    async def test_reply_cut_off_by_its_length_rolls_the_call_back(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        cut = reply_with_calls(write(workspace / "a", "x\n"), call("Read", '{"file_pa', id="bad"), stop="max_tokens")
        talk = await start([cut.hold(gate, after=6), say("ok")])
        prompt = await begin(talk)
        await finish_turn(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert list_discard_reasons(talk) == [("w", "length_recovery")]
        assert talk.server.rejected == []

    async def test_call_dropped_by_the_length_recovery_is_rolled_back(self, start: Start, workspace: Path) -> None:
        """After a reply that was cut off, only the first call of the next reply is kept."""
        gate = Gate()
        cut = reply_with_calls(call("Read", '{"file_pa', id="bad"), stop="max_tokens")
        two = reply_with_calls(run("pwd", "kept"), write(workspace / "a", "x\n"))
        talk = await start([cut, hold_after_calls(two, gate), say("ok")])
        prompt = await begin(talk)
        await finish_turn(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert list_discard_reasons(talk) == [("w", "filtered")]
        assert [event.call_id for event in talk.all(ToolEnded)] == ["kept"]

    async def test_read_only_call_blocked_by_a_hook_is_discarded(
        self, start: Start, workspace: Path, tmp_path: Path
    ) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PreToolUse": [claude_hook(kit.script_blocking("not that"), "Bash")]}}
        talk = await start([hold_after_calls(reply_with_calls(run("pwd")), gate), say("ok")], config=config)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        assert list_discard_reasons(talk) == [("c", "hook_block")]
        assert "not that" in talk.all(ToolEnded)[0].text
        assert kit.event_names() == ["PreToolUse"]
        assert talk.all(ToolStarted) == []

    async def test_call_changed_by_a_hook_is_discarded(self, start: Start, workspace: Path, tmp_path: Path) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        answer = {"hookSpecificOutput": {"hookEventName": "PreToolUse", "updatedInput": {"command": "echo other"}}}
        config = {"hooks": {"PreToolUse": [claude_hook(kit.script_printing(answer), "Bash")]}}
        talk = await start(
            [hold_after_calls(reply_with_calls(run("echo first", "a"), run("pwd", "b")), gate), say("ok")],
            config=config,
        )
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        assert list_discard_reasons(talk)[-1] == ("a", "args_drift")
        assert "other" in talk.all(ToolEnded)[0].text and "first" not in talk.all(ToolEnded)[0].text.split("\n")[0]
        assert kit.event_names() == ["PreToolUse", "PreToolUse"], "the hook runs once for each call"

    async def test_edit_with_a_hook_is_not_speculated(self, start: Start, workspace: Path, tmp_path: Path) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PreToolUse": [claude_hook(kit.script(f'ls "{workspace}" >&2; exit 2'), "Write")]}}
        talk = await start(
            [hold_after_calls(reply_with_calls(run("pwd"), write(workspace / "a", "x")), gate), say("ok")],
            config=config,
        )
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        assert [event.call_id for event in talk.all(CallSpeculated)] == ["c"]
        assert not (workspace / "a").exists()

    async def test_hook_for_other_tools_does_not_delay_edits(
        self, start: Start, workspace: Path, tmp_path: Path
    ) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PreToolUse": [claude_hook(kit.script("exit 0"), "Bash")]}}
        talk = await start(
            [hold_after_calls(reply_with_calls(write(workspace / "a", "x")), gate), say("ok")], config=config
        )
        await finish_turn(talk, await begin(talk), gate)
        assert (workspace / "a").read_text() == "x"
        assert list_discard_reasons(talk) == []

    async def test_post_tool_hooks_run_once(self, start: Start, workspace: Path, tmp_path: Path) -> None:
        kit = new_kit(tmp_path)
        gate = Gate()
        config = {"hooks": {"PostToolUse": [claude_hook(kit.script("exit 0"))]}}
        talk = await start(
            [hold_after_calls(reply_with_calls(write(workspace / "a", "x")), gate), say("ok")], config=config
        )
        await finish_turn(talk, await begin(talk), gate)
        assert kit.event_names() == ["PostToolUse"]

    async def test_switch_to_plan_mode_discards_the_call(self, start: Start, workspace: Path) -> None:
        """The rules are applied again before the call is confirmed."""
        gate = Gate()
        talk = await start([hold_after_calls(reply_with_calls(write(workspace / "a", "x")), gate), say("ok")])
        prompt = await begin(talk)
        await talk.client.submit(SetMode("plan_mode"))
        await finish_turn(talk, prompt, gate)
        assert not (workspace / "a").exists()
        assert list_discard_reasons(talk) == [("w", "not_run")]
        assert talk.all(ToolEnded)[0].status == "denied"

    async def test_interrupt_ends_the_process_and_its_children(self, start: Start, workspace: Path) -> None:
        talk = await start([hold_after_calls(reply_with_calls(run("sleep 59.87 | cat")), Gate())])
        prompt = await talk.submit("go")
        await until(lambda: is_running("59.87"))
        await talk.client.submit(Interrupt())
        await talk.until_end(prompt)
        await until(lambda: not is_running("59.87"))
        (event,) = talk.all(CallDiscarded)
        assert (event.started, event.completed) == (True, False)

    async def test_interrupt_between_the_reply_and_its_calls_rolls_back(self, start: Start, workspace: Path) -> None:
        """The reply stays in the conversation, the model reads that its call did not run, and the file is gone."""
        gate, replied = Gate(), asyncio.Event()

        async def linger(data: dict[str, Any]) -> None:
            replied.set()
            await asyncio.Event().wait()

        talk = await start([hold_after_calls(reply_with_calls(write(workspace / "a", "x")), gate), say("ok")])
        talk.client.add_hook(CallbackHook("lingers", "on_after_llm_call", linger))
        prompt = await begin(talk)
        gate.set()
        await replied.wait()
        assert (workspace / "a").exists()
        await talk.client.submit(Interrupt())
        ended = await talk.until_end(prompt)
        assert ended.reason == "interrupted"
        assert not (workspace / "a").exists()
        assert list_discard_reasons(talk) == [("w", "interrupted")]
        (result,) = talk.all(ToolEnded)
        assert result.status == "cancelled" and "Not run" in result.text
        assert talk.all(ToolStarted) == []

    async def test_closing_the_session_rolls_the_call_back(self, start: Start, workspace: Path) -> None:
        talk = await start([hold_after_calls(reply_with_calls(write(workspace / "a", "x")), Gate())])
        await begin(talk)
        await talk.client.close()
        assert not (workspace / "a").exists()


class TestFileCache:
    async def test_file_of_a_discarded_read_is_not_known(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        turn = reply_with_calls(read(workspace / "a"))
        script = [
            hold_after_calls(turn, gate).cut(events=count_call_events(turn)),
            reply_with_calls(edit(workspace / "a", "one", "two")),
            say("ok"),
        ]
        talk = await start(script)
        prompt = await talk.submit("go")
        await talk.until(CallSpeculated)
        await finish_turn(talk, prompt, gate)
        assert list_discard_reasons(talk) == [("r", "rollback")]
        assert (workspace / "a").read_text() == "one\n"
        assert "read" in talk.all(ToolEnded)[0].text.lower()
        assert talk.all(FileCached) == []
        assert (await talk.client.snapshot()).files == ()

    async def test_file_known_before_a_discarded_edit_is_still_known(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        wrong = reply_with_calls(edit(workspace / "a", "one", "wrong"))
        script: list[Any] = [
            reply_with_calls(read(workspace / "a")),
            hold_after_calls(wrong, gate).cut(events=count_call_events(wrong)),
        ]
        script += [reply_with_calls(edit(workspace / "a", "one", "two")), say("ok")]
        talk = await start(script)
        await finish_turn(talk, await begin(talk), gate)
        assert (workspace / "a").read_text() == "two\n"
        assert [event.status for event in talk.all(ToolEnded)] == ["success", "success"]

    async def test_file_known_before_a_discarded_delete_is_still_known(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        wrong = reply_with_calls(delete(workspace / "a"))
        script: list[Any] = [
            reply_with_calls(read(workspace / "a")),
            hold_after_calls(wrong, gate).cut(events=count_call_events(wrong)),
        ]
        script += [reply_with_calls(edit(workspace / "a", "one", "two")), say("ok")]
        talk = await start(script)
        await finish_turn(talk, await begin(talk), gate)
        assert (workspace / "a").read_text() == "two\n"

    async def test_discarded_change_does_not_belong_to_the_turn(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        wrong = reply_with_calls(write(workspace / "a", "wrong\n"))
        script = [hold_after_calls(wrong, gate).cut(events=count_call_events(wrong)), say("ok")]
        talk = await start(script, config=LOOSE)
        await finish_turn(talk, await begin(talk), gate)
        snapshot = await talk.client.snapshot()
        assert snapshot.messages[0].files == 0
        (workspace / "a").write_text("the user's own\n")
        await talk.client.submit(Rewind("p1", files=True, chat=False))
        assert (workspace / "a").read_text() == "the user's own\n"

    async def test_confirmed_change_can_be_rewound(self, start: Start, workspace: Path) -> None:
        gate = Gate()
        (workspace / "a").write_text("one\n")
        talk = await start(
            [hold_after_calls(reply_with_calls(write(workspace / "a", "two\n")), gate), say("ok")], config=LOOSE
        )
        await finish_turn(talk, await begin(talk), gate)
        assert (await talk.client.snapshot()).messages[0].files == 1
        await talk.client.submit(Rewind("p1", files=True, chat=False))
        assert (workspace / "a").read_text() == "one\n"


async def test_every_speculative_call_is_confirmed_when_the_turn_ends(start: Start, workspace: Path) -> None:
    gate = Gate()
    talk = await start([hold_after_calls(reply_with_calls(read(workspace / "none"), run("pwd")), gate), say("ok")])
    prompt = await talk.submit("go")
    await talk.until(CallSpeculated)
    await finish_turn(talk, prompt, gate)
    speculated = {event.call_id for event in talk.all(CallSpeculated)}
    confirmed = {event.call_id for event in talk.all(ToolStarted)}
    assert speculated <= confirmed
    assert isinstance(talk.events[-1], TurnEnded)
