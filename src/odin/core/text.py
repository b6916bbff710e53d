"""Helpers for text: valid Unicode whatever the input bytes were, and short lists of names."""

from collections.abc import Iterable
from typing import Any, cast


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


def join_some(items: Iterable[str], most: int) -> str:
    """Return the first `most` items joined, and how many more there are."""
    found = list(items)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more


def append_piped_text(prompt: str, piped: str) -> str:
    """Return the prompt with the text piped to Odin below it, in a block whose end the text cannot imitate."""
    name, number = "stdin", 1
    while f"</{name}>" in piped:
        number += 1
        name = f"stdin-{number}"
    return f"{prompt}{_PIPED_START}{name[5:]}>\n{piped.removesuffix(_NEWLINE)}\n</{name}>"


def typed_text_of(prompt: str) -> str:
    """Return a prompt without the block of text that was piped to Odin."""
    return prompt.partition(_PIPED_START)[0]


_NEWLINE = "\n"
_PIPED_START = "\n\n<stdin"
