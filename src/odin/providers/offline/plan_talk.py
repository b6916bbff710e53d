"""Plans that touch no file, or only undo: help, the todo list, where we are, taking a change back."""

from collections.abc import Generator
from typing import Any

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.memory import PlannerChange, PlannerMemory
from odin.providers.offline.plan_change import quote_for_shell
from odin.providers.offline.reach import make_read_call, report_failure
from odin.providers.offline.task import Plan, PlanContext, PlannedCall, PlannerTask
from odin.providers.offline.wording import HELLO, explain_not_offered, extract_reason, format_count

_EDITS_PER_BATCH = 20


def plan_help(task: PlannerTask, desk: PlanContext) -> Plan:
    yield from ()
    return "You are welcome." if task.variant == "thanks" else HELLO


def plan_where(task: PlannerTask, desk: PlanContext) -> Plan:
    yield from ()
    return f"The working directory is `{desk.cwd}`."


def plan_mkdir(task: PlannerTask, desk: PlanContext) -> Plan:
    yield from ()
    path = quote_for_shell(task.path)
    return (
        f"I make folders only together with a file in them. Say: run `mkdir -p {path}`, or create a file such as "
        f"{task.path.rstrip('/')}/notes.txt."
    )


def plan_move(task: PlannerTask, desk: PlanContext) -> Plan:
    yield from ()
    return (
        f"I have no tool that moves files, so `{task.path}` is where it was. Say: run `mv {quote_for_shell(task.path)} "
        f"{quote_for_shell(task.new)}` "
        "and I will run that command, if your rules allow it."
    )


def plan_todo(task: PlannerTask, desk: PlanContext, memory: PlannerMemory) -> Plan:
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
    return f"{format_count(len(items), 'todo')}:\n\n" + "\n".join(lines)


def plan_undo(task: PlannerTask, desk: PlanContext, memory: PlannerMemory) -> Plan:
    """Take the last replacement back, where the files still are as it left them; say how for the rest."""
    if not memory.changes:
        return "I have changed nothing in this session, so there is nothing to undo."
    if not desk.has_tools("EditTool"):
        return explain_not_offered(("EditTool",), desk)
    edits = [made for made in memory.changes if made.call.name != "WriteFile"]
    written = [made for made in memory.changes if made.call.name == "WriteFile"]
    lines: list[str] = []
    for start in range(0, len(edits), _EDITS_PER_BATCH):
        lines += yield from _reverse_edits(edits[start : start + _EDITS_PER_BATCH], desk)
    lines += [_explain_unwritten(made, desk) for made in written]
    return "\n".join(lines)


def _reverse_edits(
    edits: list[PlannerChange], desk: PlanContext
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
        act = _make_reversal([made for made in edits if made.call.args["file_path"] == path], now.get(path), desk)
        if act:
            acts[path] = act
        else:
            lines.append(_explain_by_hand(path, desk))
    if not acts:
        return lines
    done = yield tuple(acts.values())
    for path, answer in zip(acts, done, strict=True):
        name = desk.display_path(path)
        lines.append(
            f"`{name}` was not changed back: {extract_reason(answer.text)}"
            if answer.is_error
            else f"Took back the last change in `{name}`."
        )
    return lines


def _make_reversal(edits: list[PlannerChange], now: results.ReadPage | None, desk: PlanContext) -> PlannedCall | None:
    """The one call that takes a file's edits back, or None when that could hit something else."""
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
            if desk.has_tools("MultiEditTool")
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


def _explain_by_hand(path: str, desk: PlanContext) -> str:
    name = desk.display_path(path)
    return (
        f"I cannot take the change in `{name}` back by itself: the new text is also where the old one never was, or "
        "the file "
        f"has changed since. If it is under git, run `git diff {quote_for_shell(name)}` shows what changed and "
        f"run `git checkout -- {quote_for_shell(name)}` brings back the last commit."
    )


def _explain_unwritten(made: PlannerChange, desk: PlanContext) -> str:
    name = desk.display_path(str(made.call.args["file_path"]))
    remove = f"delete {name}" if desk.has_tools("Delete") else f"run `rm {quote_for_shell(name)}`"
    return f"I wrote `{name}` and do not delete files unasked. Say: {remove}"
