"""Text and live views of slash commands in plain mode: help, custom commands, prompts, compaction, user shell."""

import os
import time
from collections.abc import Sequence
from typing import TextIO

from odin.core.call_events import ToolProgressed
from odin.core.client import Client, CustomCommand, SessionInfo, TurnRecord
from odin.core.errors import UsageError
from odin.core.event import Compacted, CompactionChanged, ContextAdded, LoopChanged
from odin.core.event_values import Event
from odin.core.format import pluralize
from odin.core.op import RunUserShell
from odin.core.slash_commands import SLASH_COMMANDS, SlashCommand, find_slash_command
from odin.ui.slash_commands.actions import COMPACTION_CANCELED, CommandContext, compact
from odin.ui.slash_commands.reports import DOCTOR_HINT, ErrorLog, list_facts
from odin.ui.slash_commands.sessions import LOOP_ENDS, describe_loop_end
from odin.ui.terminal import (
    escape_control,
    escape_hidden,
    get_terminal_size,
    shorten,
    wrap_words,
    write_line,
    write_text,
)

HELP_LINES = (
    "/ask, /plan and /edit [TEXT] set the mode. /editor opens $EDITOR. Ctrl-D or /exit exits.",
    "Prompts typed while Odin works are queued: /queue lists them, /steer TEXT sends one at once. !COMMAND runs a "
    "shell command. Ctrl-C stops the turn, /continue resumes it, /forget removes the last message.",
    "/undo undoes the last prompt, /rewind N an earlier one, /redo reverts that.",
    "/rules lists permission rules; /rules add RULE and /rules remove N change them.",
    "/role NAME switches the role: builder, planner or one of your agent files.",
    "/permissions MODE sets the permission mode; /yolo on turns permission prompts off.",
    "/new starts a session, /resume resumes one, /fork [N] copies this one; /sessions, /rename, /delete, /export.",
    "/models lists models, /model NAME switches; also /status, /stats, /diagnostics, /errors and /show.",
    "/diff shows uncommitted changes, /review reviews them, /init writes AGENTS.md.",
    "/context shows what fills the context window, /usage tokens and cost; /budget USD limits the cost.",
    "/compact [INSTRUCTIONS] summarizes the conversation; Ctrl-C or /compact cancel stops it.",
    "/loop on [--limit N] [GOAL] keeps working until the goal is reached; /loop off stops, /loop shows progress.",
    "/loop every 10m PROMPT sends a prompt again and again, /at 18:00 PROMPT once; /loop off and /at off end that.",
    "/ps lists background processes; /ps ID shows, follows or stops one, or opens its port to your browser.",
    "/agents lists agents and tasks, /focus NAME talks to one of them, /agents stop NAME cancels its task.",
    "/commands lists custom commands.",
    "/help all lists every command, /help COMMAND explains one, /keys lists the keys; Tab completes.",
)
KEY_LINES = (
    "Enter sends the prompt; Ctrl-J or Alt-Enter breaks the line; Tab completes a command or an @ file.",
    "Up and Down, or Ctrl-P and Ctrl-N, recall earlier prompts, also of other sessions; Ctrl-R searches them.",
    "Left, Right, Home, End, Ctrl-A and Ctrl-E move; Ctrl-W deletes a word, Ctrl-U and Ctrl-K the line before or after "
    "the cursor.",
    "Ctrl-C clears the line, else stops the turn of the agent you talk to; twice it exits, as does Ctrl-D.",
    "If Odin asks while you write: Enter sends your line first, Tab answers now and keeps your line.",
    "Ctrl-Z suspends Odin; fg resumes it.",
)
UNAVAILABLE_SENTENCES = {
    "copy": "Select and copy answers with your terminal, or /export the session.",
    "transcript": "The conversation is in your terminal's scrollback; /export writes it to a file.",
    "theme": "Plain mode uses your terminal's colors; NO_COLOR=1 turns them off.",
    "mouse": "In plain mode the terminal handles the mouse.",
    "setup": "Plain mode has no setup: `odin auth` stores API keys, /models and /model set the model.",
    "vim": "Vim-style navigation needs the app: run odin without --plain.",
}
"""Commands that need the app's screen, with the alternative in plain mode."""

_NO_CUSTOM_COMMANDS = (
    "No custom commands. Create .odin/commands/NAME.md in the project, "
    "or commands/NAME.md in your configuration folder."
)
_MAX_PROMPTS_LISTED = 20
_INDENT = "    "


async def print_help(client: Client, topic: str, err: TextIO) -> None:
    columns = get_terminal_size(err)[0] if err.isatty() else 1000
    if not topic:
        for line in HELP_LINES:
            write_line(err, line)
    elif topic.casefold() == "all":
        write_text(err, "".join(_format_slash_command(command, columns) for command in SLASH_COMMANDS))
        prompts = [command for command in await client.list_commands() if command.source == "built-in"]
        write_text(err, "".join(_format_custom_command(command, columns) for command in prompts))
    elif (command := find_slash_command(topic)) is not None:
        write_text(err, _format_slash_command(command, columns))
    else:
        custom = _find_custom_command(topic.removeprefix("/"), await client.list_commands())
        write_text(err, _format_custom_command(custom, columns))


def _format_slash_command(command: SlashCommand, columns: int) -> str:
    names = ", ".join(f"/{name}" for name in (command.name, *command.aliases))
    return wrap_words(f"{names} {command.hint}".rstrip() + f": {command.help}", columns, _INDENT) + "\n"


def _find_custom_command(name: str, commands: Sequence[CustomCommand]) -> CustomCommand:
    found = next((command for command in commands if command.name.casefold() == name.casefold()), None)
    if found is None:
        raise UsageError(f"Unknown command /{name}.", "/help all and /commands list the commands.")
    return found


def _format_custom_command(command: CustomCommand, columns: int) -> str:
    description = command.description or f"Custom command ({command.source})."
    text = escape_hidden(f"/{command.name} {command.hint}".rstrip() + f": {description}")
    return wrap_words(text, columns, _INDENT) + "\n"


def format_custom_commands(commands: Sequence[CustomCommand], columns: int) -> str:
    """Return a line for each custom command, without the prompts that Odin brings."""
    own = [command for command in commands if command.source != "built-in"]
    if not own:
        return f"{wrap_words(_NO_CUSTOM_COMMANDS, columns)}\n"
    lines: list[str] = []
    for command in own:
        name = escape_hidden(f"/{command.name} {command.hint}".rstrip())
        lines.append(shorten(f"{name:<24} {escape_hidden(command.description)} ({command.source})", columns - 1))
    return "\n".join(lines) + "\n"


def format_prompts(turns: tuple[TurnRecord, ...]) -> str:
    """Return the prompts that /rewind can go back to, numbered from the last."""
    if not turns:
        return "No prompts to rewind yet.\n"
    lines: list[str] = []
    for number, turn in enumerate(reversed(turns[-_MAX_PROMPTS_LISTED:]), 1):
        when = time.strftime("%H:%M", time.localtime(turn.started))
        files = f"{pluralize(turn.files, 'file'):<7}"
        text = escape_hidden(" ".join(turn.body.split())) or "(continued)"
        lines.append(f"{number:>3}  {when}  {files:>8}  {shorten(text, 60)}")
    if len(turns) > _MAX_PROMPTS_LISTED:
        more = pluralize(len(turns) - _MAX_PROMPTS_LISTED, "earlier prompt")
        lines.append(f"     and {more}, up to number {len(turns)}")
    lines.append("/rewind N goes back to before prompt N; add `files` or `chat` to rewind only one of them.")
    return "\n".join(lines) + "\n"


def print_diagnostics(info: SessionInfo, errors: int, err: TextIO) -> None:
    for line in (info.notice, *info.warnings):
        if line:
            write_line(err, line)
    if not info.warnings:
        write_line(err, "No warnings.")
    write_line(err, f"Errors since Odin started: {errors}. /errors shows them." if errors else "No errors.")
    for name, value in list_facts(info):
        write_line(err, f"  {name:<16}{value}")
    write_line(err, DOCTOR_HINT)


def print_errors(log: ErrorLog, err: TextIO) -> None:
    if not log.newest_first:
        write_line(err, "No errors since Odin started.")
    for error in reversed(log.newest_first):
        agent = f" [{error.agent}]" if error.agent else ""
        write_line(err, f"{time.strftime('%H:%M:%S', time.localtime(error.ts))} {error.kind}{agent}")
        for line in error.detail.splitlines():
            write_line(err, f"    {line}")


class CompactionView:
    """Shows a compaction that the user started with /compact."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self.is_running = False

    async def run_command(self, ctx: CommandContext, rest: str) -> None:
        was_running = self.is_running
        if rest == "cancel":
            self.is_running = False
        message = await compact(ctx, rest)
        if message and not (message == COMPACTION_CANCELED and was_running):  # its event says so
            write_line(self._err, message)

    def wants(self, event: Event) -> bool:
        if isinstance(event, CompactionChanged):
            return event.trigger == "manual" and event.status != "succeeded"
        return isinstance(event, Compacted) and event.trigger == "manual"

    def show(self, event: Event) -> None:
        if isinstance(event, Compacted):
            self.is_running = False
            write_line(self._err, f"Compacted about {event.tokens_before:,} tokens to {event.tokens_after:,}.")
            if event.archive:
                write_line(self._err, f"The full conversation is in {event.archive}.")
        elif isinstance(event, CompactionChanged):
            self.is_running = event.status == "started" or not event.final
            fallback = "" if event.final else " Odin writes a summary without the model."
            ended = event.detail or COMPACTION_CANCELED
            write_line(self._err, "Compacting…" if event.status == "started" else f"{ended}{fallback}")


class LoopView:
    """Prints why loop mode ended."""

    def __init__(self, err: TextIO) -> None:
        self._err = err

    def wants(self, event: Event) -> bool:
        return isinstance(event, LoopChanged) and event.state in LOOP_ENDS

    def show(self, event: Event) -> None:
        if isinstance(event, LoopChanged):
            write_line(self._err, describe_loop_end(event.state, event.reason))


class UserShellView:
    """Runs user shell commands (`!cmd`) and prints their output as it arrives."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._printed: dict[str, str] = {}

    @property
    def is_running(self) -> bool:
        return bool(self._printed)

    async def start(self, client: Client, command: str, agent: str = "") -> None:
        op = RunUserShell(os.urandom(6).hex(), command, agent)
        self._printed[op.id] = ""
        try:
            await client.submit(op)
        except BaseException:
            del self._printed[op.id]
            raise

    def wants(self, event: Event) -> bool:
        if isinstance(event, ToolProgressed):
            return event.call_id in self._printed
        return isinstance(event, ContextAdded) and event.id in self._printed

    def show(self, event: Event) -> None:
        if isinstance(event, ToolProgressed):
            text = f"{event.text}\n"
            self._printed[event.call_id] += text
        elif isinstance(event, ContextAdded):
            text = f"{event.content}\n".removeprefix(self._printed.pop(event.id))
        else:
            return
        write_text(self._err, escape_control(text))


CommandView = CompactionView | LoopView | UserShellView
