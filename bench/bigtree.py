"""Time to the first request in a folder with very many files and in an empty one. Start-up must not walk the tree."""

import statistics
import tempfile
from pathlib import Path

from agent import ODIN, Server, timed
from row import Row
from tree import crowded_tree


def rows(rounds: int, files: int) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        big, home, empty = folder / "big", folder / "home", folder / "empty"
        for path in (big, home, empty):
            path.mkdir()
        crowded_tree(big, files)
        server = Server(folder, turns=0)
        places = {"empty": (empty, home), "big": (big, home), "home": (big, big)}
        samples: dict[str, list[float]] = {place: [] for place in places}
        try:
            for _ in range(rounds):
                for place, (cwd, owner) in places.items():
                    started, _, _ = timed([*ODIN, "-p", "--yes", "go"], server.environment(owner), cwd)
                    samples[place].append((server.new_requests(1)[0]["at"] - started) * 1000)
        finally:
            server.stop()
    floor = statistics.median(samples["empty"])
    return [
        Row(f"first request among {files:,} files", statistics.median(samples["big"]), floor, 1.2, "ms", True),
        Row("the same, in the home folder", statistics.median(samples["home"]), floor, 1.2, "ms", True),
    ]
