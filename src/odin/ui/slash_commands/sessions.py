"""Text and parsing of the commands about sessions and their prompts.

Sessions: the list, the numbered picker, and /export. Prompts: /queue, /rewind, /undo, /redo and /loop.
"""

import os
from collections.abc import Sequence

from odin.core.client import Client, ExportFormat, LoopStatus, QueuedPrompt, SessionMatch, SessionSummary, TurnRecord
from odin.core.errors import UsageError
from odin.core.event import Redone, Rewound
from odin.core.event_values import Delivery, FileChange, SkippedFile
from odin.core.format import format_time, pluralize
from odin.core.op import ChangePrompt, DropPrompt, Rewind
from odin.core.path_names import contains
from odin.core.slash_commands import make_argument_error, make_usage_error
from odin.ui.terminal import escape_hidden, measure_width, shorten, shorten_home

MAX_SESSIONS_LISTED = 20
PICK_PROMPT = "Number, words to filter the list, or Enter to cancel: "


def format_session(session: SessionSummary, columns: int = 100, here: str = "") -> str:
    """Return the ID, date and title of a session in one row. `here` is the ID of the current session."""
    about = escape_hidden(" ".join((session.title or session.first or "(no prompts)").split()))
    marks = [pluralize(session.turns, "prompt")]
    if session.forked_from:
        marks.append("copy")
    if session.headless:
        marks.append("odin -p")
    if session.locked:
        marks.append("current" if session.id == here else f"open: {escape_hidden(session.locked.partition(' on ')[0])}")
    left = f"{escape_hidden(session.id)}  {format_time(session.modified)}  "
    right = f"  ({', '.join(marks)})"
    row = f"{left}{shorten(about, max(columns - 1 - len(left) - measure_width(right), 12))}{right}"
    return shorten(row, columns - 1)


ALL_OPTION = "--all"
"""After /resume and /sessions: list the runs of `odin -p`, too."""


def list_conversations(sessions: Sequence[SessionSummary], rest: str, here: str = "") -> list[SessionSummary]:
    """Return the sessions without the runs of `odin -p`, or all with `--all`. The current session always counts."""
    return [item for item in sessions if ALL_OPTION in rest.split() or not item.headless or item.id == here]


def strip_all_option(rest: str) -> str:
    return " ".join(word for word in rest.split() if word != ALL_OPTION)


def describe_hidden(sessions: Sequence[SessionSummary], rest: str) -> str:
    """Return a line about the runs of `odin -p` that a list leaves out, or ""."""
    count = len(sessions) - len(list_conversations(sessions, rest))
    return f"{pluralize(count, 'run')} of `odin -p` not listed; {ALL_OPTION} lists them." if count else ""


def format_match(match: SessionMatch, columns: int = 100, here: str = "") -> list[str]:
    found = f"    {match.where}: {escape_hidden(' '.join(match.snippet.split()))}"
    return [format_session(match.session, columns, here), shorten(found, columns - 1)]


def filter_sessions(sessions: Sequence[SessionSummary], words: str) -> list[SessionSummary]:
    """Return the sessions whose ID, title or prompts contain all the words."""
    needles = words.lower().split()
    return [item for item in sessions if all(word in _make_search_text(item) for word in needles)]


def _make_search_text(session: SessionSummary) -> str:
    return f"{session.id}\n{session.title}\n{session.first}\n{session.original}".lower()


class PlainSessionPicker:
    """A numbered list of sessions that typed words filter."""

    def __init__(self, sessions: Sequence[SessionSummary]) -> None:
        self._all = [item for item in sessions if item.turns]
        self._filtered = self._all

    def format_lines(self, columns: int = 100) -> list[str]:
        if not self._filtered:
            return ["No earlier sessions in this project." if not self._all else "No matching sessions."]
        rows = [
            f"{number:>3}  {format_session(item, columns - 5)}"
            for number, item in enumerate(self._filtered[:MAX_SESSIONS_LISTED], 1)
        ]
        more = len(self._filtered) - MAX_SESSIONS_LISTED
        return [*rows, f"     and {pluralize(more, 'older session')}; type words to filter"] if more > 0 else rows

    @property
    def is_empty(self) -> bool:
        return not self._all

    def parse_choice(self, typed: str) -> str | None:
        """Return the chosen ID, "" to cancel, or None to show the filtered list again."""
        typed = typed.strip()
        if not typed:
            return ""
        if typed.isdecimal() and 1 <= int(typed) <= min(len(self._filtered), MAX_SESSIONS_LISTED):
            return self._filtered[int(typed) - 1].id
        matches = filter_sessions(self._all, typed)
        if any(item.id == typed for item in matches):
            return typed
        self._filtered = matches
        return None


_EXPORT_FORMATS: dict[str, ExportFormat] = {"json": "json", "html": "html", "markdown": "markdown", "md": "markdown"}


def parse_export(words: list[str]) -> tuple[ExportFormat, str]:
    """Return the format and the path, which may be empty. The format is an option (`--json`) or the first word."""
    rest = list(words)
    chosen: list[ExportFormat] = [
        form for word in words if word.startswith("--") and (form := _EXPORT_FORMATS.get(word[2:]))
    ]
    if not chosen and rest and rest[0] in _EXPORT_FORMATS:
        chosen = [_EXPORT_FORMATS[rest.pop(0)]]
    paths = [word for word in rest if not (word.startswith("--") and word[2:] in _EXPORT_FORMATS)]
    if len(chosen) > 1 or len(paths) > 1 or any(path.startswith("--") for path in paths):
        raise make_usage_error("export", "Too many arguments or an unknown option.")
    path = paths[0] if paths else ""
    return (chosen[0] if chosen else choose_format(path)), path


def choose_format(path: str) -> ExportFormat:
    """Return the export format that a file name implies; Markdown by default."""
    ending = path.rpartition(".")[2].lower()
    if ending == "json":
        return "json"
    return "html" if ending in ("html", "htm") else "markdown"


_QUEUE_USAGE = "/queue edit N TEXT, /queue drop N, /queue steer N, /queue send N"


def format_queue(queue: tuple[QueuedPrompt, ...], columns: int) -> str:
    if not queue:
        return "The queue is empty.\n"
    lines: list[str] = []
    for number, item in enumerate(queue, 1):
        delivery = "paused" if item.paused else "" if item.delivery == "queue" else item.delivery
        label = item.mode.removesuffix("_mode") + (f", {delivery}" if delivery else "")
        label = f"{item.agent}: {label}" if item.agent else label
        lines.append(shorten(f"{number:>3}  {label:<12} {escape_hidden(' '.join(item.body.split()))}", columns - 1))
    return "\n".join([*lines, _QUEUE_USAGE, ""])


async def change_queued_prompt(client: Client, rest: str) -> str:
    """Edit, drop, steer or send a queued prompt as the arguments of /queue say. Return the message to show."""
    verb, _, more = rest.partition(" ")
    number, _, text = more.strip().partition(" ")
    if verb not in ("edit", "drop", "steer", "send"):
        raise make_argument_error("queue", verb)
    snapshot = await client.snapshot()
    queue = snapshot.queue
    if not number.isdecimal() or len(number) > 6 or not 1 <= int(number) <= len(queue):
        raise UsageError(f"No queued prompt number {number!r}.", "/queue lists the prompts.")
    item = queue[int(number) - 1]
    if verb == "drop":
        done, result = await client.submit(DropPrompt(item.id, item.agent)), "Dropped"
    elif verb == "edit":
        done, result = await client.submit(ChangePrompt(item.id, text, agent=item.agent)), "Changed"
    else:
        delivery: Delivery = "steer" if verb == "steer" else "queue"
        done = await client.submit(ChangePrompt(item.id, delivery=delivery, agent=item.agent))
        result = "Runs after this turn" if delivery == "queue" and snapshot.executing else "Sent"
    prompt = text if verb == "edit" else item.body
    return f"{result}: {shorten(' '.join(prompt.split()), 60)}" if done else "That prompt was already sent or dropped."


def find_prompt(turns: Sequence[TurnRecord], number: str) -> TurnRecord:
    """Return the prompt with this number, counted from the last. Raise UsageError if there is none."""
    if not number.isdecimal() or len(number) > 6 or not 1 <= int(number) <= len(turns):
        raise UsageError(f"No prompt number {number}.", "/rewind lists the prompts; 1 is the last.")
    return turns[-int(number)]


def parse_force(words: list[str]) -> bool:
    """Parse the arguments of /redo."""
    if unknown := [word for word in words if word != "force"]:
        raise make_argument_error("redo", unknown[0])
    return "force" in words


def parse_rewind(words: list[str], turns: Sequence[TurnRecord], command: str) -> Rewind:
    """Parse the arguments of /rewind or /undo."""
    number = words.pop(0) if words and words[0].isdecimal() else "1"
    if unknown := [word for word in words if word not in ("files", "chat", "force")]:
        raise make_argument_error(command, unknown[0])
    both = ("files" in words) == ("chat" in words)
    return Rewind(
        find_prompt(turns, number).id,
        files=both or "files" in words,
        chat=both or "chat" in words,
        force="force" in words,
    )


def describe_rewind(event: Rewound | Redone, cwd: str) -> str:
    """Return the changed and skipped files of a rewind or redo, and what happened to the conversation."""
    lines = format_file_lines(event.changes, event.skipped_files, cwd)
    if event.skipped_files and isinstance(event, Rewound):
        lines.append("To restore the skipped files too: /redo, then repeat the command with force.")
    if isinstance(event, Redone):
        lines.append("Rewind undone.")
    elif event.chat:
        if event.stopped:
            lines.append(f"Stopped what it had started: {escape_hidden(', '.join(event.stopped))}.")
        lines.append("The conversation is back to before that prompt. /redo undoes this.")
    else:
        lines.append("The conversation is unchanged. /redo undoes this.")
    return "\n".join(lines) + "\n"


def format_file_lines(changes: Sequence[FileChange], skipped: Sequence[SkippedFile], cwd: str) -> list[str]:
    lines: list[str] = []
    for change in sorted(changes, key=lambda change: change.after.path):
        verb = "removed" if change.after.kind == "absent" else "restored"
        lines.append(f"{verb:<8}  {_get_relative_path(change.after.path, cwd)}")
    return lines + [f"skipped   {_get_relative_path(file.path, cwd)} ({file.reason})" for file in skipped]


def _get_relative_path(path: str, cwd: str) -> str:
    """Return a path below the working directory relative to it, and any other path as it is."""
    return escape_hidden(os.path.relpath(path, cwd) if contains(cwd, path) else shorten_home(path))


LOOP_ENDS = {
    "completed": "Loop mode ended: goal reached",
    "blocked": "Loop mode ended: the model is blocked",
    "budget_exhausted": "Loop mode ended: goal not reached",
    "idle": "Loop mode is off",
}


def describe_loop_status(status: LoopStatus) -> str:
    if status.state == "idle":
        return describe_loop_end("idle", status.reason)
    used = f"{status.iteration} of {status.limit} iterations"
    cost = f", ${status.cost_usd:,.4f}" if status.cost_usd else ""
    if status.is_active:
        return f"Loop mode is on ({status.state}, {used}{cost}): {escape_hidden(status.goal)}"
    return f"{describe_loop_end(status.state, status.reason)} ({used}{cost})"


def describe_loop_end(state: str, reason: str) -> str:
    """Return one line on why loop mode ended; `state` is a key of LOOP_ENDS."""
    if not reason:
        return f"{LOOP_ENDS[state]}."
    return f"{LOOP_ENDS[state]}{':' if state == 'idle' else '.'} {escape_hidden(reason)}"
