"""The tasks of a fleet run, and the files that they are read from.

`tasks.jsonl` has one task per line, a folder one task per `*.json` or `*.toml` file. Every fault is reported before
anything starts. Lines in the shape of SWE-bench (`instance_id`, `repo`, `base_commit`, `problem_statement`) are
understood, too. And `eval` is the suite of `odin eval`, `eval:tuning` and `eval:held-out` are its halves.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from odin.core.errors import UsageError
from odin.fleet.eval_suite import EVAL_CALLS, EVAL_MINUTES, EVAL_PREFIX, find_eval_task, load_eval_tasks
from odin.policy.modes import parse_mode

Output = Literal["patch", "branch", "files", "session", "prediction"]

_HALVES = {"eval": (False, True), "eval:tuning": (False,), "eval:held-out": (True,)}
"""The tasks of a suite by whether they are held out."""

_ID = re.compile(r"(?!.*(\.\.|\.$|\.lock$))[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
"""Also the name of a folder and, after `odin/`, of a branch."""

_MAX_FILE_BYTES = 200_000_000
_MAX_SHOWN = 20

Limit = Annotated[float, Meta(ge=0)]


class TaskLimits(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits of one task. `calls` are requests to the model; 0 is no limit."""

    minutes: Annotated[float, Meta(gt=0)] = 60.0
    calls: Annotated[int, Meta(ge=0)] = 0
    usd: Limit = 0.0


class FleetTask(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One task: a prompt for one repository at one revision.

    `repository` is a folder, a git bundle or a URL; without one the task starts in an empty folder. `eval:NAME` is the
    project of a task of `odin eval`, which is judged as there. `checks` are commands that must succeed in the end; the
    agent is not told about them. `files` are patterns of the files to return. The output `prediction` is a line of
    `predictions.jsonl`. `network`: commands may use it. `trust`: the project's hooks, servers and settings count.
    `secrets` are variables of the worker's environment that commands may see.
    """

    id: str
    prompt: str
    repository: str = ""
    revision: str = ""
    mode: str = "edit"
    model: str = ""
    pool: str = ""
    role: str = ""
    limits: TaskLimits = TaskLimits()
    checks: tuple[str, ...] = ()
    outputs: tuple[Output, ...] = ("patch", "session")
    files: tuple[str, ...] = ()
    network: bool = False
    trust: bool = False
    secrets: tuple[str, ...] = ()


class _BenchmarkTask(Struct, frozen=True):
    """A line of SWE-bench. It may have more fields, such as the patch and the tests that are to be predicted."""

    instance_id: str
    repo: str
    base_commit: str
    problem_statement: str


def read_tasks(
    source: Path, home: Path, repositories: str = "", defaults: Mapping[str, str] | None = None
) -> tuple[FleetTask, ...]:
    """Return the tasks of a file or folder. Raise UsageError that names every faulty line.

    `repositories` is the folder of the repositories that SWE-bench lines name, OWNER__NAME or OWNER__NAME.bundle;
    without it they are URLs of GitHub. Relative folders are relative to the file; `home` is what ~ means. `defaults`
    are the model or pool and the mode of tasks that name none.
    """
    faults: list[str] = []
    tasks: list[FleetTask] = []
    seen: dict[str, str] = {}
    folder = source if source.is_dir() else source.parent
    for place, text in _read_entries(source):
        try:
            task = _parse(place, text, repositories, defaults or {})
            check_task(task)
        except (ValueError, RecursionError) as error:
            faults.append(f"{place}: {str(error)[:300]}")
            continue
        key = task.id.lower()  # some file systems do not tell them apart
        if key in seen:
            faults.append(f"{place}: the id {task.id} is that of {seen[key]}")
        seen[key] = place
        tasks.append(_resolve(task, folder, home))
    if faults:
        more = f"\n… and {len(faults) - _MAX_SHOWN} more" if len(faults) > _MAX_SHOWN else ""
        listed = "\n".join(faults[:_MAX_SHOWN])
        raise UsageError(f"{source} has faults, so nothing was started:\n{listed}{more}")
    if not tasks:
        raise UsageError(f"{source} has no tasks.", "Give a .jsonl file, or a folder with .json or .toml files.")
    return tuple(tasks)


def _read_entries(source: Path) -> Iterator[tuple[str, str]]:
    """Yield the place of each entry and its JSON."""
    if str(source) in _HALVES and not source.exists():
        limits = TaskLimits(EVAL_MINUTES, EVAL_CALLS)
        for task in load_eval_tasks():
            if task.held_out in _HALVES[str(source)]:
                made = FleetTask(task.name, task.prompt, f"{EVAL_PREFIX}{task.name}", limits=limits)
                yield task.name, msgspec.json.encode(made).decode()
        return
    if source.is_dir():
        for path in sorted((*source.glob("*.json"), *source.glob("*.toml"))):
            text = _read_text(path)
            if path.suffix == ".toml":
                try:
                    text = msgspec.json.encode(tomllib.loads(text)).decode()
                except (tomllib.TOMLDecodeError, TypeError) as error:
                    text = f"\0{error}"
            yield path.name, text
        return
    for number, line in enumerate(_read_text(source).split("\n"), 1):  # JSON may have other line separators
        if line.strip():
            yield f"line {number}", line


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_FILE_BYTES // 1_000_000} MB.")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        hint = f"Name a file or folder with tasks, or a suite: {', '.join(_HALVES)}."
        raise UsageError(f"Cannot read {path}: {error.strerror}.", hint) from error
    except UnicodeError as error:
        raise UsageError(f"{path} is not UTF-8 text: {error}.") from error


def _parse(place: str, text: str, repositories: str, defaults: Mapping[str, str]) -> FleetTask:
    if text.startswith("\0"):
        raise ValueError(text[1:])
    found: Any = msgspec.json.decode(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")  # noqa: TRY004 - it is reported as the others are
    if "instance_id" in found:
        line = msgspec.convert(found, _BenchmarkTask)
        repository = f"https://github.com/{line.repo}"
        if repositories:
            clone = Path(repositories).absolute() / line.repo.replace("/", "__")
            bundle = clone.with_name(f"{clone.name}.bundle")
            repository = str(bundle if bundle.exists() else clone)
        found = {
            "id": line.instance_id,
            "prompt": line.problem_statement.strip() and f"Resolve this issue:\n\n{line.problem_statement}",
            "repository": repository,
            "revision": line.base_commit,
            "outputs": ("patch", "session", "prediction"),
        }
    name = Path(place).stem if not place.startswith("line ") else f"task-{place.removeprefix('line ')}"
    if "model" in found or "pool" in found:
        defaults = {key: value for key, value in defaults.items() if key not in ("model", "pool")}
    return msgspec.convert({"id": name, **defaults, **found}, FleetTask)


def check_task(task: FleetTask) -> None:
    """Raise ValueError that says what is wrong with a task."""
    if not _ID.fullmatch(task.id):
        raise ValueError(
            f"the id {task.id[:100]!r} cannot be the name of a branch of letters, digits, '.', '_' and '-'"
        )
    if "\0" in "".join((task.repository, task.revision, *task.checks, *task.files, *task.secrets)):
        raise ValueError("a name or command has a NUL character")
    if not task.prompt.strip():
        raise ValueError("the prompt is empty")
    if task.repository.startswith("-") or task.revision.startswith("-"):
        raise ValueError("a repository or revision cannot start with '-'")
    if task.model and task.pool:
        raise ValueError("model and pool exclude each other")
    if "prediction" in task.outputs and "patch" not in task.outputs:
        raise ValueError("the output prediction needs the output patch")
    if task.repository.startswith(EVAL_PREFIX):
        find_eval_task(task.repository)
    if "files" in task.outputs and not task.files:
        raise ValueError("the output files needs patterns in `files`")
    if bad := next((pattern for pattern in task.files if pattern.startswith("/") or ".." in pattern.split("/")), ""):
        raise ValueError(f"the pattern {bad!r} leads out of the checkout")
    for pattern in task.files:
        try:
            next(Path(os.devnull).glob(pattern), None)
        except (ValueError, IndexError, AttributeError, NotImplementedError) as error:  # as Python says it
            raise ValueError(f"{pattern!r} is no pattern of files") from error
    try:
        parse_mode(task.mode)
    except UsageError as error:
        raise ValueError(str(error)) from None


def is_local(repository: str) -> bool:
    """False for a URL and for HOST:PATH."""
    return not re.match(r"[A-Za-z][A-Za-z0-9+.-]*://|[^/]+@?[^/]*:", repository)


def _resolve(task: FleetTask, folder: Path, home: Path) -> FleetTask:
    if not task.repository or not is_local(task.repository):
        return task
    path = Path(re.sub("^~(?=/|$)", lambda _: str(home), task.repository))
    return msgspec.structs.replace(task, repository=str(path if path.is_absolute() else folder.resolve() / path))


def find_missing(tasks: Iterable[FleetTask]) -> Sequence[str]:
    """Return a sentence for every local repository that does not exist."""
    paths = {task.repository: task.id for task in reversed([*tasks]) if task.repository and is_local(task.repository)}
    return [f"{task}: there is no repository {path}" for path, task in paths.items() if not Path(path).exists()]
