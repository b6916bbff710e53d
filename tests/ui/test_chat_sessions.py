"""Going from session to session in a real terminal."""

import json
import re
from pathlib import Path

from odin.session.store import SessionStore
from odin.testing import ScriptedServer, say
from tests.ui.pseudo import Screen, screen

PROMPT = "edit> "


def _ask(terminal: Screen, text: str, answer: str) -> None:
    times = terminal.shown.count(PROMPT)
    terminal.type(f"{text}\n")
    terminal.see(answer)
    terminal.see(PROMPT, times + 1)


def _do(terminal: Screen, command: str, shown: str) -> str:
    """Type a command and wait for what it says."""
    before = len(terminal.shown)
    terminal.type(f"{command}\n")
    terminal.match(f"(?s).{{{before},}}{shown}")
    return terminal.shown[before:]


def _ids(home: Path, workspace: Path) -> list[str]:
    return sorted(entry.id for entry in SessionStore(home / ".local/state/odin", str(workspace)).list())


def test_new_resume_and_the_list(workspace: Path, home: Path) -> None:
    script = [say("Answer one."), say("Answer two."), say("Answer three.")]
    with (
        ScriptedServer(script) as server,
        screen("--yes", cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal,
    ):
        terminal.see(PROMPT)
        _ask(terminal, "mend the login page", "Answer one.")
        _do(terminal, "/new", r"New session \d+")
        _ask(terminal, "paint it blue", "Answer two.")
        first, _second = _ids(home, workspace)
        assert "login" not in server.requests[1].body.decode()
        listed = _do(terminal, "/sessions", f"{first}.*mend the login page.*edit> ")
        assert "(1 prompt, current)" in listed
        assert _do(terminal, "/sessions answer one", "answer: Answer one.")
        _do(terminal, "/resume nowhere", "There is no session nowhere")
        _do(terminal, "/resume", "or Enter to cancel: ")
        _do(terminal, "blue", "No matching sessions.")
        _do(terminal, "login", f"1  {first}")
        _do(terminal, "1", f"Resumed {first}: .*1 prompt")
        _ask(terminal, "go on", "Answer three.")
        assert "mend the login page" in server.requests[2].body.decode()
        assert "paint it blue" not in server.requests[2].body.decode()
        terminal.type("/exit\n")
        assert terminal.end()[0] == 0
        assert server.rejected == []


def test_a_fork_gives_the_prompt_back_to_be_changed(workspace: Path, home: Path) -> None:
    script = [say("Answer one."), say("Answer two."), say("Answer three.")]
    with (
        ScriptedServer(script) as server,
        screen("--yes", cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal,
    ):
        terminal.see(PROMPT)
        _ask(terminal, "xalpha", "Answer one.")
        _ask(terminal, "xbeta", "Answer two.")
        _do(terminal, "/fork 7", "No prompt number 7")
        _do(terminal, "/fork 1", "edit> xbeta")
        terminal.type(" and xgamma\n")
        terminal.see("Answer three.")
        sent = server.requests[2].body.decode()
        assert "xalpha" in sent
        assert "xbeta and xgamma" in sent
        assert "Answer two." not in sent
        original, copy = _ids(home, workspace)
        assert "xgamma" not in (SessionStore(home / ".local/state/odin", str(workspace)).path_of(original)).read_text()
        _do(terminal, "/rename My \x1b[31mtitle", "Renamed this session to My")
        _do(terminal, f"/delete {copy}", "The current session cannot be deleted")
        _do(terminal, f"/delete {original}", f"Deleted session {original}")
        assert _ids(home, workspace) == [copy]
        path = re.search(r"Exported to (\S+)", _do(terminal, "/export out.json", r"Exported to \S+json"))
        assert path is not None
        assert json.loads((workspace / "out.json").read_text())
        terminal.type("/exit\n")
        assert terminal.end()[0] == 0


def test_resume_without_an_id_lets_a_person_choose(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        for text in ("about apples", "about pears"):
            with screen("-p", text, cwd=workspace, env=server.env("anthropic")) as terminal:
                assert terminal.end()[0] == 0
        with screen("--resume", cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal:
            terminal.see("or Enter to cancel: ")
            terminal.type("apples\n")
            terminal.see("or Enter to cancel: ", 2)
            terminal.type("1\n")
            terminal.see(PROMPT)
            _ask(terminal, "more", "three")
            assert "about apples" in server.requests[2].body.decode()
            terminal.type("/exit\n")
            assert terminal.end()[0] == 0
        with screen("--resume", cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal:
            terminal.see("or Enter to cancel: ")
            terminal.type("\n")
            assert terminal.end()[0] == 0


def test_a_fork_from_the_command_line_begins_with_the_prompt_to_be_changed(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        env = server.env("anthropic")
        for args in (["-p", "xalpha"], ["-p", "xbeta", "--continue"]):
            with screen(*args, cwd=workspace, env=env) as terminal:
                assert terminal.end()[0] == 0
        (original,) = _ids(home, workspace)
        flags = ("--resume", original, "--fork-session", "--at", "1")
        with screen(*flags, cwd=workspace, env=env, all_of_it=True) as terminal:
            terminal.see("xalpha, 1 prompt")
            terminal.see("edit> xbeta")
            terminal.type("\x15only xgamma\n")
            terminal.see("three")
            terminal.type("/exit\n")
            assert terminal.end()[0] == 0
        sent = server.requests[2].body.decode()
        assert "xalpha" in sent
        assert "only xgamma" in sent
        assert "xbeta" not in sent
        assert server.rejected == []


def test_a_prompt_of_several_lines_comes_back_in_one_row_where_there_is_no_editor(workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        env = {**server.env("anthropic"), "EDITOR": "", "VISUAL": ""}
        with screen("-p", "first row\n\tsecond row", cwd=workspace, env=env) as terminal:
            assert terminal.end()[0] == 0
        with screen("--continue", cwd=workspace, env=env, all_of_it=True) as terminal:
            terminal.see(PROMPT)
            terminal.type("/fork 1\n")
            terminal.see("edit> first row↵ second row")
            terminal.type(", changed\n")
            terminal.see("two\r\n")
            terminal.type("/exit\n")
            assert terminal.end()[0] == 0
        assert "first row\\n\\tsecond row, changed" in server.requests[1].body.decode()


def test_words_alone_delete_nothing(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("one"), say("two")]) as server:
        with screen("-p", "about apples", cwd=workspace, env=server.env("anthropic")) as terminal:
            assert terminal.end()[0] == 0
        with screen(cwd=workspace, env=server.env("anthropic"), all_of_it=True) as terminal:
            terminal.see(PROMPT)
            (apples,) = _ids(home, workspace)
            _do(terminal, "/delete pears", "No session pears")
            _do(terminal, "/delete apples", f"Type /delete {apples} to delete it permanently.")
            assert _ids(home, workspace) == [apples]
            _do(terminal, f"/delete {apples}", f"Deleted session {apples}.")
            assert _ids(home, workspace) == []
            terminal.type("/exit\n")
            assert terminal.end()[0] == 0
