"""Plans that search the text of files."""

from collections.abc import Generator
from typing import Any

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.reach import PathResult, call_on_path, report_failure
from odin.providers.offline.results import GrepHit
from odin.providers.offline.task import Plan, PlanContext, PlannedCall, PlannerTask
from odin.providers.offline.vocabulary import is_file_like, is_path_like
from odin.providers.offline.wording import format_count

MAX_HITS = 250
"""Lines asked of one search."""
_FILES_SHOWN = 25
_HITS_SHOWN = 12
_MAX_LINE_WIDTH = 160
_DEFINITION_PATTERN = (
    r"\b(?:def|class|func|function|fn|struct|enum|trait|interface|type|const|let|var|val|module|mod|macro_rules!|namespace|"
    r"protocol|object|sub|proc|#define)\s+(?:\([^)]*\)\s*)?{0}\b|^\s*(?:export\s+|pub\s+|static\s+|final\s+)*{0}\s*(?::[^=]+)?=[^=]"
)

SearchSteps = Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], PathResult]


def escape_literal(term: str) -> str:
    """A pattern that matches exactly this text, in the dialect of ripgrep and of Python."""
    return "".join(f"\\{char}" if char in "\\.+*?()|[]{}^$" else char for char in term)


def match_whole_word(term: str) -> str:
    before = r"\b" if term[:1].isalnum() or term[:1] == "_" else ""
    after = r"\b" if term[-1:].isalnum() or term[-1:] == "_" else ""
    return f"{before}{escape_literal(term)}{after}"


def pattern_of(task: PlannerTask) -> str:
    how = task.variant.removesuffix("-i").strip()
    if how == "regex":
        return task.term
    if how == "definition":
        return _DEFINITION_PATTERN.format(escape_literal(task.term))
    return match_whole_word(task.term) if how == "word" else escape_literal(task.term)


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


def plan_text_search(task: PlannerTask, desk: PlanContext) -> Plan:
    how = task.variant.removesuffix("-i").strip()
    mode = "count" if how == "count" else "content"
    reached = yield from _run_grep(pattern_of(task), task, desk, mode)
    if reached.problem and task.whole_term and not is_path_like(task.path):
        task = PlannerTask("search", task.whole_term, globs=task.globs, variant=task.variant)
        reached = yield from _run_grep(pattern_of(task), task, desk, mode)
    if reached.problem:
        return reached.problem
    if reached.result.is_error:
        return report_failure(f"search for `{task.term}`", reached.result)
    remark = ""
    if not _has_matches(reached, mode):
        remark, reached = yield from _search_wider(task, desk, mode, reached)
    if not _has_matches(reached, mode):
        return f"No match for `{task.term}`{_describe_place(task, reached.path, desk)}."
    if mode == "count":
        return remark + _format_counts(task, reached, desk)
    return remark + (yield from _list_matches(task, desk, reached))


def _run_grep(pattern: str, task: PlannerTask, desk: PlanContext, mode: str) -> SearchSteps:
    return (yield from call_on_path(task.path, desk, lambda path: make_grep_call(pattern, path, task, mode)))


def _search_wider(
    task: PlannerTask, desk: PlanContext, mode: str, reached: PathResult
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], tuple[str, PathResult]]:
    """A second try when nothing was found: any mention instead of a definition, any case instead of this one."""
    if task.variant == "definition":
        again = yield from _run_grep(match_whole_word(task.term), task, desk, mode)
        if _has_matches(again, mode):
            return f"I found no definition of `{task.term}`, but it is mentioned.\n\n", again
    if task.variant.endswith("-i") or task.variant == "regex" or task.term.lower() == task.term.upper():
        return "", reached
    relaxed = PlannerTask("search", task.term, path=task.path, globs=task.globs, variant="-i")
    again = yield from _run_grep(escape_literal(task.term), relaxed, desk, mode)
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


def _describe_place(task: PlannerTask, path: str, desk: PlanContext) -> str:
    kinds = f" in {', '.join(glob.removeprefix('**/') for glob in task.globs)} files" if task.globs else ""
    return kinds + ("" if path == desk.cwd else f" in `{desk.display_path(path)}`")


def _format_counts(task: PlannerTask, reached: PathResult, desk: PlanContext) -> str:
    counts = results.parse_counts(reached.result.text, reached.path)
    total = format_count(sum(counts.values()), "line")
    head = (
        f"`{task.term}` is on {total} in {format_count(len(counts), 'file')}{_describe_place(task, reached.path, desk)}"
    )
    most = results.sort_by_count(counts)
    lines = [f"- {desk.display_path(path)}: {counts[path]}" for path in most[:_FILES_SHOWN]]
    if len(most) > _FILES_SHOWN:
        lines.append(f"- and {format_count(len(most) - _FILES_SHOWN, 'more file', 'more files')}")
    return f"{head}:\n\n" + "\n".join(lines)


def _list_matches(
    task: PlannerTask, desk: PlanContext, reached: PathResult
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], str]:
    hits = results.parse_hits(reached.result.text, reached.path)
    files = len({hit.path for hit in hits})
    count, some = len(hits), ""
    if count >= MAX_HITS - 1 and desk.has_tools("Grep"):
        act = make_grep_call(pattern_of(task), reached.path, task, "count", 10_000)
        (total,) = yield (act,)
        counts = results.parse_counts(total.text, reached.path)
        if not total.is_error and sum(counts.values()) > count:
            some = f" These are the first {count}."
            count, files = sum(counts.values()), len(counts)
    what = (
        format_count(count, "definition of", "definitions of")
        if task.variant == "definition"
        else _format_match_count(count)
    )
    head = f"{what} `{task.term}` in {format_count(files, 'file')}"
    if is_file_like(reached.path) and files == 1:
        head = head.removesuffix(" in 1 file")
    names_only = task.variant.startswith("files")
    return f"{head}{_describe_place(task, reached.path, desk)}.{some}\n\n{_format_by_file(hits, desk, names_only)}"


def _format_match_count(count: int) -> str:
    return format_count(count, "match for", "matches for")


def _format_by_file(hits: list[GrepHit], desk: PlanContext, names_only: bool) -> str:
    grouped: dict[str, list[GrepHit]] = {}
    for hit in hits:
        grouped.setdefault(hit.path, []).append(hit)
    blocks: list[str] = []
    for path, found in list(grouped.items())[:_FILES_SHOWN]:
        name = f"{desk.display_path(path)} ({len(found)})"
        if names_only:
            blocks.append(f"- {name}")
            continue
        lines = [f"  {hit.line}: {_cut_line(hit.text.strip())}" for hit in found[:_HITS_SHOWN]]
        if len(found) > _HITS_SHOWN:
            lines.append(f"  and {format_count(len(found) - _HITS_SHOWN, 'more line', 'more lines')}")
        blocks.append("\n".join([name, *lines]))
    if len(grouped) > _FILES_SHOWN:
        blocks.append(f"and {format_count(len(grouped) - _FILES_SHOWN, 'more file', 'more files')}")
    return "\n".join(blocks)


def _cut_line(text: str) -> str:
    return text if len(text) <= _MAX_LINE_WIDTH else f"{text[: _MAX_LINE_WIDTH - 1]}…"


def plan_line_count(task: PlannerTask, desk: PlanContext) -> Plan:
    reached = yield from call_on_path(
        task.path, desk, lambda path: make_grep_call("^", path, PlannerTask("search", "^"), "count")
    )
    if reached.problem or reached.result.is_error:
        return reached.problem or report_failure(f"count the lines of `{task.path}`", reached.result)
    counts = results.parse_counts(reached.result.text, reached.path)
    total = sum(counts.values())
    if len(counts) > 1:
        return f"`{desk.display_path(reached.path)}` has {format_count(total, 'line')} in {format_count(len(counts), 'file')}."
    return f"`{desk.display_path(reached.path)}` has {format_count(total, 'line')}."
