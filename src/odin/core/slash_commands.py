"""The built-in slash commands: name, arguments and help of each.

Every front end uses this table for help, completion and usage errors, and runs the commands itself, without sending
them to the model. Custom commands cannot use these names. /init and /review are prompts, in
`context/library.py`, which custom commands may replace.
"""

import re

from msgspec import Struct

from odin.core.errors import UsageError
from odin.core.text import suggest_similar


class SlashCommand(Struct, frozen=True):
    """One command: `name` has no slash, `hint` shows its arguments."""

    name: str
    help: str
    hint: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.hint}".rstrip()


SLASH_COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "Show commands and keys.", "[COMMAND]", ("?",)),
    SlashCommand("commands", "List custom commands."),
    SlashCommand("skills", "List skills and which were used, or show one.", "[NAME]"),
    SlashCommand("use", "Use a skill, with TEXT as its arguments; the same as /SKILL TEXT.", "SKILL [TEXT]"),
    SlashCommand("plugins", "List plugins and what they bring."),
    SlashCommand(
        "memory",
        "Show what later sessions are told; add to it, to today's note (`note`), or remove a text.",
        "[add|note|remove [--user] TEXT]",
    ),
    SlashCommand("lsp", "List, restart, disable or enable language servers.", "[restart|disable|enable [NAME]]"),
    # mode of the next prompt
    SlashCommand("ask", "Switch to ask mode, which only answers questions, or send TEXT in it.", "[TEXT]"),
    SlashCommand(
        "plan", "Switch to plan mode, which reads and plans but changes nothing, or send TEXT in it.", "[TEXT]"
    ),
    SlashCommand("edit", "Switch to edit mode, which edits files and runs commands, or send TEXT in it.", "[TEXT]"),
    SlashCommand("execute", "Carry out a plan of .odin/plans, or the newest one, in a new session.", "[PLAN] [ROLE]"),
    SlashCommand(
        "role", "Switch the role: who works. The planner plans in any mode. Without arguments, show it.", "[NAME]"
    ),
    # the running turn, the queue and the history
    SlashCommand("queue", "List, edit, drop or send queued prompts.", "[edit|drop|steer|send N]"),
    SlashCommand("steer", "Send a message to the running turn. The model sees it before its next step.", "TEXT"),
    SlashCommand(
        "agents",
        "List agents and tasks. `stop` cancels an agent's task; `close` ends the agent and keeps its task.",
        "[stop|close NAME [REASON]]",
    ),
    SlashCommand(
        "ps",
        "List, follow or stop background processes, open their ports, or send the running command there.",
        "[ID [follow|stop|open PORT]|background]",
    ),
    SlashCommand("focus", "Talk to a sub-agent: the next prompts go to it. `main` returns to the main agent.", "NAME"),
    SlashCommand("continue", "Ask the model to continue the conversation as it is."),
    SlashCommand(
        "loop",
        "Keep working until a goal is reached, or repeat a prompt; --limit N. Without arguments, show both.",
        "[@AGENT] [on [GOAL]|every 10m TEXT|off]",
    ),
    SlashCommand(
        "at", "Send a prompt once, at 18:00 or `in 20m`. Without arguments, list these.", "[TIME PROMPT|off [NUMBER]]"
    ),
    SlashCommand("compact", "Summarize the conversation to free context.", "[INSTRUCTIONS|cancel]"),
    SlashCommand("forget", "Remove the last message from the conversation."),
    SlashCommand("rewind", "Restore files, the conversation or both to before a prompt.", "[N] [files|chat] [force]"),
    SlashCommand("undo", "Undo the last prompt and its file changes.", "[files|chat] [force]"),
    SlashCommand("redo", "Undo the last rewind.", "[force]"),
    # sessions
    SlashCommand("new", "Start a new session.", aliases=("clear",)),
    SlashCommand("resume", "Resume a session by ID or from a list; --all lists runs of `odin -p`, too.", "[ID|--all]"),
    SlashCommand("fork", "Continue in a copy of this session, or in a copy that ends before prompt N.", "[N]"),
    SlashCommand("sessions", "List or search sessions; --all includes runs of `odin -p`.", "[WORDS|--all]"),
    SlashCommand("rename", "Rename this session.", "TITLE", ("title",)),
    SlashCommand("delete", "Delete another session.", "ID"),
    SlashCommand(
        "export", "Export this session to a file in the current directory, or to PATH.", "[PATH] [--json|--html]"
    ),
    # model and cost
    SlashCommand(
        "model",
        "Switch to a model or a pool and save it, or only for this session or an agent. Add a server.",
        "[NAME|add URL] [--session|--agent NAME]",
    ),
    SlashCommand(
        "effort",
        "Set how much the model reasons (none, minimal, low, medium, high, xhigh, max) and save it.",
        "[LEVEL|default] [--session|--agent NAME]",
    ),
    SlashCommand("models", "List available models and pools.", "[POOL]"),
    SlashCommand("setup", "Connect a provider and store API keys."),
    SlashCommand("context", "Show what fills the context window."),
    SlashCommand("usage", "Show tokens and cost of this session.", aliases=("cost",)),
    SlashCommand("stats", "Show usage by model, agent or day.", "[project] [models|agents|dates] [7d|all]"),
    SlashCommand("budget", "Set the spending limit of this session in US dollars; 0 means no limit.", "[USD]"),
    # permissions
    SlashCommand("permissions", "Show or set the permission mode: what Odin asks about before it acts.", "[MODE]"),
    SlashCommand("rules", "List, add or remove permission rules.", "[add RULE|remove N]"),
    SlashCommand(
        "add-dir",
        "Work in another folder, too, read-only with PATH:ro. Without arguments, list the folders.",
        "[PATH[:ro]|remove PATH]",
    ),
    SlashCommand("yolo", "Turn permission prompts off or on again.", "[on|off]"),
    # extensions
    SlashCommand(
        "mcp",
        "Show the MCP servers; enable or disable manual ones, or connect again.",
        "[enable|disable|reconnect [NAME...]]",
    ),
    # state of Odin
    SlashCommand("status", "Show version, model, key, folder, sandbox, permissions, session and usage."),
    SlashCommand("diagnostics", "Show warnings, the session's setup and the number of errors."),
    SlashCommand("errors", "Show recent warnings and errors."),
    SlashCommand("show", "Show one setting.", "[model|mode|role|sandbox|rules|context]"),
    SlashCommand(
        "list", "List models, sessions, rules, commands, skills or tools.", "[models|sessions|…|skills|tools]"
    ),
    SlashCommand("switch", "Switch the model, the mode or the role.", "model|mode|role [to] NAME"),
    # screen
    SlashCommand("diff", "Show the uncommitted changes in git, new files included.", "[PATH]"),
    SlashCommand("copy", "Copy the last answer, or the Nth last, to the clipboard.", "[N]"),
    SlashCommand("transcript", "Open the conversation as plain text in a pager."),
    SlashCommand(
        "theme",
        "Set the color theme and save it, or with --session only for this session.",
        "[auto|dark|light] [--session]",
    ),
    SlashCommand("keys", "Show key bindings."),
    SlashCommand("mouse", "Turn mouse support off or on.", "[on|off]"),
    SlashCommand("vim", "Turn Vim-style navigation on or off.", "[on|off]"),
    SlashCommand("editor", "Edit the prompt in $EDITOR."),
    SlashCommand("exit", "Exit Odin. You can resume the session.", aliases=("quit",)),
)


def find_slash_command(name: str) -> SlashCommand | None:
    """Return the command with this name or alias, with or without slash, in any case."""
    return _COMMANDS_BY_NAME.get(name.removeprefix("/").casefold())


def is_reserved(name: str) -> bool:
    return find_slash_command(name) is not None


def make_usage_error(name: str, problem: str) -> UsageError:
    """Return an error that names the problem and shows the usage of the command."""
    return UsageError(problem, f"Usage: {_COMMANDS_BY_NAME[name].usage}")


def make_argument_error(name: str, argument: str) -> UsageError:
    words = re.findall(r"[a-z]\w+", _COMMANDS_BY_NAME[name].hint)
    return make_usage_error(name, f"Unknown argument {argument!r}.{suggest_similar(argument, words)}")


_COMMANDS_BY_NAME = {name: command for command in SLASH_COMMANDS for name in (command.name, *command.aliases)}
