"""Plans that look at files and folders: list, find, read, outline, summarise."""

from collections.abc import Generator

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.jobs import offline_summary
from odin.providers.offline.outline import first_paragraph, outline_of
from odin.providers.offline.reach import Reached, failed, glob_act, reach, read_act
from odin.providers.offline.task import Act, Desk, Plan, Task
from odin.providers.offline.wording import counted, fenced

LINES_SHOWN = 200
_CHARS_SHOWN = 16_000
_PATHS_SHOWN = 60
_MAX_PAGES = 20
_DEEP = 3
_FOLDERS = 24


class Whole(Reached, frozen=True):
    """A file with all pages of it that were read."""

    page: results.Page = results.Page((), 0)

    @property
    def complete(self) -> bool:
        return len(self.page.lines) >= self.page.total


def list_folder(task: Task, desk: Desk) -> Plan:
    full = desk.absolute(task.path)
    (result,) = yield (Act("LS", {"path": full}),)
    if result.is_error:
        if desk.offers("Read") and ("is a file" in result.text or "not a directory" in result.text):
            return (yield from read(Task("read", path=task.path), desk))
        return failed(f"list `{desk.shown(full)}`", result)
    if task.how == "tree":
        lines = yield from _tree(full, results.entries(result.text), 0, [_FOLDERS], desk)
    else:
        lines = results.entries(result.text)
    if not lines:
        return f"{_name(full, desk)} is empty."
    folders = sum(line.endswith("/") for line in lines)
    amounts = [(folders, "folder"), (len(lines) - folders, "file")]
    what = " and ".join(counted(number, noun) for number, noun in amounts if number)
    return f"{_name(full, desk)} has {what}:\n\n" + "\n".join(_some(lines, LINES_SHOWN))


def _name(full: str, desk: Desk) -> str:
    return "This folder" if full == desk.cwd else f"`{desk.shown(full)}`"


def _some(lines: list[str], limit: int, total: int = 0) -> list[str]:
    shown = lines[:limit]
    rest = max(total, len(lines)) - len(shown)
    return [*shown, f"and {rest} more"] if rest else shown


def _tree(
    folder: str, names: list[str], depth: int, left: list[int], desk: Desk
) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], list[str]]:
    """Indented names, folders opened to a bounded depth and number, those of one level asked for together."""
    hidden = (".git/", "node_modules/", "__pycache__/", ".venv/", "venv/", "target/", "dist/", "build/")
    inner = [name for name in names if name.endswith("/") and name not in hidden and not name.startswith(".")]
    opened = inner[: left[0]] if depth + 1 < _DEEP else []
    left[0] -= len(opened)
    listed: dict[str, list[str]] = {}
    if opened:
        answers = yield tuple(Act("LS", {"path": f"{folder.rstrip('/')}/{name.rstrip('/')}"}) for name in opened)
        for name, answer in zip(opened, answers, strict=True):
            listed[name] = [] if answer.is_error else results.entries(answer.text)
    out: list[str] = []
    for name in names:
        out.append("  " * depth + name)
        if listed.get(name):
            out += yield from _tree(f"{folder.rstrip('/')}/{name.rstrip('/')}", listed[name], depth + 1, left, desk)
    return out


def find_files(task: Task, desk: Desk) -> Plan:
    answers = yield tuple(glob_act(glob, desk, task.path) for glob in task.globs)
    errors = [answer for answer in answers if answer.is_error]
    found = sorted({path for answer in answers if not answer.is_error for path in results.paths(answer.text)})
    if errors and not found:
        return failed("find files", errors[0])
    where = f" in `{desk.shown(desk.absolute(task.path))}`" if task.path else ""
    total = max([len(found), *(results.total_files(answer.text) for answer in answers)])
    if task.term:
        head = f"{counted(total, f'{task.term} file')}{where}"
    else:
        kinds = ", ".join(f"`{glob.removeprefix('**/')}`" for glob in task.globs)
        head = f"{counted(total, 'file matches', 'files match')} {kinds}{where}"
    if not found:
        return f"{head.replace('0', 'No', 1)}."
    if task.how == "count":
        return f"{head}."
    return f"{head}:\n\n" + "\n".join(_some([f"- {desk.shown(path)}" for path in found], _PATHS_SHOWN, total))


def read(task: Task, desk: Desk) -> Plan:
    if task.first < 0:
        return (yield from _tail(task, desk))
    reached = yield from reach(task.path, desk, lambda path: read_act(path, task.first, task.last))
    if reached.trouble:
        return reached.trouble
    if results.is_folder(reached.result):
        return (yield from list_folder(Task("list", path=reached.path), desk))
    return _shown(reached, desk)


def _shown(reached: Reached, desk: Desk) -> str:
    name = desk.shown(reached.path)
    if reached.result.is_error:
        return failed(f"read `{name}`", reached.result)
    if results.is_empty(reached.result):
        return f"`{name}` is empty."
    return excerpt(name, results.page(reached.result.text))


def excerpt(name: str, page: results.Page, limit: int = LINES_SHOWN) -> str:
    """Some lines of a file as an answer, with what is left out."""
    shown: list[str] = []
    size = 0
    width = len(str(page.last))
    for number, text in page.lines[:limit]:
        size += len(text)
        if shown and size > _CHARS_SHOWN:
            break
        shown.append(f"{number:>{width}}  {text}")
    if not shown:
        return f"`{name}` has no such lines."
    first, last = page.lines[0][0], page.lines[len(shown) - 1][0]
    span = counted(page.total, "line") if last - first + 1 == page.total else f"lines {first}-{last} of {page.total}"
    rest = (
        ""
        if last >= page.total
        else f'\n\nSay "show lines {last + 1}-{min(last + limit, page.total)}" for what follows.'
    )
    return f"`{name}`, {span}:\n\n{fenced(chr(10).join(shown), language_of(name))}{rest}"


def language_of(name: str) -> str:
    ending = name.rsplit(".", 1)[-1] if "." in name.rsplit("/", 1)[-1] else ""
    return ending if ending.isalnum() else ""


def _tail(task: Task, desk: Desk) -> Plan:
    whole = yield from whole_file(task.path, desk)
    if whole.trouble or whole.result.is_error or results.is_empty(whole.result):
        return whole.trouble or _shown(whole, desk)
    return excerpt(desk.shown(whole.path), results.Page(whole.page.lines[task.first :], whole.page.total))


def whole_file(path: str, desk: Desk) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], Whole]:
    """Read a file to its end, page by page, within bounds."""
    reached = yield from reach(path, desk, read_act)
    page = results.page(reached.result.text) if not reached.result.is_error else results.Page((), 0)
    for _ in range(_MAX_PAGES):
        if not page.lines or page.last >= page.total:
            break
        (more,) = yield (read_act(reached.path, page.last + 1),)
        following = results.page(more.text) if not more.is_error else results.Page((), 0)
        if not following.lines or following.lines[0][0] != page.last + 1:
            break
        page = results.Page((*page.lines, *following.lines), page.total)
    return Whole(reached.path, reached.result, reached.trouble, page)


def outline(task: Task, desk: Desk) -> Plan:
    whole = yield from whole_file(task.path, desk)
    if whole.trouble or whole.result.is_error or results.is_empty(whole.result):
        return whole.trouble or _shown(whole, desk)
    name = desk.shown(whole.path)
    marks = outline_of(name, whole.page.lines)
    if not marks:
        return f"I see no classes, functions or headings in `{name}` ({counted(whole.page.total, 'line')})."
    lines = [f"{'  ' * mark.level}- {mark.title} (line {mark.line})" for mark in marks]
    return f"`{name}`, {counted(whole.page.total, 'line')}:\n\n" + "\n".join(_some(lines, LINES_SHOWN))


def summary(task: Task, desk: Desk) -> Plan:
    whole = yield from whole_file(task.path, desk)
    if results.is_folder(whole.result):
        return (yield from list_folder(Task("list", path=whole.path), desk))
    if whole.trouble or whole.result.is_error or results.is_empty(whole.result):
        return whole.trouble or _shown(whole, desk)
    name = desk.shown(whole.path)
    parts = [f"`{name}` has {counted(whole.page.total, 'line')}."]
    opening = first_paragraph(name, whole.page.text)
    if opening:
        parts.append(opening)
    marks = [mark for mark in outline_of(name, whole.page.lines) if mark.level < 2]
    if marks:
        lines = [f"{'  ' * mark.level}- {mark.title} (line {mark.line})" for mark in marks]
        parts.append("It contains:\n\n" + "\n".join(_some(lines, 40)))
    elif not opening:
        parts.append(offline_summary(whole.page.text, 600))
    parts.append("This is read off the text, not understood: a summary in other words needs a model.")
    return "\n\n".join(part for part in parts if part)
