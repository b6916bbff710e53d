"""Plans that ask git. Every command is literal and only looks, except one the user typed in full."""

import re

from odin.core.message import ToolResult
from odin.providers.offline import results
from odin.providers.offline.plan_change import quote_for_shell
from odin.providers.offline.plan_run import keep_last_lines, make_command_call, report_run
from odin.providers.offline.task import Plan, PlanContext, PlannerTask
from odin.providers.offline.wording import extract_reason, format_code_block, format_count

_DIFF_LINES = 200
_CHANGE_KINDS = {
    "M": "modified",
    "A": "added",
    "D": "deleted",
    "R": "renamed",
    "C": "copied",
    "U": "in conflict",
    "?": "untracked",
}


def plan_git_query(task: PlannerTask, desk: PlanContext) -> Plan:
    commands = _build_git_commands(task, desk)
    answers = yield tuple(make_command_call(command) for command in commands)
    trouble = _explain_git_failure(commands[0], answers[0])
    if trouble:
        return trouble
    texts = [results.output_of(answer) for answer in answers]
    return _ANSWERS[task.variant](task, texts) if task.variant in _ANSWERS else report_run(commands[0], answers[0])


def _build_git_commands(task: PlannerTask, desk: PlanContext) -> tuple[str, ...]:
    path = f" -- {quote_for_shell(desk.display_path(desk.resolve_path(task.path)))}" if task.path else ""
    if task.variant == "typed":
        return (task.command,)
    if task.variant == "changes":
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
    return (simple[task.variant],)


def _explain_git_failure(command: str, result: ToolResult) -> str:
    if results.was_refused(result):
        return f"`{command}` was not run: {extract_reason(result.text)}"
    if "not a git repository" in result.text:
        return "This folder is not a git repository."
    if re.search(
        r"does not have any commits yet|unknown revision .*HEAD|bad revision 'HEAD'|ambiguous argument 'HEAD'",
        result.text,
    ):
        return "This repository has no commits yet."
    if results.exit_code_of(result) != 0:
        return report_run(command, result)
    return ""


def _answer_status(task: PlannerTask, texts: list[str]) -> str:
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
    listed = [f"- {line[3:]} ({_change_kind_of(line[:2])})" for line in files[:60]]
    more = [f"- and {len(files) - 60} more"] if len(files) > 60 else []
    return f"{head}: {format_count(len(files), 'file has', 'files have')} changed.\n\n" + "\n".join([*listed, *more])


def _change_kind_of(code: str) -> str:
    letter = code.strip()[:1]
    staged = ", staged" if code[0] not in " ?" else ""
    return _CHANGE_KINDS.get(letter, "changed") + staged


def _answer_changes(task: PlannerTask, texts: list[str]) -> str:
    status = _answer_status(task, texts)
    stat = texts[1] if len(texts) > 1 else ""
    last = stat.strip().splitlines()[-1].strip() if stat.strip() else ""
    return f"{status}\n\nIn all: {last}." if re.match(r"\d+ files? changed", last) else status


def _answer_diff(task: PlannerTask, texts: list[str]) -> str:
    where = f" in `{task.path}`" if task.path else ""
    if not texts[0].strip():
        return f"There is no difference to the last commit{where}."
    lines = texts[0].splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    shown = "\n".join(lines[:_DIFF_LINES])
    more = f"\n\n{len(lines) - _DIFF_LINES} more lines are not shown." if len(lines) > _DIFF_LINES else ""
    head = f"The difference to the last commit{where}: {format_count(added, 'line')} added, {removed} removed."
    return f"{head}\n\n{format_code_block(shown, 'diff')}{more}"


def _answer_log(task: PlannerTask, texts: list[str]) -> str:
    lines = [line for line in texts[0].splitlines() if line.strip()]
    where = f" to `{task.path}`" if task.path else ""
    if not lines:
        return f"There are no commits{where}."
    head = "The last commit" if len(lines) == 1 else f"The last {len(lines)} commits"
    return f"{head}{where}:\n\n" + "\n".join(f"- {line}" for line in lines)


def _answer_who(task: PlannerTask, texts: list[str]) -> str:
    parts = texts[0].strip().split("|", 3)
    if len(parts) < 4:
        return f"git knows no commit that changed `{task.path}`."
    commit, author, date, subject = parts
    return f"{author} changed `{task.path}` last, on {date}, in {commit}: {subject}"


def _answer_branch(task: PlannerTask, texts: list[str]) -> str:
    name = texts[0].strip()
    return f"You are on branch `{name}`." if name else "You are on no branch: HEAD is detached."


def _answer_branches(task: PlannerTask, texts: list[str]) -> str:
    names = [line.rstrip() for line in texts[0].splitlines() if line.strip()]
    if not names:
        return "There are no branches yet."
    lines = [f"- {name.lstrip('*+ ')}{' (current)' if name.startswith('*') else ''}" for name in names[:60]]
    return f"{format_count(len(names), 'branch', 'branches')}:\n\n" + "\n".join(lines)


def _answer_show(task: PlannerTask, texts: list[str]) -> str:
    return f"The commit {task.term or 'HEAD'}:\n\n{format_code_block(keep_last_lines(texts[0], _DIFF_LINES))}"


def _answer_count(task: PlannerTask, texts: list[str]) -> str:
    number = texts[0].strip()
    return f"There are {number} commits." if number != "1" else "There is 1 commit."


_ANSWERS = {
    "status": _answer_status,
    "changes": _answer_changes,
    "diff": _answer_diff,
    "log": _answer_log,
    "who": _answer_who,
    "branch": _answer_branch,
    "branches": _answer_branches,
    "show": _answer_show,
    "count": _answer_count,
}
