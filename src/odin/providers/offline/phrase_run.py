"""Requests to run a command, a script or the tests."""

import re

from odin.providers.offline.task import PlannerTask
from odin.providers.offline.template import PhraseMatch, PhraseTable, make_rule
from odin.providers.offline.vocabulary import COMMANDS, is_path_like

_RUN = "(run|rerun|re-run|execute|exec|launch|start)"
_TESTS = (
    "[all] [the|my|our|your|its] [all|unit|whole|full|integration|project's] "
    "(tests?|test suite|testsuite|test cases?|specs?)"
)
_TEST_FILE = r"test_.*\.py|.*_test\.(?:py|go)|.*\.(?:test|spec)\.\w+|tests?/?"


def _make_tests(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("tests", path=said.get_path())


def _make_quoted_command(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("run", command=said["command"].strip())


def _make_script(said: PhraseMatch) -> PlannerTask | None:
    path = said.get_path()
    if not is_path_like(path) or path.startswith(("./", "/")):
        return None
    is_test = re.fullmatch(_TEST_FILE, path.rstrip("/").rsplit("/", 1)[-1])
    return PlannerTask("tests" if is_test else "script", path=path)


def _make_command(said: PhraseMatch) -> PlannerTask:
    typed = said.words.restore_quotes(said.get_raw("command"))
    return PlannerTask("run", command=typed) if is_command(typed) else PlannerTask("which-command", source_text=typed)


def _make_typed_command(said: PhraseMatch) -> PlannerTask:
    return PlannerTask("run", command=said.words.restore_quotes(said.clause))


def _make_backtick_command(said: PhraseMatch) -> PlannerTask | None:
    in_backticks = said.words.restore_quotes(said.get_raw("command")).startswith("`")
    return _make_quoted_command(said) if in_backticks and is_command(said["command"]) else None


def is_command(text: str) -> bool:
    """Whether words read like a command: a known program, a path, or an option among them."""
    first, *others = text.split() or [""]
    if first in COMMANDS or first.startswith(("./", "/", "~/")):
        return True
    return any(re.match(r"--?[A-Za-z]", word) for word in others)


match_run = PhraseTable(
    make_rule(
        PlannerTask("tests"),
        f"{_RUN} {_TESTS}",
        "test (it|this|that|everything|(the|this) (project|code|repo))",
        "(do|does|are|is) [all] [the|my|our] (tests?|test suite|suite) [all] [still] "
        "(pass|passing|green|ok|work|working|run|succeed) [now]",
    ),
    make_rule(
        _make_tests, f"{_RUN} {_TESTS} (in|from|of|for|under) [the] [file|folder] {{path:file}} [file|folder|directory]"
    ),
    make_rule(PlannerTask("again", variant="run"), f"{_RUN} (it|that|this|them)"),
    make_rule(
        _make_quoted_command, f"{_RUN} [the|this|a] [shell|terminal|bash] [command|cmd] {{command:quoted}} [command]"
    ),
    make_rule(_make_script, f"{_RUN} [the] [file|script|program] {{path:file}}"),
    make_rule(_make_command, f"{_RUN} [the|this|a] [shell|terminal|bash] [command|cmd|command:] {{command:text}}"),
    make_rule(
        _make_typed_command,
        "(pytest|npm|npx|yarn|pnpm|cargo|pip|pip3|python|python3|tox|uv|docker|ruff|mypy|node) {rest:text}",
        "(mkdir|rmdir|rm|cp|echo|wc|du|df) {rest:text}",
        "(pytest|tox|whoami|date|uname)",
    ),
    make_rule(_make_backtick_command, "{command:quoted}"),
)
