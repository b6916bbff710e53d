"""Plans that run commands: one that was named, a script, or the project's tests."""

import json
import re
from collections.abc import Generator
from typing import Any, cast

from msgspec import Struct

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.plan_change import quoted
from odin.providers.offline.reach import failed, read_act
from odin.providers.offline.task import Act, Desk, Plan, Task
from odin.providers.offline.wording import fenced, reason

_TAIL_LINES = 30
_SHOWN_LINES = 120
_SHOWN_CHARS = 8_000
_INTERPRETERS = {
    "py": "python3",
    "sh": "sh",
    "bash": "bash",
    "js": "node",
    "mjs": "node",
    "ts": "npx tsx",
    "rb": "ruby",
    "pl": "perl",
    "php": "php",
    "lua": "lua",
    "go": "go run",
}


class Tests(Struct, frozen=True):
    """How a project's tests are run, and what told us so."""

    command: str
    because: str


def command_act(command: str) -> Act:
    return Act("ExecuteCommand", {"command": command})


def run(task: Task, desk: Desk) -> Plan:
    (result,) = yield (command_act(task.command),)
    return ran(task.command, result)


def ran(command: str, result: ToolResult) -> str:
    """What a command did: its exit code and its output, bounded to the last lines."""
    if results.was_refused(result):
        return f"`{command}` was not run: {reason(result.text)}"
    code = results.exit_code(result)
    text = results.output(result)
    head = f"`{command}` {_ending(code)}"
    if not text:
        return f"{head} and printed nothing."
    return f"{head}:\n\n{fenced(last_lines(text, _SHOWN_LINES))}"


def _ending(code: int | None) -> str:
    if code is None:
        return "did not end by itself"
    return "ran without an error" if code == 0 else f"failed with exit code {code}"


def last_lines(text: str, limit: int) -> str:
    lines = text.splitlines()
    kept = lines[-limit:]
    while len(kept) > 1 and sum(len(line) + 1 for line in kept) > _SHOWN_CHARS:
        kept = kept[len(kept) // 4 + 1 :]
    cut = len(lines) - len(kept)
    joined = "\n".join(kept)[-_SHOWN_CHARS:]
    return f"({cut} lines before this)\n{joined}" if cut else joined


def which_command(task: Task, desk: Desk) -> Plan:
    yield from ()
    return (
        f'I cannot tell which command "{task.said}" is, and I do not guess what to run. Put it in backticks, '
        'for example: run `make build`. I know "run the tests" by myself.'
    )


def script(task: Task, desk: Desk) -> Plan:
    """Run one file by the interpreter its ending names."""
    ending = task.path.rsplit(".", 1)[-1].lower()
    name = quoted(desk.shown(desk.absolute(task.path)))
    program = _INTERPRETERS.get(ending)
    command = f"{program} {name}" if program else (name if "/" in name else f"./{name}")
    (result,) = yield (command_act(command),)
    return ran(command, result)


def run_tests(task: Task, desk: Desk) -> Plan:
    if task.command:
        found: Tests | str = Tests(task.command, "")
    else:
        found = yield from detect_tests(desk, task.path)
    if isinstance(found, str):
        return found
    (result,) = yield (command_act(found.command),)
    return tested(found, result)


def detect_tests(desk: Desk, path: str = "") -> Generator[tuple[Act, ...], tuple[ToolResult, ...], Tests | str]:
    """How to run the tests, told by the files at the top of the project."""
    (listing,) = yield (Act("LS", {"path": desk.cwd}),)
    if listing.is_error:
        return failed("look for the tests", listing)
    names = set(results.entries(listing.text))
    if path:
        return _one_test(names, path)
    wanted = [name for name in ("Makefile", "makefile", "justfile", "package.json") if name in names]
    texts: dict[str, str] = {}
    if wanted:
        answers = yield tuple(read_act(desk.absolute(name)) for name in wanted)
        texts = {name: results.page(answer.text).text for name, answer in zip(wanted, answers, strict=True)}
    return test_command(names, texts) or (
        "I found no way to run tests here: no Makefile with a test target, no pyproject.toml, package.json, "
        "Cargo.toml or "
        "go.mod. Name the command, for example: run `python3 -m unittest`."
    )


def _one_test(names: set[str], path: str) -> Tests:
    if path.endswith(".go") or "go.mod" in names:
        folder = path.rsplit("/", 1)[0] if path.endswith(".go") and "/" in path else path.removesuffix(".go")
        return Tests(f"go test ./{quoted(folder.strip('/'))}", "go.mod")
    if re.search(r"\.[jt]sx?$", path) or ("package.json" in names and not path.endswith(".py")):
        return Tests(f"npm test -- {quoted(path)}", "package.json")
    return Tests(f"{_python(names)} -m pytest -q {quoted(path)}", "")


def test_command(names: set[str], texts: dict[str, str]) -> Tests | None:
    """The command for a project with these files at its top. What the project itself defines comes first."""
    for makefile in ("Makefile", "makefile"):
        target = re.search(r"^(test|tests|check)\s*:(?!=)", texts.get(makefile, ""), re.MULTILINE)
        if target:
            return Tests(f"make {target[1]}", makefile)
    if re.search(r"^test\b.*:", texts.get("justfile", ""), re.MULTILINE):
        return Tests("just test", "justfile")
    if _has_script(texts.get("package.json", ""), "test"):
        return Tests(_node(names), "package.json")
    python = {"pyproject.toml", "pytest.ini", "setup.cfg", "setup.py", "tox.ini", "conftest.py", "requirements.txt"}
    if names & python or ("tests/" in names and any(name.endswith(".py") for name in names)):
        return Tests(f"{_python(names)} -m pytest -q", next(iter(sorted(names & python)), "the tests folder"))
    return next((Tests(command, name) for name, command in _BY_FILE if name in names), None)


_BY_FILE = (
    ("Cargo.toml", "cargo test"),
    ("go.mod", "go test ./..."),
    ("deno.json", "deno test"),
    ("mix.exs", "mix test"),
    ("pom.xml", "mvn -q test"),
    ("gradlew", "./gradlew test"),
    ("build.gradle", "gradle test"),
    ("build.gradle.kts", "gradle test"),
    ("Rakefile", "rake test"),
    ("composer.json", "composer test"),
    ("Package.swift", "swift test"),
    ("CMakeLists.txt", "ctest --test-dir build"),
    ("tests/", "python3 -m pytest -q"),
)


def _python(names: set[str]) -> str:
    """The interpreter of the project's own environment when it has one."""
    if ".venv/" in names:
        return ".venv/bin/python"
    return "venv/bin/python" if "venv/" in names else "python3"


def _node(names: set[str]) -> str:
    locks = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test", "bun.lockb": "bun test"}
    return next((command for lock, command in locks.items() if lock in names), "npm test")


def _has_script(text: str, name: str) -> bool:
    scripts = package(text).get("scripts")
    if not isinstance(scripts, dict):
        return False
    command = cast("dict[str, Any]", scripts).get(name, "")
    return bool(command) and "no test specified" not in str(command)


def package(text: str) -> dict[str, Any]:
    """A JSON object, or an empty one when the text is none."""
    try:
        value: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


_TALLIES = (
    r"^=*\s*((?:\d+ \w+,? ?)+ in [\d.]+s.*?)\s*=*$",
    r"^(Tests:\s+.+)$",
    r"^(test result: .+)$",
    r"^(Ran \d+ tests? in .+)$",
    r"^\s*(\d+ passing.*|\d+ failing.*)$",
    r"^(\d+ examples?, \d+ failures?.*)$",
    r"^(ok\s+\S+\s+[\d.]+s|FAIL\s+\S+.*)$",
)


def tested(tests: Tests, result: ToolResult) -> str:
    """Whether the tests pass, in the words of the test runner, with the end of its output when they do not."""
    if results.was_refused(result):
        return f"The tests were not run: {reason(result.text)}"
    tally = tally_of(result.text)
    said = f": {tally}" if tally else ""
    code = results.exit_code(result)
    because = f", because there is {tests.because}" if tests.because else ""
    if code == 0:
        return f"The tests pass{said}. I ran `{tests.command}`{because}."
    end = fenced(last_lines(results.output(result) or "(no output)", _TAIL_LINES))
    if code == 127 or re.search(r"command not found|No module named pytest", result.text):
        return f"The tests did not run: `{tests.command}` cannot be started here.\n\n{end}"
    return f"The tests fail{said}. I ran `{tests.command}`{because}. It {_ending(code)}:\n\n{end}"


def tally_of(text: str) -> str:
    """The line in which a test runner counts what it did."""
    for pattern in _TALLIES:
        found = re.findall(pattern, text[-20_000:], re.MULTILINE)
        if found:
            return re.sub(r"\s+", " ", found[-1]).strip()
    return ""
