"""The store of earlier bytes, the listing of a project, and what is cleaned up when."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odin.checkpoints.file_state import decode_path, encode_path
from odin.checkpoints.project_listing import ListingLimits, ListingStopped, ProjectLister, ProjectListing
from odin.checkpoints.store import (
    DAY_S,
    CheckpointLost,
    CheckpointManifest,
    CheckpointStore,
    prune_if_due,
    prune_store,
    sha256_of,
)
from odin.core.errors import StateUnwritable
from odin.core.event_values import FileState


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.fixture
def lister(store: CheckpointStore) -> ProjectLister:
    return ProjectLister(store, ListingLimits())


def changed(lister: ProjectLister, before: ProjectListing, folder: Path) -> dict[str, tuple[str, str]]:
    after = lister.list(str(folder), keep=False, like=before)
    found = lister.find_changes(before, after)
    return {os.path.relpath(change.before.path, folder): (change.before.kind, change.after.kind) for change in found}


def settle() -> None:
    """Let the files become old enough for their times to be trusted."""
    deadline = time.time_ns() + 60_000_000
    while time.time_ns() < deadline:
        time.sleep(0.01)


# --- the store ---


def test_bytes_are_kept_once_and_checked(store: CheckpointStore) -> None:
    name = store.keep(b"bytes")
    assert (name, store.fetch(name), store.bytes_added) == (sha256_of(b"bytes"), b"bytes", 5)
    inode = (store.folder / "objects" / name[:2] / name).stat().st_ino
    assert store.keep(b"bytes") == name
    assert (store.folder / "objects" / name[:2] / name).stat().st_ino == inode
    assert not store.contains(sha256_of(b"other"))
    with pytest.raises(CheckpointLost, match="no longer"):
        store.fetch(sha256_of(b"other"))


def test_a_store_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a folder")
    with pytest.raises(StateUnwritable, match="nothing was changed"):
        CheckpointStore(tmp_path / "store").keep(b"x")


def test_manifests_come_back(store: CheckpointStore) -> None:
    manifest = CheckpointManifest(
        "/p", (FileState("/p/a", "file", "0" * 64, 0o644), FileState("/p/l", "link", target="a"))
    )
    name = store.keep_manifest(manifest)
    assert store.load_manifest(name) == manifest
    (store.folder / "manifests" / name).write_bytes(b"half")
    with pytest.raises(CheckpointLost):
        store.load_manifest(name)


@given(st.binary(min_size=1, max_size=30))
def test_every_name_can_be_written_down(raw: bytes) -> None:
    path = os.fsdecode(raw)
    text = encode_path(path)
    text.encode("utf-8")
    assert decode_path(text) == path


# --- the listing ---


def test_a_listing_finds_what_changed(lister: ProjectLister, workspace: Path) -> None:
    for name in ("same", "edited", "removed"):
        (workspace / name).write_text(name)
    before = lister.list(str(workspace), keep=True)
    (workspace / "edited").write_text("edited!")
    (workspace / "removed").unlink()
    (workspace / "made").mkdir()
    (workspace / "made/inside").write_text("x")
    assert changed(lister, before, workspace) == {
        "edited": ("file", "file"),
        "removed": ("file", "absent"),
        "made": ("absent", "folder"),
        "made/inside": ("absent", "file"),
    }
    assert all(lister.store.contains(state.sha256) for state in before.states.values())


def test_what_did_not_change_is_not_read_again(store: CheckpointStore, workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("x")
    settle()
    first = ProjectLister(store, ListingLimits())
    first.list(str(workspace), keep=True)
    first.save_hashes()
    ((path, (*stamp, sha256)),) = store.load_hash_cache().items()
    assert (path, sha256) == (str(file), sha256_of(b"x"))
    pretended = store.keep(b"what was never in the file")
    store.keep_hash_cache({path: (*stamp, pretended)})  # pyright: ignore[reportArgumentType]
    assert ProjectLister(store, ListingLimits()).list(str(workspace), keep=True).states[path].sha256 == pretended
    file.write_text("y")
    assert ProjectLister(store, ListingLimits()).list(str(workspace), keep=True).states[path].sha256 == sha256_of(b"y")


def test_the_hash_of_a_file_that_may_change_unseen_is_not_remembered(lister: ProjectLister, workspace: Path) -> None:
    """Two writes within one tick of the file system's clock leave the same times."""
    (workspace / "a").write_text("one")
    lister.list(str(workspace), keep=True)
    lister.save_hashes()
    assert lister.store.load_hash_cache() == {}


def test_what_was_not_listed_before_is_not_taken_for_new(store: CheckpointStore, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    for number in range(5):
        (workspace / f"sub/{number}").write_text("mine")
    before = ProjectLister(store, ListingLimits(max_files=3)).list(str(workspace), keep=True)
    assert (before.skipped, before.states[str(workspace / "sub")].saved) == (5, False)
    lister = ProjectLister(store, ListingLimits())
    assert len(lister.list(str(workspace), keep=False).states) == 6
    assert changed(lister, before, workspace) == {}


def test_caches_and_repositories_are_no_part_of_it(lister: ProjectLister, workspace: Path) -> None:
    for name in (".git/objects/x", "node_modules/p/index.js", "sub/__pycache__/m.pyc", "src/a.py"):
        (workspace / name).parent.mkdir(parents=True)
        (workspace / name).write_text("x")
    for name in ("env/pyvenv.cfg", "target/CACHEDIR.TAG"):
        (workspace / name).parent.mkdir()
        (workspace / name).write_text("x")
        (workspace / name).with_name("file").write_text("x")
    before = lister.list(str(workspace), keep=True)
    files = {os.path.relpath(path, workspace) for path, state in before.states.items() if state.kind == "file"}
    assert (files, before.skipped) == ({"src/a.py"}, 0)
    (workspace / "env/pyvenv.cfg").unlink()
    (workspace / "src/CACHEDIR.TAG").write_text("x")
    assert changed(lister, before, workspace) == {}


def test_nothing_is_followed_and_nothing_waits(lister: ProjectLister, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("x")
    (workspace / "link").symlink_to(tmp_path / "outside")
    (workspace / "loop").symlink_to(".")
    os.mkfifo(workspace / "pipe")
    listing = lister.list(str(workspace), keep=True)
    kinds = {os.path.relpath(path, workspace): state.kind for path, state in listing.states.items()}
    assert kinds == {"link": "link", "loop": "link", "pipe": "other"}


def test_the_bytes_of_all_files_together_are_limited(store: CheckpointStore, workspace: Path) -> None:
    for name in "abcd":
        (workspace / name).write_bytes(b"x" * 100)
    lister = ProjectLister(store, ListingLimits(max_bytes=250))
    before = lister.list(str(workspace), keep=True)
    assert (before.skipped, sum(state.saved for state in before.states.values())) == (2, 2)
    assert changed(lister, before, workspace) == {}


def test_a_walk_that_takes_too_long_ends_and_says_so(store: CheckpointStore, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    (workspace / "b").mkdir()
    (workspace / "b/c").write_text("x")
    listing = ProjectLister(store, ListingLimits(seconds=-1)).list(str(workspace), keep=True)
    assert (listing.is_complete, listing.skipped > 0) == (False, True)
    assert (
        ProjectLister(store, ListingLimits()).find_changes(
            listing, ProjectLister(store, ListingLimits()).list(str(workspace), keep=False)
        )
        == ()
    )


def test_a_walk_can_be_called_off(lister: ProjectLister, workspace: Path) -> None:
    with pytest.raises(ListingStopped):
        lister.list(str(workspace), keep=True, stopped=lambda: True)


def test_our_own_state_is_no_part_of_a_project(store: CheckpointStore, workspace: Path) -> None:
    (workspace / "state").mkdir()
    (workspace / "state/log").write_text("x")
    lister = ProjectLister(store, ListingLimits(), excluded=(str(workspace / "state"),))
    assert lister.list(str(workspace), keep=True).states == {}


# --- cleaning up ---


def aged(store: CheckpointStore, data: bytes, days: float) -> str:
    name = store.keep(data)
    then = time.time() - days * DAY_S
    os.utime(store.folder / "objects" / name[:2] / name, (then, then))
    return name


def test_only_what_is_old_and_unused_goes_and_only_when_there_is_too_much(
    store: CheckpointStore, tmp_path: Path
) -> None:
    sessions = tmp_path / "sessions"
    (sessions / "s").mkdir(parents=True)
    old, older, young = aged(store, b"a" * 100, 40), aged(store, b"b" * 100, 50), aged(store, b"c" * 100, 10)
    logged, listed = aged(store, b"d" * 100, 60), aged(store, b"e" * 100, 60)
    (sessions / "s/main.jsonl").write_text(f'{{"sha256":"{logged}"}}\n')
    store.keep_manifest(CheckpointManifest("/p", (FileState("/p/e", "file", listed),)))
    assert prune_store(store, sessions, 10_000) == 0
    size = sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())
    assert prune_store(store, sessions, size - 50) == 100
    assert [store.contains(name) for name in (old, older, young, logged, listed)] == [True, False, True, True, True]
    prune_store(store, sessions, 0)
    assert [store.contains(name) for name in (old, young, logged, listed)] == [False, False, True, True]


def test_it_is_rare(store: CheckpointStore, tmp_path: Path) -> None:
    name = aged(store, b"x", 100)
    prune_if_due(store, tmp_path / "sessions", 0)
    prune_if_due(store, tmp_path / "sessions", 0)
    assert store.contains(name)
    then = time.time() - 2 * DAY_S
    os.utime(store.folder / "pruned", (then, then))
    prune_if_due(store, tmp_path / "sessions", 0)
    assert not store.contains(name)
