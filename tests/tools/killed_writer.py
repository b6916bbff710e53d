"""Run by test_killed_writes: for each input line, fork a writer, print its pid and, when it has ended, its exit code.

The writer prints 0 before it starts to write, then edits and writes files through the tools, again and again. It gives
way to the one that watches it, and is meant to be killed at any moment.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.tools.toolbox import Toolbox

WHOLE = 300_000
"""Size of the file that is overwritten as a whole."""

HEAD = {"A": "state A\n", "B": "state B\n" + "b" * 99 + "\n" * 3000}


def body(size: int) -> str:
    line = "".join(f"{number:07d} some text that fills a line\n" for number in range(1000))
    return line * (size // len(line))


def states(size: int) -> tuple[str, str]:
    """Return the two texts a file may contain. All bytes of one are at other positions in the other."""
    return HEAD["A"] + body(size), HEAD["B"] + body(size)


def fresh(number: int) -> str:
    return f"new {number}\n" + body(200_000)


def tell(number: int) -> None:
    os.write(1, f"{number}\n".encode())


async def warm_up(folder: Path) -> None:
    """Load the modules that the tools load on first use, so that a writer starts to write at once."""
    box = Toolbox(folder)
    path = box.write("small.txt", HEAD["A"])
    await toggle(box, path)
    await box.ok("WriteFile", file_path=path, content="x\n")


async def write_on(folder: Path, turn: int) -> None:
    """Start with another kind of write each time, so that none is always the last."""
    box = Toolbox(folder)
    number = os.getpid() * 1000
    await box.ok("Read", file_path=str(folder / "whole.txt"), limit=5)
    tell(0)
    while True:
        number, turn = number + 1, turn + 1
        if turn % 4 == 0:
            await box.ok("WriteFile", file_path=str(folder / f"new-{number}.txt"), content=fresh(number))
        elif turn % 4 == 3:
            path = folder / "whole.txt"
            a, b = states(WHOLE)
            await box.ok("WriteFile", file_path=str(path), content=b if path.read_text() == a else a)
        else:
            await toggle(box, str(folder / ("big.txt" if turn % 4 == 1 else "linked.txt")))


async def toggle(box: Toolbox, path: str) -> None:
    with open(path) as file:
        now, then = ("A", "B") if file.readline() == HEAD["A"] else ("B", "A")
    await box.ok("Read", file_path=path, limit=len(HEAD[now].split("\n")))
    await box.ok("EditTool", file_path=path, old_string=HEAD[now], new_string=HEAD[then])


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(warm_up(Path(scratch)))
    for turn, _ in enumerate(sys.stdin):
        pid = os.fork()
        if pid == 0:
            os.nice(10)
            asyncio.run(write_on(folder, turn))
        tell(pid)
        _, status = os.waitpid(pid, 0)
        tell(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
