"""Finds the checks of a project: the commands that test, lint and type-check it.

They come from its Makefile, justfile or manifests, and only if those define none, from its scripts and CI
configuration. A check whose program is not installed does not count.
"""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from odin.policy.commands.checks import ProjectChecks, find_check
from odin.tools.project_commands import ProjectCommand, find_commands, read_text

MAX_CHECKS = 4
_CI_FILES = (
    ".gitlab-ci.yml",
    ".circleci/config.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    ".woodpecker.yml",
    ".drone.yml",
)

_TASK = re.compile(r"(?:make|just|npm|pnpm|yarn|bun|nox -s|composer run-script)(?: run)? ([\w:.-]+)")
_TASK_RUNNERS = ("make ", "just ")
_TEST_TASKS = ("test", "tests", "check", "unit", "spec")
_LINT_TASKS = ("lint", "typecheck", "type-check", "types", "tsc", "mypy", "vet", "verify")
_ENVIRONMENT_RUNNERS = ("tox", "nox ")
"""Commands that build their own environments, so they are slow and need the network."""

_CI_LINE = re.compile(r"^\s*(?:-\s+)?(?:(?:run|script|command)\s*:\s*)?[\"']?([A-Za-z.][^#\"'$`|;&<>{}]*?)[\"']?\s*$")


def find_project_checks(cwd: str, root: str, env: Mapping[str, str]) -> ProjectChecks | None:
    """Return the checks of the nearest folder from `cwd` up to the project's root that defines some."""
    here, top = Path(cwd), Path(root)
    folders = [here, *here.parents] if here.is_relative_to(top) else [top]
    for folder in folders:
        commands = find_folder_checks(folder, env)
        if commands:
            return ProjectChecks(str(folder), commands)
        if folder == top:
            break
    return None


def find_folder_checks(folder: Path, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the checks that a folder defines, tests first."""
    found = [command for command in find_commands(folder) if command.use in ("Test", "Check")]
    runnable = [command for command in found if _is_installed(command.text, folder, env)]
    declared = [command for command in runnable if not command.text.startswith("./")]
    scripts = [command.text for command in runnable if command.text.startswith("./")]
    checks = [*_choose_tests(declared), *_choose_lints(declared)] or scripts
    if not checks:
        checks = [command for command in _find_ci_checks(folder) if _is_installed(command, folder, env)]
    return tuple(dict.fromkeys(_use_environment(check, folder) for check in checks))[:MAX_CHECKS]


def _find_task(command: str) -> str:
    """Return the name of the task that a task runner runs, or ""."""
    match = _TASK.fullmatch(command)
    return match[1] if match else ""


def _choose_tests(found: Sequence[ProjectCommand]) -> list[str]:
    """Return the test command of the task runner, or else those of every language of the project."""
    for runner in _TASK_RUNNERS:
        tasks = {_find_task(command.text): command.text for command in found if command.text.startswith(runner)}
        name = next((name for name in _TEST_TASKS if name in tasks), "")
        if name:
            return [tasks[name]]
    others = [
        command.text
        for command in found
        if command.use == "Test"
        and not command.text.startswith(_TASK_RUNNERS)
        and _find_task(command.text) in ("", *_TEST_TASKS)
    ]
    own = [command for command in others if not command.startswith(_ENVIRONMENT_RUNNERS)]
    return own or others[:1]


def _choose_lints(found: Sequence[ProjectCommand]) -> list[str]:
    checks = [command.text for command in found if command.use == "Check"]
    tasks = [command for command in checks if _find_task(command) in _LINT_TASKS]
    of_runner = [command for command in tasks if command.startswith(_TASK_RUNNERS)]
    return of_runner or [command for command in checks if command in tasks or not _find_task(command)]


def _find_ci_checks(folder: Path) -> list[str]:
    """Return the checks in the CI configuration, in the order of the files."""
    files = [*sorted(folder.glob(".github/workflows/*.y*ml")), *(folder / name for name in _CI_FILES)]
    lines = (line for path in files for line in read_text(path).splitlines())
    commands = (match[1].strip() for line in lines if (match := _CI_LINE.match(line)))
    return [command for command in dict.fromkeys(commands) if " " in command and find_check(command) is not None]


def _is_installed(command: str, folder: Path, env: Mapping[str, str]) -> bool:
    import shutil

    program = command.split()[0]
    if program.startswith("./"):
        return os.access(folder / program, os.X_OK)
    if program == "python":
        return True
    local = any((folder / place / program).exists() for place in (".venv/bin", "venv/bin", "node_modules/.bin"))
    return local or shutil.which(program, path=env.get("PATH")) is not None


def _use_environment(command: str, folder: Path) -> str:
    """Return the command as it runs in the project's own Python environment."""
    program, _, rest = command.partition(" ")
    if program not in ("python", "ruff"):
        return command
    for place in (".venv/bin", "venv/bin"):
        if (folder / f"{place}/{program}").is_file():
            return f"{place}/{command}"
    if program == "python" and (folder / "uv.lock").is_file():
        return f"uv run {command}"
    if program == "python" and (folder / "poetry.lock").is_file():
        return f"poetry run {command}"
    return f"python3 {rest}" if program == "python" else command
