"""What can be told of a call before it runs: whether it only looks, and which files it names."""

import os
from pathlib import Path
from typing import Any

from odin.core.tool import Tool
from odin.engine.call.admitted import Judged, Scope
from odin.policy.shell import read_only

MAX_BYTES = 4_000_000
"""A larger file is not changed early: to save it first would hold up the reply."""


def looks(tool: Tool[Any], args: Any, scope: Scope) -> bool:
    """Whether a call only looks: it is made for that, or it is a command that provably does nothing else."""
    if tool.kind != "execute":
        return tool.kind == "read"
    command = tool.subject(args).command
    return bool(command) and tool.early(args) and read_only(command, scope.cwd, scope.root)


def named_files(judged: Judged) -> frozenset[str]:
    """The files that a call names. Folders are looked through by any number of calls."""
    paths = (os.path.realpath(path) for path in judged.subject.paths if path and "\0" not in path)
    return frozenset(path for path in paths if not Path(path).is_dir())


def is_small(path: str) -> bool:
    try:
        return not os.path.lexists(path) or Path(path).stat().st_size <= MAX_BYTES
    except (OSError, ValueError):
        return False
