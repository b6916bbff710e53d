"""`odin eval`: small everyday tasks with any model, checked by the files and the answers, with what they cost.

The tasks are data in eval_tasks/*.toml. A file has `held_out` (its tasks are only measured, see the help text),
`projects` (files by path) and `tasks`:

- `project`, `prompt`, `kind`, `language` and a unique `name`;
- what counts as solved: `exact` (the files are those of the solution, but for spaces and blank lines), `has` and
  `lacks` (patterns by file), `absent` (files), `run` (commands that succeed in the folder), `answer` (a pattern);
- `solution` and `wrong`, which a test applies to prove that the check accepts the one and rejects the other: `edits`
  (path, old, new), `files`, `delete`, `answer`.

Files that the solution leaves alone must not change.
"""

import argparse
import asyncio
import os
import re
import statistics
import time
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, field

from odin.app.sandbox import LazySandbox
from odin.commands.command_line import Parser, make_formatter, write_json, write_output
from odin.config import Options, get_state_dir, load
from odin.config.paths import SCRATCH_FOLDER, make_environment
from odin.core.call_events import UsageRecorded
from odin.core.errors import OdinError, UsageError
from odin.core.event import TurnEnded
from odin.core.message import Usage
from odin.core.op import Prompt
from odin.core.private_folders import open_scratch
from odin.core.profile import PROJECT
from odin.host.manager import SessionManager
from odin.sandbox.runner import ProcessRunner, SandboxUnavailable

DESCRIPTION = """\
Run small everyday tasks with a model, each in a new project in a temporary folder, and print which it solved, with its
requests, tokens and time. Everything is allowed in these folders: commands of the model run without approval.

Half of the tasks, marked with *, are held out: the results of the others decide what Odin does for small models. All
tasks are part of Odin's source, so take the score as a comparison, not as a forecast for your work. Exit code 0: the
suite ran.
"""

_TASK_SECONDS = 900
_CHECK_SECONDS = 30


class TaskChange(Struct, frozen=True):
    """Changes to a project, and the answer given with them."""

    edits: tuple[tuple[str, str, str], ...] = ()
    files: dict[str, str] = field(default_factory=dict[str, str])
    delete: tuple[str, ...] = ()
    answer: str = ""

    def apply(self, folder: Path) -> None:
        for path, old, new in self.edits:
            text = (folder / path).read_text()
            if old not in text:
                raise ValueError(f"{path} does not contain {old!r}")
            (folder / path).write_text(text.replace(old, new))
        for path, text in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
        for path in self.delete:
            (folder / path).unlink()

    @property
    def paths(self) -> set[str]:
        return {path for path, _, _ in self.edits} | set(self.files) | set(self.delete)


class EvalTask(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    kind: str
    language: str
    project: str
    prompt: str
    solution: TaskChange
    wrong: TaskChange
    exact: bool = False
    has: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    lacks: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    absent: tuple[str, ...] = ()
    run: tuple[str, ...] = ()
    answer: str = ""
    held_out: bool = False
    files: dict[str, str] = field(default_factory=dict[str, str])
    """The files of the project."""

    def write_project(self, folder: Path) -> None:
        TaskChange(files=self.files).apply(folder)

    async def find_fault(self, folder: Path, answer: str, runner: ProcessRunner) -> str:
        """Return why the task is not solved by the files in a folder and an answer; "" if it is."""
        faults = (*self._list_file_faults(folder), *self._list_text_faults(folder))
        if faults:
            return faults[0]
        if self.answer and not re.search(self.answer, answer):
            return "the answer is wrong"
        for command in self.run:
            if not await _is_successful(command, folder, runner):
                return f"fails: {command}"
        return ""

    def _list_file_faults(self, folder: Path) -> Iterator[str]:
        for path, text in self.files.items():
            if path not in self.solution.paths and _read(folder / path) != text:
                yield f"{path} was changed"
        yield from (f"{path} still exists" for path in self.absent if (folder / path).exists())
        if self.exact:
            for path, text in self._apply_solution().items():
                if _strip_blank_lines(_read(folder / path)) != _strip_blank_lines(text):
                    yield f"{path} is not as expected"

    def _list_text_faults(self, folder: Path) -> Iterator[str]:
        for path, patterns in self.has.items():
            text = _read(folder / path)
            yield from (f"{path} lacks {pattern}" for pattern in patterns if not re.search(pattern, text))
        for path, patterns in self.lacks.items():
            text = _read(folder / path)
            yield from (f"{path} has {pattern}" for pattern in patterns if re.search(pattern, text))

    def _apply_solution(self) -> dict[str, str]:
        """Return the files that the solution changes, with their content after it."""
        solved = dict(self.solution.files)
        for path, old, new in self.solution.edits:
            solved[path] = solved.get(path, self.files.get(path, "")).replace(old, new)
        return solved


class _TaskFile(Struct, frozen=True, forbid_unknown_fields=True):
    held_out: bool
    projects: dict[str, dict[str, str]]
    tasks: tuple[EvalTask, ...]


def load_tasks() -> tuple[EvalTask, ...]:
    """Return all tasks, those for tuning first."""
    tasks: list[EvalTask] = []
    for path in sorted(Path(__file__).with_name("eval_tasks").glob("*.toml"), reverse=True):
        read = msgspec.convert(tomllib.loads(path.read_text()), _TaskFile)
        tasks += [
            msgspec.structs.replace(task, held_out=read.held_out, files=read.projects[task.project])
            for task in read.tasks
        ]
    return tuple(tasks)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeError):
        return ""


def _strip_blank_lines(text: str) -> list[str]:
    """Return the lines without blank ones and without spaces at their ends."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


async def _is_successful(command: str, folder: Path, runner: ProcessRunner) -> bool:
    env = {"HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = await runner.run(command, cwd=str(folder), timeout=_CHECK_SECONDS, env=env, profile=PROJECT)
    except SandboxUnavailable as error:
        raise OdinError(f"The task could not be checked. {error}") from error
    return done.code == 0 and not done.timed_out


class EvalResult(Struct, frozen=True):
    name: str
    kind: str
    language: str
    held_out: bool
    solved: bool
    fault: str
    requests: int
    tokens_in: int
    tokens_out: int
    seconds: float
    ending: str
    answer: str


def run_eval(argv: list[str]) -> int:
    args = _parse_args(argv)
    tasks = _choose_tasks(load_tasks(), args)
    if args.list:
        rows = [
            f"{task.name:22} {'held out' if task.held_out else 'tuning':9} {task.language:11} {task.kind}"
            for task in tasks
        ]
        return write_output("".join(f"{row}\n" for row in rows))
    results: list[EvalResult] = []
    for task in tasks:
        result = asyncio.run(_run_task(task, args))
        results.append(result)
        if not args.json:
            write_output(_format_result(result))
    if args.json:
        return write_json({"model": args.model, "results": results})
    return write_output(_format_summary(results))


def _parse_args(argv: list[str]) -> argparse.Namespace:
    parser = Parser(prog="odin eval", description=DESCRIPTION, formatter_class=make_formatter)
    add = parser.add_argument
    add("--model", default="", metavar="MODEL", help="the model; default: the configured one")
    add("--only", action="append", default=[], metavar="WORD", help="only tasks whose name, kind or language has WORD")
    add("--half", choices=("tuning", "held-out"), default="", help="only this half of the tasks")
    add("--max-turns", type=int, default=40, metavar="N", help="most steps per task (default 40)")
    add("--keep", default="", metavar="DIR", help="keep the projects and sessions of the tasks in DIR")
    add("--list", action="store_true", help="list the tasks")
    add("--json", action="store_true", help="print JSON")
    return parser.parse_args(argv)


def _choose_tasks(tasks: Sequence[EvalTask], args: argparse.Namespace) -> list[EvalTask]:
    words = [word.casefold() for word in args.only]
    chosen = [
        task
        for task in tasks
        if (not words or any(word in f"{task.name} {task.kind} {task.language}".casefold() for word in words))
        and (not args.half or task.held_out == (args.half == "held-out"))
    ]
    if not chosen:
        raise UsageError("No task matches.", "`odin eval --list` lists the tasks.")
    return chosen


async def _run_task(task: EvalTask, args: argparse.Namespace) -> EvalResult:
    """Run one task in a new folder and check what is there afterwards."""
    import tempfile

    env = dict(os.environ)
    state = get_state_dir(env) / SCRATCH_FOLDER
    with tempfile.TemporaryDirectory(prefix="odin-eval-") as place, open_scratch(state) as private:
        kept = Path(args.keep, task.name).resolve() if args.keep else None
        folder = (kept or Path(place).resolve()) / "project"
        folder.mkdir(parents=True)
        task.write_project(folder)
        options = Options(
            cwd=str(folder),
            model=args.model,
            yes=True,
            headless=True,
            max_turns=args.max_turns,
            state_dir=str((kept or private) / "state"),
            env=env,
        )
        began = time.monotonic()
        ending, answer, usages = await _ask(options, task.prompt)
        seconds = time.monotonic() - began
        environment = make_environment(env, str(folder))
        runner = ProcessRunner(environment, sandbox=LazySandbox(load(str(folder), env), environment).get)
        try:
            fault = await task.find_fault(folder, answer, runner)
        finally:
            await runner.close()
    total = sum(usages, Usage())
    return EvalResult(
        task.name,
        task.kind,
        task.language,
        task.held_out,
        not fault,
        fault,
        len(usages),
        total.total - total.output - total.reasoning,
        total.output + total.reasoning,
        round(seconds, 1),
        ending,
        answer,
    )


async def _ask(options: Options, prompt: str) -> tuple[str, str, list[Usage]]:
    """Return how the turn ended, its answer, and the usage of each request to the model."""
    usages: list[Usage] = []
    client = await SessionManager().open(options)
    try:
        async with asyncio.timeout(_TASK_SECONDS):
            events = client.stream_events()
            await client.submit(Prompt("eval", prompt))
            async for envelope in events:
                event = envelope.event
                if isinstance(event, UsageRecorded):
                    usages.append(event.usage)
                elif isinstance(event, TurnEnded):
                    return event.error_kind or event.reason, event.text, usages
    except TimeoutError:
        return "timeout", "", usages
    except OdinError as error:
        return type(error).__name__, "", usages
    finally:
        await client.close()
    return "aborted", "", usages


def _format_result(result: EvalResult) -> str:
    tokens = f"{result.tokens_in:>6,} in {result.tokens_out:>5,} out"
    name = f"{result.name} *" if result.held_out else result.name
    end = "" if result.solved else f"  {result.fault} ({result.ending})"
    return (
        f"{'solved' if result.solved else 'FAILED'} {name:24} {result.requests:>3} requests {tokens} "
        f"{result.seconds:>6.1f} s{end}\n"
    )


def _format_summary(results: Sequence[EvalResult]) -> str:
    lines = [""]
    for title, half in (("tuning", False), ("* held out", True)):
        chosen = [result for result in results if result.held_out == half]
        if chosen:
            lines.append(_summarize(title, chosen))
    if len({result.held_out for result in results}) > 1:
        lines.append(_summarize("all", results))
    kinds = sorted({result.kind for result in results})
    if len(kinds) > 1:
        lines += ["", *(_summarize(kind, [result for result in results if result.kind == kind]) for kind in kinds)]
    return "\n".join(lines) + "\n"


def _summarize(title: str, results: Sequence[EvalResult]) -> str:
    solved = sum(result.solved for result in results)
    requests = statistics.median(result.requests for result in results)
    seconds = statistics.median(result.seconds for result in results)
    tokens = sum(result.tokens_in for result in results), sum(result.tokens_out for result in results)
    return (
        f"{title:24} {solved:>3} of {len(results):<3} median {requests:g} requests, {seconds:.1f} s; "
        f"{tokens[0]:,} tokens in, {tokens[1]:,} out"
    )
