"""What "it", "that file", "the first one" and "again" mean: the last file, search, list, command and change."""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from odin.core.message import ToolCall, ToolResult
from odin.core.registry import canonical_name_of
from odin.core.some import join_some
from odin.providers.offline import results
from odin.providers.offline.phrase_find import glob_of_name
from odin.providers.offline.task import LAST_FILE, LAST_PLACE, LAST_TERM, PlanContext, PlannerTask, entry_number_of
from odin.providers.offline.vocabulary import is_file_like

_MAX_SHOWN = 8
_PATH_KINDS = ("search", "replace", "read", "outline", "summary", "list", "append", "create", "count-lines", "tests")
_UNREMEMBERED_KINDS = ("help", "unknown", "invent", "again", "more", "undo", "todo", "where", "which-command")


class UnclearReference(Exception):
    """A reference that leads nowhere or to several things. The sentence is the question to ask."""


class PlannerChange(Struct, frozen=True):
    """A call that changed a file, and what a Read of the file had shown before it."""

    call: ToolCall
    before: str


class PlannerMemory(Struct):
    """Filled turn by turn, oldest first. Paths are absolute."""

    task: PlannerTask | None = None
    term: str = ""
    place: str = ""
    file: str = ""
    lists: list[results.ToolListing] = field(default_factory=list[results.ToolListing])
    newest_is_list: bool = False
    command: str = ""
    last_line: int = 0
    todos: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    changes: list[PlannerChange] = field(default_factory=list[PlannerChange])
    before: dict[str, str] = field(default_factory=dict[str, str])
    is_new_turn: bool = True

    def begin_turn(self) -> None:
        """The next change starts a new list of changes that could be undone."""
        self.is_new_turn = True

    def note_task(self, task: PlannerTask) -> None:
        """A task that was understood and is being done."""
        if task.kind in _UNREMEMBERED_KINDS:
            return
        self.task = task
        if task.kind in ("search", "replace"):
            self.term = task.new if task.kind == "replace" else task.term
        if task.kind in ("search", "replace", "list", "find"):
            self.place = task.path

    def note_step(self, pairs: Iterable[tuple[ToolCall, ToolResult]], desk: PlanContext) -> None:
        """What one reply's calls did. Lists that were asked for together are one list."""
        lists: list[results.ToolListing] = []
        for call, result in pairs:
            name = canonical_name_of(call.name)
            path = str(call.args.get("file_path") or call.args.get("path") or desk.cwd)
            if name == "ExecuteCommand":
                self.command = str(call.args.get("command", ""))
            elif result.is_error:
                continue
            elif name == "Grep" and is_file_like(path):
                self._set_file(path)
                self.place = path
            elif name in ("Grep", "Glob", "LS"):
                lists.append(results.ToolListing(name, result.text, path))
            else:
                self._note_call(name, path, call, result)
        if lists:
            self.lists, self.newest_is_list = lists, True

    def _note_call(self, name: str, path: str, call: ToolCall, result: ToolResult) -> None:
        if name == "Read":
            self._set_file(path)
            self.last_line = results.parse_page(result.text[-4000:]).last
            self.before[path] = result.text
        elif name in ("EditTool", "MultiEditTool", "WriteFile"):
            self._note_change(call, path)
        elif name == "TodoWrite" and isinstance(call.args.get("todos"), list):
            self.todos = [item for item in call.args["todos"] if isinstance(item, dict)]

    def _note_change(self, call: ToolCall, path: str) -> None:
        if self.is_new_turn:
            self.changes.clear()
            self.is_new_turn = False
        self.changes.append(PlannerChange(call, self.before.get(path, "")))
        self._set_file(path)

    def _set_file(self, path: str) -> None:
        """The newest thing is a file now, so "it" is that file and not an entry of an older list."""
        self.file = path
        self.newest_is_list = False
        if self.task is None or self.task.kind not in ("search", "replace"):
            self.place = path

    def list_files(self) -> list[str]:
        """The files of the last list, in the order they were shown."""
        return results.list_files(self.lists)


def resolve_task(task: PlannerTask, memory: PlannerMemory, desk: PlanContext) -> PlannerTask:
    """The task with every reference replaced by what it refers to. Raises Unclear when that cannot be told."""
    if task.kind == "again":
        task = _repeat_task(task, memory)
    if task.kind == "more":
        if not memory.file:
            raise UnclearReference("There is no file to go on with. Say which one, for example: read README.md")
        task = PlannerTask("read", path=memory.file, first=memory.last_line + 1)
    if task.term == LAST_TERM:
        if not memory.term:
            raise UnclearReference(
                "I do not know what you refer to: nothing was searched for yet. Name the text in quotes."
            )
        task = replace(task, term=memory.term)
    if task.kind == "replace" and not task.path and not task.everywhere:
        return _resolve_place(task, memory)
    return replace(task, path=_resolve_path(task, memory, desk)) if task.path else task


def _resolve_place(task: PlannerTask, memory: PlannerMemory) -> PlannerTask:
    """Where to replace when it was not said: where it was just searched, else in the file last seen."""
    last = memory.task
    if last is not None and last.kind in ("search", "replace"):
        if memory.place:
            return replace(task, path=memory.place)
        if task.term in (last.term, memory.term):
            return replace(task, everywhere=True, globs=last.globs)
    if memory.file and not memory.newest_is_list:
        return replace(task, path=memory.file)
    raise UnclearReference(
        f"Where? Say \"replace '{task.term}' with '{task.new}' in FILE\", or add \"everywhere\". Nothing was changed."
    )


def _resolve_path(task: PlannerTask, memory: PlannerMemory, desk: PlanContext) -> str:
    number = entry_number_of(task.path)
    if number is not None:
        return _pick_entry(number, memory)
    if task.path == LAST_PLACE and memory.place:
        return memory.place
    if task.path in (LAST_FILE, LAST_PLACE):
        return _find_last_file(memory, desk)
    return task.path


def _pick_entry(number: int, memory: PlannerMemory) -> str:
    files = memory.list_files()
    if not files:
        raise UnclearReference("There is no list to pick from yet. Search or find something first, or name the file.")
    if number == 0 or abs(number) > len(files):
        raise UnclearReference(f"The last list has {len(files)} files. Say which one, from 1 to {len(files)}.")
    return files[number - 1] if number > 0 else files[number]


def _find_last_file(memory: PlannerMemory, desk: PlanContext) -> str:
    files = memory.list_files() if memory.newest_is_list else []
    if len(files) == 1:
        return files[0]
    if memory.file and (not files or memory.file in files):
        return memory.file
    if not files:
        raise UnclearReference(
            "I do not know which file you mean: none was read or found yet. Name it, for example: read README.md"
        )
    shown = join_some((f"`{desk.display_path(path)}`" for path in files), _MAX_SHOWN)
    raise UnclearReference(f'Which one: {shown}? Say its name, or for example "the first one".')


def _repeat_task(task: PlannerTask, memory: PlannerMemory) -> PlannerTask:
    """The last task once more, as it was or about something else."""
    last = memory.task
    if task.variant == "run" and (last is None or last.kind not in ("tests", "run", "git", "script")):
        return _repeat_command(memory)
    if last is None:
        if task.path:
            return PlannerTask("read", path=task.path)
        raise UnclearReference("There is nothing to repeat yet. Say what to do, for example: search for TODO in src")
    if last.kind == "tests" and memory.command and not task.path:
        return replace(last, command=memory.command)
    if task.everywhere:
        return replace(last, path="", everywhere=True)
    if task.term:
        if last.kind != "search":
            raise UnclearReference(
                f'I do not know what to do with "{task.term}". Say for example: search for {task.term}'
            )
        return replace(last, term=task.term, whole_term="")
    return _apply_to_path(last, task.path) if task.path else last


def _apply_to_path(last: PlannerTask, path: str) -> PlannerTask:
    if last.kind == "find":
        return replace(last, term="", globs=(glob_of_name(path),)) if is_file_like(path) else replace(last, path=path)
    if last.kind == "list" and is_file_like(path):
        return PlannerTask("read", path=path)
    if last.kind in _PATH_KINDS or (last.kind == "git" and last.variant in ("diff", "log", "who")):
        return replace(last, path=path, everywhere=False, whole_term="", command="")
    return PlannerTask("read", path=path)


def _repeat_command(memory: PlannerMemory) -> PlannerTask:
    if memory.command:
        return PlannerTask("run", command=memory.command)
    if memory.file:
        return PlannerTask("script", path=memory.file)
    raise UnclearReference("There is nothing to run yet. Put the command in backticks, for example: run `make build`")
