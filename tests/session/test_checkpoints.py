"""The checkpoint store, the listing of a project, and the pruning of old checkpoints."""

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
    compute_sha256,
    prune_if_due,
    prune_store,
)
from odin.core.errors import StateUnwritable
from odin.core.event_values import FileState


@pytest.fixture
def store(tmp_path: Path) -> CheckpointStore:
    return CheckpointStore(tmp_path / "store")


@pytest.fixture
def lister(store: CheckpointStore) -> ProjectLister:
    return ProjectLister(store, ListingLimits())


def find_changed_kinds(lister: ProjectLister, before: ProjectListing, folder: Path) -> dict[str, tuple[str, str]]:
    """Return the kinds of each changed path before and after, by relative path."""
    after = lister.list(str(folder), keep=False, like=before)
    found = lister.find_changes(before, after)
    return {os.path.relpath(change.before.path, folder): (change.before.kind, change.after.kind) for change in found}


def wait_for_reliable_times() -> None:
    """Wait until the files are so old that their modification times tell whether they changed."""
    deadline = time.time_ns() + 60_000_000
    while time.time_ns() < deadline:
        time.sleep(0.01)


# --- the store ---


def test_bytes_are_stored_once_and_missing_ones_raise(store: CheckpointStore) -> None:
    name = store.keep(b"bytes")
    assert (name, store.fetch(name), store.bytes_added) == (compute_sha256(b"bytes"), b"bytes", 5)
    inode = (store.folder / "objects" / name[:2] / name).stat().st_ino
    assert store.keep(b"bytes") == name
    assert (store.folder / "objects" / name[:2] / name).stat().st_ino == inode
    assert not store.contains(compute_sha256(b"other"))
    with pytest.raises(CheckpointLost, match="no longer"):
        store.fetch(compute_sha256(b"other"))


def test_unwritable_store_raises_an_explained_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("not a folder")
    with pytest.raises(StateUnwritable, match="nothing was changed"):
        CheckpointStore(tmp_path / "store").keep(b"x")


def test_manifest_is_stored_and_a_damaged_one_raises(store: CheckpointStore) -> None:
    manifest = CheckpointManifest(
        "/p", (FileState("/p/a", "file", "0" * 64, 0o644), FileState("/p/l", "link", target="a"))
    )
    name = store.keep_manifest(manifest)
    assert store.load_manifest(name) == manifest
    (store.folder / "manifests" / name).write_bytes(b"half")
    with pytest.raises(CheckpointLost):
        store.load_manifest(name)


@given(st.binary(min_size=1, max_size=30))
def test_every_path_survives_encoding(raw: bytes) -> None:
    path = os.fsdecode(raw)
    text = encode_path(path)
    text.encode("utf-8")
    assert decode_path(text) == path


# --- the listing ---


def test_listing_finds_changed_paths(lister: ProjectLister, workspace: Path) -> None:
    for name in ("same", "edited", "removed"):
        (workspace / name).write_text(name)
    before = lister.list(str(workspace), keep=True)
    (workspace / "edited").write_text("edited!")
    (workspace / "removed").unlink()
    (workspace / "made").mkdir()
    (workspace / "made/inside").write_text("x")
    assert find_changed_kinds(lister, before, workspace) == {
        "edited": ("file", "file"),
        "removed": ("file", "absent"),
        "made": ("absent", "folder"),
        "made/inside": ("absent", "file"),
    }
    assert all(lister.store.contains(state.sha256) for state in before.states.values())


def test_unchanged_file_is_not_read_again(store: CheckpointStore, workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("x")
    wait_for_reliable_times()
    first = ProjectLister(store, ListingLimits())
    first.list(str(workspace), keep=True)
    first.save_hashes()
    ((path, (*stamp, sha256)),) = store.load_hash_cache().items()
    assert (path, sha256) == (str(file), compute_sha256(b"x"))
    pretended = store.keep(b"what was never in the file")
    store.keep_hash_cache({path: (*stamp, pretended)})  # pyright: ignore[reportArgumentType]
    assert ProjectLister(store, ListingLimits()).list(str(workspace), keep=True).states[path].sha256 == pretended
    file.write_text("y")
    assert ProjectLister(store, ListingLimits()).list(str(workspace), keep=True).states[path].sha256 == compute_sha256(
        b"y"
    )


def test_hash_of_a_just_written_file_is_not_cached(lister: ProjectLister, workspace: Path) -> None:
    """Two writes within one tick of the file system's clock leave the same times."""
    (workspace / "a").write_text("one")
    lister.list(str(workspace), keep=True)
    lister.save_hashes()
    assert lister.store.load_hash_cache() == {}


def test_files_beyond_the_limit_are_not_reported_as_new(store: CheckpointStore, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    for number in range(5):
        (workspace / f"sub/{number}").write_text("mine")
    before = ProjectLister(store, ListingLimits(max_files=3)).list(str(workspace), keep=True)
    assert (before.skipped, before.states[str(workspace / "sub")].saved) == (5, False)
    lister = ProjectLister(store, ListingLimits())
    assert len(lister.list(str(workspace), keep=False).states) == 6
    assert find_changed_kinds(lister, before, workspace) == {}


def test_caches_and_git_folders_are_not_listed(lister: ProjectLister, workspace: Path) -> None:
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
    assert find_changed_kinds(lister, before, workspace) == {}


def test_links_are_not_followed_and_pipes_do_not_block(lister: ProjectLister, workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("x")
    (workspace / "link").symlink_to(tmp_path / "outside")
    (workspace / "loop").symlink_to(".")
    os.mkfifo(workspace / "pipe")
    listing = lister.list(str(workspace), keep=True)
    kinds = {os.path.relpath(path, workspace): state.kind for path, state in listing.states.items()}
    assert kinds == {"link": "link", "loop": "link", "pipe": "other"}


def test_total_bytes_of_a_listing_are_limited(store: CheckpointStore, workspace: Path) -> None:
    for name in "abcd":
        (workspace / name).write_bytes(b"x" * 100)
    lister = ProjectLister(store, ListingLimits(max_bytes=250))
    before = lister.list(str(workspace), keep=True)
    assert (before.skipped, sum(state.saved for state in before.states.values())) == (2, 2)
    assert find_changed_kinds(lister, before, workspace) == {}


def test_listing_that_takes_too_long_is_incomplete(store: CheckpointStore, workspace: Path) -> None:
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


def test_listing_can_be_stopped(lister: ProjectLister, workspace: Path) -> None:
    with pytest.raises(ListingStopped):
        lister.list(str(workspace), keep=True, stopped=lambda: True)


def test_excluded_state_folder_is_not_listed(store: CheckpointStore, workspace: Path) -> None:
    (workspace / "state").mkdir()
    (workspace / "state/log").write_text("x")
    lister = ProjectLister(store, ListingLimits(), excluded=(str(workspace / "state"),))
    assert lister.list(str(workspace), keep=True).states == {}


# --- pruning ---


def keep_aged(store: CheckpointStore, data: bytes, days: float) -> str:
    """Store the data as if this happened that many days ago, and return its name."""
    name = store.keep(data)
    then = time.time() - days * DAY_S
    os.utime(store.folder / "objects" / name[:2] / name, (then, then))
    return name


def test_pruning_removes_old_unused_objects_above_the_limit(store: CheckpointStore, tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    (sessions / "s").mkdir(parents=True)
    old, older, young = (
        keep_aged(store, b"a" * 100, 40),
        keep_aged(store, b"b" * 100, 50),
        keep_aged(store, b"c" * 100, 10),
    )
    logged, listed = keep_aged(store, b"d" * 100, 60), keep_aged(store, b"e" * 100, 60)
    (sessions / "s/main.jsonl").write_text(f'{{"sha256":"{logged}"}}\n')
    store.keep_manifest(CheckpointManifest("/p", (FileState("/p/e", "file", listed),)))
    assert prune_store(store, sessions, 10_000) == 0
    size = sum(path.stat().st_size for path in store.folder.rglob("*") if path.is_file())
    assert prune_store(store, sessions, size - 50) == 100
    assert [store.contains(name) for name in (old, older, young, logged, listed)] == [True, False, True, True, True]
    prune_store(store, sessions, 0)
    assert [store.contains(name) for name in (old, young, logged, listed)] == [False, False, True, True]


def test_pruning_runs_at_most_once_a_day(store: CheckpointStore, tmp_path: Path) -> None:
    name = keep_aged(store, b"x", 100)
    prune_if_due(store, tmp_path / "sessions", 0)
    prune_if_due(store, tmp_path / "sessions", 0)
    assert store.contains(name)
    then = time.time() - 2 * DAY_S
    os.utime(store.folder / "pruned", (then, then))
    prune_if_due(store, tmp_path / "sessions", 0)
    assert not store.contains(name)
