"""`odin fleet`: many tasks in many repositories, on this machine or on many."""

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from odin.commands.command_line import Parser, make_formatter, write_json, write_message, write_output, write_table
from odin.commands.fleet_engine import add_temporal_flags, open_engine, remember_server, run_worker
from odin.core.errors import OdinError, UsageError
from odin.core.format import clip_line, format_age, format_seconds, format_usd, pluralize
from odin.core.text import suggest_similar
from odin.fleet.board import describe_reason, list_facts
from odin.fleet.engine import FleetEngine, FleetRun, Signal, TaskState, name_session
from odin.fleet.result_store import open_store
from odin.fleet.run_folder import RunFolder, find_run, list_runs
from odin.fleet.summary import FleetSummary, get_seconds, get_status, get_tokens, get_usd, summarize
from odin.ui.terminal import escape_control, escape_hidden

Result = TypeVar("Result")

_COMMANDS = {
    "run": ("TASKS", "run the tasks of a .jsonl file or of a folder; --continue RUN goes on"),
    "list": ("", "list the runs of this machine"),
    "status": ("RUN", "show how far a run is, and what failed"),
    "watch": ("RUN", "show the board of a run that goes on elsewhere"),
    "show": ("RUN TASK", "show a task, its result, and where its files are"),
    "attach": ("RUN TASK", "open the session of a task, live or afterwards"),
    "cancel": ("RUN [TASK...]", "cancel tasks; without names all"),
    "pause": ("RUN [TASK...]", "stop tasks and keep where they are"),
    "resume": ("RUN [TASK...]", "let paused tasks go on"),
    "retry": ("RUN [TASK...]", "start tasks over that did not pass"),
    "report": ("RUN", "print a report: --format markdown, html, json or junit"),
    "compare": ("RUN RUN", "compare two runs on the tasks that both have"),
    "remove": ("RUN", "remove a run, its checkouts and the results in its folder"),
    "worker": ("", "perform the tasks of all runs on a Temporal server"),
}
"""What each command needs after its name, and what it does."""

_ABOUT = """\
Run many tasks, each in a checkout and a session of its own, and see what became of them.

{}

`odin fleet COMMAND --help` shows the flags of one command.
"""
_EXIT_CODES = "Exit codes: 0 all tasks passed, 3 some failed, 75 some did not run or are paused, 130 interrupted."
_SIGNALS: dict[str, Signal] = {"cancel": "cancel", "pause": "pause", "resume": "resume", "retry": "retry"}
_SIGNALLED = {"cancel": "cancelled", "pause": "paused", "resume": "resumed", "retry": "started over"}


def run_fleet(argv: list[str]) -> int:
    if argv[:1] == ["worker"]:
        return run_worker(argv[1:])
    commands: dict[str, Callable[[argparse.Namespace], int]] = {
        "run": _run,
        "list": _list,
        "status": _show_status,
        "watch": _watch,
        "show": _show,
        "attach": _attach,
        **dict.fromkeys(_SIGNALS, _signal),
        "report": _report,
        "compare": _compare,
        "remove": _remove,
    }
    # The flags are those of the command; without one, as for completions, all of them.
    what = argv[0] if argv and argv[0] in commands else ""
    names, does = _COMMANDS.get(what, ("", ""))
    listed = "\n".join(f"  odin fleet {f'{name} {takes}':21}  {text}" for name, (takes, text) in _COMMANDS.items())
    parser = Parser(
        prog=f"odin fleet {what}".rstrip(),
        usage=" ".join(filter(None, ("odin fleet", what, names, "[FLAGS]")))
        if what
        else "odin fleet COMMAND [ARGUMENTS]",
        description=f"{does[:1].upper()}{does[1:]}." if what else _ABOUT.format(listed),
        epilog=_EXIT_CODES if what in ("run", "watch") else "",
        formatter_class=make_formatter,
    )
    if not what:
        parser.add_argument("what", choices=_COMMANDS, metavar="COMMAND", help="one of these")
    parser.add_argument("names", nargs="*", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    if what in ("", "run", "watch", "attach"):
        parser.add_argument("--plain", action="store_true", help="lines instead of a board; attach: plain mode")
    if what in ("", "run"):
        add = parser.add_argument_group("run").add_argument
        add("--name", default="", metavar="NAME", help="name of the run (default: the time)")
        add("--workers", type=int, default=0, metavar="N", help="tasks at once (default: one for each processor)")
        add("--store", default="", metavar="URL", help="folder or s3://… for results (default: the folder of the run)")
        add("--budget-usd", type=float, default=0.0, metavar="USD", help="what all tasks may cost; 0 is no limit")
        add("--attempts", type=int, default=3, metavar="N", help="how often a task whose worker dies is tried")
        add("--model", default="", help="model of tasks that name none")
        add("--pool", default="", metavar="NAME", help="model pool of tasks that name neither")
        add("--mode", default="", help="mode of tasks that name none (default: edit)")
        add("--repositories", default="", metavar="DIR", help="where the repositories of SWE-bench lines are")
        add("--unsandboxed", action="store_true", help="run although no sandbox works here")
        add("--keep", action="store_true", help="keep the checkouts of tasks that passed")
        add("--continue", action="store_true", dest="goes_on", help="go on with the run of this name")
    if what in ("", "report"):
        add = parser.add_argument_group("report").add_argument
        add(
            "--format",
            choices=("markdown", "html", "json", "junit"),
            default="markdown",
            help="format of the report (default: markdown)",
        )
        add("--output", default="", metavar="FILE", help="write the report to a file")
    if what != "list":
        add_temporal_flags(parser)
    args = parser.parse_intermixed_args(argv[1:] if what else argv)
    if not what:
        raise UsageError("The command comes first.", f"Usage: odin fleet {args.what} …")
    args.what = what
    _check_names(args)
    if what != "run" and args.names:
        remember_server(args, RunFolder(args.names[0], os.environ))
    return commands[what](args)


def _check_names(args: argparse.Namespace) -> None:
    names, takes = args.names, _COMMANDS[args.what][0]
    if args.what == "run" and args.goes_on:
        takes = "--continue RUN"
    needed = [word for word in takes.split() if word.isalpha()]
    usage = f"Usage: odin fleet {args.what} {takes}".rstrip()
    if len(names) < len(needed):
        raise UsageError(f"{needed[len(names)]} is missing.", usage)
    if len(names) > len(needed) and args.what not in _SIGNALS:
        raise UsageError(f"Unexpected argument {names[len(needed)]!r}.", usage)


def _ask(places: RunFolder, ask: Callable[[FleetEngine], Awaitable[Result]]) -> Result:
    """Return what `ask` returns for the engine of a run."""

    async def run() -> Result:
        engine = await open_engine(places)
        try:
            return await ask(engine)
        finally:
            await engine.close()

    return asyncio.run(run())


def _read_states(places: RunFolder) -> Sequence[TaskState]:
    return _ask(places, lambda engine: engine.list_tasks())


async def _read_all(engine: FleetEngine) -> tuple[FleetRun, Sequence[TaskState]]:
    return await engine.read_run(), await engine.list_tasks()


# --- runs ---


def _run(args: argparse.Namespace) -> int:
    from odin.commands.fleet_run import run_tasks

    return run_tasks(args)


def _watch(args: argparse.Namespace) -> int:
    from odin.commands.fleet_run import watch_run

    return watch_run(find_run(args.names[0], os.environ), is_plain=args.plain or args.json)


class ListedRun(msgspec.Struct, frozen=True):
    """A line of `odin fleet list --json`. `process` is the one that runs its tasks here, or ""; `is_remote`: a Temporal
    server has it."""

    name: str
    created: float
    process: str
    is_remote: bool
    store: str
    summary: FleetSummary


def _list(args: argparse.Namespace) -> int:
    runs: list[ListedRun] = []
    for name in list_runs(os.environ):
        places = RunFolder(name, os.environ)
        try:
            run, states = _ask(places, _read_all)
        except OdinError as error:  # its server does not answer
            write_message(f"{name}: {error.describe()}")
            continue
        summary, is_remote = summarize(states, time.time()), places.server.exists()
        runs.append(ListedRun(name, run.created, places.find_runner(), is_remote, run.store, summary))
    runs.sort(key=lambda run: -run.created)
    if args.json:
        return write_json(runs)
    if not runs:
        return write_output("There are no runs. `odin fleet run TASKS` starts one.\n")
    rows = [("RUN", "AGE", "STATE", "PASSED", "FAILED", "NOT RUN", "COST"), *map(_make_row, runs)]
    return write_table(rows)


def _make_row(run: ListedRun) -> tuple[str, ...]:
    summary = run.summary
    state = "done" if summary.done == summary.total else "running" if run.process or run.is_remote else "stopped"
    return (
        run.name,
        format_age(time.time() - run.created),
        state,
        f"{summary.passed:,} of {summary.total:,}",
        f"{summary.failed:,}",
        f"{summary.not_run + summary.cancelled:,}",
        format_usd(summary.usd),
    )


def _show_status(args: argparse.Namespace) -> int:
    places = find_run(args.names[0], os.environ)
    states, now = _read_states(places), time.time()
    summary = summarize(states, now)
    if args.json:
        return write_json({"summary": summary, "tasks": [_make_facts(state) for state in states]})
    runner = places.find_runner()
    left = summary.total - summary.done
    go_on = f"{pluralize(left, 'task')} left; `odin fleet run --continue {places.name}` goes on."
    if places.server.exists():
        lines = ["It is on a Temporal server, for the workers there."]
    else:
        lines = [f"Process {runner} runs it."] if runner else [f"Nothing runs it. {go_on}"] if left else []
    lines += list_facts(summary)
    for state in states:
        if state.result is not None and state.result.outcome != "passed":
            lines.append(f"{get_status(state).replace('_', ' ')} {state.task.id}: {describe_reason(state)}")
        elif state.status == "running":
            took = format_seconds(get_seconds(state, now))
            lines.append(f"running {state.task.id}: {state.progress.activity or 'starting'}, {took}")
    return write_output("".join(f"{escape_hidden(line)}\n" for line in lines))


def _make_facts(state: TaskState) -> dict[str, Any]:
    return {
        "id": state.task.id,
        "status": state.status,
        "attempt": state.attempt,
        "retries": state.retries,
        "progress": state.progress,
        "result": state.result,
        "started": state.started,
        "ended": state.ended,
        "usd": get_usd(state),
    }


def _signal(args: argparse.Namespace) -> int:
    places = find_run(args.names[0], os.environ)
    names = args.names[1:]
    count = _ask(places, lambda engine: engine.signal(_SIGNALS[args.what], names))
    if args.json:
        return write_json({"tasks": count})
    text = f"{pluralize(count, 'task')} {_SIGNALLED[args.what]}."
    if count and args.what in ("resume", "retry") and not places.server.exists() and not places.find_runner():
        text += f" `odin fleet run --continue {places.name}` runs them."
    return write_output(f"{text}\n")


def _remove(args: argparse.Namespace) -> int:
    places, kept = find_run(args.names[0], os.environ), ""
    is_remote = places.server.exists()
    try:
        run, states = _ask(places, _read_all)
    except OdinError as error:  # it is damaged, was killed before it had tasks, or its server may be gone for good
        write_message(f"{places.name} cannot be read: {error}")
    else:
        if is_remote and not summarize(states, time.time()).is_over:
            raise UsageError(f"{places.name} goes on at its server.", f"Stop it first: odin fleet cancel {places.name}")
        kept = "" if run.store == places.store else f" Its results stay in {run.store}."
        if any(state.attempt for state in states):
            kept += " Its sessions stay: `odin cleanup sessions --all` removes old ones."
    with places.hold():
        places.remove()
    where = " from this machine only" if is_remote and not kept else ""
    return write_output(f"Removed {places.name}{where}.{kept}\n")


# --- tasks ---


def find_task(places: RunFolder, name: str) -> TaskState:
    """Return a task of a run. Raise UsageError if there is none of this name."""
    states = {state.task.id: state for state in _read_states(places)}
    if name not in states:
        raise UsageError(
            f"There is no task {name!r} in {places.name}.{suggest_similar(name, states)}",
            f"`odin fleet status {places.name}` lists what failed, and --json all tasks.",
        )
    return states[name]


def _show(args: argparse.Namespace) -> int:
    places = find_run(args.names[0], os.environ)
    run = _ask(places, lambda engine: engine.read_run())
    state = find_task(places, args.names[1])
    task, result = state.task, state.result
    store = open_store(run.store)
    files = (
        [store.locate(f"{task.id}/{name}") for name in (*result.files, "result.json")]
        if result and result.files
        else []
    )
    checkout, log = places.locate_checkout(task.id), places.locate_log(task.id)
    if args.json:
        where = {"files": files, "checkout": str(checkout) if checkout.exists() else ""}
        return write_json({"task": task, **_make_facts(state), **where})
    lines = [
        f"{task.id}: {get_status(state).replace('_', ' ')}"
        + (f", {result.reason}" if result and result.reason else ""),
        f"repository  {task.repository or 'none'}" + (f" at {task.revision}" if task.revision else ""),
        f"prompt      {clip_line(task.prompt)}",
    ]
    if state.started:
        took = get_seconds(state, time.time())
        facts = [format_seconds(took)] if took else []
        facts += [f"{get_tokens(state):,} tokens", format_usd(get_usd(state))]
        facts += [pluralize(state.attempt, "attempt")] if state.attempt > 1 else []
        lines.append(f"took        {', '.join(facts)}")
    if result and result.session:
        attach = f": `odin fleet attach {places.name} {task.id}`" if checkout.exists() else ""
        lines.append(f"session     {result.session}{attach}")
    if checkout.exists():
        lines.append(f"checkout    {checkout}")
    if log.exists() and log.stat().st_size:
        lines.append(f"log         {log}")
    lines += [f"file        {name}" for name in files]
    text = "".join(f"{escape_hidden(line)}\n" for line in lines)
    if result and result.detail:
        text += f"\n{escape_control(result.detail.rstrip())}\n"
    return write_output(text)


def _attach(args: argparse.Namespace) -> int:
    places = find_run(args.names[0], os.environ)
    state = find_task(places, args.names[1])
    name = state.task.id
    if not state.attempt:
        raise UsageError(f"{name} has not started.", f"`odin fleet watch {places.name}` shows when it does.")
    submitted = _ask(places, lambda engine: engine.read_run())
    checkout, session = places.locate_checkout(name), name_session(submitted, name, state.retries)
    if not checkout.exists():
        if state.status == "running" and state.progress.url:
            from odin.commands.attach import run_attach

            where = f"{state.progress.url.rstrip('/')}/sessions/{session}"
            return run_attach([where, *(["--plain"] if args.plain else [])])
        raise UsageError(
            f"The checkout of {name} is not on this machine, or removed because the task passed.",
            f"Its session is in {open_store(submitted.store).locate(f'{name}/session')}; "
            "with --keep, the checkouts stay.",
        )
    from odin.commands.main import run

    # What is over stays as it is: the user goes on in a copy.
    copy = [] if state.status == "running" else ["--fork-session"]
    return run(["--cwd", str(checkout), "--resume", session, *copy, *(["--plain"] if args.plain else [])])


# --- reports ---


def _report(args: argparse.Namespace) -> int:
    from odin.fleet.report import FORMATS, make_report

    places = find_run(args.names[0], os.environ)
    run, states = _ask(places, _read_all)
    text = FORMATS["json" if args.json else args.format](make_report(run, states, time.time()))
    if not args.output:
        return write_output(text, verbatim=True)
    try:
        Path(args.output).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write {args.output}: {error.strerror}.", "Name another --output.") from error
    return 0


def _compare(args: argparse.Namespace) -> int:
    from odin.fleet.comparison import compare, format_comparison

    one, other = (find_run(name, os.environ) for name in args.names)
    found = compare(one.name, _read_states(one), other.name, _read_states(other))
    return write_json(found) if args.json else write_output(format_comparison(found))
