"""`@path` in a text: what may be meant by it."""

import pytest

from odin.core.message import Attachment
from odin.tools.mentions import MAX_MENTIONS, find_mentions
from tests.table import each


def first(text: str, *there: str) -> list[Attachment]:
    """The readings that stand when only these files are there."""
    return [way for ways in find_mentions(text) if (way := next((one for one in ways if one.path in there), None))]


@each(
    ("text", "meant"),
    [
        ("explain @a.py", Attachment("a.py")),
        ("@a.py", Attachment("a.py")),
        ("see @a.py, please", Attachment("a.py")),
        ("(@a.py)", Attachment("a.py")),
        ("is it @a.py?", Attachment("a.py")),
        ("look at @a.py.", Attachment("a.py")),
        ("`@a.py`", Attachment("a.py")),
        ("what is @a.py's point", Attachment("a.py")),
        ("@a.py:10", Attachment("a.py", 10, 10)),
        ("@a.py:10-20", Attachment("a.py", 10, 20)),
        ("@a.py:10-20.", Attachment("a.py", 10, 20)),
        ("@a.py:10: why?", Attachment("a.py", 10, 10)),
        ("@a.py:20-10", Attachment("a.py", 10, 20)),
        ("@a.py:0-3", Attachment("a.py", 1, 3)),
        ('@"a b.py"', Attachment("a b.py")),
        ('@"a b.py":1-5, please', Attachment("a b.py", 1, 5)),
        ("line\n@../a.py", Attachment("../a.py")),
        ("@~/a.py", Attachment("~/a.py")),
        ("@/x/a.py", Attachment("/x/a.py")),
        ("读@a.py。", None),
        ("读 @a.py。", Attachment("a.py")),
        ("@src/", Attachment("src/")),
    ],
)
def test_a_mention(text: str, meant: Attachment | None) -> None:
    there = ("a.py", "a b.py", "../a.py", "~/a.py", "/x/a.py", "src/")
    assert first(text, *there) == ([] if meant is None else [meant])


def test_a_name_that_ends_like_a_sentence_is_found_whole() -> None:
    assert first("@a.py.", "a.py", "a.py.") == [Attachment("a.py.")]
    assert first("@a:10", "a", "a:10") == [Attachment("a:10")]


@pytest.mark.parametrize(
    "text", ["me@a.py", "x.@a.py", "@@a.py", "a/@a.py", "@ a.py", "@", "@.", "@..", "@/", "@~", '@"']
)
def test_what_is_no_mention(text: str) -> None:
    assert first(text, "a.py", ".", "..", "/", "~", "") == []


def test_a_text_full_of_them_is_read_in_bounds() -> None:
    assert len(list(find_mentions("@a " * 1000))) == MAX_MENTIONS
    (ways,) = find_mentions("@" + "." * 2000 + "a" + "." * 2000)
    assert len(ways) <= 40
    assert list(find_mentions("@" + "x" * 5000)) == []
