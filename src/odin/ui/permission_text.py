"""A permission request as text, and its arguments as text that the user can edit; for plain mode and the app.

Each argument is edited on its own, so that code is shown as lines and not as a JSON string with escaped line breaks.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from odin.core.call_events import AnswerEvent, PermissionAnswered
from odin.core.errors import UsageError
from odin.core.interaction import MAX_TITLE, Detail, Interaction, make_interaction
from odin.core.policy import Danger
from odin.ui.plan_text import shorten_plan_path
from odin.ui.terminal import escape_hidden, quote_block, shorten, wrap_words

DANGER_WORDS: dict[Danger, str] = {
    "read_only": "read-only",
    "changes_files": "changes files",
    "network": "network",
    "outside_project": "outside the project",
    "hard_to_undo": "hard to undo",
    "credentials": "credentials",
}
"""How dangerous a call is, as shown to the user."""

_MAX_TASK = 60
"""Characters of a sub-agent's task in a headline."""


def format_headline(interaction: Interaction, cwd: str = "") -> str:
    """Return what is asked, and which sub-agent asks; the path of a plan as the user would type it in `cwd`."""
    title = shorten(escape_hidden(interaction.title), MAX_TITLE)
    if interaction.kind == "plan":
        return f"Plan: {title} ({escape_hidden(shorten_plan_path(interaction.plan.path, cwd or '/'))})"
    if not interaction.agent:
        return title
    task = shorten(" ".join(escape_hidden(interaction.task).split()), _MAX_TASK)
    return f"{escape_hidden(interaction.agent)}{f' ({task})' if task else ''} asks: {title}"


def format_details(details: Sequence[Detail], columns: int) -> list[str]:
    """Return the command, URL or paths, and what Odin says about them; the front end shows diffs its own way."""
    lines: list[str] = []
    for detail in details:
        lines += [detail.heading] if detail.heading else ()
        if detail.kind == "quote":
            lines += quote_block(detail.text, columns)
        elif detail.kind == "text":
            lines.append(wrap_words(escape_hidden(detail.text), columns))
    return lines


def list_offered_rules(interaction: Interaction) -> tuple[str, ...]:
    """Return the rules that can be offered: those that print exactly as they will be stored."""
    rules = (option.label for field in interaction.form if field.name == "rule" for option in field.options)
    return tuple(rule for rule in rules if escape_hidden(rule) == rule)


def describe_answer_elsewhere(answered: AnswerEvent) -> str:
    """Return who answered what was on the screen; "" if it was canceled, which the session reports."""
    if answered.by in ("interrupt", "shutdown", "timeout", "steer"):
        return ""
    if not isinstance(answered, PermissionAnswered):
        where = f"from {escape_hidden(answered.client)}" if answered.client else "elsewhere"
        return f"This was answered {where}."
    decision = "allowed" if answered.allowed else "denied"
    if answered.by == "rule":
        return f"A rule has {decision} this."
    if answered.client:
        return f"This was {decision} from {escape_hidden(answered.client)}."
    return f"This was answered elsewhere: {decision} by {escape_hidden(answered.by)}."


_MAIN_NAMES = ("command", "new_string", "content")
"""The arguments that users most likely want to edit, in this order."""

_CODE_NAMES = ("new_string", "old_string", "content")

ArgumentPath = tuple[str | int, ...]
"""The names and indexes that lead to a value: `("edits", 0, "new_string")`. The empty path is all arguments."""


class ArgumentForm:
    """The arguments with the edits so far, and which value is being edited: one of `paths`, the last being all.

    A string is edited as it is if all its characters are visible, any other value as JSON.
    """

    def __init__(self, args: Mapping[str, Any]) -> None:
        self.args: dict[str, Any] = copy.deepcopy(dict(args))
        self.paths: list[ArgumentPath] = []
        self.number = 0
        self._list_paths()
        self.number = self._find_main()

    def _list_paths(self) -> None:
        leaves = list(_walk_values((), self.args))
        self.paths = [*leaves, ()] if leaves else [()]
        self.number = min(self.number, len(self.paths) - 1)

    def _find_main(self) -> int:
        names = [path[-1] for path in self.paths if path]
        main = next((names.index(name) for name in _MAIN_NAMES if name in names), None)
        if main is not None:
            return main
        return next((at for at, path in enumerate(self.paths) if path and "\n" in str(self.get_value(path))), 0)

    @property
    def name(self) -> str:
        """The name of the edited value: `command`, `edits[0].new_string`; "" for all arguments."""
        return name_path(self.paths[self.number])

    def format_label(self) -> str:
        """Return the heading over the text: its name, and which of several it is."""
        if not self.name:
            return "All arguments as JSON:"
        place = f" (argument {self.number + 1} of {len(self.paths) - 1})" if self.has_several else ""
        return f"{self.name}{place}:"

    @property
    def text(self) -> str:
        """The edited value as text."""
        value = self.get_value(self.paths[self.number])
        return value if isinstance(value, str) and _is_all_visible(value) else _format_json(value)

    @property
    def is_single_line(self) -> bool:
        """True if Enter should confirm the text instead of breaking the line."""
        path = self.paths[self.number]
        return bool(path) and path[-1] not in _CODE_NAMES and "\n" not in self.text

    @property
    def has_several(self) -> bool:
        return len(self.paths) > 2

    def select(self, name: str) -> None:
        """Edit the value with this name; `all` for all arguments, "" for the main one. Raise UsageError."""
        names = self.list_names()
        if name not in names:
            raise UsageError(f"There is no argument {name!r}.", f"The arguments are: {', '.join(names[1:])}.")
        if name:
            self.number = names.index(name) - 1

    def list_names(self) -> list[str]:
        """Return the names that `select` accepts."""
        return ["", *(name_path(path) or "all" for path in self.paths)]

    def switch(self, by: int) -> None:
        """Edit another value."""
        self.number = (self.number + by) % len(self.paths)

    def store(self, text: str) -> None:
        """Set the edited value. Raise UsageError if the text is not valid."""
        path = self.paths[self.number]
        if text == self.text:
            return
        before = self.get_value(path)
        if isinstance(before, str) and _is_all_visible(before):
            if path[-1] == "command" and not text.strip():
                raise UsageError("The command is empty.", "Enter one, or go back.")
            value: Any = text
        else:
            value = _parse_json(text)
        if not path:
            if not isinstance(value, dict):
                raise UsageError("The arguments must be a JSON object.")
            self.args = cast("dict[str, Any]", value)
            self._list_paths()
            self.number = len(self.paths) - 1
            return
        holder: Any = self.get_value(path[:-1])
        holder[path[-1]] = value

    def get_value(self, path: ArgumentPath) -> Any:
        """Return the value at a path, with the edits so far."""
        value: Any = self.args
        for step in path:
            value = value[step]
        return value


class InvalidJson(UsageError):
    """`place` is the 0-based row and column of the error, for the cursor."""

    def __init__(self, error: json.JSONDecodeError) -> None:
        super().__init__(f"Invalid JSON: {error.msg} at line {error.lineno}, column {error.colno}.")
        self.place = (error.lineno - 1, error.colno - 1)


def name_path(path: ArgumentPath) -> str:
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else step
    return name


def _walk_values(path: ArgumentPath, value: Any) -> Iterator[ArgumentPath]:
    """Yield the paths of all values that contain no others."""
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str, Any]", value).items())
    elif isinstance(value, list):
        inner = list(enumerate(cast("list[Any]", value)))
    if not inner and path:
        yield path
    for step, item in inner:
        yield from _walk_values((*path, step), item)


def _parse_json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidJson(error) from None


def _format_json(value: Any) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return "".join((char if char == "\n" or escape_hidden(char) == char else json.dumps(char)[1:-1]) for char in text)


def _is_all_visible(text: str) -> bool:
    """True if every character is shown as it is: spaces, line breaks and tabs are, too."""
    return all(char in "\n\t" or escape_hidden(char) == char for char in text)


def format_arguments(args: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the name and the text of each argument; text with line breaks is given as it is, other values as JSON."""
    return [
        (name, value if isinstance(value, str) else msgspec.json.encode(value).decode()) for name, value in args.items()
    ]


def diff_arguments(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return how the arguments differ, as a unified diff with one file for each changed value."""
    import difflib

    old, new = _flatten(before), _flatten(after)
    lines: list[str] = []
    for name in dict.fromkeys((*old, *new)):
        first, second = old.get(name, ""), new.get(name, "")
        if first != second:
            lines += difflib.unified_diff(
                first.split("\n"), second.split("\n"), f"requested/{name}", f"edited/{name}", lineterm=""
            )
    return "\n".join(lines)


def _flatten(args: Mapping[str, Any]) -> dict[str, str]:
    form = ArgumentForm(args)
    values = {name_path(path): form.get_value(path) for path in form.paths if path}
    return {name: value if isinstance(value, str) else _format_json(value) for name, value in values.items()}


def summarize_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """Return "changed" and the names of the changed arguments, or ""."""
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return f"changed {', '.join(names)}" if names else ""


_SUBJECT_NAMES = ("command", "file_path", "path", "url")
"""The arguments that a request can be about."""


def replace_arguments(ask: Interaction, args: dict[str, Any]) -> Interaction:
    """Return the request with edited arguments, and the edits as its preview.

    Rules, modes, paths and effect belong to the original arguments and are left out.
    """
    asked = ask.permission
    subject = next((value for name in _SUBJECT_NAMES if isinstance(value := args.get(name), str)), asked.subject)
    is_same = subject == next((asked.args[name] for name in _SUBJECT_NAMES if name in asked.args), subject)
    edited = msgspec.structs.replace(
        asked,
        args=args,
        subject=asked.subject if is_same else subject,
        title=asked.title if is_same else "",
        rules=(),
        preview=diff_arguments(asked.args, args),
        permission_modes=(),
        effect="",
        asked_paths=(),
        allowed_paths=(),
        granted_paths=(),
        granted_network=False,
        effects=None,
        git_changes=(),
        reason="",
    )
    return make_interaction(edited, ask.agent)
