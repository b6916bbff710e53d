"""Delete: files and symbolic links, each by its own name."""

import os
import stat
from pathlib import Path
from typing import Annotated, Literal, get_args

from msgspec import Meta

from odin.context.file_cache import FileCache
from odin.core.tool import Args, Subject, ToolContext, ToolOutput
from odin.tools.file_state import make_stale_refusal
from odin.tools.files import FileTool, Refusal, open_regular, require_absolute, to_printable

_DeleteStatus = Literal["Deleted", "Already absent", "Blocked", "Failed", "Not attempted"]


class DeleteArgs(Args, frozen=True):
    paths: Annotated[tuple[str, ...], Meta(min_length=1)]
    reason: str


class DeleteTool(FileTool[DeleteArgs]):
    """Delete files and symbolic links, each by its name. No directories."""

    name = "Delete"
    kind = "edit"
    short = "Delete files."
    args = DeleteArgs
    exclusive = True

    def __init__(self, files: FileCache) -> None:
        self._files = files

    def subject_of(self, args: DeleteArgs) -> Subject:
        return Subject(paths=args.paths)

    def can_speculate(self, args: DeleteArgs) -> bool:
        return True

    async def work(self, args: DeleteArgs, ctx: ToolContext) -> ToolOutput:
        fates: dict[_DeleteStatus, list[str]] = {fate: [] for fate in get_args(_DeleteStatus)}
        gone: list[str] = []
        for path in dict.fromkeys(args.paths):
            if fates["Failed"]:
                fates["Not attempted"].append(path)
                continue
            fate, line = self._delete(path, ctx.cwd)
            fates[fate].append(line)
            if fate == "Deleted":
                gone.append(line)
        text = "\n".join(_format_group(fate, lines) for fate, lines in fates.items() if lines)
        absent = fates["Already absent"]
        return ToolOutput(
            text=to_printable(text),
            is_error=not gone and len(absent) < sum(map(len, fates.values())),
            note=to_printable(f"Deleted {', '.join(gone)}" if gone else "Deleted nothing"),
            view=to_printable(text),
            files=tuple(to_printable(path) for path in gone),
        )

    def _delete(self, given: str, cwd: str) -> tuple[_DeleteStatus, str]:
        """What became of one path, and the line about it. After a failure of the system the rest is left alone."""
        try:
            path = require_absolute(given, cwd, "a path")
            info = _lookup_path(path)
            if info is None:
                return "Already absent", path
            _check_kind(path, info)
            if not stat.S_ISLNK(info.st_mode):
                self._check_unchanged(path, cwd)
            Path(path).unlink()
        except Refusal as refusal:
            return "Blocked", str(refusal)
        except FileNotFoundError:
            return "Already absent", given
        except OSError as error:
            return "Failed", f"{given}: {error.strerror or error}"
        if not stat.S_ISLNK(info.st_mode):
            self._files.forget(path)
        return "Deleted", path

    def _check_unchanged(self, path: str, cwd: str) -> None:
        """What was read before must still be what is there. A file that was never read has no such promise."""
        if self._files.compare(path, "") in ("unread", "stale"):
            return
        import hashlib

        file, opened = open_regular(path, cwd)
        with file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        now = Path(path).lstat()
        moved = (now.st_ino, now.st_mtime_ns, now.st_size) != (opened.st_ino, opened.st_mtime_ns, opened.st_size)
        if moved or self._files.compare(path, sha256) == "changed":
            said = f"{path} changed on disk since you read it. Read it again, then decide."
            raise make_stale_refusal(self._files, path, sha256, said)


def _lookup_path(path: str) -> os.stat_result | None:
    """What is at the path itself, a link not followed."""
    try:
        return Path(path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        if set(Path(path).name) & set("*?["):
            raise Refusal(f"{path} does not exist, and wildcards are not expanded. Name every file.") from None
        return None


def _check_kind(path: str, info: os.stat_result) -> None:
    real = os.path.join(os.path.realpath(Path(path).parent), Path(path).name)  # noqa: PTH118
    if any(part.casefold() == ".git" for form in (path, real) for part in Path(form).parts):
        raise Refusal(f"{path} belongs to git. Use git itself for that.")
    if stat.S_ISDIR(info.st_mode):
        raise Refusal(f"{path} is a directory. Only files and symbolic links are deleted: name the files in it.")
    if not (stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode)):
        raise Refusal(f"{path} is a device, pipe or socket, not a file.")


def _format_group(fate: _DeleteStatus, lines: list[str]) -> str:
    return "\n".join([f"{fate}:", *(f"  {line}" for line in lines)])
