"""`odin best`: several agents do the same task, each in a worktree; the checks of the project judge, and you choose."""

import argparse
import asyncio
import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from odin.app.agent_worktree import AgentWorktrees, AppliedWork
from odin.app.sandbox import LazySandbox
from odin.app.worktrees import Worktrees, open_worktrees
from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output, write_table
from odin.commands.main import read_prompt
from odin.commands.worktree import merge_worktree
from odin.config import Config, Options, load
from odin.config.paths import make_environment
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import OdinError, UsageError
from odin.core.format import clip_line, format_seconds, format_usd
from odin.core.path_names import quote_path
from odin.fleet.candidate import Candidate, Verdict
from odin.fleet.session_run import SessionRun
from odin.host.manager import SessionManager
from odin.models.connector import ModelConnector
from odin.server.local import LocalListener
from odin.tools.project_checks import find_project_checks
from odin.ui.exit import EXIT_UNVERIFIED
from odin.ui.terminal import (
    TextPainter,
    escape_control,
    escape_hidden,
    get_terminal_size,
    is_dumb,
    read_chunk,
    restore_terminal_after,
    shorten,
    write_text,
)

DESCRIPTION = """\
Have several agents do the same task, each in a git worktree of the project as it is. The checks of the project judge
the results; you choose one, and its changes are merged into your files. The work of all stays on branches `odin/...`.

Commands run in the sandbox of the worktree without approval; where no sandbox works, Odin refuses. Exit code 0: one was
applied, or one passes the checks (or there are none); 1: not everything could be applied; 3: none passes.
"""

_MOST = 9
_MODEL_CHARS = 34
_DRAW_S = 0.5
_CLOSE_S = 10.0
_CHECK_WORDS: dict[Verdict, str] = {
    "passed": "pass",
    "failed": "FAIL",
    "unchecked": "none",
    "unfinished": "not run",
    "unchanged": "not run",
}
_HINT = "This is a git worktree. Programs of the project that it lacks are in {}."


def run_best(argv: list[str]) -> int:
    parser = Parser(prog="odin best", description=DESCRIPTION, formatter_class=make_formatter)
    add = parser.add_argument
    add("prompt", nargs="?", metavar="TASK", help="the task; text piped to odin best is added to it")
    add(
        "-n", type=int, default=0, metavar="N", help=f"how many agents, at most {_MOST} (default 3, or one per --model)"
    )
    add("-m", "--model", action="append", default=[], metavar="MODEL", help="a model; repeatable: they take turns")
    add("--pool", default="", metavar="NAME", help="take the models of this pool in turn")
    add("--check", action="append", default=[], metavar="COMMAND", help="judge by this command; repeatable")
    add("--apply", choices=("best",), default="", help="apply the best one that passes, without asking")
    add("--budget-usd", type=float, default=0.0, metavar="USD", help="limit for all agents; each gets an equal share")
    add("--minutes", type=float, default=60.0, metavar="N", help="time limit (default 60)")
    parser.add_common_flags()
    args = parser.parse_args(argv)
    args.n = args.n or len(args.model) or 3
    if not 1 <= args.n <= _MOST:
        raise UsageError(f"-n must be 1 to {_MOST}.")
    if args.model and args.pool:
        raise UsageError("--model and --pool cannot be combined.")
    if not (0 <= args.budget_usd < math.inf and 0 < args.minutes < math.inf):
        raise UsageError("--budget-usd and --minutes must be positive numbers.")
    return asyncio.run(_run(args, read_prompt(args.prompt)))


async def _run(args: argparse.Namespace, prompt: str) -> int:
    environment = make_environment(cwd=args.cwd)
    config = load(environment.cwd, environment.variables)
    sandbox = LazySandbox(config, environment)
    await sandbox.examine(views=False)
    problem = sandbox.explain_unconfined()
    await sandbox.close()
    if problem:
        raise UsageError(
            f"The agents work unattended, and {problem}.", "`odin doctor` says how to get a sandbox that works."
        )
    connector = ModelConnector(config, environment.variables)
    models = connector.pools.list_usable(args.pool) if args.pool else args.model
    for model in models:
        connector.check_ref(model)
    async with open_worktrees(environment) as trees:
        contest = _Contest(args, prompt, trees, config, environment)
        try:
            await contest.compete(models or [""])
            return await contest.choose()
        finally:
            await contest.keep_branches()


class _Contest:
    """The candidates, the best one first when all are done."""

    def __init__(
        self,
        args: argparse.Namespace,
        prompt: str,
        trees: Worktrees,
        config: Config,
        environment: ExecutionEnvironment,
    ) -> None:
        self._args = args
        self._prompt = prompt
        self._trees = trees
        self._config = config
        self._environment = environment
        self._candidates: list[Candidate] = []
        self._applied: Candidate | None = None
        self._name = time.strftime(f"best-%m%d-%H%M%S{os.getpid() % 1000:03}")  # two can start in the same second
        self._has_checks = False
        self._is_undoable = True
        self._is_over = False
        self._painter = TextPainter(sys.stdout)

    # --- the work ---

    async def compete(self, models: Sequence[str]) -> None:
        args, worktrees = self._args, AgentWorktrees(self._trees, self._environment.cwd)
        for number in range(1, args.n + 1):
            tree = await worktrees.create(f"{self._name}-{number}")
            programs = _find_programs(self._config.root, tree.root)
            options = Options(
                model=models[(number - 1) % len(models)],
                permission_mode="auto",
                headless=True,
                max_budget_usd=args.budget_usd / args.n or None,
                state_dir=self._environment.state_dir,
                append_system_prompt=_HINT.format(" and ".join(programs)) if programs else "",
            )
            variables = _make_check_variables(self._environment.variables, programs, tree.root)
            self._candidates.append(Candidate(number, tree, options, variables))
        checks, folder = self._find_checks()
        self._has_checks = bool(checks)
        if args.apply and not checks:
            raise UsageError("The project has no checks that could judge.", "Name some with --check.")
        manager = SessionManager()
        options = Options(cwd=self._environment.cwd, state_dir=self._environment.state_dir)
        agents = f"{args.n} agents work on it, each" if args.n > 1 else "An agent works on it"
        write_message(f"{agents} in a worktree. Ctrl-C stops the work.")
        is_live = sys.stderr.isatty() and not is_dumb(os.environ)
        drawing = asyncio.create_task(self._show_progress()) if is_live else None

        async def work(one: Candidate) -> None:
            await one.work(manager, SessionRun(self._prompt, args.minutes), checks, folder)
            if not is_live:
                write_text(sys.stderr, f"{self._format_progress(one)}\n")

        try:
            async with LocalListener(manager, options, Path(self._environment.state_dir)):
                await asyncio.gather(*map(work, self._candidates))
        finally:
            if drawing is not None:
                drawing.cancel()
                await asyncio.wait({drawing})
            await manager.close(_CLOSE_S)
        self._candidates.sort(key=lambda one: one.rank)

    def _find_checks(self) -> tuple[Sequence[str], str]:
        """Return the checks, and the folder of the worktrees in which they run.

        They are those of the project before anybody worked on it.
        """
        first = self._candidates[0]
        tree = first.tree
        if self._args.check:
            return self._args.check, os.path.relpath(tree.cwd, tree.root)
        found = find_project_checks(tree.cwd, tree.root, {**self._environment.variables, **first.variables})
        return (found.commands, os.path.relpath(found.folder, tree.root)) if found else ((), ".")

    async def _show_progress(self) -> None:
        """Show in place what the agents do, until cancelled."""
        shown: list[str] = []
        while True:
            columns = get_terminal_size(sys.stderr)[0]
            erase = f"\x1b[{len(shown)}A\x1b[J" if shown else ""
            shown = [shorten(self._format_progress(one), columns - 1) for one in self._candidates]
            write_text(sys.stderr, erase + "".join(f"{row}\n" for row in shown))
            try:
                await asyncio.sleep(_DRAW_S)
            except asyncio.CancelledError:
                write_text(sys.stderr, f"\x1b[{len(shown)}A\x1b[J")
                raise

    def _format_progress(self, one: Candidate) -> str:
        model = shorten(escape_hidden(one.model), _MODEL_CHARS).ljust(_MODEL_CHARS)
        doing = escape_hidden(one.activity)[:14]
        return f"{one.number}  {model}  {doing:14}  {format_usd(one.usd):>8}  {format_seconds(one.seconds)}"

    # --- the choice ---

    async def choose(self) -> int:
        """Show what the candidates came to, and apply one if that is wanted. Return the exit code."""
        if not self._args.json:
            self._write_table()
        best = self._candidates[0]
        is_good = best.verdict in ("passed", "unchecked")
        chosen = best if self._args.apply and is_good else None
        can_ask = not self._args.apply and not self._args.json and sys.stdin.isatty() and sys.stdout.isatty()
        if can_ask and any(one.files for one in self._candidates):
            chosen = await self._ask()
        work = await self._apply(chosen) if chosen else None
        await self.keep_branches()
        if self._args.json:
            write_json({"candidates": [self._describe(one) for one in self._candidates], "applied": work})
        if work is not None:
            return 0 if work.is_complete else 1
        return 0 if is_good else EXIT_UNVERIFIED

    def _write_table(self) -> None:
        rows = [("", "MODEL", "CHECKS", "FILES", "LINES", "COST", "TIME")]
        for one in self._candidates:
            added, removed = one.lines
            rows.append(
                (
                    str(one.number),
                    shorten(one.model, _MODEL_CHARS),
                    _CHECK_WORDS[one.verdict or "unfinished"],
                    str(len(one.files)),
                    f"+{added} −{removed}",
                    format_usd(one.usd),
                    format_seconds(one.seconds),
                )
            )
        write_table(rows)
        columns = get_terminal_size(sys.stdout)[0]
        for one in self._candidates:
            if one.fault:
                write_output(f"{shorten(escape_hidden(f'{one.number}: {one.fault.splitlines()[0]}'), columns - 1)}\n")
        if not self._has_checks and any(one.files for one in self._candidates):
            write_output("The project has no checks that could judge. Name some with --check.\n")

    async def _ask(self) -> Candidate | None:
        """Return the one that the user applies; None to leave them all."""
        import tty

        fd = sys.stdin.fileno()
        by_key = {str(one.number): one for one in self._candidates if one.files}
        keys = "/".join(by_key)
        with restore_terminal_after(fd):
            # Before the question and for all of them: a key that is pressed between two modes would be lost.
            tty.setcbreak(fd)  # discards what was typed before
            while True:
                key = await _ask_key(fd, f"Apply {keys}, see a diff (d), or leave them as branches (q)? ")
                if key in by_key:
                    return by_key[key]
                if key in ("d", "D"):
                    chosen = next(iter(by_key)) if len(by_key) == 1 else await _ask_key(fd, f"Which, {keys}? ")
                    if chosen in by_key:
                        self._show_diff(by_key[chosen])
                        self._write_table()
                elif key in ("q", "Q", "\x1b", "\x04", ""):
                    return None

    def _show_diff(self, one: Candidate) -> None:
        assert one.diff is not None
        answer = one.run.ended.text if one.run and one.run.ended else ""
        paint = self._painter.paint
        lines = [paint(f"{one.number}: {escape_hidden(one.diff.describe())}", "bold"), ""]
        lines += [escape_control(text) for text in (answer, one.fault) if text]
        for line in escape_control(one.diff.text).splitlines():
            is_head = line.startswith(("+++", "---", "diff ", "index "))
            style = "green" if line.startswith("+") else "red" if line.startswith("-") else None
            lines.append(paint(line, "bold") if is_head else paint(line, style) if style else line)
        write_output("\n".join(lines) + "\n\n", verbatim=True)

    async def _apply(self, one: Candidate) -> AppliedWork:
        work = await merge_worktree(self._trees, one.tree, self._environment)
        self._applied, self._is_undoable = one, work.is_complete
        if not self._args.json:
            write_output(f"{escape_control(work.describe())} Nothing is committed.\n")
        return work

    # --- the end ---

    async def keep_branches(self) -> None:
        """Commit the work of all to their branches, remove the worktrees, and say what there is. Once."""
        candidates, kept, notes = self._candidates, list[Candidate](), list[str]()
        if self._is_over:
            return
        self._is_over = True
        title = f"odin best: {clip_line(self._prompt, 60)}"
        for one in sorted(candidates, key=lambda one: one.number):
            try:
                end = await one.tree.end_as_branch(title)
            except OdinError as error:
                notes.append(f"{one.tree.name}: {error.describe()}")
                continue
            if end.branch and end.is_removed:
                kept.append(one)
            if not end.is_removed or end.moved_to:
                notes.append(end.describe())
        if kept and not self._args.json:
            self._write_branches(kept)
        elif any(one.run for one in candidates) and not self._args.json:
            write_output("Nothing was changed, so there are no branches.\n")
        for note in notes:
            write_message(note)

    def _write_branches(self, kept: Sequence[Candidate]) -> None:
        folder = self._trees.find_own_place().folder
        git = "git" if self._environment.cwd == str(folder) else f"git -C {quote_path(str(folder))}"
        one = self._applied or next(one for one in self._candidates if one in kept)
        diff = f"{git} diff --binary {one.tree.start[:10]} {one.tree.branch}"
        numbers = ",".join(str(one.number) for one in kept)
        branches = kept[0].tree.branch if len(kept) == 1 else f"odin/{self._name}-{{{numbers}}}"
        action = f"Undo:     {diff} | {git} apply -R" if self._applied else f"Apply:    {diff} | {git} apply"
        lines = [
            *([action] if self._is_undoable else []),
            f"Branches: {branches}",
            f"See one:  {diff.replace(' --binary', '')}",
            f"Remove:   {git} branch -D {branches}",
        ]
        write_output("".join(f"{escape_hidden(line)}\n" for line in lines))

    def _describe(self, one: Candidate) -> dict[str, object]:
        assert one.result is not None
        added, removed = one.lines
        return {
            "number": one.number,
            "verdict": one.verdict,
            "fault": one.fault,
            "model": one.model,
            "session": one.result.session,
            "start": one.tree.start,
            "branch": one.tree.branch if one.files else "",
            "files": [file.path for file in one.files],
            "added": added,
            "removed": removed,
            "requests": one.result.requests,
            "tokens_in": one.result.tokens_in,
            "tokens_out": one.result.tokens_out,
            "usd": one.usd,
            "seconds": one.seconds,
            "applied": one is self._applied,
        }


def _find_programs(project: str, root: str) -> list[str]:
    """Return the folders of the project's own programs that git ignores, so that a worktree lacks them."""
    places = [Path(project, place) for place in (".venv/bin", "venv/bin", "node_modules/.bin")]
    return [str(place) for place in places if place.is_dir() and not Path(root, place.relative_to(project)).exists()]


def _make_check_variables(variables: Mapping[str, str], programs: Sequence[str], root: str) -> dict[str, str]:
    """Return variables with which checks find these programs.

    A package that is installed in the virtual environment as a link to the project is taken from the worktree.
    """
    if not programs:
        return {}
    sources = Path(root, "src") if Path(root, "src").is_dir() else Path(root)
    return {
        "PATH": os.pathsep.join((*programs, variables.get("PATH", ""))),
        "PYTHONPATH": os.pathsep.join(filter(None, (str(sources), variables.get("PYTHONPATH", "")))),
    }


async def _ask_key(fd: int, question: str) -> str:
    write_text(sys.stdout, question)
    key = (await read_chunk(fd)).decode(errors="replace")[:1]
    write_text(sys.stdout, f"{key if key.isprintable() else ''}\n")
    return key
