"""Text as it may be stored and sent: valid Unicode, whatever bytes the outside world put into it."""

from typing import Any, cast


def mended(text: str) -> str:
    """The text with U+FFFD for what is not a character: bytes of a file name or argument that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if _escaped(text) else _replaced(text)
    return text


def mended_all(value: Any) -> Any:
    """The same for every text in plain data."""
    if isinstance(value, str):
        return mended(value)
    if isinstance(value, list | tuple):
        return [mended_all(item) for item in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {mended_all(key): mended_all(item) for key, item in cast("dict[str, Any]", value).items()}
    return value


def _escaped(text: str) -> bool:
    return all(not "\ud800" <= char <= "\udfff" or "\udc80" <= char <= "\udcff" for char in text)


def _replaced(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
