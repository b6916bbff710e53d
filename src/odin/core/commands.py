"""The commands of Odin's own, which every front end knows by the same names and nobody else may take.

A front end does them itself, at once, also while a turn runs, and never sends them to the model. Which of them it has
is its own affair; what it calls them is not.
"""

from msgspec import Struct


class BuiltIn(Struct, frozen=True):
    """One command: its `name` without the slash, a hint of its arguments, one sentence, and its other names."""

    name: str
    help: str
    hint: str = ""
    aliases: tuple[str, ...] = ()


BUILT_INS: tuple[BuiltIn, ...] = (
    BuiltIn("help", "Shows the commands and the keys.", "[COMMAND]", ("?",)),
    BuiltIn("commands", "Lists the commands that you and the project have written."),
    # how the next prompt is meant
    BuiltIn("ask", "Chooses ask mode, which only answers; with a text, sends it.", "[TEXT]"),
    BuiltIn("plan", "Chooses plan mode, which looks and plans and changes nothing; with a text, sends it.", "[TEXT]"),
    BuiltIn("edit", "Chooses edit mode, which changes files and runs commands; with a text, sends it.", "[TEXT]"),
    # the work that runs or waits
    BuiltIn("queue", "Lists the prompts that wait, and changes, drops or sends one.", "[edit|drop|steer|send N]"),
    BuiltIn("steer", "Says something to the turn that runs, before anything else is begun.", "TEXT"),
    BuiltIn("continue", "Asks the model again with the conversation as it is."),
    BuiltIn("loop", "Keeps Odin at work until a goal is reached; alone, says how far it is.", "[on [GOAL]|off]"),
    BuiltIn("compact", "Summarises the conversation so far; cancel gives that up.", "[WHAT MATTERS|cancel]"),
    BuiltIn("forget", "Takes the last message out of the conversation."),
    BuiltIn("rewind", "Goes back to before a prompt: its files, its conversation or both.", "[N] [files|chat] [force]"),
    BuiltIn("undo", "Takes the last prompt back, with what it did to files.", "[files|chat] [force]"),
    BuiltIn("redo", "Takes the last rewind back.", "[force]"),
    # sessions
    BuiltIn("new", "Begins a new session.", aliases=("clear",)),
    BuiltIn("resume", "Goes to an earlier session, chosen from a list or by its id.", "[ID]"),
    BuiltIn("fork", "Goes on in a copy of this session, from before a prompt or from here.", "[N]"),
    BuiltIn("sessions", "Lists the sessions of this project, or searches in them.", "[WORDS]"),
    BuiltIn("rename", "Gives this session a title.", "TITLE", ("title",)),
    BuiltIn("delete", "Deletes another session for good.", "ID"),
    BuiltIn("export", "Writes this session to a file.", "[PATH] [--json|--html]"),
    # the model and what it costs
    BuiltIn("model", "Chooses the model that answers from now on.", "[NAME]"),
    BuiltIn("models", "Lists the models that can be used."),
    BuiltIn("setup", "Shows the ways to a model that there are here, and stores keys."),
    BuiltIn("context", "Shows what fills the model's window."),
    BuiltIn("usage", "Shows what this session has spent.", aliases=("cost",)),
    BuiltIn("stats", "Shows what was spent by day, by model and by project.", "[DAYS]"),
    BuiltIn("budget", "Sets what this session may cost, in US dollars; 0 means no limit.", "[USD]"),
    # what is allowed
    BuiltIn("permissions", "Chooses how much is asked before something is done.", "[MODE]"),
    BuiltIn("rules", "Lists what is allowed, asked about and denied, and changes it.", "[add TEXT|remove N]"),
    BuiltIn("yolo", "Asks nothing at all any more; off asks again.", "[on|off]"),
    # what Odin is connected to, and how it is
    BuiltIn("mcp", "Shows the MCP servers and whether they are reached.", "[NAME]"),
    BuiltIn("diagnostics", "Shows what is wrong: warnings, how the session is set up, how many errors there were."),
    BuiltIn("errors", "Shows the warnings and errors of this session."),
    BuiltIn("show", "Shows one setting: the model, the mode, the sandbox.", "[model|mode|sandbox|rules|context]"),
    BuiltIn("list", "Lists what there is of something.", "[models|sessions|rules|commands|tools]"),
    BuiltIn("switch", "Changes the model or the mode.", "model|mode NAME"),
    # the screen
    BuiltIn("copy", "Copies the last answer, or the Nth from the end, to the clipboard.", "[N]"),
    BuiltIn("transcript", "Shows the whole conversation as plain text in a pager."),
    BuiltIn("theme", "Chooses the colours of the screen.", "[NAME]"),
    BuiltIn("keys", "Shows what every key does."),
    BuiltIn("mouse", "Leaves the mouse to the terminal, or takes it back.", "[on|off]"),
    BuiltIn("vim", "Switches Vim-style navigation on or off.", "[on|off]"),
    BuiltIn("editor", "Opens what is being written in $EDITOR."),
    BuiltIn("exit", "Ends Odin; the session can be resumed.", aliases=("quit",)),
)


def built_in(name: str) -> BuiltIn | None:
    """The command of that name or alias, with or without its slash and in any case."""
    return _BY_NAME.get(name.removeprefix("/").casefold())


def reserved(name: str) -> bool:
    return built_in(name) is not None


_BY_NAME = {name: command for command in BUILT_INS for name in (command.name, *command.aliases)}
