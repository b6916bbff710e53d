"""Every op needs a right, and what is in it may need a higher one."""

from typing import get_args

from odin.core.op import ControlProcess, Op, Redo, Rewind
from odin.core.rights import OP_RIGHTS, RIGHTS, Right, get_needed_right, has_right
from tests.table import each


def test_every_op_has_a_right_and_none_is_for_viewers() -> None:
    assert set(OP_RIGHTS) == set(get_args(Op))
    assert "view" not in OP_RIGHTS.values()


def test_a_right_includes_those_before_it() -> None:
    table = {given: [needed for needed in RIGHTS if has_right(given, needed)] for given in RIGHTS}
    assert table == {"view": ["view"], "prompt": ["view", "prompt"], "approve": ["view", "prompt", "approve"]}


@each(
    ("op", "right"),
    [
        (Rewind("t"), "prompt"),
        (Rewind("t", force=True), "approve"),
        (Redo(), "prompt"),
        (Redo(force=True), "approve"),
        (ControlProcess("stop", "spawn-1"), "prompt"),
        (ControlProcess("open", "spawn-1", 5173), "approve"),
    ],
)
def test_what_an_op_contains_can_raise_the_right(op: Op, right: Right) -> None:
    assert get_needed_right(op) == right
