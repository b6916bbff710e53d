"""What a view costs a command: beside the same command without one, and in a tree of 100,000 files.

`run.py` calls `rows()`; run directly, this file prints the results.
"""

import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from row import Row, table
from tree import crowded_tree

ROUNDS = 40
FILES = 100_000


async def _measure(*works: Callable[[], Awaitable[None]], rounds: int) -> list[float]:
    """Return the median milliseconds of each, run in turns. Between two runs there is time to prepare the next view."""
    samples: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for work, found in zip(works, samples, strict=True):
            await asyncio.sleep(0.03)
            started = time.perf_counter()
            await work()
            found.append((time.perf_counter() - started) * 1000)
    return [statistics.median(found) for found in samples]


async def _rows() -> list[Row]:
    from odin.checkpoints.project_listing import ListingLimits, ProjectLister
    from odin.checkpoints.store import CheckpointStore
    from odin.config.paths import make_environment
    from odin.core.profile import PROJECT, READ, ProcessProfile
    from odin.sandbox.layout import SandboxSession
    from odin.sandbox.probe import SandboxOptions
    from odin.sandbox.runner import ProcessRunner
    from odin.sandbox.sandbox import Sandbox
    from odin.sandbox.views.applier import apply_effects
    from odin.sandbox.views.effects import read_effects
    from odin.sandbox.views.layer import remove_layer

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        root = folder / "project"
        root.mkdir()
        environment = make_environment(cwd=str(root))
        session = SandboxSession(
            root=str(root), home=environment.home, env=environment.variables, views=str(folder / "views")
        )
        sandbox = Sandbox(session, SandboxOptions("auto"))
        runner = ProcessRunner(environment, sandbox=lambda: sandbox)
        await sandbox.examine()
        if reason := sandbox.explain_no_view():
            raise SystemExit(f"There are no views here: {reason}.")

        async def run(command: str, profile: ProcessProfile) -> None:
            done = await runner.run(command, cwd=str(root), timeout=60, profile=profile)
            if done.view is not None:
                effects = await asyncio.to_thread(read_effects, done.view)
                if effects:
                    apply_effects(done.view, effects, f"{folder}/stage-{time.perf_counter_ns()}")
                asyncio.get_running_loop().call_later(0.01, remove_layer, done.view)

        view = ProcessProfile("project", view=True)
        await run("true", view)
        viewed, direct, listed = await _measure(
            lambda: run("true", view), lambda: run("true", PROJECT), lambda: run("true", READ), rounds=ROUNDS
        )
        crowded_tree(root, FILES)
        lister = ProjectLister(CheckpointStore(folder / "store"), ListingLimits())

        async def write_listed() -> None:
            before = await asyncio.to_thread(lister.list, str(root), keep=True)
            await run("echo x >> note", PROJECT)
            lister.find_changes(before, await asyncio.to_thread(lister.list, str(root), keep=True, like=before))

        await write_listed()
        written, before = await _measure(lambda: run("echo x >> note", view), write_listed, rounds=5)
        await runner.close()
        await sandbox.close()
    return [
        Row("a command in a view; floor: without one", viewed, direct, 1, "ms", True, 4),
        Row("a read-only program of the short list; floor: a command without a view", listed, direct, 1, "ms", True, 1),
        Row(f"writing among {FILES:,} files; floor: listing them before and after", written, before, 1, "ms", True),
    ]


def rows() -> list[Row]:
    return asyncio.run(_rows())


if __name__ == "__main__":
    print(table(rows()))
