"""Requests to run a command, a script or the tests."""

import re

from odin.providers.offline.task import Task
from odin.providers.offline.template import Said, Table, rule
from odin.providers.offline.vocabulary import COMMANDS, looks_like_path

_RUN = "(run|rerun|re-run|execute|exec|launch|start)"
_TESTS = (
    "[all] [the|my|our|your|its] [all|unit|whole|full|integration|project's] "
    "(tests?|test suite|testsuite|test cases?|specs?)"
)
_TEST_FILE = r"test_.*\.py|.*_test\.(?:py|go)|.*\.(?:test|spec)\.\w+|tests?/?"


def _tests_in(said: Said) -> Task:
    return Task("tests", path=said.file())


def _quoted_command(said: Said) -> Task:
    return Task("run", command=said["command"].strip())


def _script(said: Said) -> Task | None:
    path = said.file()
    if not looks_like_path(path) or path.startswith(("./", "/")):
        return None
    is_test = re.fullmatch(_TEST_FILE, path.rstrip("/").rsplit("/", 1)[-1])
    return Task("tests" if is_test else "script", path=path)


def _command(said: Said) -> Task:
    typed = said.words.typed(said.raw("command"))
    return Task("run", command=typed) if is_command(typed) else Task("which-command", said=typed)


def _typed(said: Said) -> Task:
    return Task("run", command=said.words.typed(said.clause))


def _in_backticks(said: Said) -> Task | None:
    in_backticks = said.words.typed(said.raw("command")).startswith("`")
    return _quoted_command(said) if in_backticks and is_command(said["command"]) else None


def is_command(text: str) -> bool:
    """Whether words read like a command: a known program, a path, or an option among them."""
    first, *others = text.split() or [""]
    if first in COMMANDS or first.startswith(("./", "/", "~/")):
        return True
    return any(re.match(r"--?[A-Za-z]", word) for word in others)


run = Table(
    rule(
        Task("tests"),
        f"{_RUN} {_TESTS}",
        "test (it|this|that|everything|(the|this) (project|code|repo))",
        "(do|does|are|is) [all] [the|my|our] (tests?|test suite|suite) [all] [still] "
        "(pass|passing|green|ok|work|working|run|succeed) [now]",
    ),
    rule(
        _tests_in, f"{_RUN} {_TESTS} (in|from|of|for|under) [the] [file|folder] {{path:file}} [file|folder|directory]"
    ),
    rule(Task("again", how="run"), f"{_RUN} (it|that|this|them)"),
    rule(_quoted_command, f"{_RUN} [the|this|a] [shell|terminal|bash] [command|cmd] {{command:quoted}} [command]"),
    rule(_script, f"{_RUN} [the] [file|script|program] {{path:file}}"),
    rule(_command, f"{_RUN} [the|this|a] [shell|terminal|bash] [command|cmd|command:] {{command:text}}"),
    rule(
        _typed,
        "(pytest|npm|npx|yarn|pnpm|cargo|pip|pip3|python|python3|tox|uv|docker|ruff|mypy|node) {rest:text}",
        "(mkdir|rmdir|rm|cp|echo|wc|du|df) {rest:text}",
        "(pytest|tox|whoami|date|uname)",
    ),
    rule(_in_backticks, "{command:quoted}"),
)
