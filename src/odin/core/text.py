"""Helpers for text: valid Unicode whatever the input bytes were, lists of names, likely typos and wrong values, piped
text."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from msgspec import inspect


def to_valid_unicode(text: str) -> str:
    """Return the text with U+FFFD in place of lone surrogates, which stand for bytes that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return (
            text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            if _is_surrogate_escaped(text)
            else _replace_surrogates(text)
        )
    return text


def to_valid_unicode_all(value: Any) -> Any:
    """Return plain data with `to_valid_unicode` applied to every string."""
    if isinstance(value, str):
        return to_valid_unicode(value)
    if isinstance(value, list | tuple):
        return [to_valid_unicode_all(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {
            to_valid_unicode_all(key): to_valid_unicode_all(item) for key, item in cast("dict[str, Any]", value).items()
        }
    return value


def _is_surrogate_escaped(text: str) -> bool:
    return all(not "\ud800" <= char <= "\udfff" or "\udc80" <= char <= "\udcff" for char in text)


def _replace_surrogates(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)


def list_choices(choices: Iterable[str]) -> str:
    """Return `a, b or c`."""
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


SAID_ONCE = "(`odin doctor` repeats this.)"
"""The end of a warning that sessions show only once, until its text changes."""


def join_some(items: Iterable[str], most: int) -> str:
    """Return the first `most` items joined, and how many more there are."""
    found = list(items)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


SIMILARITY = 0.7
"""How alike two words must be, from 0 to 1, for one to be a likely typo of the other."""


def find_similar(word: str, known: Iterable[str], similarity: float = SIMILARITY) -> str:
    """Return the known word that this one is most likely a typo of, or ""."""
    from difflib import get_close_matches

    folded = {_fold_name(name): name for name in known}
    wanted = _fold_name(word)
    close = get_close_matches(wanted, folded, cutoff=similarity)
    close.sort(key=lambda name: sorted(name) != sorted(wanted))  # swapped letters are the most likely typo
    return folded[close[0]] if close else ""


def suggest_similar(word: str, known: Iterable[str], form: str = "{}") -> str:
    """Return ` Did you mean WORD?` with the most similar known word in this form, or "" if none is similar."""
    found = find_similar(word, known)
    return f" Did you mean {form.format(found)}?" if found else ""


def _fold_name(name: str) -> str:
    return name.casefold().replace("_", "").replace("-", "")


_MAX_SHOWN = 40
_KIND_NAMES: tuple[tuple[type[Any], str], ...] = (
    (str, "text"),
    (bool, "true or false"),
    (int, "a number"),
    (float, "a number"),
    (list, "a list"),
    (dict, "an object"),
)
_TYPE_NAMES = {
    "IntType": "a whole number",
    "FloatType": "a number",
    "BoolType": "true or false",
    "StrType": "text",
    "ListType": "a list",
    "VarTupleType": "a list",
}


def describe_type(value: Any) -> str:
    """Return the kind of a JSON value: `text`, `a number`, `a list`, …"""
    return next((name for kind, name in _KIND_NAMES if isinstance(value, kind)), "null")


def describe_mismatch(value: Any, kind: Any) -> str:
    """Return why a value does not fit a type: `must be auto, dark or light, not "drak". Did you mean "dark"?`

    Only short scalars are shown.
    """
    from msgspec import inspect

    types = list(_flatten(inspect.type_info(kind)))
    names = [str(name) for found in types if isinstance(found, inspect.LiteralType) for name in found.values]
    if names:
        choices = [name for name in names if not name.endswith("_mode")]
        suggestion = suggest_similar(value, choices, '"{}"') if isinstance(value, str) else ""
        return f"must be {list_choices(choices)}, not {_show(value)}.{suggestion}"
    if limits := next((limits for found in types if (limits := _describe_limits(found, value))), ""):
        return f"must be {limits}, not {_show(value)}."
    expected = list_choices(dict.fromkeys(_TYPE_NAMES.get(type(found).__name__, "an object") for found in types))
    return f"must be {expected}, not {describe_type(value) if expected == 'text' else _show(value)}."


def _flatten(found: "inspect.Type") -> "Iterator[inspect.Type]":
    """Yield the alternatives of a type, without None and without annotations."""
    from msgspec import inspect

    if isinstance(found, inspect.Metadata):
        yield from _flatten(found.type)
    elif isinstance(found, inspect.UnionType):
        for inner in found.types:
            yield from _flatten(inner)
    elif not isinstance(found, inspect.NoneType):
        yield found


def _describe_limits(found: "inspect.Type", value: Any) -> str:
    """Return the limits that a value of the right type violates."""
    from msgspec import inspect

    if isinstance(found, inspect.StrType) and value == "" and found.min_length:
        return "text that is not empty"
    if not isinstance(found, inspect.IntType | inspect.FloatType) or isinstance(value, bool):
        return ""
    if not isinstance(value, int if isinstance(found, inspect.IntType) else int | float):
        return ""
    if found.ge is not None and found.le is not None:
        return f"from {found.ge:g} to {found.le:g}"
    limits = (("more than {:g}", found.gt), ("at least {:g}", found.ge), ("at most {:g}", found.le))
    return " and ".join(form.format(limit) for form, limit in limits if limit is not None)


def _show(value: Any) -> str:
    import json

    if isinstance(value, str | int | float) and len(shown := json.dumps(value, ensure_ascii=False)) <= _MAX_SHOWN:
        return shown
    return describe_type(value)


def append_piped_text(prompt: str, piped: str) -> str:
    """Return the prompt with the text piped to Odin below it, in a block whose end the text cannot imitate."""
    name, number = "stdin", 1
    while f"</{name}>" in piped:
        number += 1
        name = f"stdin-{number}"
    return f"{prompt}{_PIPED_START}{name[5:]}>\n{piped.removesuffix(_NEWLINE)}\n</{name}>"


def get_typed_text(prompt: str) -> str:
    """Return a prompt without the block of text that was piped to Odin."""
    return prompt.partition(_PIPED_START)[0]


_NEWLINE = "\n"
_PIPED_START = "\n\n<stdin"
