"""The composer: its keys, the ops it submits, its history, and that no draft is lost."""

import os
from pathlib import Path

import pytest
from textual import events

from odin.core.errors import UsageError
from odin.core.event import PermissionModeChanged, TurnEnded, TurnStarted
from odin.core.op import Interrupt, Op, Prompt, RunUserShell, SetPermissionMode
from odin.testing import say
from tests.tui.conftest import SIZES_AND_THEMES, OpenApp, Stage, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions


def list_prompts(client: FakeClient) -> list[Prompt]:
    return [op for op in client.submitted if isinstance(op, Prompt)]


async def wait_for_prompts(stage: Stage, client: FakeClient, count: int = 1) -> list[Prompt]:
    await stage.until(lambda: len(list_prompts(client)) >= count)
    return list_prompts(client)


async def test_enter_sends_the_prompt_and_clears_the_composer() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.send("Hello there")
        assert [(op.text, op.mode, op.delivery) for op in await wait_for_prompts(stage, client)] == [
            ("Hello there", "edit_mode", None)
        ]
        assert stage.app.composer.text == ""
        await stage.press("enter")
        await stage.send("   ")
        await stage.pilot.pause()
        assert len(list_prompts(client)) == 1


@pytest.mark.parametrize("key", ["shift+enter", "alt+enter", "ctrl+j"])
async def test_a_prompt_has_several_lines(key: str) -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.press("a", key, "b", "enter")
        assert (await wait_for_prompts(stage, client))[0].text == "a\nb"


async def test_a_backslash_at_the_end_begins_a_new_line() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.press("a", "backslash", "enter", "b", "enter")
        assert (await wait_for_prompts(stage, client))[0].text == "a\nb"


@pytest.mark.slow
async def test_the_composer_grows_to_a_third_of_the_screen_and_then_scrolls() -> None:
    async with run_app(FakeSessions(FakeClient()), size=(60, 24)) as stage:
        for _ in range(4):
            await stage.press("x", "shift+enter")
        await stage.pilot.pause()
        assert stage.app.composer.outer_size.height == 7
        for _ in range(20):
            await stage.press("shift+enter")
        await stage.pilot.pause()
        assert stage.app.composer.outer_size.height == 10
        assert stage.app.composer.scroll_offset.y > 0


async def test_keys_typed_quickly_act_in_their_order() -> None:
    """Editing keys must neither overtake typed characters nor fall behind them."""
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        composer = stage.app.composer
        for key in ("a", "b", "backspace", "c", "left", "d", "end", "e", "enter", "n", "e", "x", "t"):
            composer.post_message(events.Key(key, key if len(key) == 1 else None))
        assert (await wait_for_prompts(stage, client))[0].text == "adce"
        await stage.until(lambda: composer.text == "next")


async def test_emacs_keys() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        await stage.type("one two three")
        await stage.press("ctrl+w")
        assert composer.text == "one two "
        await stage.press("ctrl+a", "alt+f", "ctrl+k")
        assert composer.text == "one"
        await stage.press("alt+b", "alt+d")
        assert composer.text == ""
        await stage.type("abc")
        await stage.press("ctrl+a", "ctrl+d")
        assert composer.text == "bc"
        await stage.press("ctrl+e", "ctrl+u")
        assert composer.text == ""


async def test_undo_and_redo() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        await stage.type("one")
        await stage.press("ctrl+u")
        assert composer.text == ""
        await stage.press("ctrl+underscore")
        assert composer.text == "one"
        await stage.press("alt+underscore")
        assert composer.text == ""


async def test_ctrl_d_exits_only_from_an_empty_composer() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        await stage.type("ab")
        await stage.press("left", "ctrl+d")
        assert stage.app.composer.text == "a"
        await stage.press("ctrl+d")
        assert stage.app.is_running
        await stage.press("backspace", "ctrl+d")
        await stage.until(lambda: stage.app.return_value == 0)


async def test_ctrl_e_in_an_empty_composer_shows_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        asked: list[str] = []
        monkeypatch.setattr(stage.app, "action_errors", lambda: asked.append("errors"))
        await stage.press("a", "ctrl+e")
        assert asked == []
        await stage.press("backspace", "ctrl+e")
        assert asked == ["errors"]


async def test_ctrl_c_moves_the_draft_to_the_history_or_copies_a_selection() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        await stage.type("half a thought")
        await stage.press("ctrl+c")
        assert composer.text == ""
        await stage.press("up")
        assert composer.text == "half a thought"
        await stage.press("f7", "ctrl+c")
        assert composer.text == "half a thought"
        assert stage.app.clipboard == "half a thought"


@pytest.mark.parametrize("keys", [(), ("ctrl+r",)], ids=["writing", "searching"])
async def test_ctrl_c_clears_the_draft_first_and_then_stops_the_turn(keys: tuple[str, ...]) -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TurnStarted("t1", "work", "edit_mode"))
        await stage.until(lambda: stage.app.executing)
        await stage.type("half a thought")
        await stage.press(*keys)
        if keys:
            await stage.press("ctrl+c")
            assert stage.app.composer.text == "half a thought", "only the search was closed"
        await stage.press("ctrl+c")
        assert stage.app.composer.text == ""
        assert client.submitted == []
        assert any("again to stop the work" in note.message for note in stage.app._notifications)
        await stage.press("ctrl+c")
        assert client.submitted == [Interrupt()]
        await stage.press("up")
        assert stage.app.composer.text == "half a thought"


async def test_ctrl_c_stops_a_shell_command_of_the_user(open_app: OpenApp) -> None:
    async with open_app([]) as stage:
        await stage.send("!echo begun; sleep 600")
        await stage.shows("begun")
        await stage.type("a draft")
        await stage.press("ctrl+c", "ctrl+c")
        await stage.shows("interrupted by the user")


async def test_ctrl_w_deletes_words_as_a_shell_does() -> None:
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        for text, left in (
            ("see src/odin/app.py", "see "),
            ("see src/odin/app.py   ", "see "),
            ("a.b-c_d", ""),
            ("one\ntwo", "one\n"),
            ("one\n", "one"),
        ):
            composer.text = text
            composer.move_cursor(composer.document.end)
            await stage.press("ctrl+w")
            assert composer.text == left
        composer.text = ""
        await composer.paste("x\n" * 40)
        await stage.type(" and")
        await stage.press("ctrl+w")
        assert composer.text == "[pasted #1: 40 lines] "
        await stage.press("ctrl+w")
        assert composer.text == ""


async def test_while_a_turn_runs_the_border_says_how_to_steer_it() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(TurnStarted("t1", "work", "edit_mode"))
        await stage.shows("Enter queues · Ctrl+S steers the running turn")
        client.emit(TurnEnded("t1", "end_turn", "", 1))
        await stage.until(lambda: "Enter queues" not in stage.screen())


@pytest.mark.slow
async def test_up_and_down_walk_through_the_history() -> None:
    sessions = FakeSessions(FakeClient())
    sessions.earlier_prompts = ("of yesterday", "older")
    async with run_app(sessions) as stage:
        composer = stage.app.composer
        await stage.send("today")
        await stage.type("not yet\nsent")
        await stage.press("up")
        assert composer.text == "not yet\nsent"
        await stage.press("up")
        assert composer.text == "today"
        await stage.type("!")
        await stage.press("up", "up")
        assert composer.text == "older"
        await stage.press("up", "down", "down")
        assert composer.text == "today!"
        await stage.press("down")
        assert composer.text == "not yet\nsent"
        await stage.press("down")
        assert composer.text == "not yet\nsent"


async def test_drafts_and_edited_entries_stay_in_the_history() -> None:
    """The draft and an edited entry remain after another entry of the history was sent."""
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        await stage.send("first")
        await stage.send("second")
        await stage.type("half a thought")
        await stage.press("up")
        await stage.type(", changed")
        await stage.press("up")
        assert composer.text == "first"
        await stage.press("enter")
        entries: list[str] = []
        for _ in range(4):
            await stage.press("up")
            entries.append(composer.text)
        assert entries == ["first", "half a thought", "second, changed", "second"]


async def test_ctrl_r_searches_the_history() -> None:
    sessions = FakeSessions(FakeClient())
    sessions.earlier_prompts = ("fix the parser", "write a test", "fix the docs")
    async with run_app(sessions) as stage:
        composer = stage.app.composer
        await stage.type("draft")
        await stage.press("ctrl+r")
        await stage.shows("fix the parser", "write a test", "fix the docs", "history search")
        await stage.type("fix")
        await stage.until(lambda: "write a test" not in stage.screen())
        await stage.press("ctrl+r", "enter")
        assert composer.text == "fix the docs"
        await stage.press("up")
        assert composer.text == "draft"
        await stage.press("ctrl+r")
        await stage.type("zzz")
        await stage.press("escape")
        assert composer.text == "draft"
        await stage.press("ctrl+r", "ctrl+c")
        assert composer.text == "draft"


async def test_f2_changes_the_mode_of_the_next_prompt() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.shows("─ edit ─")
        await stage.press("f2")
        await stage.shows("─ ask ─")
        await stage.send("why?")
        await stage.press("f2")
        await stage.shows("─ plan ─")
        await stage.send("how?")
        assert [op.mode for op in await wait_for_prompts(stage, client, 2)] == ["ask_mode", "plan_mode"]


async def test_ctrl_y_cycles_through_permission_modes_but_never_to_bypass() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        for mode in ("acceptEdits", "auto", "default"):
            await stage.press("ctrl+y")
            await stage.until(lambda mode=mode: SetPermissionMode(mode) in client.submitted)
            client.emit(PermissionModeChanged(mode))
            await stage.until(lambda mode=mode: stage.app.composer.target.permission_mode == mode)
            await stage.until(lambda mode=mode: (f"· {mode}" in stage.screen()) == (mode != "default"))
        client.emit(PermissionModeChanged("bypassPermissions"))
        await stage.shows("permissions bypassed")
        await stage.press("ctrl+y")
        await stage.until(lambda: client.submitted[-1] == SetPermissionMode("default"))


async def test_ctrl_y_explains_why_auto_is_unavailable_and_skips_it(open_app: OpenApp) -> None:
    async with open_app(config={"sandbox": {"backend": "off"}}) as stage:
        await stage.press("ctrl+y")
        await stage.shows("· acceptEdits")
        await stage.press("ctrl+y")
        await stage.shows("auto needs a sandbox, and the sandbox", "─ edit ─")


async def test_an_exclamation_mark_runs_a_shell_command(open_app: OpenApp, workspace: Path) -> None:
    async with open_app([say("Fine.")]) as stage:
        await stage.type("!echo o")
        await stage.shows("! shell command")
        await stage.type("din > made && cat made")
        await stage.press("enter")
        await stage.shows("odin")
        assert (workspace / "made").read_text() == "odin\n"
        assert stage.server.requests == []


async def test_a_rejected_prompt_returns_to_the_composer() -> None:
    class RejectingClient(FakeClient):
        async def submit(self, op: Op) -> bool:
            if isinstance(op, Prompt | RunUserShell):
                raise UsageError("That cannot be done today.")
            return await super().submit(op)

    async with run_app(FakeSessions(RejectingClient())) as stage:
        await stage.send("very long thought")
        await stage.shows("That cannot be done today.")
        assert stage.app.composer.text == "very long thought"


async def test_a_draft_survives_a_session_switch() -> None:
    first, second = FakeClient(), FakeClient(session="20260101140000000")
    sessions = FakeSessions(first, second)
    async with run_app(sessions) as stage:
        await stage.type("half")
        async with stage.app.input_panel.submit_queue.pause():
            await stage.type(" done")
            await stage.press("enter")
            await stage.type("next")
            await sessions.resume(second.session)
            await stage.app.show_session()
            assert list_prompts(first) == [] and list_prompts(second) == []
        await stage.until(lambda: [op.text for op in list_prompts(second)] == ["half done"])
        assert list_prompts(first) == []
        assert stage.app.composer.text == "next"


async def test_prompts_typed_before_the_session_opens_are_sent_in_order(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odin.ui.tui.app import OdinApp

    async def type_and_open(app: OdinApp) -> None:
        for key in ("o", "n", "e", "enter", "t", "w", "o", "enter", "x"):
            app.composer.post_message(events.Key(key, key if len(key) == 1 else None))
        await open_session(app)

    open_session = OdinApp._open
    monkeypatch.setattr(OdinApp, "_open", type_and_open)
    async with open_app(
        [say("First."), say("Second."), say("Third.")], first="zero", config={"queue": {"mode": "sequential"}}
    ) as stage:
        await stage.shows("Third.")
        prompts = [str(request.messages[-1]) for request in stage.server.requests]
        assert [word in prompt for word, prompt in zip(("zero", "one", "two"), prompts, strict=True)] == [True] * 3
        assert stage.app.composer.text == "x"


async def test_typeahead_lines_are_read_once() -> None:
    from odin.ui.tui.terminal_input import read_typeahead

    main, other = os.openpty()
    try:
        os.write(main, b"first\nsecond \xc3\xa9\nthird")
        assert read_typeahead(other) == ["first", "second é"]
        assert read_typeahead(other) == []
    finally:
        os.close(main)
        os.close(other)


async def test_long_text_can_be_undone_and_deleted_at_once() -> None:
    """The scroll bar disappears while the cursor is still behind the end of the text."""
    async with run_app(FakeSessions(FakeClient())) as stage:
        composer = stage.app.composer
        for shorten in ("ctrl+underscore", "backspace"):
            composer.insert("line\n" * 60)
            await stage.until(lambda: composer.show_vertical_scrollbar)
            if shorten == "backspace":
                composer.select_all()
            await stage.press(shorten)
            assert composer.text == ""
            await stage.until(lambda: not composer.show_vertical_scrollbar)
        await stage.type("more")
        assert composer.text == "more"


@pytest.mark.slow
async def test_ctrl_x_edits_the_prompt_in_the_external_editor(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A test has no terminal to hand to the editor, so `suspend` is replaced."""
    from contextlib import nullcontext

    script = tmp_path / "editor"
    script.write_text(
        f'#!/bin/sh\necho "$1" > {tmp_path}/place\ncat "$1" > '
        + str(tmp_path / "seen")
        + '\nprintf "made of\\r\\nit\\n" > "$1"\n'
    )
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(script))
    async with run_app(FakeSessions(FakeClient(scratch=str(tmp_path / "scratch")))) as stage:
        await stage.type("abc")
        await stage.press("ctrl+x")
        await stage.shows("does not support running another program")
        assert stage.app.composer.text == "abc"
        monkeypatch.setattr(stage.app, "suspend", nullcontext)
        await stage.press("ctrl+x")
        await stage.until(lambda: stage.app.composer.text == "made of\nit")
        assert (tmp_path / "seen").read_text() == "abc\n"
        assert (tmp_path / "place").read_text().startswith(f"{tmp_path}/scratch/")
        await stage.press("ctrl+underscore")
        assert stage.app.composer.text == "abc"
        monkeypatch.setenv("VISUAL", "false")
        await stage.press("ctrl+x")
        await stage.shows("exited with code 1")
        monkeypatch.setenv("VISUAL", str(tmp_path / "no such editor").replace(" ", "-"))
        await stage.press("ctrl+x")
        await stage.shows("cannot be started")
        assert stage.app.composer.text == "abc"


@SIZES_AND_THEMES
async def test_command_popup_snapshot(size: tuple[int, int], theme: str) -> None:
    from odin.core.tui_settings import TuiSettings

    settings = TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]
    client = FakeClient()
    async with run_app(FakeSessions(client), size=size, settings=settings, clock=lambda: client.now) as stage:
        await stage.type("/re")
        await stage.shows("/resume")
        await stage.assert_snapshot(f"commands-{size[0]}x{size[1]}-{theme}")


async def test_the_history_contains_prompts_of_earlier_sessions(open_app: OpenApp) -> None:
    async with open_app([say("Yes.")]) as stage:
        await stage.send("said before")
        await stage.shows("Yes.")
        await stage.idle()
    async with open_app([]) as stage:
        await stage.until(lambda: stage.app.composer.prompt_history.search("said", 1))
        await stage.press("up")
        assert stage.app.composer.text == "said before"


@pytest.mark.parametrize(
    ("sent_by_terminal", "key"),
    [
        ("\x1bd", "alt+d"),
        ("\x1b\r", "alt+enter"),
        ("\x1b_", "alt+underscore"),
        ("\x1bb", "ctrl+left"),
        ("\x1b[A", "up"),
    ],
)
def test_alt_keys_are_parsed_from_escape_sequences(sent_by_terminal: str, key: str) -> None:
    from odin.ui.tui.terminal_input import ReplyParser

    assert [event.key for event in ReplyParser().feed(sent_by_terminal) if isinstance(event, events.Key)] == [key]
