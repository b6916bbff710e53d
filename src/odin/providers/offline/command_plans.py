"""Plans that run commands, scripts and tests, ask git (read-only), and describe the project from its files."""

import json
import re
from collections import Counter
from collections.abc import Generator
from typing import Any, cast

from msgspec import Struct

from odin.core.format import count_of
from odin.core.message import ToolResult
from odin.core.path_names import quote_path
from odin.providers.offline import results
from odin.providers.offline.language import FILE_TYPES
from odin.providers.offline.read_plans import extract_first_paragraph, make_glob_call, make_read_call, report_failure
from odin.providers.offline.task import (
    Plan,
    PlanContext,
    PlannedCall,
    PlannerTask,
    explain_not_offered,
    extract_reason,
    format_code_block,
)

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
    """How a project's tests are run, and which file says so."""

    command: str
    because: str


def make_command_call(command: str) -> PlannedCall:
    return PlannedCall("ExecuteCommand", {"command": command})


def plan_command(task: PlannerTask, context: PlanContext) -> Plan:
    (result,) = yield (make_command_call(task.command),)
    return report_run(task.command, result)


def report_run(command: str, result: ToolResult) -> str:
    """Return a command's exit code and the last lines of its output."""
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


def plan_unknown_command(task: PlannerTask, context: PlanContext) -> Plan:
    yield from ()
    return (
        f'I cannot tell which command "{task.source_text}" is, and I do not guess what to run. Put it in backticks, '
        'for example: run `make build`. I know "run the tests" by myself.'
    )


def plan_script(task: PlannerTask, context: PlanContext) -> Plan:
    """Run one file with the interpreter its suffix implies."""
    ending = task.path.rsplit(".", 1)[-1].lower()
    name = quote_path(context.display_path(context.resolve_path(task.path)))
    program = _INTERPRETERS.get(ending)
    command = f"{program} {name}" if program else (name if "/" in name else f"./{name}")
    (result,) = yield (make_command_call(command),)
    return report_run(command, result)


def plan_tests(task: PlannerTask, context: PlanContext) -> Plan:
    if task.command:
        found: ProjectTests | str = ProjectTests(task.command, "")
    else:
        found = yield from detect_tests(context, task.path)
    if isinstance(found, str):
        return found
    (result,) = yield (make_command_call(found.command),)
    return report_tests(found, result)


def detect_tests(
    context: PlanContext, path: str = ""
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], ProjectTests | str]:
    """Return how to run the tests, from the files at the top of the project."""
    (listing,) = yield (PlannedCall("LS", {"path": context.cwd}),)
    if listing.is_error:
        return report_failure("look for the tests", listing)
    names = set(results.parse_entries(listing.text))
    if path:
        return _make_single_test(names, path)
    wanted = [name for name in ("Makefile", "makefile", "justfile", "package.json") if name in names]
    texts: dict[str, str] = {}
    if wanted:
        answers = yield tuple(make_read_call(context.resolve_path(name)) for name in wanted)
        texts = {name: results.parse_page(answer.text).text for name, answer in zip(wanted, answers, strict=True)}
    return find_test_command(names, texts) or (
        "I found no way to run tests here: no Makefile with a test target, no pyproject.toml, package.json, "
        "Cargo.toml or "
        "go.mod. Name the command, for example: run `python3 -m unittest`."
    )


def _make_single_test(names: set[str], path: str) -> ProjectTests:
    if path.endswith(".go") or "go.mod" in names:
        folder = path.rsplit("/", 1)[0] if path.endswith(".go") and "/" in path else path.removesuffix(".go")
        return ProjectTests(f"go test {quote_path('./' + folder.strip('/'))}", "go.mod")
    if re.search(r"\.[jt]sx?$", path) or ("package.json" in names and not path.endswith(".py")):
        return ProjectTests(f"npm test -- {quote_path(path)}", "package.json")
    return ProjectTests(f"{_find_python(names)} -m pytest -q {quote_path(path)}", "")


def find_test_command(names: set[str], texts: dict[str, str]) -> ProjectTests | None:
    """Return the test command for a project with these files. What the project defines itself comes first."""
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
    """Return the interpreter of the project's own virtual environment, if it has one."""
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
    """Return a JSON object, or an empty one if the text is invalid."""
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
    """Return whether the tests pass, in the test runner's words, with the end of its output if they fail."""
    if results.was_refused(result):
        return f"The tests were not run: {extract_reason(result.text)}"
    tally = tally_of(result.text)
    counts = f": {tally}" if tally else ""
    code = results.exit_code_of(result)
    because = f", because there is {tests.because}" if tests.because else ""
    if code == 0:
        return f"The tests pass{counts}. I ran `{tests.command}`{because}."
    end = format_code_block(keep_last_lines(results.output_of(result) or "(no output)", _TAIL_LINES))
    if code == 127 or re.search(r"command not found|No module named pytest", result.text):
        return f"The tests did not run: `{tests.command}` cannot be started here.\n\n{end}"
    return f"The tests fail{counts}. I ran `{tests.command}`{because}. It {_describe_exit(code)}:\n\n{end}"


def tally_of(text: str) -> str:
    """Return the line in which a test runner counts its results."""
    for pattern in _TALLY_PATTERNS:
        found = re.findall(pattern, text[-20_000:], re.MULTILINE)
        if found:
            return re.sub(r"\s+", " ", found[-1]).strip()
    return ""


_DIFF_LINES = 200
_CHANGE_KINDS = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "in conflict",
    "?": "untracked",
}


def plan_git_query(task: PlannerTask, context: PlanContext) -> Plan:
    commands = _build_git_commands(task, context)
    answers = yield tuple(make_command_call(command) for command in commands)
    trouble = _explain_git_failure(commands[0], answers[0])
    if trouble:
        return trouble
    texts = [results.output_of(answer) for answer in answers]
    return _ANSWERS[task.variant](task, texts) if task.variant in _ANSWERS else report_run(commands[0], answers[0])


def _build_git_commands(task: PlannerTask, context: PlanContext) -> tuple[str, ...]:
    path = f" -- {quote_path(context.display_path(context.resolve_path(task.path)))}" if task.path else ""
    if task.variant == "typed":
        return (task.command,)
    if task.variant == "changes":
        return ("git status --short --branch", "git diff --stat HEAD")
    simple = {
        "status": "git status --short --branch",
        "diff": f"git diff HEAD{path}",
        "log": f"git log -n {max(1, task.first)} --date=short --format='%h %ad %an: %s'{path}",
        "who": f"git log -n 1 --date=short --format='%h|%an|%ad|%s'{path}",
        "branch": "git branch --show-current",
        "branches": "git branch",
        "show": f"git show --stat {task.term or 'HEAD'}",
        "count": "git rev-list --count HEAD",
    }
    return (simple[task.variant],)


def _explain_git_failure(command: str, result: ToolResult) -> str:
    if results.was_refused(result):
        return f"`{command}` was not run: {extract_reason(result.text)}"
    if "not a git repository" in result.text:
        return "This folder is not a git repository."
    if re.search(
        r"does not have any commits yet|unknown revision .*HEAD|bad revision 'HEAD'|ambiguous argument 'HEAD'",
        result.text,
    ):
        return "This repository has no commits yet."
    if results.exit_code_of(result) != 0:
        return report_run(command, result)
    return ""


def _answer_status(task: PlannerTask, texts: list[str]) -> str:
    lines = texts[0].splitlines()
    branch = next((line[3:] for line in lines if line.startswith("## ")), "")
    files = [
        line for line in lines if line.strip() and not line.startswith("## ") and re.match(r"[ MADRCU?!]{2} ", line)
    ]
    where = f"On branch `{branch.split('...')[0].removeprefix('No commits yet on ')}`" if branch else "On no branch"
    ahead = re.search(r"\[(.+)\]", branch)
    head = f"{where}{f' ({ahead[1]})' if ahead else ''}"
    if not files:
        return f"{head}: nothing has changed since the last commit."
    listed = [f"- {line[3:]} ({_change_kind_of(line[:2])})" for line in files[:60]]
    more = [f"- and {len(files) - 60} more"] if len(files) > 60 else []
    return f"{head}: {count_of(len(files), 'file has', 'files have')} changed.\n\n" + "\n".join([*listed, *more])


def _change_kind_of(code: str) -> str:
    letter = code.strip()[:1]
    staged = ", staged" if code[0] not in " ?" else ""
    return _CHANGE_KINDS.get(letter, "changed") + staged


def _answer_changes(task: PlannerTask, texts: list[str]) -> str:
    status = _answer_status(task, texts)
    stat = texts[1] if len(texts) > 1 else ""
    last = stat.strip().splitlines()[-1].strip() if stat.strip() else ""
    return f"{status}\n\nIn all: {last}." if re.match(r"\d+ files? changed", last) else status


def _answer_diff(task: PlannerTask, texts: list[str]) -> str:
    where = f" in `{task.path}`" if task.path else ""
    if not texts[0].strip():
        return f"There is no difference to the last commit{where}."
    lines = texts[0].splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    shown = "\n".join(lines[:_DIFF_LINES])
    more = f"\n\n{len(lines) - _DIFF_LINES} more lines are not shown." if len(lines) > _DIFF_LINES else ""
    head = f"The difference to the last commit{where}: {count_of(added, 'line')} added, {removed} removed."
    return f"{head}\n\n{format_code_block(shown, 'diff')}{more}"


def _answer_log(task: PlannerTask, texts: list[str]) -> str:
    lines = [line for line in texts[0].splitlines() if line.strip()]
    where = f" to `{task.path}`" if task.path else ""
    if not lines:
        return f"There are no commits{where}."
    head = "The last commit" if len(lines) == 1 else f"The last {len(lines)} commits"
    return f"{head}{where}:\n\n" + "\n".join(f"- {line}" for line in lines)


def _answer_who(task: PlannerTask, texts: list[str]) -> str:
    parts = texts[0].strip().split("|", 3)
    if len(parts) < 4:
        return f"git knows no commit that changed `{task.path}`."
    commit, author, date, subject = parts
    return f"{author} changed `{task.path}` last, on {date}, in {commit}: {subject}"


def _answer_branch(task: PlannerTask, texts: list[str]) -> str:
    name = texts[0].strip()
    return f"You are on branch `{name}`." if name else "You are on no branch: HEAD is detached."


def _answer_branches(task: PlannerTask, texts: list[str]) -> str:
    names = [line.rstrip() for line in texts[0].splitlines() if line.strip()]
    if not names:
        return "There are no branches yet."
    lines = [f"- {name.lstrip('*+ ')}{' (current)' if name.startswith('*') else ''}" for name in names[:60]]
    return f"{count_of(len(names), 'branch', 'branches')}:\n\n" + "\n".join(lines)


def _answer_show(task: PlannerTask, texts: list[str]) -> str:
    return f"The commit {task.term or 'HEAD'}:\n\n{format_code_block(keep_last_lines(texts[0], _DIFF_LINES))}"


def _answer_count(task: PlannerTask, texts: list[str]) -> str:
    number = texts[0].strip()
    return f"There are {number} commits." if number != "1" else "There is 1 commit."


_ANSWERS = {
    "status": _answer_status,
    "changes": _answer_changes,
    "diff": _answer_diff,
    "log": _answer_log,
    "who": _answer_who,
    "branch": _answer_branch,
    "branches": _answer_branches,
    "show": _answer_show,
    "count": _answer_count,
}


_MANIFESTS = (
    "pyproject.toml",
    "package.json",
    "Cargo.toml",
    "go.mod",
    "setup.cfg",
    "composer.json",
    "Makefile",
    "justfile",
)
_NOT_LANGUAGES = {
    "js",
    "ts",
    "golang",
    "cpp",
    "csharp",
    "text",
    "image",
    "csv",
    "json",
    "toml",
    "xml",
    "bash",
    "markdown",
    "yaml",
}


def plan_init(task: PlannerTask, context: PlanContext) -> Plan:
    """Write ODIN.md from the project's files."""
    if not context.has_tools("InitTool"):
        return explain_not_offered(("InitTool",), context)
    (result,) = yield (PlannedCall("InitTool", {}),)
    return report_failure("write ODIN.md", result) if result.is_error else result.text


def plan_description(task: PlannerTask, context: PlanContext) -> Plan:
    """List the top folder and all file names, then read the files that describe the project."""
    first = (
        PlannedCall("LS", {"path": context.cwd}),
        *((make_glob_call("**/*", context),) if context.has_tools("Glob") else ()),
    )
    listing, *globbed = yield first
    if listing.is_error:
        return report_failure("look at this folder", listing)
    names = results.parse_entries(listing.text)
    wanted = [name for name in names if re.match(r"readme(?:\.\w+)?$", name, re.IGNORECASE)][:1]
    wanted += [name for name in _MANIFESTS if name in names]
    texts: dict[str, str] = {}
    if wanted:
        answers = yield tuple(make_read_call(context.resolve_path(name)) for name in wanted)
        for name, answer in zip(wanted, answers, strict=True):
            texts[name] = "" if answer.is_error else results.parse_page(answer.text).text
    languages = languages_of([path for answer in globbed for path in results.parse_paths(answer.text)] or names)
    if any(results.parse_total_files(answer.text) for answer in globbed):
        languages = yield from _count_by_language(languages, context)
    return _format_description(names, texts, languages, context)


def _count_by_language(
    languages: list[tuple[str, int]], context: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[tuple[str, int]]]:
    """Return the number of files per language in a project too large for one listing."""
    if not languages:
        return languages
    globs = [f"**/*.{{{FILE_TYPES[name.lower()].replace(' ', ',')}}}" for name, _ in languages]
    answers = yield tuple(make_glob_call(glob, context) for glob in globs)
    counts = [results.parse_total_files(answer.text) or len(results.parse_paths(answer.text)) for answer in answers]
    exact = [(name, count) for (name, _), count in zip(languages, counts, strict=True)]
    return sorted(exact, key=lambda pair: -pair[1])


def _format_description(
    names: list[str], texts: dict[str, str], languages: list[tuple[str, int]], context: PlanContext
) -> str:
    if not names:
        return "This folder is empty."
    facts = facts_of(texts)
    name = facts.get("name") or context.cwd.rstrip("/").rsplit("/", 1)[-1] or "This project"
    readme = next((key for key in texts if key.lower().startswith("readme")), "")
    about = extract_first_paragraph(readme, texts[readme]) if readme else ""
    lines = [f"**{name}**{': ' + facts['description'] if facts.get('description') else ''}"]
    if about and about != facts.get("description"):
        lines += ["", about]
    lines += ["", *_format_points(names, texts, languages, facts)]
    return "\n".join(lines)


def _format_points(
    names: list[str], texts: dict[str, str], languages: list[tuple[str, int]], facts: dict[str, str]
) -> list[str]:
    points: list[str] = []
    if languages:
        written = [f"{name} ({count_of(count, 'file')})" for name, count in languages]
        points.append(f"- Written in: {', '.join(written)}")
    folders = [name for name in names if name.endswith("/") and not name.startswith(".")]
    files = [name for name in names if not name.endswith("/")]
    if folders:
        points.append(f"- Folders: {', '.join(folders[:12])}")
    if files:
        points.append(f"- Files at the top: {', '.join(files[:12])}")
    if facts.get("entry"):
        points.append(f"- Entry points: {facts['entry']}")
    run = _find_run_commands(texts)
    if run:
        points.append(f"- To run: {run}")
    tests = find_test_command(set(names), texts)
    if tests:
        points.append(f"- To test: `{tests.command}`")
    return points


def languages_of(paths: list[str]) -> list[tuple[str, int]]:
    """Return the programming languages by number of files, most used first."""
    by_ending = {
        ending: name for name, endings in FILE_TYPES.items() if name not in _NOT_LANGUAGES for ending in endings.split()
    }
    endings = (path.rsplit(".", 1)[-1].lower() for path in paths if "." in path.rsplit("/", 1)[-1])
    counts = Counter(by_ending[ending] for ending in endings if ending in by_ending)
    proper = {
        "html": "HTML",
        "css": "CSS",
        "sql": "SQL",
        "php": "PHP",
        "c++": "C++",
        "c#": "C#",
        "javascript": "JavaScript",
        "typescript": "TypeScript",
    }
    return [(proper.get(name, name.capitalize()), count) for name, count in counts.most_common(5)]


def facts_of(texts: dict[str, str]) -> dict[str, str]:
    """Return name, description and entry points from the first manifest that has them."""
    facts: dict[str, str] = {}
    for found in (_facts_of_toml(texts), _facts_of_node(texts), _facts_of_go(texts)):
        for key, value in found.items():
            if value:
                facts.setdefault(key, value)
    return facts


def _facts_of_toml(texts: dict[str, str]) -> dict[str, str]:
    import tomllib

    text = texts.get("pyproject.toml") or texts.get("Cargo.toml") or ""
    try:
        data: dict[str, Any] = tomllib.loads(text) if text else {}
    except tomllib.TOMLDecodeError:
        return {}
    main = _table_of(data, "project") or _table_of(data, "package") or _table_of(_table_of(data, "tool"), "poetry")
    scripts = _table_of(main, "scripts")
    entry = ", ".join(f"`{name}` ({target})" for name, target in list(scripts.items())[:6])
    return {"name": str(main.get("name", "")), "description": str(main.get("description", "")), "entry": entry}


def _table_of(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _facts_of_node(texts: dict[str, str]) -> dict[str, str]:
    data = parse_package_json(texts.get("package.json", ""))
    command = data.get("bin")
    entry = ", ".join(f"`{name}`" for name in cast("dict[str, Any]", command)) if isinstance(command, dict) else ""
    main = data.get("main")
    return {
        "name": str(data.get("name", "")),
        "description": str(data.get("description", "")),
        "entry": entry or (f"`{main}`" if isinstance(main, str) else ""),
    }


def _facts_of_go(texts: dict[str, str]) -> dict[str, str]:
    found = re.search(r"^module\s+(\S+)", texts.get("go.mod", ""), re.MULTILINE)
    return {"name": found[1]} if found else {}


def _find_run_commands(texts: dict[str, str]) -> str:
    """Return what the project offers to run: script names, make targets."""
    scripts = _table_of(parse_package_json(texts.get("package.json", "")), "scripts")
    commands = [f"`npm run {name}`" for name in ("start", "dev", "build") if name in scripts]
    makefile = texts.get("Makefile", "")
    targets = re.findall(r"^([a-z][\w-]*)\s*:(?!=)", makefile, re.MULTILINE)
    commands += [f"`make {name}`" for name in targets if name not in ("test", "tests", "check", "clean")][:5]
    if "Cargo.toml" in texts:
        commands.append("`cargo run`")
    if "go.mod" in texts:
        commands.append("`go run .`")
    return ", ".join(commands)
