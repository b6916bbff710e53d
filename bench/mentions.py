"""Complete `@path` among 300,000 files: time per key, and how long the event loop is blocked.

The tree is on disk and contains links in cycles and other traps for a naive walk. The floor is ripgrep listing the
same files, and one search of all names for a word that does not occur. Blocking is measured in CPU time, so that other
programs do not count.
"""

import asyncio
import os
import random
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from odin.config.paths import make_environment
from odin.sandbox.runner import ProcessRunner
from odin.tools.file_finder import FileFinder, PathIndexer
from odin.tools.ripgrep import find_ripgrep
from row import Row
from tree import WORDS

FILES = 300_000
_ENDINGS = ("py", "ts", "go", "md", "json", "css")


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        _tree(root, FILES)
        floor, names = _listed(root)
        first, walked, keys, looks, blocked = asyncio.run(_typed(root, names))
    return [
        Row(f"first @ among {FILES:,} files", first, floor, 1.0, "ms", True, 150.0),
        Row("the same, until all are known", walked, floor, 4.0, "ms", True, 500.0),
        Row("another letter (median)", statistics.median(keys), statistics.median(looks), 8.0, "ms", True),
        Row("another letter (slowest)", max(keys), statistics.median(looks), 30.0, "ms", True),
        Row("longest wait of the event loop", blocked, None, 20.0, "ms", False),
    ]


def _tree(root: Path, files: int) -> None:
    chance = random.Random(3)
    words = (*WORDS, "ServiceRegistry", "handler", "Widget", "test_engine", "README")
    for number in range(files // 20):
        folder = root / f"{chance.choice(words)}{number % 40}" / f"{chance.choice(words)}{number % 900}" / f"p{number}"
        folder.mkdir(parents=True, exist_ok=True)
        for each in range(20):
            name = f"{chance.choice(words)}_{chance.choice(words)}{each}.{chance.choice(_ENDINGS)}"
            os.close(os.open(folder / name, os.O_CREAT | os.O_WRONLY))
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to(root, target_is_directory=True)


def _listed(root: Path) -> tuple[float, str]:
    began = time.perf_counter()
    listing = [find_ripgrep() or "rg", "--files", "--threads=2"]
    listed = subprocess.run(listing, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    return (time.perf_counter() - began) * 1000, listed.stdout


async def _typed(root: Path, names: str) -> tuple[float, float, list[float], list[float], float]:
    """Return milliseconds: first answer, index complete, each further key, a bare search, and the longest blocking.

    Keys and bare searches alternate.
    """
    runner = ProcessRunner(make_environment())
    paths = PathIndexer(str(root), runner, dict(os.environ))
    finder = FileFinder(paths, recent=list)
    longest, over = 0.0, asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not over.is_set():
            began = time.thread_time()
            await asyncio.sleep(0)
            longest = max(longest, time.thread_time() - began)
            await asyncio.sleep(0.001)

    watching = asyncio.create_task(watch())
    began = time.perf_counter()
    found = await finder("s")
    first = (time.perf_counter() - began) * 1000
    assert found, "nothing was found at once"
    while paths.is_walking:
        await asyncio.sleep(0.005)
    walked = (time.perf_counter() - began) * 1000
    keys: list[float] = []
    looks: list[float] = []
    for word in ("servreg12.py", "streamtok", "wdgt_hndl", "test_engine_readme7", "gamma3/delta", "zzzq", "e", "/"):
        for end in range(1, len(word) + 1):
            began = time.perf_counter()
            await finder(word[:end])
            keys.append((time.perf_counter() - began) * 1000)
        looks.append(await asyncio.to_thread(_look, names))
    over.set()
    await watching
    await finder.close()
    await paths.close()
    return first, walked, keys, looks, longest * 1000


def _look(names: str) -> float:
    began = time.perf_counter()
    assert names.lower().find("no such name") < 0
    return (time.perf_counter() - began) * 1000
