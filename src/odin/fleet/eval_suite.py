"""The suite of small everyday tasks of `odin eval`, which is also one for `odin fleet run`.

The tasks are data in eval_tasks/*.toml. A file has `held_out` (its tasks are only measured, see the help text of
`odin eval`), `projects` (files by path) and `tasks`:

- `project`, `prompt`, `kind`, `language` and a unique `name`;
- what counts as solved: `exact` (the files are those of the solution, but for spaces and blank lines), `has` and
  `lacks` (patterns by file), `absent` (files), `run` (commands that succeed in the folder), `answer` (a pattern);
- `solution` and `wrong`, which a test applies to prove that the check accepts the one and rejects the other: `edits`
  (path, old, new), `files`, `delete`, `answer`.

Files that the solution leaves alone must not change.
"""

import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct, field

from odin.core.errors import OdinError
from odin.core.profile import PROJECT
from odin.sandbox.runner import ProcessRunner, SandboxUnavailable

EVAL_MINUTES = 15.0
EVAL_CALLS = 40
"""The limits of one task."""

EVAL_PREFIX = "eval:"
"""`eval:NAME` is the project of a task, as the repository of a task of a fleet."""

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


@cache
def load_eval_tasks() -> tuple[EvalTask, ...]:
    """Return all tasks, those for tuning first."""
    tasks: list[EvalTask] = []
    for path in sorted(Path(__file__).with_name("eval_tasks").glob("*.toml"), reverse=True):
        read = msgspec.convert(tomllib.loads(path.read_text()), _TaskFile)
        tasks += [
            msgspec.structs.replace(task, held_out=read.held_out, files=read.projects[task.project])
            for task in read.tasks
        ]
    return tuple(tasks)


def find_eval_task(repository: str) -> EvalTask:
    """Return the task of `eval:NAME`. Raise ValueError if there is none."""
    name = repository.removeprefix(EVAL_PREFIX)
    found = next((task for task in load_eval_tasks() if task.name == name), None)
    if found is None:
        raise ValueError(f"`odin eval` has no task {name!r}")
    return found


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
