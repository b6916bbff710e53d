"""Replay the history of a git repository through Odin and compare every file with its commit, byte for byte.

    history.py REPO [--commits N] [--from REV] [--upto REV] [--most-changes N] [--whole-every N] [--seed N]
               [--all] [--window TOKENS] [--json]

Each commit's changes become Read, EditTool, MultiEditTool, WriteFile and Delete calls of the scripted model, run by the
engine in a scratch folder; the repository is only read. Changes that tool calls cannot express (binary files, links,
modes, bytes that are not UTF-8, new files with a mark for a redacted secret) are written by this program, counted and
printed. The exit code is 1 if a file differs or a tool fails.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from gitread import Repository
from odd_history import build
from odin.app import open_session
from odin.config import Options
from odin.core.event import TurnEnded
from odin.core.op import Prompt
from odin.testing import ScriptedServer
from replay import DEFAULT_WINDOW, Replay, ReplayOptions, Tally
from row import Row
from worktree import Worktree

HERE = Path(__file__).resolve().parent
LONGEST_TURN_S = 3600
MODEL = "claude-sonnet-4-5"
DEFAULT_OPTIONS = ReplayOptions(whole_every=200)


async def one_session(server: ScriptedServer, workspace: Path, home: Path, number: int, window: int) -> None:
    """Run one session from opening to closing; its one prompt replays a part of the history."""
    models = {MODEL: {"context": window, "max_output": window // 4}}
    config = home / ".config" / "odin" / "odinconfig.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(json.dumps({"providers": {"anthropic": {"models": models}}, "verify": {"mode": "off"}}))
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "ODIN_LOCAL_PORTS": "", **server.env("anthropic", MODEL)}
    state = str(home / f"state-{number}")
    client = await open_session(Options(cwd=str(workspace), env=env, yes=True, max_turns=0, state_dir=state))
    try:
        events = client.stream_events()
        await client.submit(Prompt("go", "Replay the next commits.", "edit_mode"))
        async with asyncio.timeout(LONGEST_TURN_S):
            async for envelope in events:
                if isinstance(envelope.event, TurnEnded):
                    if envelope.event.reason != "end_turn":
                        raise SystemExit(
                            f"history: the turn ended with {envelope.event.reason}: {envelope.event.error}"
                        )
                    break
    finally:
        await client.close()


def play(replay: Replay, scratch: Path, workspace: Path, window: int) -> None:
    number = 0
    with ScriptedServer(replay.play, window=window) as server:
        while not replay.done:
            replay.new_session()
            number += 1
            asyncio.run(one_session(server, workspace, scratch, number, window))
            server.requests.clear()
            if replay.failure is not None:
                raise replay.failure


def replay_history(
    repo: Path,
    *,
    commits: int = 0,
    since: str = "",
    upto: str = "HEAD",
    most_changes: int = 0,
    every: bool = False,
    options: ReplayOptions = DEFAULT_OPTIONS,
) -> Tally:
    """Replay the last `commits` commits of the first-parent history, those after `since`, or all.

    `every` takes the commits of side branches, too, one after the other. `most_changes` limits them to the last commits
    that together change about this many files.
    """
    repository = Repository(repo)
    try:
        line = _chosen(repository.line(upto, every=every), repository, since, commits, most_changes)
        with tempfile.TemporaryDirectory(prefix="odin-history-", ignore_cleanup_errors=True) as name:
            scratch = Path(name).resolve()
            tree = scratch / "workspace" / "tree"
            tree.mkdir(parents=True)
            replay = Replay(repository, repository.commits(line), Worktree(tree), options)
            if line and line[0][1]:
                replay.start_from(line[0][1])
            started = time.perf_counter()
            play(replay, scratch, scratch / "workspace", options.window)
            replay.tally.seconds = time.perf_counter() - started
            if replay.last is not None:
                replay.compare_tree(replay.last)
            return replay.tally
    finally:
        repository.close()


def _chosen(
    line: list[tuple[str, str]], repository: Repository, since: str, commits: int, changes: int
) -> list[tuple[str, str]]:
    if since:
        start = repository.run("rev-parse", "--verify", f"{since}^{{commit}}").decode().strip()
        line = line[[name for name, _ in line].index(start) + 1 :]
    line = line[-commits:] if commits else line
    if not changes:
        return line
    sizes = [len(commit.changes) for commit in repository.commits(line)]
    kept = len(sizes)
    while kept and (kept == len(sizes) or sum(sizes[kept - 1 :]) <= changes):
        kept -= 1
    return line[kept:]


def rows(repo: Path = HERE.parent, commits: int = 40) -> list[Row]:
    """For `make bench`: replay the history of this repository and a generated one with all unusual cases."""
    with tempfile.TemporaryDirectory(prefix="odin-odd-") as name:
        build(Path(name, "odd"), 200)
        patches = ReplayOptions(patches=True)
        tallies = {
            "own": replay_history(repo, commits=commits),
            "odd": replay_history(Path(name, "odd")),
            "own, as patches": replay_history(repo, commits=commits, options=patches),
            "odd, as patches": replay_history(Path(name, "odd"), options=patches),
        }
    found: list[Row] = []
    for title, tally in tallies.items():
        wrong = len(tally.differences) + len(tally.refusals)
        each = tally.seconds / max(1, sum(tally.calls.values())) * 1000
        found.append(Row(f"history ({title}): wrong files, {tally.commits} commits", wrong, None, 0, "", False))
        found.append(Row(f"history ({title}): one call through the engine", each, None, 50, "ms", False))
    return found


def report(tally: Tally) -> str:
    lines = [
        f"{tally.commits} commits, {tally.files} file changes, {tally.compared} comparisons in {tally.seconds:.1f} s "
        f"({tally.commits / max(tally.seconds, 1e-9):.1f} commits/s)",
        "calls: " + ", ".join(f"{name} {count}" for name, count in sorted(tally.calls.items())),
        f"said as Delete and WriteFile because an edit cannot: {tally.anew}",
        "not said by the model: "
        + (", ".join(f"{reason} {count}" for reason, count in tally.skipped.most_common() if count) or "nothing"),
    ]
    for title, found in (("refused by a tool", tally.refusals), ("different from the commit", tally.differences)):
        lines.append(f"{title}: {len(found)}")
        lines += [f"  {line}" for line in found[:20]]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Play a git history through Odin and compare every byte.")
    parser.add_argument("repo", type=Path)
    parser.add_argument("--commits", type=int, default=0, help="only the last N")
    parser.add_argument("--from", dest="since", default="", help="only those after this one")
    parser.add_argument("--upto", default="HEAD")
    parser.add_argument("--most-changes", type=int, default=0, help="fewer commits, so that about N files change")
    parser.add_argument("--whole-every", type=int, default=200, help="compare the whole tree every N commits")
    parser.add_argument("--seed", type=int, default=0, help="another number says the same edits in other ways")
    parser.add_argument("--all", action="store_true", help="the commits of side branches, too")
    parser.add_argument("--window", type=int, default=DEFAULT_WINDOW, help="the context window of the model in tokens")
    parser.add_argument("--patches", action="store_true", help="say changes as patches where a patch can")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        tally = replay_history(
            args.repo,
            commits=args.commits,
            since=args.since,
            upto=args.upto,
            most_changes=args.most_changes,
            every=args.all,
            options=ReplayOptions(args.whole_every, args.seed, args.window, args.patches),
        )
    except subprocess.CalledProcessError:
        sys.stderr.write(f"history: {args.repo} is not a git repository with such commits (what git said is above).\n")
        return 2
    except (ValueError, LookupError) as error:
        sys.stderr.write(f"history: {error}\n")
        return 2
    print(json.dumps(tally.as_json()) if args.json else report(tally))
    return 0 if tally.good else 1


if __name__ == "__main__":
    sys.exit(main())
