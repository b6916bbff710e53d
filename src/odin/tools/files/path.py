"""Paths as the model gives them: absolute, existing, of the right kind; and a helpful sentence when they are not."""

import os
import re
import stat
from abc import abstractmethod
from io import FileIO
from pathlib import Path

from odin.core.errors import OdinError
from odin.core.tool import A, Tool, ToolContext, ToolOutput, fail

WHOLE_BYTES = 50_000_000
"""The largest file that is read, edited or overwritten as a whole."""


class Refusal(Exception):
    """The call cannot be done as asked. The sentence is what the model reads, so it says what to do instead.

    `named` is the error it is, where people and programs have a name for it.
    """

    def __init__(self, sentence: str, error_type: type[OdinError] | None = None) -> None:
        super().__init__(sentence)
        self.kind = error_type.__name__ if error_type else ""


class FileTool(Tool[A]):
    """A tool about files: what it refuses and what the system refuses become error results."""

    async def run(self, args: A, ctx: ToolContext) -> ToolOutput:
        try:
            return await self.work(args, ctx)
        except Refusal as refusal:
            return fail(to_printable(str(refusal)), refusal.kind)
        except OSError as error:
            name = f" {error.filename}" if isinstance(error.filename, str) else ""
            return fail(to_printable(f"The system refused it:{name} {error.strerror or error}."))

    @abstractmethod
    async def work(self, args: A, ctx: ToolContext) -> ToolOutput: ...


def to_printable(text: str) -> str:
    """Text that can be sent as JSON: bytes that were not UTF-8 show as U+FFFD."""
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def require_absolute(path: str, cwd: str, field: str) -> str:
    """The path without `..` and doubled slashes, provided it is absolute."""
    if not path or "\0" in path:
        raise Refusal(f"{field} is not a path: {path!r}.")
    if not Path(path).is_absolute():
        full = os.path.normpath(Path(cwd, os.path.expanduser(path)))  # noqa: PTH111
        raise Refusal(f"{field} must be an absolute path. Use {full} instead of {path}.")
    return os.path.normpath(path)


def make_missing_refusal(path: str, cwd: str) -> Refusal:
    """The sentence for a path that does not exist, with the nearest one that does."""
    if Path(path).is_symlink():
        return Refusal(f"{path} is a symbolic link to {os.readlink(path)}, which does not exist.")  # noqa: PTH115
    return Refusal(f"{path} does not exist.{_suggest_path(path, cwd)}")


def _suggest_path(path: str, cwd: str) -> str:
    inside = Path(cwd, path.lstrip("/"))
    if inside.exists():
        return f" Did you mean {inside}?"
    wanted = Path(path)
    while not wanted.parent.is_dir():
        wanted = wanted.parent
    try:
        names = os.listdir(wanted.parent)[:5000]  # noqa: PTH208
    except OSError:
        return ""
    import difflib

    same = [name for name in names if name.casefold() == wanted.name.casefold()]
    near = same or difflib.get_close_matches(wanted.name, names, n=3)
    if not near:
        return f" The nearest folder that exists is {wanted.parent}."
    return " Did you mean " + " or ".join(str(wanted.parent / name) for name in near) + "?"


def require_folder(path: str, cwd: str) -> str:
    if Path(path).is_dir():
        return path
    if os.path.lexists(path):
        raise Refusal(f"{path} is a file, not a directory.")
    raise make_missing_refusal(path, cwd)


def open_regular(path: str, cwd: str) -> tuple[FileIO, os.stat_result]:
    """Open a file for reading. A pipe, a device or a directory is refused before it can make us wait."""
    try:
        kind = Path(path).stat().st_mode
        if stat.S_ISDIR(kind):
            raise Refusal(f"{path} is a directory. Use LS to list it.")
        if not stat.S_ISREG(kind):
            raise Refusal(f"{path} is not a regular file but a device, pipe or socket; it is not opened.")
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise make_missing_refusal(path, cwd) from None
    except PermissionError:
        raise Refusal(f"{path} cannot be read: permission denied.") from None
    return FileIO(fd), os.fstat(fd)


def read_whole(file: FileIO, info: os.stat_result) -> bytes | None:
    """All of an open file, or None when it is larger than what is handled in memory."""
    parts: list[bytes] = []
    size = 0
    while size <= WHOLE_BYTES:
        part = file.read(max(info.st_size - size, 0) + 4096)
        if not part:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        parts.append(part)
        size += len(part)
    return None
