"""The uncommitted changes of a repository, new files included, for /diff.

New files are added to a copy of the index, which names its own folder for objects: the repository is only read.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from odin.app.git import Git, GitPlace, decode_output, find_repository
from odin.core.client import ChangedFile
from odin.core.errors import OdinError, UsageError

LIMIT_S = 20.0
"""How long git may run in all."""

MAX_BYTES = 2_000_000
_DIFF_ARGS = (
    "-c",
    "core.quotePath=off",
    "diff",
    "--src-prefix=a/",
    "--dst-prefix=b/",
    "--no-ext-diff",
    "--no-textconv",
    "--no-color",
    "--find-renames",
    "--ignore-submodules=dirty",
)
_EMPTY_TREE_ARGS = ("hash-object", "-t", "tree", "/dev/null")
_STATUS_LINES = (
    ("new file mode ", "added"),
    ("deleted file mode ", "deleted"),
    ("rename from ", "renamed"),
    ("copy from ", "copied"),
    ("old mode ", "mode changed"),
)


async def list_changed_files(git: Git, folder: str, paths: Sequence[str] = ()) -> tuple[ChangedFile, ...]:
    """Return what changed since the last commit. Paths, relative to the folder, narrow it.

    Raise UsageError outside git or for an unknown path, OdinError if git cannot be run.
    """
    place = find_repository(folder)
    if place is None:
        raise UsageError("This folder is not in a git repository.", "/rewind shows what each prompt changed.")
    try:
        async with asyncio.timeout(LIMIT_S):
            text = await _diff(git, place, folder, paths)
    except TimeoutError:
        raise OdinError(f"git took longer than {LIMIT_S:.0f} s.", "/diff PATH looks at less.") from None
    missing = [path for path in paths if not text and not Path(folder, path).exists()]
    if missing:
        raise UsageError(f"{missing[0]} does not exist and has no changes.")
    return tuple(_parse_diff(text))


async def _diff(git: Git, place: GitPlace, folder: str, paths: Sequence[str]) -> str:
    head = await git.run(place, ("rev-parse", "--verify", "--quiet", "HEAD"))
    base = head if head.code == 0 else await git.run(place, _EMPTY_TREE_ARGS)
    with git.open_scratch() as scratch:
        await git.copy_file(Path(place.git_dir, "index"), scratch / "index")
        (scratch / "objects").mkdir()
        objects = f"{place.common}/objects".replace("\\", "\\\\").replace('"', '\\"')
        own = {
            "GIT_INDEX_FILE": str(scratch / "index"),
            "GIT_OBJECT_DIRECTORY": str(scratch / "objects"),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": f'"{objects}"',  # a list, in which a colon would end the path
        }
        writes = (str(scratch),)
        await git.run(place, ("add", "--intent-to-add", "--ignore-errors", "--", "."), writes=writes, env=own)
        words = (*_DIFF_ARGS, base.data.decode().strip(), "--", *paths)
        changes = await git.run(place, words, cwd=folder, writes=writes, env=own, max_bytes=MAX_BYTES)
    if changes.code and not changes.is_cut:
        raise OdinError("git diff failed.", "!git status shows the state of the repository.")
    cut = f"\n… The diff is longer than {MAX_BYTES:,} bytes. /diff PATH shows a part of it." if changes.is_cut else ""
    return decode_output(changes.data) + cut


def _parse_diff(text: str) -> Iterator[ChangedFile]:
    """Split git's output at its file headers: lines of a file always start with a sign or a space."""
    for part in re.split(r"^diff --git ", text, flags=re.MULTILINE)[1:]:
        head, *lines = part.rstrip("\n").split("\n")
        start = next((at for at, line in enumerate(lines) if line.startswith(("--- ", "Binary "))), len(lines))
        status = next((word for line in lines[:start] for mark, word in _STATUS_LINES if line.startswith(mark)), "")
        body = lines[start:]
        hunks = [line for line in body[2:] if not line.startswith("@@")]
        yield ChangedFile(
            _find_path(head, lines[:start], body),
            "binary" if body and body[0].startswith("Binary ") else status or "modified",
            sum(line.startswith("+") for line in hunks),
            sum(line.startswith("-") for line in hunks),
            "\n".join(body) if body and body[0].startswith("--- ") else "",
        )


def _find_path(head: str, extended: list[str], body: list[str]) -> str:
    """Return the path after the change, or the old one of a deleted file."""
    for line in (*extended, *reversed(body[:2])):
        for mark in ("rename to ", "copy to ", "+++ b/", "--- a/", '+++ "b/', '--- "a/'):
            if line.startswith(mark):
                return line.removeprefix(mark).rstrip("\t").removesuffix('"' if '"' in mark else "")
    return head[: len(head) // 2].removeprefix("a/")
