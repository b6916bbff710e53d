"""The built-in slash commands, with the same names in every front end. Custom commands cannot take them.

A front end runs them itself, also during a turn, and never sends them to the model. It may implement only some of them.
"""

from msgspec import Struct


class SlashCommand(Struct, frozen=True):
    """A slash command: its `name` without the slash, a hint for its arguments, a description, and aliases."""

    name: str
    help: str
    hint: str = ""
    aliases: tuple[str, ...] = ()


SLASH_COMMANDS: tuple[SlashCommand, ...] = (
    SlashCommand("help", "Shows the commands and the keys.", "[COMMAND]", ("?",)),
    SlashCommand("commands", "Lists the commands that you and the project have written."),
    # the next prompt
    SlashCommand("ask", "Chooses ask mode, which only answers; with a text, sends it.", "[TEXT]"),
    SlashCommand(
        "plan", "Chooses plan mode, which looks and plans and changes nothing; with a text, sends it.", "[TEXT]"
    ),
    SlashCommand("edit", "Chooses edit mode, which changes files and runs commands; with a text, sends it.", "[TEXT]"),
    # running and queued work
    SlashCommand("queue", "Lists the prompts that wait, and changes, drops or sends one.", "[edit|drop|steer|send N]"),
    SlashCommand("steer", "Says something to the turn that runs, before anything else is begun.", "TEXT"),
    SlashCommand("continue", "Asks the model again with the conversation as it is."),
    SlashCommand("loop", "Keeps Odin at work until a goal is reached; alone, says how far it is.", "[on [GOAL]|off]"),
    SlashCommand("compact", "Summarises the conversation so far; cancel gives that up.", "[WHAT MATTERS|cancel]"),
    SlashCommand("forget", "Takes the last message out of the conversation."),
    SlashCommand(
        "rewind", "Goes back to before a prompt: its files, its conversation or both.", "[N] [files|chat] [force]"
    ),
    SlashCommand("undo", "Takes the last prompt back, with what it did to files.", "[files|chat] [force]"),
    SlashCommand("redo", "Takes the last rewind back.", "[force]"),
    # sessions
    SlashCommand("new", "Begins a new session.", aliases=("clear",)),
    SlashCommand("resume", "Goes to an earlier session, chosen from a list or by its id.", "[ID]"),
    SlashCommand("fork", "Goes on in a copy of this session, from before a prompt or from here.", "[N]"),
    SlashCommand("sessions", "Lists the sessions of this project, or searches in them.", "[WORDS]"),
    SlashCommand("rename", "Gives this session a title.", "TITLE", ("title",)),
    SlashCommand("delete", "Deletes another session for good.", "ID"),
    SlashCommand("export", "Writes this session to a file.", "[PATH] [--json|--html]"),
    # model and cost
    SlashCommand("model", "Chooses the model that answers from now on.", "[NAME]"),
    SlashCommand("models", "Lists the models that can be used."),
    SlashCommand("setup", "Shows the ways to a model that there are here, and stores keys."),
    SlashCommand("context", "Shows what fills the model's window."),
    SlashCommand("usage", "Shows what this session has spent.", aliases=("cost",)),
    SlashCommand("stats", "Shows what was spent by day, by model and by project.", "[DAYS]"),
    SlashCommand("budget", "Sets what this session may cost, in US dollars; 0 means no limit.", "[USD]"),
    # permissions
    SlashCommand("permissions", "Chooses how much is asked before something is done.", "[MODE]"),
    SlashCommand("rules", "Lists what is allowed, asked about and denied, and changes it.", "[add TEXT|remove N]"),
    SlashCommand("yolo", "Asks nothing at all any more; off asks again.", "[on|off]"),
    # connections and diagnostics
    SlashCommand("mcp", "Shows the MCP servers and whether they are reached.", "[NAME]"),
    SlashCommand(
        "diagnostics", "Shows what is wrong: warnings, how the session is set up, how many errors there were."
    ),
    SlashCommand("errors", "Shows the warnings and errors of this session."),
    SlashCommand("show", "Shows one setting: the model, the mode, the sandbox.", "[model|mode|sandbox|rules|context]"),
    SlashCommand("list", "Lists what there is of something.", "[models|sessions|rules|commands|tools]"),
    SlashCommand("switch", "Changes the model or the mode.", "model|mode NAME"),
    # display
    SlashCommand("copy", "Copies the last answer, or the Nth from the end, to the clipboard.", "[N]"),
    SlashCommand("transcript", "Shows the whole conversation as plain text in a pager."),
    SlashCommand("theme", "Chooses the colours of the screen.", "[NAME]"),
    SlashCommand("keys", "Shows what every key does."),
    SlashCommand("mouse", "Leaves the mouse to the terminal, or takes it back.", "[on|off]"),
    SlashCommand("vim", "Switches Vim-style navigation on or off.", "[on|off]"),
    SlashCommand("editor", "Opens what is being written in $EDITOR."),
    SlashCommand("exit", "Ends Odin; the session can be resumed.", aliases=("quit",)),
)


def find_slash_command(name: str) -> SlashCommand | None:
    """Return the command with that name or alias, with or without slash, in any case."""
    return _COMMANDS_BY_NAME.get(name.removeprefix("/").casefold())


def is_reserved(name: str) -> bool:
    return find_slash_command(name) is not None


_COMMANDS_BY_NAME = {name: command for command in SLASH_COMMANDS for name in (command.name, *command.aliases)}
