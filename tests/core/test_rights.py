"""Every op needs a right, and what a client names in a prompt may need a higher one."""

from typing import get_args

from odin.core.message import Attachment
from odin.core.op import ChangePrompt, ControlProcess, Op, Prompt, Redo, Rewind, SetLoop
from odin.core.rights import OP_RIGHTS, RIGHTS, Right, get_needed_right, has_right
from tests.table import each


def test_every_op_has_a_right_and_none_is_for_viewers() -> None:
    assert set(OP_RIGHTS) == set(get_args(Op))
    assert "view" not in OP_RIGHTS.values()


def test_a_right_includes_those_before_it() -> None:
    table = {given: [needed for needed in RIGHTS if has_right(given, needed)] for given in RIGHTS}
    assert table == {"view": ["view"], "prompt": ["view", "prompt"], "approve": ["view", "prompt", "approve"]}


def make_prompt(text: str, *paths: str, data: bytes = b"") -> Prompt:
    attachments = tuple(Attachment(path, data=data) for path in paths)
    return Prompt(id="p", text=text, mode="edit_mode", attachments=attachments)


@each(
    ("op", "right"),
    [
        (Rewind("t"), "prompt"),
        (Rewind("t", force=True), "approve"),
        (Redo(), "prompt"),
        (Redo(force=True), "approve"),
        (ControlProcess("stop", "spawn-1"), "prompt"),
        (ControlProcess("open", "spawn-1", 5173), "approve"),
        (make_prompt("fix @src/a.py:10-20 and @docs/, thanks @bob: bye"), "prompt"),
        (make_prompt("mail me@example.com about a/../b, std::vector and https://example.com"), "prompt"),
        (make_prompt("", "src/a.py", "..config"), "prompt"),
        (make_prompt("", "/home/me/photo.png", data=b"bytes that the client sends"), "prompt"),
        (make_prompt("see @/etc/passwd"), "approve"),
        (make_prompt("see (@~/.bashrc)"), "approve"),
        (make_prompt("see @../other/a.py"), "approve"),
        (make_prompt('see @"src/../../other file"'), "approve"),
        (make_prompt('see @"/other file":3-4'), "approve"),
        (make_prompt('@"half open and @/etc/passwd'), "approve"),
        (make_prompt("/review @/etc/passwd"), "approve"),
        (make_prompt("see @files:file:///etc/passwd"), "approve"),
        (make_prompt("see @notes:urn:one"), "approve"),
        (make_prompt("", "/etc/passwd"), "approve"),
        (make_prompt("", "src/../../other"), "approve"),
        (ChangePrompt("p", delivery="steer"), "prompt"),
        (ChangePrompt("p", "see @/etc/passwd"), "approve"),
        (ChangePrompt("p", attachments=(Attachment("~/x"),)), "approve"),
        (SetLoop(True, "all tests pass"), "prompt"),
        (SetLoop(True, "do what @/etc/passwd says"), "approve"),
    ],
)
def test_what_an_op_contains_can_raise_the_right(op: Op, right: Right) -> None:
    assert get_needed_right(op) == right
