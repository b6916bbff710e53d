"""What a search found without the files that the rules keep back, and the line that says so."""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from odin.core.some import some_of

NAMED = 5

T = TypeVar("T")


def parted(
    found: Iterable[T], path: Callable[[T], str], keeps_back: Callable[[str], bool]
) -> tuple[list[T], list[str]]:
    """What may be shown, and the paths of the rest."""
    shown: list[T] = []
    kept: list[str] = []
    for item in found:
        if keeps_back(path(item)):
            kept.append(path(item))
        else:
            shown.append(item)
    return shown, kept


def left_out(kept: Sequence[str]) -> list[str]:
    """The line for the model; none when nothing was kept back."""
    if not kept:
        return []
    names = some_of(sorted(kept), NAMED)
    return [f"(left out, because a rule or a secret keeps it back: {names}; name a file by itself to ask for it)"]
