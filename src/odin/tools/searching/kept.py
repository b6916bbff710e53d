"""What a search found without the files that the rules keep back, and the line that says so."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odin.core.some import join_some

MAX_NAMED = 5

T = TypeVar("T")


def split_hidden(
    found: Iterable[T], path: Callable[[T], str], is_hidden: Callable[[str], bool]
) -> tuple[list[T], list[str]]:
    """What may be shown, and the paths of the rest."""
    shown: list[T] = []
    kept: list[str] = []
    for item in found:
        if is_hidden(path(item)):
            kept.append(path(item))
        else:
            shown.append(item)
    return shown, kept


def describe_hidden(kept: Sequence[str]) -> list[str]:
    """The line for the model; none when nothing was kept back."""
    if not kept:
        return []
    names = join_some(sorted(kept), MAX_NAMED)
    return [f"(left out, because a rule or a secret keeps it back: {names}; name a file by itself to ask for it)"]
