"""One gateway runs with a folder of the state: it holds the lock there, and whoever asks finds its process."""

from contextlib import AbstractContextManager
from pathlib import Path

from odin.config.owner_lock import find_owner, hold_owner_lock

GATEWAY_FOLDER = "gateway"
"""The folder of the gateway in the state folder."""


def hold_lock(folder: Path) -> AbstractContextManager[None]:
    """Hold the lock of the gateway with this folder. Raise UsageError if another one runs."""
    return hold_owner_lock(folder / "lock", "A gateway is running")


def find_running(folder: Path) -> str:
    """Return the id of the process of the gateway with this folder, or ""."""
    return find_owner(folder / "lock")
