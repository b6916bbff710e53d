"""Every key of the app in one table: what it does, under which name it can be given another key, and where it works."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from textual.events import Key as Key_
from textual.widget import Widget

from odin.core.errors import UsageError

Where = Literal["everywhere", "composer", "transcript", "permission", "questions", "popup", "queue"]


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
    Key("queue_leave", "escape,ctrl+q,i", "Go back to the prompt.", "queue"),
    Key("stop", "escape", "Stop the work; close what is open."),
    Key("leave", "ctrl+c", "Copy what is selected, else clear the prompt; twice leaves Odin."),
    Key("end_of_input", "ctrl+d", "Leave Odin when the prompt is empty."),
    Key("suspend", "ctrl+z", "Suspend Odin; `fg` brings it back."),
    Key("next_agent", "shift+tab", "Look at the next agent's work."),
    Key("models", "ctrl+p", "Choose the model."),
    Key("servers", "ctrl+o", "Look at MCP servers."),
    Key("diagnostics", "ctrl+g", "Look at what is wrong."),
    Key("contents", "ctrl+t", "List the prompts of this conversation."),
    Key("errors", "f8", "Look at the last errors. Ctrl+E does the same when the prompt is empty."),
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
    Key("toggle_option", "space", "Choose the option, or not.", "questions"),
    Key("own_words", "o", "Answer in your own words.", "questions"),
    Key("previous_question", "left,b", "Go back to the question before.", "questions"),
)


class KeyTable:
    """Which key does what, with the keys the person chose in the place of ours. Raises UsageError for wrong names."""

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        own = dict(chosen or {})
        unknown = sorted(set(own) - {key.name for key in KEYS})
        if unknown:
            raise UsageError(f"There is no key called {unknown[0]!r} (tui.keys).", "F1 in the app lists their names.")
        self.keys = tuple(replace(key, keys=own.get(key.name, key.keys)) for key in KEYS)
        self._names = {(key.where, one): key.name for key in self.keys for one in _each(key.keys)}

    def name(self, pressed: str, where: Where) -> str:
        """What this key does there, or ""."""
        return self._names.get((where, pressed), "")

    def shown(self, name: str) -> str:
        """The first key of that name as people write it."""
        keys = next((key.keys for key in self.keys if key.name == name), "")
        return spelled(_each(keys)[0]) if keys else ""


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


def spelled(key: str) -> str:
    """`ctrl+underscore` as `Ctrl+_`."""
    words = [_SIGNS.get(word, word if len(word) == 1 else word.capitalize()) for word in key.split("+")]
    if len(words) > 1 and len(words[-1]) == 1:
        words[-1] = words[-1].upper()
    return "+".join(words)


def _each(keys: str) -> list[str]:
    return [one.strip() for one in keys.split(",") if one.strip()]


_SIGNS = {
    "underscore": "_",
    "slash": "/",
    "question_mark": "?",
    "dollar_sign": "$",
    "pageup": "PgUp",
    "pagedown": "PgDn",
    "escape": "Esc",
}
