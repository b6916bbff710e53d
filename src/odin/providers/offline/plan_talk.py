"""Plans that touch no file, or only undo: help, the todo list, where we are, taking a change back."""

from collections.abc import Generator
from typing import Any

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.memory import Made, Memory
from odin.providers.offline.plan_change import quoted
from odin.providers.offline.reach import failed, read_act
from odin.providers.offline.task import Act, Desk, Plan, Task
from odin.providers.offline.wording import HELLO, counted, not_offered, reason

_BATCH = 20


def help_(task: Task, desk: Desk) -> Plan:
    yield from ()
    return "You are welcome." if task.how == "thanks" else HELLO


def where(task: Task, desk: Desk) -> Plan:
    yield from ()
    return f"The working directory is `{desk.cwd}`."


def mkdir(task: Task, desk: Desk) -> Plan:
    yield from ()
    path = quoted(task.path)
    return (
        f"I make folders only together with a file in them. Say: run `mkdir -p {path}`, or create a file such as "
        f"{task.path.rstrip('/')}/notes.txt."
    )


def move(task: Task, desk: Desk) -> Plan:
    yield from ()
    return (
        f"I have no tool that moves files, so `{task.path}` is where it was. Say: run `mv {quoted(task.path)} "
        f"{quoted(task.new)}` "
        "and I will run that command, if your rules allow it."
    )


def todo(task: Task, desk: Desk, memory: Memory) -> Plan:
    items = [dict(item) for item in memory.todos]
    if task.how == "show":
        if not items:
            return "The todo list is empty. To find TODO comments in the code, say: search for TODO"
        return _listed(items)
    if task.how == "add":
        taken = {str(item.get("id")) for item in items}
        number = len(items) + 1
        while str(number) in taken:
            number += 1
        items.append({"id": str(number), "content": task.new, "status": "pending"})
    else:
        chosen = [item for at, item in enumerate(items, 1) if task.term in (str(at), item.get("content"))]
        if not chosen:
            return f"There is no todo {task.term}. {_listed(items) if items else 'The list is empty.'}"
        chosen[0]["status"] = "completed"
    (result,) = yield (Act("TodoWrite", {"todos": items}),)
    return failed("change the todo list", result) if result.is_error else _listed(items)


def _listed(items: list[dict[str, Any]]) -> str:
    boxes = {"completed": "x", "in_progress": ">", "cancelled": "-"}
    lines = [
        f"{at}. [{boxes.get(str(item.get('status')), ' ')}] {item.get('content', '')}"
        for at, item in enumerate(items, 1)
    ]
    return f"{counted(len(items), 'todo')}:\n\n" + "\n".join(lines)


def undo(task: Task, desk: Desk, memory: Memory) -> Plan:
    """Take the last replacement back, where the files still are as it left them; say how for the rest."""
    if not memory.changes:
        return "I have changed nothing in this session, so there is nothing to undo."
    if not desk.offers("EditTool"):
        return not_offered(("EditTool",), desk)
    edits = [made for made in memory.changes if made.call.name != "WriteFile"]
    written = [made for made in memory.changes if made.call.name == "WriteFile"]
    lines: list[str] = []
    for start in range(0, len(edits), _BATCH):
        lines += yield from _reverse(edits[start : start + _BATCH], desk)
    lines += [_unwritten(made, desk) for made in written]
    return "\n".join(lines)


def _reverse(edits: list[Made], desk: Desk) -> Generator[tuple[Act, ...], tuple[ToolResult, ...], list[str]]:
    paths = list(dict.fromkeys(str(made.call.args["file_path"]) for made in edits))
    answers = yield tuple(read_act(path) for path in paths)
    now = {path: results.page(answer.text) for path, answer in zip(paths, answers, strict=True) if not answer.is_error}
    acts: dict[str, Act] = {}
    lines: list[str] = []
    for path in paths:
        act = _reversal([made for made in edits if made.call.args["file_path"] == path], now.get(path), desk)
        if act:
            acts[path] = act
        else:
            lines.append(_by_hand(path, desk))
    if not acts:
        return lines
    done = yield tuple(acts.values())
    for path, answer in zip(acts, done, strict=True):
        name = desk.shown(path)
        lines.append(
            f"`{name}` was not changed back: {reason(answer.text)}"
            if answer.is_error
            else f"Took back the last change in `{name}`."
        )
    return lines


def _reversal(edits: list[Made], now: results.Page | None, desk: Desk) -> Act | None:
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
            Act("MultiEditTool", {"file_path": args["file_path"], "edits": back})
            if desk.offers("MultiEditTool")
            else None
        )
    old, new = str(args["old_string"]), str(args["new_string"])
    before = results.page(made.before)
    known = before.lines and len(before.lines) >= before.total
    if not new or not known:
        return None
    if args.get("replace_all") and (new in before.text or now.text.count(new) != before.text.count(old)):
        return None
    return Act("EditTool", {**args, "old_string": new, "new_string": old})


def _by_hand(path: str, desk: Desk) -> str:
    name = desk.shown(path)
    return (
        f"I cannot take the change in `{name}` back by itself: the new text is also where the old one never was, or "
        "the file "
        f"has changed since. If it is under git, run `git diff {quoted(name)}` shows what changed and "
        f"run `git checkout -- {quoted(name)}` brings back the last commit."
    )


def _unwritten(made: Made, desk: Desk) -> str:
    name = desk.shown(str(made.call.args["file_path"]))
    remove = f"delete {name}" if desk.offers("Delete") else f"run `rm {quoted(name)}`"
    return f"I wrote `{name}` and do not delete files unasked. Say: {remove}"
