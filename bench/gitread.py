"""Read commits, their changes and file contents from a git repository without changing it."""

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

REGULAR = ("100644", "100755", "100664")
LINK = "120000"
SUBMODULE = "160000"
ABSENT = "000000"


class Change(NamedTuple):
    """A change of one path in one commit, with git's modes and blob ids; `ABSENT` is the mode of a missing file."""

    path: bytes
    old_mode: str
    new_mode: str
    old_blob: str
    new_blob: str


class Commit(NamedTuple):
    name: str
    parent: str
    changes: list[Change]


class Repository:
    """A repository on disk, read without locks, replace refs, lazy fetches and the user's configuration."""

    def __init__(self, path: Path) -> None:
        self._git = ["git", "--no-optional-locks", "-c", "safe.directory=*", "-C", str(path)]
        self._env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_NO_REPLACE_OBJECTS": "1",
            "GIT_NO_LAZY_FETCH": "1",
            "GIT_OPTIONAL_LOCKS": "0",
        }
        self._blobs = subprocess.Popen(
            [*self._git, "cat-file", "--batch"], env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def close(self) -> None:
        assert self._blobs.stdin is not None
        assert self._blobs.stdout is not None
        self._blobs.stdin.close()
        self._blobs.stdout.close()
        self._blobs.wait()

    def run(self, *args: str) -> bytes:
        return subprocess.run([*self._git, *args], env=self._env, check=True, stdout=subprocess.PIPE).stdout

    def blob(self, name: str) -> bytes:
        assert self._blobs.stdin is not None
        assert self._blobs.stdout is not None
        self._blobs.stdin.write(f"{name}\n".encode())
        self._blobs.stdin.flush()
        head = self._blobs.stdout.readline().split()
        if len(head) != 3:
            raise LookupError(f"git has no object {name}")
        data = self._blobs.stdout.read(int(head[2]))
        self._blobs.stdout.read(1)
        return data

    def line(self, upto: str, *, every: bool = False) -> list[tuple[str, str]]:
        """Return the first-parent history, oldest first, as (commit, parent) pairs. A root commit has the parent "".

        With `every`, return all commits in topological order, each with the commit listed before it as its parent.
        """
        if every:
            listed = self.run("rev-list", "--topo-order", "--reverse", upto, "--").decode().split()
            return list(zip(listed, ["", *listed[:-1]], strict=True))
        rows = self.run("rev-list", "--first-parent", "--reverse", "--parents", upto, "--").decode().splitlines()
        names = [row.split() for row in rows]
        return [(row[0], row[1] if len(row) > 1 else "") for row in names]

    def tree(self, commit: str) -> dict[bytes, tuple[str, str]]:
        """Return the mode and blob of every path in a commit."""
        found: dict[bytes, tuple[str, str]] = {}
        for entry in self.run("ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0"):
            if entry:
                meta, _, path = entry.partition(b"\t")
                mode, _, blob = meta.decode().split()
                found[path] = (mode, blob)
        return found

    def commits(self, line: list[tuple[str, str]]) -> Iterator[Commit]:
        """Return the changes of each commit against its first parent. A rename is a deletion and a new file."""
        with tempfile.TemporaryFile() as asked:
            asked.write("".join(f"{name} {parent}".rstrip() + "\n" for name, parent in line).encode())
            asked.seek(0)
            options = ["-r", "-z", "--raw", "--root", "--no-renames", "--no-abbrev", "--always", "--stdin"]
            process = subprocess.Popen(
                [*self._git, "diff-tree", *options], env=self._env, stdin=asked, stdout=subprocess.PIPE
            )
            assert process.stdout is not None
            try:
                yield from _parsed(_fields(process.stdout), dict(line))
            finally:
                process.stdout.close()
                process.wait()


def _fields(stream: IO[bytes]) -> Iterator[bytes]:
    rest = b""
    while chunk := stream.read(1 << 16):
        *whole, rest = (rest + chunk).split(b"\0")
        yield from whole


def _parsed(fields: Iterator[bytes], parents: dict[str, str]) -> Iterator[Commit]:
    current: Commit | None = None
    for field in fields:
        if field.startswith(b":"):
            assert current is not None
            old_mode, new_mode, old_blob, new_blob, _ = field[1:].decode().split()
            current.changes.append(Change(next(fields), old_mode, new_mode, old_blob, new_blob))
            continue
        if current is not None:
            yield current
        name = field.split()[0].decode()
        current = Commit(name, parents[name], [])
    if current is not None:
        yield current
