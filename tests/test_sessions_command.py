"""`odin sessions` and the flags that name a session, as a user runs them."""

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from odin.commands.command_line import ABOUT
from odin.commands.main import COMMANDS
from odin.session.lock import LockHolder, get_host_name, get_lock_path
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore
from odin.testing import ScriptedServer, say
from tests.session.logs import opened, titled, turn, write_session
from tests.waiting import LIMIT_S

from .conftest import Run, RunHere
from .ui.pseudo_terminal import ODIN, open_terminal


@pytest.fixture
def store(home: Path, workspace: Path) -> SessionStore:
    """Two sessions of this project and one of another."""
    store = SessionStore(home / ".local/state/odin", str(workspace))
    write_session(
        store, "aa1", [opened(), *turn("t1", "first prompt"), *turn("t2", "second prompt", "A marmalade.")], 1000
    )
    write_session(store, "bb2", [opened(), titled("Evil\x1b]0;x\x07 title\n two"), *turn("t1", "hello")], 2000)
    write_session(
        SessionStore(home / ".local/state/odin", "/elsewhere"), "cc3", [opened(), *turn("t1", "far away")], 3000
    )
    return store


def test_list_of_sessions(run_here: RunHere, store: SessionStore) -> None:
    code, stdout, _ = run_here("sessions")
    lines = stdout.splitlines()
    assert code == 0
    assert [line[:3] for line in lines] == ["bb2", "aa1"]
    assert "\x1b" not in stdout and "Evil\\x1b]0;x\\x07 title two" in lines[0]
    assert lines[1].endswith("first prompt  (2 prompts)")
    rows = json.loads(run_here("sessions", "list", "--json")[1])
    assert [(row["id"], row["turns"], row["locked"]) for row in rows] == [("bb2", 1, ""), ("aa1", 2, "")]
    assert [row["id"] for row in json.loads(run_here("sessions", "--all", "--json", "--limit", "2")[1])] == [
        "cc3",
        "bb2",
    ]
    held = store.open("aa1")
    held.hold()
    assert "open: PID" in run_here("sessions")[1]
    held.close()


def test_search_and_show(run_here: RunHere, store: SessionStore) -> None:
    code, stdout, _ = run_here("sessions", "search", "MARMALADE")
    assert code == 0
    assert stdout.splitlines()[0].startswith("aa1")
    assert stdout.splitlines()[1] == "    answer: A marmalade."
    assert run_here("sessions", "search", "nowhere")[1] == "No matching sessions.\n"
    assert run_here("sessions", "search")[0] == 2
    (match,) = json.loads(run_here("sessions", "search", "far", "away", "--all", "--json")[1])
    assert (match["session"]["id"], match["where"]) == ("cc3", "prompt")
    shown = run_here("sessions", "show", "aa")[1]
    assert "  2  first prompt\n" in shown
    assert "  1  second prompt\n     A marmalade.\n" in shown
    assert json.loads(run_here("sessions", "show", "aa1", "--json")[1])["prompts"][1]["body"] == "second prompt"
    code, _, stderr = run_here("sessions", "show", "zzz")
    assert (code, "There is no session zzz" in stderr) == (2, True)


def test_rename_and_its_errors(run_here: RunHere, store: SessionStore) -> None:
    assert run_here("sessions", "rename", "aa", "A", "better", "name") == (0, "Renamed session aa1.\n", "")
    assert SessionState.fold(read_log(store.get_path("aa1"))).title == "A better name"
    assert run_here("sessions", "rename", "aa")[0] == 2
    assert run_here("sessions", "rename", "aa", " ")[0] == 2
    assert run_here("sessions", "dance")[0] == 2
    held = store.open("aa1")
    held.hold()
    code, _, stderr = run_here("sessions", "rename", "aa", "No")
    assert (code, "already open" in stderr) == (1, True)
    held.close()


def test_fork_and_export(run_here: RunHere, store: SessionStore, workspace: Path) -> None:
    made = json.loads(run_here("sessions", "fork", "aa1", "--at", "1", "--json")[1])
    assert made["draft"] == "second prompt"
    assert [item.body for item in SessionState.fold(read_log(store.get_path(made["session"]))).turns] == [
        "first prompt"
    ]
    assert run_here("sessions", "fork", "aa1", "--at", "9")[0] == 2
    code, stdout, _ = run_here("sessions", "export", "aa1")
    assert code == 0
    assert "first prompt" in Path(stdout.strip()).read_text()
    code, stdout, _ = run_here("sessions", "export", "aa1", "-o", "out.html")
    assert stdout == f"{workspace / 'out.html'}\n"
    assert "<html" in (workspace / "out.html").read_text()


@pytest.mark.parametrize("how", [("--json",), ("--format", "json"), ("--json", "--format", "json"), ("-o", "a.json")])
def test_an_export_as_json(run_here: RunHere, store: SessionStore, workspace: Path, how: tuple[str, ...]) -> None:
    code, stdout, _ = run_here("sessions", "export", "aa1", *how)
    assert code == 0
    path = Path(stdout.removesuffix("\n"))
    assert path == (workspace / "a.json" if "-o" in how else workspace / "odin-aa1.json")
    written = json.loads(path.read_text())
    assert "second prompt" in str(written["messages"])
    assert written["session"] == "aa1"
    assert set(written["usage"]) >= {"input", "output"}


def test_export_in_two_formats_at_once_is_refused(run_here: RunHere, store: SessionStore) -> None:
    code, _, stderr = run_here("sessions", "export", "aa1", "--json", "--format", "html")
    assert (code, "cannot be combined" in stderr) == (2, True)


def test_delete(run_here: RunHere, store: SessionStore) -> None:
    code, _, stderr = run_here("sessions", "delete", "aa1")
    assert (code, "Add --yes to delete." in stderr) == (2, True)
    held = store.open("aa1")
    held.hold()
    code, stdout, stderr = run_here("sessions", "delete", "aa1", "bb2", "--yes")
    assert (code, stdout) == (1, "Deleted session bb2.\n")
    assert "already open" in stderr
    held.close()
    assert run_here("sessions", "delete", "../aa1", "--yes")[0] == 2
    assert run_here("sessions", "delete", "aa1", "--yes") == (0, "Deleted session aa1.\n", "")
    assert store.list() == ()


def test_delete_asks_for_confirmation(store: SessionStore, workspace: Path) -> None:
    for answer, left in (("n\n", ["bb2", "aa1"]), ("y\n", ["bb2"])):
        with open_terminal("sessions", "delete", "aa1", cwd=workspace, env={}, with_stdout=True) as terminal:
            terminal.see("Delete this session permanently? [y/N] ")
            terminal.type(answer)
            assert terminal.wait_for_exit()[0] == (1 if answer == "n\n" else 0)
        assert [entry.id for entry in store.list()] == left


def test_flags_that_name_a_session(run_odin: Run, run_odin_process: Run, store: SessionStore, workspace: Path) -> None:
    with ScriptedServer([say("one"), say("two"), say("three")]) as server:
        env = server.env("anthropic")
        assert run_odin("-p", "more", "--resume", "aa", env=env).stdout == "one\n"
        assert "second prompt" in server.requests[0].body.decode()
        held = store.open("aa1")
        held.hold()
        assert run_odin("-p", "go on", "--continue", env=env).stdout == "two\n"
        assert "hello" in server.requests[1].body.decode(), (
            "the latest session is open elsewhere, so the one before it is resumed"
        )
        done = run_odin_process("-p", "x", "--resume", "aa1", env=env)
        assert (done.returncode, done.stdout) == (1, "")
        assert "already open in another process (PID " in done.stderr
        held.close()
        fork = run_odin("-p", "instead", "--resume", "aa1", "--fork-session", "--at", "2", env=env)
        assert fork.stdout == "three\n"
        sent = server.requests[2].body.decode()
        assert "first prompt" in sent and "second prompt" not in sent
        assert server.rejected == []
    for args in (("--resume",), ("--resume", ""), ("--resume", "zz"), ("--resume", "aa1", "--at", "1")):
        assert run_odin("-p", "x", *args).returncode == 2, args


@pytest.mark.slow
def test_parallel_resumes_are_answered_or_refused_with_the_lock_holder(store: SessionStore, workspace: Path) -> None:
    with ScriptedServer(lambda request: say("yes")) as server:
        env = {**os.environ, **server.env("anthropic")}
        odins = [
            subprocess.Popen(
                [*ODIN, "-p", f"number {number}", "--resume", "aa1"],
                cwd=workspace,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(5)
        ]
        done = [(*odin.communicate(timeout=LIMIT_S), odin.returncode) for odin in odins]
        assert server.rejected == []
    answered = [number for number, (out, _, code) in enumerate(done) if (out, code) == ("yes\n", 0)]
    refused = [err for _, err, code in done if code == 1]
    assert answered
    assert len(answered) + len(refused) == len(done)
    assert all("already open in another process (PID " in err for err in refused)
    envelopes = list(read_log(store.get_path("aa1")))
    assert [item.seq for item in envelopes] == list(range(len(envelopes))), (
        "two processes must not write at the same time"
    )
    bodies = [item.body for item in SessionState.fold(envelopes).turns][2:]
    assert sorted(bodies) == [f"number {number}" for number in answered]


def test_continue_skips_a_locked_session_whose_lock_names_a_dead_process(run_odin: Run, store: SessionStore) -> None:
    held = store.open("bb2")
    held.hold()
    get_lock_path(held.path).write_bytes(msgspec.json.encode(LockHolder(2**22 + 1, get_host_name(), 1.0)))
    with ScriptedServer([say("one")]) as server:
        assert run_odin("-p", "go on", "--continue", env=server.env("anthropic")).stdout == "one\n"
        assert "second prompt" in server.requests[0].body.decode()
    held.close()


def test_continue_names_the_lock_holder_if_all_sessions_are_locked(run_odin: Run, store: SessionStore) -> None:
    held = [store.open(session) for session in ("aa1", "bb2")]
    for log in held:
        log.hold()
    with ScriptedServer([say("never")]) as server:
        done = run_odin("-p", "go on", "--continue", env=server.env("anthropic"))
        assert server.requests == []
    assert (done.returncode, done.stdout) == (2, "")
    assert f"bb2 is open in another process (PID {os.getpid()} on " in done.stderr
    for log in held:
        log.close()


def test_empty_list_of_sessions(run_here: RunHere) -> None:
    assert run_here("sessions") == (0, "No sessions yet.\n", "")
    assert json.loads(run_here("sessions", "--json")[1]) == []


def test_fork_session_without_a_session_is_refused(run_odin: Run) -> None:
    done = run_odin("-p", "hello", "--fork-session")
    assert done.returncode == 2
    assert "--fork-session requires --resume or --continue." in done.stderr


def test_the_help_names_every_command() -> None:
    assert [name for name in COMMANDS if f"\n  odin {name} " not in ABOUT] == []
