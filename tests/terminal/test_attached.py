"""A session in two terminals: `odin -r` and `odin attach` on one that another process has open."""

import os
import re
import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from odin.testing import ScriptedServer, call, say
from tests.terminal import emulator
from tests.ui.pseudo_terminal import PseudoTerminal, open_terminal
from tests.waiting import LIMIT_S, wait_until


def find_session(home: Path) -> str:
    found = [path.parent.name for path in home.glob(".local/state/odin/sessions/*/*/main.jsonl")]
    assert len(found) == 1, found
    return found[0]


def leave(terminal: PseudoTerminal) -> None:
    terminal.type("/exit\n")
    assert terminal.wait_for_exit()[0] == 0
    assert "Traceback" not in terminal.shown


def test_plain_mode_that_joins_in_the_middle_of_a_turn_shows_it(workspace: Path, home: Path) -> None:
    gate = threading.Event()
    script = [
        say("An old answer."),
        call("Bash", {"command": "echo first", "description": "begin"}, text="I look first."),
        say("The answer is long.\n\nAnd it ends here.", chunk=4).hold(gate, after=11),
    ]
    with (
        ScriptedServer(script) as server,
        open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as holder,
    ):
        holder.type("the first prompt\n")
        holder.see("An old answer.")
        holder.type("the second prompt\n")
        holder.see("The answer is")
        with open_terminal(
            "-r", find_session(home), cwd=workspace, env=server.env("anthropic"), with_stdout=True
        ) as joined:
            seen = joined.see("The answer is")
            assert "I look first." in seen and "the second prompt" in seen
            assert "ends here" not in seen
            joined.type("what next?\n")
            joined.see("Queued #1: what next?")
            gate.set()
            for terminal in (joined, holder):
                terminal.see("And it ends here.")
            leave(joined)
            assert "the first prompt" not in joined.shown.partition("second prompt")[2]
        leave(holder)


def test_plain_mode_that_joins_asks_what_was_asked_before(workspace: Path, home: Path) -> None:
    script = [call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "x"}), say("Written.")]
    with (
        ScriptedServer(script) as server,
        open_terminal(cwd=workspace, env=server.env("anthropic"), with_stdout=True) as holder,
    ):
        holder.type("write\n")
        holder.see("new.txt")
        wait_until(lambda: bool(list(home.glob(".local/state/odin/sessions/*/*/main.jsonl"))))
        session = find_session(home)
        with open_terminal("attach", session, "--plain", cwd=workspace, env={}, with_stdout=True) as joined:
            joined.see("new.txt")
            joined.match(r"[Yy]es|Allow")
            joined.type("y\n")
            for terminal in (joined, holder):
                terminal.see("Written.")
            assert (workspace / "new.txt").read_text() == "x"
            leave(joined)
        leave(holder)


@contextmanager
def hold(server: ScriptedServer, workspace: Path, home: Path) -> Generator[tuple[PseudoTerminal, str]]:
    """Give a terminal in plain mode, which has answered one prompt, and its session."""
    with open_terminal("--yes", cwd=workspace, env=server.env("anthropic"), with_stdout=True) as holder:
        holder.type("the first prompt\n")
        holder.see("An old answer.")
        wait_until(lambda: "end_turn" in next(home.glob(".local/state/odin/sessions/*/*/main.jsonl")).read_text())
        yield holder, find_session(home)


def test_headless_prompts_the_open_session_and_no_attach_refuses(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("An old answer."), say("One more."), say("And one.")]) as server:
        env = server.env("anthropic")
        with hold(server, workspace, home) as (holder, session):
            with open_terminal("-p", "again", "-r", session, cwd=workspace, env=env) as other:
                assert other.wait_for_exit() == (0, "One more.\n")
            holder.see("edit> again\r\nOne more.")
            with open_terminal("-p", "refused", "-r", session, "--no-attach", cwd=workspace, env=env) as other:
                code, printed = other.wait_for_exit()
            assert code != 0 and printed == ""
            place = (
                rf"PID {holder.process.pid} on {re.escape(os.uname().nodename)} since \d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d"
            )
            assert re.search(rf"Session {session} is already open in another process \({place}\)", other.shown)
            holder.type("and then\n")
            holder.see("And one.")
            leave(holder)
        assert len(server.requests) == 3


def test_continue_attaches_to_an_idle_session_and_not_to_one_at_work(workspace: Path, home: Path) -> None:
    gate = threading.Event()
    script = [
        say("Older."),
        say("An old answer."),
        say("From the other."),
        say("Busy.").hold(gate),
        say("In the older."),
    ]
    with ScriptedServer(script) as server:
        env = server.env("anthropic")
        with open_terminal("-p", "older", cwd=workspace, env=env) as first:
            assert first.wait_for_exit() == (0, "Older.\n")
        older = find_session(home)
        with open_terminal("--yes", cwd=workspace, env=env, with_stdout=True) as holder:
            holder.type("the first prompt\n")
            holder.see("An old answer.")
            with open_terminal("-c", "-p", "with you", cwd=workspace, env=env) as other:
                assert other.wait_for_exit() == (0, "From the other.\n")
            holder.see("edit> with you\r\nFrom the other.")
            holder.type("work\n")
            wait_until(lambda: len(server.requests) == 4)
            with open_terminal("-c", "-p", "without you", cwd=workspace, env=env) as other:
                assert other.wait_for_exit() == (0, "In the older.\n")
            assert "without you" in next(home.glob(f".local/state/odin/sessions/*/{older}/main.jsonl")).read_text()
            gate.set()
            holder.see("Busy.")
            leave(holder)


def test_the_holder_goes_on_when_the_attached_one_is_killed_and_the_other_way_round(
    workspace: Path, home: Path
) -> None:
    gate = threading.Event()
    script = [say("An old answer."), say("Not disturbed.").hold(gate), say("It goes on.")]
    with ScriptedServer(script) as server:
        env = server.env("anthropic")
        with hold(server, workspace, home) as (holder, session):
            with open_terminal("-r", session, cwd=workspace, env=env, with_stdout=True) as joined:
                joined.see("edit>")
                joined.type("work\n")
                wait_until(lambda: len(server.requests) == 2)
                joined.process.send_signal(signal.SIGKILL)
                joined.process.wait(LIMIT_S)
            gate.set()
            holder.see("Not disturbed.")
            with open_terminal("-r", session, cwd=workspace, env=env, with_stdout=True) as joined:
                joined.see("edit>")
                leave(holder)
                joined.see(
                    f"PID {holder.process.pid} has closed session {session}. `odin -r {session}` opens it again."
                )
                assert joined.wait_for_exit()[0] == 1
                assert "Traceback" not in joined.shown
            with open_terminal("-r", session, "-p", "more", cwd=workspace, env=env) as alone:
                assert alone.wait_for_exit() == (0, "It goes on.\n")


def test_a_killed_holder_ends_the_attached_one_with_a_sentence(workspace: Path, home: Path) -> None:
    with ScriptedServer([say("An old answer."), say("It goes on.")]) as server:
        env = server.env("anthropic")
        with hold(server, workspace, home) as (holder, session):
            with open_terminal("-r", session, cwd=workspace, env=env, with_stdout=True) as joined:
                joined.see("edit>")
                holder.process.send_signal(signal.SIGKILL)
                joined.see(f"PID {holder.process.pid}, which had session {session} open, is gone. `odin -r {session}`")
                assert joined.wait_for_exit()[0] == 1
                assert "Traceback" not in joined.shown
            with open_terminal("-r", session, "-p", "more", cwd=workspace, env=env) as alone:
                assert alone.wait_for_exit() == (0, "It goes on.\n")


def test_the_attached_app_shows_the_reply_so_far_and_does_what_the_app_does(workspace: Path, home: Path) -> None:
    gate = threading.Event()
    script = [
        say("An old answer."),
        say("The start of it.\n\nThe end of it.", chunk=4).hold(gate, after=10),
        call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "x"}),
        say("It is written."),
        say("In a new session."),
    ]
    with ScriptedServer(script) as server, hold(server, workspace, home) as (holder, session):
        env = server.env("anthropic")
        holder.type("go on\n")
        holder.see("The start of it.")
        with emulator.open_terminal("-r", session, cwd=workspace, env=env) as app:
            app.see("An old answer.", "The start of it.")
            assert "The end of it." not in app.text
            gate.set()
            app.see("The end of it.")
            holder.see("The end of it.")
            app.type("write it\r")
            app.see("It is written.")
            holder.see("It is written.")
            assert (workspace / "new.txt").exists()
            app.type("/undo\r")
            wait_until(lambda: not (workspace / "new.txt").exists())
            app.type("/rename The first one\r")
            app.see("Renamed this session")
            app.type("/export\r")
            wait_until(lambda: bool(list(workspace.glob(f"*{session}*"))))
            app.type("/fork\r")
            wait_until(lambda: len(list(home.glob(".local/state/odin/sessions/*/*/main.jsonl"))) == 2)
            app.type("/new\r")
            app.type("somewhere else\r")
            app.see("In a new session.")
            app.type(f"/resume {session}\r")
            app.see("The end of it.")
            app.type("\x04")
            assert app.wait_for_exit() == 0
        assert "somewhere else" not in holder.shown
        leave(holder)


def test_the_attached_app_says_that_the_session_was_closed(workspace: Path, home: Path) -> None:
    with (
        ScriptedServer([say("An old answer.")]) as server,
        hold(server, workspace, home) as (holder, session),
        emulator.open_terminal("attach", session, cwd=workspace, env=server.env("anthropic")) as app,
    ):
        app.see("An old answer.")
        leave(holder)
        app.see(f"has closed session {session}.", f"`odin -r {session}`")
        app.type("\x04")
        app.wait_for_exit()
