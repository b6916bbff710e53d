"""Works through one prompt: its tasks in order, each by its plan, replayed from the results so far.

The planner stores nothing between requests. It starts every plan again and feeds it the recorded results step by step;
what the plan wants next, a call or an answer, is the reply. So it continues after a resume as if nothing had happened.
References such as "it", "that file" and "again" are resolved from earlier turns.
"""

from collections.abc import Callable, Generator, Iterable
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from odin.core.errors import NeedsModel
from odin.core.format import count_of
from odin.core.message import ToolCall, ToolResult
from odin.core.path_names import quote_path
from odin.core.provider import Request
from odin.core.text import join_some
from odin.core.tool import canonical_name_of
from odin.providers.offline import command_plans, edit_plans, read_plans, results
from odin.providers.offline.grammar import parse_prompt
from odin.providers.offline.language import is_file_like
from odin.providers.offline.read_phrases import glob_of_name
from odin.providers.offline.read_plans import make_read_call, report_failure
from odin.providers.offline.results import PlannerStep, PlannerTurn, collect_turns, find_working_directory, mode_of
from odin.providers.offline.task import (
    HELLO,
    LAST_FILE,
    LAST_PLACE,
    LAST_TERM,
    STOPPED,
    Plan,
    PlanContext,
    PlannedCall,
    PlannerTask,
    entry_number_of,
    explain_not_offered,
    extract_reason,
    make_needs_model,
)

_MAX_SHOWN = 8
_PATH_KINDS = ("search", "replace", "read", "outline", "summary", "list", "append", "create", "count-lines", "tests")
_UNREMEMBERED_KINDS = ("help", "unknown", "invent", "again", "more", "undo", "todo", "where", "which-command")


class UnclearReference(Exception):
    """A reference to nothing or to several things. The message is the question to ask."""


class NotUnderstood(Exception):
    """A part of the prompt needs a model. `answers` are those to the parts before it."""

    def __init__(self, answers: list[str], error: NeedsModel) -> None:
        super().__init__(str(error))
        self.answers = answers
        self.error = error


class PlannerChange(Struct, frozen=True):
    """A call that changed a file, and what Read had shown of it before."""

    call: ToolCall
    before: str


class PlannerMemory(Struct):
    """What later words may refer to, filled turn by turn, oldest first. Paths are absolute."""

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
        """Start a new list of changes that can be undone."""
        self.is_new_turn = True

    def note_task(self, task: PlannerTask) -> None:
        """Record a task that was understood."""
        if task.kind in _UNREMEMBERED_KINDS:
            return
        self.task = task
        if task.kind in ("search", "replace"):
            self.term = task.new if task.kind == "replace" else task.term
        if task.kind in ("search", "replace", "list", "find"):
            self.place = task.path

    def note_step(self, pairs: Iterable[tuple[ToolCall, ToolResult]], context: PlanContext) -> None:
        """Record the calls of one reply. Lists requested together are one list."""
        lists: list[results.ToolListing] = []
        for call, result in pairs:
            name = canonical_name_of(call.name)
            path = str(call.args.get("file_path") or call.args.get("path") or context.cwd)
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
        """Make this file the newest item, so that "it" means it."""
        self.file = path
        self.newest_is_list = False
        if self.task is None or self.task.kind not in ("search", "replace"):
            self.place = path

    def list_files(self) -> list[str]:
        """Return the files of the last list, in display order."""
        return results.list_files(self.lists)


def resolve_task(task: PlannerTask, memory: PlannerMemory, context: PlanContext) -> PlannerTask:
    """Return the task with every reference resolved. Raise UnclearReference if that is not possible."""
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
    return replace(task, path=_resolve_path(task, memory, context)) if task.path else task


def _resolve_place(task: PlannerTask, memory: PlannerMemory) -> PlannerTask:
    """Replace where the last search looked, or in the file last seen, if the request does not say where."""
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


def _resolve_path(task: PlannerTask, memory: PlannerMemory, context: PlanContext) -> str:
    number = entry_number_of(task.path)
    if number is not None:
        return _pick_entry(number, memory)
    if task.path == LAST_PLACE and memory.place:
        return memory.place
    if task.path in (LAST_FILE, LAST_PLACE):
        return _find_last_file(memory, context)
    return task.path


def _pick_entry(number: int, memory: PlannerMemory) -> str:
    files = memory.list_files()
    if not files:
        raise UnclearReference("There is no list to pick from yet. Search or find something first, or name the file.")
    if number == 0 or abs(number) > len(files):
        raise UnclearReference(f"The last list has {len(files)} files. Say which one, from 1 to {len(files)}.")
    return files[number - 1] if number > 0 else files[number]


def _find_last_file(memory: PlannerMemory, context: PlanContext) -> str:
    files = memory.list_files() if memory.newest_is_list else []
    if len(files) == 1:
        return files[0]
    if memory.file and (not files or memory.file in files):
        return memory.file
    if not files:
        raise UnclearReference(
            "I do not know which file you mean: none was read or found yet. Name it, for example: read README.md"
        )
    shown = join_some((f"`{context.display_path(path)}`" for path in files), _MAX_SHOWN)
    raise UnclearReference(f'Which one: {shown}? Say its name, or for example "the first one".')


def _repeat_task(task: PlannerTask, memory: PlannerMemory) -> PlannerTask:
    """Return the last task again, unchanged or with another subject."""
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


_EDITS_PER_BATCH = 20


def plan_help(task: PlannerTask, context: PlanContext) -> Plan:
    yield from ()
    return "You are welcome." if task.variant == "thanks" else HELLO


def plan_where(task: PlannerTask, context: PlanContext) -> Plan:
    yield from ()
    return f"The working directory is `{context.cwd}`."


def plan_mkdir(task: PlannerTask, context: PlanContext) -> Plan:
    yield from ()
    path = quote_path(task.path)
    return (
        f"I make folders only together with a file in them. Say: run `mkdir -p {path}`, or create a file such as "
        f"{task.path.rstrip('/')}/notes.txt."
    )


def plan_move(task: PlannerTask, context: PlanContext) -> Plan:
    yield from ()
    return (
        f"I have no tool that moves files, so `{task.path}` is where it was. Say: run `mv {quote_path(task.path)} "
        f"{quote_path(task.new)}` "
        "and I will run that command, if your rules allow it."
    )


def plan_todo(task: PlannerTask, context: PlanContext, memory: PlannerMemory) -> Plan:
    items = [dict(item) for item in memory.todos]
    if task.variant == "show":
        if not items:
            return "The todo list is empty. To find TODO comments in the code, say: search for TODO"
        return _format_todos(items)
    if task.variant == "add":
        taken = {str(item.get("id")) for item in items}
        number = len(items) + 1
        while str(number) in taken:
            number += 1
        items.append({"id": str(number), "content": task.new, "status": "pending"})
    else:
        chosen = [item for at, item in enumerate(items, 1) if task.term in (str(at), item.get("content"))]
        if not chosen:
            return f"There is no todo {task.term}. {_format_todos(items) if items else 'The list is empty.'}"
        chosen[0]["status"] = "completed"
    (result,) = yield (PlannedCall("TodoWrite", {"todos": items}),)
    return report_failure("change the todo list", result) if result.is_error else _format_todos(items)


def _format_todos(items: list[dict[str, Any]]) -> str:
    boxes = {"completed": "x", "in_progress": ">", "cancelled": "-"}
    lines = [
        f"{at}. [{boxes.get(str(item.get('status')), ' ')}] {item.get('content', '')}"
        for at, item in enumerate(items, 1)
    ]
    return f"{count_of(len(items), 'todo')}:\n\n" + "\n".join(lines)


def plan_undo(task: PlannerTask, context: PlanContext, memory: PlannerMemory) -> Plan:
    """Undo the last replacement where the files are unchanged since; explain how for the rest."""
    if not memory.changes:
        return "I have changed nothing in this session, so there is nothing to undo."
    if not context.has_tools("EditTool"):
        return explain_not_offered(("EditTool",), context)
    edits = [made for made in memory.changes if made.call.name != "WriteFile"]
    written = [made for made in memory.changes if made.call.name == "WriteFile"]
    lines: list[str] = []
    for start in range(0, len(edits), _EDITS_PER_BATCH):
        lines += yield from _reverse_edits(edits[start : start + _EDITS_PER_BATCH], context)
    lines += [_explain_unwritten(made, context) for made in written]
    return "\n".join(lines)


def _reverse_edits(
    edits: list[PlannerChange], context: PlanContext
) -> Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], list[str]]:
    paths = list(dict.fromkeys(str(made.call.args["file_path"]) for made in edits))
    answers = yield tuple(make_read_call(path) for path in paths)
    now = {
        path: results.parse_page(answer.text)
        for path, answer in zip(paths, answers, strict=True)
        if not answer.is_error
    }
    acts: dict[str, PlannedCall] = {}
    lines: list[str] = []
    for path in paths:
        act = _make_reversal([made for made in edits if made.call.args["file_path"] == path], now.get(path), context)
        if act:
            acts[path] = act
        else:
            lines.append(_explain_by_hand(path, context))
    if not acts:
        return lines
    done = yield tuple(acts.values())
    for path, answer in zip(acts, done, strict=True):
        name = context.display_path(path)
        lines.append(
            f"`{name}` was not changed back: {extract_reason(answer.text)}"
            if answer.is_error
            else f"Reverted the last change in `{name}`."
        )
    return lines


def _make_reversal(
    edits: list[PlannerChange], now: results.ReadPage | None, context: PlanContext
) -> PlannedCall | None:
    """Return the call that reverts a file's edits, or None if it could hit something else."""
    if len(edits) != 1 or now is None or len(now.lines) < now.total:
        return None
    made = edits[0]
    args = made.call.args
    if made.call.name == "MultiEditTool":
        back = [
            {"old_string": edit["new_string"], "new_string": edit["old_string"]} for edit in reversed(args["edits"])
        ]
        return (
            PlannedCall("MultiEditTool", {"file_path": args["file_path"], "edits": back})
            if context.has_tools("MultiEditTool")
            else None
        )
    old, new = str(args["old_string"]), str(args["new_string"])
    before = results.parse_page(made.before)
    known = before.lines and len(before.lines) >= before.total
    if not new or not known:
        return None
    if args.get("replace_all") and (new in before.text or now.text.count(new) != before.text.count(old)):
        return None
    return PlannedCall("EditTool", {**args, "old_string": new, "new_string": old})


def _explain_by_hand(path: str, context: PlanContext) -> str:
    name = context.display_path(path)
    return (
        f"I cannot take the change in `{name}` back by itself: the new text is also where the old one never was, or "
        "the file "
        f"has changed since. If it is under git, run `git diff {quote_path(name)}` shows what changed and "
        f"run `git checkout -- {quote_path(name)}` brings back the last commit."
    )


def _explain_unwritten(made: PlannerChange, context: PlanContext) -> str:
    name = context.display_path(str(made.call.args["file_path"]))
    remove = f"delete {name}" if context.has_tools("Delete") else f"run `rm {quote_path(name)}`"
    return f"I wrote `{name}` and do not delete files unasked. Say: {remove}"


MAX_STEPS = 60
_MAX_REMEMBERED_TURNS = 40

_PLANS: dict[str, Callable[[PlannerTask, PlanContext], Plan]] = {
    "search": read_plans.plan_text_search,
    "count-lines": read_plans.plan_line_count,
    "find": read_plans.plan_find,
    "list": read_plans.plan_list,
    "read": read_plans.plan_read,
    "outline": read_plans.plan_outline,
    "summary": read_plans.plan_summary,
    "replace": edit_plans.plan_replace,
    "create": edit_plans.plan_create,
    "append": edit_plans.plan_append,
    "delete": edit_plans.plan_delete,
    "run": command_plans.plan_command,
    "script": command_plans.plan_script,
    "tests": command_plans.plan_tests,
    "which-command": command_plans.plan_unknown_command,
    "git": command_plans.plan_git_query,
    "describe": command_plans.plan_description,
    "init": command_plans.plan_init,
    "where": plan_where,
    "mkdir": plan_mkdir,
    "move": plan_move,
    "help": plan_help,
}


class PlannerMove(Struct, frozen=True):
    """The planner's next reply: calls to make, or the answer. `failure` ends the turn after the answer."""

    calls: tuple[PlannedCall, ...] = ()
    answer: str = ""
    failure: NeedsModel | None = None


def choose_move(request: Request) -> PlannerMove:
    """Return what to do next in the newest turn."""
    context = PlanContext(
        find_working_directory(request),
        mode_of(request),
        {canonical_name_of(spec.name): spec for spec in request.tools},
    )
    history = collect_turns(request.messages)
    if not history:
        return PlannerMove(answer=HELLO)
    memory = PlannerMemory()
    for turn in history[-_MAX_REMEMBERED_TURNS - 1 : -1]:
        _remember_turn(turn, memory, context)
    memory.begin_turn()
    newest = history[-1]
    return _replay_steps(_run_tasks(newest.prompt, memory, context), [step for step in newest.steps if step.is_own])


def _remember_turn(turn: PlannerTurn, memory: PlannerMemory, context: PlanContext) -> None:
    """Record what later words may refer to: what was asked, then what was done."""
    memory.begin_turn()
    for task in parse_prompt(turn.prompt):
        try:
            memory.note_task(resolve_task(task, memory, context))
        except UnclearReference:
            continue
    for step in turn.steps:
        memory.note_step(zip(step.calls, step.results, strict=True), context)


def _run_tasks(prompt: str, memory: PlannerMemory, context: PlanContext) -> Plan:
    """Run all tasks of a prompt in order. Each may refer to the results of earlier ones."""
    answers: list[str] = []
    for task in parse_prompt(prompt):
        if task.kind in ("unknown", "invent"):
            raise NotUnderstood(answers, make_needs_model(task.source_text, task.kind == "invent", bool(answers)))
        try:
            resolved = resolve_task(task, memory, context)
        except UnclearReference as question:
            answers.append(str(question))
            break
        memory.note_task(resolved)
        answers.append((yield from _run_plan(_choose_plan(resolved, context, memory), memory, context)))
    return _join_answers(answers)


def _join_answers(answers: Iterable[str]) -> str:
    return "\n\n".join(answer for answer in answers if answer)


def _choose_plan(task: PlannerTask, context: PlanContext, memory: PlannerMemory) -> Plan:
    if task.kind == "todo":
        return plan_todo(task, context, memory)
    if task.kind == "undo":
        return plan_undo(task, context, memory)
    return _PLANS[task.kind](task, context)


def _run_plan(plan: Plan, memory: PlannerMemory, context: PlanContext) -> Plan:
    """Run a plan and record its steps; stop if it needs a tool that is not offered."""
    try:
        acts = next(plan)
        while True:
            missing = tuple(dict.fromkeys(act.tool for act in acts if not context.has_tools(act.tool)))
            if missing:
                plan.close()
                return explain_not_offered(missing, context)
            results = yield acts
            calls = [ToolCall(result.call_id, act.tool, act.args) for act, result in zip(acts, results, strict=True)]
            memory.note_step(zip(calls, results, strict=True), context)
            acts = plan.send(results)
    except StopIteration as done:
        return done.value


def _replay_steps(plan: Plan, steps: list[PlannerStep]) -> PlannerMove:
    """Feed a plan the recorded results. What it yields after the last one is the next move."""
    try:
        acts = next(plan)
        for step in steps[:MAX_STEPS]:
            acts = plan.send(_fit_results(step, len(acts)))
    except StopIteration as done:
        return PlannerMove(answer=done.value)
    except NotUnderstood as end:
        return PlannerMove(answer=_join_answers(end.answers), failure=end.error)
    return PlannerMove(acts) if len(steps) < MAX_STEPS else PlannerMove(answer=STOPPED)


def _fit_results(step: PlannerStep, count: int) -> tuple[ToolResult, ...]:
    """Return one result per call of the plan, also if the recorded reply had fewer."""
    lost = ToolResult("", "The call has no result.", True)
    return (*step.results, *([lost] * count))[:count]
