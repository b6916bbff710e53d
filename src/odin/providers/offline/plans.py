"""How each request of the table is carried out: the calls, and what follows from their results.

A plan is a generator. The planner stores nothing: it starts the plan again for each reply and feeds it the recorded
results, and what the plan yields next is the reply. Each plan reads before it writes.
"""

import json
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any

from msgspec import Struct

from odin.core.format import pluralize
from odin.core.message import ToolResult
from odin.core.path_names import quote_path
from odin.core.text import join_some
from odin.providers.offline import answers, results
from odin.providers.offline.answers import check_result
from odin.providers.offline.plan import (
    Calls,
    Plan,
    PlanContext,
    PlanFailed,
    PlannedCall,
    RequestMatch,
    Results,
    escape_literal,
)

MAX_HITS = 250
"""Maximum lines of one search."""
MAX_FILES = 200
"""Maximum files changed by one request."""
_MAX_EDITED_LINES = 5000
_EDITS_PER_REPLY = 20
_MAX_CANDIDATES = 8


class FoundPath(Struct, frozen=True):
    """The path a call was made on, and its result."""

    path: str
    result: ToolResult


PathSteps = Generator[Calls, Results, FoundPath]


def call_on_path(path: str, context: PlanContext, make_call: Callable[[str], PlannedCall]) -> PathSteps:
    """Make a call on a path. If it does not exist but exactly one file below has that name, use that file."""
    full = context.resolve_path(path)
    (result,) = yield (make_call(full),)
    if not results.is_missing(result):
        return FoundPath(full, result)
    found: list[str] = []
    if not path.startswith(("/", "~", "..")) and "Glob" in context.tools:
        args = {"pattern": f"**/{path.strip('/').removeprefix('./')}", "path": context.cwd}
        (listed,) = yield (PlannedCall("Glob", args),)
        found = [] if listed.is_error else results.parse_paths(listed.text)
    if len(found) == 1:
        (result,) = yield (make_call(found[0]),)
        return FoundPath(found[0], result)
    if not found:
        hint = re.search(r"Did you mean .*", result.text)
        raise PlanFailed(f"There is no `{path}` here. {hint[0] if hint else ''}".rstrip())
    shown = join_some((f"`{context.display_path(item)}`" for item in found), _MAX_CANDIDATES)
    raise PlanFailed(f"There are {len(found)} files called `{path}`: {shown}. Name one of them.")


def _make_read(path: str, first: int = 0, last: int = 0) -> PlannedCall:
    lines = {"offset": first, "limit": max(1, last - first + 1)} if first else {}
    return PlannedCall("Read", {"file_path": path, **lines})


def _find_file(match: RequestMatch, context: PlanContext) -> str:
    """Return the file of a request; "it" is the file last seen."""
    if match.get_typed("path").lower() not in ("it", "that file", "this file"):
        return match["path"]
    if not context.memory.file:
        raise PlanFailed("I do not know which file you mean. Name it, for example: Read README.md")
    return context.memory.file


# --- search ---


def _make_grep(pattern: str, path: str, mode: str, glob: str = "", limit: int = MAX_HITS) -> PlannedCall:
    args: dict[str, Any] = {"pattern": pattern, "path": path, "output_mode": mode, "head_limit": limit}
    if mode == "content":
        args["-n"] = True
    if glob:
        args["glob"] = glob
    if "\n" in pattern:
        args["multiline"] = True
    return PlannedCall("Grep", args)


def _search(pattern: str, match: RequestMatch, context: PlanContext, mode: str, limit: int = MAX_HITS) -> PathSteps:
    """Search in the place of the request: a file, a folder, or the files that match a pattern such as *.py."""
    if not match["term"].strip():
        raise PlanFailed("The text to search for is empty.")
    place = match["path"]
    if "*" in place:
        (result,) = yield (_make_grep(pattern, context.cwd, mode, place, limit),)
        found = FoundPath(context.cwd, result)
    else:
        found = yield from call_on_path(place, context, lambda path: _make_grep(pattern, path, mode, limit=limit))
    check_result(f"search for `{match['term']}`", found.result)
    return found


def plan_search(match: RequestMatch, context: PlanContext) -> Plan:
    found = yield from _search(escape_literal(match["term"]), match, context, "content")
    return answers.format_hits(f"`{match['term']}`", found.result, found.path, context)


def plan_pattern_search(match: RequestMatch, context: PlanContext) -> Plan:
    found = yield from _search(match["term"], match, context, "content")
    return answers.format_hits(f"the pattern `{match['term']}`", found.result, found.path, context)


_DEFINITION = (
    r"\b(?:def|class|func|function|fn|struct|enum|trait|interface|type|const|let|var|val|module|mod|namespace|"
    r"protocol|object|sub|#define)\s+(?:\([^)]*\)\s*)?{0}\b|^\s*(?:export\s+|pub\s+|static\s+|final\s+)*{0}\s*(?::[^=]+)?=[^=]"
)


def plan_definition_search(match: RequestMatch, context: PlanContext) -> Plan:
    pattern = _DEFINITION.replace("{0}", escape_literal(match["term"]))
    found = yield from _search(pattern, match, context, "content")
    return answers.format_hits(f"a definition of `{match['term']}`", found.result, found.path, context)


def plan_file_search(match: RequestMatch, context: PlanContext) -> Plan:
    found = yield from _search(escape_literal(match["term"]), match, context, "files_with_matches")
    what = f"with `{match['term']}`{answers.format_place(found.path, context)}"
    return answers.format_paths(what, found.result, context)


def plan_count(match: RequestMatch, context: PlanContext) -> Plan:
    found = yield from _search(escape_literal(match["term"]), match, context, "count", 10_000)
    return answers.format_counts(match["term"], results.parse_counts(found.result.text), found.path, context)


# --- files ---


def plan_find(match: RequestMatch, context: PlanContext) -> Plan:
    name, folder = match["name"], context.resolve_path(match["path"])
    pattern = name if "/" in name else f"**/{name}"
    (result,) = yield (PlannedCall("Glob", {"pattern": pattern, "path": folder}),)
    check_result("find files", result)
    return answers.format_paths(f"named `{name}`{answers.format_place(folder, context)}", result, context)


def plan_list(match: RequestMatch, context: PlanContext) -> Plan:
    folder = context.resolve_path(match["path"])
    (result,) = yield (PlannedCall("LS", {"path": folder}),)
    check_result(f"list `{context.display_path(folder)}`", result)
    return answers.format_listing(folder, result, context)


def plan_read(match: RequestMatch, context: PlanContext) -> Plan:
    first, last = int(match["first"] or 0), int(match["last"] or match["first"] or 0)
    path = _find_file(match, context)
    found = yield from call_on_path(path, context, lambda path: _make_read(path, first, last))
    check_result(f"read `{context.display_path(found.path)}`", found.result)
    return answers.format_file(found.path, found.result, context)


_OUTLINES = {
    r"\.(?:md|markdown)$": r"^#{1,6} ",
    r"(?:^|/)(?:gnu)?makefile$": r"^[A-Za-z][\w./-]*\s*:(?:[^=]|$)",
    r"\.(?:toml|ini|cfg|conf)$": r"^\[",
    r"": (
        r"^\s*(?:(?:export|default|pub|public|private|protected|internal|static|final|abstract|async|override|local)\s+)*"
        r"(?:def|class|func|function|fn|struct|enum|trait|interface|type|impl|module|mod|namespace|protocol|object|sub)\s+\S"
    ),
}
"""The lines of an outline, by the name of the file."""


def plan_outline(match: RequestMatch, context: PlanContext) -> Plan:
    path = _find_file(match, context)
    pattern = next(lines for names, lines in _OUTLINES.items() if re.search(names, path, re.IGNORECASE))
    found = yield from call_on_path(path, context, lambda path: _make_grep(pattern, path, "content"))
    check_result(f"read `{context.display_path(found.path)}`", found.result)
    return answers.format_outline(found.path, found.result, context)


# --- changes ---


def plan_replace(match: RequestMatch, context: PlanContext) -> Plan:
    """Replace a text in a file, or in all files of a folder. The search shows the lines, which the edit requires."""
    context.require("Grep", "EditTool")
    memory, term, new = context.memory, match["term"], match["new"]
    if match.get_typed("term").lower() == "it":
        if not memory.term:
            raise PlanFailed("Nothing was searched for yet. Name the text to replace, in quotes.")
        term = memory.term
    if term == new:
        raise PlanFailed("Both texts are the same, so there is nothing to replace.")
    place = match["path"]
    if not place and not match["everywhere"]:
        # Without a place, only the file last seen or the place of a search for this text is certain.
        if not memory.place or (not memory.file and memory.term != term):
            raise PlanFailed(f"Where? Say \"Replace '{term}' with '{new}' in FILE\", or add \"everywhere\".")
        place = memory.place
    fields = {"term": term, "path": place}
    searched = RequestMatch(fields)
    found = yield from _search(escape_literal(term), searched, context, "content", _MAX_EDITED_LINES)
    paths = list(dict.fromkeys(hit.path for hit in results.parse_hits(found.result.text)))
    if not paths:
        return f"`{term}` does not occur{answers.format_place(found.path, context)}, so nothing was changed."
    if len(paths) > MAX_FILES or results.parse_omitted(found.result.text):
        raise PlanFailed(f"`{term}` is in too many places, so nothing was changed. Name a folder or a file.")
    changed: dict[str, int] = {}
    faults: dict[str, str] = {}
    for start in range(0, len(paths), _EDITS_PER_REPLY):
        batch = paths[start : start + _EDITS_PER_REPLY]
        edit = {"old_string": term, "new_string": new, "replace_all": True}
        edited = yield tuple(PlannedCall("EditTool", {"file_path": path, **edit}) for path in batch)
        for path, result in zip(batch, edited, strict=True):
            if result.is_error:
                faults[path] = results.extract_reason(result)
            else:
                count = re.search(r"(\d+) replacements?", result.text)
                changed[path] = int(count[1]) if count else 1
    return answers.report_edits(term, new, changed, faults, context)


def plan_create(match: RequestMatch, context: PlanContext) -> Plan:
    """Write a new file. One that has text is never overwritten."""
    context.require("Read", "WriteFile")
    path = context.resolve_path(match["path"])
    name = context.display_path(path)
    (before,) = yield (_make_read(path),)
    if not before.is_error and not results.is_empty(before):
        raise PlanFailed(
            f"`{name}` already exists, so it was left alone. Say \"Overwrite {name} with '…'\" to replace it."
        )
    if before.is_error and not results.is_missing(before):
        check_result(f"create `{name}`", before)
    content = _end_line(match["content"])
    if not content and not before.is_error:
        return f"`{name}` already exists and is empty."
    (written,) = yield (PlannedCall("WriteFile", {"file_path": path, "content": content}),)
    check_result(f"write `{name}`", written)
    lines = pluralize(content.count("\n"), "line")
    return f"Created `{name}` ({lines})." if content else f"Created the empty file `{name}`."


def _end_line(text: str) -> str:
    return text if not text or text.endswith("\n") else text + "\n"


def plan_overwrite(match: RequestMatch, context: PlanContext) -> Plan:
    context.require("Read", "WriteFile")
    path = context.resolve_path(match["path"])
    name = context.display_path(path)
    (before,) = yield (_make_read(path),)
    check_result(f"read `{name}`", before)
    content = _end_line(match["content"])
    (written,) = yield (PlannedCall("WriteFile", {"file_path": path, "content": content}),)
    check_result(f"write `{name}`", written)
    return f"Overwrote `{name}` ({pluralize(content.count(chr(10)), 'line')})."


def plan_append(match: RequestMatch, context: PlanContext) -> Plan:
    """Add lines after the last one of a file, or create the file."""
    context.require("Read", "WriteFile", "EditTool")
    path = context.resolve_path(match["path"])
    name = context.display_path(path)
    content = _end_line(match["content"])
    (before,) = yield (_make_read(path),)
    if results.is_missing(before) or results.is_empty(before):
        (written,) = yield (PlannedCall("WriteFile", {"file_path": path, "content": content}),)
    else:
        page = results.parse_page(check_result(f"append to `{name}`", before).text)
        tail = _find_unique_tail([line for _, line in page.lines])
        if page.last < page.total:
            (before,) = yield (_make_read(path, max(1, page.total - 50), page.total),)
            page = results.parse_page(check_result(f"append to `{name}`", before).text)
            tail = page.text  # what is unique in the lines that were read may not be in the whole file
        if not tail or page.last < page.total:
            raise PlanFailed(f"I could not find the end of `{name}`, so nothing was changed.")
        edit = {"old_string": tail, "new_string": f"{tail}\n{content.removesuffix(chr(10))}"}
        (written,) = yield (PlannedCall("EditTool", {"file_path": path, **edit}),)
    check_result(f"append to `{name}`", written)
    return f"Appended {pluralize(content.count(chr(10)), 'line')} to `{name}`."


def _find_unique_tail(lines: list[str]) -> str:
    """Return the fewest last lines that occur only once in the text."""
    text = "\n".join(lines)
    for size in range(1, len(lines) + 1):
        tail = "\n".join(lines[-size:])
        if tail.strip() and len(re.findall(f"(?={re.escape(tail)})", text)) == 1:
            return tail
    return ""


def plan_delete(match: RequestMatch, context: PlanContext) -> Plan:
    path = context.resolve_path(match["path"])
    name = context.display_path(path)
    (result,) = yield (PlannedCall("Delete", {"paths": [path], "reason": "asked for by the user"}),)
    check_result(f"delete `{name}`", result)
    return f"There is no `{name}`." if result.text.startswith("Already absent") else f"Deleted `{name}`."


# --- commands ---


def plan_command(match: RequestMatch, context: PlanContext) -> Plan:
    command = (match["command"] or match.get_typed("typed")).strip()
    return (yield from _run(command))


def _run(command: str) -> Plan:
    (result,) = yield (PlannedCall("ExecuteCommand", {"command": command}),)
    return answers.report_command(command, result)


def plan_git_status(match: RequestMatch, context: PlanContext) -> Plan:
    return (yield from _run("git status --short --branch"))


def plan_git_diff(match: RequestMatch, context: PlanContext) -> Plan:
    return (yield from _run(f"git diff HEAD{_quote_git_path(match)}"))


def plan_git_log(match: RequestMatch, context: PlanContext) -> Plan:
    return (yield from _run(f"git log -n {match['number'] or 10} --oneline{_quote_git_path(match)}"))


def plan_git_branch(match: RequestMatch, context: PlanContext) -> Plan:
    return (yield from _run("git branch --show-current"))


def plan_git_author(match: RequestMatch, context: PlanContext) -> Plan:
    return (yield from _run(f"git log -n 1 --date=short --format='%h %ad %an: %s'{_quote_git_path(match)}"))


def _quote_git_path(match: RequestMatch) -> str:
    return f" -- {quote_path(match['path'])}" if match["path"] else ""


def plan_tests(match: RequestMatch, context: PlanContext) -> Plan:
    (listing,) = yield (PlannedCall("LS", {"path": context.cwd}),)
    names = set(results.parse_entries(check_result("look for the tests", listing).text))
    path = match["path"]
    if path.endswith(".py"):
        command, source = f"{_find_pytest(names)} {quote_path(path)}", ""
    elif path:
        raise PlanFailed(f"I do not know how to run only the tests in `{path}`. Name the command, in backticks.")
    else:
        texts = yield from _read_manifests(names, context)
        command, source = find_test_command(names, texts)
    if not command:
        raise PlanFailed("I found no way to run tests here. Name the command, for example: Run `python3 -m unittest`")
    (result,) = yield (PlannedCall("ExecuteCommand", {"command": command}),)
    return answers.report_tests(command, source, result)


def _read_manifests(names: set[str], context: PlanContext) -> Generator[Calls, Results, dict[str, str]]:
    wanted = [name for name in ("Makefile", "justfile", "package.json") if name in names]
    read = (yield tuple(_make_read(context.resolve_path(name)) for name in wanted)) if wanted else ()
    return {name: results.parse_page(result.text).text for name, result in zip(wanted, read, strict=True)}


_TEST_COMMANDS = {
    "Cargo.toml": "cargo test",
    "go.mod": "go test ./...",
    "deno.json": "deno test",
    "mix.exs": "mix test",
    "pom.xml": "mvn -q test",
    "gradlew": "./gradlew test",
    "Rakefile": "rake test",
    "Package.swift": "swift test",
}


def find_test_command(names: set[str], texts: Mapping[str, str]) -> tuple[str, str]:
    """Return how the tests of a project with these files are run, and the file that says so; "" if none does.

    What the project defines itself comes first.
    """
    target = re.search(r"^(test|tests|check)\s*:(?!=)", texts.get("Makefile", ""), re.MULTILINE)
    if target:
        return f"make {target[1]}", "Makefile"
    if re.search(r"^test\b.*:", texts.get("justfile", ""), re.MULTILINE):
        return "just test", "justfile"
    if _has_test_script(texts.get("package.json", "")):
        locks = {"pnpm-lock.yaml": "pnpm test", "yarn.lock": "yarn test", "bun.lockb": "bun test"}
        return next((command for lock, command in locks.items() if lock in names), "npm test"), "package.json"
    python = {"pyproject.toml", "pytest.ini", "setup.cfg", "setup.py", "tox.ini", "conftest.py", "tests/"}
    if names & python:
        return _find_pytest(names), min(names & python)
    return next(((command, name) for name, command in _TEST_COMMANDS.items() if name in names), ("", ""))


def _find_pytest(names: set[str]) -> str:
    """Return how pytest is run: with the project's own virtual environment, if it has one."""
    program = next((f"{folder}bin/python" for folder in (".venv/", "venv/") if folder in names), "python3")
    return f"{program} -m pytest -q"


def _has_test_script(text: str) -> bool:
    try:
        manifest: Any = json.loads(text or "{}")
        return "no test specified" not in manifest["scripts"]["test"]
    except (ValueError, RecursionError, LookupError, TypeError):
        return False


# --- the project ---


def plan_description(match: RequestMatch, context: PlanContext) -> Plan:
    (listing,) = yield (PlannedCall("LS", {"path": context.cwd}),)
    names = results.parse_entries(check_result("look at this folder", listing).text)
    readme = next((name for name in names if re.match(r"readme(?:\.\w+)?$", name, re.IGNORECASE)), "")
    page: results.ReadPage | None = None
    if readme:
        (read,) = yield (_make_read(context.resolve_path(readme)),)
        page = None if read.is_error else results.parse_page(read.text)
    texts = yield from _read_manifests(set(names), context)
    command, _ = find_test_command(set(names), texts)
    return answers.describe_project(context.cwd.rsplit("/", 1)[-1], listing, page, command)


def plan_init(match: RequestMatch, context: PlanContext) -> Plan:
    """Write ODIN.md from the project's files."""
    (result,) = yield (PlannedCall("InitTool", {}),)
    return check_result("write ODIN.md", result).text


def plan_undo(match: RequestMatch, context: PlanContext) -> Plan:
    yield from ()
    return "`/undo` undoes the last prompt and its file changes. Outside a session, use `odin undo`."
