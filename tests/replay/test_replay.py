"""A session that was recorded for real is played again, and what is different is found."""

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
from odin.core.call_events import PermissionAsked, TextStreamed, ToolEnded, ToolStarted
from odin.core.event import PromptQueued, TurnStarted
from odin.core.op import AnswerPermission, ChangePrompt, Interrupt, Prompt, Redo, Rewind, SetBudget, SetTitle
from odin.policy.commands.checks import ProjectChecks
from odin.replay.replay import ReplayOptions, ReplayReport, format_report, replay_session
from odin.session.store import SessionStore
from odin.testing import call, reply, say
from tests.conftest import Run
from tests.engine.conftest import Start, Talk
from tests.engine.test_team import Cast, complete, delegate, settle
from tests.lsp.conftest import FAKE
from tests.tools.site import open_site


async def recorded(talk: Talk) -> str:
    """The id of a session after it was closed."""
    session = (await talk.client.get_info()).session
    await talk.client.close()
    return session


async def played(session: str, workspace: Path, **wish: Any) -> ReplayReport:
    """Commands run also where there is no sandbox: those of these tests do no harm."""
    return await replay_session(ReplayOptions(session=session, cwd=str(workspace), **{"yes": True, **wish}))


def log_of(session: str, workspace: Path, home: Path) -> Path:
    return SessionStore(home / ".local" / "state" / "odin", str(workspace)).path_of(session)


def same(report: ReplayReport) -> None:
    assert report.same, format_report(report, verbose=True)


async def test_edits_and_commands_happen_again(start: Start, workspace: Path):
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
    session = await recorded(talk)
    before = {path.name: path.read_text() for path in workspace.iterdir()}
    report = await played(session, workspace)
    same(report)
    assert (report.prompts, report.calls) == (2, 4)
    assert {path.name: path.read_text() for path in workspace.iterdir()} == before
    assert "the same: 2 prompts, 4 calls\n" in format_report(report)


async def test_files_are_as_they_were_then(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("one\n")
    (workspace / "late").mkdir()
    (workspace / "run.sh").write_text("#!/bin/sh\ncat a.txt; ls late\n")
    (workspace / "run.sh").chmod(0o755)
    talk = await start([call("ExecuteCommand", {"command": "./run.sh; rm a.txt"}), say("Gone.")])
    await talk.say("Run it")
    session = await recorded(talk)
    (workspace / "a.txt").write_text("something of today\n")
    (workspace / "late" / "new.txt").write_text("was not there")
    (workspace / "run.sh").unlink()
    report = await played(session, workspace)
    same(report)
    assert (workspace / "a.txt").read_text() == "something of today\n"


async def test_what_cannot_be_brought_back_is_said(start: Start, workspace: Path, home: Path):
    (workspace / "a.txt").write_text("one\n")
    talk = await start([call("ExecuteCommand", {"command": "cat a.txt; echo x > b"}), say("Read.")])
    await talk.say("Run it")
    session = await recorded(talk)
    (workspace / "a.txt").write_text("two\n")
    for path in (home / ".local/state/odin/checkpoints").rglob("*"):
        if path.is_file() and path.parent.parent.name == "objects":
            path.unlink()
    report = await played(session, workspace)
    assert any("could not be restored" in note and "a.txt" in note for note in report.notes)
    assert not report.same


async def test_a_difference_is_shown_with_both_sides(start: Start, workspace: Path, home: Path):
    (workspace / "a.txt").write_text("one\n")
    talk = await start(
        [call("ExecuteCommand", {"command": "cat a.txt; echo x > b"}, id="c1"), say("Read."), say("Again.")]
    )
    await talk.say("Run it")
    await talk.say("Thanks")
    session = await recorded(talk)
    log = log_of(session, workspace, home)
    lines = log.read_text().splitlines(keepends=True)
    log.write_text("".join(line.replace("one", "uno") if '"ToolEnded"' in line else line for line in lines))
    report = await played(session, workspace)
    assert not report.same
    first = report.differences[0]
    assert (first.what, first.prompt) == ("result of ExecuteCommand (c1)", 1)
    assert "uno" in first.recorded
    assert "one" in first.replayed
    text = format_report(report)
    assert "prompt 1, event" in text
    assert "  recorded: \n  | success" in text
    assert "different: 2 prompts, 1 call replayed" in text


async def test_other_bytes_in_a_file_are_a_difference(start: Start, workspace: Path, home: Path):
    talk = await start([call("ExecuteCommand", {"command": "date +%N > now.txt"}, id="c1"), say("Done.")])
    await talk.say("Write the time")
    report = await played(await recorded(talk), workspace)
    assert [difference.what for difference in report.differences] == ["files changed by call c1"]


async def test_a_reply_that_is_not_asked_for_and_one_that_is_missing(start: Start, workspace: Path, home: Path):
    talk = await start([call("Read", {"file_path": str(workspace / "none")}, id="c1"), say("Not there.")])
    await talk.say("Read it")
    session = await recorded(talk)
    log = log_of(session, workspace, home)
    kept = [
        line for line in log.read_text().splitlines(keepends=True) if "Not there." not in line or "Replied" not in line
    ]
    log.write_text("".join(kept))
    report = await played(session, workspace)
    assert not report.same


async def test_a_failed_command_and_what_was_not_run_after_it(start: Start, workspace: Path):
    both = [
        call("ExecuteCommand", {"command": "exit 3"}),
        call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}),
    ]
    talk = await start([reply("Both.", both), say("It failed.")])
    await talk.say("Try")
    same(await played(await recorded(talk), workspace))


async def test_calls_that_run_together(start: Start, workspace: Path):
    for name in "abcd":
        (workspace / name).write_text(name)
    reads = [call("Read", {"file_path": str(workspace / name)}, id=f"r{name}") for name in "abcd"]
    talk = await start([reply("", reads), say("Four.")])
    await talk.say("Read all")
    report = await played(await recorded(talk), workspace)
    same(report)
    assert report.calls == 4


async def test_sub_agents_speak_their_own_lines(start: Start, workspace: Path):
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
    report = await played(await recorded(talk), workspace)
    same(report)
    assert report.calls == 4


async def test_delegated_work_happens_again(start: Start, workspace: Path):
    """Two agents at once, a report, a file, results that come together, and a completed task that is continued."""
    write = call("WriteFile", {"file_path": str(workspace / "made"), "content": "a\n"})
    again = call("Notify", {"task_id": "adhoc-1", "message": "one more thing"})
    gate = threading.Event()
    cast = Cast(
        [reply(calls=[delegate("a"), delegate("b")]), say("I wait."), again, say("Sent."), say("All.")],
        a=[write, complete("made it").hold(gate), complete("and more")],
        b=[call("Report", {"message": "half"}), complete("looked").hold(gate)],
    )
    talk = await start(cast)
    await talk.say("Delegate it")
    await asyncio.to_thread(talk.server.wait_for, 6)
    gate.set()
    await settle(talk.client)
    tasks = (await talk.client.snapshot()).tasks
    assert [(task.state, len(task.agents)) for task in tasks] == [("completed", 2), ("completed", 1)]
    assert cast.main == []
    report = await played(await recorded(talk), workspace)
    same(report)
    assert (report.prompts, report.calls) == (3, 8)


async def test_a_denied_call_is_denied_again(start: Start, workspace: Path):
    write = call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="w")
    talk = await start([write, say("Then not.")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", False, "not this file")]
    await talk.say("Write x")
    report = await played(await recorded(talk), workspace)
    same(report)


async def test_a_no_that_ends_the_turn_ends_it_again(start: Start, workspace: Path):
    writes = [call("WriteFile", {"file_path": str(workspace / name), "content": "x"}, id=name) for name in "xy"]
    talk = await start([reply("", writes), say("Next.")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", False, "stop", interrupt=True)]
    ended = await talk.say("Write both")
    assert ended.reason == "interrupted"
    await talk.say("And now?")
    same(await played(await recorded(talk), workspace))


async def test_changed_arguments_and_remembered_rules(start: Start, workspace: Path):
    calls = [call("ExecuteCommand", {"command": f"touch {name}"}, id=name) for name in "xyz"]
    talk = await start([*calls, say("Three.")], yes=False, can_ask=True)
    talk.answers = [
        AnswerPermission("", True, args={"command": "touch changed"}),
        AnswerPermission("", True, rule="Bash(touch:*)", remember="session"),
    ]
    await talk.say("Touch them")
    assert len(talk.all(PermissionAsked)) == 2
    report = await played(await recorded(talk), workspace)
    same(report)


async def test_a_question_that_is_not_asked_any_more_is_a_difference(start: Start, workspace: Path, home: Path):
    talk = await start([call("LS", {"path": str(workspace)}, id="l"), say("Done.")], yes=False, can_ask=True)
    await talk.say("List")
    session = await recorded(talk)
    log = log_of(session, workspace, home)
    lines = log.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"ToolStarted"' in line)
    asked = json.loads(lines[at])
    asked["event"] = {"type": "PermissionAsked", "ask_id": "a", "call_id": "l", "name": "LS", "args": {}, "reason": ""}
    log.write_text("".join([*lines[:at], json.dumps(asked) + "\n", *lines[at:]]))
    report = await played(session, workspace)
    assert [difference.what for difference in report.differences] == ["request for call l"]


async def test_an_interrupted_answer_stops_at_the_same_word(start: Start, workspace: Path):
    talk = await start([say("Half of a sentence that", chunk=4).stall(after=5), say("Whole.")])
    talk.interrupt_on = TextStreamed
    ended = await talk.say("Talk")
    assert ended.reason == "interrupted"
    await talk.say("Again")
    same(await played(await recorded(talk), workspace))


async def test_an_interrupted_command_is_interrupted_again(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 60"}), say("Whole.")])
    talk.interrupt_on = ToolStarted
    ended = await talk.say("Sleep")
    assert ended.reason == "interrupted"
    await talk.say("Again")
    same(await played(await recorded(talk), workspace))


async def test_an_interrupted_question_stays_without_an_answer(start: Start, workspace: Path):
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
    same(await played(await recorded(talk), workspace))


async def test_prompts_that_waited_run_in_their_order_and_mode(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 0.4"}), say("First."), say("Second."), say("Third.")])
    await talk.client.submit(Prompt("p1", "one"))
    await talk.until(ToolStarted)
    await talk.client.submit(Prompt("p2", "two", "ask_mode"))
    await talk.client.submit(Prompt("p3", "three", "plan_mode"))
    await talk.until_end("p3")
    report = await played(await recorded(talk), workspace)
    same(report)
    assert report.prompts == 3


async def test_a_prompt_that_an_interrupt_paused_waits_until_it_was_sent(start: Start, workspace: Path):
    talk = await start([say("Half of a sentence", chunk=4).stall(after=5), say("Other."), say("Paused.")])
    prompt = await talk.submit("Talk")
    await talk.until_live(TextStreamed)
    await talk.client.submit(Prompt("queued", "And this"))
    await talk.client.submit(Interrupt())
    await talk.until_end(prompt)
    await talk.say("First this")
    await talk.client.submit(ChangePrompt("queued", delivery="queue"))
    await talk.until_end("queued")
    same(await played(await recorded(talk), workspace))


async def test_a_rewind_and_a_redo(start: Start, workspace: Path):
    talk = await start(
        [call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}), say("Written."), say("Gone?")]
    )
    await talk.say("Write x")
    await talk.client.submit(Rewind("p1"))
    await talk.client.submit(Redo())
    await talk.client.submit(Rewind("p1"))
    await talk.say("And now?")
    same(await played(await recorded(talk), workspace))


async def test_a_resumed_session(start: Start, workspace: Path):
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}), say("Written.")])
    await talk.say("Write x")
    session = await recorded(talk)
    again = await start([call("Read", {"file_path": str(workspace / "x")}), say("It is x.")], resume=session)
    again._count = 1
    await again.say("Read x")
    await again.client.close()
    report = await played(session, workspace)
    same(report)
    assert report.prompts == 2


async def test_a_run_in_which_nobody_said_anything(start: Start, workspace: Path):
    """The session was resumed twice, once for another title and a budget alone, and then to go on."""
    session = await recorded(await _asked_once(start))
    named = await start([], resume=session)
    await named.client.submit(SetTitle("Another name"))
    await named.client.submit(SetBudget(5))
    await named.client.close()
    same(await played(session, workspace))
    again = await start([say("Back again.")], resume=session)
    again._count = 1
    await again.say("And?")
    await again.client.close()
    report = await played(session, workspace)
    same(report)
    assert report.prompts == 2


async def _asked_once(start: Start) -> Talk:
    talk = await start([say("Hello.")])
    await talk.say("Hi")
    return talk


async def _killed_after_a_call(start: Start, workspace: Path, home: Path) -> str:
    """A session whose log ends after the first of two calls."""
    talk = await start(
        [call("ExecuteCommand", {"command": "echo one"}), call("LS", {"path": str(workspace)}), say("x")]
    )
    await talk.say("Go")
    session = await recorded(talk)
    log = log_of(session, workspace, home)
    lines = log.read_text().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if '"ToolEnded"' in line)
    log.write_text("".join(lines[: at + 1]))
    return session


async def test_a_session_that_was_killed_is_played_as_far_as_it_goes(start: Start, workspace: Path, home: Path):
    session = await _killed_after_a_call(start, workspace, home)
    same(await played(session, workspace))


async def test_a_session_that_was_killed_and_resumed(start: Start, workspace: Path, home: Path):
    session = await _killed_after_a_call(start, workspace, home)
    again = await start([say("Back again.")], resume=session)
    again._count = 1
    await again.say("And?")
    await again.client.close()
    report = await played(session, workspace)
    same(report)
    assert report.prompts == 2


async def test_a_prompt_that_came_while_the_model_was_talking(start: Start, workspace: Path):
    gate = threading.Event()
    talk = await start([say("First.").hold(gate, after=3), say("Second.")])
    await talk.client.submit(Prompt("p1", "one"))
    await talk.until(TurnStarted)
    await talk.client.submit(Prompt("p2", "two"))
    gate.set()
    await talk.until_end("p2")
    assert talk.all(PromptQueued)
    same(await played(await recorded(talk), workspace))


async def test_a_session_that_was_closed_while_it_worked(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 60"}), say("Never.")])
    await talk.submit("Sleep")
    await talk.until(ToolStarted)
    session = await recorded(talk)
    again = await start([say("Back again.")], resume=session)
    again._count = 1
    await again.say("And?")
    await again.client.close()
    same(await played(session, workspace))


async def test_failures_of_the_model_happen_again(start: Start, workspace: Path):
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
    same(await played(await recorded(talk), workspace))


async def test_an_empty_reply(start: Start, workspace: Path):
    talk = await start([say("")] * 10, config={"retry": {"base_s": 0.01, "attempts": 3}})
    await talk.say("one")
    same(await played(await recorded(talk), workspace))


async def test_todos_and_questions(start: Start, workspace: Path):
    todos = [{"id": "1", "content": "look", "status": "in_progress"}]
    talk = await start([call("TodoWrite", {"todos": todos}), say("Noted.")])
    await talk.say("Plan")
    same(await played(await recorded(talk), workspace))


async def test_what_lies_outside_is_not_touched_again(start: Start, workspace: Path, tmp_path: Path):
    outside = tmp_path / "outside.txt"
    talk = await start([call("WriteFile", {"file_path": str(outside), "content": "x"}), say("Written.")])
    await talk.say("Write outside")
    session = await recorded(talk)
    outside.write_text("changed since")
    report = await played(session, workspace)
    same(report)
    assert outside.read_text() == "changed since"
    assert "Skipped, with their recorded results: 1 calls on files outside the project." in report.notes


async def test_a_command_cannot_leave_the_copy(start: Start, workspace: Path, home: Path):
    talk = await start([call("ExecuteCommand", {"command": "echo x > mark; pwd"}, id="c1"), say("Done.")])
    await talk.say("Mark")
    session = await recorded(talk)
    log = log_of(session, workspace, home)
    log.write_text(log.read_text().replace("echo x > mark", f"echo x > {home}/mark; echo y > ../mark"))
    await played(session, workspace, yes=False)
    assert not (home / "mark").exists()
    assert not (workspace.parent / "mark").exists()


async def test_a_command_that_was_granted_more_is_not_run_again(start: Start, workspace: Path):
    beside = workspace.parent / "beside"
    beside.mkdir()
    talk = await start(
        [call("ExecuteCommand", {"command": f"touch {beside}/made"}), say("Done.")], yes=False, can_ask=True
    )
    talk.answers = [AnswerPermission("", True)]
    await talk.say("Make it")
    session = await recorded(talk)
    (beside / "made").unlink()
    report = await played(session, workspace, yes=False)
    same(report)
    assert not (beside / "made").exists()
    assert any("commands that may use the network or files outside the project" in note for note in report.notes)


async def test_the_web_is_not_asked_again(start: Start, workspace: Path):
    async with open_site() as site:
        url = site.page("/", "<h1>Once</h1>")
        near = ("WebFetch(domain:127.0.0.1)",)
        talk = await start([call("WebFetch", {"url": url, "prompt": "What?"}), say("Seen.")], allowed_tools=near)
        await talk.say("Look")
        asked = len(site.heads)
        report = await played(await recorded(talk), workspace)
        assert len(site.heads) == asked
    same(report)
    assert "Skipped, with their recorded results: 1 network calls." in report.notes


async def test_only_the_first_prompts(start: Start, workspace: Path):
    talk = await start([say("One."), call("LS", {"path": str(workspace)}), say("Two.")])
    await talk.say("one")
    await talk.say("two")
    report = await played(await recorded(talk), workspace, until=1)
    same(report)
    assert (report.prompts, report.calls) == (1, 0)


async def test_the_copy_is_kept_when_asked(start: Start, workspace: Path):
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "kept"}), say("Done.")])
    await talk.say("one")
    report = await played(await recorded(talk), workspace, keep=True)
    assert (Path(report.scratch) / "x").read_text() == "kept"
    shutil.rmtree(Path(report.scratch).parent)


async def test_from_a_folder_below_the_root(start: Start, workspace: Path):
    (workspace / "ODIN.md").write_text("root")
    below = workspace / "below"
    below.mkdir()
    talk = await start([call("ExecuteCommand", {"command": "pwd; ls .. > names"}), say("Done.")], cwd=str(below))
    await talk.say("Where?")
    session = await recorded(talk)
    report = await played(session, below)
    assert [difference.recorded for difference in report.differences] == []
    assert report.calls == 1


@pytest.mark.slow
async def test_the_command_line_says_it_and_ends_with_a_code(start: Start, workspace: Path, home: Path, run_odin: Run):
    talk = await start([call("WriteFile", {"file_path": str(workspace / "x"), "content": "x"}, id="w"), say("Done.")])
    await talk.say("one")
    session = await recorded(talk)
    good = run_odin("replay", session)
    assert (good.returncode, good.stdout.splitlines()[-1]) == (0, "the same: 1 prompt, 1 call")
    log = log_of(session, workspace, home)
    log.write_text(log.read_text().replace('"content":"x"', '"content":"y"'))
    bad = run_odin("replay", session, "--json")
    assert bad.returncode == 1
    told = json.loads(bad.stdout)
    assert told["same"] is False
    assert told["differences"][0]["what"] in ("files changed by call w", "display of WriteFile (w)")
    assert run_odin("replay", "nothing-like-it").returncode == 2
    assert "WriteFile" in run_odin("replay", session, "--verbose").stderr


@pytest.mark.slow
async def test_a_recording_knows_nothing_of_the_machine(
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
    session = await recorded(talk)
    saved = run_odin("replay", session, "--save", str(tmp_path / "kept"))
    assert saved.returncode == 0, saved.stderr
    text = (tmp_path / "kept" / "session.jsonl").read_text()
    assert str(workspace) not in text
    assert str(home) not in text
    assert [path.name for path in (tmp_path / "kept" / "files").iterdir()] == ["a.txt"]
    assert (tmp_path / "kept" / "files" / "a.txt").read_text() == "one\n"
    (workspace / "a.txt").write_text("other")
    same(await replay_session(ReplayOptions(session=str(tmp_path / "kept"))))
    assert run_odin("replay", session, "--save", str(tmp_path / "kept")).returncode == 2


@pytest.mark.skipif(os.name != "posix", reason="file modes")
async def test_modes_and_links_of_files(start: Start, workspace: Path):
    (workspace / "a").write_text("a")
    (workspace / "link").symlink_to("a")
    talk = await start([call("ExecuteCommand", {"command": "chmod +x a; ln -sf b link; readlink link"}), say("Done.")])
    await talk.say("Change them")
    same(await played(await recorded(talk), workspace))


@pytest.mark.skipif(os.name != "posix", reason="file modes")
async def test_modes_of_folders(start: Start, workspace: Path):
    workspace.chmod(0o751)
    (workspace / "below").mkdir()
    (workspace / "below").chmod(0o775)
    talk = await start([call("ExecuteCommand", {"command": "ls -ld . below | cut -c1-10"}), say("Done.")])
    await talk.say("Look")
    same(await played(await recorded(talk), workspace))


@pytest.mark.parametrize("mode", ["remind", "run"])
async def test_checks_happen_again(start: Start, workspace: Path, mode: str):
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
    report = await played(await recorded(talk), workspace)
    same(report)
    assert report.calls == (4 if mode == "run" else 2)


async def test_what_language_servers_said_is_repeated(start: Start, workspace: Path):
    (workspace / "b.txt").write_text("word\n")
    script = [
        call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "BAD word\n"}),
        call("lsp", {"action": "hover", "path": "a.txt", "symbol": "word"}),
        say("done"),
    ]
    server = {"command": sys.executable, "args": ["-I", "-S", FAKE], "file_types": [".txt"]}
    talk = await start(script, config={"lsp_servers": {"fake": server}}, trust=True)
    await talk.say("go")
    first, second = (event.text for event in talk.all(ToolEnded))
    assert "bad word" in first and second == "about word\n\nmore"
    report = await played(await recorded(talk), workspace)
    same(report)
    assert "Skipped, with their recorded results: 1 calls of language servers." in report.notes
