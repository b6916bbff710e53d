"""Switching, forking, exporting and deleting sessions in plain mode."""

import json
import re
from pathlib import Path

from odin.session.store import SessionStore
from odin.testing import ScriptedServer, say
from tests.ui.pseudo_terminal import PseudoTerminal, open_terminal

PROMPT = "edit> "


def _send_prompt(terminal: PseudoTerminal, text: str, answer: str) -> None:
    times = terminal.shown.count(PROMPT)
    terminal.type(f"{text}\n")
    terminal.see(answer)
    terminal.see(PROMPT, times + 1)


def _run_command(terminal: PseudoTerminal, command: str, shown: str) -> str:
    """Type a command, wait for its output and return what was shown since."""
    before = len(terminal.shown)
    terminal.type(f"{command}\n")
    terminal.match(f"(?s).{{{before},}}{shown}")
    return terminal.shown[before:]


def _list_session_ids(home: Path, workspace: Path) -> list[str]:
    return sorted(entry.id for entry in SessionStore(home / ".local/state/odin", str(workspace)).list())


def test_new_sessions_and_resume_commands(workspace: Path, home: Path) -> None:
    script = [say("Answer one."), say("Answer two."), say("Answer three.")]
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see(PROMPT)
        _send_prompt(terminal, "mend the login page", "Answer one.")
        _run_command(terminal, "/permissions acceptEdits", "Permission mode: acceptEdits")
        _run_command(terminal, "/new", r"New session \d+\s+Permission mode: default")
        _send_prompt(terminal, "paint it blue", "Answer two.")
        first, _second = _list_session_ids(home, workspace)
        assert "login" not in server.requests[1].body.decode()
        listed = _run_command(terminal, "/sessions", f"{first}.*mend the login page.*edit> ")
        assert "(1 prompt, current)" in listed
        assert _run_command(terminal, "/sessions answer one", "answer: Answer one.")
        _run_command(terminal, "/resume nowhere", "There is no session nowhere")
        _run_command(terminal, "/resume", "or Enter to cancel: ")
        _run_command(terminal, "blue", "No matching sessions.")
        _run_command(terminal, "login", f"1  {first}")
        _run_command(terminal, "1", f"Resumed {first}: .*1 prompt")
        _send_prompt(terminal, "go on", "Answer three.")
        assert "mend the login page" in server.requests[2].body.decode()
        assert "paint it blue" not in server.requests[2].body.decode()
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0
        assert server.rejected == []


def test_fork_puts_the_prompt_into_the_input_line(workspace: Path, home: Path) -> None:
    script = [say("Answer one."), say("Answer two."), say("Answer three.")]
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal,
    ):
        terminal.see(PROMPT)
        _send_prompt(terminal, "xalpha", "Answer one.")
        _send_prompt(terminal, "xbeta", "Answer two.")
        _run_command(terminal, "/fork 7", "No prompt number 7")
        _run_command(terminal, "/fork 1", "edit> xbeta")
        terminal.type(" and xgamma\n")
        terminal.see("Answer three.")
        sent = server.requests[2].body.decode()
        assert "xalpha" in sent
        assert "xbeta and xgamma" in sent
        assert "Answer two." not in sent
        original, copy = _list_session_ids(home, workspace)
        assert "xgamma" not in (SessionStore(home / ".local/state/odin", str(workspace)).get_path(original)).read_text()
        _run_command(terminal, "/rename My \x1b[31mtitle", "Renamed this session to My")
        _run_command(terminal, f"/delete {copy}", "The current session cannot be deleted")
        _run_command(terminal, f"/delete {original}", f"Deleted session {original}")
        assert _list_session_ids(home, workspace) == [copy]
        path = re.search(r"Exported to (\S+)", _run_command(terminal, "/export out.json", r"Exported to \S+json"))
        assert path is not None
        assert json.loads((workspace / "out.json").read_text())
        terminal.type("/exit\n")
        assert terminal.wait_for_exit()[0] == 0


def test_resume_flag_without_an_id_shows_a_choice(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        for text in ("about apples", "about pears"):
            with open_terminal("-p", text, cwd=workspace, env=server.env("anthropic")) as terminal:
                assert terminal.wait_for_exit()[0] == 0
        with open_terminal("--resume", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal:
            terminal.see("or Enter to cancel: ")
            terminal.type("apples\n")
            terminal.see("or Enter to cancel: ", 2)
            terminal.type("1\n")
            terminal.see(PROMPT)
            _send_prompt(terminal, "more", "three")
            assert "about apples" in server.requests[2].body.decode()
            terminal.type("/exit\n")
            assert terminal.wait_for_exit()[0] == 0
        with open_terminal("--resume", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal:
            terminal.see("or Enter to cancel: ")
            terminal.type("\n")
            assert terminal.wait_for_exit()[0] == 0


def test_fork_flags_put_the_prompt_into_the_input_line(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        env = server.env("anthropic")
        for args in (["-p", "xalpha"], ["-p", "xbeta", "--continue"]):
            with open_terminal(*args, cwd=workspace, env=env) as terminal:
                assert terminal.wait_for_exit()[0] == 0
        (original,) = _list_session_ids(home, workspace)
        flags = ("--resume", original, "--fork-session", "--at", "1")
        with open_terminal(*flags, cwd=workspace, env=env, with_stdout=True) as terminal:
            terminal.see("xalpha, 1 prompt")
            terminal.see("edit> xbeta")
            terminal.type("\x15only xgamma\n")
            terminal.see("three")
            terminal.type("/exit\n")
            assert terminal.wait_for_exit()[0] == 0
        sent = server.requests[2].body.decode()
        assert "xalpha" in sent
        assert "only xgamma" in sent
        assert "xbeta" not in sent
        assert server.rejected == []


def test_forked_prompt_of_several_lines_is_edited(workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        env = {**server.env("anthropic"), "EDITOR": "", "VISUAL": ""}
        with open_terminal("-p", "first row\n\tsecond row", cwd=workspace, env=env) as terminal:
            assert terminal.wait_for_exit()[0] == 0
        with open_terminal("--continue", cwd=workspace, env=env, with_stdout=True) as terminal:
            terminal.see(PROMPT)
            terminal.type("/fork 1\n")
            terminal.match(r"edit> first row\r\n +second row$")
            terminal.type(", changed\n")
            terminal.see("two\r\n")
            terminal.type("/exit\n")
            assert terminal.wait_for_exit()[0] == 0
        assert "first row\\n\\tsecond row, changed" in server.requests[1].body.decode()


def test_delete_needs_the_session_id(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        with open_terminal("-p", "about apples", cwd=workspace, env=server.env("anthropic")) as terminal:
            assert terminal.wait_for_exit()[0] == 0
        with open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as terminal:
            terminal.see(PROMPT)
            (apples,) = _list_session_ids(home, workspace)
            _run_command(terminal, "/delete pears", "No other session pears")
            _run_command(terminal, "/delete apples", f"Type /delete {apples} to delete it permanently.")
            assert _list_session_ids(home, workspace) == [apples]
            _run_command(terminal, f"/delete {apples}", f"Deleted session {apples}.")
            assert _list_session_ids(home, workspace) == []
            _run_command(terminal, "about plums", "two")
            _run_command(terminal, "/delete plums", "No other session plums")
            terminal.type("/exit\n")
            assert terminal.wait_for_exit()[0] == 0
