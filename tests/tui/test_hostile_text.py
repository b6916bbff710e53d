"""Hostile text cannot control the terminal, hide anything from the user, or crash the app."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.segment import Segment
from textual import events

from odin.core.call_events import PermissionAsked
from odin.core.event import Envelope, SessionSwitched, TurnStarted
from odin.core.interaction import make_interaction
from odin.core.op import Answer
from odin.ui.clean_text import sanitize
from odin.ui.notifications import format_desktop_notification, format_title
from odin.ui.session_facts import SessionFacts
from odin.ui.status_parts import list_parts
from odin.ui.transcript.model import TranscriptModels
from odin.ui.tui.dialogs.interaction import InteractionDialog
from odin.ui.tui.dialogs.interaction_view import paint_request as permission_page
from odin.ui.tui.lifecycle import print_transcript
from odin.ui.tui.paint.canvas import Canvas, wrap_cells
from odin.ui.tui.paint.painter import paint_block
from odin.ui.tui.palette import DARK, make_palette
from odin.ui.tui.panels.side import SideSections
from odin.ui.tui.terminal_input import PASTE_BEGIN, PASTE_END, ReplyParser
from tests.hostile_text import HOSTILE_TEXTS, ValueMaker, event_types, find_foreign_sequence
from tests.tui.conftest import SHORT_WAITS, Stage, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions

PALETTE = make_palette(DARK)
KINDS = [kind for kind in event_types() if kind is not SessionSwitched]
TEXTS = st.lists(st.sampled_from(HOSTILE_TEXTS) | st.text(max_size=12), min_size=1, max_size=3).map("".join)


def request_for(command: str, **more: Any) -> PermissionAsked:
    return PermissionAsked("ask-1", "c1", "Bash", {"command": command}, "It may change things.", command, **more)


@pytest.mark.slow
@given(st.data())
def test_events_with_hostile_text_are_painted_without_control_sequences(data: st.DataObject) -> None:
    maker = ValueMaker(lambda: data.draw(TEXTS), lambda choices: data.draw(st.sampled_from(choices)))
    transcripts, facts = TranscriptModels(), SessionFacts()
    for number, kind in enumerate(data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))):
        envelope = Envelope(number, START + number, "s", maker.make_struct(kind), data.draw(st.sampled_from(["", "a"])))
        transcripts.apply(envelope)
        facts.apply(envelope)
    canvas = Canvas(60, PALETTE, now=START + 9)
    blocks = [block for transcript in transcripts.values() for block in transcript.blocks]
    lines = [strip for block in blocks for strip in paint_block(block, canvas)]
    for block in blocks:
        block.folded = False
        lines += paint_block(block, canvas)
    for strip in lines:
        assert not find_foreign_sequence(strip.render(canvas.console)), strip.text
        assert "\n" not in strip.text
        shown = [style for text, style, _ in strip if text and style is not None]
        assert not any(style.link or style.meta for style in shown)
    side_texts = [row.text for row in SideSections(facts, PALETTE, 40, now=START + 9).build_rows()]
    for text in (*(row.plain for row in side_texts), *(part.text for part in list_parts(facts, "edit_mode"))):
        assert not find_foreign_sequence(text), text


@pytest.mark.parametrize("nasty", HOSTILE_TEXTS, ids=ascii)
def test_text_cannot_terminate_a_title_or_notification_sequence(nasty: str) -> None:
    for env in ({"TERM": "xterm"}, {"TERM": "xterm-kitty"}, {"TERM": "foot"}):
        sequence = format_desktop_notification(nasty, nasty, env)
        assert sequence.startswith("\x1b]") and sequence.endswith("\x1b\\")
        assert not find_foreign_sequence(sequence[2:-2])
    assert not find_foreign_sequence(format_title(nasty)[2:-1])


@pytest.mark.slow
def test_the_transcript_printed_at_exit_has_no_control_sequences(tmp_path: Path) -> None:
    maker = ValueMaker(lambda: "".join(HOSTILE_TEXTS), random.Random(3).choice)
    transcripts = TranscriptModels()
    for number, kind in enumerate(KINDS):
        transcripts.apply(Envelope(number, START, "s", maker.make_struct(kind)))
    with (tmp_path / "out").open("w", encoding="utf-8", errors="strict") as out:
        print_transcript(transcripts[""].blocks, PALETTE, out)
    assert not find_foreign_sequence((tmp_path / "out").read_text(encoding="utf-8"))


# --- wrapping of hostile lines ---


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["x", "漢", "e\u0301", "👩\u200d👩"])
def test_wrapping_a_long_line_takes_linear_time(letter: str) -> None:
    """The time must grow linearly with the length of the line, not quadratically."""
    text = letter * 2_000
    assert "".join(segment.text for line in wrap_cells([Segment(text)], 78) for segment in line) == text
    assert all(sum(segment.cell_length for segment in line) <= 78 for line in wrap_cells([Segment(text)], 78))

    def measure(times: int) -> float:
        started = time.process_time()
        wrap_cells([Segment(letter * times)], 78)
        return time.process_time() - started

    measure(2_000)
    assert min(measure(40_000) for _ in range(3)) < 60 * max(min(measure(2_000) for _ in range(3)), 0.001)


@pytest.mark.slow
@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=4), st.integers(2, 30))
def test_wrapped_lines_keep_all_text_and_fit_the_width(parts: list[tuple[str, bool]], width: int) -> None:
    line = [Segment(sanitize(text).replace("\n", ""), None) for text, _ in parts]
    cut = wrap_cells(line, width)
    assert "".join(segment.text for row in cut for segment in row) == "".join(segment.text for segment in line)
    for row in cut:
        assert sum(segment.cell_length for segment in row) <= max(width, 2)


def test_zero_width_joiners_are_kept_only_in_short_emoji_sequences() -> None:
    assert sanitize("\u200d".join("abc")) == "abc"
    assert sanitize("👩\u200d👩\u200d👧") == "👩\u200d👩\u200d👧"
    assert "\u200d" not in sanitize("\u200d".join("👩" * 30))


# --- permission requests hide nothing ---


@pytest.mark.parametrize("width", [24, 37, 78, 140])
@pytest.mark.parametrize("filler", ["\u2630", "漢", "\U0001fae8", "a", "e\u0301", "q "], ids=ascii)
def test_the_end_of_a_command_is_never_cut_off(filler: str, width: int) -> None:
    command = f"echo {filler * 200}; reboot-now"
    rows = permission_page(make_interaction(request_for(command)), Canvas(width, PALETTE))
    shown = "".join(row.text[4:] for row in rows if row.text[:4] in ("  │ ", "  ┊ "))
    assert shown.startswith("echo") and "reboot-now" in shown.replace(" ", "") and "…" not in shown
    assert all(row.cell_length <= width for row in rows)


def test_a_long_path_in_the_reason_is_shown_whole() -> None:
    reason = f"It writes to /{'x' * 300}/end."
    rows = permission_page(make_interaction(PermissionAsked("a", "c", "Edit", {}, reason, "f")), Canvas(50, PALETTE))
    assert f"{'x' * 300}/end." in "".join(row.text for row in rows)


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("gіt push", "cyrillic small letter byelorussian-ukrainian i"),
        ("curl https://gооgle.com", "U+043E"),
        ("cat ／etc／passwd", "fullwidth solidus"),
        ("echo привет мир", ""),
        ("git commit -m 'naïve — “so”'", ""),
        ("ls 漢字 über", ""),
    ],
)
def test_deceptive_characters_are_named(command: str, told: str) -> None:
    text = "\n".join(row.text for row in permission_page(make_interaction(request_for(command)), Canvas(200, PALETTE)))
    assert told in text
    assert ("characters that look like" in text) is bool(told)


async def test_a_request_cannot_be_allowed_before_all_of_it_was_shown() -> None:
    command = "echo begin\n" + "\n" * 60 + "reboot-now"
    client = FakeClient([TurnStarted("p1", "Go.", "edit_mode")])
    async with run_app(FakeSessions(client), size=(100, 24)) as stage:
        client.emit(request_for(command, rules=("Bash(echo:*)",)))
        await wait_until_ready(stage)
        assert "reboot-now" not in stage.screen()
        for key in ("y", "s"):
            await stage.press(key)
            await stage.shows("Read the whole request before allowing it.")
            assert client.submitted == []
        await stage.press("end")
        await stage.shows("reboot-now")
        await stage.press("y")
        await stage.until(lambda: client.submitted == [Answer("ask-1", "allow_once")])


async def wait_until_ready(stage: Stage) -> None:
    await stage.until(lambda: isinstance(stage.app.screen, InteractionDialog) and stage.app.screen.ready)
    await stage.pilot.pause(0.05)


# --- unintended keys and clicks ---


async def test_a_click_on_a_dialog_that_just_opened_answers_nothing() -> None:
    client = FakeClient([TurnStarted("p1", "Go.", "edit_mode")])
    async with run_app(FakeSessions(client), timing=replace(SHORT_WAITS, quiet_s=60.0)) as stage:
        client.emit(request_for("touch x"))
        await stage.until(lambda: isinstance(stage.app.screen, InteractionDialog))
        dialog = stage.app.screen
        assert isinstance(dialog, InteractionDialog)
        await stage.until(lambda: dialog.is_mounted and dialog.query_one("#answers").size.height)
        quiet = dialog._quiet_from
        await stage.pilot.click("#answers", offset=(3, 0))
        assert client.submitted == []
        assert dialog._quiet_from > quiet


def test_an_end_marker_inside_a_paste_produces_no_keys() -> None:
    parser = ReplyParser()
    found = list(parser.feed(f"{PASTE_BEGIN}harmless{PASTE_END}y\r!reboot\r{PASTE_END}"))
    assert [type(event) for event in found] == [events.Paste]
    found = list(ReplyParser().feed(f"{PASTE_BEGIN}one{PASTE_END}k{PASTE_BEGIN}two{PASTE_END}"))
    assert [type(event).__name__ for event in found] == ["Paste", "Key", "Paste"]


@pytest.mark.parametrize("cut", range(3, 11))
def test_the_late_rest_of_a_reply_of_the_terminal_is_no_answer(cut: int) -> None:
    """The app asks again after `fg`, when a permission request may be open; `y` would allow it."""
    parser, reply = ReplyParser(), "\x1b[?2026;2$y"
    found = list(parser.feed(reply[:cut]))
    if vars(parser)["_timeout_time"] is not None:
        vars(parser)["_timeout_time"] = 0.0  # it has passed
    found += [*parser.tick(), *parser.feed(reply[cut:])]
    assert [type(event).__name__ for event in found] == ["TerminalSupportsSynchronizedOutput"]


@pytest.mark.slow
@given(
    st.lists(
        TEXTS | st.sampled_from([PASTE_BEGIN, PASTE_END, "\x1b[<0;9999999;1M", "\x1b[?1;2c", "\x1b[24;80R", "y", "\r"])
    )
)
def test_the_parser_accepts_any_terminal_input(chunks: list[str]) -> None:
    parser = ReplyParser()
    for chunk in filter(None, chunks):
        for _ in parser.feed(chunk):
            pass
    list(parser.feed(PASTE_END + "\x1b"))


async def test_control_sequences_are_removed_from_copied_text() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        stage.app.copy_to_clipboard("ok\x1b[201~\x07\ud800\x1b]52;c;eA==\x07\nnext")
        assert stage.app.clipboard == "ok\nnext"


async def test_markup_in_untrusted_text_is_shown_literally() -> None:
    said = "[bold]x[/] [@click=app.exit]quit[/]"
    client = FakeClient([TurnStarted("p1", said, "edit_mode")], branch=said)
    async with run_app(FakeSessions(client)) as stage:
        stage.app.show_toast(said)
        await stage.shows(said)
        screen = stage.strips()
        metas = [style.meta for strip in screen for _, style, _ in strip if style and style.meta]
        assert not any("app.exit" in str(meta) for meta in metas)
