"""Properties of edits for any text, encoding and line endings: other bytes are preserved; all edits or none.

The expected bytes are built here from the parts, without the code under test.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.engine.call_text import bound_text
from odin.tools.diff import compare
from odin.tools.files import LINE_CHARS, number_lines
from tests.tools.toolbox import Toolbox

CODECS = {
    "utf-8": b"",
    "utf-8 marked": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\0\0",
    "gb18030": b"",
    "cp932": b"",
    "latin-1": b"",
}
ENCODING_SAMPLES = {
    "gb18030": "读取配置文件如果不存在则返回默认值",
    "cp932": "ファイルをよみこみます",
    "latin-1": "caf\xe9 gr\xfc\xdfe",
}
"""Text that identifies an encoding without a byte order mark, or shows that it is not UTF-8."""

plain = st.text(st.sampled_from("ab \t(){}=_\x0c\x0b\x1c\x85\u2028"), max_size=8)
ascii_only = st.text(st.sampled_from("ab \t(){}=_\x0c"), max_size=8)
line_ends = st.sampled_from(["\n", "\r\n", "\r", "\r\r\n", ""])
property_settings = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@st.composite
def files(draw: st.DrawFn) -> tuple[str, list[str], list[tuple[str, str]]]:
    """Draw a codec, the parts of a text between its targets, and for each target its old and new text."""
    codec = draw(st.sampled_from(list(CODECS)))
    words = plain if codec.startswith("utf") else ascii_only
    count = draw(st.integers(1, 4))
    sample = ENCODING_SAMPLES.get(codec, "")
    gaps = [draw(st.lists(st.tuples(words, line_ends), max_size=4)) for _ in range(count + 1)]
    parts = ["".join(text + end for text, end in gap) for gap in gaps]
    parts[0] = sample + parts[0]
    news = [draw(words.filter(lambda text: "TARGET" not in text)) for _ in range(count)]
    return codec, parts, [(f"TARGET{number}!", new) for number, new in enumerate(news)]


def encode_text(codec: str, text: str) -> bytes:
    return CODECS[codec] + text.encode(codec.removesuffix(" marked"))


def interleave(parts: list[str], between: list[str]) -> str:
    return parts[0] + "".join(word + part for word, part in zip(between, parts[1:], strict=True))


@property_settings
@given(file=files())
async def test_only_the_targets_change(workspace: Path, file: tuple[str, list[str], list[tuple[str, str]]]) -> None:
    codec, parts, targets = file
    box = Toolbox(workspace)
    path = box.write("f", encode_text(codec, interleave(parts, [old for old, _ in targets])))
    await box.ok("Read", file_path=path)
    edits = [{"old_string": old, "new_string": new} for old, new in targets]
    await box.ok("MultiEditTool", file_path=path, edits=edits)
    assert Path(path).read_bytes() == encode_text(codec, interleave(parts, [new for _, new in targets]))


@property_settings
@given(file=files(), data=st.data())
async def test_all_edits_or_none(
    workspace: Path, file: tuple[str, list[str], list[tuple[str, str]]], data: st.DataObject
) -> None:
    codec, parts, targets = file
    box = Toolbox(workspace)
    before = encode_text(codec, interleave(parts, [old for old, _ in targets]))
    path = box.write("f", before)
    await box.ok("Read", file_path=path)
    edits: list[dict[str, Any]] = [{"old_string": old, "new_string": new} for old, new in targets]
    bad = data.draw(st.sampled_from([("NOWHERE", "x"), ("", "x"), ("TARGET0!", "TARGET0!"), ("TARGET0!", "\ud800")]))
    at = data.draw(st.integers(0, len(edits)))
    edits.insert(at, {"old_string": bad[0], "new_string": bad[1]})
    text = await box.refused("MultiEditTool", file_path=path, edits=edits)
    assert f"Edit {at + 1} of {len(edits)} failed, so nothing was written" in text
    assert Path(path).read_bytes() == before
    assert [entry.name for entry in workspace.iterdir()] == ["f"]


@pytest.mark.slow
@property_settings
@given(lines=st.lists(st.tuples(ascii_only, st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=8), data=st.data())
async def test_a_block_given_with_lf_keeps_the_line_endings_of_the_file(
    workspace: Path, lines: list[tuple[str, str]], data: st.DataObject
) -> None:
    """The model writes what Read shows. One line changes; the others keep their line endings."""
    lines = [(f"{number}{text}", end) for number, (text, end) in enumerate(lines)]
    at = data.draw(st.integers(0, len(lines) - 1))
    box = Toolbox(workspace)
    path = box.write("f", "".join(text + end for text, end in lines))
    await box.ok("Read", file_path=path)
    old = "".join(f"{text}\n" for text, _ in lines)
    new = "".join("NEW\n" if number == at else f"{text}\n" for number, (text, _) in enumerate(lines))
    await box.ok("EditTool", file_path=path, old_string=old, new_string=new)
    expected = [("NEW" if number == at else text, end) for number, (text, end) in enumerate(lines)]
    expected[at] = ("NEW", lines[0][1])
    assert Path(path).read_bytes() == "".join(text + end for text, end in expected).encode()


@pytest.mark.slow
@property_settings
@given(before=st.text(max_size=60), after=st.text(max_size=60))
async def test_write_file_writes_exactly_the_content(workspace: Path, before: str, after: str) -> None:
    """Content that replaces a file with LF is written unchanged, with any line endings."""
    box = Toolbox(workspace)
    before, after = f"{before}\n".replace("\r\n", "\n"), f"x{after}"
    path = box.write("f", before)
    mark = "\ufeff" if before.startswith("\ufeff") else ""
    if "\0" in before or before == mark + after:
        return
    await box.ok("WriteFile", file_path=path, content=after)
    assert Path(path).read_bytes() == (mark + after).encode()


MIXED = "e\u0301👩\u200d👩\u200d👧漢字𠀀\udce9 a\u0308\u0323🇩🇪"


def test_text_truncated_at_any_position_stays_valid() -> None:
    """Emoji, Chinese, combining marks and bytes that are not UTF-8, cut at every position."""
    for shift in range(len(MIXED) + 1):
        line = "x" * (LINE_CHARS - shift) + MIXED * 2
        box_view = compare("", f"{line}\n" * 40, "f").text
        for text in (number_lines([line], 1).text, bound_text(f"{line}\n" * 60), box_view):
            kept = text.replace("\udce9", "?")
            assert kept.encode("utf-8").decode("utf-8") == kept
