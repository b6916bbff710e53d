"""`odin eval`: small everyday tasks with any model, checked by the files and the answers, with what they cost."""

import argparse
import asyncio
import os
import statistics
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from odin.app.sandbox import LazySandbox
from odin.commands.command_line import Parser, make_formatter, write_json, write_output
from odin.config import Options, get_state_dir, load
from odin.config.paths import SCRATCH_FOLDER, make_environment
from odin.core.errors import UsageError
from odin.core.private_folders import open_scratch
from odin.fleet.eval_suite import EVAL_CALLS, EVAL_MINUTES, EvalTask, load_eval_tasks
from odin.fleet.session_run import SessionRun
from odin.host.manager import SessionManager
from odin.sandbox.runner import ProcessRunner

DESCRIPTION = """\
Run small everyday tasks with a model, each in a new project in a temporary folder, and print which it solved, with its
requests, tokens and time. Everything is allowed in these folders: commands of the model run without approval.

Half of the tasks, marked with *, are held out: the results of the others decide what Odin does for small models. All
tasks are part of Odin's source, so take the score as a comparison, not as a forecast for your work. Exit code 0: the
suite ran.
"""


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
    tasks = _choose_tasks(load_eval_tasks(), args)
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
    add("--max-turns", type=int, default=EVAL_CALLS, metavar="N", help=f"most steps per task (default {EVAL_CALLS})")
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
        run = SessionRun(task.prompt, EVAL_MINUTES)
        manager = SessionManager()
        try:
            result = await run.run(manager, options, task.name)
        finally:
            await manager.close()
        answer = run.ended.text if run.ended else ""
        environment = make_environment(env, str(folder))
        runner = ProcessRunner(environment, sandbox=LazySandbox(load(str(folder), env), environment).get)
        try:
            fault = await task.find_fault(folder, answer, runner)
        finally:
            await runner.close()
    return EvalResult(
        task.name,
        task.kind,
        task.language,
        task.held_out,
        not fault,
        fault,
        result.requests,
        result.tokens_in,
        result.tokens_out,
        round(result.seconds, 1),
        result.reason or "end_turn",
        answer,
    )


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
