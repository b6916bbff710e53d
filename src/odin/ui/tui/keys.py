"""Every key of the app in one table: what it does, under which name it can be given another key, and where it works."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from textual.events import Key as Key_
from textual.widget import Widget

from odin.core.errors import UsageError
from odin.ui.tui.keynames import each, spelled, understood, writes

Where = Literal[
    "everywhere",
    "composer",
    "popup",
    "queue",
    "transcript",
    "search",
    "permission",
    "questions",
    "answers",
    "step",
    "confirm",
    "welcome",
    "dialog",
    "list",
    "sessions",
    "models",
    "rules",
    "rule",
    "rewind",
    "contents",
    "errors",
    "reading",
    "stats",
]
"""The parts of the screen. In a dialog the keys of its own place come first, then those that all dialogs share."""

LISTS: tuple[Where, ...] = ("sessions", "models", "rules", "rewind", "contents", "errors")
"""Lists with keys of their own beside those of every list."""


class Key(Struct, frozen=True):
    """`name` is also the action's. `keys` are Textual's names, separated by commas."""

    name: str
    keys: str
    what: str
    where: Where = "everywhere"


KEYS: tuple[Key, ...] = (
    Key("send", "enter", "Send the prompt; while Odin works it waits its turn.", "composer"),
    Key("steer", "ctrl+s,alt+enter,ctrl+enter", "Send the prompt into the running turn.", "composer"),
    Key("newline", "shift+enter,ctrl+j", "Begin a new line.", "composer"),
    Key("edit_outside", "ctrl+x", "Write the prompt in $EDITOR.", "composer"),
    Key("search_history", "ctrl+r", "Find an earlier prompt.", "composer"),
    Key("paste_image", "ctrl+v", "Paste text or a picture from the clipboard.", "composer"),
    Key("undo", "ctrl+underscore", "Take back what was typed last.", "composer"),
    Key("redo", "alt+underscore,ctrl+shift+z", "Do again what was taken back.", "composer"),
    Key("next_mode", "tab", "Go from ask to plan to edit.", "composer"),
    Key("errors_here", "ctrl+e", "Look at the last errors, when the prompt is empty.", "composer"),
    Key("choose_next", "down,ctrl+n", "Go down in the list.", "popup"),
    Key("choose_previous", "up,ctrl+p", "Go up in the list.", "popup"),
    Key("choose", "tab", "Take what is chosen in the list.", "popup"),
    Key("choose_and_send", "enter", "Take what is chosen in the list; a whole command is run.", "popup"),
    Key("close_list", "escape", "Close the list.", "popup"),
    Key("queue_up", "up,k", "Go to the waiting prompt before.", "queue"),
    Key("queue_down", "down,j", "Go to the next waiting prompt.", "queue"),
    Key("queue_edit", "e,enter", "Edit the waiting prompt.", "queue"),
    Key("queue_drop", "d,delete", "Drop the waiting prompt.", "queue"),
    Key("queue_steer", "s", "Send the waiting prompt into the running turn.", "queue"),
    Key("queue_mode", "m", "Give the waiting prompt another mode.", "queue"),
    Key("queue_send", "w", "Send a prompt that rests.", "queue"),
    Key("queue_leave", "escape,i", "Go back to the prompt.", "queue"),
    Key("stop", "escape", "Stop the work; close what is open."),
    Key("leave", "ctrl+c", "Copy what is selected, else clear the prompt; twice leaves Odin."),
    Key("end_of_input", "ctrl+d", "Leave Odin when the prompt is empty."),
    Key("suspend", "ctrl+z", "Suspend Odin; `fg` brings it back."),
    Key("next_agent", "shift+tab", "Look at the next agent's work."),
    Key("models", "ctrl+p", "Choose the model."),
    Key("servers", "ctrl+o", "Look at MCP servers."),
    Key("diagnostics", "ctrl+g", "Look at what is wrong."),
    Key("contents", "ctrl+t", "List the prompts of this conversation."),
    Key("errors", "f8", "Look at the last errors."),
    Key("queue", "ctrl+q", "Go to the prompts that wait."),
    Key("todos", "f9", "Fold or unfold the list of tasks."),
    Key("side_panel", "ctrl+b", "Show or hide the panel at the side."),
    Key("help", "f1", "Show the keys and commands."),
    Key("redraw", "ctrl+l", "Draw the screen again."),
    Key("permissions", "ctrl+y", "Go to the next permission mode."),
    Key("page_up", "pageup", "Scroll up."),
    Key("page_down", "pagedown", "Scroll down."),
    Key("to_top", "ctrl+home", "Scroll to the beginning."),
    Key("to_end", "ctrl+end", "Scroll to the end and follow it."),
    Key("look", "alt+up,ctrl+up", "Move among the cards of the conversation."),
    Key("write", "i", "Go back to the prompt.", "transcript"),
    Key("next_card", "j,down", "Go to the next card.", "transcript"),
    Key("previous_card", "k,up", "Go to the card before.", "transcript"),
    Key("first_card", "g,home", "Go to the first card (gg).", "transcript"),
    Key("last_card", "G,end", "Go to the last card.", "transcript"),
    Key("search", "slash", "Search the conversation.", "transcript"),
    Key("next_match", "n", "Go to the next place found.", "transcript"),
    Key("previous_match", "N", "Go to the place found before.", "transcript"),
    Key("fold", "o,enter,space", "Fold or unfold the card.", "transcript"),
    Key("fold_all", "O", "Fold or unfold all cards.", "transcript"),
    Key("edit_prompt", "e", "Edit the prompt under the cursor and go on from there.", "transcript"),
    Key("copy_card", "y", "Copy the card.", "transcript"),
    Key("stats", "dollar_sign", "Show what was spent.", "transcript"),
    Key("help_here", "question_mark", "Show the keys and commands.", "transcript"),
    Key("quit", "q", "Leave Odin (twice).", "transcript"),
    Key("search_done", "enter", "Go to the places found.", "search"),
    Key("search_close", "escape", "Give the search up.", "search"),
    Key("allow_once", "y", "Allow it this once.", "permission"),
    Key("allow_session", "s", "Allow it and remember a rule for this session; you see it first.", "permission"),
    Key("allow_project", "p", "The same, for this project.", "permission"),
    Key("allow_everywhere", "u", "The same, for all your projects.", "permission"),
    Key("allow_note", "a", "Allow it, and tell the model something with its result.", "permission"),
    Key("deny", "n", "Deny it; the model goes on without it.", "permission"),
    Key("deny_words", "r,tab", "Deny it, and tell the model why.", "permission"),
    Key("deny_always", "d", "Deny it and remember that.", "permission"),
    Key("edit_call", "e", "Change the arguments before it runs.", "permission"),
    Key("show_call", "v", "Show everything there is to know about the call.", "permission"),
    Key("explain_keys", "question_mark", "Show these keys.", "permission"),
    Key("stop_work", "escape", "Deny it and stop the work.", "permission"),
    Key("next_option", "down,j,tab", "Go to the next option.", "questions"),
    Key("previous_option", "up,k,shift+tab", "Go to the option before.", "questions"),
    Key("toggle_option", "space", "Choose the option, or not.", "questions"),
    Key("own_words", "o", "Answer in your own words.", "questions"),
    Key("previous_question", "left,b", "Go back to the question before.", "questions"),
    Key("settle", "enter,right", "Give this answer and go on.", "questions"),
    Key("cancel", "escape", "Answer none of the questions.", "questions"),
    Key("next_answer", "right,tab", "Go to the next answer.", "answers"),
    Key("previous_answer", "left,shift+tab", "Go to the answer before.", "answers"),
    Key("take_answer", "enter", "Give the answer that is marked.", "answers"),
    Key("asked_down", "down", "Scroll down what is asked.", "answers"),
    Key("asked_up", "up", "Scroll up what is asked.", "answers"),
    Key("asked_page_down", "pagedown", "Scroll down a page of what is asked.", "answers"),
    Key("asked_page_up", "pageup", "Scroll up a page of what is asked.", "answers"),
    Key("asked_first", "home,ctrl+home", "Go to the beginning of what is asked.", "answers"),
    Key("asked_last", "end,ctrl+end", "Go to the end of what is asked.", "answers"),
    Key("confirm", "enter", "Take what is written.", "step"),
    Key("use_arguments", "ctrl+s", "Use the arguments as they are changed now.", "step"),
    Key("other", "tab", "Turn it: how long a rule holds; yes with a note instead of no.", "step"),
    Key("next_rule", "down", "See another rule.", "step"),
    Key("previous_rule", "up", "See the rule before.", "step"),
    Key("back", "escape", "Go one step back.", "step"),
    Key("yes", "y", "Yes.", "confirm"),
    Key("no", "n", "No; so does any other key.", "confirm"),
    Key("welcome_use", "enter", "Use the model that is marked.", "welcome"),
    Key("welcome_next", "down,j,tab", "Go to the next one.", "welcome"),
    Key("welcome_previous", "up,shift+tab", "Go to the one before.", "welcome"),
    Key("welcome_key", "k", "Enter the key of a provider.", "welcome"),
    Key("welcome_look", "l", "Look for model servers on this machine.", "welcome"),
    Key("welcome_back", "escape", "Go back; begin without a model.", "welcome"),
    Key("close", "escape", "Close the window.", "dialog"),
    Key("list_up", "up,k", "Go up.", "list"),
    Key("list_down", "down,j", "Go down.", "list"),
    Key("list_page_up", "pageup", "Go a page up.", "list"),
    Key("list_page_down", "pagedown,space", "Go a page down.", "list"),
    Key("list_first", "ctrl+home,home,g", "Go to the first one.", "list"),
    Key("list_last", "ctrl+end,end,G", "Go to the last one.", "list"),
    Key("list_choose", "enter", "Choose the one that is marked.", "list"),
    Key("list_narrow", "slash", "Type words that narrow the list.", "list"),
    Key("list_other", "tab,shift+tab", "Go from the words to the list, and back.", "list"),
    Key("rename_session", "f2,r", "Give the session another title.", "sessions"),
    Key("copy_session", "f5,f", "Go on in a copy of the session.", "sessions"),
    Key("export_session", "f6,x", "Write the session into a file.", "sessions"),
    Key("delete_session", "delete,d", "Delete the session.", "sessions"),
    Key("look_for_servers", "f5,ctrl+l,l", "Look for model servers on this machine.", "models"),
    Key("add_rule", "a", "Add a rule.", "rules"),
    Key("remove_rule", "d,delete", "Take the rule back.", "rules"),
    Key("open_rule", "o", "Open the file the rule is in.", "rules"),
    Key("rule_action", "tab", "Allow, ask or deny.", "rule"),
    Key("rule_scope", "f2,shift+tab", "For this session, this project or all.", "rule"),
    Key("redo_rewind", "r", "Take the last rewind back.", "rewind"),
    Key("force_rewind", "f", "Also what somebody else changed.", "rewind"),
    Key("fork_there", "e", "Edit the prompt in a copy of this session.", "contents"),
    Key("copy_errors", "Y", "Copy all errors.", "errors"),
    Key("read_down", "j,down", "Scroll down.", "reading"),
    Key("read_up", "k,up", "Scroll up.", "reading"),
    Key("read_page_down", "pagedown,space", "Scroll a page down.", "reading"),
    Key("read_page_up", "pageup", "Scroll a page up.", "reading"),
    Key("read_first", "home,g", "Go to the beginning.", "reading"),
    Key("read_last", "end,G", "Go to the end.", "reading"),
    Key("read_copy", "y", "Copy what is shown.", "reading"),
    Key("read_close", "q,enter", "Close the window.", "reading"),
    Key("stats_scope", "tab,shift+tab,s", "Of this session, or of the whole project.", "stats"),
    Key("stats_next", "right,l", "Show the next page.", "stats"),
    Key("stats_previous", "left,h", "Show the page before.", "stats"),
    Key("stats_today", "t", "What was spent today.", "stats"),
    Key("stats_week", "7", "What was spent in seven days.", "stats"),
    Key("stats_month", "3", "What was spent in thirty days.", "stats"),
    Key("stats_quarter", "9", "What was spent in ninety days.", "stats"),
    Key("stats_all", "a", "What was ever spent.", "stats"),
)


class KeyTable:
    """Which key does what, with the keys the person chose in the place of ours.

    Raises UsageError for names and keys that do not exist, and when two things in the same place want one key.
    """

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        own = dict(chosen or {})
        unknown = sorted(set(own) - {key.name for key in KEYS})
        if unknown:
            raise UsageError(f"There is no key called {unknown[0]!r} (tui.keys).", "F1 in the app lists their names.")
        ours = {name: ",".join(map(understood, each(keys))) for name, keys in own.items()}
        self.keys = tuple(replace(key, keys=ours.get(key.name, key.keys)) for key in KEYS)
        self._names: dict[tuple[Where, str], str] = {}
        for key in self.keys:
            for one in each(key.keys):
                self._take(key, one)

    def _take(self, key: Key, one: str) -> None:
        beside: tuple[Where, ...] = ("list",) if key.where in LISTS else LISTS if key.where == "list" else ()
        taken = next((found for where in (key.where, *beside) if (found := self.name(one, where))), "")
        if taken:
            raise UsageError(
                f"{spelled(one)} cannot be the key of both {taken!r} and {key.name!r} (tui.keys).",
                "They work in the same place: give one of them another key.",
            )
        self._names[key.where, one] = key.name

    def name(self, pressed: str, where: Where) -> str:
        """What this key does there, or ""."""
        return self._names.get((where, pressed), "")

    def shown(self, name: str, *, typing: bool = False) -> str:
        """The first key of that name as people write it; with `typing` one that is none of what is being typed."""
        keys = each(next((key.keys for key in self.keys if key.name == name), ""))
        fit = [key for key in keys if not (typing and writes(key))] or keys
        return spelled(fit[0]) if fit else ""


async def pressed(widget: Widget, table: KeyTable, event: Key_, where: Where) -> bool:
    """Do what the key does in this part of the screen, else what it does everywhere, in the order of the keys.

    Textual's own bindings would overtake characters that were typed before them and are still on their way.
    """
    name = table.name(event.key, where)
    action = name or (f"app.{found}" if (found := table.name(event.key, "everywhere")) else "")
    if not action:
        return False
    event.stop()
    event.prevent_default()
    await widget.run_action(action)
    return True
