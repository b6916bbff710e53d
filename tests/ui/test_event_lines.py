"""`EventLines`: the lines about events that a user reads beside the answer."""

import json
from pathlib import Path

import pytest

from odin.core.call_events import HookRan, PermissionAnswered, RuleAdded, RuleRemoved, TextStreamed, ToolEnded
from odin.core.event import Envelope, Warned
from odin.core.event_values import Event
from odin.testing import ScriptedServer, call, say
from odin.ui.progress import EventLines
from tests.conftest import Run
from tests.table import each


def format_event(event: Event, agent: str = "") -> str:
    return EventLines().format_line(Envelope(1, 0.0, "s", event, agent))  # pyright: ignore[reportArgumentType]


@each(
    ("event", "said"),
    [
        (Warned("Mind the gap."), "Mind the gap."),
        (HookRan("tool_call", "lint", "failed", "no JSON"), ""),
        (HookRan("stop", "lint", "timed_out"), ""),
        (HookRan("tool_call", "lint", "denied", "not today"), "Hook lint (tool_call) denied it: not today"),
        (HookRan("tool_call", "lint", "denied"), "Hook lint (tool_call) denied it"),
        (HookRan("stop", "lint", "halted", "enough"), "Hook lint (stop) ended the turn: enough"),
        (HookRan("tool_call", "lint", "silent"), "Hook lint (tool_call) had no effect."),
        (HookRan("tool_call", "lint", "allowed"), ""),
        (RuleAdded("Bash(make)", "allow", "project"), "Rule added for this project: allow Bash(make)"),
        (RuleAdded("Bash(make)", "allow", role="builder"), "Rule added for this session: allow Bash(make)"),
        (
            RuleAdded("Bash(make)", "allow", role="docs"),
            "Rule added for this session in the role docs: allow Bash(make)",
        ),
        (RuleRemoved("Bash(make)", "deny", "user"), "Rule removed for all projects: deny Bash(make)"),
        (
            ToolEnded("c", "Bash", "denied", "Denied by rule Bash(x): no.\nNothing was done."),
            "Bash was not run. Denied by rule Bash(x): no.",
        ),
        (
            ToolEnded("c", "Read", "success", "…", redacted=("an API key", "a token")),
            "Redacted from the result of Read: an API key, a token.",
        ),
        (ToolEnded("c", "Bash", "success", "…", for_user="Check .envrc."), "Check .envrc."),
        (ToolEnded("c", "Bash", "error", "…", for_user="Check .envrc."), "Check .envrc."),
        (ToolEnded("c", "Read", "success", "fine"), ""),
        (TextStreamed("fine"), ""),
    ],
)
def test_event_is_formatted(event: Event, said: str) -> None:
    assert format_event(event) == said


def test_denial_of_a_hook_is_reported_once_with_the_call() -> None:
    event_lines = EventLines()
    events = [
        HookRan("tool_call", "guard", "denied", "not today", "c"),
        ToolEnded("c", "Bash", "denied", "Denied by a hook: not today"),
        HookRan("tool_result", "lint", "denied", "ugly", "d"),
        ToolEnded("d", "Bash", "success", "ok"),
    ]
    lines = [event_lines.format_line(Envelope(1, 0.0, "s", event)) for event in events]
    assert [line for line in lines if line] == [
        "Bash was not run. Hook guard (tool_call) denied it: not today",
        "Hook lint (tool_result) denied it: ugly",
    ]


@pytest.mark.parametrize(("reason", "said"), [("", "You denied it."), ("not here", "You denied it: not here")])
def test_denial_of_the_user_is_reported_with_the_reason(reason: str, said: str) -> None:
    event_lines = EventLines()
    assert (
        event_lines.format_line(Envelope(1, 0.0, "s", PermissionAnswered("a", "c", allowed=False, reason=reason))) == ""
    )
    ended = ToolEnded("c", "Bash", "denied", f"The user denied this tool call: {reason}\nIt was not run.")
    assert event_lines.format_line(Envelope(2, 0.0, "s", ended)) == f"Bash was not run. {said}"


def test_late_denial_of_a_hook_is_not_reported() -> None:
    event_lines = EventLines()
    event_lines.format_line(Envelope(1, 0.0, "s", HookRan("wait_confirm", "guard", "denied", "no", "c")))
    assert event_lines.format_line(Envelope(2, 0.0, "s", ToolEnded("c", "Bash", "success", "ok"))) == ""


def test_line_of_a_sub_agent_starts_with_its_name() -> None:
    assert format_event(Warned("Mind the gap."), "explorer") == "[explorer] Mind the gap."


def test_call_denied_without_a_user_is_reported(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([call("ExecuteCommand", {"command": "touch made"}), say("Oh.")]) as server:
        ran = run_odin("-p", "Go.", env=server.env("anthropic"))
    assert ran.stdout == "Oh.\n"
    assert "It requires confirmation: created made. No user can be asked here" in ran.stderr
    assert "with --yes." in ran.stderr
    assert not (workspace / "made").exists()


def test_call_denied_before_it_runs_without_a_user_is_reported(run_odin: Run, workspace: Path) -> None:
    with ScriptedServer([call("ExecuteCommand", {"command": "touch made"}), say("Oh.")]) as server:
        ran = run_odin("-p", "Go.", "--commands-ask", "before", env=server.env("anthropic"))
    assert ran.stdout == "Oh.\n"
    assert "Bash was not run. It requires confirmation: " in ran.stderr
    assert "No user can be asked here" in ran.stderr
    assert not (workspace / "made").exists()


def test_call_denied_by_a_rule_is_reported(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"ForbiddenCommands": ["touch"]}))
    with ScriptedServer([call("ExecuteCommand", {"command": "touch made"}), say("Oh.")]) as server:
        ran = run_odin("-p", "Go.", "--yes", env=server.env("anthropic"))
    assert "Bash was not run. Denied" in ran.stderr
    assert not (workspace / "made").exists()
