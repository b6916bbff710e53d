"""The prompts that wait, in words: the list of them, and what can be done to one."""

from odin.core.client import Client, QueuedPrompt
from odin.core.errors import UsageError
from odin.core.event import Delivery
from odin.core.op import ChangePrompt, DropPrompt
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
