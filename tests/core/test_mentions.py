"""Which files an `@path` mention in a prompt can mean."""

import pytest

from odin.core.message import Attachment
from odin.tools.mentions import MAX_MENTIONS, find_mentions
from tests.table import each


def find_existing(text: str, *existing: str) -> list[Attachment]:
    """Return the first reading of each mention that is one of the existing files."""
    return [
        reading
        for readings in find_mentions(text)
        if (reading := next((item for item in readings if item.path in existing), None))
    ]


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
def test_mention_is_read_as_an_attachment(text: str, meant: Attachment | None) -> None:
    existing = ("a.py", "a b.py", "../a.py", "~/a.py", "/x/a.py", "src/")
    assert find_existing(text, *existing) == ([] if meant is None else [meant])


def test_file_name_that_ends_in_punctuation_is_preferred() -> None:
    assert find_existing("@a.py.", "a.py", "a.py.") == [Attachment("a.py.")]
    assert find_existing("@a:10", "a", "a:10") == [Attachment("a:10")]


@pytest.mark.parametrize(
    "text", ["me@a.py", "x.@a.py", "@@a.py", "a/@a.py", "@ a.py", "@", "@.", "@..", "@/", "@~", '@"']
)
def test_text_that_is_not_a_mention_is_ignored(text: str) -> None:
    assert find_existing(text, "a.py", ".", "..", "/", "~", "") == []


def test_number_of_mentions_and_readings_is_bounded() -> None:
    assert len(list(find_mentions("@a " * 1000))) == MAX_MENTIONS
    (readings,) = find_mentions("@" + "." * 2000 + "a" + "." * 2000)
    assert len(readings) <= 40
    assert list(find_mentions("@" + "x" * 5000)) == []
