"""Plans that look at files and folders: list, find, read, outline, summarise."""

from collections.abc import Generator

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.jobs import make_offline_summary
from odin.providers.offline.outline import extract_first_paragraph, outline_of
from odin.providers.offline.reach import PathResult, call_on_path, make_glob_call, make_read_call, report_failure
from odin.providers.offline.task import Plan, PlanContext, PlannedCall, PlannerTask
from odin.providers.offline.wording import format_code_block, format_count

LINES_SHOWN = 200
_MAX_EXCERPT_CHARS = 16_000
_PATHS_SHOWN = 60
_MAX_PAGES = 20
_MAX_DEPTH = 3
_MAX_FOLDERS = 24


class WholeFile(PathResult, frozen=True):
    """A file with all pages of it that were read."""

    page: results.ReadPage = results.ReadPage((), 0)

    @property
    def is_complete(self) -> bool:
        return len(self.page.lines) >= self.page.total


def plan_list(task: PlannerTask, desk: PlanContext) -> Plan:
    full = desk.resolve_path(task.path)
    (result,) = yield (PlannedCall("LS", {"path": full}),)
    if result.is_error:
        if desk.has_tools("Read") and ("is a file" in result.text or "not a directory" in result.text):
            return (yield from plan_read(PlannerTask("read", path=task.path), desk))
        return report_failure(f"list `{desk.display_path(full)}`", result)
    if task.variant == "tree":
        lines = yield from _list_tree(full, results.parse_entries(result.text), 0, [_MAX_FOLDERS], desk)
    else:
        lines = results.parse_entries(result.text)
    if not lines:
        return f"{_folder_name_of(full, desk)} is empty."
    folders = sum(line.endswith("/") for line in lines)
    amounts = [(folders, "folder"), (len(lines) - folders, "file")]
    what = " and ".join(format_count(number, noun) for number, noun in amounts if number)
    return f"{_folder_name_of(full, desk)} has {what}:\n\n" + "\n".join(_limit_lines(lines, LINES_SHOWN))


def _folder_name_of(full: str, desk: PlanContext) -> str:
    return "This folder" if full == desk.cwd else f"`{desk.display_path(full)}`"


def _limit_lines(lines: list[str], limit: int, total: int = 0) -> list[str]:
    shown = lines[:limit]
    rest = max(total, len(lines)) - len(shown)
    return [*shown, f"and {rest} more"] if rest else shown


def _list_tree(
    folder: str, names: list[str], depth: int, left: list[int], desk: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[str]]:
    """Indented names, folders opened to a bounded depth and number, those of one level asked for together."""
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
                f"{folder.rstrip('/')}/{name.rstrip('/')}", listed[name], depth + 1, left, desk
            )
    return out


def plan_find(task: PlannerTask, desk: PlanContext) -> Plan:
    answers = yield tuple(make_glob_call(glob, desk, task.path) for glob in task.globs)
    errors = [answer for answer in answers if answer.is_error]
    found = sorted({path for answer in answers if not answer.is_error for path in results.parse_paths(answer.text)})
    if errors and not found:
        return report_failure("find files", errors[0])
    where = f" in `{desk.display_path(desk.resolve_path(task.path))}`" if task.path else ""
    total = max([len(found), *(results.parse_total_files(answer.text) for answer in answers)])
    if task.term:
        head = f"{format_count(total, f'{task.term} file')}{where}"
    else:
        kinds = ", ".join(f"`{glob.removeprefix('**/')}`" for glob in task.globs)
        head = f"{format_count(total, 'file matches', 'files match')} {kinds}{where}"
    if not found:
        return f"{head.replace('0', 'No', 1)}."
    if task.variant == "count":
        return f"{head}."
    return f"{head}:\n\n" + "\n".join(
        _limit_lines([f"- {desk.display_path(path)}" for path in found], _PATHS_SHOWN, total)
    )


def plan_read(task: PlannerTask, desk: PlanContext) -> Plan:
    if task.first < 0:
        return (yield from _read_tail(task, desk))
    reached = yield from call_on_path(task.path, desk, lambda path: make_read_call(path, task.first, task.last))
    if reached.problem:
        return reached.problem
    if results.is_folder(reached.result):
        return (yield from plan_list(PlannerTask("list", path=reached.path), desk))
    return _format_file(reached, desk)


def _format_file(reached: PathResult, desk: PlanContext) -> str:
    name = desk.display_path(reached.path)
    if reached.result.is_error:
        return report_failure(f"read `{name}`", reached.result)
    if results.is_empty(reached.result):
        return f"`{name}` is empty."
    return format_excerpt(name, results.parse_page(reached.result.text))


def format_excerpt(name: str, page: results.ReadPage, limit: int = LINES_SHOWN) -> str:
    """Some lines of a file as an answer, with what is left out."""
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
    span = (
        format_count(page.total, "line") if last - first + 1 == page.total else f"lines {first}-{last} of {page.total}"
    )
    rest = (
        ""
        if last >= page.total
        else f'\n\nSay "show lines {last + 1}-{min(last + limit, page.total)}" for what follows.'
    )
    return f"`{name}`, {span}:\n\n{format_code_block(chr(10).join(shown), language_of(name))}{rest}"


def language_of(name: str) -> str:
    ending = name.rsplit(".", 1)[-1] if "." in name.rsplit("/", 1)[-1] else ""
    return ending if ending.isalnum() else ""


def _read_tail(task: PlannerTask, desk: PlanContext) -> Plan:
    whole = yield from read_whole_file(task.path, desk)
    if whole.problem or whole.result.is_error or results.is_empty(whole.result):
        return whole.problem or _format_file(whole, desk)
    return format_excerpt(
        desk.display_path(whole.path), results.ReadPage(whole.page.lines[task.first :], whole.page.total)
    )


def read_whole_file(
    path: str, desk: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], WholeFile]:
    """Read a file to its end, page by page, within bounds."""
    reached = yield from call_on_path(path, desk, make_read_call)
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


def plan_outline(task: PlannerTask, desk: PlanContext) -> Plan:
    whole = yield from read_whole_file(task.path, desk)
    if whole.problem or whole.result.is_error or results.is_empty(whole.result):
        return whole.problem or _format_file(whole, desk)
    name = desk.display_path(whole.path)
    marks = outline_of(name, whole.page.lines)
    if not marks:
        return f"I see no classes, functions or headings in `{name}` ({format_count(whole.page.total, 'line')})."
    lines = [f"{'  ' * mark.level}- {mark.title} (line {mark.line})" for mark in marks]
    return f"`{name}`, {format_count(whole.page.total, 'line')}:\n\n" + "\n".join(_limit_lines(lines, LINES_SHOWN))


def plan_summary(task: PlannerTask, desk: PlanContext) -> Plan:
    whole = yield from read_whole_file(task.path, desk)
    if results.is_folder(whole.result):
        return (yield from plan_list(PlannerTask("list", path=whole.path), desk))
    if whole.problem or whole.result.is_error or results.is_empty(whole.result):
        return whole.problem or _format_file(whole, desk)
    name = desk.display_path(whole.path)
    parts = [f"`{name}` has {format_count(whole.page.total, 'line')}."]
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
