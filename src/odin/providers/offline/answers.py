"""Phrases the answers of the offline planner from the results of its calls."""

from collections.abc import Mapping, Sequence

from odin.core.format import clip, pluralize
from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.plan import PlanContext, PlanFailed
from odin.providers.offline.results import GrepHit, ReadPage

LINES_SHOWN = 200
_CHARS_SHOWN = 16_000
_FILES_SHOWN = 25
_HITS_SHOWN = 12
_MAX_LINE_WIDTH = 160
_TAIL_LINES = 30


def check_result(what: str, result: ToolResult) -> ToolResult:
    """Return the result of a call. Raise PlanFailed if it failed: `what` could not be done."""
    if result.is_error:
        raise PlanFailed(f"I could not {what}: {results.extract_reason(result)}")
    return result


def format_place(path: str, context: PlanContext) -> str:
    return "" if path == context.cwd else f" in `{context.display_path(path)}`"


def format_code_block(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"


def limit_lines(lines: Sequence[str], limit: int, remark: str = "") -> str:
    """Return at most `limit` lines. `remark` is what the tool said about lines it left out itself."""
    more = [f"and {len(lines) - limit} more"] if len(lines) > limit else []
    return "\n".join([*lines[:limit], *more, *([f"({remark})"] if remark else [])])


def format_hits(what: str, result: ToolResult, place: str, context: PlanContext) -> str:
    """Return the lines that a search found, by file."""
    by_file: dict[str, list[GrepHit]] = {}
    hits = results.parse_hits(result.text)
    for hit in hits:
        by_file.setdefault(hit.path, []).append(hit)
    if not hits:
        return f"No match for {what}{format_place(place, context)}."
    files = "" if list(by_file) == [place] else f" in {pluralize(len(by_file), 'file')}"
    omitted = results.parse_omitted(result.text)
    note = f" ({omitted})" if omitted else ""
    blocks = [
        f"{pluralize(len(hits), 'match', 'matches')} for {what}{files}{format_place(place, context)}.{note}",
        "",
    ]
    for path, found in list(by_file.items())[:_FILES_SHOWN]:
        blocks.append(f"{context.display_path(path)} ({len(found)})")
        shown = [f"  {hit.line}: {clip(hit.text.strip(), _MAX_LINE_WIDTH)}" for hit in found]
        blocks.append(limit_lines(shown, _HITS_SHOWN))
    if len(by_file) > _FILES_SHOWN:
        blocks.append(f"and {pluralize(len(by_file) - _FILES_SHOWN, 'more file', 'more files')}")
    return "\n".join(blocks)


def format_counts(term: str, counts: Mapping[str, int], place: str, context: PlanContext) -> str:
    if not counts:
        return f"No match for `{term}`{format_place(place, context)}."
    ranked = sorted(counts, key=lambda path: (-counts[path], path))
    lines = [f"- {context.display_path(path)}: {counts[path]}" for path in ranked]
    total = f"{pluralize(sum(counts.values()), 'line')} in {pluralize(len(counts), 'file')}"
    return f"`{term}` is on {total}{format_place(place, context)}:\n\n{limit_lines(lines, _FILES_SHOWN)}"


def format_paths(what: str, result: ToolResult, context: PlanContext) -> str:
    found = sorted(results.parse_paths(result.text))
    if not found:
        return f"No file {what}."
    lines = [f"- {context.display_path(path)}" for path in found]
    remark = results.parse_omitted(result.text)
    return f"{pluralize(len(found), 'file')} {what}:\n\n{limit_lines(lines, LINES_SHOWN, remark)}"


def format_listing(path: str, result: ToolResult, context: PlanContext) -> str:
    names = results.parse_entries(result.text)
    folder = "This folder" if path == context.cwd else f"`{context.display_path(path)}`"
    if not names:
        return f"{folder} is empty."
    folders = sum(name.endswith("/") for name in names)
    amounts = [(folders, "folder"), (len(names) - folders, "file")]
    what = " and ".join(pluralize(number, noun) for number, noun in amounts if number)
    return f"{folder} has {what}:\n\n{limit_lines(names, LINES_SHOWN, results.parse_omitted(result.text))}"


def format_file(path: str, result: ToolResult, context: PlanContext) -> str:
    """Return the lines of a Read, and how to go on if the file has more."""
    name = context.display_path(path)
    if results.is_empty(result):
        return f"`{name}` is empty."
    page = results.parse_page(result.text)
    if not page.lines:
        return f"`{name}`: {result.text}"
    shown: list[str] = []
    size = 0
    width = len(str(page.last))
    for number, text in page.lines[:LINES_SHOWN]:
        size += len(text)
        if shown and size > _CHARS_SHOWN:
            break
        shown.append(f"{number:>{width}}  {text}")
    first, last = page.lines[0][0], page.lines[len(shown) - 1][0]
    span = pluralize(page.total, "line") if last - first + 1 == page.total else f"lines {first}-{last} of {page.total}"
    following = f"read lines {last + 1}-{min(last + LINES_SHOWN, page.total)} of {name}"
    rest = f'\n\nSay "{following}" for what follows.' if last < page.total else ""
    suffix = name.rsplit(".", 1)[-1] if "." in name.rsplit("/", 1)[-1] else ""
    language = suffix if suffix.isalnum() else ""
    return f"`{name}`, {span}:\n\n{format_code_block(chr(10).join(shown), language)}{rest}"


def format_outline(path: str, result: ToolResult, context: PlanContext) -> str:
    name = context.display_path(path)
    hits = results.parse_hits(result.text)
    if not hits:
        return f"I see no classes, functions or headings in `{name}`."
    lines: list[str] = []
    for hit in hits:
        indent = len(hit.text.expandtabs(4)) - len(hit.text.expandtabs(4).lstrip())
        title = hit.text.strip().rstrip("{:").rstrip()
        if title.startswith("#"):
            indent, title = 4 * (len(title) - len(title.lstrip("#")) - 1), title.lstrip("#").strip()
        lines.append(f"{'  ' * min(indent // 4, 6)}- {clip(title, 110)} (line {hit.line})")
    return f"`{name}`:\n\n{limit_lines(lines, LINES_SHOWN, results.parse_omitted(result.text))}"


def report_edits(
    term: str, new: str, changed: Mapping[str, int], faults: Mapping[str, str], context: PlanContext
) -> str:
    """Return how often a text was replaced in which files, and why it was not in others. Raise PlanFailed for none."""
    failures = [f"`{context.display_path(path)}` was not changed: {why}" for path, why in faults.items()]
    if not changed:
        raise PlanFailed(f"Nothing was changed.\n{limit_lines(failures, _FILES_SHOWN)}")
    verb = f"Replaced `{term}` with `{new}`" if new else f"Removed `{term}`"
    where = f"`{context.display_path(next(iter(changed)))}`" if len(changed) == 1 else f"{len(changed)} files"
    lines = [f"{verb}: {pluralize(sum(changed.values()), 'occurrence')} in {where}."]
    if len(changed) > 1:
        listed = [f"- {context.display_path(path)}: {count}" for path, count in changed.items()]
        lines += ["", limit_lines(listed, _FILES_SHOWN)]
    if failures:
        lines += ["", limit_lines(failures, _FILES_SHOWN)]
    return "\n".join(lines)


def report_command(command: str, result: ToolResult) -> str:
    """Return how a command ended, and the last lines of its output. Raise PlanFailed if it failed."""
    code = results.get_exit_code(result)
    if code is None:
        raise PlanFailed(f"`{command}` did not run to its end: {results.extract_reason(result)}")
    output = results.get_output(result)
    shown = f":\n\n{format_code_block(keep_last_lines(output, LINES_SHOWN))}" if output else " and printed nothing."
    if code:
        raise PlanFailed(f"`{command}` failed with exit code {code}{shown}")
    return f"`{command}` ran without an error{shown}"


def report_tests(command: str, source: str, result: ToolResult) -> str:
    """Return whether the tests pass, in the test runner's words; with the end of its output if they do not."""
    counts = results.count_results(result.text)
    outcome = f": {counts}" if counts else ""
    because = f", because there is {source}" if source else ""
    code = results.get_exit_code(result)
    if code == 0:
        return f"The tests pass{outcome}. I ran `{command}`{because}."
    if code is None:
        raise PlanFailed(f"The tests did not run to their end: {results.extract_reason(result)}")
    end = format_code_block(keep_last_lines(results.get_output(result) or "(no output)", _TAIL_LINES))
    if code == 127 or "No module named pytest" in result.text:
        raise PlanFailed(f"The tests did not run: `{command}` cannot be started here.\n\n{end}")
    raise PlanFailed(f"The tests fail{outcome}. I ran `{command}`{because}. It ended with exit code {code}:\n\n{end}")


def keep_last_lines(text: str, limit: int) -> str:
    lines = text.splitlines()
    cut = max(0, len(lines) - limit)
    tail = "\n".join(lines[cut:])
    note = f"({pluralize(cut, 'line')} before this)\n" if cut else ""
    return note + (tail if len(tail) <= _CHARS_SHOWN else f"…{tail[-_CHARS_SHOWN:]}")


def describe_project(name: str, listing: ToolResult, readme: ReadPage | None, command: str) -> str:
    """Return the first paragraph of the README, what the top folder contains, and how the tests are run."""
    names = results.parse_entries(listing.text)
    lines = [f"**{name}**"]
    if readme is not None:
        paragraphs = readme.text.split("\n\n")
        prose = (one.strip() for one in paragraphs if one.strip()[:1].isalnum())
        lines += ["", " ".join(next(prose, "The README has no text.").split())]
    lines += ["", f"- Contains: {', '.join(names[:_FILES_SHOWN]) or 'nothing'}"]
    if command:
        lines.append(f"- To test: `{command}`")
    return "\n".join(lines)
