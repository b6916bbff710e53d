"""What "it", "that file", "the first one" and "again" mean: the last file, search, list, command and change."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from odin.core.message import ToolCall, ToolResult
from odin.core.registry import canonical
from odin.core.some import some_of
from odin.providers.offline import results
from odin.providers.offline.phrase_find import name_glob
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM, Desk, Task, nth_of
from odin.providers.offline.vocabulary import looks_like_file

_SHOWN = 8
_ABOUT_A_PATH = ("search", "replace", "read", "outline", "summary", "list", "append", "create", "count-lines", "tests")
_FORGOTTEN = ("help", "unknown", "invent", "again", "more", "undo", "todo", "where", "which-command")


class Unclear(Exception):
    """A reference that leads nowhere or to several things. The sentence is the question to ask."""


class Made(Struct, frozen=True):
    """A call that changed a file, and what a Read of the file had shown before it."""

    call: ToolCall
    before: str


class Memory(Struct):
    """Filled turn by turn, oldest first. Paths are absolute."""

    task: Task | None = None
    term: str = ""
    place: str = ""
    file: str = ""
    lists: list[results.Listing] = field(default_factory=list[results.Listing])
    newest_is_list: bool = False
    command: str = ""
    last_line: int = 0
    todos: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changes: list[Made] = field(default_factory=list[Made])
    before: dict[str, str] = field(default_factory=dict[str, str])
    fresh: bool = True

    def begin_turn(self) -> None:
        """The next change starts a new list of changes that could be undone."""
        self.fresh = True

    def note_task(self, task: Task) -> None:
        """A task that was understood and is being done."""
        if task.kind in _FORGOTTEN:
            return
        self.task = task
        if task.kind in ("search", "replace"):
            self.term = task.new if task.kind == "replace" else task.term
        if task.kind in ("search", "replace", "list", "find"):
            self.place = task.path

    def note_step(self, pairs: Iterable[tuple[ToolCall, ToolResult]], desk: Desk) -> None:
        """What one reply's calls did. Lists that were asked for together are one list."""
        lists: list[results.Listing] = []
        for call, result in pairs:
            name = canonical(call.name)
            path = str(call.args.get("file_path") or call.args.get("path") or desk.cwd)
            if name == "ExecuteCommand":
                self.command = str(call.args.get("command", ""))
            elif result.is_error:
                continue
            elif name == "Grep" and looks_like_file(path):
                self._set_file(path)
                self.place = path
            elif name in ("Grep", "Glob", "LS"):
                lists.append(results.Listing(name, result.text, path))
            else:
                self._note_call(name, path, call, result)
        if lists:
            self.lists, self.newest_is_list = lists, True

    def _note_call(self, name: str, path: str, call: ToolCall, result: ToolResult) -> None:
        if name == "Read":
            self._set_file(path)
            self.last_line = results.page(result.text[-4000:]).last
            self.before[path] = result.text
        elif name in ("EditTool", "MultiEditTool", "WriteFile"):
            self._note_change(call, path)
        elif name == "TodoWrite" and isinstance(call.args.get("todos"), list):
            self.todos = [item for item in call.args["todos"] if isinstance(item, dict)]

    def _note_change(self, call: ToolCall, path: str) -> None:
        if self.fresh:
            self.changes.clear()
            self.fresh = False
        self.changes.append(Made(call, self.before.get(path, "")))
        self._set_file(path)

    def _set_file(self, path: str) -> None:
        """The newest thing is a file now, so "it" is that file and not an entry of an older list."""
        self.file = path
        self.newest_is_list = False
        if self.task is None or self.task.kind not in ("search", "replace"):
            self.place = path

    def files(self) -> list[str]:
        """The files of the last list, in the order they were shown."""
        return results.files_in(self.lists)


def resolve(task: Task, memory: Memory, desk: Desk) -> Task:
    """The task with every reference replaced by what it refers to. Raises Unclear when that cannot be told."""
    if task.kind == "again":
        task = _repeated(task, memory)
    if task.kind == "more":
        if not memory.file:
            raise Unclear("There is no file to go on with. Say which one, for example: read README.md")
        task = Task("read", path=memory.file, first=memory.last_line + 1)
    if task.term == LAST_TERM:
        if not memory.term:
            raise Unclear("I do not know what you refer to: nothing was searched for yet. Name the text in quotes.")
        task = replace(task, term=memory.term)
    if task.kind == "replace" and not task.path and not task.everywhere:
        return _placed(task, memory)
    return replace(task, path=_path(task, memory, desk)) if task.path else task


def _placed(task: Task, memory: Memory) -> Task:
    """Where to replace when it was not said: where it was just searched, else in the file last seen."""
    last = memory.task
    if last is not None and last.kind in ("search", "replace"):
        if memory.place:
            return replace(task, path=memory.place)
        if task.term in (last.term, memory.term):
            return replace(task, everywhere=True, globs=last.globs)
    if memory.file and not memory.newest_is_list:
        return replace(task, path=memory.file)
    raise Unclear(
        f"Where? Say \"replace '{task.term}' with '{task.new}' in FILE\", or add \"everywhere\". Nothing was changed."
    )


def _path(task: Task, memory: Memory, desk: Desk) -> str:
    number = nth_of(task.path)
    if number is not None:
        return _entry(number, memory)
    if task.path == LAST_PLACE and memory.place:
        return memory.place
    if task.path in (LAST_FILE, LAST_PLACE):
        return _last_file(memory, desk)
    return task.path


def _entry(number: int, memory: Memory) -> str:
    files = memory.files()
    if not files:
        raise Unclear("There is no list to pick from yet. Search or find something first, or name the file.")
    if number == 0 or abs(number) > len(files):
        raise Unclear(f"The last list has {len(files)} files. Say which one, from 1 to {len(files)}.")
    return files[number - 1] if number > 0 else files[number]


def _last_file(memory: Memory, desk: Desk) -> str:
    files = memory.files() if memory.newest_is_list else []
    if len(files) == 1:
        return files[0]
    if memory.file and (not files or memory.file in files):
        return memory.file
    if not files:
        raise Unclear(
            "I do not know which file you mean: none was read or found yet. Name it, for example: read README.md"
        )
    shown = some_of((f"`{desk.shown(path)}`" for path in files), _SHOWN)
    raise Unclear(f'Which one: {shown}? Say its name, or for example "the first one".')


def _repeated(task: Task, memory: Memory) -> Task:
    """The last task once more, as it was or about something else."""
    last = memory.task
    if task.how == "run" and (last is None or last.kind not in ("tests", "run", "git", "script")):
        return _command_again(memory)
    if last is None:
        if task.path:
            return Task("read", path=task.path)
        raise Unclear("There is nothing to repeat yet. Say what to do, for example: search for TODO in src")
    if last.kind == "tests" and memory.command and not task.path:
        return replace(last, command=memory.command)
    if task.everywhere:
        return replace(last, path="", everywhere=True)
    if task.term:
        if last.kind != "search":
            raise Unclear(f'I do not know what to do with "{task.term}". Say for example: search for {task.term}')
        return replace(last, term=task.term, whole="")
    return _elsewhere(last, task.path) if task.path else last


def _elsewhere(last: Task, path: str) -> Task:
    if last.kind == "find":
        return replace(last, term="", globs=(name_glob(path),)) if looks_like_file(path) else replace(last, path=path)
    if last.kind == "list" and looks_like_file(path):
        return Task("read", path=path)
    if last.kind in _ABOUT_A_PATH or (last.kind == "git" and last.how in ("diff", "log", "who")):
        return replace(last, path=path, everywhere=False, whole="", command="")
    return Task("read", path=path)


def _command_again(memory: Memory) -> Task:
    if memory.command:
        return Task("run", command=memory.command)
    if memory.file:
        return Task("script", path=memory.file)
    raise Unclear("There is nothing to run yet. Put the command in backticks, for example: run `make build`")
