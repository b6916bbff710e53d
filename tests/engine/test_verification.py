"""Verification before done: a turn that changed files ends with the project's checks, run by the model or by Odin."""

from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, QuestionsAsked, ToolEnded, ToolStarted
from odin.core.event import ChecksRan, NoteAdded
from odin.core.event_values import CheckResult, Verification
from odin.core.message import ReplyMessage, ToolMessage
from odin.core.op import AnswerPermission, AnswerQuestions, Interrupt, Prompt
from odin.session.state import SessionState
from odin.testing import call, say
from tests.engine.conftest import Start, Talk
from tests.engine.hook_programs import claude_hook, new_kit

MAKEFILE = "test:\n\t@sh check.sh\n"
PASSING = "echo all good\n"
FAILING = "echo one test failed; exit 3\n"


@pytest.fixture
def project(workspace: Path) -> Path:
    """A project whose only check is `make test`, which passes."""
    (workspace / "Makefile").write_text(MAKEFILE)
    (workspace / "check.sh").write_text(PASSING)
    return workspace


def edit(folder: Path, name: str = "code.py", text: str = "x = 1\n") -> Any:
    return call("WriteFile", {"file_path": str(folder / name), "content": text})


def run(command: str) -> Any:
    return call("ExecuteCommand", {"command": command})


def list_check_notes(talk: Talk) -> list[str]:
    """Return the notes about checks."""
    return [event.text for event in talk.all(NoteAdded) if event.text.startswith(("You changed", "Odin ran"))]


def get_request_text(talk: Talk, at: int) -> str:
    return talk.server.requests[at].body.decode().replace("\\n", "\n")


def make_results(outcome: Any, *commands: str) -> tuple[CheckResult, ...]:
    return tuple(CheckResult(command, outcome) for command in commands)


def checks_run(talk: Talk) -> list[tuple[str, str]]:
    """Return the commands that Odin ran itself, and their statuses."""
    ends = {event.call_id: event.status for event in talk.all(ToolEnded)}
    own = [event for event in talk.all(ToolStarted) if event.call_id.startswith("check-")]
    return [(event.args["command"], ends[event.call_id]) for event in own]


# --- remind ---


async def test_model_is_reminded_once_of_checks_it_did_not_run(start: Start, project: Path) -> None:
    talk = await start([edit(project), say("Done."), say("The tests do not apply.")])
    ended = await talk.say("go")
    assert (ended.reason, ended.text) == ("end_turn", "The tests do not apply.")
    assert len(talk.server.requests) == 3
    (note,) = list_check_notes(talk)
    assert note.startswith(
        "You changed code.py and have not run a check of the project since. Its checks: `make test`."
    )
    assert note in get_request_text(talk, 2)
    assert ended.verification == Verification("not_run", make_results("not_run", "make test"))
    assert checks_run(talk) == []
    assert talk.server.rejected == []


async def test_the_reminder_names_the_checks_of_the_changed_files(start: Start, workspace: Path) -> None:
    (workspace / "package.json").write_text('{"scripts": {"test": "node --test"}}')
    (workspace / "tests").mkdir()
    (workspace / "tests" / "test_code.py").write_text("import code\n\ndef test_it():\n    pass\n")
    talk = await start([edit(workspace), say("Done."), say("They do not apply.")])
    ended = await talk.say("go")
    assert "Its checks: `python3 -m pytest`." in list_check_notes(talk)[0]
    assert ended.verification == Verification("not_run", make_results("not_run", "python3 -m pytest"))


async def test_check_run_after_the_reminder_verifies_the_work(start: Start, project: Path) -> None:
    talk = await start([edit(project), say("Done."), run("make test"), say("They pass.")])
    ended = await talk.say("go")
    assert ended.verification == Verification("passed", make_results("passed", "make test"))
    assert (len(talk.server.requests), len(list_check_notes(talk))) == (4, 1)


@pytest.mark.parametrize(
    ("commands", "outcome"),
    [
        (["make test"], "passed"),
        (["cd . && make -s test"], "passed"),
        (["sh -c 'exit 1'", "ruff check nothing"], "failed"),
        (["make test | tail -1"], "unknown"),
    ],
)
async def test_a_check_after_the_last_change_needs_no_reminder(
    start: Start, project: Path, commands: list[str], outcome: str
) -> None:
    talk = await start([edit(project), *(run(command) for command in commands), say("Done.")])
    ended = await talk.say("go")
    assert ended.verification is not None
    assert ended.verification.outcome == outcome
    assert list_check_notes(talk) == []


async def test_change_after_the_check_needs_a_reminder(start: Start, project: Path) -> None:
    script = [edit(project), run("make test"), run("echo 'x = 2' > code.py"), say("Done."), say("No.")]
    talk = await start(script)
    ended = await talk.say("go")
    assert len(list_check_notes(talk)) == 1, "a command that changed a file is a change"
    assert ended.verification == Verification("not_run", make_results("not_run", "make test"))


async def test_model_is_reminded_again_in_the_next_turn(start: Start, project: Path) -> None:
    answers = [edit(project), say("a"), say("b"), edit(project, text="x = 3\n"), say("c"), say("d")]
    talk = await start(answers)
    assert [(await talk.say(text)).text for text in ("one", "two")] == ["b", "d"]
    assert len(list_check_notes(talk)) == 2


@pytest.mark.parametrize(
    ("case", "settings"),
    [
        ("bare", {}),
        ("documents", {}),
        ("read", {}),
        ("off", {"verify": {"mode": "off"}}),
    ],
)
async def test_no_reminder_without_checks_or_changed_code_or_if_disabled(
    start: Start, workspace: Path, case: str, settings: dict[str, Any]
) -> None:
    if case != "bare":
        (workspace / "Makefile").write_text(MAKEFILE)
    change = {"documents": edit(workspace, "notes.md", "x\n"), "read": run("ls")}.get(case, edit(workspace))
    talk = await start([change, say("Done.")], config=settings)
    ended = await talk.say("go")
    assert (ended.text, ended.verification, len(talk.server.requests)) == ("Done.", None, 2)


@pytest.mark.parametrize("settings", [{}, {"verify": {"mode": "run", "commands": "false"}}])
async def test_last_allowed_request_ends_the_turn_without_a_reminder(
    start: Start, project: Path, settings: dict[str, Any]
) -> None:
    talk = await start([edit(project), say("Done.")], config=settings, max_turns=2)
    ended = await talk.say("go")
    assert (ended.reason, ended.text, list_check_notes(talk)) == ("end_turn", "Done.", [])
    assert ended.verification is not None
    assert ended.verification.outcome == ("failed" if settings else "not_run")


async def test_every_prefix_of_the_log_is_a_valid_conversation(start: Start, project: Path) -> None:
    settings = {"verify": {"mode": "run", "commands": "false"}}
    talk = await start([edit(project), say("Done."), say("No.")], config=settings)
    await talk.say("go")
    log = [item for item in talk.heard if item.event.durable]
    for end in range(len(log)):
        history = SessionState.fold(log[: end + 1]).build_history()
        called = [item.id for message in history if isinstance(message, ReplyMessage) for item in message.calls]
        answered = [item.call_id for message in history if isinstance(message, ToolMessage) for item in message.results]
        assert called == answered


async def test_no_reminder_in_ask_mode(start: Start, project: Path) -> None:
    talk = await start([run("echo x > code.py"), say("Done.")])
    assert (await talk.say("go", "ask_mode")).verification is None
    assert len(talk.server.requests) == 2


async def test_configured_checks_replace_detected_ones(start: Start, project: Path) -> None:
    talk = await start(
        [edit(project), say("Done."), run("sh my-check"), say("Ok.")], config={"verify": {"commands": "sh my-check"}}
    )
    ended = await talk.say("go")
    assert "Its checks: `sh my-check`." in list_check_notes(talk)[0]
    assert ended.verification == Verification("failed", make_results("failed", "sh my-check"))


async def test_a_sub_agent_is_reminded_of_its_own_changes(start: Start, project: Path) -> None:
    agent = call("AgentTool", {"description": "edit", "prompt": "edit it"})
    script = [agent, edit(project), say("edited"), run("make test"), say("edited and tested"), say("fine"), say("yes")]
    talk = await start(script, config={"verify": {"mode": "run", "commands": ["make test"]}})
    await talk.say("go")
    reminded = [
        item.agent for item in talk.heard if isinstance(item.event, NoteAdded) and "check of" in item.event.text
    ]
    assert reminded == ["agent-1"]
    assert checks_run(talk) == [("make test", "success")], "the turn of the main agent runs the checks"


# --- run ---

RUN = {"verify": {"mode": "run", "commands": ["make test"]}}


async def test_odin_runs_the_checks_and_the_turn_ends_if_they_pass(start: Start, project: Path) -> None:
    talk = await start([edit(project), say("Done.")], config=RUN)
    ended = await talk.say("go")
    assert checks_run(talk) == [("make test", "success")]
    assert ended.verification == Verification("passed", make_results("passed", "make test"), "odin", 1)
    assert [event.continues for event in talk.all(ChecksRan)] == [False]
    assert (ended.text, len(talk.server.requests)) == ("Done.", 2)


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_failures_are_sent_to_the_model_until_they_are_fixed(start: Start, project: Path, api: Any) -> None:
    (project / "check.sh").write_text(FAILING)
    script = [edit(project), say("Done."), edit(project, "check.sh", PASSING), say("Fixed.")]
    talk = await start(script, api, config=RUN)
    ended = await talk.say("go")
    note = list_check_notes(talk)[0]
    assert "`make test` failed:\none test failed" in note
    assert "round 1 of 3" in note
    assert note in get_request_text(talk, 2)
    assert checks_run(talk) == [("make test", "error"), ("make test", "success")]
    assert ended.verification == Verification("passed", make_results("passed", "make test"), "odin", 2)
    assert talk.server.rejected == []
    assert (ended.text, [event.continues for event in talk.all(ChecksRan)]) == ("Fixed.", [True, False])


async def test_turn_ends_after_three_rounds_of_failures(start: Start, project: Path) -> None:
    (project / "check.sh").write_text(FAILING)
    tries = [turn for number in range(5) for turn in (edit(project, text=f"x = {number}\n"), say(f"try {number}"))]
    talk = await start(tries, config=RUN)
    ended = await talk.say("go")
    assert (ended.reason, ended.text, len(list_check_notes(talk))) == ("end_turn", "try 3", 3)
    assert ended.verification == Verification("failed", make_results("failed", "make test"), "odin", 4)


async def test_turn_ends_if_the_model_changes_nothing_after_a_failure(start: Start, project: Path) -> None:
    (project / "check.sh").write_text(FAILING)
    talk = await start([edit(project), say("Done."), say("That is how it is.")], config=RUN)
    ended = await talk.say("go")
    assert ended.text == "That is how it is."
    assert len(checks_run(talk)) == 1
    assert ended.verification == Verification("failed", make_results("failed", "make test"), "odin", 1)


async def test_every_check_runs_and_missing_programs_are_no_failure(start: Start, project: Path) -> None:
    commands = ["no-such-program-here", "false", "make test"]
    settings = {"verify": {"mode": "run", "commands": commands}}
    talk = await start([edit(project), say("Done."), say("ok")], config=settings)
    ended = await talk.say("go")
    assert ended.verification is not None
    assert [result.outcome for result in ended.verification.checks] == ["not_run", "failed", "passed"]
    assert ended.verification.outcome == "failed"


async def test_a_check_that_takes_too_long_is_stopped(start: Start, project: Path) -> None:
    settings = {"verify": {"mode": "run", "commands": "sleep 60", "timeout_s": 0.2}}
    talk = await start([edit(project), say("Done."), say("ok")], config=settings)
    ended = await talk.say("go")
    assert ended.verification == Verification("timed_out", make_results("timed_out", "sleep 60"), "odin", 1)
    assert "`sleep 60` timed out:" in list_check_notes(talk)[0]


async def test_check_run_by_the_model_is_not_run_again(start: Start, project: Path) -> None:
    talk = await start([edit(project), run("make test"), say("Done.")], config=RUN)
    ended = await talk.say("go")
    assert ended.verification == Verification("passed", make_results("passed", "make test"))
    assert checks_run(talk) == []


@pytest.mark.parametrize(
    ("options", "outcome"),
    [
        ({}, "passed"),
        ({"can_ask": True}, "passed"),
        ({"disallowed_tools": ("Bash(make:*)",)}, "not_run"),
        ({"permission_mode": "dontAsk", "allowed_tools": ("WriteFile",)}, "passed"),
        ({"permission_mode": "dontAsk", "allowed_tools": ("WriteFile",), "commands_ask": "before"}, "not_run"),
    ],
)
async def test_configured_checks_run_without_approval_unless_denied(
    start: Start, project: Path, options: dict[str, Any], outcome: str
) -> None:
    (project / "code.py").unlink(missing_ok=True)
    chosen = {"permission_mode": "acceptEdits", **options}
    talk = await start([edit(project), say("Done.")], config=RUN, yes=False, **chosen)
    ended = await talk.say("go")
    assert ended.verification is not None
    assert (ended.verification.outcome, talk.all(PermissionAsked)) == (outcome, [])
    assert len(talk.server.requests) == 2, "the model cannot change that"


async def test_tool_hooks_see_the_checks_and_the_stop_hook_runs_last(
    start: Start, project: Path, tmp_path: Path
) -> None:
    kit = new_kit(tmp_path)
    (project / "check.sh").write_text(FAILING)
    hooks = {"PreToolUse": [claude_hook(kit.script(""), "Bash")], "Stop": [claude_hook(kit.script(""))]}
    script = [edit(project), say("Done."), edit(project, "check.sh", PASSING), say("Fixed.")]
    talk = await start(script, config={**RUN, "hooks": hooks})
    await talk.say("go")
    assert kit.event_names() == ["PreToolUse", "PreToolUse", "Stop"]
    assert [item["tool_input"]["command"] for item in kit.inputs()[:2]] == ["make test", "make test"]


async def test_changes_after_a_stop_hook_are_verified(start: Start, project: Path, tmp_path: Path) -> None:
    once = (
        'case "$told" in *\'"stop_hook_active":true\'*) exit 0;; esac\necho \'{"decision":"block","reason":"More."}\''
    )
    hooks = {"Stop": [claude_hook(new_kit(tmp_path).script(once))]}
    script = [edit(project), say("Done."), edit(project, "more.py"), say("More.")]
    talk = await start(script, config={**RUN, "hooks": hooks})
    ended = await talk.say("go")
    assert ended.verification == Verification("passed", make_results("passed", "make test"), "odin", 2)


async def test_user_can_stop_the_turn_when_a_hook_asks_about_a_check(
    start: Start, project: Path, tmp_path: Path
) -> None:
    hooks = {"PreToolUse": [claude_hook(new_kit(tmp_path).script('echo \'{"decision":"ask"}\''), "Bash")]}
    talk = await start(
        [edit(project), say("Done.")],
        config={**RUN, "hooks": hooks},
        yes=False,
        can_ask=True,
        permission_mode="acceptEdits",
    )
    talk.answers = [AnswerPermission("", False, interrupt=True)]
    ended = await talk.say("go")
    assert ended.reason == "interrupted"
    assert ended.verification is not None
    assert ended.verification.outcome == "not_run"


async def test_an_interrupt_stops_the_running_check(start: Start, project: Path) -> None:
    talk = await start([edit(project), say("Done.")], config={"verify": {"mode": "run", "commands": "sleep 60"}})
    prompt = await talk.submit("go")
    while not (started := [item for item in talk.all(ToolStarted) if item.name == "ExecuteCommand"]):
        await talk.until_live(ToolStarted)
    await talk.client.submit(Interrupt())
    ended = await talk.until_end(prompt)
    assert ended.reason == "interrupted"
    assert [event.status for event in talk.all(ToolEnded) if event.call_id == started[0].call_id] == ["cancelled"]
    assert ended.verification is not None
    assert ended.verification.outcome == "not_run"


async def test_steering_prompt_runs_before_the_checks(start: Start, project: Path) -> None:
    slow = {"verify": {"mode": "run", "commands": ["sleep 0.3", "make test"]}}
    talk = await start([edit(project), say("Done."), say("And that.")], config=slow)
    prompt = await talk.submit("go")
    while not any(item.name == "ExecuteCommand" for item in talk.all(ToolStarted)):
        await talk.until_live(ToolStarted)
    await talk.client.submit(Prompt("more", "and that", delivery="steer"))
    ended = await talk.until_end(prompt)
    assert ended.text == "And that."
    assert ended.verification == Verification("passed", make_results("passed", "sleep 0.3", "make test"), "odin", 1)
    assert checks_run(talk)[-2:] == [("sleep 0.3", "success"), ("make test", "success")]


# --- detected checks ---

FOUND = {"verify": {"mode": "run"}}


async def answer(talk: Talk, label: str) -> QuestionsAsked:
    while not talk.all(QuestionsAsked):
        await talk.until_live(QuestionsAsked)
    asked = talk.all(QuestionsAsked)[0]
    await talk.client.submit(AnswerQuestions(asked.ask_id, ((label,),)))
    return asked


async def test_detected_checks_are_confirmed_once(start: Start, project: Path) -> None:
    talk = await start([edit(project), say("Done.")], config=FOUND, can_ask=True)
    prompt = await talk.submit("go")
    asked = await answer(talk, "Yes")
    assert "`make test`" in asked.questions[0].text
    assert (await talk.until_end(prompt)).verification == Verification(
        "passed", make_results("passed", "make test"), "odin", 1
    )
    again = await start([edit(project, text="x = 9\n"), say("Done.")], config=FOUND, can_ask=True)
    ended = await again.say("go")
    assert ended.verification is not None
    assert (ended.verification.by, again.all(QuestionsAsked)) == ("odin", [])
    (project / "Makefile").write_text(f"{MAKEFILE}lint:\n\t@true\n")
    other = await start([edit(project, text="x = 8\n"), say("Done."), say("No.")], config=FOUND, can_ask=True)
    prompt = await other.submit("go")
    await answer(other, "No")
    ended = await other.until_end(prompt)
    assert ended.verification == Verification("not_run", make_results("not_run", "make test", "make lint"))
    assert len(list_check_notes(other)) == 1, "the model is reminded instead"


async def test_detected_checks_are_only_a_reminder_without_a_user(start: Start, project: Path) -> None:
    talk = await start([edit(project), say("Done."), say("No.")], config=FOUND)
    ended = await talk.say("go")
    assert (len(list_check_notes(talk)), checks_run(talk)) == (1, [])
    assert ended.verification == Verification("not_run", make_results("not_run", "make test"))


async def test_a_project_cannot_start_checks_before_it_is_trusted(start: Start, project: Path) -> None:
    (project / "odinconfig.json").write_text('{"verify": {"mode": "run", "commands": "touch started"}}')
    talk = await start([edit(project), say("Done."), say("No.")])
    ended = await talk.say("go")
    assert not (project / "started").exists()
    assert ended.verification == Verification("not_run", make_results("not_run", "make test"))
