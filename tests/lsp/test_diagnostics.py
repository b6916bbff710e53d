"""The errors of an edited file: in time or not at all, bounded, and from whatever server."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from odin.lsp import server as server_module
from odin.lsp import servers as servers_module
from odin.lsp.documents import Diagnostic, WatchedChange
from odin.lsp.servers import LanguageServers, LateErrors, review_files, warm_up

from .conftest import Serve


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow machine must not make a test about content fail."""
    monkeypatch.setattr(servers_module, "COLD_WAIT_S", 20.0)
    monkeypatch.setattr(servers_module, "WARM_WAIT_S", 20.0)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers_module, "COLD_WAIT_S", 0.1)
    monkeypatch.setattr(servers_module, "WARM_WAIT_S", 0.05)


def write(folder: Path, text: str, name: str = "a.txt") -> str:
    path = Path(os.path.realpath(folder), name)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return str(path)


async def review(servers: LanguageServers, *paths: str) -> list[str]:
    return (await review_files(servers, paths)).text.splitlines()[1:]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    "vices",
    [("push",), ("pull",), ("push", "utf-8"), ("pull", "utf-32"), ("push", "stale"), ("wrong_ids", "pull"), ("asks",),
     ("pull", "fickle"), ("both",)],
)  # fmt: skip
async def test_errors_are_found_and_new_ones_marked(serve: Serve, tmp_path: Path, vices: tuple[str, ...]):
    servers = serve(*vices)
    path = write(tmp_path, "one\r\nß😀 BAD\r\n")
    assert await review(servers, path) == ["a.txt:2:4: bad word [fake B1]"]
    write(tmp_path, "zero\r\none\r\nß😀 BAD\r\nBAD ODD\r\n")
    assert await review(servers, path) == ["a.txt:4:1: new: bad word [fake B1]", "a.txt:3:4: bad word [fake B1]"]
    assert [(state.status, state.errors, state.warnings) for state in servers.list_states()] == [("ready", 2, 1)]
    write(tmp_path, "one\n")
    assert (await review_files(servers, [path])).text == ""


@pytest.mark.usefixtures("patient")
async def test_what_a_server_reports_itself_joins_what_it_is_asked_for(serve: Serve, tmp_path: Path):
    servers = serve("both")
    path = write(tmp_path, "BAD\nWORSE\n")
    assert await review(servers, path) == ["a.txt:1:1: bad word [fake B1]", "a.txt:2:1: worse word [fake]"]
    document = servers.all[0].find_document(path)
    assert document is not None
    document.version += 1
    assert len(document.diagnostics or ()) == 2  # until something is known about the new text
    document.keep("pulled", ())
    assert document.diagnostics == ()


async def test_errors_that_clangd_finds_before_it_has_read_the_headers_are_preliminary(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(server_module, "_IDLE_S", 0.01)
    server = serve("mute").all[0]
    await server.get_ready()
    document = server.follow(write(tmp_path, "BAD\n"))
    assert document is not None

    def tell(method: str, **more: object) -> tuple[bool, bool]:
        server._on_notification(f"textDocument/{method}", {"uri": document.uri, "version": 1, **more})
        return document.published.is_set(), document.is_current

    at = {"line": 0, "character": 0}
    error = {"range": {"start": at, "end": at}, "message": "no member"}
    tell("clangd.fileStatus", state="parsing includes")
    assert tell("publishDiagnostics", diagnostics=[error]) == (False, False)
    assert tell("clangd.fileStatus", state="idle") == (False, False)  # for a moment
    tell("clangd.fileStatus", state="running Build AST")
    await asyncio.sleep(0.02)
    assert tell("publishDiagnostics", diagnostics=[error]) == (False, False)
    tell("clangd.fileStatus", state="idle")
    async with asyncio.timeout(20):
        await document.published.wait()
    assert document.is_current


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("vices", [("push",), ("pull", "loads")])
async def test_errors_that_come_too_late_are_told_once(
    serve: Serve, tmp_path: Path, vices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    """The server has just started, or it finds something only after it has loaded the project."""
    monkeypatch.setattr(servers_module, "COLD_WAIT_S", 0.0 if "push" in vices else 20.0)
    monkeypatch.setattr(server_module, "_REFRESH_PAUSE_S", 0.0)
    servers, late = serve(*vices), LateErrors()
    path = write(tmp_path, "BAD\n" * 12)
    assert (await review_files(servers, [path], late)).text == ""
    while not servers.list_states()[0].errors:
        await asyncio.sleep(0.01)
    told = late.take_note(servers.root).splitlines()
    assert (told[0], told[1], told[-1], len(told)) == (
        servers_module.LATE_HEADING,
        "a.txt:1:1: bad word [fake B1]",
        "... and 2 more errors",
        12,
    )
    assert late.take_note(servers.root) == ""


@pytest.mark.usefixtures("patient")
async def test_errors_that_the_result_had_or_that_are_outdated_are_not_told_later(serve: Serve, tmp_path: Path):
    servers, late = serve("pull"), LateErrors()
    path = write(tmp_path, "BAD\nBAD ODD\n")
    assert (await review_files(servers, [path], late)).count == 2
    assert late.take_note(servers.root) == ""
    document = servers.all[0].find_document(path)
    assert document is not None and document.diagnostics is not None
    first, second, _ = document.diagnostics
    third = msgspec.structs.replace(first, message="unused result")

    def report(*found: Diagnostic) -> list[str]:
        document.keep("pushed", found)
        return late.take_note(servers.root).splitlines()[1:]

    assert report(first, third, second) == ["a.txt:1:1: unused result [fake B1]"]
    assert report() == report(third) == []  # it went and came back
    write(tmp_path, "changed\n")
    other = msgspec.structs.replace(first, message="other")
    assert report(other) == []
    write(tmp_path, "BAD\n")
    await review_files(servers, [path], late)
    for number in range(5):
        found = report(msgspec.structs.replace(first, message=str(number)))
        assert len(found) == (number < servers_module.MAX_NOTES)
    await review_files(servers, [path], late)
    late.follow_turn("next")
    assert report(other) == []


@pytest.mark.usefixtures("patient")
async def test_a_lying_server_is_read_with_care(serve: Serve, tmp_path: Path):
    path = write(tmp_path, "x\nBAD\n")
    assert await review(serve("lies"), path) == ["a.txt:2:1: bad word [fake B1]"]


@pytest.mark.usefixtures("patient")
async def test_errors_are_bounded_in_number_and_length(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(servers_module, "MAX_MESSAGE_CHARS", 3)
    found = await review(serve("pull"), write(tmp_path, "BAD\n" * 25))
    assert (found[0], found[-1], len(found)) == ("a.txt:1:1: bad... [fake B1]", "... and 15 more errors", 11)


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    "vice",
    ["hang:initialize", "hang:textDocument/didOpen", "mute", "exit:initialize", "exit:textDocument/didOpen",
     "garbage:initialize", "broken:textDocument/didOpen", "huge:initialize", "flood:textDocument/didOpen"],
)  # fmt: skip
async def test_a_bad_server_costs_a_moment_and_nothing_else(serve: Serve, tmp_path: Path, vice: str):
    servers = serve(vice)
    path = write(tmp_path, "BAD\n")
    async with asyncio.timeout(20):  # each of them would wait for 30 seconds or longer
        for _ in range(6):
            assert (await review_files(servers, [path])).text == ""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("vice", "detail"),
    [
        ("exit:initialize", "it ended (exit code 3): out of luck"),
        ("garbage:initialize", "its output is not the language server protocol"),
        ("broken:initialize", "it sent broken JSON"),
        ("huge:initialize", "it sent a message of 99,999,999,999 bytes"),
        ("flood:initialize", "it sent more than Odin reads"),
    ],
)
async def test_a_failure_is_explained_and_the_server_given_up(serve: Serve, tmp_path: Path, vice: str, detail: str):
    servers = serve(vice)
    path = write(tmp_path, "BAD\n")
    for _ in range(5):
        assert (await review_files(servers, [path])).text == ""
    (state,) = servers.list_states()
    assert state.status == "failed" and state.detail.startswith(detail)
    assert servers.list_for(path) == ()
    servers.all[0].stop()
    assert servers.list_for(path) != ()


@pytest.mark.parametrize("command", ["no-such-server", "./no/such", "/etc/passwd", "/tmp"])
async def test_a_program_that_cannot_be_started_is_named(serve: Serve, tmp_path: Path, command: str):
    servers = serve(command=command) if command[0] != "." else serve(command=f"{tmp_path.parent}/no/such")
    assert (await review_files(servers, [write(tmp_path, "BAD\n")])).text == ""
    (state,) = servers.list_states()
    assert state.status == "failed" and " cannot be started: " in state.detail


async def test_a_server_that_does_not_read_fails_at_once(serve: Serve, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_module, "_EXIT_PAUSE_S", 0.0)
    servers = serve("deaf:initialized")
    server = servers.all[0]
    await server.get_ready()
    async with asyncio.timeout(20):
        while server.status == "ready":
            server.report_changes([WatchedChange(f"{servers.root}/a.txt", 2)])
            await asyncio.sleep(0.01)
    assert (server.status, server.detail) == ("failed", "it does not read what it is sent")


async def test_the_error_is_told_and_not_the_trace_after_it(serve: Serve, tmp_path: Path):
    said = "info: starting\nerror: no such toolchain\n  15: <unknown>\n"
    servers = serve(command="/bin/sh", args=("-c", "printf '%s' \"$0\" >&2; exit 1", said))
    await review_files(servers, [write(tmp_path, "BAD\n")])
    assert servers.list_states()[0].detail == "it ended (exit code 1): error: no such toolchain"


@pytest.mark.usefixtures("patient")
async def test_a_server_that_crashed_is_started_again(serve: Serve, tmp_path: Path):
    servers = serve("exit:textDocument/didClose")
    path, other = write(tmp_path, "BAD\n"), write(tmp_path, "BAD\n", "b.txt")
    assert len(await review(servers, path, other)) == 2
    Path(other).unlink()
    await review(servers, path)
    while servers.list_states()[0].status != "failed":
        await asyncio.sleep(0.01)
    assert await review(servers, path) == ["a.txt:1:1: bad word [fake B1]"]


@pytest.mark.usefixtures("patient")
async def test_the_server_follows_the_disk(serve: Serve, tmp_path: Path):
    """Whatever changes files, what the server knows is what is on the disk when it is asked."""
    trace, told = tmp_path / "trace", [WatchedChange(f"{os.path.realpath(tmp_path)}/new.txt", 1)]
    servers = serve("pull", f"trace={trace}", take_changes=lambda: [told.pop()] if told else [])
    path, other = write(tmp_path, "BAD\n"), write(tmp_path, "fine\n", "b.txt")
    await review(servers, path, other)
    told.append(WatchedChange(f"{os.path.realpath(tmp_path)}/c.txt", 3))
    write(tmp_path, "BAD\nBAD\n")
    Path(other).unlink()
    assert len(await review(servers, path)) == 2
    assert trace.read_text().splitlines()[2:] == [
        "textDocument/didOpen a.txt",
        "textDocument/didSave a.txt",
        "textDocument/didOpen b.txt",
        "textDocument/didSave b.txt",
        "textDocument/diagnostic a.txt",
        "textDocument/diagnostic b.txt",
        "workspace/didChangeWatchedFiles  3c.txt",
        "textDocument/didClose b.txt",
        "textDocument/didChange a.txt",
        "textDocument/didSave a.txt",
        "textDocument/diagnostic a.txt",
    ]


@pytest.mark.usefixtures("patient")
async def test_a_file_that_was_read_is_known_before_it_is_changed(serve: Serve, tmp_path: Path):
    servers = serve("pull")
    path = write(tmp_path, "BAD\n")
    warm_up(servers, path)
    while not servers.list_states()[0].errors:
        await asyncio.sleep(0.01)
    write(tmp_path, "BAD\nBAD x\n")
    assert (await review(servers, path))[0] == "a.txt:2:1: new: bad word [fake B1]"


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("data", [b"\0\0BAD\n", b"BAD\n" * 600_000])
async def test_files_that_are_no_text_for_a_server(serve: Serve, tmp_path: Path, data: bytes):
    path = Path(os.path.realpath(tmp_path), "a.txt")
    path.write_bytes(data)
    assert (await review_files(serve("pull"), [str(path), f"{path.parent}/missing.txt", "/etc/hosts.txt"])).text == ""


@pytest.mark.usefixtures("patient")
async def test_bytes_that_are_not_utf_8_have_their_place(serve: Serve, tmp_path: Path):
    path = write(tmp_path, "\udce9\udce8 BAD\n")
    assert await review(serve("pull"), path) == ["a.txt:1:4: bad word [fake B1]"]
