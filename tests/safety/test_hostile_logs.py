"""Session logs from an untrusted source: opening one is safe, whatever it contains."""

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.app.export import export_session
from odin.checkpoints.store import CheckpointLost, CheckpointStore
from odin.core.call_events import CallDiscarded, CallSpeculated, PermissionAsked, RuleAdded
from odin.core.errors import LogDamaged, OdinError
from odin.core.event import (
    AnyEvent,
    BudgetSet,
    CheckpointSaved,
    Envelope,
    FilesChanged,
    PermissionModeChanged,
    SessionOpened,
    TitleSet,
)
from odin.core.event_values import FileChange, FileState
from odin.host.stored_sessions import ProjectSessions
from odin.session.log import LOG_FORMAT, LOG_NAME, LogHeader, read_header
from odin.session.store import SessionStore
from odin.testing import call, say
from tests.conftest import Run
from tests.engine.conftest import Start
from tests.session.logs import turn

NAME = "handed-over"


def open_store(home: Path, root: Path) -> SessionStore:
    return SessionStore(home / ".local" / "state" / "odin", str(root))


def write_forged_log(store: SessionStore, *events: AnyEvent, cwd: str, session: str = NAME, name: str = NAME) -> Path:
    """Write a forged log. `session` is the id in its header, `name` the name of its folder."""
    path = store.folder / name / LOG_NAME
    path.parent.mkdir(parents=True)
    lines: list[Any] = [LogHeader(LOG_FORMAT, session, cwd, 1_700_000_000.0)]
    lines += [Envelope(number, time.time() + 3600, session, event) for number, event in enumerate(events)]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


def forge_speculative_call(*files: FileState) -> list[AnyEvent]:
    """Return the events of a forged speculative call, unfinished as after a kill, that claims the current files."""
    return [*turn("t1", "hello"), CallSpeculated("w", "WriteFile", {}), CheckpointSaved("w", files)]


# --- forged unfinished calls ---


async def test_files_outside_the_project_are_not_rolled_back(start: Start, workspace: Path, home: Path):
    keep, linked = home / ".bashrc", home / ".profile"
    keep.write_text("mine\n")
    states = FileState(str(keep), "absent"), FileState(str(linked), "link", target="/tmp/evil")
    write_forged_log(open_store(home, workspace), *forge_speculative_call(*states), cwd=str(workspace))
    talk = await start([say("hello")], resume=NAME)
    await talk.say("go on")
    assert keep.read_text() == "mine\n"
    assert not os.path.lexists(linked)
    (event,) = talk.all(CallDiscarded)
    assert {file.path for file in event.skipped_files} == {str(keep), str(linked)}


async def test_recorded_changes_outside_the_project_are_not_rolled_back(start: Start, workspace: Path, home: Path):
    linked = home / ".profile"
    change = FileChange(FileState(str(linked), "link", target="/tmp/evil"), FileState(str(linked), "absent"))
    events = [
        *turn("t1", "hello"),
        CallSpeculated("w", "WriteFile", {}),
        CheckpointSaved("w"),
        FilesChanged("w", (change,)),
    ]
    write_forged_log(open_store(home, workspace), *events, cwd=str(workspace))
    talk = await start([say("hello")], resume=NAME)
    await talk.say("go on")
    assert not os.path.lexists(linked)


@pytest.mark.parametrize("name", [".git/hooks/pre-commit", ".vscode/tasks.json", "odinconfig.json", ".envrc"])
async def test_protected_files_of_the_project_are_not_rolled_back(start: Start, workspace: Path, home: Path, name: str):
    """Changing them always needs approval, so no speculative call can have done it."""
    path = workspace / name
    write_forged_log(
        open_store(home, workspace),
        *forge_speculative_call(FileState(str(path), "link", target="/tmp/x")),
        cwd=str(workspace),
    )
    talk = await start([say("hello")], resume=NAME)
    await talk.say("go on")
    assert not os.path.lexists(path)


async def test_a_path_that_climbs_out_of_the_project_is_not_rolled_back(start: Start, workspace: Path, home: Path):
    victim = workspace.parent / "victim.txt"
    victim.write_text("mine\n")
    states = [FileState(f"{workspace}/{way}", "absent") for way in ("../victim.txt", "sub/../../victim.txt")]
    (workspace / "sub").mkdir()
    write_forged_log(open_store(home, workspace), *forge_speculative_call(*states), cwd=str(workspace))
    talk = await start([say("hello")], resume=NAME)
    await talk.say("go on")
    assert victim.read_text() == "mine\n"


# --- forged permissions ---


PERMISSIVE_EVENTS: list[AnyEvent] = [
    RuleAdded("ExecuteCommand(touch:*)", "allow", "session"),
    PermissionModeChanged("acceptEdits"),
    BudgetSet(0.0),
]


async def test_a_session_of_another_project_grants_no_permissions(start: Start, workspace: Path, home: Path):
    other = workspace.parent / "other"
    other.mkdir()
    write_forged_log(
        open_store(home, other),
        SessionOpened(str(other), "m", "1"),
        *turn("t1", "hi"),
        *PERMISSIVE_EVENTS,
        cwd=str(other),
    )
    script = [
        call("ExecuteCommand", {"command": "touch made"}),
        call("WriteFile", {"file_path": str(workspace / "new.txt"), "content": "x"}),
        say("Done."),
    ]
    talk = await start(script, resume=NAME, yes=False, config={"max_budget_usd": 5.0})
    info = await talk.client.get_info()
    await talk.say("go on")
    assert (info.permission_mode, info.budget_usd) == ("default", 5.0)
    assert not (workspace / "made").exists()
    assert not (workspace / "new.txt").exists()
    assert any("another project" in warning for warning in info.warnings)


async def test_deny_rules_of_a_session_of_another_project_still_apply(start: Start, workspace: Path, home: Path):
    other = workspace.parent / "other"
    other.mkdir()
    denied = RuleAdded("ExecuteCommand(touch:*)", "deny", "session")
    write_forged_log(open_store(home, other), *turn("t1", "hi"), denied, cwd=str(other))
    talk = await start([call("ExecuteCommand", {"command": "touch made"}), say("Done.")], resume=NAME, yes=True)
    await talk.say("go on")
    assert not (workspace / "made").exists()


async def test_resume_warns_about_permissions_that_apply_again(start: Start, workspace: Path, home: Path):
    """Within the same project the rule applies again, and the user sees it."""
    here = SessionOpened(str(workspace), "m", "1", root=str(workspace))
    write_forged_log(open_store(home, workspace), here, *turn("t1", "hi"), *PERMISSIVE_EVENTS, cwd=str(workspace))
    talk = await start([call("ExecuteCommand", {"command": "touch made"}), say("Done.")], resume=NAME, yes=False)
    (said,) = [line for line in (await talk.client.get_info()).warnings if "without asking" in line]
    assert "permission mode acceptEdits, rule ExecuteCommand(touch:*)" in said
    await talk.say("go on")
    assert (workspace / "made").exists()


async def test_resume_without_extra_permissions_gives_no_warning(start: Start, workspace: Path, home: Path):
    write_forged_log(open_store(home, workspace), *turn("t1", "hi"), cwd=str(workspace))
    talk = await start([say("Done.")], resume=NAME)
    assert not any("without asking" in warning for warning in (await talk.client.get_info()).warnings)


async def test_bypass_permissions_is_not_restored_on_resume(start: Start, workspace: Path, home: Path):
    events = [*turn("t1", "hi"), PermissionModeChanged("bypassPermissions")]
    write_forged_log(open_store(home, workspace), *events, cwd=str(workspace))
    talk = await start([call("ExecuteCommand", {"command": "touch made"}), say("Done.")], resume=NAME, yes=False)
    await talk.say("go on")
    assert not (workspace / "made").exists()
    assert not talk.all(PermissionAsked)


# --- forged ids, names and titles ---


@pytest.mark.parametrize("session", ["../../../escaped", "--><script>alert(1)</script>", "a\x1b[2Jb", "", "x" * 200])
def test_a_header_with_an_invalid_id_is_rejected(workspace: Path, home: Path, session: str):
    path = write_forged_log(open_store(home, workspace), *turn("t1", "hi"), cwd=str(workspace), session=session)
    with pytest.raises(LogDamaged):
        read_header(path)
    with pytest.raises(OdinError):
        export_session(path, "html")
    assert not list(home.rglob("*escaped*"))


def test_the_folder_name_is_the_session_id(workspace: Path, home: Path):
    """Otherwise its lock, files and id would belong to another session."""
    store = open_store(home, workspace)
    write_forged_log(store, *turn("t1", "hi"), cwd=str(workspace), session="somebody-else")
    assert store.open(NAME).session == NAME


def test_logs_that_are_not_regular_files_are_ignored(workspace: Path, home: Path):
    """Reading a pipe would block, and reading a device would never end."""
    store = open_store(home, workspace)
    write_forged_log(store, *turn("t1", "hi"), cwd=str(workspace), name="good", session="good")
    for name in ("pipe", "device"):
        (store.folder / name).mkdir()
    os.mkfifo(store.folder / "pipe" / LOG_NAME)
    (store.folder / "device" / LOG_NAME).symlink_to("/dev/zero")
    os.mkfifo(store.folder / "good.lock")
    sessions = ProjectSessions(store)
    assert [item.id for item in sessions.list_sessions()] == ["good"]
    assert [match.session.id for match in sessions.search("hi")] == ["good"]
    assert store.find_latest() == "good"
    for name in ("pipe", "device"):
        with pytest.raises(OdinError):
            store.open(name)


def test_a_manifest_name_cannot_leave_its_folder(tmp_path: Path):
    store = CheckpointStore(tmp_path / "checkpoints" / "p")
    (tmp_path / "evil").write_bytes(msgspec.msgpack.encode({"root": "/", "files": []}))
    with pytest.raises(CheckpointLost):
        store.load_manifest("../../../evil")


def test_titles_cannot_send_terminal_escapes(workspace: Path, home: Path, run_odin: Run):
    evil = "\x1b]0;owned\x07\x1b[2J\u202e\r\nodin: all is well\x9b31m"
    events = [SessionOpened(evil, evil, "1"), *turn("t1", evil), TitleSet(evil)]
    write_forged_log(open_store(home, workspace), *events, cwd=evil)
    for words in (
        ("sessions",),
        ("sessions", "show", NAME),
        ("sessions", "search", "owned"),
        ("usage", "--by", "session"),
    ):
        shown = run_odin(*words).stdout
        assert "owned" in shown or words[0] == "usage"
        assert not set("\x1b\x07\x9b\u202e\r") & set(shown)
        assert "\nodin: all is well" not in shown


@pytest.mark.parametrize(
    "words", ["--pre=touch made", "-f/etc/passwd", "--", "-e", "--files", "$(touch made)", "\\E(", "\0"]
)
def test_search_words_are_not_parsed_as_options(workspace: Path, home: Path, words: str):
    store = open_store(home, workspace)
    write_forged_log(store, *turn("t1", f"I said {words}"), cwd=str(workspace))
    assert [match.session.id for match in ProjectSessions(store).search(words)] == [NAME]
    assert not list(store.folder.rglob("made"))
