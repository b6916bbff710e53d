"""Plans that run commands: one that was named, a script, or the project's tests."""

import json
import re
from collections.abc import Generator
from typing import Any, cast

from msgspec import Struct

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.plan_change import quote_for_shell
from odin.providers.offline.reach import make_read_call, report_failure
from odin.providers.offline.task import Plan, PlanContext, PlannedCall, PlannerTask
from odin.providers.offline.wording import extract_reason, format_code_block

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


class ProjectTests(Struct, frozen=True):
    """How a project's tests are run, and what told us so."""

    command: str
    because: str


def make_command_call(command: str) -> PlannedCall:
    return PlannedCall("ExecuteCommand", {"command": command})


def plan_command(task: PlannerTask, desk: PlanContext) -> Plan:
    (result,) = yield (make_command_call(task.command),)
    return report_run(task.command, result)


def report_run(command: str, result: ToolResult) -> str:
    """What a command did: its exit code and its output, bounded to the last lines."""
    if results.was_refused(result):
        return f"`{command}` was not run: {extract_reason(result.text)}"
    code = results.exit_code_of(result)
    text = results.output_of(result)
    head = f"`{command}` {_describe_exit(code)}"
    if not text:
        return f"{head} and printed nothing."
    return f"{head}:\n\n{format_code_block(keep_last_lines(text, _SHOWN_LINES))}"


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "did not end by itself"
    return "ran without an error" if code == 0 else f"failed with exit code {code}"


def keep_last_lines(text: str, limit: int) -> str:
    lines = text.splitlines()
    kept = lines[-limit:]
    while len(kept) > 1 and sum(len(line) + 1 for line in kept) > _SHOWN_CHARS:
        kept = kept[len(kept) // 4 + 1 :]
    cut = len(lines) - len(kept)
    joined = "\n".join(kept)[-_SHOWN_CHARS:]
    return f"({cut} lines before this)\n{joined}" if cut else joined


def plan_unknown_command(task: PlannerTask, desk: PlanContext) -> Plan:
    yield from ()
    return (
        f'I cannot tell which command "{task.source_text}" is, and I do not guess what to run. Put it in backticks, '
        'for example: run `make build`. I know "run the tests" by myself.'
    )


def plan_script(task: PlannerTask, desk: PlanContext) -> Plan:
    """Run one file by the interpreter its ending names."""
    ending = task.path.rsplit(".", 1)[-1].lower()
    name = quote_for_shell(desk.display_path(desk.resolve_path(task.path)))
    program = _INTERPRETERS.get(ending)
    command = f"{program} {name}" if program else (name if "/" in name else f"./{name}")
    (result,) = yield (make_command_call(command),)
    return report_run(command, result)


def plan_tests(task: PlannerTask, desk: PlanContext) -> Plan:
    if task.command:
        found: ProjectTests | str = ProjectTests(task.command, "")
    else:
        found = yield from detect_tests(desk, task.path)
    if isinstance(found, str):
        return found
    (result,) = yield (make_command_call(found.command),)
    return report_tests(found, result)


def detect_tests(
    desk: PlanContext, path: str = ""
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], ProjectTests | str]:
    """How to run the tests, told by the files at the top of the project."""
    (listing,) = yield (PlannedCall("LS", {"path": desk.cwd}),)
    if listing.is_error:
        return report_failure("look for the tests", listing)
    names = set(results.parse_entries(listing.text))
    if path:
        return _make_single_test(names, path)
    wanted = [name for name in ("Makefile", "makefile", "justfile", "package.json") if name in names]
    texts: dict[str, str] = {}
    if wanted:
        answers = yield tuple(make_read_call(desk.resolve_path(name)) for name in wanted)
        texts = {name: results.parse_page(answer.text).text for name, answer in zip(wanted, answers, strict=True)}
    return find_test_command(names, texts) or (
        "I found no way to run tests here: no Makefile with a test target, no pyproject.toml, package.json, "
        "Cargo.toml or "
        "go.mod. Name the command, for example: run `python3 -m unittest`."
    )


def _make_single_test(names: set[str], path: str) -> ProjectTests:
    if path.endswith(".go") or "go.mod" in names:
        folder = path.rsplit("/", 1)[0] if path.endswith(".go") and "/" in path else path.removesuffix(".go")
        return ProjectTests(f"go test ./{quote_for_shell(folder.strip('/'))}", "go.mod")
    if re.search(r"\.[jt]sx?$", path) or ("package.json" in names and not path.endswith(".py")):
        return ProjectTests(f"npm test -- {quote_for_shell(path)}", "package.json")
    return ProjectTests(f"{_find_python(names)} -m pytest -q {quote_for_shell(path)}", "")


def find_test_command(names: set[str], texts: dict[str, str]) -> ProjectTests | None:
    """The command for a project with these files at its top. What the project itself defines comes first."""
    for makefile in ("Makefile", "makefile"):
        target = re.search(r"^(test|tests|check)\s*:(?!=)", texts.get(makefile, ""), re.MULTILINE)
        if target:
            return ProjectTests(f"make {target[1]}", makefile)
    if re.search(r"^test\b.*:", texts.get("justfile", ""), re.MULTILINE):
        return ProjectTests("just test", "justfile")
    if _has_script(texts.get("package.json", ""), "test"):
        return ProjectTests(_find_node_command(names), "package.json")
    python = {"pyproject.toml", "pytest.ini", "setup.cfg", "setup.py", "tox.ini", "conftest.py", "requirements.txt"}
    if names & python or ("tests/" in names and any(name.endswith(".py") for name in names)):
        return ProjectTests(
            f"{_find_python(names)} -m pytest -q", next(iter(sorted(names & python)), "the tests folder")
        )
    return next((ProjectTests(command, name) for name, command in _TEST_COMMANDS if name in names), None)


_TEST_COMMANDS = (
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


def _find_python(names: set[str]) -> str:
    """The interpreter of the project's own environment when it has one."""
    if ".venv/" in names:
        return ".venv/bin/python"
    return "venv/bin/python" if "venv/" in names else "python3"


def _find_node_command(names: set[str]) -> str:
    locks = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test", "bun.lockb": "bun test"}
    return next((command for lock, command in locks.items() if lock in names), "npm test")


def _has_script(text: str, name: str) -> bool:
    scripts = parse_package_json(text).get("scripts")
    if not isinstance(scripts, dict):
        return False
    command = cast("dict[str, Any]", scripts).get(name, "")
    return bool(command) and "no test specified" not in str(command)


def parse_package_json(text: str) -> dict[str, Any]:
    """A JSON object, or an empty one when the text is none."""
    try:
        value: Any = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


_TALLY_PATTERNS = (
    r"^=*\s*((?:\d+ \w+,? ?)+ in [\d.]+s.*?)\s*=*$",
    r"^(Tests:\s+.+)$",
    r"^(test result: .+)$",
    r"^(Ran \d+ tests? in .+)$",
    r"^\s*(\d+ passing.*|\d+ failing.*)$",
    r"^(\d+ examples?, \d+ failures?.*)$",
    r"^(ok\s+\S+\s+[\d.]+s|FAIL\s+\S+.*)$",
)


def report_tests(tests: ProjectTests, result: ToolResult) -> str:
    """Whether the tests pass, in the words of the test runner, with the end of its output when they do not."""
    if results.was_refused(result):
        return f"The tests were not run: {extract_reason(result.text)}"
    tally = tally_of(result.text)
    said = f": {tally}" if tally else ""
    code = results.exit_code_of(result)
    because = f", because there is {tests.because}" if tests.because else ""
    if code == 0:
        return f"The tests pass{said}. I ran `{tests.command}`{because}."
    end = format_code_block(keep_last_lines(results.output_of(result) or "(no output)", _TAIL_LINES))
    if code == 127 or re.search(r"command not found|No module named pytest", result.text):
        return f"The tests did not run: `{tests.command}` cannot be started here.\n\n{end}"
    return f"The tests fail{said}. I ran `{tests.command}`{because}. It {_describe_exit(code)}:\n\n{end}"


def tally_of(text: str) -> str:
    """The line in which a test runner counts what it did."""
    for pattern in _TALLY_PATTERNS:
        found = re.findall(pattern, text[-20_000:], re.MULTILINE)
        if found:
            return re.sub(r"\s+", " ", found[-1]).strip()
    return ""
