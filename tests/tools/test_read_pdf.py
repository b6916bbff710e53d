"""Read of PDF files: text by page, limits, encrypted and broken files, cancellation."""

import asyncio
import os
from io import FileIO
from pathlib import Path

import pytest

from odin.tools.documents import PdfReader
from odin.tools.files import Refusal
from tests.pdfs import bomb, encrypted, pdf
from tests.tools.toolbox import Toolbox
from tests.waiting import until

SLOW = pdf("word\n" * 200_000)
"""A PDF with one page whose conversion takes many seconds."""


async def test_the_text_comes_page_by_page_with_numbered_lines(box: Toolbox) -> None:
    path = box.write("paper.pdf", pdf("Title\nfirst (line)", "second page", ""))
    output = await box.ok("Read", file_path=path)
    rows = [row.split("\t", 1) for row in output.text.splitlines()]
    assert [text for _, text in rows] == [
        "--- page 1 of 3 ---",
        "Title",
        "first (line)",
        "--- page 2 of 3 ---",
        "second page",
        "--- page 3 of 3 ---",
    ]
    assert [int(number) for number, _ in rows] == [1, 2, 3, 4, 5, 6]
    assert output.images == ()
    assert "3 pages" in output.note


async def test_offset_and_limit_count_lines_of_the_text(box: Toolbox) -> None:
    path = box.write("no-suffix", pdf("a\nb\nc", "d"))
    text = (await box.ok("Read", file_path=path, offset=3, limit=2)).text
    assert text == "     3\tb\n     4\tc\n(showing lines 3-4 of 6 total; go on with offset=5)"
    assert "has only 6 lines of text" in await box.refused("Read", file_path=path, offset=7)


@pytest.mark.slow
async def test_the_extracted_text_is_cached_until_the_file_changes(box: Toolbox, workspace: Path) -> None:
    path = box.write("a.pdf", pdf("one", "two"))
    reader = PdfReader(box.runner)
    with FileIO(path) as file:
        first = await reader.read_text(path, file, os.stat(path))
        assert await reader.read_text(path, file, os.stat(path)) is first
    box.write("a.pdf", pdf("other"))
    with FileIO(path) as file:
        assert (await reader.read_text(path, file, os.stat(path))).pages == 1


@pytest.mark.slow
async def test_encrypted_broken_and_scanned_files_are_refused_with_a_reason(box: Toolbox) -> None:
    locked = box.write("locked.pdf", encrypted(pdf("secret"), "key"))
    assert "is an encrypted PDF and needs a password" in await box.refused("Read", file_path=locked)
    broken = box.write("broken.pdf", b"%PDF-1.4\nnothing of a PDF follows")
    assert "is a broken PDF (" in await box.refused("Read", file_path=broken)
    scanned = box.write("scanned.pdf", pdf("", ""))
    assert "2 pages with no text on any page; it may be scanned" in await box.refused("Read", file_path=scanned)


@pytest.mark.slow
async def test_a_page_that_cannot_be_unpacked_is_not_called_scanned(box: Toolbox) -> None:
    said = await box.refused("Read", file_path=box.write("bomb.pdf", bomb()))
    assert "1 pages, but no text could be extracted because of errors or size limits (" in said


@pytest.mark.slow
async def test_a_pdf_with_only_an_owner_password_is_read(box: Toolbox) -> None:
    path = box.write("a.pdf", encrypted(pdf("for everybody"), ""))
    assert "for everybody" in (await box.ok("Read", file_path=path)).text


async def test_a_file_above_the_limit_is_refused_with_the_limit(box: Toolbox) -> None:
    path = Path(box.write("a.pdf", pdf("x")))
    with path.open("ab") as file:
        file.truncate(50_000_001)
    assert "is a PDF of 50000001 bytes; at most 50000000 are read" in await box.refused("Read", file_path=str(path))


async def test_a_pdf_that_takes_too_long_is_refused(box: Toolbox, workspace: Path) -> None:
    path = box.write("slow.pdf", SLOW)
    with FileIO(path) as file, pytest.raises(Refusal, match=r"its text was not found within 0\.05 s"):
        await PdfReader(box.runner, seconds=0.05).read_text(path, file, os.stat(path))


async def test_pages_that_were_not_read_in_time_are_reported(box: Toolbox, workspace: Path) -> None:
    from odin.tools.documents import PdfText, format_pdf

    output = format_pdf("/a.pdf", PdfText(["--- page 1 of 9 ---", "text"], 9, 1, False), 1, 2000)
    assert "(only pages 1-1 of 9 could be read within the time and size limits)" in output.text


async def test_an_interrupt_ends_the_converter_process(box: Toolbox, workspace: Path) -> None:
    reading = asyncio.create_task(box.call("Read", file_path=box.write("slow.pdf", SLOW)))
    await until(lambda: box.runner._processes)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert not box.runner._processes


async def test_reading_a_pdf_does_not_allow_editing_it(box: Toolbox) -> None:
    path = box.write("a.pdf", pdf("text"))
    await box.ok("Read", file_path=path)
    assert box.files.get_cached_file(path) is None
    assert "read" in (await box.refused("EditTool", file_path=path, old_string="text", new_string="x")).lower()


async def test_half_a_surrogate_pair_is_replaced(box: Toolbox) -> None:
    from odin.tools.documents import _parse_line

    assert _parse_line(b'{"text": "a \\ud83d b \\ud83d\\ude00"}').text == "a \ufffd b \U0001f600"
