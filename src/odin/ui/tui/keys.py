"""The names of keys: as Textual says them, as people write them, and whether there is such a key.

Every key of the app in one table: what it does, under which name it can be given another key, and where it works.

A line to type in, in a dialog that has keys of its own.
"""

import string
from collections.abc import Callable, Mapping
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.binding import Binding
from textual.events import Key as Key_
from textual.keys import Keys, _character_to_key
from textual.widget import Widget
from textual.widgets import Input

from odin.core.errors import UsageError

_PUNCTUATION = {_character_to_key(char): char for char in string.punctuation}
"""`slash` is `/`."""

_DISPLAY_NAMES = {**_PUNCTUATION, "pageup": "PgUp", "pagedown": "PgDn", "escape": "Esc", "delete": "Del"}
_ALIASES = {"esc": "escape", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "return": "enter", "ins": "insert"}
_MODIFIERS = ("ctrl", "alt", "shift", "super", "meta", "hyper")
_KEY_NAMES = {key.value for key in Keys if key.value.isalnum() and len(key.value) > 1}


def split_keys(keys: str) -> list[str]:
    """The keys of a list that is separated by commas."""
    return [one.strip() for one in keys.split(",") if one.strip()]


def format_key(key: str) -> str:
    """`ctrl+underscore` as `Ctrl+_`."""
    words = [_DISPLAY_NAMES.get(word, word if len(word) == 1 else word.capitalize()) for word in key.split("+")]
    if len(words) > 1 and len(words[-1]) == 1:
        words[-1] = words[-1].upper()
    return "+".join(words)


def is_typing_key(key: str) -> bool:
    """Whether this key writes a character, or goes to another place, in a line that is being written."""
    return len(key) == 1 or key in _PUNCTUATION or key in ("space", "backspace", "home", "end", "left", "right")


def parse_key(written: str) -> str:
    """A key as a person wrote it, as it will come: `Ctrl+T` as `ctrl+t`, `/` as `slash`. Raises UsageError."""
    *before, last = written.split("+")
    modifiers = [word.strip().casefold() for word in before]
    last = _character_to_key(last) if len(last) == 1 else _ALIASES.get(last.casefold(), last.casefold())
    if len(last) == 1 and modifiers == ["shift"]:
        modifiers, last = [], last.upper()
    elif len(last) == 1 and modifiers:
        last = last.casefold()
    known = len(last) == 1 or last in _KEY_NAMES or last in _PUNCTUATION
    if not known or any(word not in _MODIFIERS for word in modifiers):
        raise UsageError(f"There is no key {written!r} (tui.keys).", "Write keys as f3, ctrl+t, alt+up or slash.")
    return "+".join([*sorted(modifiers, key=_MODIFIERS.index), last])


KeyScope = Literal[
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

LIST_SCOPES: tuple[KeyScope, ...] = ("sessions", "models", "rules", "rewind", "contents", "errors")
"""Lists with keys of their own beside those of every list."""


class KeyAction(Struct, frozen=True):
    """`name` is also the action's. `keys` are Textual's names, separated by commas."""

    name: str
    keys: str
    description: str
    scope: KeyScope = "everywhere"


KEYS: tuple[KeyAction, ...] = (
    KeyAction("send", "enter", "Send the prompt; while Odin works it waits its turn.", "composer"),
    KeyAction("steer", "ctrl+s,alt+enter,ctrl+enter", "Send the prompt into the running turn.", "composer"),
    KeyAction("newline", "shift+enter,ctrl+j", "Begin a new line.", "composer"),
    KeyAction("edit_outside", "ctrl+x", "Write the prompt in $EDITOR.", "composer"),
    KeyAction("search_history", "ctrl+r", "Find an earlier prompt.", "composer"),
    KeyAction("paste_image", "ctrl+v", "Paste text or a picture from the clipboard.", "composer"),
    KeyAction("undo", "ctrl+underscore", "Take back what was typed last.", "composer"),
    KeyAction("redo", "alt+underscore,ctrl+shift+z", "Do again what was taken back.", "composer"),
    KeyAction("next_mode", "tab", "Go from ask to plan to edit.", "composer"),
    KeyAction("errors_here", "ctrl+e", "Look at the last errors, when the prompt is empty.", "composer"),
    KeyAction("choose_next", "down,ctrl+n", "Go down in the list.", "popup"),
    KeyAction("choose_previous", "up,ctrl+p", "Go up in the list.", "popup"),
    KeyAction("choose", "tab", "Take what is chosen in the list.", "popup"),
    KeyAction("choose_and_send", "enter", "Take what is chosen in the list; a whole command is run.", "popup"),
    KeyAction("close_list", "escape", "Close the list.", "popup"),
    KeyAction("queue_up", "up,k", "Go to the waiting prompt before.", "queue"),
    KeyAction("queue_down", "down,j", "Go to the next waiting prompt.", "queue"),
    KeyAction("queue_edit", "e,enter", "Edit the waiting prompt.", "queue"),
    KeyAction("queue_drop", "d,delete", "Drop the waiting prompt.", "queue"),
    KeyAction("queue_steer", "s", "Send the waiting prompt into the running turn.", "queue"),
    KeyAction("queue_mode", "m", "Give the waiting prompt another mode.", "queue"),
    KeyAction("queue_send", "w", "Send a prompt that rests.", "queue"),
    KeyAction("queue_leave", "escape,i", "Go back to the prompt.", "queue"),
    KeyAction("stop", "escape", "Stop the work; close what is open."),
    KeyAction("leave", "ctrl+c", "Copy what is selected, else clear the prompt; twice leaves Odin."),
    KeyAction("end_of_input", "ctrl+d", "Leave Odin when the prompt is empty."),
    KeyAction("suspend", "ctrl+z", "Suspend Odin; `fg` brings it back."),
    KeyAction("next_agent", "shift+tab", "Look at the next agent's work."),
    KeyAction("models", "ctrl+p", "Choose the model."),
    KeyAction("servers", "ctrl+o", "Look at MCP servers."),
    KeyAction("diagnostics", "ctrl+g", "Look at what is wrong."),
    KeyAction("contents", "ctrl+t", "List the prompts of this conversation."),
    KeyAction("errors", "f8", "Look at the last errors."),
    KeyAction("queue", "ctrl+q", "Go to the prompts that wait."),
    KeyAction("todos", "f9", "Fold or unfold the list of tasks."),
    KeyAction("side_panel", "ctrl+b", "Show or hide the panel at the side."),
    KeyAction("help", "f1", "Show the keys and commands."),
    KeyAction("redraw", "ctrl+l", "Draw the screen again."),
    KeyAction("permissions", "ctrl+y", "Go to the next permission mode."),
    KeyAction("page_up", "pageup", "Scroll up."),
    KeyAction("page_down", "pagedown", "Scroll down."),
    KeyAction("to_top", "ctrl+home", "Scroll to the beginning."),
    KeyAction("to_end", "ctrl+end", "Scroll to the end and follow it."),
    KeyAction("look", "alt+up,ctrl+up", "Move among the cards of the conversation."),
    KeyAction("write", "i", "Go back to the prompt.", "transcript"),
    KeyAction("next_card", "j,down", "Go to the next card.", "transcript"),
    KeyAction("previous_card", "k,up", "Go to the card before.", "transcript"),
    KeyAction("first_card", "g,home", "Go to the first card (gg).", "transcript"),
    KeyAction("last_card", "G,end", "Go to the last card.", "transcript"),
    KeyAction("search", "slash", "Search the conversation.", "transcript"),
    KeyAction("next_match", "n", "Go to the next place found.", "transcript"),
    KeyAction("previous_match", "N", "Go to the place found before.", "transcript"),
    KeyAction("fold", "o,enter,space", "Fold or unfold the card.", "transcript"),
    KeyAction("fold_all", "O", "Fold or unfold all cards.", "transcript"),
    KeyAction("edit_prompt", "e", "Edit the prompt under the cursor and go on from there.", "transcript"),
    KeyAction("copy_card", "y", "Copy the card.", "transcript"),
    KeyAction("stats", "dollar_sign", "Show what was spent.", "transcript"),
    KeyAction("help_here", "question_mark", "Show the keys and commands.", "transcript"),
    KeyAction("quit", "q", "Leave Odin (twice).", "transcript"),
    KeyAction("search_done", "enter", "Go to the places found.", "search"),
    KeyAction("search_close", "escape", "Give the search up.", "search"),
    KeyAction("allow_once", "y", "Allow it this once.", "permission"),
    KeyAction("allow_session", "s", "Allow it and remember a rule for this session; you see it first.", "permission"),
    KeyAction("allow_project", "p", "The same, for this project.", "permission"),
    KeyAction("allow_everywhere", "u", "The same, for all your projects.", "permission"),
    KeyAction("allow_note", "a", "Allow it, and tell the model something with its result.", "permission"),
    KeyAction("deny", "n", "Deny it; the model goes on without it.", "permission"),
    KeyAction("deny_words", "r,tab", "Deny it, and tell the model why.", "permission"),
    KeyAction("deny_always", "d", "Deny it and remember that.", "permission"),
    KeyAction("edit_call", "e", "Change the arguments before it runs.", "permission"),
    KeyAction("show_call", "v", "Show everything there is to know about the call.", "permission"),
    KeyAction("explain_keys", "question_mark", "Show these keys.", "permission"),
    KeyAction("stop_work", "escape", "Deny it and stop the work.", "permission"),
    KeyAction("next_option", "down,j,tab", "Go to the next option.", "questions"),
    KeyAction("previous_option", "up,k,shift+tab", "Go to the option before.", "questions"),
    KeyAction("toggle_option", "space", "Choose the option, or not.", "questions"),
    KeyAction("own_words", "o", "Answer in your own words.", "questions"),
    KeyAction("previous_question", "left,b", "Go back to the question before.", "questions"),
    KeyAction("settle", "enter,right", "Give this answer and go on.", "questions"),
    KeyAction("cancel", "escape", "Answer none of the questions.", "questions"),
    KeyAction("next_answer", "right,tab", "Go to the next answer.", "answers"),
    KeyAction("previous_answer", "left,shift+tab", "Go to the answer before.", "answers"),
    KeyAction("take_answer", "enter", "Give the answer that is marked.", "answers"),
    KeyAction("asked_down", "down", "Scroll down what is asked.", "answers"),
    KeyAction("asked_up", "up", "Scroll up what is asked.", "answers"),
    KeyAction("asked_page_down", "pagedown", "Scroll down a page of what is asked.", "answers"),
    KeyAction("asked_page_up", "pageup", "Scroll up a page of what is asked.", "answers"),
    KeyAction("asked_first", "home,ctrl+home", "Go to the beginning of what is asked.", "answers"),
    KeyAction("asked_last", "end,ctrl+end", "Go to the end of what is asked.", "answers"),
    KeyAction("confirm", "enter", "Take what is written.", "step"),
    KeyAction("use_arguments", "ctrl+s", "Use the arguments as they are changed now.", "step"),
    KeyAction("other", "tab", "Turn it: how long a rule holds; yes with a note instead of no.", "step"),
    KeyAction("next_rule", "down", "See another rule.", "step"),
    KeyAction("previous_rule", "up", "See the rule before.", "step"),
    KeyAction("back", "escape", "Go one step back.", "step"),
    KeyAction("yes", "y", "Yes.", "confirm"),
    KeyAction("no", "n", "No; so does any other key.", "confirm"),
    KeyAction("welcome_use", "enter", "Use the model that is marked.", "welcome"),
    KeyAction("welcome_next", "down,j,tab", "Go to the next one.", "welcome"),
    KeyAction("welcome_previous", "up,shift+tab", "Go to the one before.", "welcome"),
    KeyAction("welcome_key", "k", "Enter the key of a provider.", "welcome"),
    KeyAction("welcome_look", "l", "Look for model servers on this machine.", "welcome"),
    KeyAction("welcome_back", "escape", "Go back; begin without a model.", "welcome"),
    KeyAction("close", "escape", "Close the window.", "dialog"),
    KeyAction("list_up", "up,k", "Go up.", "list"),
    KeyAction("list_down", "down,j", "Go down.", "list"),
    KeyAction("list_page_up", "pageup", "Go a page up.", "list"),
    KeyAction("list_page_down", "pagedown,space", "Go a page down.", "list"),
    KeyAction("list_first", "ctrl+home,home,g", "Go to the first one.", "list"),
    KeyAction("list_last", "ctrl+end,end,G", "Go to the last one.", "list"),
    KeyAction("list_choose", "enter", "Choose the one that is marked.", "list"),
    KeyAction("list_narrow", "slash", "Type words that narrow the list.", "list"),
    KeyAction("list_other", "tab,shift+tab", "Go from the words to the list, and back.", "list"),
    KeyAction("rename_session", "f2,r", "Give the session another title.", "sessions"),
    KeyAction("copy_session", "f5,f", "Go on in a copy of the session.", "sessions"),
    KeyAction("export_session", "f6,x", "Write the session into a file.", "sessions"),
    KeyAction("delete_session", "delete,d", "Delete the session.", "sessions"),
    KeyAction("look_for_servers", "f5,ctrl+l,l", "Look for model servers on this machine.", "models"),
    KeyAction("add_rule", "a", "Add a rule.", "rules"),
    KeyAction("remove_rule", "d,delete", "Take the rule back.", "rules"),
    KeyAction("open_rule", "o", "Open the file the rule is in.", "rules"),
    KeyAction("rule_action", "tab", "Allow, ask or deny.", "rule"),
    KeyAction("rule_scope", "f2,shift+tab", "For this session, this project or all.", "rule"),
    KeyAction("redo_rewind", "r", "Take the last rewind back.", "rewind"),
    KeyAction("force_rewind", "f", "Also what somebody else changed.", "rewind"),
    KeyAction("fork_there", "e", "Edit the prompt in a copy of this session.", "contents"),
    KeyAction("copy_errors", "Y", "Copy all errors.", "errors"),
    KeyAction("read_down", "j,down", "Scroll down.", "reading"),
    KeyAction("read_up", "k,up", "Scroll up.", "reading"),
    KeyAction("read_page_down", "pagedown,space", "Scroll a page down.", "reading"),
    KeyAction("read_page_up", "pageup", "Scroll a page up.", "reading"),
    KeyAction("read_first", "home,g", "Go to the beginning.", "reading"),
    KeyAction("read_last", "end,G", "Go to the end.", "reading"),
    KeyAction("read_copy", "y", "Copy what is shown.", "reading"),
    KeyAction("read_close", "q,enter", "Close the window.", "reading"),
    KeyAction("stats_scope", "tab,shift+tab,s", "Of this session, or of the whole project.", "stats"),
    KeyAction("stats_next", "right,l", "Show the next page.", "stats"),
    KeyAction("stats_previous", "left,h", "Show the page before.", "stats"),
    KeyAction("stats_today", "t", "What was spent today.", "stats"),
    KeyAction("stats_week", "7", "What was spent in seven days.", "stats"),
    KeyAction("stats_month", "3", "What was spent in thirty days.", "stats"),
    KeyAction("stats_quarter", "9", "What was spent in ninety days.", "stats"),
    KeyAction("stats_all", "a", "What was ever spent.", "stats"),
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
        ours = {name: ",".join(map(parse_key, split_keys(keys))) for name, keys in own.items()}
        self.keys = tuple(replace(key, keys=ours.get(key.name, key.keys)) for key in KEYS)
        self._actions: dict[tuple[KeyScope, str], str] = {}
        for key in self.keys:
            for one in split_keys(key.keys):
                self._claim(key, one)

    def _claim(self, key: KeyAction, one: str) -> None:
        beside: tuple[KeyScope, ...] = (
            ("list",) if key.scope in LIST_SCOPES else LIST_SCOPES if key.scope == "list" else ()
        )
        taken = next((found for where in (key.scope, *beside) if (found := self.find_action(one, where))), "")
        if taken:
            raise UsageError(
                f"{format_key(one)} cannot be the key of both {taken!r} and {key.name!r} (tui.keys).",
                "They work in the same place: give one of them another key.",
            )
        self._actions[key.scope, one] = key.name

    def find_action(self, pressed: str, where: KeyScope) -> str:
        """What this key does there, or ""."""
        return self._actions.get((where, pressed), "")

    def label_of(self, name: str, *, typing: bool = False) -> str:
        """The first key of that name as people write it; with `typing` one that is none of what is being typed."""
        keys = split_keys(next((key.keys for key in self.keys if key.name == name), ""))
        fit = [key for key in keys if not (typing and is_typing_key(key))] or keys
        return format_key(fit[0]) if fit else ""


async def dispatch_key(widget: Widget, table: KeyTable, event: Key_, where: KeyScope) -> bool:
    """Do what the key does in this part of the screen, else what it does everywhere, in the order of the keys.

    Textual's own bindings would overtake characters that were typed before them and are still on their way.
    """
    name = table.find_action(event.key, where)
    action = name or (f"app.{found}" if (found := table.find_action(event.key, "everywhere")) else "")
    if not action:
        return False
    event.stop()
    event.prevent_default()
    await widget.run_action(action)
    return True


_EDIT_ACTIONS = {
    key: binding.action
    for binding in Input.BINDINGS
    if isinstance(binding, Binding)
    for key in binding.key.split(",")
    if key != "enter"
}


class LineInput(Input):
    """What changes the line is done in the order of the keys; Textual's bindings are overtaken by letters after them.

    Enter is left to whoever asked for the line. Nothing blinks.
    """

    def on_mount(self) -> None:
        self.cursor_blink = False

    async def _on_key(self, event: events.Key) -> None:
        action = _EDIT_ACTIONS.get(event.key)
        if action is None:
            await super()._on_key(event)
            return
        event.stop()
        event.prevent_default()
        await self.run_action(action)


class DialogInput(LineInput):
    """The dialog sees its keys first."""

    DEFAULT_CSS = """
    DialogInput { height: 1; border: none; padding: 0; background: $surface; }
    DialogInput:focus { border: none; background-tint: $foreground 0%; }
    """

    def __init__(self, on_key: Callable[[events.Key], bool], placeholder: str, *, id: str) -> None:
        super().__init__(placeholder=placeholder, id=id, compact=True, select_on_focus=False)
        self._key_filter = on_key

    async def _on_key(self, event: events.Key) -> None:
        if self._key_filter(event):
            event.stop()
            event.prevent_default()
        else:
            await super()._on_key(event)
