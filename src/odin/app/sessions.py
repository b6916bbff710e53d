"""The sessions of a project, as a list for people."""

import os
import time
from pathlib import Path

import msgspec

from odin.config import current_folder, load, state_dir
from odin.core.errors import OdinError, UsageError
from odin.session.log import read_header, read_log
from odin.session.state import State
from odin.session.store import Store


class SessionRow(msgspec.Struct, frozen=True):
    id: str
    when: str
    title: str
    turns: int


def list_sessions(cwd: str = "") -> list[SessionRow]:
    """The sessions of the project around `cwd`, newest first, each with its first prompt."""
    folder = os.path.realpath(cwd or current_folder())
    if not Path(folder).is_dir():
        raise UsageError(f"There is no folder {folder}.", "Name an existing one with --cwd.")
    config = load(folder, os.environ, {})
    rows: list[SessionRow] = []
    for entry in Store(state_dir(os.environ), config.root).list():
        try:
            read_header(entry.path)
        except OdinError:
            continue
        shot = State.fold(read_log(entry.path)).snapshot()
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.modified))
        rows.append(SessionRow(entry.id, when, shot.title, len(shot.messages)))
    return rows
