"""Diagnostics of edited files: content, limits, late errors and faulty servers."""

import asyncio
import os
from pathlib import Path

import msgspec
import pytest

from odin.core.timing import Timing
from odin.lsp import servers as servers_module
from odin.lsp.documents import Diagnostic, WatchedChange
from odin.lsp.servers import MAX_WARM_UPS, LanguageServers, LateErrors, review_files, warm_up
from tests.waiting import TimeLimit, until

from .conftest import LONG_WAITS, Serve

SHORT_WAITS = Timing(lsp_cold_s=0.1, lsp_warm_s=0.05)


def write(folder: Path, text: str, name: str = "a.txt") -> str:
    path = Path(os.path.realpath(folder), name)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return str(path)


async def review(servers: LanguageServers, *paths: str) -> list[str]:
    return (await review_files(servers, paths)).text.splitlines()[1:]


@pytest.mark.parametrize(
    "quirks",
    [("push",), ("pull",), ("push", "utf-8"), ("pull", "utf-32"), ("push", "stale"), ("wrong_ids", "pull"), ("asks",),
     ("pull", "fickle"), ("both",)],
)  # fmt: skip
async def test_errors_are_found_and_new_ones_are_marked(serve: Serve, tmp_path: Path, quirks: tuple[str, ...]):
    servers = serve(*quirks)
    path = write(tmp_path, "one\r\nß😀 BAD\r\n")
    assert await review(servers, path) == ["a.txt:2:4: bad word [fake B1]"]
    write(tmp_path, "zero\r\none\r\nß😀 BAD\r\nBAD ODD\r\n")
    assert await review(servers, path) == ["a.txt:4:1: new: bad word [fake B1]", "a.txt:3:4: bad word [fake B1]"]
    assert [(state.status, state.errors, state.warnings) for state in servers.list_states()] == [("ready", 2, 1)]
    write(tmp_path, "one\n")
    assert (await review_files(servers, [path])).text == ""


async def test_pushed_and_pulled_diagnostics_are_combined(serve: Serve, tmp_path: Path):
    servers = serve("both")
    path = write(tmp_path, "BAD\nWORSE\n")
    assert await review(servers, path) == ["a.txt:1:1: bad word [fake B1]", "a.txt:2:1: worse word [fake]"]
    document = servers.all[0].find_document(path)
    assert document is not None
    document.version += 1
    assert len(document.diagnostics or ()) == 2  # the old ones, until there are some for the new text
    document.keep("pulled", ())
    assert document.diagnostics == ()


async def test_clangd_errors_are_preliminary_until_it_has_read_the_headers(serve: Serve, tmp_path: Path):
    server = serve("mute", timing=Timing(lsp_idle_s=0.01)).all[0]
    await server.get_ready()
    document = server.follow(write(tmp_path, "BAD\n"))
    assert document is not None

    def notify(method: str, **more: object) -> tuple[bool, bool]:
        server._on_notification(f"textDocument/{method}", {"uri": document.uri, "version": 1, **more})
        return document.published.is_set(), document.is_current

    at = {"line": 0, "character": 0}
    error = {"range": {"start": at, "end": at}, "message": "no member"}
    notify("clangd.fileStatus", state="parsing includes")
    assert notify("publishDiagnostics", diagnostics=[error]) == (False, False)
    assert notify("clangd.fileStatus", state="idle") == (False, False)  # idle only for a moment
    notify("clangd.fileStatus", state="running Build AST")
    await asyncio.sleep(0.02)
    assert notify("publishDiagnostics", diagnostics=[error]) == (False, False)
    notify("clangd.fileStatus", state="idle")
    async with TimeLimit():
        await document.published.wait()
    assert document.is_current


@pytest.mark.parametrize("quirks", [("push",), ("pull", "loads")])
async def test_late_errors_are_reported_once(serve: Serve, tmp_path: Path, quirks: tuple[str, ...]):
    """The server has just started, or it finds errors only after it has loaded the project."""
    timing = Timing(lsp_cold_s=0.0 if "push" in quirks else 20.0, lsp_warm_s=0.05, lsp_refresh_s=0.0)
    servers, late = serve(*quirks, timing=timing), LateErrors()
    path = write(tmp_path, "BAD\n" * 12)
    assert (await review_files(servers, [path], late)).text == ""
    while not servers.list_states()[0].errors:
        await asyncio.sleep(0.01)
    note = late.take_note(servers.root).splitlines()
    assert (note[0], note[1], note[-1], len(note)) == (
        servers_module.LATE_HEADING,
        "a.txt:1:1: bad word [fake B1]",
        "... and 2 more errors",
        12,
    )
    assert late.take_note(servers.root) == ""


async def test_late_errors_omit_reported_and_outdated_ones(serve: Serve, tmp_path: Path):
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
    assert report() == report(third) == []  # an error that disappears and comes back is not new
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


@pytest.mark.parametrize("method", ["initialize", "textDocument/diagnostic", "textDocument/didOpen"])
@pytest.mark.parametrize("kind", ["push", "pull"])
async def test_a_server_is_not_unused_while_it_is_slow_to_answer(
    serve: Serve, tmp_path: Path, kind: str, method: str
) -> None:
    servers = serve(kind, f"slow:{method}", timing=msgspec.structs.replace(LONG_WAITS, lsp_unused_s=0.01))
    for name in ("a.txt", "b.txt"):  # it ends between the two, and starts again
        assert await review(servers, write(tmp_path, "BAD\n", name)) == [f"{name}:1:1: bad word [fake B1]"]
        await until(lambda: servers.all[0].status == "idle")


async def test_invalid_diagnostics_are_ignored(serve: Serve, tmp_path: Path):
    path = write(tmp_path, "x\nBAD\n")
    assert await review(serve("lies"), path) == ["a.txt:2:1: bad word [fake B1]"]


async def test_number_and_length_of_errors_are_bounded(serve: Serve, tmp_path: Path):
    found = await review(serve("pull"), write(tmp_path, "LONG\n" * 25))
    assert found[0] == f"a.txt:1:1: {'x' * servers_module.MAX_MESSAGE_CHARS}... [fake L1]"
    assert (found[-1], len(found)) == ("... and 15 more errors", 11)


@pytest.mark.parametrize(
    "quirk",
    ["hang:initialize", "hang:textDocument/didOpen", "mute", "exit:initialize", "exit:textDocument/didOpen",
     "garbage:initialize", "broken:textDocument/didOpen", "huge:initialize", "flood:textDocument/didOpen"],
)  # fmt: skip
async def test_faulty_server_delays_a_review_only_briefly(serve: Serve, tmp_path: Path, quirk: str):
    servers = serve(quirk, timing=SHORT_WAITS)
    path = write(tmp_path, "BAD\n")
    async with TimeLimit():  # without short waits, each quirk would block for 30 seconds or longer
        for _ in range(6):
            assert (await review_files(servers, [path])).text == ""


@pytest.mark.parametrize(
    ("quirk", "detail"),
    [
        ("exit:initialize", "it ended (exit code 3): out of luck"),
        ("garbage:initialize", "its output is not the language server protocol"),
        ("broken:initialize", "it sent broken JSON"),
        ("huge:initialize", "it sent a message of 99,999,999,999 bytes"),
        ("flood:initialize", "it sent more than Odin reads"),
    ],
)
async def test_failing_server_is_given_up_with_an_explanation(serve: Serve, tmp_path: Path, quirk: str, detail: str):
    servers = serve(quirk)
    path = write(tmp_path, "BAD\n")
    for _ in range(5):
        assert (await review_files(servers, [path])).text == ""
    (state,) = servers.list_states()
    assert state.status == "failed" and state.detail.startswith(detail)
    assert servers.list_for(path) == ()
    servers.all[0].stop()
    assert servers.list_for(path) != ()


@pytest.mark.parametrize("command", ["no-such-server", "./no/such", "/etc/passwd", "/tmp"])
async def test_program_that_cannot_be_started_is_reported(serve: Serve, tmp_path: Path, command: str):
    servers = serve(command=command) if command[0] != "." else serve(command=f"{tmp_path.parent}/no/such")
    assert (await review_files(servers, [write(tmp_path, "BAD\n")])).text == ""
    (state,) = servers.list_states()
    assert state.status == "failed" and " cannot be started: " in state.detail


async def test_a_server_that_does_not_read_fails_at_once(serve: Serve):
    servers = serve("deaf:initialized", timing=Timing(lsp_exit_s=0.0))
    server = servers.all[0]
    await server.get_ready()
    async with TimeLimit():
        while server.status == "ready":
            server.report_changes([WatchedChange(f"{servers.root}/a.txt", 2)])
            await asyncio.sleep(0.01)
    assert (server.status, server.detail) == ("failed", "it does not read what it is sent")


async def test_failure_detail_is_the_error_without_the_trace_after_it(serve: Serve, tmp_path: Path):
    output = "info: starting\nerror: no such toolchain\n  15: <unknown>\n"
    servers = serve(command="/bin/sh", args=("-c", "printf '%s' \"$0\" >&2; exit 1", output))
    await review_files(servers, [write(tmp_path, "BAD\n")])
    assert servers.list_states()[0].detail == "it ended (exit code 1): error: no such toolchain"


async def test_a_server_that_crashed_is_started_again(serve: Serve, tmp_path: Path):
    servers = serve("exit:textDocument/didClose")
    path, other = write(tmp_path, "BAD\n"), write(tmp_path, "BAD\n", "b.txt")
    assert len(await review(servers, path, other)) == 2
    Path(other).unlink()
    await review(servers, path)
    while servers.list_states()[0].status != "failed":
        await asyncio.sleep(0.01)
    assert await review(servers, path) == ["a.txt:1:1: bad word [fake B1]"]


async def test_server_learns_of_changes_on_disk(serve: Serve, tmp_path: Path):
    """Before it is asked, the server learns of every change on disk, whatever made the change."""
    trace, changes = tmp_path / "trace", [WatchedChange(f"{os.path.realpath(tmp_path)}/new.txt", 1)]
    servers = serve("pull", f"trace={trace}", take_changes=lambda: [changes.pop()] if changes else [])
    path, other = write(tmp_path, "BAD\n"), write(tmp_path, "fine\n", "b.txt")
    await review(servers, path, other)
    changes.append(WatchedChange(f"{os.path.realpath(tmp_path)}/c.txt", 3))
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


async def test_error_is_marked_as_new_if_the_file_was_read_before_the_change(serve: Serve, tmp_path: Path):
    servers = serve("pull")
    path = write(tmp_path, "BAD\n")
    warm_up(servers, path)
    while not servers.list_states()[0].errors:
        await asyncio.sleep(0.01)
    write(tmp_path, "BAD\nBAD x\n")
    assert (await review(servers, path))[0] == "a.txt:2:1: new: bad word [fake B1]"


async def test_servers_of_one_folder_warm_up_while_those_of_another_are_busy(serve: Serve, tmp_path: Path):
    busy, servers = serve("mute"), serve("pull")
    for number in range(MAX_WARM_UPS):
        warm_up(busy, write(tmp_path, "fine\n", f"{number}.txt"))
    assert len(busy.reviews) == MAX_WARM_UPS
    warm_up(servers, write(tmp_path, "BAD\n"))
    while not servers.list_states()[0].errors:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("data", [b"\0\0BAD\n", b"BAD\n" * 600_000])
async def test_binary_large_and_missing_files_are_not_reviewed(serve: Serve, tmp_path: Path, data: bytes):
    path = Path(os.path.realpath(tmp_path), "a.txt")
    path.write_bytes(data)
    assert (await review_files(serve("pull"), [str(path), f"{path.parent}/missing.txt", "/etc/hosts.txt"])).text == ""


async def test_position_is_right_after_bytes_that_are_not_utf_8(serve: Serve, tmp_path: Path):
    path = write(tmp_path, "\udce9\udce8 BAD\n")
    assert await review(serve("pull"), path) == ["a.txt:1:4: bad word [fake B1]"]
