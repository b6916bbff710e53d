"""Recognizes commands that check a project: tests, linters, type checkers, builds."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath

from msgspec import Struct

from odin.policy.commands.analysis import analyze_command
from odin.policy.commands.syntax import ExtractedCommand, SimpleCommand

_CHECKER_NAMES = """
    pytest py.test unittest nose2 tox nox ruff flake8 pylint mypy pyright basedpyright pyre ty bandit
    jest vitest mocha ava jasmine karma cypress playwright eslint tsc vue-tsc biome stylelint oxlint
    rspec rubocop minitest phpunit pest phpstan psalm phpcs ctest golangci-lint staticcheck gotestsum
    shellcheck hadolint yamllint actionlint ktlint detekt swiftlint credo dialyzer pre-commit meson ninja bats
"""
"""Programs that do nothing but check or build."""

_CHECKERS = frozenset(_CHECKER_NAMES.split())

_VERBS = {
    "cargo": "test t check c build b clippy nextest fmt doc",
    "go": "test build vet",
    "dotnet": "test build",
    "mix": "test compile credo dialyzer format",
    "swift": "test build",
    "zig": "test build",
    "bazel": "test build",
    "bazelisk": "test build",
    "deno": "test check lint",
    "bun": "test",
    "flutter": "test analyze",
    "dart": "test analyze",
    "gradle": "test check build assemble",
    "gradlew": "test check build assemble",
    "mvn": "test verify package compile install",
    "mvnw": "test verify package compile install",
    "sbt": "test compile",
    "stack": "test build",
    "cabal": "test build",
    "cmake": "--build",
    "terraform": "validate",
    "helm": "lint",
    "manage.py": "test check",
    "rake": "test spec",
    "hatch": "test",
}
"""Programs that check with some of their subcommands."""

_TASK_RUNNERS = frozenset(("make", "gmake", "just", "task", "npm", "pnpm", "yarn", "bun", "composer", "rake", "ant"))
"""Programs that run a task of the project by its name."""

_WRAPPERS = {
    "uv": ("run",),
    "poetry": ("run",),
    "pipenv": ("run",),
    "pdm": ("run",),
    "hatch": ("run",),
    "rye": ("run",),
    "bundle": ("exec",),
    "pnpm": ("exec", "dlx"),
    "npm": ("exec",),
    "yarn": ("exec", "dlx"),
    "npx": (),
    "bunx": (),
    "uvx": (),
    "xvfb-run": (),
    "coverage": ("run",),
}
"""Programs that run another program; the words that must follow their name."""

_OPTIONS_WITH_VALUE = frozenset(("--with", "--extra", "--group", "--python", "--from", "--package", "-p", "-C"))
"""Options of such programs that take a value."""

_TASK_NAME = re.compile(
    r"(?:^|[-_:./])(?:tests?|spec|e2e|unit|integration|lint|linters?|checks?|typecheck|types|tsc|verify|build|compile|ci|vet|all)"
    r"(?:$|[-_:./])"
)
_SCRIPT_NAME = re.compile(r"(?:^|[-_.])(?:tests?|runtests|specs?|checks?|lint|verify|build|ci)(?:$|[-_.])")
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
_SCRIPT_RUNNERS = frozenset(("bash", "sh", "zsh", "node", "ruby", "perl", "php", "deno", "bun", "tsx"))
_MAX_LABEL_CHARS = 100


_LANGUAGES = (
    (".py .pyi", "python pytest ruff mypy pyright basedpyright tox nox"),
    (".js .jsx .mjs .cjs .ts .tsx .vue .svelte .css .html", "npm pnpm yarn bun node deno jest vitest eslint tsc"),
    (".rs", "cargo"),
    (".go", "go golangci-lint"),
    (".java .kt .scala", "mvn mvnw gradle gradlew"),
    (".rb", "bundle rake rspec"),
    (".php", "composer phpunit"),
)
"""The endings of source files, and the programs that check them and nothing else."""


class ProjectChecks(Struct, frozen=True):
    """The checks of a project and the folder they run in."""

    folder: str
    commands: tuple[str, ...]


class FoundCheck(Struct, frozen=True):
    """A check in a command. `is_masked`: the command's exit status is not that of the check, as in `pytest | tail`."""

    label: str
    is_masked: bool = False


def find_check(command: str, known: Iterable[str] = ()) -> FoundCheck | None:
    """Return the check that a command runs: one of the `known` ones, or an obvious test, linter or build."""
    analysis = analyze_command(command)
    expected = [(check, part) for check in known for part in _list_words(analyze_command(check).commands)]
    for words in _list_words(analysis.commands):
        match = next((check for check, part in expected if _includes(words, part)), "")
        if match or is_obvious_check(words):
            simple = analysis.script.commands if analysis.script is not None else ()
            return FoundCheck(match or _shorten(" ".join(words)), _is_masked(words, simple))
    return None


def choose_fitting(commands: tuple[str, ...], files: Iterable[str]) -> tuple[str, ...]:
    """Return the checks of the languages of these files; all of them if that cannot be told."""
    endings = {PurePosixPath(file).suffix for file in files}
    spoken = [programs.split() for suffixes, programs in _LANGUAGES if endings & set(suffixes.split())]
    if not spoken or not endings.issubset(" ".join(suffixes for suffixes, _ in _LANGUAGES).split()):
        return commands
    ours = {program for programs in spoken for program in programs}
    others = {program for _, programs in _LANGUAGES for program in programs.split()} - ours
    names = (_PYTHON.sub("python", PurePosixPath(command.split()[0]).name) for command in commands)
    return tuple(command for command, name in zip(commands, names, strict=True) if name not in others) or commands


def is_obvious_check(words: Sequence[str]) -> bool:
    """True if these words of one command run tests, a linter, a type checker or a build."""
    words = _unwrap(words)
    if not words:
        return False
    program, rest = PurePosixPath(words[0]).name, words[1:]
    plain = [word for word in rest if not word.startswith("-")]
    if _PYTHON.fullmatch(program):
        return _is_python_check(rest)
    if program in _CHECKERS:
        return not {"--version", "--help", "-h"} & set(rest)
    if program in _VERBS and (verbs := _VERBS[program].split()) and any(word in verbs for word in rest[:3]):
        return True
    if program in _TASK_RUNNERS:
        return any(map(_is_task, plain)) or (program in ("make", "gmake") and not plain)
    if program in _SCRIPT_RUNNERS:
        return "--test" in rest or (bool(plain) and _is_script(plain[0]))
    return ("/" in words[0] or program.endswith((".sh", ".py"))) and _is_script(words[0])


def _is_task(name: str) -> bool:
    return _TASK_NAME.search(name.lower()) is not None


def _is_script(path: str) -> bool:
    return _SCRIPT_NAME.search(PurePosixPath(path).stem.lower()) is not None


def _is_python_check(rest: list[str]) -> bool:
    if "-m" in rest:
        module = rest[rest.index("-m") + 1 :]
        return module[:1] in (["py_compile"], ["compileall"]) or is_obvious_check(module)
    plain = [word for word in rest if not word.startswith("-")]
    if plain[:1] == ["manage.py"]:
        return plain[1:2] in (["test"], ["check"])
    return bool(plain) and _is_script(plain[0])


def _unwrap(words: Sequence[str]) -> list[str]:
    """Return the words without programs that only run another one: `uv run pytest` is `pytest`."""
    left = list(words)
    while left and (name := PurePosixPath(left[0]).name) in _WRAPPERS:
        verbs = _WRAPPERS[name]
        after = left[1:]
        if verbs:
            if after[:1] not in [[verb] for verb in verbs]:
                break
            after = after[1:]
        while after and after[0].startswith("-") and after[0] != "-m":
            after = after[2 if after[0] in _OPTIONS_WITH_VALUE else 1 :]
        left = ["python", *after] if after[:1] == ["-m"] else after
    return left


def _list_words(parts: Iterable[ExtractedCommand]) -> Iterator[tuple[str, ...]]:
    """Yield the words of each command, program first, without `cd` and the like."""
    for part in parts:
        words = tuple(part.texts)
        if words and PurePosixPath(words[0]).name not in ("cd", "export", "set", "echo", "source", "."):
            yield words


def _includes(words: Sequence[str], check: Sequence[str]) -> bool:
    """True if a command runs this check, perhaps with more arguments: `make -j4 test` runs `make test`."""
    words, check = _unwrap(words), _unwrap(check)
    if not words or not check or PurePosixPath(words[0]).name != PurePosixPath(check[0]).name:
        return False
    rest = iter(words[1:])
    return all(word in rest for word in check[1:])


def _is_masked(words: Sequence[str], script: Sequence[SimpleCommand]) -> bool:
    """True if a command after the check decides the exit status."""
    texts = [tuple(word.text for word in simple.words) for simple in script]
    at = next((index for index, text in enumerate(texts) if text[-len(words) :] == tuple(words)), 0)
    return any(simple.operator != "&&" for simple in script[at + 1 :])


def _shorten(label: str) -> str:
    return label if len(label) <= _MAX_LABEL_CHARS else f"{label[: _MAX_LABEL_CHARS - 1]}…"
