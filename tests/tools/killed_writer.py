"""Run by test_atomic_write_kills: for each input line, fork a writer, print its pid and, at its end, its exit code.

The writer prints 0 before it starts to write, then edits and writes files through the tools, again and again. It runs
with a lower priority than the test that watches it, and the test kills it at a random moment.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.tools.toolbox import Toolbox

WHOLE_FILE_SIZE = 300_000
"""Size of the file that is overwritten as a whole."""

HEADS = {"A": "state A\n", "B": "state B\n" + "b" * 99 + "\n" * 3000}


def make_body(size: int) -> str:
    line = "".join(f"{number:07d} some text that fills a line\n" for number in range(1000))
    return line * (size // len(line))


def make_states(size: int) -> tuple[str, str]:
    """Return the two texts that a file may contain. Their common lines are at different positions."""
    return HEADS["A"] + make_body(size), HEADS["B"] + make_body(size)


def make_new_text(number: int) -> str:
    return f"new {number}\n" + make_body(200_000)


def report(number: int) -> None:
    os.write(1, f"{number}\n".encode())


async def warm_up(folder: Path) -> None:
    """Load the modules that the tools load on first use, so that a writer starts to write at once."""
    box = Toolbox(folder)
    path = box.write("small.txt", HEADS["A"])
    await toggle(box, path)
    await box.ok("WriteFile", file_path=path, content="x\n")


async def write_until_killed(folder: Path, turn: int) -> None:
    """Write files until killed. Each `turn` starts with another kind of write, so that none is always the last."""
    box = Toolbox(folder)
    number = os.getpid() * 1000
    await box.ok("Read", file_path=str(folder / "whole.txt"), limit=5)
    report(0)
    while True:
        number, turn = number + 1, turn + 1
        if turn % 4 == 0:
            await box.ok("WriteFile", file_path=str(folder / f"new-{number}.txt"), content=make_new_text(number))
        elif turn % 4 == 3:
            path = folder / "whole.txt"
            a, b = make_states(WHOLE_FILE_SIZE)
            await box.ok("WriteFile", file_path=str(path), content=b if path.read_text() == a else a)
        else:
            await toggle(box, str(folder / ("big.txt" if turn % 4 == 1 else "linked.txt")))


async def toggle(box: Toolbox, path: str) -> None:
    with open(path) as file:
        old, new = ("A", "B") if file.readline() == HEADS["A"] else ("B", "A")
    await box.ok("Read", file_path=path, limit=len(HEADS[old].split("\n")))
    await box.ok("EditTool", file_path=path, old_string=HEADS[old], new_string=HEADS[new])


def main() -> None:
    folder = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(warm_up(Path(scratch)))
    for turn, _ in enumerate(sys.stdin):
        pid = os.fork()
        if pid == 0:
            os.nice(10)
            asyncio.run(write_until_killed(folder, turn))
        report(pid)
        _, status = os.waitpid(pid, 0)
        report(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
