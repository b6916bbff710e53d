"""Finds the checks of a project: the commands that test, lint and type-check it.

They come from its Makefile, justfile or manifests, and only if those define none, from its scripts and CI
configuration. Few files are read and no folder is walked, so that this can run at the end of a turn. A check whose
program is not installed does not count.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from odin.policy.commands.checks import ProjectChecks, find_check
from odin.tools.project_survey import ProjectCommand, ProjectTree, find_commands, get_table, parse_json

MAX_CHECKS = 4
_MAX_NAMES = 500
_LISTED_FOLDERS = ("", "tests", "test", "spec", "bin", "scripts", "script")
_CI_FILES = (
    ".gitlab-ci.yml",
    ".circleci/config.yml",
    ".travis.yml",
    "azure-pipelines.yml",
    "bitbucket-pipelines.yml",
    ".woodpecker.yml",
    ".drone.yml",
)
_WORKFLOWS = ".github/workflows"

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
        commands = find_folder_checks(str(folder), env)
        if commands:
            return ProjectChecks(str(folder), commands)
        if folder == top:
            break
    return None


def find_folder_checks(folder: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Return the checks that a folder defines, tests first."""
    tree = ProjectTree(folder, tuple(sorted(_list_names(folder))), complete=False)
    found = [command for command in find_commands(tree) if command.use in ("Test", "Check", "Build")]
    runnable = [command for command in found if _is_installed(command.text, folder, env)]
    declared = [command for command in runnable if not command.text.startswith("./")]
    scripts = [command for command in runnable if command.text.startswith("./")]
    tests = _choose_tests(declared, tree)
    lints = _choose_lints(declared)
    if not tests and not lints:
        tests = _choose_builds(declared) or [command.text for command in scripts if command.use != "Build"]
    checks = [*tests, *lints] or [command for command in _find_ci_checks(tree) if _is_installed(command, folder, env)]
    return tuple(dict.fromkeys(_use_environment(check, tree) for check in checks))[:MAX_CHECKS]


def _list_names(folder: str) -> Iterator[str]:
    for sub in _LISTED_FOLDERS:
        try:
            names = sorted(os.listdir(os.path.join(folder, sub)))  # noqa: PTH118, PTH208 (many names, no need for objects)
        except OSError:
            continue
        yield from (f"{sub}/{name}" if sub else name for name in names[:_MAX_NAMES])


def _task_of(command: str) -> str:
    """Return the name of the task that a task runner runs, or ""."""
    match = _TASK.fullmatch(command)
    return match[1] if match else ""


def _choose_tests(found: Sequence[ProjectCommand], tree: ProjectTree) -> list[str]:
    """Return the test command of the task runner, or else those of every language of the project."""
    for runner in _TASK_RUNNERS:
        tasks = {_task_of(command.text): command.text for command in found if command.text.startswith(runner)}
        name = next((name for name in _TEST_TASKS if name in tasks), "")
        if name:
            return [tasks[name]]
    others = [
        command.text
        for command in found
        if command.use == "Test"
        and not command.text.startswith(_TASK_RUNNERS)
        and _task_of(command.text) in ("", *_TEST_TASKS)
        and not _is_placeholder(command, tree)
    ]
    own = [command for command in others if not command.startswith(_ENVIRONMENT_RUNNERS)]
    return own or others[:1]


def _choose_lints(found: Sequence[ProjectCommand]) -> list[str]:
    checks = [command.text for command in found if command.use == "Check"]
    tasks = [command for command in checks if _task_of(command) in _LINT_TASKS]
    of_runner = [command for command in tasks if command.startswith(_TASK_RUNNERS)]
    return of_runner or [command for command in checks if command in tasks or not _task_of(command)]


def _choose_builds(found: Sequence[ProjectCommand]) -> list[str]:
    """Return the build of a compiled language: without tests it at least shows that the code compiles."""
    builds = ("cargo build", "go build", "mvn package", "./mvnw package", "gradle build", "./gradlew build")
    return [command.text for command in found if command.text.startswith(builds)][:1]


def _is_placeholder(command: ProjectCommand, tree: ProjectTree) -> bool:
    """True for the script that `npm init` writes, which always fails."""
    if command.source != "package.json":
        return False
    script = get_table(parse_json(tree.read("package.json")), "scripts").get(_task_of(command.text))
    return isinstance(script, str) and "no test specified" in script


def _find_ci_checks(tree: ProjectTree) -> list[str]:
    """Return the checks in the CI configuration, in the order of the files."""
    workflows = Path(tree.root, _WORKFLOWS)
    names = sorted(path.name for path in workflows.iterdir()) if workflows.is_dir() else []
    files = [f"{_WORKFLOWS}/{name}" for name in names if name.endswith((".yml", ".yaml"))] + list(_CI_FILES)
    lines = (line for name in files for line in tree.read(name).splitlines())
    commands = (match[1].strip() for line in lines if (match := _CI_LINE.match(line)))
    return [command for command in dict.fromkeys(commands) if " " in command and find_check(command) is not None]


def _is_installed(command: str, folder: str, env: Mapping[str, str]) -> bool:
    import shutil

    program = command.split()[0]
    if program.startswith("./"):
        return os.access(Path(folder, program), os.X_OK)
    if program == "python":
        return True
    local = any(Path(folder, place, program).exists() for place in (".venv/bin", "venv/bin", "node_modules/.bin"))
    return local or shutil.which(program, path=env.get("PATH")) is not None


def _use_environment(command: str, tree: ProjectTree) -> str:
    """Return the command as it runs in the project's own Python environment."""
    program, _, rest = command.partition(" ")
    if program not in ("python", "ruff"):
        return command
    for place in (".venv/bin", "venv/bin"):
        if tree.has(f"{place}/{program}"):
            return f"{place}/{command}"
    if program == "python" and tree.has("uv.lock"):
        return f"uv run {command}"
    if program == "python" and tree.has("poetry.lock"):
        return f"poetry run {command}"
    return f"python3 {rest}" if program == "python" else command
