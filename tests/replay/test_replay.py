"""Replaying recorded sessions: everything happens again, and differences are found."""

import asyncio
import json
import os
import shutil
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from odin.app.verification import store_confirmation
from odin.core.call_events import PermissionAsked, TextStreamed, ToolEnded, ToolProgressed, ToolStarted
from odin.core.event import PromptQueued, TurnStarted
from odin.core.op import AnswerPermission, ChangePrompt, Interrupt, Prompt, Redo, Rewind, SetBudget, SetTitle
from odin.policy.commands.checks import ProjectChecks
from odin.replay.replay import ReplayOptions, ReplayReport, format_report, replay_session
from odin.session.store import SessionStore
from odin.testing import call, reply, say
from tests.conftest import Run
from tests.engine.conftest import WITHOUT_VIEWS, Start, Talk
from tests.engine.test_team import TeamScript, complete, delegate, settle
from tests.lsp.conftest import FAKE_SERVER
from tests.tools.site import open_site


async def close_session(talk: Talk) -> str:
    """Close a session and return its id."""
    session = (await talk.client.get_info()).session
    await talk.client.close()
    return session


async def replay(session: str, workspace: Path, **options: Any) -> ReplayReport:
    """Replay a session. Commands run even without a sandbox: those of these tests do no harm."""
    return await replay_session(ReplayOptions(session=session, cwd=str(workspace), **{"yes": True, **options}))


def find_log(session: str, workspace: Path, home: Path) -> Path:
    return SessionStore(home / ".local" / "state" / "odin", str(workspace)).get_path(session)


def assert_same(report: ReplayReport) -> None:
    assert report.same, format_report(report, verbose=True)


async def test_edits_and_commands_are_replayed(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("one\n")
    talk = await start(
        [
            call("Read", {"file_path": str(workspace / "a.txt")}),
            call("Edit", {"file_path": str(workspace / "a.txt"), "old_string": "one", "new_string": "two"}),
            call("ExecuteCommand", {"command": "cat a.txt > b.txt; echo done"}),
            say("All done."),
            call("WriteFile", {"file_path": str(workspace / "c.txt"), "content": "new\n"}),
            say("Written."),
        ]
    )
    await talk.say("Change a")
    await talk.say("Write c")
    session = await close_session(talk)
    before = {path.name: path.read_text() for path in workspace.iterdir()}
    report = await replay(session, workspace)
    assert_same(report)
    assert (report.prompts, report.calls) == (2, 4)
    assert {path.name: path.read_text() for path in workspace.iterdir()} == before
    assert "the same: 2 prompts, 4 calls\n" in format_report(report)


async def test_files_are_restored_to_the_time_of_the_recording(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("one\n")
    (workspace / "late").mkdir()
    (workspace / "run.sh").write_text("#!/bin/sh\ncat a.txt; ls late\n")
    (workspace / "run.sh").chmod(0o755)
    talk = await start([call("ExecuteCommand", {"command": "./run.sh; rm a.txt"}), say("Gone.")], config=WITHOUT_VIEWS)
    await talk.say("Run it")
    session = await close_session(talk)
    (workspace / "a.txt").write_text("something of today\n")
    (workspace / "late" / "new.txt").write_text("was not there")
    (workspace / "run.sh").unlink()
    report = await replay(session, workspace)
    assert_same(report)
    assert (workspace / "a.txt").read_text() == "something of today\n"


async def test_files_that_a_command_changed_in_its_view_are_restored(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("one\n")
    (workspace / "b.txt").write_text("two\n")
    talk = await start([call("ExecuteCommand", {"command": "cat *.txt; rm a.txt; echo three > b.txt"}), say("Gone.")])
    await talk.say("Run it")
    session = await close_session(talk)
    (workspace / "a.txt").write_text("something of today\n")
    (workspace / "b.txt").unlink()
    assert_same(await replay(session, workspace))


async def test_answers_about_effects_and_changes_that_nobody_confirmed_are_replayed(start: Start, workspace: Path):
    touch = call("ExecuteCommand", {"command": "touch made"})
    asked = await start([touch, touch, say("Not kept, kept.")], yes=False, can_ask=True)
    asked.answers = [AnswerPermission("", False, "not now"), AnswerPermission("", True)]
    await asked.say("Touch it")
    assert [event.effects is not None for event in asked.all(PermissionAsked)] == [True, True]
    (workspace / "made").unlink()
    assert_same(await replay(await close_session(asked), workspace))
    alone = await start([touch, say("Not kept.")], yes=False)
    await alone.say("Touch it")
    assert [event.error_kind for event in alone.all(ToolEnded)] == ["NeedsConfirmation"]
    assert_same(await replay(await close_session(alone), workspace))


async def test_files_that_cannot_be_restored_are_noted(start: Start, workspace: Path, home: Path):
    (workspace / "a.txt").write_text("one\n")
    talk = await start([call("ExecuteCommand", {"command": "cat a.txt; echo x >> a.txt"}), say("Read.")])
    await talk.say("Run it")
    session = await close_session(talk)
    (workspace / "a.txt").write_text("two\n")
    for path in (home / ".local/state/odin/checkpoints").rglob("*"):
        if path.is_file() and path.parent.parent.name == "objects":
            path.unlink()
    report = await replay(session, workspace)
    assert any("could not be restored" in note and "a.txt" in note for note in report.notes)
    assert not report.same


async def test_a_difference_is_shown_with_both_sides(start: Start, workspace: Path, home: Path):
    (workspace / "a.txt").write_text("one\n")
    talk = await start(
        [call("ExecuteCommand", {"command": "cat a.txt; echo x > b"}, id="c1"), say("Read."), say("Again.")]
    )
    await talk.say("Run it")
    await talk.say("Thanks")
    session = await close_session(talk)
    log = find_log(session, workspace, home)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line.replace("one", "uno") if '"ToolEnded"' in line else line for line in lines))
    report = await replay(session, workspace)
    assert not report.same
    first = report.differences[0]
    assert (first.what, first.prompt) == ("result of ExecuteCommand (c1)", 1)
    assert "uno" in first.recorded
    assert "one" in first.replayed
    text = format_report(report)
    assert "prompt 1, event" in text
    assert "  recorded: \n  | success" in text
    assert "different: 2 prompts, 1 call replayed" in text


async def test_different_file_content_is_a_difference(start: Start, workspace: Path, home: Path):
    talk = await start([call("ExecuteCommand", {"command": "date +%N > now.txt"}, id="c1"), say("Done.")])
    await talk.say("Write the time")
    report = await replay(await close_session(talk), workspace)
    assert [difference.what for difference in report.differences] == ["files changed by call c1"]


async def test_missing_recorded_reply_is_a_difference(start: Start, workspace: Path, home: Path):
    talk = await start([call("Read", {"file_path": str(workspace / "none")}, id="c1"), say("Not there.")])
    await talk.say("Read it")
    session = await close_session(talk)
    log = find_log(session, workspace, home)
    kept = [
        line for line in log.read_text().splitlines(keepends=True) if "Not there." not in line or "Replied" not in line
    ]
    log.write_text("".join(kept))
    report = await replay(session, workspace)
    (difference,) = report.differences
    assert (difference.what, difference.recorded) == ("end of the turn", "end_turn: Not there.")


async def test_failed_command_and_the_call_skipped_after_it_are_replayed(start: Start, workspace: Path):
    both = [
        call("ExecuteCommand", {"command": "exit 3"}),
        call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}),
    ]
    talk = await start([reply("Both.", both), say("It failed.")])
    await talk.say("Try")
    assert_same(await replay(await close_session(talk), workspace))


async def test_parallel_calls_are_replayed(start: Start, workspace: Path):
    for name in "abcd":
        (workspace / name).write_text(name)
    reads = [call("Read", {"file_path": str(workspace / name)}, id=f"r{name}") for name in "abcd"]
    talk = await start([reply("", reads), say("Four.")])
    await talk.say("Read all")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.calls == 4


async def test_sub_agents_get_their_own_recorded_replies(start: Start, workspace: Path):
    (workspace / "a").write_text("a")
    tasks = [call("AgentTool", {"description": name, "prompt": f"Look at {name}"}, id=f"t{name}") for name in "ab"]

    def script(request: Any) -> Any:
        said = str(request.messages)
        if "Look at a" in str(request.messages[0]) or "Look at b" in str(request.messages[0]):
            name = "a" if "Look at a" in str(request.messages[0]) else "b"
            if len(request.messages) == 1:
                return call("LS", {"path": str(workspace)}, id=f"ls{name}")
            return say(f"I saw {name}.")
        return say("Both looked.") if "I saw a." in said else reply("Two of them.", tasks)

    talk = await start(script)
    await talk.say("Let two look")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.calls == 4


async def test_delegated_tasks_are_replayed(start: Start, workspace: Path):
    """Two agents at once, a report, a file, results that arrive together, and a completed task that is continued."""
    write = call("WriteFile", {"file_path": str(workspace / "made"), "content": "a\n"})
    again = call("Notify", {"task_id": "adhoc-1", "message": "one more thing"})
    gate = threading.Event()
    team_script = TeamScript(
        [reply(calls=[delegate("a"), delegate("b")]), say("I wait."), again, say("Sent."), say("All.")],
        a=[write, complete("made it").hold(gate), complete("and more")],
        b=[call("Report", {"message": "half"}), complete("looked").hold(gate)],
    )
    talk = await start(team_script)
    await talk.say("Delegate it")
    await asyncio.to_thread(talk.server.wait_for, 6)
    gate.set()
    await settle(talk.client)
    tasks = (await talk.client.snapshot()).tasks
    assert [(task.state, len(task.agents)) for task in tasks] == [("completed", 2), ("completed", 1)]
    assert team_script.main == []
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert (report.prompts, report.calls) == (1, 8)


async def test_structured_output_is_replayed(start: Start, workspace: Path):
    schema = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
    calls = [call("StructuredOutput", {}), call("StructuredOutput", {"color": "blue"})]
    talk = await start([say("Blue."), *calls])
    await talk.client.submit(Prompt("p", "What color?", output_schema=schema))
    assert (await talk.until_end("p")).structured_output == {"color": "blue"}
    assert_same(await replay(await close_session(talk), workspace))


async def test_a_denied_call_is_denied_again(start: Start, workspace: Path):
    write = call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="w")
    talk = await start([write, say("Then not.")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", False, "not this file")]
    await talk.say("Write x")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)


async def test_denial_that_interrupts_the_turn_is_replayed(start: Start, workspace: Path):
    writes = [call("WriteFile", {"file_path": str(workspace / name), "content": "x"}, id=name) for name in "xy"]
    talk = await start([reply("", writes), say("Next.")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", False, "stop", interrupt=True)]
    ended = await talk.say("Write both")
    assert ended.reason == "interrupted"
    await talk.say("And now?")
    assert_same(await replay(await close_session(talk), workspace))


async def test_changed_arguments_and_remembered_rules_are_replayed(start: Start, workspace: Path):
    calls = [call("ExecuteCommand", {"command": f"touch {name}"}, id=name) for name in "xyz"]
    talk = await start([*calls, say("Three.")], yes=False, can_ask=True)
    talk.answers = [
        AnswerPermission("", True, args={"command": "touch changed"}),
        AnswerPermission("", True, rule="Bash(touch:*)", remember="session"),
    ]
    await talk.say("Touch them")
    assert len(talk.all(PermissionAsked)) == 2
    report = await replay(await close_session(talk), workspace)
    assert_same(report)


async def test_missing_permission_request_is_a_difference(start: Start, workspace: Path, home: Path):
    talk = await start([call("LS", {"path": str(workspace)}, id="l"), say("Done.")], yes=False, can_ask=True)
    await talk.say("List")
    session = await close_session(talk)
    log = find_log(session, workspace, home)
    lines = log.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"ToolStarted"' in line)
    asked = json.loads(lines[at])
    asked["event"] = {"type": "PermissionAsked", "ask_id": "a", "call_id": "l", "name": "LS", "args": {}, "reason": ""}
    log.write_text("".join([*lines[:at], json.dumps(asked) + "\n", *lines[at:]]))
    report = await replay(session, workspace)
    assert [difference.what for difference in report.differences] == ["request for call l"]


async def test_interrupted_reply_stops_at_the_same_word(start: Start, workspace: Path):
    talk = await start([say("Half of a sentence that", chunk=4).stall(after=5), say("Whole.")])
    talk.interrupt_on = TextStreamed
    ended = await talk.say("Talk")
    assert ended.reason == "interrupted"
    await talk.say("Again")
    assert_same(await replay(await close_session(talk), workspace))


async def test_an_interrupted_command_is_interrupted_again(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 60"}), say("Whole.")])
    talk.interrupt_on = ToolStarted
    ended = await talk.say("Sleep")
    assert ended.reason == "interrupted"
    await talk.say("Again")
    assert_same(await replay(await close_session(talk), workspace))


async def test_what_an_interrupted_command_had_printed_is_no_difference(start: Start, workspace: Path):
    command = "while date +%N; do echo begun; sleep 0.1; done"
    talk = await start([call("ExecuteCommand", {"command": command}), say("Whole.")])
    talk.interrupt_on = ToolProgressed
    await talk.say("Sleep")
    await talk.say("Again")
    (ended,) = talk.all(ToolEnded)
    assert ended.status == "cancelled"
    assert "begun" in ended.text
    assert_same(await replay(await close_session(talk), workspace))


async def test_interrupted_permission_request_stays_unanswered(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "touch x"}), say("Whole.")], yes=False, can_ask=True)
    prompt = await talk.submit("Touch")
    await talk.until(PermissionAsked)
    await talk.client.submit(Interrupt())
    talk.answers = [AnswerPermission("", True)]
    async for envelope in talk.client.stream_events(after=-1):
        if getattr(envelope.event, "reason", "") == "interrupted" and getattr(envelope.event, "id", "") == prompt:
            break
    await talk.client.submit(Prompt("p2", "Again"))
    await talk.until_end("p2")
    assert_same(await replay(await close_session(talk), workspace))


async def test_queued_prompts_run_in_order_and_in_their_modes(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 0.4"}), say("First."), say("Second."), say("Third.")])
    await talk.client.submit(Prompt("p1", "one"))
    await talk.until(ToolStarted)
    await talk.client.submit(Prompt("p2", "two", "ask_mode"))
    await talk.client.submit(Prompt("p3", "three", "plan_mode"))
    await talk.until_end("p3")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.prompts == 3


async def test_prompt_paused_by_an_interrupt_waits_until_it_is_queued_again(start: Start, workspace: Path):
    talk = await start([say("Half of a sentence", chunk=4).stall(after=5), say("Other."), say("Paused.")])
    prompt = await talk.submit("Talk")
    await talk.until_live(TextStreamed)
    await talk.client.submit(Prompt("queued", "And this"))
    await talk.client.submit(Interrupt())
    await talk.until_end(prompt)
    await talk.say("First this")
    await talk.client.submit(ChangePrompt("queued", delivery="queue"))
    await talk.until_end("queued")
    assert_same(await replay(await close_session(talk), workspace))


async def test_rewind_and_redo_are_replayed(start: Start, workspace: Path):
    talk = await start(
        [call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}), say("Written."), say("Gone?")]
    )
    await talk.say("Write x")
    await talk.client.submit(Rewind("p1"))
    await talk.client.submit(Redo())
    await talk.client.submit(Rewind("p1"))
    await talk.say("And now?")
    assert_same(await replay(await close_session(talk), workspace))


async def test_resumed_session_is_replayed(start: Start, workspace: Path):
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}), say("Written.")])
    await talk.say("Write x")
    session = await close_session(talk)
    again = await start([call("Read", {"file_path": str(workspace / "x")}), say("It is x.")], resume=session)
    again._count = 1
    await again.say("Read x")
    await again.client.close()
    report = await replay(session, workspace)
    assert_same(report)
    assert report.prompts == 2


async def test_resume_without_a_prompt_is_replayed(start: Start, workspace: Path):
    """The session is resumed twice: first only to set a title and a budget, then to go on."""
    session = await close_session(await _start_with_one_prompt(start))
    named = await start([], resume=session)
    await named.client.submit(SetTitle("Another name"))
    await named.client.submit(SetBudget(5))
    await named.client.close()
    assert_same(await replay(session, workspace))
    again = await start([say("Back again.")], resume=session)
    again._count = 1
    await again.say("And?")
    await again.client.close()
    report = await replay(session, workspace)
    assert_same(report)
    assert report.prompts == 2


async def _start_with_one_prompt(start: Start) -> Talk:
    talk = await start([say("Hello.")])
    await talk.say("Hi")
    return talk


async def _record_killed_session(start: Start, workspace: Path, home: Path) -> str:
    """Return a session whose log ends after the first of two calls."""
    talk = await start(
        [call("ExecuteCommand", {"command": "echo one"}), call("LS", {"path": str(workspace)}), say("x")]
    )
    await talk.say("Go")
    session = await close_session(talk)
    log = find_log(session, workspace, home)
    lines = log.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"ToolEnded"' in line)
    log.write_text("".join(lines[: at + 1]))
    return session


async def test_killed_session_is_replayed_up_to_its_end(start: Start, workspace: Path, home: Path):
    session = await _record_killed_session(start, workspace, home)
    assert_same(await replay(session, workspace))


async def test_killed_and_resumed_session_is_replayed(start: Start, workspace: Path, home: Path):
    session = await _record_killed_session(start, workspace, home)
    again = await start([say("Back again.")], resume=session)
    again._count = 1
    await again.say("And?")
    await again.client.close()
    report = await replay(session, workspace)
    assert_same(report)
    assert report.prompts == 2


async def test_prompt_queued_during_a_reply_is_replayed(start: Start, workspace: Path):
    gate = threading.Event()
    talk = await start([say("First.").hold(gate, after=3), say("Second.")])
    await talk.client.submit(Prompt("p1", "one"))
    await talk.until(TurnStarted)
    await talk.client.submit(Prompt("p2", "two"))
    gate.set()
    await talk.until_end("p2")
    assert talk.all(PromptQueued)
    assert_same(await replay(await close_session(talk), workspace))


async def test_session_closed_during_a_call_is_replayed(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 60"}), say("Never.")])
    await talk.submit("Sleep")
    await talk.until(ToolStarted)
    session = await close_session(talk)
    again = await start([say("Back again.")], resume=session)
    again._count = 1
    await again.say("And?")
    await again.client.close()
    assert_same(await replay(session, workspace))


async def test_model_failures_are_replayed(start: Start, workspace: Path):
    from odin.testing import fault

    talk = await start(
        [
            fault(529),
            say("After a while.").cut(events=2),
            say("Yes."),
            call("Read", '{"file_path": '),
            call("Read", {"file_path": str(workspace / "none")}),
            say("Not there."),
            fault(401),
        ]
    )
    for prompt in ("one", "two", "three"):
        await talk.say(prompt)
    assert_same(await replay(await close_session(talk), workspace))


async def test_empty_replies_are_replayed(start: Start, workspace: Path):
    talk = await start([say("")] * 10, config={"retry": {"base_s": 0.01, "attempts": 3}})
    await talk.say("one")
    assert_same(await replay(await close_session(talk), workspace))


async def test_todos_are_replayed(start: Start, workspace: Path):
    todos = [{"id": "1", "content": "look", "status": "in_progress"}]
    talk = await start([call("TodoWrite", {"todos": todos}), say("Noted.")])
    await talk.say("Plan")
    assert_same(await replay(await close_session(talk), workspace))


async def test_files_outside_the_project_are_not_changed(start: Start, workspace: Path, tmp_path: Path):
    outside = tmp_path / "outside.txt"
    talk = await start([call("WriteFile", {"file_path": str(outside), "content": "x"}), say("Written.")])
    await talk.say("Write outside")
    session = await close_session(talk)
    outside.write_text("changed since")
    report = await replay(session, workspace)
    assert_same(report)
    assert outside.read_text() == "changed since"
    assert "Skipped, with their recorded results: 1 calls on files outside the project." in report.notes


async def test_command_cannot_write_outside_the_copy(start: Start, workspace: Path, home: Path):
    talk = await start([call("ExecuteCommand", {"command": "echo x > mark; pwd"}, id="c1"), say("Done.")])
    await talk.say("Mark")
    session = await close_session(talk)
    log = find_log(session, workspace, home)
    log.write_text(log.read_text().replace("echo x > mark", f"echo x > {home}/mark; echo y > ../mark"))
    await replay(session, workspace, yes=False)
    assert not (home / "mark").exists()
    assert not (workspace.parent / "mark").exists()


async def test_command_with_extra_permissions_is_not_run_again(start: Start, workspace: Path):
    beside = workspace.parent / "beside"
    beside.mkdir()
    talk = await start(
        [call("ExecuteCommand", {"command": f"touch {beside}/made"}), say("Done.")], yes=False, can_ask=True
    )
    talk.answers = [AnswerPermission("", True)]
    await talk.say("Make it")
    session = await close_session(talk)
    (beside / "made").unlink()
    report = await replay(session, workspace, yes=False)
    assert_same(report)
    assert not (beside / "made").exists()
    assert any("commands that may use the network or files outside the project" in note for note in report.notes)


async def test_network_calls_are_not_repeated(start: Start, workspace: Path):
    async with open_site() as site:
        url = site.page("/", "<h1>Once</h1>")
        near = ("WebFetch(domain:127.0.0.1)",)
        talk = await start([call("WebFetch", {"url": url, "prompt": "What?"}), say("Seen.")], allowed_tools=near)
        await talk.say("Look")
        asked = len(site.heads)
        report = await replay(await close_session(talk), workspace)
        assert len(site.heads) == asked
    assert_same(report)
    assert "Skipped, with their recorded results: 1 network calls." in report.notes


async def test_until_option_limits_the_number_of_prompts(start: Start, workspace: Path):
    talk = await start([say("One."), call("LS", {"path": str(workspace)}), say("Two.")])
    await talk.say("one")
    await talk.say("two")
    report = await replay(await close_session(talk), workspace, until=1)
    assert_same(report)
    assert (report.prompts, report.calls) == (1, 0)


async def test_copy_of_the_project_is_kept_on_request(start: Start, workspace: Path):
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "kept"}), say("Done.")])
    await talk.say("one")
    report = await replay(await close_session(talk), workspace, keep=True)
    assert (Path(report.scratch) / "x").read_text() == "kept"
    shutil.rmtree(Path(report.scratch).parent)


async def test_session_in_a_subfolder_is_replayed(start: Start, workspace: Path):
    (workspace / "ODIN.md").write_text("root")
    below = workspace / "below"
    below.mkdir()
    talk = await start([call("ExecuteCommand", {"command": "pwd; ls .. > names"}), say("Done.")], cwd=str(below))
    await talk.say("Where?")
    session = await close_session(talk)
    report = await replay(session, below)
    assert [difference.recorded for difference in report.differences] == []
    assert report.calls == 1


@pytest.mark.slow
async def test_replay_command_prints_the_result_and_sets_the_exit_code(
    start: Start, workspace: Path, home: Path, run_odin: Run
):
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="w"), say("Done.")])
    await talk.say("one")
    session = await close_session(talk)
    good = run_odin("replay", session)
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "the same: 1 prompt, 1 call")
    log = find_log(session, workspace, home)
    log.write_text(log.read_text().replace('"content":"x"', '"content":"y"'))
    bad = run_odin("replay", session, "--json")
    assert bad.returncode == 1
    printed = json.loads(bad.stdout)
    assert printed["same"] is False
    assert printed["differences"][0]["what"] == "files changed by call w"
    assert run_odin("replay", "nothing-like-it").returncode == 2
    assert "WriteFile" in run_odin("replay", session, "--verbose").stderr


@pytest.mark.slow
async def test_saved_recording_contains_no_path_of_its_machine(
    start: Start, workspace: Path, home: Path, tmp_path: Path, run_odin: Run
):
    (workspace / "a.txt").write_text("one\n")
    (workspace / ".git").mkdir()
    talk = await start(
        [
            call("Read", {"file_path": str(workspace / "a.txt")}),
            call("Edit", {"file_path": str(workspace / "a.txt"), "old_string": "one", "new_string": "two"}),
            call("ExecuteCommand", {"command": f"cat {workspace}/a.txt; echo $HOME > /dev/null"}),
            say("Done."),
        ]
    )
    await talk.say("Change it")
    session = await close_session(talk)
    saved = run_odin("replay", session, "--save", str(tmp_path / "kept"))
    assert saved.returncode == 0, saved.stderr
    text = (tmp_path / "kept" / "session.jsonl").read_text()
    assert str(workspace) not in text
    assert str(home) not in text
    assert [path.name for path in (tmp_path / "kept" / "files").iterdir()] == ["a.txt"]
    assert (tmp_path / "kept" / "files" / "a.txt").read_text() == "one\n"
    (workspace / "a.txt").write_text("other")
    assert_same(await replay_session(ReplayOptions(session=str(tmp_path / "kept"))))
    assert run_odin("replay", session, "--save", str(tmp_path / "kept")).returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="file modes")
async def test_file_modes_and_links_are_replayed(start: Start, workspace: Path):
    (workspace / "a").write_text("a")
    (workspace / "link").symlink_to("a")
    talk = await start([call("ExecuteCommand", {"command": "chmod +x a; ln -sf b link; readlink link"}), say("Done.")])
    await talk.say("Change them")
    assert_same(await replay(await close_session(talk), workspace))


@pytest.mark.skipif(os.name != "posix", reason="file modes")
async def test_folder_modes_are_restored(start: Start, workspace: Path):
    workspace.chmod(0o751)
    (workspace / "below").mkdir()
    (workspace / "below").chmod(0o775)
    talk = await start([call("ExecuteCommand", {"command": "ls -ld . below | cut -c1-10"}), say("Done.")])
    await talk.say("Look")
    assert_same(await replay(await close_session(talk), workspace))


@pytest.mark.parametrize("mode", ["remind", "run"])
async def test_verification_checks_are_replayed(start: Start, workspace: Path, mode: str):
    (workspace / "Makefile").write_text("test:\n\t@sh check.sh\n")
    (workspace / "check.sh").write_text("echo broken; exit 1\n")
    fix = call("WriteFile", {"file_path": str(workspace / "check.sh"), "content": "exit 0\n"})
    script = [
        call("WriteFile", {"file_path": str(workspace / "a.py"), "content": "x = 1\n"}),
        say("Done."),
        fix,
        say("Now."),
    ]
    talk = await start(script, config={"verify": {"mode": mode}}, can_ask=mode == "run")
    if mode == "run":
        store_confirmation(ProjectChecks(str(workspace), ("make test",)), allowed=True, env=os.environ)
    ended = await talk.say("go")
    assert ended.verification is not None
    assert ended.verification.outcome == ("passed" if mode == "run" else "not_run")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.calls == (4 if mode == "run" else 2)


async def test_language_server_results_are_reused(start: Start, workspace: Path):
    (workspace / "b.txt").write_text("word\n")
    script = [
        call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "BAD word\n"}),
        call("lsp", {"action": "hover", "path": "a.txt", "symbol": "word"}),
        say("done"),
    ]
    server = {"command": sys.executable, "args": ["-I", "-S", FAKE_SERVER], "file_types": [".txt"]}
    talk = await start(script, config={"lsp_servers": {"fake": server}}, trust=True)
    await talk.say("go")
    first, second = (event.text for event in talk.all(ToolEnded))
    assert "bad word" in first and second == "about word\n\nmore"
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert "Skipped, with their recorded results: 1 calls of language servers." in report.notes
