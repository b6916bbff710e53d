"""`odin cleanup`: reports what could be removed, and removes it only with --yes."""

import json
import os
import time
from pathlib import Path

import pytest

from odin.commands.cleanup import CACHE_FILES, Cleanup, Retention, parse_duration
from odin.core.errors import UsageError
from odin.session.store import SessionStore
from tests.conftest import RunHere
from tests.session.logs import opened, turn, write_session

DAY = 86_400


@pytest.fixture
def populated_store(store: SessionStore, state: Path, home: Path) -> SessionStore:
    """Sessions of 1, 40, 50 and 60 days ago and one of another project, with checkpoints, logs and a cache."""
    now = time.time()
    for name, days in (("s01", 1), ("s40", 40), ("s50", 50), ("s60", 60)):
        write_session(store, name, [opened(), *turn("t1", f"prompt {name}")], now - days * DAY)
    write_session(SessionStore(state, "/elsewhere"), "far", [opened(), *turn("t1", "far away")], now - 90 * DAY)
    for path in (
        state / "checkpoints" / store.folder.name / "objects/ab",
        state / "logs/odin.log",
        state / "logs/server.log",
        state / "logs/server.log.1",
        state / "logs/notes.txt",
        home / ".cache/odin" / CACHE_FILES[0],
        home / ".cache/odin/mine.txt",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1234)
    return store


def list_session_ids(store: SessionStore) -> list[str]:
    return sorted(item.id for item in store.list())


def test_status_counts_sessions_logs_cache_and_checkpoints(
    run_here: RunHere, populated_store: SessionStore, state: Path
) -> None:
    code, printed, _ = run_here("cleanup")
    assert code == 0
    rows = {line.split("  ")[0]: line.split() for line in printed.splitlines()}
    assert rows["sessions of this project"][4] == "4" and rows["sessions of all projects"][4] == "5"
    found = {item["what"]: item for item in json.loads(run_here("cleanup", "status", "--json")[1])}
    assert (found["logs"]["count"], found["logs"]["bytes"]) == (3, 3 * 1234)
    assert (found["cache"]["count"], found["cache"]["bytes"]) == (1, 1234)
    assert found["checkpoints of this project"]["bytes"] == 1234
    assert found["sessions of this project"]["path"] == str(populated_store.folder)


def test_nothing_is_removed_without_yes(run_here: RunHere, populated_store: SessionStore) -> None:
    for what in ("sessions", "cache", "logs", "project"):
        code, printed, said = run_here("cleanup", what)
        assert code == 0 and printed and "Add --yes to remove." in said
    assert list_session_ids(populated_store) == ["s01", "s40", "s50", "s60"]


def test_removed_sessions_still_count_in_the_usage_report(run_here: RunHere, populated_store: SessionStore) -> None:
    before = json.loads(run_here("usage", "--all", "--json")[1])["total"]["cost_usd"]
    assert before == 1.0
    code, printed, _ = run_here("cleanup", "sessions", "--yes")
    assert code == 0 and "Removed 3 items" in printed
    assert [line.split()[1] for line in printed.splitlines()[:-1]] == ["s60", "s50", "s40"]
    assert list_session_ids(populated_store) == ["s01"]
    assert json.loads(run_here("usage", "--all", "--json")[1])["total"]["cost_usd"] == before
    assert run_here("cleanup", "sessions", "--yes")[1] == "Nothing to remove.\n"


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (["--older-than", "45d"], ["s01", "s40"]),
        (["--older-than", "7w"], ["s01", "s40"]),
        (["--older-than", "0"], []),
        (["--keep", "2"], ["s01", "s40"]),
        (["--keep", "9"], ["s01", "s40", "s50", "s60"]),
        (["--keep", "3", "--older-than", "30d"], ["s01", "s40", "s50"]),
    ],
)
def test_flags_choose_which_sessions_are_kept(
    run_here: RunHere, populated_store: SessionStore, flags: list[str], left: list[str]
) -> None:
    assert run_here("cleanup", "sessions", "--yes", *flags)[0] == 0
    assert list_session_ids(populated_store) == left


def test_all_removes_sessions_of_every_project(run_here: RunHere, populated_store: SessionStore, state: Path) -> None:
    assert "far away" in run_here("cleanup", "sessions", "--all")[1]
    assert run_here("cleanup", "sessions", "--all", "--yes")[0] == 0
    assert list_session_ids(populated_store) == ["s01"] and list_session_ids(SessionStore(state, "/elsewhere")) == []


def test_open_session_and_its_checkpoints_are_kept(run_here: RunHere, populated_store: SessionStore) -> None:
    held = populated_store.open("s60")
    held.hold()
    try:
        code, printed, _ = run_here("cleanup", "project", "--yes")
        assert code == 0
        assert "s60" in printed and "(kept: open: PID" in printed
        assert "checkpoints" in printed and "session s60 needs them for undo" in printed
        assert list_session_ids(populated_store) == ["s60"]
        assert populated_store.folder.parent.parent.joinpath("checkpoints", populated_store.folder.name).is_dir()
    finally:
        held.close()


def test_session_opened_after_the_search_is_kept(populated_store: SessionStore, workspace: Path) -> None:
    cleanup = Cleanup(os.environ, str(workspace))
    going = cleanup.find_project_data(Retention())
    held = populated_store.open("s40")
    held.hold()
    try:
        done = {item.name: item.why_not for item in cleanup.remove(going)}
    finally:
        held.close()
    assert "already open" in done["s40"] and not done["s60"]
    assert done[populated_store.folder.name] == "a session of this project still exists"
    assert list_session_ids(populated_store) == ["s40"]


def test_project_removes_sessions_checkpoints_and_removed_worktrees(
    run_here: RunHere, populated_store: SessionStore, state: Path, workspace: Path
) -> None:
    (workspace / "mine.txt").write_text("mine")
    removed = state / "worktrees" / populated_store.folder.name / ".removed/old-1"
    removed.mkdir(parents=True)
    assert run_here("cleanup", "project", "--yes")[0] == 0
    assert list_session_ids(populated_store) == [] and list_session_ids(SessionStore(state, "/elsewhere")) == ["far"]
    assert not (state / "checkpoints" / populated_store.folder.name).exists() and not removed.exists()
    assert (workspace / "mine.txt").read_text() == "mine"


def test_only_files_made_by_odin_are_removed(
    run_here: RunHere, populated_store: SessionStore, state: Path, home: Path
) -> None:
    assert run_here("cleanup", "cache", "--yes")[0] == run_here("cleanup", "logs", "--yes")[0] == 0
    assert sorted(path.name for path in (home / ".cache/odin").iterdir()) == ["mine.txt"]
    assert sorted(path.name for path in (state / "logs").iterdir()) == ["notes.txt"]


def test_symbolic_links_are_not_followed(
    run_here: RunHere, populated_store: SessionStore, state: Path, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "odin.log").write_text("precious")
    (state / "logs").rename(state / "logs-before")
    (state / "logs").symlink_to(precious)
    code, printed, _ = run_here("cleanup", "logs", "--yes")
    assert code == 1 and "points outside Odin's folders, so it is not removed" in printed
    assert (precious / "odin.log").read_text() == "precious"
    removed = state / "worktrees" / populated_store.folder.name / ".removed"
    removed.mkdir(parents=True)
    (removed / "link").symlink_to(precious)
    saved = state / "checkpoints" / populated_store.folder.name
    saved.rename(state / "saved")
    saved.symlink_to(precious)
    run_here("cleanup", "project", "--yes")
    assert (precious / "odin.log").read_text() == "precious"


def test_sessions_in_a_symlinked_folder_are_kept(
    run_here: RunHere, populated_store: SessionStore, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    populated_store.folder.rename(elsewhere)
    populated_store.folder.symlink_to(elsewhere)
    (elsewhere / ".deleted-mine").mkdir()
    before = sorted(path.name for path in elsewhere.iterdir())
    code, printed, _ = run_here("cleanup", "sessions", "--older-than", "0", "--yes")
    assert code == 1 and "points outside Odin's folders, so it is not removed" in printed
    assert sorted(path.name for path in elsewhere.iterdir() if path.name != ".index") == [
        name for name in before if name != ".index"
    ]


def test_durations_are_parsed_and_invalid_flags_refused(run_here: RunHere, populated_store: SessionStore) -> None:
    assert [parse_duration(text) for text in ("2", "2d", " 3H ", "1w", "5m", "7s")] == [
        2 * DAY, 2 * DAY, 10_800, 7 * DAY, 300, 7,
    ]  # fmt: skip
    for text in ("", "d", "-1d", "1y", "1 d"):
        with pytest.raises(UsageError):
            parse_duration(text)
    assert run_here("cleanup", "sessions", "--older-than", "soon")[0] == 2
    assert run_here("cleanup", "sessions", "--keep", "-1")[0] == 2
    assert run_here("cleanup", "cache", "--all")[0] == 2
