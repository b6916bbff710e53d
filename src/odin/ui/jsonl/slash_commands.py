"""The slash commands of `send`: those of the app that need no list, picker or dialog."""

from odin.core.errors import UsageError
from odin.core.op import Redo
from odin.core.slash_commands import SlashCommand, find_slash_command
from odin.ui.slash_commands.actions import (
    ACTIONS,
    SESSION_OPTION,
    SHOWN_WITHOUT_ARGUMENT,
    CommandContext,
)
from odin.ui.slash_commands.sessions import parse_force, parse_rewind

_INSTEAD = {
    "model": "Use `/model NAME` or the command `models`.",
    "models": "Use the command `models`.",
    "sessions": "Use the command `sessions`.",
    "resume": "Start Odin with `--resume ID`; the command `sessions` lists them.",
    "new": "Start another `odin headless`.",
    "fork": "Start Odin with `--resume ID --fork-session`.",
    "rewind": "Use `/rewind N` or `/undo`.",
    "steer": "Use the field `delivery` of `send`.",
    "focus": "Use the field `agent` of `send`.",
    "execute": "Send the plan as a prompt.",
    "exit": "Close the input.",
    **dict.fromkeys(("ask", "plan", "edit"), "Use the field `mode` of `send`."),
    **dict.fromkeys(("status", "queue", "agents", "context", "usage", "budget"), "Use the command `status`."),
}
"""What to use in place of a command that only makes sense where somebody sees a screen."""


def find_builtin_command(text: str) -> tuple[SlashCommand, str] | None:
    """Return the built-in command that a text starts with, and its arguments."""
    word, *rest = text.split(None, 1) if text.startswith("/") else [""]
    command = find_slash_command(word) if word else None
    return None if command is None else (command, "".join(rest).strip())


async def run_builtin_command(ctx: CommandContext, command: SlashCommand, rest: str) -> tuple[bool, str]:
    """Return whether there was something to do, and what to tell. Raise UsageError if it works only on a screen."""
    name = command.name
    if name == "redo":
        return await ctx.client.submit(Redo(parse_force(rest.split()))), ""
    if name == "undo" or (name == "rewind" and rest):
        prompts = (await ctx.client.snapshot()).prompts
        return await ctx.client.submit(parse_rewind(rest.split(), prompts, name)), ""
    if name not in ACTIONS or (name in SHOWN_WITHOUT_ARGUMENT and not rest):
        hint = _INSTEAD.get(name, "To send it to the model, put a space before the slash.")
        raise UsageError(f"/{name} works only in the app and in plain mode.", hint)
    if name in ("model", "effort") and rest:
        rest = f"{rest} {SESSION_OPTION}"
    return True, await ACTIONS[name](ctx, rest)
