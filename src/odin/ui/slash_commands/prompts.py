"""Text and parsing of the commands about prompts: /queue, /rewind, /undo, /redo and /loop."""

import os
from collections.abc import Sequence

from odin.core.client import Client, LoopStatus, QueuedPrompt, TurnRecord
from odin.core.errors import UsageError
from odin.core.event import Redone, Rewound
from odin.core.event_values import Delivery, FileChange, SkippedFile
from odin.core.op import ChangePrompt, DropPrompt, Rewind
from odin.core.slash_commands import make_argument_error
from odin.ui.terminal import escape_hidden, shorten

_QUEUE_USAGE = "/queue edit N TEXT, /queue drop N, /queue steer N, /queue send N"


def format_queue(queue: tuple[QueuedPrompt, ...], columns: int) -> str:
    if not queue:
        return "The queue is empty.\n"
    lines: list[str] = []
    for number, item in enumerate(queue, 1):
        delivery = "paused" if item.paused else "" if item.delivery == "queue" else item.delivery
        label = item.mode.removesuffix("_mode") + (f", {delivery}" if delivery else "")
        lines.append(shorten(f"{number:>3}  {label:<12} {escape_hidden(' '.join(item.body.split()))}", columns - 1))
    return "\n".join([*lines, _QUEUE_USAGE, ""])


async def change_queued_prompt(client: Client, rest: str) -> str:
    """Edit, drop, steer or send a queued prompt as the arguments of /queue say. Return the message to show."""
    verb, _, more = rest.partition(" ")
    number, _, text = more.strip().partition(" ")
    if verb not in ("edit", "drop", "steer", "send"):
        raise make_argument_error("queue", verb)
    snapshot = await client.snapshot()
    item = _find_queued_prompt(snapshot.queue, number)
    if verb == "drop":
        done, result = await client.submit(DropPrompt(item.id)), "Dropped"
    elif verb == "edit":
        done, result = await client.submit(ChangePrompt(item.id, text)), "Changed"
    else:
        delivery: Delivery = "steer" if verb == "steer" else "queue"
        done = await client.submit(ChangePrompt(item.id, delivery=delivery))
        result = "Runs after this turn" if delivery == "queue" and snapshot.executing else "Sent"
    prompt = text if verb == "edit" else item.body
    return f"{result}: {shorten(' '.join(prompt.split()), 60)}" if done else "That prompt was already sent or dropped."


def _find_queued_prompt(queue: tuple[QueuedPrompt, ...], number: str) -> QueuedPrompt:
    if not number.isdecimal() or len(number) > 6 or not 1 <= int(number) <= len(queue):
        raise UsageError(f"No queued prompt number {number!r}.", "/queue lists the prompts.")
    return queue[int(number) - 1]


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
        lines.append("The conversation is back to before that prompt. /redo undoes this.")
    else:
        lines.append("The conversation is unchanged. /redo undoes this.")
    return "\n".join(lines) + "\n"


def format_file_lines(changes: Sequence[FileChange], skipped: Sequence[SkippedFile], cwd: str) -> list[str]:
    lines: list[str] = []
    for change in sorted(changes, key=lambda change: change.after.path):
        verb = "removed" if change.after.kind == "absent" else "restored"
        lines.append(f"{verb:<8}  {_relative_path_of(change.after.path, cwd)}")
    return lines + [f"skipped   {_relative_path_of(file.path, cwd)} ({file.reason})" for file in skipped]


def _relative_path_of(path: str, cwd: str) -> str:
    return escape_hidden(os.path.relpath(path, cwd))


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
