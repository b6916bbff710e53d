"""The key table: every key of the app with its name in `tui.keys`, its scope and its description; and the text inputs.

Widgets look keys up in `_on_key` instead of using Textual bindings: bindings are queued and would be overtaken by
characters typed after them.
"""

import string
from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace
from textual import events
from textual.binding import Binding
from textual.events import Key as Key_
from textual.geometry import Offset
from textual.keys import Keys, _character_to_key
from textual.widget import Widget
from textual.widgets import Input, TextArea

from odin.core.errors import UsageError
from odin.core.text import suggest_similar

_PUNCTUATION = {_character_to_key(char): char for char in string.punctuation}
"""`slash` is `/`."""

_DISPLAY_NAMES = {**_PUNCTUATION, "pageup": "PgUp", "pagedown": "PgDn", "escape": "Esc", "delete": "Del"}
_ALIASES = {"esc": "escape", "pgup": "pageup", "pgdn": "pagedown", "del": "delete", "return": "enter", "ins": "insert"}
_MODIFIERS = ("ctrl", "alt", "shift", "super", "meta", "hyper")
_KEY_NAMES = {key.value for key in Keys if key.value.isalnum() and len(key.value) > 1}


def split_keys(keys: str) -> list[str]:
    """Split a comma-separated list of keys."""
    return [one.strip() for one in keys.split(",") if one.strip()]


def format_key(key: str) -> str:
    """Return a key in readable form: `Ctrl+_` for `ctrl+underscore`."""
    words = [_DISPLAY_NAMES.get(word, word if len(word) == 1 else word.capitalize()) for word in key.split("+")]
    if len(words) > 1 and len(words[-1]) == 1:
        words[-1] = words[-1].upper()
    return "+".join(words)


def is_typing_key(key: str) -> bool:
    """True if the key types a character or moves the cursor in a line input."""
    return len(key) == 1 or key in _PUNCTUATION or key in ("space", "backspace", "home", "end", "left", "right")


def parse_key(written: str) -> str:
    """Return Textual's name of a key: `ctrl+t` for `Ctrl+T`, `slash` for `/`. Raise UsageError if it is unknown."""
    *before, last = written.split("+")
    modifiers = [word.strip().casefold() for word in before]
    last = _character_to_key(last) if len(last) == 1 else _ALIASES.get(last.casefold(), last.casefold())
    if len(last) == 1 and modifiers == ["shift"]:
        modifiers, last = [], last.upper()
    elif len(last) == 1 and modifiers:
        last = last.casefold()
    known = len(last) == 1 or last in _KEY_NAMES or last in _PUNCTUATION
    if not known or any(word not in _MODIFIERS for word in modifiers):
        raise UsageError(f"Unknown key {written!r} in tui.keys.", "Write keys as f3, ctrl+t, alt+up or slash.")
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
    "plan",
    "request",
    "answers",
    "step",
    "confirm",
    "welcome",
    "dialog",
    "list",
    "sessions",
    "models",
    "rules",
    "servers",
    "processes",
    "rule",
    "rewind",
    "contents",
    "errors",
    "reading",
    "stats",
]
"""Where a key works. In a dialog, its own scopes come before those all dialogs share."""

LIST_SCOPES: tuple[KeyScope, ...] = (
    *("sessions", "models", "rules", "servers", "processes", "rewind", "contents", "errors"),
)
"""Lists with keys of their own in addition to those of `list`."""


class KeyAction(Struct, frozen=True):
    """`name` is the name in `tui.keys` and of the action. `keys` are Textual key names, separated by commas."""

    name: str
    keys: str
    description: str
    scope: KeyScope = "everywhere"


KEYS: tuple[KeyAction, ...] = (
    KeyAction("send", "enter", "Send the prompt, or queue it while Odin works.", "composer"),
    KeyAction("steer", "ctrl+s,ctrl+enter", "Send the prompt into the running turn.", "composer"),
    KeyAction("newline", "shift+enter,alt+enter,ctrl+j", "Insert a line break.", "composer"),
    KeyAction("edit_outside", "ctrl+x", "Edit the prompt in $EDITOR.", "composer"),
    KeyAction("search_history", "ctrl+r", "Search the prompt history.", "composer"),
    KeyAction("paste_image", "ctrl+v", "Paste text or an image from the clipboard.", "composer"),
    KeyAction("undo", "ctrl+underscore", "Undo.", "composer"),
    KeyAction("redo", "alt+underscore,ctrl+shift+z", "Redo.", "composer"),
    KeyAction("next_role", "tab", "Switch the role: who works. The planner plans in any mode.", "composer"),
    KeyAction("next_mode", "f2,alt+m", "Switch the mode: what Odin may do, in any role (ask, plan, edit).", "composer"),
    KeyAction("errors_here", "ctrl+e", "Show the last errors, if the prompt is empty.", "composer"),
    KeyAction("choose_next", "down,ctrl+n", "Next item.", "popup"),
    KeyAction("choose_previous", "up,ctrl+p", "Previous item.", "popup"),
    KeyAction("choose", "tab", "Insert the selected item.", "popup"),
    KeyAction("choose_and_send", "enter", "Insert the selected item; run it if it is a complete command.", "popup"),
    KeyAction("close_list", "escape", "Close the popup.", "popup"),
    KeyAction("queue_up", "up,k", "Previous prompt.", "queue"),
    KeyAction("queue_down", "down,j", "Next prompt.", "queue"),
    KeyAction("queue_edit", "e,enter", "Edit the queued prompt.", "queue"),
    KeyAction("queue_drop", "d,delete", "Remove the queued prompt.", "queue"),
    KeyAction("queue_steer", "s", "Send the queued prompt into the running turn.", "queue"),
    KeyAction("queue_mode", "m", "Change the mode of the queued prompt.", "queue"),
    KeyAction("queue_send", "w", "Send a paused prompt.", "queue"),
    KeyAction("queue_leave", "escape,i", "Return to the prompt.", "queue"),
    KeyAction("stop", "escape", "Interrupt the work; close the popup or search."),
    KeyAction("leave", "ctrl+c", "Copy the selection, else clear the prompt, else stop the work; press twice to exit."),
    KeyAction("end_of_input", "ctrl+d", "Exit, if the prompt is empty."),
    KeyAction("suspend", "ctrl+z", "Suspend Odin; resume with `fg`."),
    KeyAction("next_agent", "shift+tab", "Show the next agent. Prompts and Esc go to the shown agent."),
    KeyAction("models", "ctrl+p", "Choose a model."),
    KeyAction("effort", "alt+t", "Switch the reasoning effort: low, medium or high."),
    KeyAction("mcp", "ctrl+o", "Show the MCP servers."),
    KeyAction("diagnostics", "ctrl+g", "Show warnings and diagnostics."),
    KeyAction("contents", "ctrl+t", "List the prompts of this conversation."),
    KeyAction("errors", "f8", "Show the last errors."),
    KeyAction("queue", "ctrl+q", "Edit the queue."),
    KeyAction("todos", "f9", "Fold or unfold the to-do list."),
    KeyAction("side_panel", "f4", "Show or hide the side panel."),
    KeyAction("to_background", "ctrl+b", "Send the running command to the background."),
    KeyAction("help", "f1", "Show keys and commands."),
    KeyAction("redraw", "ctrl+l", "Redraw the screen."),
    KeyAction("permissions", "ctrl+y", "Switch the permission mode: what Odin asks about before it acts."),
    KeyAction("page_up", "pageup", "Scroll up."),
    KeyAction("page_down", "pagedown", "Scroll down."),
    KeyAction("to_top", "ctrl+home", "Scroll to the top."),
    KeyAction("to_end", "ctrl+end", "Scroll to the end and follow new output."),
    KeyAction("look", "alt+up,ctrl+up", "Move between the cards of the conversation."),
    KeyAction("write", "i", "Return to the prompt.", "transcript"),
    KeyAction("next_card", "j,down", "Next card.", "transcript"),
    KeyAction("previous_card", "k,up", "Previous card.", "transcript"),
    KeyAction("first_card", "g,home", "First card (gg).", "transcript"),
    KeyAction("last_card", "G,end", "Last card.", "transcript"),
    KeyAction("search", "slash", "Search the conversation.", "transcript"),
    KeyAction("next_match", "n", "Next match.", "transcript"),
    KeyAction("previous_match", "N", "Previous match.", "transcript"),
    KeyAction("fold", "o,enter,space", "Fold or unfold the card.", "transcript"),
    KeyAction("fold_all", "O", "Fold or unfold all cards.", "transcript"),
    KeyAction("edit_prompt", "e", "Edit this prompt in a copy of the session.", "transcript"),
    KeyAction("open_agent", "a", "Show the transcript of this card's agent.", "transcript"),
    KeyAction("copy_card", "y", "Copy the card.", "transcript"),
    KeyAction("stats", "dollar_sign", "Show usage statistics.", "transcript"),
    KeyAction("help_here", "question_mark", "Show keys and commands.", "transcript"),
    KeyAction("quit", "q", "Exit (press twice).", "transcript"),
    KeyAction("search_done", "enter", "Go to the matches.", "search"),
    KeyAction("search_close", "escape", "Cancel the search.", "search"),
    KeyAction("allow_once", "y", "Allow once.", "permission"),
    KeyAction(
        "allow_session", "s", "Allow and save a rule for this session; you can edit the rule first.", "permission"
    ),
    KeyAction("allow_project", "p", "Allow and save a rule for this project.", "permission"),
    KeyAction("allow_everywhere", "u", "Allow and save a rule for all projects.", "permission"),
    KeyAction(
        "allow_mode",
        "a",
        "Allow this and all later edits in the project, or all later sandboxed commands.",
        "permission",
    ),
    KeyAction("allow_note", "w", "Allow, with a note that the model reads with the result.", "permission"),
    KeyAction("deny", "n", "Deny; the model continues without it.", "permission"),
    KeyAction("deny_words", "r,tab", "Deny and tell the model why.", "permission"),
    KeyAction("deny_always", "d", "Deny and save a rule.", "permission"),
    KeyAction("edit_call", "e", "Edit the arguments before the call runs.", "permission"),
    KeyAction("show_call", "v", "Show all details of the call.", "permission"),
    KeyAction("more_answers", "m", "Show all answers, or only the usual ones.", "permission"),
    KeyAction("explain_keys", "question_mark", "Show these keys.", "permission"),
    KeyAction("stop_work", "escape", "Deny and stop the work.", "permission"),
    KeyAction("next_option", "down,j,tab", "Next option.", "questions"),
    KeyAction("previous_option", "up,k,shift+tab", "Previous option.", "questions"),
    KeyAction("toggle_option", "space", "Select or unselect the option.", "questions"),
    KeyAction("own_words", "o", "Answer with your own text.", "questions"),
    KeyAction("previous_question", "left,b", "Previous question.", "questions"),
    KeyAction("settle", "enter,right", "Confirm this answer and continue.", "questions"),
    KeyAction("cancel", "escape", "Cancel all questions.", "questions"),
    KeyAction("approve_plan", "y", "Approve the plan and carry it out here.", "plan"),
    KeyAction("approve_edits", "a", "Approve the plan and accept edits from now on.", "plan"),
    KeyAction("plan_session", "s", "Approve the plan and carry it out in a new session.", "plan"),
    KeyAction("change_plan", "r,c", "Say what to change in the plan.", "plan"),
    KeyAction("keep_planning", "escape,n", "Keep planning; the plan stays saved.", "plan"),
    KeyAction("answer_request", "tab", "Answer the request. Until then, what you type goes to the prompt.", "request"),
    KeyAction("next_answer", "right,tab", "Next answer.", "answers"),
    KeyAction("previous_answer", "left,shift+tab", "Previous answer.", "answers"),
    KeyAction("take_answer", "enter", "Choose the selected answer.", "answers"),
    KeyAction("asked_down", "down", "Scroll the request down.", "answers"),
    KeyAction("asked_up", "up", "Scroll the request up.", "answers"),
    KeyAction("asked_page_down", "space,alt+pagedown", "Scroll the request down a page.", "answers"),
    KeyAction("asked_page_up", "b,alt+pageup", "Scroll the request up a page.", "answers"),
    KeyAction("asked_first", "home", "Scroll the request to the top.", "answers"),
    KeyAction("asked_last", "end", "Scroll the request to the end.", "answers"),
    KeyAction("confirm", "enter", "Confirm the text.", "step"),
    KeyAction("use_arguments", "ctrl+s", "Use the edited arguments.", "step"),
    KeyAction("other", "tab", "Switch: rule scope, argument to edit, or deny ↔ allow with a note.", "step"),
    KeyAction("next_rule", "down", "Next rule.", "step"),
    KeyAction("previous_rule", "up", "Previous rule.", "step"),
    KeyAction("back", "escape", "Go back one step.", "step"),
    KeyAction("yes", "y", "Yes.", "confirm"),
    KeyAction("no", "n", "No; any other key does the same.", "confirm"),
    KeyAction("welcome_use", "enter", "Use the selected model.", "welcome"),
    KeyAction("welcome_next", "down,j,tab", "Next model.", "welcome"),
    KeyAction("welcome_previous", "up,shift+tab", "Previous model.", "welcome"),
    KeyAction("welcome_key", "k", "Enter an API key.", "welcome"),
    KeyAction("welcome_look", "l", "Find model servers on this machine.", "welcome"),
    KeyAction("welcome_url", "u", "Add a model server by its URL.", "welcome"),
    KeyAction("welcome_back", "escape", "Go back; start without a model.", "welcome"),
    KeyAction("close", "escape", "Close the dialog.", "dialog"),
    KeyAction("list_up", "up,k", "Up.", "list"),
    KeyAction("list_down", "down,j", "Down.", "list"),
    KeyAction("list_page_up", "pageup", "Page up.", "list"),
    KeyAction("list_page_down", "pagedown,space", "Page down.", "list"),
    KeyAction("list_first", "ctrl+home,home,g", "First item.", "list"),
    KeyAction("list_last", "ctrl+end,end,G", "Last item.", "list"),
    KeyAction("list_choose", "enter", "Choose the selected item.", "list"),
    KeyAction("list_narrow", "slash", "Filter the list.", "list"),
    KeyAction("list_other", "tab,shift+tab", "Switch between filter and list.", "list"),
    KeyAction("rename_session", "f2,r", "Rename the session.", "sessions"),
    KeyAction("copy_session", "f5,f", "Continue in a copy of the session.", "sessions"),
    KeyAction("export_session", "f6,x", "Export the session to a file.", "sessions"),
    KeyAction("delete_session", "delete,d", "Delete the session.", "sessions"),
    KeyAction("use_once", "f6,o", "Use the model only for this session.", "models"),
    KeyAction("look_for_servers", "f5,ctrl+l,l", "Find model servers on this machine.", "models"),
    KeyAction("add_rule", "a", "Add a rule.", "rules"),
    KeyAction("remove_rule", "d,delete", "Remove the rule.", "rules"),
    KeyAction("open_rule", "o", "Open the file that contains the rule.", "rules"),
    KeyAction("enable_server", "e", "Enable the MCP server.", "servers"),
    KeyAction("disable_server", "d", "Disable the MCP server.", "servers"),
    KeyAction("reconnect_server", "r", "Connect the MCP server again.", "servers"),
    KeyAction("stop_process", "s,delete", "Stop the process.", "processes"),
    KeyAction("open_port", "o", "Open the port of the process to your browser.", "processes"),
    KeyAction("rule_action", "tab", "Switch between allow, ask and deny.", "rule"),
    KeyAction("rule_scope", "f2,shift+tab", "Switch between session, project and all projects.", "rule"),
    KeyAction("redo_rewind", "r", "Redo the last rewind.", "rewind"),
    KeyAction("force_rewind", "f", "Also overwrite changes made outside Odin.", "rewind"),
    KeyAction("fork_there", "e", "Edit the prompt in a copy of the session.", "contents"),
    KeyAction("copy_errors", "Y", "Copy all errors.", "errors"),
    KeyAction("read_down", "j,down", "Scroll down.", "reading"),
    KeyAction("read_up", "k,up", "Scroll up.", "reading"),
    KeyAction("read_page_down", "pagedown,space", "Page down.", "reading"),
    KeyAction("read_page_up", "pageup", "Page up.", "reading"),
    KeyAction("read_first", "home,g", "Go to the top.", "reading"),
    KeyAction("read_last", "end,G", "Go to the end.", "reading"),
    KeyAction("read_copy", "y", "Copy the text.", "reading"),
    KeyAction("read_close", "q,enter", "Close the dialog.", "reading"),
    KeyAction("stats_scope", "tab,shift+tab,s", "Switch between session and project.", "stats"),
    KeyAction("stats_next", "right,l", "Next view.", "stats"),
    KeyAction("stats_previous", "left,h", "Previous view.", "stats"),
    KeyAction("stats_today", "t", "Today.", "stats"),
    KeyAction("stats_week", "7", "Last 7 days.", "stats"),
    KeyAction("stats_month", "3", "Last 30 days.", "stats"),
    KeyAction("stats_quarter", "9", "Last 90 days.", "stats"),
    KeyAction("stats_all", "a", "All time.", "stats"),
)


class KeyTable:
    """Maps keys to actions, with the user's `tui.keys` in place of the defaults.

    Raise UsageError for unknown names and keys, and if two actions of the same scope have the same key.
    """

    def __init__(self, chosen: Mapping[str, str] | None = None) -> None:
        own = dict(chosen or {})
        unknown = sorted(set(own) - {key.name for key in KEYS})
        if unknown:
            suggestion = suggest_similar(unknown[0], (key.name for key in KEYS))
            raise UsageError(
                f"Unknown action {unknown[0]!r} in tui.keys.{suggestion}", "F1 in the app lists the names."
            )
        ours = {name: ",".join(map(parse_key, split_keys(keys))) for name, keys in own.items()}
        self.keys = tuple(replace(key, keys=ours.get(key.name, key.keys)) for key in KEYS)
        self._actions: dict[tuple[KeyScope, str], str] = {}
        for key in self.keys:
            for one in split_keys(key.keys):
                shared: tuple[KeyScope, ...] = (
                    ("list",) if key.scope in LIST_SCOPES else LIST_SCOPES if key.scope == "list" else ()
                )
                taken = next((found for scope in (key.scope, *shared) if (found := self.find_action(one, scope))), "")
                if taken:
                    raise UsageError(
                        f"{format_key(one)} is assigned to both {taken!r} and {key.name!r} in tui.keys.",
                        "Both work in the same place; give one of them another key.",
                    )
                self._actions[key.scope, one] = key.name

    def find_action(self, pressed: str, scope: KeyScope) -> str:
        """Return the action of a key in a scope, or ""."""
        return self._actions.get((scope, pressed), "")

    def get_label(self, name: str, *, typing: bool = False) -> str:
        """Return the first key of an action in readable form; with `typing`, preferably one that types no text."""
        keys = split_keys(next((key.keys for key in self.keys if key.name == name), ""))
        fit = [key for key in keys if not (typing and is_typing_key(key))] or keys
        return format_key(fit[0]) if fit else ""


async def dispatch_key(widget: Widget, table: KeyTable, event: Key_, scope: KeyScope) -> bool:
    """Run the action of a key in this scope, or its app-wide action. False if it has none.

    An action that the widget does not have is the app's; `errors_here` is `errors`, on a key that works only here.
    """
    own = table.find_action(event.key, scope)
    name = own or table.find_action(event.key, "everywhere")
    if not name:
        return False
    event.stop()
    event.prevent_default()
    is_own = bool(own) and hasattr(widget, f"action_{own}")
    await widget.run_action(name if is_own else f"app.{name.removesuffix('_here')}")
    return True


_EDIT_ACTIONS = {
    key: binding.action
    for binding in Input.BINDINGS
    if isinstance(binding, Binding)
    for key in binding.key.split(",")
    if key != "enter"
}


def make_scroll_action(kind: type[Widget], method: str) -> Callable[[Any], None]:
    """Return the action of a screen that scrolls its widget of this kind, such as with `scroll_home`."""
    return lambda screen: getattr(screen.query_one(kind), method)(animate=False)


class LineInput(Input):
    """An input that runs its editing keys in order with typed characters. Enter is left to the parent."""

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
    """An input whose keys are first offered to the dialog."""

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


class StableTextArea(TextArea):
    """A text area whose undo and redo may shorten the text above the cursor.

    Textual moves the cursor only after it has updated the scroll bar. If the scroll bar goes, it looks for the cursor
    in lines that no longer exist.
    """

    def scroll_cursor_visible(self, center: bool = False, animate: bool = False) -> Offset:
        if self.cursor_location[0] >= self.wrapped_document.document.line_count:
            return Offset()
        return super().scroll_cursor_visible(center, animate)
