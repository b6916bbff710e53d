"""Plans that search the text of files."""

from collections.abc import Generator
from typing import Any

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.reach import Reached, failed, reach
from odin.providers.offline.results import Hit
from odin.providers.offline.task import Act, Desk, Plan, Task
from odin.providers.offline.vocabulary import looks_like_file, looks_like_path
from odin.providers.offline.wording import counted

LIMIT = 250
"""Lines asked of one search."""
_FILES_SHOWN = 25
_LINES_SHOWN = 12
_WIDTH = 160
_DEFINING = (
    r"\b(?:def|class|func|function|fn|struct|enum|trait|interface|type|const|let|var|val|module|mod|macro_rules!|namespace|"
    r"protocol|object|sub|proc|#define)\s+(?:\([^)]*\)\s*)?{0}\b|^\s*(?:export\s+|pub\s+|static\s+|final\s+)*{0}\s*(?::[^=]+)?=[^=]"
)

Searched = Generator[tuple[Act, ...], tuple[ToolResult, ...], Reached]


def literal(term: str) -> str:
    """A pattern that matches exactly this text, in the dialect of ripgrep and of Python."""
    return "".join(f"\\{char}" if char in "\\.+*?()|[]{}^$" else char for char in term)


def whole_word(term: str) -> str:
    before = r"\b" if term[:1].isalnum() or term[:1] == "_" else ""
    after = r"\b" if term[-1:].isalnum() or term[-1:] == "_" else ""
    return f"{before}{literal(term)}{after}"


def pattern_of(task: Task) -> str:
    how = task.how.removesuffix("-i").strip()
    if how == "regex":
        return task.term
    if how == "definition":
        return _DEFINING.format(literal(task.term))
    return whole_word(task.term) if how == "word" else literal(task.term)


def grep_act(pattern: str, path: str, task: Task, mode: str = "content", limit: int = LIMIT) -> Act:
    args: dict[str, Any] = {"pattern": pattern, "output_mode": mode, "head_limit": limit}
    if path != ".":
        args["path"] = path
    if mode == "content":
        args["-n"] = True
    if task.how.endswith("-i"):
        args["-i"] = True
    if task.globs:
        names = [glob.removeprefix("**/") for glob in task.globs]
        args["glob"] = names[0] if len(names) == 1 else "{" + ",".join(names) + "}"
    if "\n" in task.term:
        args["multiline"] = True
    return Act("Grep", args)


def search(task: Task, desk: Desk) -> Plan:
    how = task.how.removesuffix("-i").strip()
    mode = "count" if how == "count" else "content"
    reached = yield from _grep(pattern_of(task), task, desk, mode)
    if reached.trouble and task.whole and not looks_like_path(task.path):
        task = Task("search", task.whole, globs=task.globs, how=task.how)
        reached = yield from _grep(pattern_of(task), task, desk, mode)
    if reached.trouble:
        return reached.trouble
    if reached.result.is_error:
        return failed(f"search for `{task.term}`", reached.result)
    remark = ""
    if not _found(reached, mode):
        remark, reached = yield from _wider(task, desk, mode, reached)
    if not _found(reached, mode):
        return f"No match for `{task.term}`{_where(task, reached.path, desk)}."
    if mode == "count":
        return remark + _counted(task, reached, desk)
    return remark + (yield from _listed(task, desk, reached))


def _grep(pattern: str, task: Task, desk: Desk, mode: str) -> Searched:
    return (yield from reach(task.path, desk, lambda path: grep_act(pattern, path, task, mode)))


def _wider(
    task: Task, desk: Desk, mode: str, reached: Reached
) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], tuple[str, Reached]]:
    """A second try when nothing was found: any mention instead of a definition, any case instead of this one."""
    if task.how == "definition":
        again = yield from _grep(whole_word(task.term), task, desk, mode)
        if _found(again, mode):
            return f"I found no definition of `{task.term}`, but it is mentioned.\n\n", again
    if task.how.endswith("-i") or task.how == "regex" or task.term.lower() == task.term.upper():
        return "", reached
    relaxed = Task("search", task.term, path=task.path, globs=task.globs, how="-i")
    again = yield from _grep(literal(task.term), relaxed, desk, mode)
    if _found(again, mode):
        return f"`{task.term}` does not occur as written, but it does in other upper and lower case.\n\n", again
    return "", reached


def _found(reached: Reached, mode: str) -> bool:
    if reached.result.is_error:
        return False
    return bool(
        results.counts(reached.result.text, reached.path)
        if mode == "count"
        else results.hits(reached.result.text, reached.path)
    )


def _where(task: Task, path: str, desk: Desk) -> str:
    kinds = f" in {', '.join(glob.removeprefix('**/') for glob in task.globs)} files" if task.globs else ""
    return kinds + ("" if path == desk.cwd else f" in `{desk.shown(path)}`")


def _counted(task: Task, reached: Reached, desk: Desk) -> str:
    counts = results.counts(reached.result.text, reached.path)
    total = counted(sum(counts.values()), "line")
    head = f"`{task.term}` is on {total} in {counted(len(counts), 'file')}{_where(task, reached.path, desk)}"
    most = results.most_first(counts)
    lines = [f"- {desk.shown(path)}: {counts[path]}" for path in most[:_FILES_SHOWN]]
    if len(most) > _FILES_SHOWN:
        lines.append(f"- and {counted(len(most) - _FILES_SHOWN, 'more file', 'more files')}")
    return f"{head}:\n\n" + "\n".join(lines)


def _listed(task: Task, desk: Desk, reached: Reached) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], str]:
    hits = results.hits(reached.result.text, reached.path)
    files = len({hit.path for hit in hits})
    count, some = len(hits), ""
    if count >= LIMIT - 1 and desk.offers("Grep"):
        act = grep_act(pattern_of(task), reached.path, task, "count", 10_000)
        (total,) = yield (act,)
        counts = results.counts(total.text, reached.path)
        if not total.is_error and sum(counts.values()) > count:
            some = f" These are the first {count}."
            count, files = sum(counts.values()), len(counts)
    what = counted(count, "definition of", "definitions of") if task.how == "definition" else _matches(count)
    head = f"{what} `{task.term}` in {counted(files, 'file')}"
    if looks_like_file(reached.path) and files == 1:
        head = head.removesuffix(" in 1 file")
    names_only = task.how.startswith("files")
    return f"{head}{_where(task, reached.path, desk)}.{some}\n\n{_by_file(hits, desk, names_only)}"


def _matches(count: int) -> str:
    return counted(count, "match for", "matches for")


def _by_file(hits: list[Hit], desk: Desk, names_only: bool) -> str:
    grouped: dict[str, list[Hit]] = {}
    for hit in hits:
        grouped.setdefault(hit.path, []).append(hit)
    blocks: list[str] = []
    for path, found in list(grouped.items())[:_FILES_SHOWN]:
        name = f"{desk.shown(path)} ({len(found)})"
        if names_only:
            blocks.append(f"- {name}")
            continue
        lines = [f"  {hit.line}: {_cut(hit.text.strip())}" for hit in found[:_LINES_SHOWN]]
        if len(found) > _LINES_SHOWN:
            lines.append(f"  and {counted(len(found) - _LINES_SHOWN, 'more line', 'more lines')}")
        blocks.append("\n".join([name, *lines]))
    if len(grouped) > _FILES_SHOWN:
        blocks.append(f"and {counted(len(grouped) - _FILES_SHOWN, 'more file', 'more files')}")
    return "\n".join(blocks)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"


def count_lines(task: Task, desk: Desk) -> Plan:
    reached = yield from reach(task.path, desk, lambda path: grep_act("^", path, Task("search", "^"), "count"))
    if reached.trouble or reached.result.is_error:
        return reached.trouble or failed(f"count the lines of `{task.path}`", reached.result)
    counts = results.counts(reached.result.text, reached.path)
    total = sum(counts.values())
    if len(counts) > 1:
        return f"`{desk.shown(reached.path)}` has {counted(total, 'line')} in {counted(len(counts), 'file')}."
    return f"`{desk.shown(reached.path)}` has {counted(total, 'line')}."
