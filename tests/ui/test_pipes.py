"""`PipeWriter` and `read_lines` with real pipes and files."""

import asyncio
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odin.ui.pipes import PipeWriter, read_lines
from tests.waiting import within_limit

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    ends = os.pipe()
    yield ends
    for end in ends:
        try:
            os.close(end)
        except OSError:
            continue


async def test_a_slow_reader_gets_everything_in_order(pipe: Pipe) -> None:
    reader, writer = pipe
    output = PipeWriter(writer)
    lines = [f"{number}:{'x' * (number * 37 % 9000)}\n".encode() for number in range(300)]
    for line in lines:
        output.write(line)
    drained = asyncio.create_task(output.drain())
    got = b""
    while len(got) < sum(map(len, lines)):
        got += await asyncio.to_thread(os.read, reader, 5000)
    assert got == b"".join(lines)
    assert await within_limit(drained)


async def test_descriptor_stays_blocking(pipe: Pipe) -> None:
    output = PipeWriter(pipe[1])
    output.write(b"x")
    assert await output.drain()
    assert os.get_blocking(pipe[1])


async def test_closed_reader_is_noticed(pipe: Pipe) -> None:
    os.close(pipe[0])
    output = PipeWriter(pipe[1])
    output.write(b"x")
    assert not await within_limit(output.drain())
    assert output.broken.done()
    output.write(b"y")
    assert not await output.drain()


async def test_reader_that_closes_during_a_write_is_noticed(pipe: Pipe) -> None:
    output = PipeWriter(pipe[1])
    output.write(b"x" * 1_000_000)
    drained = asyncio.create_task(output.drain())
    await asyncio.sleep(0.01)
    os.close(pipe[0])
    assert not await within_limit(drained)
    assert output.error is None


async def test_all_lines_are_written_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with path.open("wb") as file:
        output = PipeWriter(file.fileno())
        for number in range(100):
            output.write(b"%d\n" % number)
        assert await output.drain()
    assert path.read_bytes() == b"".join(b"%d\n" % number for number in range(100))


async def test_full_disk_is_an_error() -> None:
    with open("/dev/full", "wb") as full:
        output = PipeWriter(full.fileno())
        output.write(b"x")
        assert not await within_limit(output.drain())
    assert output.error is not None
    assert output.error.errno == errno.ENOSPC


@given(st.lists(st.binary(max_size=20).filter(lambda line: b"\n" not in line)), st.integers(1, 7), st.booleans())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
async def test_lines_do_not_depend_on_chunk_sizes(lines: list[bytes], size: int, ended: bool) -> None:
    data = b"\n".join(lines) + (b"\n" if ended and lines else b"")
    reader, writer = os.pipe()
    try:
        feed = asyncio.create_task(_feed(writer, data, size))
        got = [line async for line in read_lines(reader)]
        await feed
    finally:
        os.close(reader)
    expected = data.split(b"\n")
    assert got == (expected[:-1] if not expected[-1] else expected)


async def _feed(writer: int, data: bytes, size: int) -> None:
    for start in range(0, len(data), size):
        os.write(writer, data[start : start + size])
        await asyncio.sleep(0)
    os.close(writer)


async def test_lines_are_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "in"
    path.write_bytes(b"a\n" + b"b" * 200_000 + b"\nc")
    with path.open("rb") as file:
        got = [line async for line in read_lines(file.fileno())]
    assert [len(line) for line in got] == [1, 200_000, 1]
