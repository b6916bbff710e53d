"""Stores of results: a folder, and what fsspec knows, here its own names for folders and memory."""

from pathlib import Path

import pytest

from odin.core.errors import OdinError
from odin.fleet.result_store import open_store
from tests.table import each


@each("url", ["{folder}", "file://{folder}", "local://{folder}", "memory://results"])
def test_files_are_stored_and_found(tmp_path: Path, url: str) -> None:
    store = open_store(url.format(folder=tmp_path / f"{url.partition(':')[0]}-results"))
    store.check()
    with pytest.raises(FileNotFoundError):
        store.read("t/patch.diff")
    for data in (b"one", b"two"):
        store.write("t/patch.diff", data)
        assert store.read("t/patch.diff") == data
    assert store.locate("t/patch.diff").endswith("results/t/patch.diff")
    with pytest.raises(FileNotFoundError):
        store.read(".writable")


@each(
    ("url", "message"),
    [
        ("nothing://x", "The store nothing://x cannot be used"),
        ("local:///proc/none", "Cannot write local:///proc/none/.writable"),
        ("/proc/none", "/proc/none"),
    ],
)
def test_what_cannot_be_written_is_named(url: str, message: str) -> None:
    with pytest.raises(OdinError, match=message):
        open_store(url).check()
