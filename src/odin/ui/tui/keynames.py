"""The names of keys: as Textual says them, as people write them, and whether there is such a key."""

import string

from textual.keys import Keys, _character_to_key

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
