"""Every key of the permission request in plain mode, in a real terminal."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.sandbox.processes import is_running
from tests.ui.pseudo_terminal import PseudoTerminal, open_terminal
from tests.waiting import wait_until

QUESTION_END = "say why not: "
BEFORE = ("--commands-ask", "before")


def make_touch_call(name: str, id: str = "toolu_c") -> Turn:
    return call("ExecuteCommand", {"command": f"touch {name}"}, id=id)


def read_offered_rule(terminal: PseudoTerminal, number: int = 1) -> str:
    """Wait for the choice of rules, and return the rule with this number."""
    found = re.findall(rf"^  {number}\. (.*)\r$", terminal.see("[b]ack: "), re.MULTILINE)
    return found[-1]


@pytest.mark.parametrize(
    ("typed", "told", "reason"),
    [
        ("n\n", "The user denied this tool call. It was not run.", ""),
        ("n use another name\n", "The user denied this tool call: use another name", "use another name"),
        ("not in here, please\n", "The user denied this tool call: not in here, please", "not in here, please"),
        ("\x04", "The user denied this tool call. It was not run.", ""),
    ],
)
@pytest.mark.parametrize("when", ["before", "effects"])
def test_denial_and_its_reason_reach_the_model_and_the_user(
    workspace: Path, when: str, typed: str, told: str, reason: str
) -> None:
    with (
        ScriptedServer([make_touch_call("made"), say("So be it.")]) as server,
        open_terminal("-p", "Go.", "--commands-ask", when, cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type(typed)
        assert terminal.wait_for_exit() == (4, "So be it.\n")
        result = server.requests[1].results["toolu_c"]
        if when == "before":
            assert told in result
            assert "Bash was not run. You denied it" in terminal.shown
        else:
            assert "[The user discarded: created made. The project is unchanged." in result
            assert (f"The user says: {reason}]" in result) == bool(reason)
            said = f" You said: {reason}" if reason else ""
            assert f"\r\nYou discarded: created made. The project is unchanged.{said}\r\n" in terminal.shown
    assert not (workspace / "made").exists()


@pytest.mark.parametrize("typed", ["x\n", "yes please\n", "7\n", "\x1b[A\n"])
def test_a_wrong_key_is_explained_and_decides_nothing(workspace: Path, typed: str) -> None:
    with (
        ScriptedServer([make_touch_call("made"), say("Done.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type(typed)
        terminal.see(QUESTION_END, 2)
        assert not (workspace / "made").exists()
        terminal.type("y\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
    assert (workspace / "made").exists()


def test_help_and_view_keep_the_request_open(workspace: Path) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "a\x1bb\n"}, id="toolu_w")
    with (
        ScriptedServer([write, say("Done.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("?\n")
        assert "y    allow once" in terminal.see(QUESTION_END, 2)
        terminal.type("v\n")
        shown = terminal.see(QUESTION_END, 3)
        terminal.type("y\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
    assert "content:\r\n  | a\\x1bb\r\n" in shown
    assert "\x1bb" not in shown


@pytest.mark.parametrize(
    ("key", "scope", "told"),
    [
        ("s", "session", "for this session"),
        ("p", "project", "for this project"),
        ("u", "user", "for all projects"),
    ],
)
def test_allow_adds_the_rule_that_was_shown(workspace: Path, key: str, scope: str, told: str) -> None:
    script = [make_touch_call("made"), make_touch_call("made", "toolu_2"), say("Done.")]
    with (
        ScriptedServer(script) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type(f"{key}\n")
        terminal.see(f"Allow and add a rule {told}:")
        rule = read_offered_rule(terminal)
        terminal.type("1\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
        assert terminal.shown.count(QUESTION_END) == 1
        assert f"Rule added {told}: allow {rule}\r\n" in terminal.shown
    assert "touch made" in rule


def test_project_rule_applies_in_the_next_run(workspace: Path) -> None:
    with ScriptedServer([make_touch_call("made"), say("Done."), make_touch_call("made"), say("Again.")]) as server:
        with open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal:
            terminal.see(QUESTION_END)
            terminal.type("p\n")
            terminal.see("[b]ack: ")
            terminal.type("\n")
            assert terminal.wait_for_exit() == (0, "Done.\n")
        (workspace / "made").unlink()
        with open_terminal("-p", "Again.", cwd=workspace, env=server.env("anthropic")) as terminal:
            assert terminal.wait_for_exit() == (0, "Again.\n")
            assert QUESTION_END not in terminal.shown
    assert (workspace / "made").exists()


def test_back_from_the_rule_choice_keeps_the_request_open(workspace: Path) -> None:
    with (
        ScriptedServer([make_touch_call("made"), say("Done.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("s\n")
        terminal.see("[b]ack: ")
        terminal.type("b\n")
        terminal.see(QUESTION_END, 2)
        terminal.type("n\n")
        assert terminal.wait_for_exit() == (4, "Done.\n")
        assert "Rule added" not in terminal.shown
    assert not (workspace / "made").exists()


def test_rule_can_be_edited_before_it_is_added(workspace: Path) -> None:
    script = [make_touch_call("one"), make_touch_call("two", "toolu_2"), say("Done.")]
    with (
        ScriptedServer(script) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("s\n")
        rule = read_offered_rule(terminal)
        terminal.type("e\n")
        terminal.see(f"Rule: {rule}")
        terminal.type("\x7f" * len(rule) + "Bash(touch:*)\n")
        terminal.see("  1. Bash(touch:*)\r\n")
        terminal.type("\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
        assert terminal.shown.count(QUESTION_END) == 1
        assert "Rule added for this session: allow Bash(touch:*)" in terminal.shown
    assert (workspace / "two").exists()


def test_deny_can_add_a_rule(workspace: Path) -> None:
    script = [make_touch_call("made"), make_touch_call("made", "toolu_2"), say("Done.")]
    with (
        ScriptedServer(script) as server,
        open_terminal("-p", "Go.", *BEFORE, cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("d\n")
        terminal.see("Deny and add a rule:")
        rule = read_offered_rule(terminal)
        terminal.type("1\n")
        terminal.see("all projects of this [u]ser: ")
        terminal.type("\n")
        assert terminal.wait_for_exit() == (4, "Done.\n")
        assert terminal.shown.count(QUESTION_END) == 1
        assert f"Rule added for this project: deny {rule}\r\n" in terminal.shown
        assert "enied" in server.requests[2].results["toolu_2"]
    assert not (workspace / "made").exists()


@pytest.mark.parametrize("when", ["before", "effects"])
def test_command_is_edited_in_the_input_line(workspace: Path, when: str) -> None:
    with (
        ScriptedServer([make_touch_call("one"), say("Done.")]) as server,
        open_terminal(
            *("-p", "Go.", "--commands-ask", when),
            cwd=workspace,
            env={**server.env("anthropic"), "VISUAL": "", "EDITOR": ""},
        ) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("e\n")
        terminal.see("command: touch one")
        terminal.type("\x7f\x7f\x7ftwo\n")
        terminal.see("  | -touch one\r\n  | +touch two\r\n")
        assert b"  | \x1b[31m-touch one\x1b[0m\r\n" in terminal.raw
        terminal.type("y\n")
        if when == "effects":  # it ran again in a fresh view, and what that run changed is a new question
            assert "Created:\r\n  | two\r\n" in terminal.see(QUESTION_END, 2)
            terminal.type("y\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
    assert not (workspace / "one").exists()
    assert (workspace / "two").exists()


def test_arguments_are_edited_in_the_editor(workspace: Path, tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    seen = tmp_path / "seen"
    editor.write_text(
        f'#!/bin/sh\nstat -c %a "$(dirname "$1")" >{shlex.quote(str(seen))}\nsed -i s/one/two/ "$1"\ntest -t 0\n'
    )
    editor.chmod(0o755)
    write = call("WriteFile", {"file_path": str(workspace / "one"), "content": "of one\n"}, id="toolu_w")
    with (
        ScriptedServer([write, say("Done.")]) as server,
        open_terminal(
            "-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": shlex.quote(str(editor))}
        ) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("e\n")
        shown = terminal.see("or Enter to go back: ")
        terminal.type("e file_path\n")
        again = terminal.see("or Enter to go back: ", 2)
        terminal.type("y\n")
        assert terminal.wait_for_exit() == (0, "Done.\n")
    change = "  | @@ -1,2 +1,2 @@\r\n  | -of one\r\n  | +of two\r\n"
    assert f"Changed content:\r\n{change}" in shown
    assert "Changed file_path, content:\r\n" in again
    assert (workspace / "two").read_text() == "of two\n"
    assert seen.read_text() == "700\n"


@pytest.mark.parametrize(
    ("typed", "editor", "said"),
    [
        ("e", "false", "The editor false failed with exit code 1; nothing was changed."),
        ("e", "true", "Nothing changed."),
        ("e", "/no/such/editor", "Cannot start the editor"),
        ("e all", "sed -i s/{/[/", "Invalid JSON"),
        ("e all", "sed -i '1 s/.*/7/; 2,$ d'", "must be a JSON object"),
        ("e", "it's", "Cannot parse $VISUAL"),
    ],
)
def test_failed_or_unchanged_edit_keeps_the_request_open(workspace: Path, typed: str, editor: str, said: str) -> None:
    with (
        ScriptedServer([make_touch_call("made"), say("Done.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": editor}) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type(f"{typed}\n")
        assert said in terminal.see(QUESTION_END, 2)
        terminal.type("n\n")
        assert terminal.wait_for_exit() == (4, "Done.\n")
    assert not (workspace / "made").exists()


def test_multiline_command_cannot_be_edited_without_an_editor(workspace: Path) -> None:
    command = call("ExecuteCommand", {"command": "touch one\ntouch two"}, id="toolu_c")
    with (
        ScriptedServer([command, say("Done.")]) as server,
        open_terminal(
            "-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": "", "EDITOR": ""}
        ) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("e\n")
        assert "Set $EDITOR" in terminal.see(QUESTION_END, 2)
        terminal.type("n\n")
        terminal.wait_for_exit()


def test_keys_typed_before_the_rule_choice_are_ignored(workspace: Path) -> None:
    """The user has not seen the rules when these keys arrive."""
    with (
        ScriptedServer([make_touch_call("made"), say("Done.")]) as server,
        open_terminal("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("s\n1\n")
        terminal.see("[b]ack: ")
        terminal.type("b\n")
        terminal.see(QUESTION_END, 2)
        terminal.type("n\n")
        assert terminal.wait_for_exit() == (4, "Done.\n")
    assert not (workspace / "made").exists()


def test_unanswered_request_is_denied_after_the_timeout(workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"confirm_timeout_s": 1}))
    with (
        ScriptedServer([make_touch_call("made"), say("Nobody there.")]) as server,
        open_terminal("-p", "Go.", *BEFORE, cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.see("Bash was not run. Denied: the permission request timed out.")
        assert terminal.wait_for_exit() == (4, "Nobody there.\n")
        assert "timed out" in server.requests[1].results["toolu_c"]
    assert not (workspace / "made").exists()


def test_timeout_ends_an_open_editor(workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"confirm_timeout_s": 2}))
    editor = f"sleep {600 + os.getpid() / 1e7:.7f}"
    with (
        ScriptedServer([make_touch_call("made"), say("Nobody there.")]) as server,
        open_terminal(
            "-p", "Go.", *BEFORE, cwd=workspace, env={**server.env("anthropic"), "VISUAL": f"sh -c '{editor}'"}
        ) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("e\n")
        terminal.see("Bash was not run. Denied: the permission request timed out.")
        assert terminal.wait_for_exit() == (4, "Nobody there.\n")
        wait_until(lambda: not is_running(editor))


def test_ctrl_c_while_editing_a_command_restores_the_keyboard(workspace: Path) -> None:
    with (
        ScriptedServer([make_touch_call("made"), say("Here.")]) as server,
        open_terminal(
            *BEFORE, cwd=workspace, env={**server.env("anthropic"), "VISUAL": "", "EDITOR": ""}, with_stdout=True
        ) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        terminal.see(QUESTION_END)
        terminal.type("e\n")
        terminal.see("command: touch made")
        terminal.type("\x03")
        terminal.see("Interrupted.\r\nedit> ")
        terminal.type("are you there\n")
        terminal.see("edit> are you there\r\n")
        terminal.see("Here.")
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert "interrupted before this call began" in server.requests[1].results["toolu_c"]
    assert not (workspace / "made").exists()


def test_request_wraps_between_words_at_eighty_columns(workspace: Path) -> None:
    command = call("ExecuteCommand", {"command": f"touch {'x' * 100} made"}, id="toolu_c")
    with (
        ScriptedServer([command, say("Done.")]) as server,
        open_terminal("-p", "Go.", *BEFORE, cwd=workspace, env=server.env("anthropic"), columns=80) as terminal,
    ):
        terminal.see(QUESTION_END)
        terminal.type("n it has a name that nobody could ever read aloud without taking a breath or two\n")
        terminal.wait_for_exit()
    question, _, after = terminal.shown.partition("Odin asks: ")[2].partition(QUESTION_END)
    assert all(len(row) < 80 for row in question.split("\r\n"))
    assert re.search(r"  \| touch x+\r\n  : x+ made\r\n", question)
    told = after.partition("Bash was not run. ")[2].replace("\r\n", " ")
    assert "You denied it: it has a name that nobody could ever read aloud without taking a breath" in told
