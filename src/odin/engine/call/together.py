"""Which calls of one reply run at the same time: those that do not get in each other's way."""

import os
from collections.abc import Sequence

from odin.engine.call.admitted import Admitted, Refused, Scope
from odin.engine.early.eligible import looks


def batches(items: Sequence[Admitted | Refused], scope: Scope) -> list[list[Admitted | Refused]]:
    """Neighbours that may run together, in order."""
    found: list[list[Admitted | Refused]] = []
    sociable = {item.call.id: _sociable(item, scope) for item in items if isinstance(item, Admitted)}
    for item in items:
        if found and all(_together(earlier, item, sociable) for earlier in found[-1]):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def _sociable(item: Admitted, scope: Scope) -> bool:
    """Whether it may share its time at all. A command may when it provably only looks."""
    if item.tool.exclusive:
        return False
    return item.tool.kind != "execute" or looks(item.tool, item.args, scope)


def _together(one: Admitted | Refused, other: Admitted | Refused, sociable: dict[str, bool]) -> bool:
    """Looking and talking mix with each other, changes only with changes of other files, the rest with nothing."""
    if isinstance(one, Refused) or isinstance(other, Refused):
        return True
    if not (sociable[one.call.id] and sociable[other.call.id]):
        return False
    if one.tool.kind != "edit" and other.tool.kind != "edit":
        return True
    if one.tool.kind == "edit" and other.tool.kind == "edit":
        touched = {os.path.realpath(path) for path in one.tool.subject(one.args).paths}
        return touched.isdisjoint(os.path.realpath(path) for path in other.tool.subject(other.args).paths)
    return False
