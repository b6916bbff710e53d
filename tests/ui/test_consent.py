"""Every key of the permission question, on a real terminal."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from odin.testing import ScriptedServer, Turn, call, say
from tests.sandbox.processes import running, wait_until
from tests.ui.pseudo import Screen, screen

ASKED = "say why not: "


def touch(name: str, id: str = "toolu_c") -> Turn:
    return call("ExecuteCommand", {"command": f"touch {name}"}, id=id)


def the_rule(terminal: Screen, number: int = 1) -> str:
    """The text of the rule that is offered under this number."""
    found = re.findall(rf"^  {number}\. (.*)\r$", terminal.see("[b]ack: "), re.MULTILINE)
    return found[-1]


@pytest.mark.parametrize(
    ("typed", "told"),
    [
        ("n\n", "The user said no. Nothing was done."),
        ("n use another name\n", "The user said no: use another name"),
        ("not in here, please\n", "The user said no: not in here, please"),
        ("\x04", "The user said no. Nothing was done."),
    ],
)
def test_a_no_reaches_the_model_with_its_reason_and_the_person_reads_it(workspace: Path, typed: str, told: str) -> None:
    with (
        ScriptedServer([touch("made"), say("So be it.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type(typed)
        assert terminal.end() == (0, "So be it.\n")
        assert told in server.requests[1].results["toolu_c"]
        assert "Bash was not run. You denied it" in terminal.shown
    assert not (workspace / "made").exists()


@pytest.mark.parametrize("typed", ["x\n", "yes please\n", "7\n", "\x1b[A\n"])
def test_a_wrong_key_is_explained_and_decides_nothing(workspace: Path, typed: str) -> None:
    with (
        ScriptedServer([touch("made"), say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type(typed)
        terminal.see(ASKED, 2)
        assert not (workspace / "made").exists()
        terminal.type("y\n")
        assert terminal.end() == (0, "Done.\n")
    assert (workspace / "made").exists()


def test_help_and_view_answer_nothing(workspace: Path) -> None:
    write = call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "a\x1bb\n"}, id="toolu_w")
    with (
        ScriptedServer([write, say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("?\n")
        assert "y    allow once" in terminal.see(ASKED, 2)
        terminal.type("v\n")
        shown = terminal.see(ASKED, 3)
        terminal.type("y\n")
        assert terminal.end() == (0, "Done.\n")
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
def test_a_yes_is_remembered_in_the_words_that_were_shown(workspace: Path, key: str, scope: str, told: str) -> None:
    script = [touch("made"), touch("made", "toolu_2"), say("Done.")]
    with (
        ScriptedServer(script) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type(f"{key}\n")
        terminal.see(f"Allow and add a rule {told}:")
        rule = the_rule(terminal)
        terminal.type("1\n")
        assert terminal.end() == (0, "Done.\n")
        assert terminal.shown.count(ASKED) == 1
        assert f"Rule added {told}: allow {rule}\r\n" in terminal.shown
    assert "touch made" in rule


def test_what_was_remembered_for_the_project_holds_in_the_next_run(workspace: Path) -> None:
    with ScriptedServer([touch("made"), say("Done."), touch("made"), say("Again.")]) as server:
        with screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal:
            terminal.see(ASKED)
            terminal.type("p\n")
            terminal.see("[b]ack: ")
            terminal.type("\n")
            assert terminal.end() == (0, "Done.\n")
        (workspace / "made").unlink()
        with screen("-p", "Again.", cwd=workspace, env=server.env("anthropic")) as terminal:
            assert terminal.end() == (0, "Again.\n")
            assert ASKED not in terminal.shown
    assert (workspace / "made").exists()


def test_going_back_from_a_rule_keeps_the_question_open(workspace: Path) -> None:
    with (
        ScriptedServer([touch("made"), say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("s\n")
        terminal.see("[b]ack: ")
        terminal.type("b\n")
        terminal.see(ASKED, 2)
        terminal.type("n\n")
        assert terminal.end() == (0, "Done.\n")
        assert "Rule added" not in terminal.shown
    assert not (workspace / "made").exists()


def test_a_rule_can_be_rewritten_before_it_is_kept(workspace: Path) -> None:
    script = [touch("one"), touch("two", "toolu_2"), say("Done.")]
    with (
        ScriptedServer(script) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("s\n")
        rule = the_rule(terminal)
        terminal.type("e\n")
        terminal.see(f"Rule: {rule}")
        terminal.type("\x7f" * len(rule) + "Bash(touch:*)\n")
        terminal.see("  1. Bash(touch:*)\r\n")
        terminal.type("\n")
        assert terminal.end() == (0, "Done.\n")
        assert terminal.shown.count(ASKED) == 1
        assert "Rule added for this session: allow Bash(touch:*)" in terminal.shown
    assert (workspace / "two").exists()


def test_a_no_can_be_remembered(workspace: Path) -> None:
    script = [touch("made"), touch("made", "toolu_2"), say("Done.")]
    with (
        ScriptedServer(script) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("d\n")
        terminal.see("Deny and add a rule:")
        rule = the_rule(terminal)
        terminal.type("1\n")
        terminal.see("all projects of this [u]ser: ")
        terminal.type("\n")
        assert terminal.end() == (0, "Done.\n")
        assert terminal.shown.count(ASKED) == 1
        assert f"Rule added for this project: deny {rule}\r\n" in terminal.shown
        assert "enied" in server.requests[2].results["toolu_2"]
    assert not (workspace / "made").exists()


def test_a_command_is_changed_on_the_line(workspace: Path) -> None:
    with (
        ScriptedServer([touch("one"), say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": "", "EDITOR": ""}) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("e\n")
        terminal.see("command: touch one")
        terminal.type("\x7f\x7f\x7ftwo\n")
        terminal.see("  | \x1b[31m-touch one\x1b[0m\r\n  | \x1b[32m+touch two\x1b[0m\r\n")
        terminal.type("y\n")
        assert terminal.end() == (0, "Done.\n")
    assert not (workspace / "one").exists()
    assert (workspace / "two").exists()


def test_arguments_are_changed_in_the_editor(workspace: Path, tmp_path: Path) -> None:
    editor = tmp_path / "my editor"
    seen = tmp_path / "seen"
    editor.write_text(
        f'#!/bin/sh\nstat -c %a "$(dirname "$1")" >{shlex.quote(str(seen))}\nsed -i s/one/two/ "$1"\ntest -t 0\n'
    )
    editor.chmod(0o755)
    write = call("WriteFile", {"file_path": str(workspace / "one"), "content": "of one\n"}, id="toolu_w")
    with (
        ScriptedServer([write, say("Done.")]) as server,
        screen(
            "-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": shlex.quote(str(editor))}
        ) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("e\n")
        shown = terminal.see("or Enter to go back: ")
        terminal.type("e file_path\n")
        again = terminal.see("or Enter to go back: ", 2)
        terminal.type("y\n")
        assert terminal.end() == (0, "Done.\n")
    change = "  | @@ -1,2 +1,2 @@\r\n  | \x1b[31m-of one\x1b[0m\r\n  | \x1b[32m+of two\x1b[0m\r\n"
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
def test_an_editor_that_gives_nothing_leaves_the_question_open(
    workspace: Path, typed: str, editor: str, said: str
) -> None:
    with (
        ScriptedServer([touch("made"), say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": editor}) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type(f"{typed}\n")
        assert said in terminal.see(ASKED, 2)
        terminal.type("n\n")
        assert terminal.end() == (0, "Done.\n")
    assert not (workspace / "made").exists()


def test_without_an_editor_only_a_command_of_one_line_can_be_changed(workspace: Path) -> None:
    command = call("ExecuteCommand", {"command": "touch one\ntouch two"}, id="toolu_c")
    with (
        ScriptedServer([command, say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": "", "EDITOR": ""}) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("e\n")
        assert "Set $EDITOR" in terminal.see(ASKED, 2)
        terminal.type("n\n")
        terminal.end()


def test_what_is_typed_too_early_is_no_answer_to_a_later_step(workspace: Path) -> None:
    """Keys for the rule that come with the key for the question are not taken: nobody had seen the rule."""
    with (
        ScriptedServer([touch("made"), say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("s\n1\n")
        terminal.see("[b]ack: ")
        terminal.type("b\n")
        terminal.see(ASKED, 2)
        terminal.type("n\n")
        assert terminal.end() == (0, "Done.\n")
    assert not (workspace / "made").exists()


def test_a_question_that_nobody_answers_in_time_is_taken_back(workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"confirm_timeout_s": 1}))
    with (
        ScriptedServer([touch("made"), say("Nobody there.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic")) as terminal,
    ):
        terminal.see(ASKED)
        terminal.see("Bash was not run. Denied: the permission request timed out.")
        assert terminal.end() == (0, "Nobody there.\n")
        assert "timed out" in server.requests[1].results["toolu_c"]
    assert not (workspace / "made").exists()


def test_an_editor_that_is_open_when_the_time_is_over_is_ended(workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text(json.dumps({"confirm_timeout_s": 2}))
    editor = f"sleep {600 + os.getpid() / 1e7:.7f}"
    with (
        ScriptedServer([touch("made"), say("Nobody there.")]) as server,
        screen("-p", "Go.", cwd=workspace, env={**server.env("anthropic"), "VISUAL": f"sh -c '{editor}'"}) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("e\n")
        terminal.see("Bash was not run. Denied: the permission request timed out.")
        assert terminal.end() == (0, "Nobody there.\n")
        wait_until(lambda: not running(editor))


def test_after_ctrl_c_on_a_line_that_is_changed_the_keyboard_is_as_before(workspace: Path) -> None:
    with (
        ScriptedServer([touch("made"), say("Here.")]) as server,
        screen(cwd=workspace, env={**server.env("anthropic"), "VISUAL": "", "EDITOR": ""}, all_of_it=True) as terminal,
    ):
        terminal.see("edit> ")
        terminal.type("go\n")
        terminal.see(ASKED)
        terminal.type("e\n")
        terminal.see("command: touch made")
        terminal.type("\x03")
        terminal.see("Interrupted.\r\nedit> ")
        terminal.type("are you there\n")
        terminal.see("edit> are you there\r\n")
        terminal.see("Here.")
        terminal.type("/exit\n")
        assert terminal.end()[0] == 0
        assert "interrupted before this call began" in server.requests[1].results["toolu_c"]
    assert not (workspace / "made").exists()


def test_at_eighty_columns_no_word_of_the_question_is_torn(workspace: Path) -> None:
    command = call("ExecuteCommand", {"command": f"touch {'x' * 100} made"}, id="toolu_c")
    with (
        ScriptedServer([command, say("Done.")]) as server,
        screen("-p", "Go.", cwd=workspace, env=server.env("anthropic"), columns=80) as terminal,
    ):
        terminal.see(ASKED)
        terminal.type("n it has a name that nobody could ever read aloud without taking a breath or two\n")
        terminal.end()
    question, _, after = terminal.shown.partition("Odin asks: ")[2].partition(ASKED)
    assert all(len(row) < 80 for row in question.split("\r\n"))
    assert re.search(r"  \| touch x+\r\n  : x+ made\r\n", question)
    told = after.partition("Bash was not run. ")[2].replace("\r\n", " ")
    assert "You denied it: it has a name that nobody could ever read aloud without taking a breath" in told
