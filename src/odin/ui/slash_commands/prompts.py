"""The prompts that wait, in words: the list of them, and what can be done to one.

Going back in words: which prompt is meant, and what became of its files.

Loop mode in words.
"""

import os
from collections.abc import Sequence

from odin.core.client import Client, LoopStatus, QueuedPrompt, TurnRecord
from odin.core.errors import UsageError
from odin.core.event import Delivery, FileChange, Redone, Rewound, SkippedFile
from odin.core.op import ChangePrompt, DropPrompt, Rewind
from odin.ui.terminal import escape_hidden, shorten

_QUEUE_USAGE = "/queue edit N TEXT, /queue drop N, /queue steer N, /queue send N"
_PROMPT_GONE = "It was taken or dropped meanwhile."


def format_queue(waiting: tuple[QueuedPrompt, ...], columns: int) -> str:
    if not waiting:
        return "Nothing waits.\n"
    lines: list[str] = []
    for number, item in enumerate(waiting, 1):
        lane = "rests" if item.paused else "" if item.delivery == "queue" else item.delivery
        how = item.mode.removesuffix("_mode") + (f", {lane}" if lane else "")
        lines.append(shorten(f"{number:>3}  {how:<12} {escape_hidden(' '.join(item.body.split()))}", columns - 1))
    return "\n".join([*lines, _QUEUE_USAGE, ""])


async def change_queued_prompt(client: Client, rest: str) -> str:
    """Do to a waiting prompt what was typed, and say what came of it."""
    verb, _, more = rest.partition(" ")
    number, _, text = more.strip().partition(" ")
    if verb not in ("edit", "drop", "steer", "send"):
        raise UsageError(f"/queue does not know {verb!r}.", f"Write {_QUEUE_USAGE}.")
    shot = await client.snapshot()
    item = _find_queued_prompt(shot.queue, number)
    if verb == "drop":
        done, said = await client.submit(DropPrompt(item.id)), "Dropped"
    elif verb == "edit":
        done, said = await client.submit(ChangePrompt(item.id, text)), "Changed"
    else:
        lane: Delivery = "steer" if verb == "steer" else "queue"
        done = await client.submit(ChangePrompt(item.id, delivery=lane))
        said = "Begins after this turn" if lane == "queue" and shot.executing else "Sent"
    shown = text if verb == "edit" else item.body
    return f"{said}: {shorten(' '.join(shown.split()), 60)}" if done else _PROMPT_GONE


def _find_queued_prompt(waiting: tuple[QueuedPrompt, ...], number: str) -> QueuedPrompt:
    if not number.isdecimal() or len(number) > 6 or not 1 <= int(number) <= len(waiting):
        raise UsageError(f"There is no waiting prompt number {number!r}.", "/queue lists them.")
    return waiting[int(number) - 1]


def parse_force(words: list[str]) -> bool:
    if set(words) - {"force"}:
        raise UsageError(f"{' '.join(words)!r} is not understood here.", "Only the word force may follow.")
    return "force" in words


def parse_rewind(words: list[str], turns: Sequence[TurnRecord], command: str) -> Rewind:
    number = words.pop(0) if words and words[0].isdecimal() else "1"
    if set(words) - {"files", "chat", "force"}:
        raise UsageError(f"{' '.join(words)!r} is not understood here.", f"Write {command} [N] [files|chat] [force].")
    if not 1 <= int(number) <= len(turns):
        raise UsageError(f"There is no prompt number {number} to take back.", "/rewind lists them.")
    both = ("files" in words) == ("chat" in words)
    return Rewind(
        turns[-int(number)].id, files=both or "files" in words, chat=both or "chat" in words, force="force" in words
    )


def describe_rewind(event: Rewound | Redone, cwd: str) -> str:
    """What a rewind, or taking one back, has done, line by line."""
    lines = format_file_lines(event.changes, event.skipped_files, cwd)
    if event.skipped_files and isinstance(event, Rewound):
        lines.append("To take what was left alone back too, if it is saved: /redo, then the same again with force.")
    if isinstance(event, Redone):
        lines.append("That was put back.")
    elif event.chat:
        lines.append("The conversation is back to before that prompt. /redo takes this back.")
    else:
        lines.append("The conversation stays as it is. /redo takes this back.")
    return "\n".join(lines) + "\n"


def format_file_lines(changes: Sequence[FileChange], kept: Sequence[SkippedFile], cwd: str) -> list[str]:
    """A line for each file: what became of it, or why it stays."""
    lines: list[str] = []
    for change in sorted(changes, key=lambda change: change.after.path):
        verb = "removed" if change.after.kind == "absent" else "restored"
        lines.append(f"{verb:<10}  {_relative_path_of(change.after.path, cwd)}")
    return lines + [f"left alone  {_relative_path_of(file.path, cwd)} ({file.reason})" for file in kept]


def _relative_path_of(path: str, cwd: str) -> str:
    return escape_hidden(os.path.relpath(path, cwd))


LOOP_ENDS = {
    "completed": "Loop mode is over, the goal is reached",
    "blocked": "Loop mode is over, the model cannot go on",
    "budget_exhausted": "Loop mode is over, the goal is not reached",
    "idle": "Loop mode is off",
}


def describe_loop_status(status: LoopStatus) -> str:
    """How far it is, in one line."""
    if status.state == "idle":
        return describe_loop_end(LOOP_ENDS["idle"], status.reason)
    used = f"{status.iteration} of {status.limit} iterations"
    cost = f", ${status.cost_usd:,.4f}" if status.cost_usd else ""
    if status.is_active:
        return f"Loop mode is on ({status.state}, {used}{cost}): {escape_hidden(status.goal)}"
    return f"{describe_loop_end(LOOP_ENDS[status.state], status.reason)} ({used}{cost})"


def describe_loop_end(what: str, why: str) -> str:
    return f"{what}: {escape_hidden(why)}" if why else f"{what}."
