"""Pasted and dropped content: folded, expanded, deleted as one piece, sent whole; images by path or clipboard."""

import base64
import os
from pathlib import Path

import pytest
from textual import events

from odin.core.op import Prompt
from odin.core.profile import WritableFolders
from odin.sandbox.terminal import TerminalPrograms
from odin.testing import say
from odin.ui.tui.composer.draft import DraftParts, PromptDraft, make_draft
from odin.ui.tui.composer.external_text import MAX_CHARS, ClipboardContent, clean_text, find_image_paths, read_clipboard
from tests.tui.conftest import OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
LONG = "\n".join(f"line {number}" for number in range(240))


async def paste(stage: Stage, text: str) -> None:
    stage.app.composer.post_message(events.Paste(text))
    await stage.pilot.pause()


def get_first_prompt(client: FakeClient) -> Prompt | None:
    return next((op for op in client.submitted if isinstance(op, Prompt)), None)


async def test_a_long_paste_is_folded_and_sent_whole() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        composer = stage.app.composer
        await stage.type("see ")
        await paste(stage, LONG.replace("\n", "\r\n"))
        await stage.shows("see [pasted #1: 240 lines]")
        await paste(stage, "y" * 1001)
        await stage.shows("[pasted #2: 1,001 characters]")
        await stage.press("enter")
        await stage.until(lambda: get_first_prompt(client))
        sent = get_first_prompt(client)
        assert sent is not None and sent.text == f"see {LONG}{'y' * 1001}"
        await stage.press("up")
        assert composer.text.startswith("see [pasted #1")
        assert composer.draft.expand() == sent.text


async def test_cursor_and_deletion_treat_a_folded_paste_as_one_character() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        await stage.type("a")
        await paste(stage, LONG)
        await stage.press("b", "left", "left")
        assert composer.cursor_location == (0, 1)
        await stage.press("right", "backspace")
        assert composer.text == "ab"
        await stage.press("ctrl+underscore")
        assert composer.draft.expand() == f"a{LONG}b"
        await stage.press("home", "right", "delete")
        assert composer.text == "ab"
        await stage.press("ctrl+underscore", "end", "shift+enter")
        await stage.type("12345")
        await stage.press("up", "Z")
        assert composer.draft.expand() in (f"aZ{LONG}b\n12345", f"a{LONG}Zb\n12345")


async def test_a_click_expands_a_folded_paste() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        await paste(stage, LONG)
        await stage.pilot.click(composer, offset=(6, 1))
        await stage.until(lambda: composer.text == LONG)
        await stage.press("ctrl+c")
        await paste(stage, "z" * 30_000)
        await stage.pilot.click(composer, offset=(6, 1))
        await stage.shows("Too long to show here")
        assert composer.text == "[pasted #1: 30,000 characters]"


async def test_short_pastes_are_inserted_without_control_sequences() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await paste(stage, "one\r\ntwo\x1b[31m red\x07\x00\tend")
        assert stage.app.composer.text == "one\ntwo red\tend"


async def test_a_paste_over_the_limit_is_rejected_with_a_message() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.type("keep")
        await paste(stage, "x" * (MAX_CHARS + 1))
        await stage.shows("2,000,001", "mention")
        assert stage.app.composer.text == "keep"


async def test_pasting_an_image_warns_if_the_model_cannot_see_images(workspace: Path) -> None:
    (workspace / "shot.png").write_bytes(PNG)
    async with run_app(FakeSessions(client := FakeClient(sees_images=False))) as stage:
        await paste(stage, f"'{workspace / 'shot.png'}' ")
        await stage.shows("cannot see images", '"images": true')
        assert client.submitted == []


async def test_completing_an_image_path_warns_if_the_model_cannot_see_images() -> None:
    client = FakeClient(sees_images=False)
    client.paths = ("shots/one.png",)
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("Look at @one")
        await stage.shows("shots/one.png")
        await stage.press("tab")
        await stage.shows("cannot see images")


async def test_a_dropped_image_is_sent_with_the_prompt(open_app: OpenApp, workspace: Path) -> None:
    (workspace / "my shot.png").write_bytes(PNG)
    async with open_app([say("A dot.")]) as stage:
        await stage.type("what is ")
        await paste(stage, f"'{workspace / 'my shot.png'}' ")
        await stage.shows("what is [image #1 my shot.png]")
        await stage.press("enter")
        await stage.shows("A dot.")
        body = str(stage.server.requests[0].body)
        assert "[image #1 my shot.png]" in body
        assert base64.b64encode(PNG).decode()[:40] in body


@pytest.mark.slow
async def test_undo_and_fork_bring_a_prompt_back_with_its_image_and_typing_replaces_it(
    open_app: OpenApp, workspace: Path
) -> None:
    (workspace / "shot.png").write_bytes(PNG)
    async with open_app([say("One."), say("Two."), say("Three.")]) as stage:
        composer, server = stage.app.composer, stage.server
        await stage.type("what is ")
        await composer.paste(str(workspace / "shot.png"))
        await stage.press("enter")
        await stage.shows("One.")
        await stage.idle()
        await stage.send("/undo")
        await stage.until(lambda: composer.text.startswith("what is [image #1 shot.png]"))
        await stage.send("/redo")
        await stage.shows("One.")
        assert composer.text == ""
        assert len(server.requests) == 1
        for command, answer in (("/undo", "Two."), ("/fork 1", "Three.")):
            await stage.send(command)
            await stage.until(lambda: composer.text.startswith("what is [image #1 shot.png]"))
            await stage.press("enter")
            await stage.shows(answer)
            await stage.idle()
            assert server.requests[-1].body.count(b'"type":"image"') == 1
        assert server.rejected == []


async def test_images_are_limited_in_number_and_size(workspace: Path) -> None:
    (workspace / "a.png").write_bytes(PNG)
    (workspace / "big.png").write_bytes(PNG + b"\0" * 5_000_000)
    (workspace / "not.png").write_text("no picture")
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        composer = stage.app.composer
        for number in range(1, 6):
            await paste(stage, str(workspace / "a.png"))
            await stage.until(lambda number=number: f"#{number} " in composer.text)
        await paste(stage, str(workspace / "a.png"))
        await stage.shows("at most five images")
        await stage.press("ctrl+c")
        await paste(stage, str(workspace / "big.png"))
        await stage.shows("5.0 MB; the limit for images is 5 MB")
        await paste(stage, str(workspace / "not.png"))
        await stage.shows("is not a supported image")
        assert composer.draft.list_images() == ()


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("/a/b.png", ["/a/b.png"]),
        ("/a/with space.PNG\n", ["/a/with space.PNG"]),
        ("'/a/with space.png'", ["/a/with space.png"]),
        (r"/a/with\ space.jpg", ["/a/with space.jpg"]),
        ("file:///a/with%20space.webp", ["/a/with space.webp"]),
        ("/a/1.png /a/2.gif", ["/a/1.png", "/a/2.gif"]),
        ("/a/1.png\n/a/2.gif", ["/a/1.png", "/a/2.gif"]),
        ("see /a/b.png", []),
        ("b.png", []),
        ("/a/b.txt", []),
        ("'/a/b.png", []),
    ],
)
def test_image_paths_are_found(text: str, paths: list[str]) -> None:
    assert find_image_paths(text) == paths


def test_the_draft_of_a_queued_prompt_has_its_images() -> None:
    pieces = DraftParts()
    from odin.core.message import Attachment

    first = Attachment("one.png", data=PNG, media_type="image/png")
    text = f"{pieces.add_image(first)} and"
    again = make_draft(text, (first, Attachment("two.png")))
    assert again.text == "[image #1 one.png] and [image #2 two.png]"
    assert again.list_images() == (first, Attachment("two.png"))
    assert PromptDraft(again.text.replace("[image #1 one.png] ", ""), again.parts).list_images() == (
        Attachment("two.png"),
    )


def test_clean_text_removes_control_sequences() -> None:
    assert clean_text("a\x1b]0;title\x07b\x9bc\ud800d\r") == "abcd\n"


def write_program(folder: Path, name: str, body: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o700)


async def test_ctrl_v_pastes_an_image_from_the_clipboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_bytes(PNG)
    write_program(
        tmp_path,
        "wl-paste",
        f'case "$*" in *list-types*) echo text/plain; echo image/png;; *image/png*) cat {tmp_path}/data;; esac',
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.press("ctrl+v")
        await stage.until(lambda: stage.app.composer.draft.list_images())
        assert stage.app.composer.draft.list_images()[0].data == PNG
        await stage.shows("[image #1 clipboard]")


async def test_clipboard_text_is_read_and_a_hanging_program_is_killed(tmp_path: Path) -> None:
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "DISPLAY": ":9"}
    write_program(tmp_path, "xclip", 'case "$*" in *TARGETS*) echo STRING;; *) printf words;; esac')
    programs = TerminalPrograms(env, WritableFolders())
    assert (await read_clipboard(programs)).text == "words"
    write_program(tmp_path, "xclip", f"echo $$ > {tmp_path}/pid; sleep 600 & wait")
    assert await read_clipboard(programs, timeout=0.3) == ClipboardContent()
    pid = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    without_display = TerminalPrograms({"PATH": str(tmp_path)}, WritableFolders())
    assert await read_clipboard(without_display) == ClipboardContent()


async def test_without_a_clipboard_program_text_copied_in_the_app_is_pasted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.press("ctrl+v")
        await stage.shows("The clipboard is empty or cannot be read")
        stage.app.copy_to_clipboard("copied here")
        await stage.press("ctrl+v")
        await stage.until(lambda: stage.app.composer.text == "copied here")


def test_bracketed_pastes_are_parsed_from_terminal_input() -> None:
    from odin.ui.tui.terminal_input import ReplyParser

    parser = ReplyParser()
    sent = f"a\x1b[200~{'x' * 5000}\x1b[31m\x1b[201~b\x1b[200~two\x1b[201~"
    for size in (4, 7, 4096, 10_000):
        found: list[str] = []
        for at in range(0, len(sent), size):
            events_of_part = parser.feed(sent[at : at + size])
            found += [getattr(event, "text", "") or getattr(event, "key", "") for event in events_of_part]
        assert found == ["a", f"{'x' * 5000}\x1b[31m", "b", "two"], size
