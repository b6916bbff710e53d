"""Many files kept at once: they are in one file, found again by everyone, and never half there."""

import os
from pathlib import Path

import pytest

from odin.checkpoints.project_listing import ListingLimits, ListingStopped, ProjectLister
from odin.checkpoints.store import CheckpointStore, prune_store, sha256_of
from odin.core.errors import StateUnwritable

MANY = {f"file {number}": f"content {number}\n".encode() * number for number in range(60)}


def fill(folder: Path) -> None:
    for name, data in MANY.items():
        (folder / name).write_bytes(data)


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_many_files_make_one_pack_and_all_come_back(tmp_path: Path, workspace: Path) -> None:
    fill(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    assert len(files_in(store.folder / "packs")) == 2
    assert not (store.folder / "objects").exists()
    assert (store.folder / "packs").stat().st_mode & 0o077 == 0
    for seen_by in (store, CheckpointStore(store.folder)):
        assert all(
            seen_by.contains(sha256_of(data)) and seen_by.fetch(sha256_of(data)) == data for data in MANY.values()
        )
        assert seen_by.list_names() == {sha256_of(data) for data in MANY.values()}
    assert store.bytes_added == sum(len(data) for data in set(MANY.values()))


def test_what_is_in_a_pack_is_not_kept_again(tmp_path: Path, workspace: Path) -> None:
    fill(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    added = store.bytes_added
    store.keep(MANY["file 7"])
    ProjectLister(CheckpointStore(store.folder), ListingLimits()).list(str(workspace), keep=True)
    assert store.bytes_added == added
    assert len(files_in(store.folder / "packs")) == 2
    assert not (store.folder / "objects").exists()


def test_another_process_finds_a_pack_that_was_made_since(tmp_path: Path, workspace: Path) -> None:
    store, other = (CheckpointStore(tmp_path / "store") for _ in range(2))
    assert not other.contains(sha256_of(MANY["file 3"]))
    fill(workspace)
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    assert other.fetch(sha256_of(MANY["file 3"])) == MANY["file 3"]


def test_a_few_files_are_objects_of_their_own(tmp_path: Path, workspace: Path) -> None:
    (workspace / "a").write_bytes(b"a")
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    assert files_in(store.folder / "objects") == [sha256_of(b"a")]
    assert not (store.folder / "packs").exists()


def test_a_listing_that_was_called_off_leaves_nothing_and_is_not_believed_later(
    tmp_path: Path, workspace: Path
) -> None:
    fill(workspace)
    store = CheckpointStore(tmp_path / "store")
    lister = ProjectLister(store, ListingLimits())
    count = 0

    def enough() -> bool:
        nonlocal count
        count += 1
        return count > 40

    with pytest.raises(ListingStopped):
        lister.list(str(workspace), keep=True, stopped=enough)
    assert files_in(store.folder) == []
    lister.list(str(workspace), keep=True)
    assert all(store.fetch(sha256_of(data)) == data for data in MANY.values())


def test_what_is_kept_beside_a_listing_does_not_depend_on_its_end(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    with pytest.raises(RuntimeError), store.keep_many() as keep:
        for data in MANY.values():
            keep(data)
        store.keep(b"an edit that came in between")
        raise RuntimeError
    assert store.fetch(sha256_of(b"an edit that came in between")) == b"an edit that came in between"
    assert not store.contains(sha256_of(MANY["file 1"]))


def test_an_unfinished_pack_holds_nothing(tmp_path: Path, workspace: Path) -> None:
    fill(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    (index,) = (store.folder / "packs").glob("*.index")
    index.unlink()
    assert not CheckpointStore(store.folder).contains(sha256_of(MANY["file 1"]))


def test_a_pack_that_cannot_be_written_says_what_to_do(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path / "store")
    store.folder.mkdir()
    (store.folder / "packs").write_text("not a folder")
    with pytest.raises(StateUnwritable, match="nothing was changed"), store.keep_many() as keep:
        for data in MANY.values():
            keep(data)


@pytest.mark.parametrize("named", [True, False])
def test_a_pack_goes_when_nothing_in_it_is_needed(tmp_path: Path, workspace: Path, named: bool) -> None:
    fill(workspace)
    store = CheckpointStore(tmp_path / "store")
    ProjectLister(store, ListingLimits()).list(str(workspace), keep=True)
    long_ago = 1_000_000_000.0
    for path in (store.folder / "packs").iterdir():
        os.utime(path, (long_ago, long_ago))
    sessions = tmp_path / "sessions"
    if named:
        log = sessions / "s" / "main.jsonl"
        log.parent.mkdir(parents=True)
        log.write_text(f'{{"sha256":"{sha256_of(MANY["file 5"])}"}}\n')
    prune_store(store, sessions, limit=1)
    assert bool(files_in(store.folder / "packs")) is named
    assert CheckpointStore(store.folder).contains(sha256_of(MANY["file 5"])) is named
