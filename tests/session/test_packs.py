"""Pack files of the checkpoint store: many files are stored in one pack, completely or not at all."""

import os
from pathlib import Path

import pytest

from odin.checkpoints.project_listing import ListingLimits, ListingStopped, ProjectLister
from odin.checkpoints.store import CheckpointStore, compute_sha256, prune_store
from odin.core.errors import StateUnwritable

MANY = {f"file {number}": f"content {number}\n".encode() * number for number in range(60)}


def write_many_files(folder: Path) -> None:
    for name, data in MANY.items():
        (folder / name).write_bytes(data)


def list_file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_many_files_are_stored_in_one_pack(tmp_path: Path, workspace: Path) -> None:
    write_many_files(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    assert len(list_file_names(store.folder / "packs")) == 2
    assert not (store.folder / "objects").exists()
    assert (store.folder / "packs").stat().st_mode & 0o077 == 0
    for seen_by in (store, CheckpointStore(store.folder)):
        assert all(
            seen_by.contains(compute_sha256(data)) and seen_by.fetch(compute_sha256(data)) == data
            for data in MANY.values()
        )
        assert seen_by.list_names() == {compute_sha256(data) for data in MANY.values()}
    assert store.bytes_added == sum(len(data) for data in set(MANY.values()))


def test_packed_content_is_not_stored_again(tmp_path: Path, workspace: Path) -> None:
    write_many_files(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    added = store.bytes_added
    store.keep(MANY["file 7"])
    ProjectLister(CheckpointStore(store.folder), ListingLimits()).list(str(workspace), keep=True)
    assert store.bytes_added == added
    assert len(list_file_names(store.folder / "packs")) == 2
    assert not (store.folder / "objects").exists()


def test_other_store_finds_a_pack_created_later(tmp_path: Path, workspace: Path) -> None:
    store, other = (CheckpointStore(tmp_path / "store") for _ in range(2))
    assert not other.contains(compute_sha256(MANY["file 3"]))
    write_many_files(workspace)
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    assert other.fetch(compute_sha256(MANY["file 3"])) == MANY["file 3"]


def test_few_files_are_stored_as_single_objects(tmp_path: Path, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"a")
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    assert list_file_names(store.folder / "objects") == [compute_sha256(b"a")]
    assert not (store.folder / "packs").exists()


def test_stopped_listing_stores_nothing_and_a_new_listing_stores_all(tmp_path: Path, workspace: Path) -> None:
    write_many_files(workspace)
    store = CheckpointStore(tmp_path / "store")
    lister = ProjectLister(store, ListingLimits())
    count = 0

    def is_stopped() -> bool:
        nonlocal count
        count += 1
        return count > 40

    with pytest.raises(ListingStopped):
        lister.list(str(workspace), keep=True, stopped=is_stopped)
    assert list_file_names(store.folder) == []
    lister.list(str(workspace), keep=True)
    assert all(store.fetch(compute_sha256(data)) == data for data in MANY.values())


def test_single_object_survives_a_failed_pack(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    with pytest.raises(RuntimeError), store.keep_many() as keep:
        for data in MANY.values():
            keep(data)
        store.keep(b"an edit that came in between")
        raise RuntimeError
    assert store.fetch(compute_sha256(b"an edit that came in between")) == b"an edit that came in between"
    assert not store.contains(compute_sha256(MANY["file 1"]))


def test_pack_without_an_index_is_ignored(tmp_path: Path, workspace: Path) -> None:
    write_many_files(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    (index,) = (store.folder / "packs").glob("*.index")
    index.unlink()
    assert not CheckpointStore(store.folder).contains(compute_sha256(MANY["file 1"]))


def test_unwritable_pack_raises_an_explained_error(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    store.folder.mkdir()
    (store.folder / "packs").write_text("not a folder")
    with pytest.raises(StateUnwritable, match="nothing was changed"), store.keep_many() as keep:
        for data in MANY.values():
            keep(data)


@pytest.mark.parametrize("named", [True, False])
def test_pack_is_pruned_when_no_log_refers_to_it(tmp_path: Path, workspace: Path, named: bool) -> None:
    write_many_files(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    long_ago = 1_000_000_000.0
    for path in (store.folder / "packs").iterdir():
        os.utime(path, (long_ago, long_ago))
    sessions = tmp_path / "sessions"
    if named:
        log = sessions / "s" / "main.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text(f'{{"sha256":"{compute_sha256(MANY["file 5"])}"}}\n')
    prune_store(store, sessions, limit=1)
    assert bool(list_file_names(store.folder / "packs")) is named
    assert CheckpointStore(store.folder).contains(compute_sha256(MANY["file 5"])) is named
