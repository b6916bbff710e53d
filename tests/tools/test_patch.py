"""apply_patch: the format, the places of hunks, all files or none, and the permission rules for removed files."""

import difflib
import os
import stat
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odin.core.tool import Target
from odin.policy.modes import get_mode_spec
from odin.policy.policy_call import PolicyCall
from odin.policy.rules.rule import parse_rule
from odin.tools import file_patch
from odin.tools.change_preview import preview_change
from odin.tools.edit import ApplyPatchTool, PatchArgs
from odin.tools.files import Refusal
from odin.tools.patch import FilePatch, Hunk, apply_hunks, parse_patch
from odin.tools.replacement import EditBuffer
from tests.policy.policies import make_scope
from tests.table import each
from tests.tools.toolbox import Toolbox


def make_patch(*lines: str) -> str:
    return "\n".join(["*** Begin Patch", *lines, "*** End Patch"])


def apply_update(text: str, *lines: str) -> str:
    """Apply the hunks of one file to a text."""
    buffer = EditBuffer(text)
    (file,) = parse_patch(make_patch("*** Update File: f", *lines))
    apply_hunks(buffer, file.hunks)
    return buffer.text


def test_a_patch_is_parsed() -> None:
    text = make_patch(
        *("*** Update File: a.py", "*** Move to: b.py", "@@ class A:", "@@   def f():", " x", "-y", "+z", ""),
        *("@@ -3,4 +5,6 @@ def g():", "-last", "*** End of File"),
        *("*** Add File: dir/new file.txt", "+one", "+", "*** Delete File: old"),
    )
    expected = (
        FilePatch(
            "update",
            "a.py",
            "b.py",
            (
                Hunk(("x", "y", ""), ("x", "z", ""), ("class A:", "def f():")),
                Hunk(("last",), (), ("def g():",), at_end=True),
            ),
        ),
        FilePatch("add", "dir/new file.txt", content="one\n\n"),
        FilePatch("delete", "old"),
    )
    assert parse_patch(text) == expected
    assert parse_patch(f"apply_patch <<'EOF'\n{text}\nEOF\n") == expected
    assert parse_patch(text.replace("\n", "\r\n").removeprefix("*** Begin Patch")) == expected


MALFORMED = [
    ("", "Line 1 of the patch: expected"),
    ("*** Begin Patch\n*** Update File: a\n-x", "The patch is incomplete"),
    (make_patch(), "changes no file"),
    (make_patch("a line"), "Line 2 of the patch: expected '*** Add File: PATH'"),
    (make_patch("*** Update File: "), "expected '*** Add File: PATH'"),
    (make_patch("*** Update File: a"), "the update of a has no lines"),
    (make_patch("*** Update File: a", "@@ def f():"), "expected a line that starts with a space"),
    (make_patch("*** Update File: a", "x"), "Line 3 of the patch: expected a line that starts with a space, + or -"),
    (make_patch("*** Update File: a", " x"), "changes nothing"),
    (make_patch("*** Add File: a", "x"), "every line of an added file starts with +"),
    (make_patch("*** Add File: a", "+x", "*** Delete File: a"), "a occurs twice"),
    (make_patch("*** Update File: a", "*** Move to: b", "*** Add File: b", "+x"), "b occurs twice"),
]


@each("text, problem", MALFORMED)
def test_the_error_for_a_malformed_patch_names_the_line(text: str, problem: str) -> None:
    with pytest.raises(Refusal) as refused:
        parse_patch(text)
    assert problem in str(refused.value)
    assert ApplyPatchTool.validate(ApplyPatchTool.__new__(ApplyPatchTool), PatchArgs(text)) == str(refused.value)


BODY = "        x = 1\n        return x\n"
CODE = f"class A:\n    def f(self):\n{BODY}\n    def g(self):\n{BODY}"
BRACES = "int f()\n{\n    go();\n}\nint g()\n{\n    go();\n}\n"

PLACES = [
    ("a\nb\nc\n", (" a", "-b", "+B"), "a\nB\nc\n"),
    ("a\nb\na\n", ("-b", "-a", "+x"), "a\nx\n"),
    ("a\nb\n", ("+x",), "a\nb\nx\n"),
    ("", ("+x",), "x\n"),
    ("a\nb", ("-b", "+x", "+y"), "a\nx\ny"),
    ("a", ("+x",), "a\nx"),
    ("b\na\nb", (" b", "+x", "*** End of File"), "b\na\nb\nx"),
    ("a\r\nb\r\nc", (" a", "-b", "+B", "+BB"), "a\r\nB\r\nBB\r\nc"),
    ("a\nb\nc\n", (" a", "+x", "@@", " b", "+y", "@@", "-c"), "a\nx\nb\ny\n"),
    (CODE, ("@@ def g(self):", "-        x = 1", "+        x = 2"), "2".join(CODE.rsplit("1", 1))),
    (CODE, ("@@ class A:", "@@ def f(self):", "-        x = 1", "+        x = 2"), CODE.replace("1", "2", 1)),
    (CODE, ("@@     def f(self):", "+        y = 0"), CODE.replace("f(self):\n", "f(self):\n        y = 0\n")),
    (BRACES, ("@@ int g()", "-    go();", "+    stop();"), BRACES[:26] + BRACES[26:].replace("go", "stop")),
    ("x\n# part\na\na2\n", ("@@ # part", "-a"), "x\n# part\na2\n"),
]


@each("text, lines, result", PLACES)
def test_a_hunk_is_applied_where_it_fits(text: str, lines: tuple[str, ...], result: str) -> None:
    assert apply_update(text, *lines) == result


AMBIGUOUS = [
    ("a\na\n", ("-a",), "the place is not clear: it occurs 2 times (lines 1, 2)."),
    ("a\nb\na", ("-a", "+x"), "occurs 2 times (lines 1, 3)"),
    ("}\n}\n}\n", (" }", "-}"), "occurs 2 times (lines 1, 2)"),
    (CODE, ("-        x = 1",), "occurs 2 times (lines 3, 7)"),
    (CODE, ("@@ class A:", "-        x = 1"), "occurs 2 times"),
    ("f\na\nf\n", ("@@ f", "+x"), "'f' occurs 2 times"),
    ("a\nb\n", (" b", "+x", "@@", "-a"), "found only above line 4. The hunks of a file must be in its order."),
    ("xa\n", ("-a",), "its lines were not found."),
    ("a\n", ("@@ no", "-a"), "the line 'no' was not found"),
    ("a\nb\n", ("-a", "*** End of File"), "not at the end of the file"),
    ("total  = one + two\n", ("-total = one + two",), "Only the spacing differs."),
]


@each("text, lines, problem", AMBIGUOUS)
def test_a_hunk_without_one_clear_place_is_refused(text: str, lines: tuple[str, ...], problem: str) -> None:
    with pytest.raises(Refusal) as refused:
        apply_update(text, *lines)
    assert problem in str(refused.value)


TEXTS = st.lists(st.sampled_from(["a", "b", "", "  a", "}"]), max_size=12)


@pytest.mark.slow
def test_a_patch_gives_the_new_text_or_is_refused() -> None:
    """Most patches apply; those whose context occurs more than once are refused."""
    outcomes: Counter[str] = Counter()

    @given(TEXTS, TEXTS, st.sampled_from([1, 3]), st.booleans())
    @settings(max_examples=150, deadline=None)
    def patch_text(old: list[str], new: list[str], context: int, ended: bool) -> None:
        diff = difflib.unified_diff(old, new, n=context, lineterm="")
        lines = [line for line in diff if line[:3] not in ("---", "+++")]
        end = "\n" if ended else ""
        before, after = ("\n".join(text) + (end if text else "") for text in (old, new))
        if old and new and (old[-1] or ended) and (new[-1] or ended):
            try:
                assert apply_update(before, *(line if line[:2] != "@@" else "@@" for line in lines)) == after
                outcomes["applied"] += 1
            except Refusal:
                outcomes["refused"] += 1

    patch_text()
    assert outcomes["applied"] > outcomes["refused"]


async def test_a_patch_updates_moves_adds_and_deletes_files(box: Toolbox) -> None:
    for name in ("a.py", "gone.txt", "old.sh"):
        await box.ok("Read", file_path=box.write(name, "one\ntwo\n"))
    (box.folder / "old.sh").chmod(0o750)
    text = make_patch(
        *("*** Update File: a.py", " one", "-two", "+2"),
        *("*** Update File: old.sh", "*** Move to: sub/new.sh", "-one", "*** Add File: sub/c", "+c"),
        "*** Delete File: gone.txt",
    )
    output = await box.ok("apply_patch", input=text)
    assert {path.name: path.read_text() for path in box.folder.rglob("*") if path.is_file()} == {
        "a.py": "one\n2\n",
        "new.sh": "two\n",
        "c": "c\n",
    }
    assert stat.S_IMODE((box.folder / "sub/new.sh").stat().st_mode) == 0o750
    assert "Edited" in output.text and "moved from" in output.text and "     2\t2" in output.text
    again = make_patch("*** Update File: a.py", "-2", "+3", "*** Update File: sub/new.sh", "-two", "+2")
    await box.ok("apply_patch", input=again)


async def test_a_patch_changes_all_files_or_none(box: Toolbox) -> None:
    for name in ("a", "b"):
        await box.ok("Read", file_path=box.write(name, "one\n"))
    box.write("unread", "one\n")
    good = ("*** Update File: a", "-one", "+1", "*** Add File: new", "+x")
    for bad, problem in {
        ("*** Update File: b", "-two"): "Hunk 1 of 1: its lines were not found",
        ("*** Update File: unread", "-one"): "Must read file first",
        ("*** Add File: b", "+x"): "exists. Use '*** Update File:'",
        ("*** Update File: b", "*** Move to: unread"): "cannot be moved there",
        ("*** Delete File: missing",): "missing",
    }.items():
        assert problem in await box.refused("apply_patch", input=make_patch(*good, *bad))
        assert (box.folder / "a").read_text() == "one\n" and not (box.folder / "new").exists()


async def test_files_written_before_a_failure_are_restored(box: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "gone", "moved", "last"):
        await box.ok("Read", file_path=box.write(name, "one\n"))
    before = {path.name: path.read_text() for path in box.folder.iterdir()}
    text = make_patch(
        *("*** Update File: a", "-one", "+1", "*** Add File: new", "+x", "*** Delete File: gone"),
        *("*** Update File: moved", "*** Move to: here", "-one", "+1", "*** Update File: last", "-one", "+2"),
    )
    real = file_patch.replace_file

    def fail_last(target: str, data: bytes, old: bytes | None) -> os.stat_result:
        if target.endswith("last"):
            raise OSError(28, "No space left on device")
        return real(target, data, old)

    monkeypatch.setattr(file_patch, "replace_file", fail_last)
    assert "No space left on device. Nothing was changed." in await box.refused("apply_patch", input=text)
    assert {path.name: path.read_text() for path in box.folder.iterdir() if path.is_file()} == before


async def test_a_patch_does_not_delete_symlinks(box: Toolbox) -> None:
    box.write("file", "x\n")
    (box.folder / "link").symlink_to("file")
    assert "is a symbolic link" in await box.refused("apply_patch", input=make_patch("*** Delete File: link"))
    assert (box.folder / "file").exists()


async def test_the_preview_shows_every_file(box: Toolbox) -> None:
    from odin.policy.paths import resolve_given

    for name in ("a", "gone", "moved"):
        box.write(name, "one\n")
    args = PatchArgs(
        make_patch(
            *("*** Update File: a", "-one", "+1", "*** Add File: new", "+x", "*** Delete File: gone"),
            *("*** Update File: moved", "*** Move to: here"),
        )
    )
    target = ApplyPatchTool(box.files).get_target(args)
    assert target == Target(paths=("a", "new", "gone", "moved", "here"), removes=("gone", "moved"))
    resolved_paths = [resolve_given(path, str(box.folder), "/") for path in target.paths]
    shown = await preview_change(args, resolved_paths)
    assert {"-one", "+1", "+x"} <= set(shown.splitlines()) and f"{box.folder}/moved would move to" in shown


def test_rules_for_edits_and_deletions_apply(tmp_path: Path) -> None:
    text = make_patch("*** Update File: a", "-x", "*** Delete File: b")
    target = ApplyPatchTool.get_target(ApplyPatchTool.__new__(ApplyPatchTool), PatchArgs(text))
    called = PolicyCall("apply_patch", "edit", target, get_mode_spec("edit_mode"), None, make_scope(tmp_path))
    items = {item.written: item for item in called.list_paths()}
    covers = {
        "Edit": ("a",),
        "Edit(**)": ("a",),
        "apply_patch": ("a",),
        "Write": (),
        "Delete(b)": ("b",),
        "Delete(a)": (),
    }
    for rule, paths in covers.items():
        assert tuple(name for name in items if parse_rule(rule).covers_path(items[name], called)) == paths, rule
    matching = {"Edit": True, "Edit(b)": True, "Edit(c)": False, "Delete(b)": True, "Delete(a)": False, "Write": False}
    for rule, matches in matching.items():
        assert parse_rule(rule, "deny").matches_call(called) is matches, rule
