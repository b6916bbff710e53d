"""`/queue`, `/steer` and `/continue` in a conversation: what waits, and what is said to the turn that runs.

`/rewind`, `/undo` and `/redo` in a conversation: which prompt is meant, and what became of its files.

`/compact` in a conversation: the older part becomes a summary, while the keyboard stays free.

`/loop` in a conversation: Odin goes on by itself until a goal is reached, and says how that is getting on.

Commands of the user's own in a conversation: `!make test`. What they print is shown as it comes.

`/rules` in a conversation: the rules that hold, one more, one less.

How much a person is asked: `/permissions` and `/yolo` in a conversation.
"""

import os
import time
from typing import TextIO

from odin.core.client import Client, TurnRecord
from odin.core.errors import OdinError, UsageError
from odin.core.event import (
    Compacted,
    CompactionChanged,
    ContextAdded,
    Event,
    LoopChanged,
    Mode,
    Redone,
    Rewound,
    ToolProgressed,
)
from odin.core.op import (
    CancelCompaction,
    Compact,
    Continue,
    Prompt,
    Redo,
    RemoveLastMessage,
    RemoveRule,
    Rewind,
    RunUserShell,
    SetLoop,
)
from odin.ui.event_lines import SCOPE_WORDS
from odin.ui.slash_commands.permissions import RULES_USAGE, PermissionModeSwitch, find_rule, format_rules, parse_rule
from odin.ui.slash_commands.prompts import (
    LOOP_ENDS,
    change_queued_prompt,
    describe_loop_end,
    describe_loop_status,
    describe_rewind,
    format_queue,
    parse_force,
    parse_rewind,
)
from odin.ui.terminal import escape_control, escape_hidden, shorten, size_of, write_line, write_text

QUEUE_COMMANDS = ("/queue", "/steer", "/continue", "/forget")
QUEUE_HELP = (
    "A line typed while Odin works waits; /queue lists what waits, /steer TEXT says it at once, !COMMAND runs one of "
    "yours. Ctrl-C stops the turn, /continue goes on, /forget takes the last message out."
)


async def run_queue_command(client: Client, command: str, rest: str, mode: Mode, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    if command == "/continue":
        await client.submit(Continue(os.urandom(6).hex()))
    elif command == "/forget":
        removed = await client.submit(RemoveLastMessage())
        write_line(
            err, "The last message was taken out of the conversation." if removed else "There is no message to forget."
        )
    elif command == "/steer":
        await submit_steering(client, rest.strip(), mode, err)
    elif not rest.strip():
        write_text(err, format_queue((await client.snapshot()).queue, size_of(err)[0]))
    else:
        write_line(err, await change_queued_prompt(client, rest.strip()))


async def submit_steering(client: Client, text: str, mode: Mode, err: TextIO) -> None:
    """Words for the turn that runs; when none does they are an ordinary prompt."""
    if not text:
        raise UsageError("/steer needs words.", "Write /steer TEXT.")
    prompt = Prompt(os.urandom(6).hex(), text, mode, delivery="steer")
    await client.submit(prompt)
    if any(item.id == prompt.id for item in (await client.snapshot()).queue):
        write_line(err, "It is told before anything else is begun.")


REWIND_COMMANDS = ("/rewind", "/undo", "/redo")
REWIND_HELP = "/undo takes the last prompt back, /rewind N an earlier one, /redo undoes that."
_MAX_PROMPTS_LISTED = 20


async def run_rewind_command(client: Client, command: str, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    try:
        if command == "/redo":
            await _submit_and_report(client, Redo(force=parse_force(rest.split())), err)
        elif command == "/rewind" and not rest.strip():
            write_text(err, _format_prompts((await client.snapshot()).messages))
        else:
            await _submit_and_report(
                client, parse_rewind(rest.split(), (await client.snapshot()).messages, command), err
            )
    except OdinError as error:
        write_line(err, error.describe())


def _format_prompts(turns: tuple[TurnRecord, ...]) -> str:
    if not turns:
        return "There is no prompt to take back yet.\n"
    lines: list[str] = []
    for number, turn in enumerate(reversed(turns[-_MAX_PROMPTS_LISTED:]), 1):
        when = time.strftime("%H:%M", time.localtime(turn.started))
        files = "1 file " if turn.files == 1 else f"{turn.files} files"
        text = escape_hidden(" ".join(turn.body.split())) or "(continued)"
        lines.append(f"{number:>3}  {when}  {files:>8}  {shorten(text, 60)}")
    if len(turns) > _MAX_PROMPTS_LISTED:
        lines.append(f"     and {len(turns) - _MAX_PROMPTS_LISTED} earlier ones, up to number {len(turns)}")
    lines.append("/rewind N goes back to before number N; add files or chat for only one of them.")
    return "\n".join(lines) + "\n"


async def _submit_and_report(client: Client, op: Rewind | Redo, err: TextIO) -> None:
    events = client.stream_events()
    await client.submit(op)
    async for envelope in events:
        if isinstance(envelope.event, Rewound | Redone):
            write_text(err, describe_rewind(envelope.event, (await client.get_info()).cwd))
            return


COMPACT_COMMANDS = ("/compact",)
COMPACT_HELP = "/compact [what matters] summarises the conversation so far; Ctrl-C or /compact cancel stops that."
_NO_SUMMARY = "No summary is made: there is too little to summarise, one is being made already, or a hook said no."


class CompactionView:
    """The summary that a person asked for: whether it is being made, and what came of it."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self.is_running = False

    async def run_command(self, client: Client, rest: str) -> None:
        if rest.strip() == "cancel":
            await self.cancel(client)
        elif not await client.submit(Compact(rest.strip())):
            write_line(self._err, _NO_SUMMARY)

    async def cancel(self, client: Client) -> None:
        """Give it up. What becomes of one that a person asked for is told by its events."""
        told, self.is_running = self.is_running, False
        if not await client.submit(CancelCompaction()):
            write_line(self._err, "No summary is being made.")
        elif not told:
            write_line(self._err, "The summary was given up.")

    def wants(self, event: Event) -> bool:
        if isinstance(event, CompactionChanged):
            return event.trigger == "manual" and event.status != "succeeded"
        return isinstance(event, Compacted) and event.trigger == "manual"

    def show(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.is_running = False
            write_line(self._err, f"About {event.tokens_before:,} tokens became {event.tokens_after:,}.")
            if event.archive:
                write_line(self._err, f"The whole is in {event.archive}.")
        elif isinstance(event, CompactionChanged):
            self.is_running = event.status == "started" or not event.final
            own = "" if event.final else " Odin writes one from what it knows."
            given_up = event.detail or "The summary was given up."
            write_line(self._err, "Summarising…" if event.status == "started" else f"{given_up}{own}")


LOOP_COMMANDS = ("/loop",)
LOOP_HELP = (
    "/loop on [GOAL] keeps Odin at work until the goal is reached; /loop off ends that, /loop says how far it is."
)


class LoopView:
    """What a person wants of loop mode, and what became of it."""

    def __init__(self, err: TextIO) -> None:
        self._err = err

    async def run_command(self, client: Client, rest: str, mode: Mode) -> None:
        """Do what was typed and say what holds now."""
        verb, _, target = rest.strip().partition(" ")
        if verb == "on":
            await client.submit(SetLoop(True, target.strip(), mode))
            write_line(self._err, describe_loop_status(await client.get_loop_status()))
        elif verb == "off":
            if not await client.submit(SetLoop(False)):
                write_line(self._err, "Loop mode is off already.")
        elif verb:
            raise UsageError(f"/loop does not know {verb!r}.", "Write /loop on [GOAL], /loop off, or /loop alone.")
        else:
            write_line(self._err, describe_loop_status(await client.get_loop_status()))

    def wants(self, event: Event) -> bool:
        return isinstance(event, LoopChanged) and event.state in LOOP_ENDS

    def show(self, event: Event) -> None:
        if isinstance(event, LoopChanged):
            write_line(self._err, describe_loop_end(LOOP_ENDS[event.state], event.reason))


class UserShellView:
    """Those that run, with what was shown of each."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._shown: dict[str, str] = {}

    @property
    def is_running(self) -> bool:
        return bool(self._shown)

    async def start(self, client: Client, command: str) -> None:
        op = RunUserShell(os.urandom(6).hex(), command)
        self._shown[op.id] = ""
        try:
            await client.submit(op)
        except BaseException:
            del self._shown[op.id]
            raise

    def wants(self, event: Event) -> bool:
        """Whether there is something to show of one of them."""
        if isinstance(event, ToolProgressed):
            return event.call_id in self._shown
        return isinstance(event, ContextAdded) and event.id in self._shown

    def show(self, event: Event) -> None:
        if isinstance(event, ToolProgressed):
            text = f"{event.text}\n"
            self._shown[event.call_id] += text
        elif isinstance(event, ContextAdded):
            shown = self._shown.pop(event.id)
            whole = f"{event.content}\n"
            text = whole.removeprefix(shown)
        else:
            return
        write_text(self._err, escape_control(text))


RULES_HELP = "/rules lists the rules; /rules add TEXT and /rules remove N change them."


async def run_rules_command(client: Client, rest: str, err: TextIO) -> None:
    """Do what was typed and say what came of it."""
    verb, _, more = rest.strip().partition(" ")
    try:
        if not verb:
            write_text(err, format_rules(await client.list_rules()))
        elif verb == "add":
            write_text(err, await _add_rule(client, more))
        elif verb == "remove":
            write_text(err, await _remove_rule(client, more.strip()))
        else:
            raise UsageError(f"/rules does not know {verb!r}.", RULES_USAGE)
    except OdinError as error:
        write_line(err, error.describe())


async def _add_rule(client: Client, text: str) -> str:
    op = parse_rule(text)
    await client.submit(op)
    return f"Remembered {SCOPE_WORDS[op.scope]}: {op.action} {escape_hidden(op.text)}\n"


async def _remove_rule(client: Client, text: str) -> str:
    found = find_rule(await client.list_rules(), text)
    await client.submit(RemoveRule(found.number))
    return f"Removed: {found.action} {escape_hidden(found.text)}\n"


PERMISSION_COMMANDS = ("/yolo", "/permissions")
PERMISSION_HELP = "/permissions MODE chooses how much is asked; /yolo on asks nothing at all."


async def run_permissions_command(strictness: PermissionModeSwitch, command: str, rest: str, err: TextIO) -> None:
    try:
        write_line(err, await strictness.run_command(command, rest))
    except OdinError as error:
        write_line(err, error.describe())
