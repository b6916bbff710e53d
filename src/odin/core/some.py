"""A few of many names, for a line that a person or a model reads."""

from collections.abc import Iterable


def join_some(items: Iterable[str], most: int) -> str:
    """The first of them in a row, and how many more there are."""
    found = list(items)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return ", ".join(found[:most]) + more
