"""Which calls of one reply run at the same time: those that do not get in each other's way."""

import os
from collections.abc import Sequence

from odin.engine.call.admitted import AdmittedCall, CallScope, RefusedCall
from odin.engine.early.eligible import is_read_only_call


def group_calls(
    items: Sequence[AdmittedCall | RefusedCall], scope: CallScope
) -> list[list[AdmittedCall | RefusedCall]]:
    """Neighbours that may run together, in order."""
    found: list[list[AdmittedCall | RefusedCall]] = []
    sociable = {item.call.id: _can_overlap(item, scope) for item in items if isinstance(item, AdmittedCall)}
    for item in items:
        if found and all(_can_run_together(earlier, item, sociable) for earlier in found[-1]):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def _can_overlap(item: AdmittedCall, scope: CallScope) -> bool:
    """Whether it may share its time at all. A command may when it provably only looks."""
    if item.tool.exclusive:
        return False
    return item.tool.kind != "execute" or is_read_only_call(item.tool, item.args, scope)


def _can_run_together(
    one: AdmittedCall | RefusedCall, other: AdmittedCall | RefusedCall, sociable: dict[str, bool]
) -> bool:
    """Looking and talking mix with each other, changes only with changes of other files, the rest with nothing."""
    if isinstance(one, RefusedCall) or isinstance(other, RefusedCall):
        return True
    if not (sociable[one.call.id] and sociable[other.call.id]):
        return False
    if one.tool.kind != "edit" and other.tool.kind != "edit":
        return True
    if one.tool.kind == "edit" and other.tool.kind == "edit":
        touched = {os.path.realpath(path) for path in one.tool.subject_of(one.args).paths}
        return touched.isdisjoint(os.path.realpath(path) for path in other.tool.subject_of(other.args).paths)
    return False
