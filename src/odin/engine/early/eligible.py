"""What can be told of a call before it runs: whether it only looks, and which files it names."""

import os
from pathlib import Path
from typing import Any

from odin.core.tool import Tool
from odin.engine.call.admitted import CallScope, JudgedCall
from odin.policy.shell import is_read_only

MAX_SPECULATIVE_BYTES = 4_000_000
"""A larger file is not changed early: to save it first would hold up the reply."""


def is_read_only_call(tool: Tool[Any], args: Any, scope: CallScope) -> bool:
    """Whether a call only looks: it is made for that, or it is a command that provably does nothing else."""
    if tool.kind != "execute":
        return tool.kind == "read"
    command = tool.subject_of(args).command
    return bool(command) and tool.can_speculate(args) and is_read_only(command, scope.cwd, scope.root)


def named_files_of(judged: JudgedCall) -> frozenset[str]:
    """The files that a call names. Folders are looked through by any number of calls."""
    paths = (os.path.realpath(path) for path in judged.subject.paths if path and "\0" not in path)
    return frozenset(path for path in paths if not Path(path).is_dir())


def is_small(path: str) -> bool:
    try:
        return not os.path.lexists(path) or Path(path).stat().st_size <= MAX_SPECULATIVE_BYTES
    except (OSError, ValueError):
        return False
