"""Text as it may be stored and sent: valid Unicode, whatever bytes the outside world put into it."""


def mended(text: str) -> str:
    """The text with U+FFFD for what is not a character: bytes of a file name or argument that are not UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace") if _escaped(text) else _replaced(text)
    return text


def _escaped(text: str) -> bool:
    return all(not "\ud800" <= char <= "\udfff" or "\udc80" <= char <= "\udcff" for char in text)


def _replaced(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= char <= "\udfff" else char for char in text)
