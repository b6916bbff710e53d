"""The refusal when old_string is not found, or found more than once."""

from odin.tools.replacement import find_nearest
from tests.tools.toolbox import Toolbox

CODE = """def first(x):
    total = 0
    for item in x:
        total += item
    return total


def second(x):
    total = 1
    for item in x:
        total *= item.value
    return total
"""


async def refusal(box: Toolbox, text: str, old: str) -> str:
    path = box.write("a.py", text)
    await box.ok("Read", file_path=path)
    return await box.refused("EditTool", file_path=path, old_string=old, new_string="x")


async def test_the_whole_block_decides_and_not_its_first_line(box: Toolbox) -> None:
    old = "    for item in x:\n        total *= item.price\n    return total\n"
    text = await refusal(box, CODE, old)
    assert "    10\t    for item in x:\n    11\t        total *= item.value\n    12\t    return total" in text
    assert "total += item" not in text


async def test_it_says_when_only_the_spacing_differs(box: Toolbox) -> None:
    text = await refusal(box, CODE, "\tfor item in x:\n\t\ttotal *= item.value\n")
    assert "Only the spacing differs" in text
    assert "    11\t        total *= item.value" in text


async def test_a_line_with_another_word_is_found(box: Toolbox) -> None:
    text = await refusal(box, CODE, "        total *= item.values()")
    assert "    11\t        total *= item.value" in text


async def test_what_is_like_nothing_there_is_said_plainly(box: Toolbox) -> None:
    text = await refusal(box, CODE, "SELECT * FROM users;")
    assert "must match the file exactly" in text


async def test_in_one_long_line_it_says_where_the_two_part(box: Toolbox) -> None:
    line = "var a=1;function f(){return a};" * 300
    text = await refusal(box, f"{line}var special=42;end()\n", "function f(){return a};var special=43;")
    assert "then the file continues with '2;end()" in text
    assert "and not with '3;'" in text


def test_large_files_do_not_hold_it_up() -> None:
    """Comparing every line with every other would take minutes and time out."""
    text = "".join(f"    value_{n % 7} = compute(item, index, total)  # {n}\n" for n in range(25_000))
    block = find_nearest(text, "".join(f"  value_{n} = compute(item, indexes, totals)\n" for n in range(60)))
    assert block is not None
    assert len(block.lines) <= 61


async def test_several_places_are_shown_with_their_lines(box: Toolbox) -> None:
    text = await refusal(box, CODE, "    for item in x:\n")
    assert "occurs 2 times (lines 3, 10)" in text
    assert "     2\t    total = 0\n     3\t    for item in x:\n     4\t        total += item" in text
    assert "     9\t    total = 1\n    10\t    for item in x:\n    11\t        total *= item.value" in text


async def test_many_places_are_counted_and_some_are_shown(box: Toolbox) -> None:
    text = await refusal(box, "a\ny\n" * 30, "a")
    assert "occurs 30 times (lines 1, 3," in text
    assert "(4 of 30 occurrences shown)" in text


async def test_places_that_overlap_are_several(box: Toolbox) -> None:
    """`aa aa` occurs twice in `aa aa aa`; taking the first would be a guess."""
    text = await refusal(box, "same\nsame\nsame\n", "same\nsame\n")
    assert "occurs 2 times (lines 1, 2)" in text


async def test_places_that_differ_in_their_line_ends_are_several(box: Toolbox) -> None:
    """Read shows both the same way, so the model cannot mean one of them."""
    path = box.write("a.txt", b"one\ntwo\nx\r\none\r\ntwo\r\n")
    await box.ok("Read", file_path=path)
    args = {"file_path": path, "old_string": "one\ntwo\n", "new_string": "three\n"}
    assert "occurs 2 times (lines 1, 4)" in await box.refused("EditTool", **args)
    await box.ok("EditTool", **args, replace_all=True)
    assert (box.folder / "a.txt").read_bytes() == b"three\nx\r\nthree\r\n"
