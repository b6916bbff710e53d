"""Requests to run a command or the tests."""

import re

from odin.providers.offline.quotes import QUOTED, Request
from odin.providers.offline.task import LAST_FILE, Task
from odin.providers.offline.vocabulary import COMMANDS, PLACE, looks_like_path

_TYPED_COMMANDS = frozenset(
    "pytest npm npx yarn pnpm cargo pip pip3 python python3 tox uv docker ruff mypy node".split()
)
_TESTS = r"(?:(?:all|the|my|our|your|its|unit|whole|full|integration|project'?s?)\s+)*(?:test\s?suite|tests?|test\s?cases?|specs?)"
_QUESTIONS = (
    r"(?:do|does|are|is) (?:all )?(?:the |my |our )?(?:tests?|test suite|suite|build)(?: all)?(?: still)? "
    r"(?:pass|passing|green|ok|work|working|run|succeed)(?: now)?"
)


def run(clause: str, words: Request) -> Task | None:
    verb, _, rest = clause.partition(" ")
    if re.fullmatch(_QUESTIONS, clause, re.IGNORECASE) or re.fullmatch(
        r"test (?:it|this|that|everything|(?:the|this) (?:project|code|repo))", clause, re.IGNORECASE
    ):
        return Task("tests")
    if verb.lower() in _TYPED_COMMANDS:
        return Task("run", command=words.typed(clause))
    if re.fullmatch(r"re-?run|run|execute|exec|launch|start", verb, re.IGNORECASE) and rest:
        return _run(rest, words)
    if re.fullmatch(QUOTED, clause) and words.typed(clause).startswith("`") and _is_command(words.content(clause)):
        return Task("run", command=words.content(clause))
    return None


def _run(rest: str, words: Request) -> Task:
    found = re.fullmatch(
        rf"{_TESTS}(?: (?:in|from|of|for|under) (?:the )?(?:file |folder )?(?P<path>{PLACE})(?: (?:file|folder|directory))?)?",
        rest,
        re.I,
    )
    if found:
        return Task("tests", path=_target(words.content(found["path"] or "")))
    rest = re.sub(r"^(?:the |this |a )?(?:shell |terminal |bash )?(?:command|cmd)s?\s*:?\s+", "", rest, flags=re.I)
    quoted = re.fullmatch(rf"({QUOTED})(?: (?:command|in (?:the )?(?:shell|terminal)))?", rest, re.I)
    if quoted:
        return Task("run", command=words.content(quoted[1]).strip())
    script = re.fullmatch(rf"(?:the )?(?:file |script |program )?(?P<path>{PLACE})", rest, re.I)
    if script:
        path = words.content(script["path"])
        if path.lower() in ("it", "that", "this"):
            return Task("again", how="run")
        if looks_like_path(path):
            return _script(path)
    typed = words.typed(rest)
    if _is_command(typed):
        return Task("run", command=typed)
    return Task("which-command", said=typed)


def _target(path: str) -> str:
    return LAST_FILE if path.lower() in ("it", "that", "this") else path


def _script(path: str) -> Task:
    name = path.rsplit("/", 1)[-1]
    if re.match(r"test_.*\.py$|.*_test\.(?:py|go)$|.*\.(?:test|spec)\.\w+$", name) or path.endswith(
        ("tests", "tests/")
    ):
        return Task("tests", path=path)
    return Task("script", path=path)


def _is_command(text: str) -> bool:
    """Whether unquoted words read like a command: a known program, a path, or an option among them."""
    first, *others = text.split() or [""]
    if first in COMMANDS or first.startswith(("./", "/", "~/")):
        return True
    return any(re.match(r"--?[A-Za-z]", word) for word in others)
