"""EditTool's refusal when old_string is not found, or found more than once."""

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


async def get_refusal(box: Toolbox, text: str, old: str) -> str:
    path = box.write("a.py", text)
    await box.ok("Read", file_path=path)
    return await box.refused("EditTool", file_path=path, old_string=old, new_string="x")


async def test_the_nearest_text_matches_the_whole_block_not_its_first_line(box: Toolbox) -> None:
    old = "    for item in x:\n        total *= item.price\n    return total\n"
    text = await get_refusal(box, CODE, old)
    assert "    10\t    for item in x:\n    11\t        total *= item.value\n    12\t    return total" in text
    assert "total += item" not in text


async def test_the_refusal_says_when_only_the_spacing_differs(box: Toolbox) -> None:
    text = await get_refusal(box, CODE, "\tfor item in x:\n\t\ttotal *= item.value\n")
    assert "Only the spacing differs" in text
    assert "    11\t        total *= item.value" in text


async def test_a_line_that_differs_in_one_word_is_found(box: Toolbox) -> None:
    text = await get_refusal(box, CODE, "        total *= item.values()")
    assert "    11\t        total *= item.value" in text


async def test_without_similar_text_the_refusal_shows_none(box: Toolbox) -> None:
    text = await get_refusal(box, CODE, "SELECT * FROM users;")
    assert "must match the file exactly" in text


async def test_in_one_long_line_the_refusal_shows_where_the_texts_differ(box: Toolbox) -> None:
    line = "var a=1;function f(){return a};" * 300
    text = await get_refusal(box, f"{line}var special=42;end()\n", "function f(){return a};var special=43;")
    assert "then the file continues with '2;end()" in text
    assert "and not with '3;'" in text


def test_the_nearest_text_in_a_large_file_is_found_quickly() -> None:
    """Comparing every line with every other would take minutes and time out."""
    text = "".join(f"    value_{n % 7} = compute(item, index, total)  # {n}\n" for n in range(25_000))
    block = find_nearest(text, "".join(f"  value_{n} = compute(item, indexes, totals)\n" for n in range(60)))
    assert block is not None
    assert len(block.lines) <= 61


async def test_several_matches_are_shown_with_their_lines(box: Toolbox) -> None:
    text = await get_refusal(box, CODE, "    for item in x:\n")
    assert "occurs 2 times (lines 3, 10)" in text
    assert "     2\t    total = 0\n     3\t    for item in x:\n     4\t        total += item" in text
    assert "     9\t    total = 1\n    10\t    for item in x:\n    11\t        total *= item.value" in text


async def test_many_matches_are_counted_and_some_are_shown(box: Toolbox) -> None:
    text = await get_refusal(box, "a\ny\n" * 30, "a")
    assert "occurs 30 times (lines 1, 3," in text
    assert "(4 of 30 occurrences shown)" in text


async def test_overlapping_matches_count_as_several(box: Toolbox) -> None:
    """`aa aa` occurs twice in `aa aa aa`; taking the first would be a guess."""
    text = await get_refusal(box, "same\nsame\nsame\n", "same\nsame\n")
    assert "occurs 2 times (lines 1, 2)" in text


async def test_matches_with_different_line_endings_count_as_several(box: Toolbox) -> None:
    """Read shows both the same way, so the model cannot mean one of them."""
    path = box.write("a.txt", b"one\ntwo\nx\r\none\r\ntwo\r\n")
    await box.ok("Read", file_path=path)
    args = {"file_path": path, "old_string": "one\ntwo\n", "new_string": "three\n"}
    assert "occurs 2 times (lines 1, 4)" in await box.refused("EditTool", **args)
    await box.ok("EditTool", **args, replace_all=True)
    assert (box.folder / "a.txt").read_bytes() == b"three\nx\r\nthree\r\n"
