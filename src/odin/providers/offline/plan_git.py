"""Plans that ask git. Every command is literal and only looks, except one the user typed in full."""

import re

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.plan_change import quoted
from odin.providers.offline.plan_run import command_act, last_lines, ran
from odin.providers.offline.task import Desk, Plan, Task
from odin.providers.offline.wording import counted, fenced, reason

_DIFF_LINES = 200
_KINDS = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "in conflict",
    "?": "untracked",
}


def git(task: Task, desk: Desk) -> Plan:
    commands = _commands(task, desk)
    answers = yield tuple(command_act(command) for command in commands)
    trouble = _trouble(commands[0], answers[0])
    if trouble:
        return trouble
    texts = [results.output(answer) for answer in answers]
    return _ANSWERS[task.how](task, texts) if task.how in _ANSWERS else ran(commands[0], answers[0])


def _commands(task: Task, desk: Desk) -> tuple[str, ...]:
    path = f" -- {quoted(desk.shown(desk.absolute(task.path)))}" if task.path else ""
    if task.how == "typed":
        return (task.command,)
    if task.how == "changes":
        return ("git status --short --branch", "git diff --stat HEAD")
    simple = {
        "status": "git status --short --branch",
        "diff": f"git diff HEAD{path}",
        "log": f"git log -n {max(1, task.first)} --date=short --format='%h %ad %an: %s'{path}",
        "who": f"git log -n 1 --date=short --format='%h|%an|%ad|%s'{path}",
        "branch": "git branch --show-current",
        "branches": "git branch",
        "show": f"git show --stat {task.term or 'HEAD'}",
        "count": "git rev-list --count HEAD",
    }
    return (simple[task.how],)


def _trouble(command: str, result: ToolResult) -> str:
    if results.was_refused(result):
        return f"`{command}` was not run: {reason(result.text)}"
    if "not a git repository" in result.text:
        return "This folder is not a git repository."
    if re.search(
        r"does not have any commits yet|unknown revision .*HEAD|bad revision 'HEAD'|ambiguous argument 'HEAD'",
        result.text,
    ):
        return "This repository has no commits yet."
    if results.exit_code(result) != 0:
        return ran(command, result)
    return ""


def _status(task: Task, texts: list[str]) -> str:
    lines = texts[0].splitlines()
    branch = next((line[3:] for line in lines if line.startswith("## ")), "")
    files = [
        line for line in lines if line.strip() and not line.startswith("## ") and re.match(r"[ MADRCU?!]{2} ", line)
    ]
    where = f"On branch `{branch.split('...')[0].removeprefix('No commits yet on ')}`" if branch else "On no branch"
    ahead = re.search(r"\[(.+)\]", branch)
    head = f"{where}{f' ({ahead[1]})' if ahead else ''}"
    if not files:
        return f"{head}: nothing has changed since the last commit."
    listed = [f"- {line[3:]} ({_kind(line[:2])})" for line in files[:60]]
    more = [f"- and {len(files) - 60} more"] if len(files) > 60 else []
    return f"{head}: {counted(len(files), 'file has', 'files have')} changed.\n\n" + "\n".join([*listed, *more])


def _kind(code: str) -> str:
    letter = code.strip()[:1]
    staged = ", staged" if code[0] not in " ?" else ""
    return _KINDS.get(letter, "changed") + staged


def _changes(task: Task, texts: list[str]) -> str:
    status = _status(task, texts)
    stat = texts[1] if len(texts) > 1 else ""
    last = stat.strip().splitlines()[-1].strip() if stat.strip() else ""
    return f"{status}\n\nIn all: {last}." if re.match(r"\d+ files? changed", last) else status


def _diff(task: Task, texts: list[str]) -> str:
    where = f" in `{task.path}`" if task.path else ""
    if not texts[0].strip():
        return f"There is no difference to the last commit{where}."
    lines = texts[0].splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    shown = "\n".join(lines[:_DIFF_LINES])
    more = f"\n\n{len(lines) - _DIFF_LINES} more lines are not shown." if len(lines) > _DIFF_LINES else ""
    head = f"The difference to the last commit{where}: {counted(added, 'line')} added, {removed} removed."
    return f"{head}\n\n{fenced(shown, 'diff')}{more}"


def _log(task: Task, texts: list[str]) -> str:
    lines = [line for line in texts[0].splitlines() if line.strip()]
    where = f" to `{task.path}`" if task.path else ""
    if not lines:
        return f"There are no commits{where}."
    head = "The last commit" if len(lines) == 1 else f"The last {len(lines)} commits"
    return f"{head}{where}:\n\n" + "\n".join(f"- {line}" for line in lines)


def _who(task: Task, texts: list[str]) -> str:
    parts = texts[0].strip().split("|", 3)
    if len(parts) < 4:
        return f"git knows no commit that changed `{task.path}`."
    commit, author, date, subject = parts
    return f"{author} changed `{task.path}` last, on {date}, in {commit}: {subject}"


def _branch(task: Task, texts: list[str]) -> str:
    name = texts[0].strip()
    return f"You are on branch `{name}`." if name else "You are on no branch: HEAD is detached."


def _branches(task: Task, texts: list[str]) -> str:
    names = [line.rstrip() for line in texts[0].splitlines() if line.strip()]
    if not names:
        return "There are no branches yet."
    lines = [f"- {name.lstrip('*+ ')}{' (current)' if name.startswith('*') else ''}" for name in names[:60]]
    return f"{counted(len(names), 'branch', 'branches')}:\n\n" + "\n".join(lines)


def _show(task: Task, texts: list[str]) -> str:
    return f"The commit {task.term or 'HEAD'}:\n\n{fenced(last_lines(texts[0], _DIFF_LINES))}"


def _count(task: Task, texts: list[str]) -> str:
    number = texts[0].strip()
    return f"There are {number} commits." if number != "1" else "There is 1 commit."


_ANSWERS = {
    "status": _status,
    "changes": _changes,
    "diff": _diff,
    "log": _log,
    "who": _who,
    "branch": _branch,
    "branches": _branches,
    "show": _show,
    "count": _count,
}
