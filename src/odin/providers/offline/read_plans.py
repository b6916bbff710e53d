"""Plans that list, find, read, outline, summarize and search files.

A path that does not exist is looked up by name. Outlines are made with patterns, not with a parser.
"""

import re
from collections.abc import Callable, Generator, Iterable
from typing import Any

from msgspec import Struct

from odin.core.format import clip, count_of
from odin.core.message import ToolResult
from odin.core.text import join_some
from odin.providers.offline import results
from odin.providers.offline.jobs import make_offline_summary
from odin.providers.offline.language import is_file_like, is_path_like
from odin.providers.offline.results import GrepHit
from odin.providers.offline.task import (
    Plan,
    PlanContext,
    PlannedCall,
    PlannerTask,
    extract_reason,
    format_code_block,
)

_MAX_OUTLINE_ENTRIES = 400


class OutlineEntry(Struct, frozen=True):
    line: int
    level: int
    title: str


_C_LIKE = (
    r"^(?P<indent>\s*)(?P<title>(?:(?:public|private|protected|internal|static|final|abstract|async|override|export|default|"
    r"sealed|partial|readonly|unsafe|virtual|inline|constexpr|extern|pub(?:\([^)]*\))?)\s+)*"
    r"(?:class|interface|enum|struct|trait|record|namespace|module|object|protocol|extension|impl|fn|func|function\*?|mod|union)\b[^{;=]*)"
)
_JS_ARROW = r"^(?P<indent>)(?P<title>(?:export\s+)?(?:const|let|var)\s+\w+\s*=\s*(?:async\s*)?(?:\([^)]*\)|\w+)\s*=>)"
_OUTLINE_PATTERNS: dict[str, tuple[str, ...]] = {
    "py pyi": (r"^(?P<indent>\s*)(?P<title>(?:async\s+def|def|class)\s+\w+[^:]*)",),
    "rb ex exs": (r"^(?P<indent>\s*)(?P<title>(?:class|module|def|defp|defmodule)\s+[^\s;]+(?:\([^)]*\))?)",),
    "go": (r"^(?P<indent>)(?P<title>(?:func|type)\s+[^{]+)",),
    "js mjs cjs jsx ts tsx vue svelte": (_C_LIKE, _JS_ARROW),
    "rs java kt kts cs swift scala php dart": (
        _C_LIKE,
        r"^(?P<indent>\s+)(?P<title>(?:public|private|protected|internal)\s+[\w<>\[\], ]+\([^)]*\))",
    ),
    "c h cpp hpp cc hh": (_C_LIKE, r"^(?P<indent>)(?P<title>[A-Za-z_][\w\s*&:<>]*\([^;]*\))\s*\{?\s*$"),
    "sh bash zsh": (
        r"^(?P<indent>\s*)(?P<title>(?:function\s+)?[\w-]+\s*\(\))",
        r"^(?P<indent>\s*)(?P<title>function\s+[\w-]+)",
    ),
    "md rst adoc": (r"^(?P<hashes>#{1,6})\s+(?P<title>.+?)\s*#*$",),
    "toml ini cfg conf": (r"^(?P<indent>)(?P<title>\[\[?[^\]]+\]\]?)",),
    "yaml yml": (r"^(?P<indent>)(?P<title>[\w.-]+):",),
    "json": (r"^(?P<indent>(?: {2}|\t| {4}))\"(?P<title>[^\"]+)\"\s*:",),
    "sql": (r"^(?P<indent>\s*)(?P<title>create\s+(?:or\s+replace\s+)?\w+\s+[^\s(]+)",),
    "lua pl pm": (r"^(?P<indent>\s*)(?P<title>(?:local\s+)?(?:function|sub|package)\s+[^\s({]+)",),
    "html htm": (r"^(?P<indent>)\s*<h(?P<depth>[1-6])[^>]*>(?P<title>[^<]+)",),
    "make": (r"^(?P<indent>)(?P<title>[A-Za-z][\w./-]*)\s*:(?!=)",),
    "css scss": (r"^(?P<indent>)(?P<title>[^\s@{}][^{}]*?)\s*\{",),
}


def outline_of(name: str, lines: Iterable[tuple[int, str]]) -> list[OutlineEntry]:
    """Return the outline of a file by its type. An unknown type is treated as Markdown."""
    base = name.rsplit("/", 1)[-1].lower()
    kind = "make" if base in ("makefile", "gnumakefile") else base.rsplit(".", 1)[-1]
    patterns = next(
        (found for kinds, found in _OUTLINE_PATTERNS.items() if kind in kinds.split()), _OUTLINE_PATTERNS["md rst adoc"]
    )
    compiled = [re.compile(pattern, re.IGNORECASE if kind == "sql" else 0) for pattern in patterns]
    fenced = kind == "md" or patterns is _OUTLINE_PATTERNS["md rst adoc"]
    marks: list[OutlineEntry] = []
    inside_fence = False
    for number, text in lines:
        if fenced and text.lstrip().startswith(("```", "~~~")):
            inside_fence = not inside_fence
        if inside_fence or len(marks) >= _MAX_OUTLINE_ENTRIES:
            continue
        found = next((match for pattern in compiled if (match := pattern.match(text[:400]))), None)
        if found and not _is_noise(found["title"]):
            marks.append(OutlineEntry(number, _level_of(found, kind), _tidy_title(found["title"])))
    return marks


def _is_noise(title: str) -> bool:
    return bool(re.match(r"(?:if|for|while|switch|return|else|catch)\b", title.strip()))


def _level_of(found: "re.Match[str]", kind: str) -> int:
    groups = found.groupdict()
    if groups.get("hashes"):
        return len(groups["hashes"]) - 1
    if groups.get("depth"):
        return int(groups["depth"]) - 1
    if kind == "json":
        return 0
    indent = (groups.get("indent") or "").expandtabs(4)
    return min(len(indent) // (2 if kind in ("rb", "ex", "exs", "js", "ts", "tsx", "jsx") else 4), 6)


def _tidy_title(title: str) -> str:
    short = re.sub(r"\s+", " ", title).strip().rstrip("{").rstrip()
    return short if len(short) <= 110 else f"{short[:109]}…"


def extract_first_paragraph(name: str, text: str) -> str:
    """Return a file's own description: a docstring, a leading comment, or the first paragraph."""
    ending = name.rsplit(".", 1)[-1].lower()
    if ending in ("md", "txt", "rst", "adoc", "org") or "." not in name.rsplit("/", 1)[-1]:
        return _extract_prose(text)
    if ending in ("json", "toml", "yaml", "yml", "ini", "cfg", "csv", "html", "htm"):
        return ""
    docstring = re.match(r"\s*(?:#.*\n\s*)*[rRuU]?(\"\"\"|''')(.*?)\1", text[:8000], re.DOTALL)
    if docstring:
        return _shorten_paragraph(docstring[2])
    block = re.match(r"\s*/\*+(.*?)\*/", text[:8000], re.DOTALL)
    if block:
        return _shorten_paragraph(re.sub(r"(?m)^\s*\* ?", "", block[1]))
    comment = re.match(r"(?:#!.*\n)?\s*((?:(?://|#|--|;)[^\n]*\n)+)", text[:8000])
    return _shorten_paragraph(re.sub(r"(?m)^\s*(?:///?!?|#+|--|;+) ?", "", comment[1])) if comment else ""


def _extract_prose(text: str) -> str:
    for block in re.split(r"\n\s*\n", text[:20_000]):
        lines = [line.strip() for line in block.strip().splitlines()]
        lines = [line for line in lines if line and not re.match(r"#|[=\-~^*]{3,}$|!\[|\[!\[|<|```|\||>", line)]
        if lines and re.search(r"[A-Za-z]{3}", lines[0]):
            return _shorten_paragraph(" ".join(lines))
    return ""


def _shorten_paragraph(text: str) -> str:
    first = re.split(r"\n\s*\n", text.strip())[0]
    flat = re.sub(r"\s+", " ", first).strip()
    return flat if len(flat) <= 600 else f"{flat[:599].rsplit(' ', 1)[0]}…"


_MAX_CANDIDATES = 8


class PathResult(Struct, frozen=True):
    """Where the path led. `trouble` is the answer if it led nowhere or to several files."""

    path: str
    result: ToolResult
    problem: str = ""


def call_on_path(
    path: str, context: PlanContext, make_call: Callable[[str], PlannedCall]
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], PathResult]:
    """Make a call on a path. If it does not exist but exactly one file has that name, use that file."""
    full = context.resolve_path(path)
    (result,) = yield (make_call(full),)
    inside = context.display_path(full) != full or not path.startswith(("/", "~"))
    if not results.is_missing(result) or not inside or not context.has_tools("Glob"):
        return PathResult(full, result)
    found = yield from find_by_name(path, context)
    if len(found) == 1:
        (result,) = yield (make_call(found[0]),)
        return PathResult(found[0], result)
    if not found:
        return PathResult(full, result, f"There is no `{path}` here. {_extract_suggestion(result.text)}".rstrip())
    shown = join_some((f"`{context.display_path(item)}`" for item in found), _MAX_CANDIDATES)
    return PathResult(full, result, f"There are {len(found)} files called `{path}`: {shown}. Which one do you mean?")


def find_by_name(
    path: str, context: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[str]]:
    """Return the files with that name below the working directory."""
    name = path.strip("/").removeprefix("./")
    globs = [f"**/{name}"]
    if "." not in name.rsplit("/", 1)[-1]:
        globs.append(f"**/{name}.*")
        if is_path_like(name.lower()):
            globs.append(f"**/{name.upper()}*")
    answers = yield tuple(make_glob_call(glob, context) for glob in globs)
    found = [item for answer in answers if not answer.is_error for item in results.parse_paths(answer.text)]
    return list(dict.fromkeys(found))


def make_glob_call(pattern: str, context: PlanContext, folder: str = "") -> PlannedCall:
    args = {"pattern": pattern}
    if folder or context.cwd != ".":
        args["path"] = context.resolve_path(folder)
    return PlannedCall("Glob", args)


def make_read_call(path: str, first: int = 0, last: int = 0) -> PlannedCall:
    if not first:
        return PlannedCall("Read", {"file_path": path})
    if not last:
        return PlannedCall("Read", {"file_path": path, "offset": first})
    return PlannedCall("Read", {"file_path": path, "offset": first, "limit": max(1, last - first + 1)})


def report_failure(what: str, result: ToolResult) -> str:
    """Return the report of a failed call."""
    return f"I could not {what}: {extract_reason(result.text)}"


def _extract_suggestion(text: str) -> str:
    at = text.find("Did you mean")
    return text[at:].strip() if at >= 0 else ""


LINES_SHOWN = 200
_MAX_EXCERPT_CHARS = 16_000
_PATHS_SHOWN = 60
_MAX_PAGES = 20
_MAX_DEPTH = 3
_MAX_FOLDERS = 24


class WholeFile(PathResult, frozen=True):
    """A file with all pages that were read."""

    page: results.ReadPage = results.ReadPage((), 0)

    @property
    def is_complete(self) -> bool:
        return len(self.page.lines) >= self.page.total


def plan_list(task: PlannerTask, context: PlanContext) -> Plan:
    full = context.resolve_path(task.path)
    (result,) = yield (PlannedCall("LS", {"path": full}),)
    if result.is_error:
        if context.has_tools("Read") and ("is a file" in result.text or "not a directory" in result.text):
            return (yield from plan_read(PlannerTask("read", path=task.path), context))
        return report_failure(f"list `{context.display_path(full)}`", result)
    if task.variant == "tree":
        lines = yield from _list_tree(full, results.parse_entries(result.text), 0, [_MAX_FOLDERS], context)
    else:
        lines = results.parse_entries(result.text)
    if not lines:
        return f"{_folder_name_of(full, context)} is empty."
    folders = sum(line.endswith("/") for line in lines)
    amounts = [(folders, "folder"), (len(lines) - folders, "file")]
    what = " and ".join(count_of(number, noun) for number, noun in amounts if number)
    return f"{_folder_name_of(full, context)} has {what}:\n\n" + "\n".join(_limit_lines(lines, LINES_SHOWN))


def _folder_name_of(full: str, context: PlanContext) -> str:
    return "This folder" if full == context.cwd else f"`{context.display_path(full)}`"


def _limit_lines(lines: list[str], limit: int, total: int = 0) -> list[str]:
    shown = lines[:limit]
    rest = max(total, len(lines)) - len(shown)
    return [*shown, f"and {rest} more"] if rest else shown


def _list_tree(
    folder: str, names: list[str], depth: int, left: list[int], context: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[str]]:
    """Return indented names, with folders expanded to a limited depth and number; one level is listed at a time."""
    hidden = (".git/", "node_modules/", "__pycache__/", ".venv/", "venv/", "target/", "dist/", "build/")
    inner = [name for name in names if name.endswith("/") and name not in hidden and not name.startswith(".")]
    opened = inner[: left[0]] if depth + 1 < _MAX_DEPTH else []
    left[0] -= len(opened)
    listed: dict[str, list[str]] = {}
    if opened:
        answers = yield tuple(
            PlannedCall("LS", {"path": f"{folder.rstrip('/')}/{name.rstrip('/')}"}) for name in opened
        )
        for name, answer in zip(opened, answers, strict=True):
            listed[name] = [] if answer.is_error else results.parse_entries(answer.text)
    out: list[str] = []
    for name in names:
        out.append("  " * depth + name)
        if listed.get(name):
            out += yield from _list_tree(
                f"{folder.rstrip('/')}/{name.rstrip('/')}", listed[name], depth + 1, left, context
            )
    return out


def plan_find(task: PlannerTask, context: PlanContext) -> Plan:
    answers = yield tuple(make_glob_call(glob, context, task.path) for glob in task.globs)
    errors = [answer for answer in answers if answer.is_error]
    found = sorted({path for answer in answers if not answer.is_error for path in results.parse_paths(answer.text)})
    if errors and not found:
        return report_failure("find files", errors[0])
    where = f" in `{context.display_path(context.resolve_path(task.path))}`" if task.path else ""
    total = max([len(found), *(results.parse_total_files(answer.text) for answer in answers)])
    if task.term:
        head = f"{count_of(total, f'{task.term} file')}{where}"
    else:
        kinds = ", ".join(f"`{glob.removeprefix('**/')}`" for glob in task.globs)
        head = f"{count_of(total, 'file matches', 'files match')} {kinds}{where}"
    if not found:
        return f"{head.replace('0', 'No', 1)}."
    if task.variant == "count":
        return f"{head}."
    return f"{head}:\n\n" + "\n".join(
        _limit_lines([f"- {context.display_path(path)}" for path in found], _PATHS_SHOWN, total)
    )


def plan_read(task: PlannerTask, context: PlanContext) -> Plan:
    if task.first < 0:
        return (yield from _read_tail(task, context))
    reached = yield from call_on_path(task.path, context, lambda path: make_read_call(path, task.first, task.last))
    if reached.problem:
        return reached.problem
    if results.is_folder(reached.result):
        return (yield from plan_list(PlannerTask("list", path=reached.path), context))
    return _format_file(reached, context)


def _format_file(reached: PathResult, context: PlanContext) -> str:
    name = context.display_path(reached.path)
    if reached.result.is_error:
        return report_failure(f"read `{name}`", reached.result)
    if results.is_empty(reached.result):
        return f"`{name}` is empty."
    return format_excerpt(name, results.parse_page(reached.result.text))


def format_excerpt(name: str, page: results.ReadPage, limit: int = LINES_SHOWN) -> str:
    """Return some lines of a file as an answer, noting what is omitted."""
    shown: list[str] = []
    size = 0
    width = len(str(page.last))
    for number, text in page.lines[:limit]:
        size += len(text)
        if shown and size > _MAX_EXCERPT_CHARS:
            break
        shown.append(f"{number:>{width}}  {text}")
    if not shown:
        return f"`{name}` has no such lines."
    first, last = page.lines[0][0], page.lines[len(shown) - 1][0]
    span = count_of(page.total, "line") if last - first + 1 == page.total else f"lines {first}-{last} of {page.total}"
    rest = (
        ""
        if last >= page.total
        else f'\n\nSay "show lines {last + 1}-{min(last + limit, page.total)}" for what follows.'
    )
    return f"`{name}`, {span}:\n\n{format_code_block(chr(10).join(shown), language_of(name))}{rest}"


def language_of(name: str) -> str:
    ending = name.rsplit(".", 1)[-1] if "." in name.rsplit("/", 1)[-1] else ""
    return ending if ending.isalnum() else ""


def _read_tail(task: PlannerTask, context: PlanContext) -> Plan:
    whole = yield from read_whole_file(task.path, context)
    if whole.problem or whole.result.is_error or results.is_empty(whole.result):
        return whole.problem or _format_file(whole, context)
    return format_excerpt(
        context.display_path(whole.path), results.ReadPage(whole.page.lines[task.first :], whole.page.total)
    )


def read_whole_file(
    path: str, context: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], WholeFile]:
    """Read a file to its end, page by page, within limits."""
    reached = yield from call_on_path(path, context, make_read_call)
    page = results.parse_page(reached.result.text) if not reached.result.is_error else results.ReadPage((), 0)
    for _ in range(_MAX_PAGES):
        if not page.lines or page.last >= page.total:
            break
        (more,) = yield (make_read_call(reached.path, page.last + 1),)
        following = results.parse_page(more.text) if not more.is_error else results.ReadPage((), 0)
        if not following.lines or following.lines[0][0] != page.last + 1:
            break
        page = results.ReadPage((*page.lines, *following.lines), page.total)
    return WholeFile(reached.path, reached.result, reached.problem, page)


def plan_outline(task: PlannerTask, context: PlanContext) -> Plan:
    whole = yield from read_whole_file(task.path, context)
    if whole.problem or whole.result.is_error or results.is_empty(whole.result):
        return whole.problem or _format_file(whole, context)
    name = context.display_path(whole.path)
    marks = outline_of(name, whole.page.lines)
    if not marks:
        return f"I see no classes, functions or headings in `{name}` ({count_of(whole.page.total, 'line')})."
    lines = [f"{'  ' * mark.level}- {mark.title} (line {mark.line})" for mark in marks]
    return f"`{name}`, {count_of(whole.page.total, 'line')}:\n\n" + "\n".join(_limit_lines(lines, LINES_SHOWN))


def plan_summary(task: PlannerTask, context: PlanContext) -> Plan:
    whole = yield from read_whole_file(task.path, context)
    if results.is_folder(whole.result):
        return (yield from plan_list(PlannerTask("list", path=whole.path), context))
    if whole.problem or whole.result.is_error or results.is_empty(whole.result):
        return whole.problem or _format_file(whole, context)
    name = context.display_path(whole.path)
    parts = [f"`{name}` has {count_of(whole.page.total, 'line')}."]
    opening = extract_first_paragraph(name, whole.page.text)
    if opening:
        parts.append(opening)
    marks = [mark for mark in outline_of(name, whole.page.lines) if mark.level < 2]
    if marks:
        lines = [f"{'  ' * mark.level}- {mark.title} (line {mark.line})" for mark in marks]
        parts.append("It contains:\n\n" + "\n".join(_limit_lines(lines, 40)))
    elif not opening:
        parts.append(make_offline_summary(whole.page.text, 600))
    parts.append("This is read off the text, not understood: a summary in other words needs a model.")
    return "\n\n".join(part for part in parts if part)


MAX_HITS = 250
"""Maximum lines of one search."""
_FILES_SHOWN = 25
_HITS_SHOWN = 12
_MAX_LINE_WIDTH = 160
_DEFINITION_PATTERN = (
    r"\b(?:def|class|func|function|fn|struct|enum|trait|interface|type|const|let|var|val|module|mod|macro_rules!|namespace|"
    r"protocol|object|sub|proc|#define)\s+(?:\([^)]*\)\s*)?{0}\b|^\s*(?:export\s+|pub\s+|static\s+|final\s+)*{0}\s*(?::[^=]+)?=[^=]"
)

SearchSteps = Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], PathResult]


def escape_literal(term: str) -> str:
    """Return a pattern that matches exactly this text, for ripgrep and Python."""
    return "".join(f"\\{char}" if char in "\\.+*?()|[]{}^$" else char for char in term)


def match_whole_word(term: str) -> str:
    before = r"\b" if term[:1].isalnum() or term[:1] == "_" else ""
    after = r"\b" if term[-1:].isalnum() or term[-1:] == "_" else ""
    return f"{before}{escape_literal(term)}{after}"


def pattern_of(task: PlannerTask) -> str:
    variant = task.variant.removesuffix("-i").strip()
    if variant == "regex":
        return task.term
    if variant == "definition":
        return _DEFINITION_PATTERN.format(escape_literal(task.term))
    return match_whole_word(task.term) if variant == "word" else escape_literal(task.term)


def make_grep_call(
    pattern: str, path: str, task: PlannerTask, mode: str = "content", limit: int = MAX_HITS
) -> PlannedCall:
    args: dict[str, Any] = {"pattern": pattern, "output_mode": mode, "head_limit": limit}
    if path != ".":
        args["path"] = path
    if mode == "content":
        args["-n"] = True
    if task.variant.endswith("-i"):
        args["-i"] = True
    if task.globs:
        names = [glob.removeprefix("**/") for glob in task.globs]
        args["glob"] = names[0] if len(names) == 1 else "{" + ",".join(names) + "}"
    if "\n" in task.term:
        args["multiline"] = True
    return PlannedCall("Grep", args)


def plan_text_search(task: PlannerTask, context: PlanContext) -> Plan:
    variant = task.variant.removesuffix("-i").strip()
    mode = "count" if variant == "count" else "content"
    reached = yield from _run_grep(pattern_of(task), task, context, mode)
    if reached.problem and task.whole_term and not is_path_like(task.path):
        task = PlannerTask("search", task.whole_term, globs=task.globs, variant=task.variant)
        reached = yield from _run_grep(pattern_of(task), task, context, mode)
    if reached.problem:
        return reached.problem
    if reached.result.is_error:
        return report_failure(f"search for `{task.term}`", reached.result)
    remark = ""
    if not _has_matches(reached, mode):
        remark, reached = yield from _search_wider(task, context, mode, reached)
    if not _has_matches(reached, mode):
        return f"No match for `{task.term}`{_describe_place(task, reached.path, context)}."
    if mode == "count":
        return remark + _format_counts(task, reached, context)
    return remark + (yield from _list_matches(task, context, reached))


def _run_grep(pattern: str, task: PlannerTask, context: PlanContext, mode: str) -> SearchSteps:
    return (yield from call_on_path(task.path, context, lambda path: make_grep_call(pattern, path, task, mode)))


def _search_wider(
    task: PlannerTask, context: PlanContext, mode: str, reached: PathResult
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], tuple[str, PathResult]]:
    """Search again if nothing was found: any mention instead of a definition, any case."""
    if task.variant == "definition":
        again = yield from _run_grep(match_whole_word(task.term), task, context, mode)
        if _has_matches(again, mode):
            return f"I found no definition of `{task.term}`, but it is mentioned.\n\n", again
    if task.variant.endswith("-i") or task.variant == "regex" or task.term.lower() == task.term.upper():
        return "", reached
    relaxed = PlannerTask("search", task.term, path=task.path, globs=task.globs, variant="-i")
    again = yield from _run_grep(escape_literal(task.term), relaxed, context, mode)
    if _has_matches(again, mode):
        return f"`{task.term}` does not occur as written, but it does in other upper and lower case.\n\n", again
    return "", reached


def _has_matches(reached: PathResult, mode: str) -> bool:
    if reached.result.is_error:
        return False
    return bool(
        results.parse_counts(reached.result.text, reached.path)
        if mode == "count"
        else results.parse_hits(reached.result.text, reached.path)
    )


def _describe_place(task: PlannerTask, path: str, context: PlanContext) -> str:
    kinds = f" in {', '.join(glob.removeprefix('**/') for glob in task.globs)} files" if task.globs else ""
    return kinds + ("" if path == context.cwd else f" in `{context.display_path(path)}`")


def _format_counts(task: PlannerTask, reached: PathResult, context: PlanContext) -> str:
    counts = results.parse_counts(reached.result.text, reached.path)
    total = count_of(sum(counts.values()), "line")
    place = _describe_place(task, reached.path, context)
    head = f"`{task.term}` is on {total} in {count_of(len(counts), 'file')}{place}"
    ranked = results.sort_by_count(counts)
    lines = [f"- {context.display_path(path)}: {counts[path]}" for path in ranked[:_FILES_SHOWN]]
    if len(ranked) > _FILES_SHOWN:
        lines.append(f"- and {count_of(len(ranked) - _FILES_SHOWN, 'more file', 'more files')}")
    return f"{head}:\n\n" + "\n".join(lines)


def _list_matches(
    task: PlannerTask, context: PlanContext, reached: PathResult
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], str]:
    hits = results.parse_hits(reached.result.text, reached.path)
    files = len({hit.path for hit in hits})
    count, some = len(hits), ""
    if count >= MAX_HITS - 1 and context.has_tools("Grep"):
        act = make_grep_call(pattern_of(task), reached.path, task, "count", 10_000)
        (total,) = yield (act,)
        counts = results.parse_counts(total.text, reached.path)
        if not total.is_error and sum(counts.values()) > count:
            some = f" These are the first {count}."
            count, files = sum(counts.values()), len(counts)
    what = (
        count_of(count, "definition of", "definitions of")
        if task.variant == "definition"
        else count_of(count, "match for", "matches for")
    )
    head = f"{what} `{task.term}` in {count_of(files, 'file')}"
    if is_file_like(reached.path) and files == 1:
        head = head.removesuffix(" in 1 file")
    names_only = task.variant.startswith("files")
    return (
        f"{head}{_describe_place(task, reached.path, context)}.{some}\n\n{_format_by_file(hits, context, names_only)}"
    )


def _format_by_file(hits: list[GrepHit], context: PlanContext, names_only: bool) -> str:
    grouped: dict[str, list[GrepHit]] = {}
    for hit in hits:
        grouped.setdefault(hit.path, []).append(hit)
    blocks: list[str] = []
    for path, found in list(grouped.items())[:_FILES_SHOWN]:
        name = f"{context.display_path(path)} ({len(found)})"
        if names_only:
            blocks.append(f"- {name}")
            continue
        lines = [f"  {hit.line}: {clip(hit.text.strip(), _MAX_LINE_WIDTH)}" for hit in found[:_HITS_SHOWN]]
        if len(found) > _HITS_SHOWN:
            lines.append(f"  and {count_of(len(found) - _HITS_SHOWN, 'more line', 'more lines')}")
        blocks.append("\n".join([name, *lines]))
    if len(grouped) > _FILES_SHOWN:
        blocks.append(f"and {count_of(len(grouped) - _FILES_SHOWN, 'more file', 'more files')}")
    return "\n".join(blocks)


def plan_line_count(task: PlannerTask, context: PlanContext) -> Plan:
    reached = yield from call_on_path(
        task.path, context, lambda path: make_grep_call("^", path, PlannerTask("search", "^"), "count")
    )
    if reached.problem or reached.result.is_error:
        return reached.problem or report_failure(f"count the lines of `{task.path}`", reached.result)
    counts = results.parse_counts(reached.result.text, reached.path)
    total = sum(counts.values())
    if len(counts) > 1:
        files = count_of(len(counts), "file")
        return f"`{context.display_path(reached.path)}` has {count_of(total, 'line')} in {files}."
    return f"`{context.display_path(reached.path)}` has {count_of(total, 'line')}."
