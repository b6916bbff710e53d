"""Writing a prompt: every key of the composer, what goes to the session by it, and that no draft is lost."""

import os
from pathlib import Path

import pytest
from textual import events

from odin.core.errors import UsageError
from odin.core.event import PermissionModeChanged, TurnEnded, TurnStarted
from odin.core.op import Interrupt, Op, Prompt, RunUserShell, SetPermissionMode
from odin.testing import say
from tests.tui.conftest import LOOKS, OpenApp, Stage, play
from tests.tui.played import PlayedClient, PlayedSessions


def prompts(client: PlayedClient) -> list[Prompt]:
    return [op for op in client.submitted if isinstance(op, Prompt)]


async def sent(stage: Stage, client: PlayedClient, count: int = 1) -> list[Prompt]:
    await stage.until(lambda: len(prompts(client)) >= count)
    return prompts(client)


async def test_enter_sends_and_the_composer_is_empty_again() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await stage.send("Hello there")
        assert [(op.text, op.mode, op.delivery) for op in await sent(stage, client)] == [
            ("Hello there", "edit_mode", None)
        ]
        assert stage.app.composer.text == ""
        await stage.press("enter")
        await stage.send("   ")
        await stage.pilot.pause()
        assert len(prompts(client)) == 1


@pytest.mark.parametrize("key", ["shift+enter", "ctrl+j"])
async def test_a_prompt_has_several_lines(key: str) -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await stage.press("a", key, "b", "enter")
        assert (await sent(stage, client))[0].text == "a\nb"


async def test_a_backslash_at_the_end_begins_a_new_line() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await stage.press("a", "backslash", "enter", "b", "enter")
        assert (await sent(stage, client))[0].text == "a\nb"


@pytest.mark.slow
async def test_it_grows_to_a_third_of_the_screen_and_then_scrolls() -> None:
    async with play(PlayedSessions(PlayedClient()), size=(60, 24)) as stage:
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
    """Editing keys must neither overtake characters nor come after them."""
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        composer = stage.app.composer
        for key in ("a", "b", "backspace", "c", "left", "d", "end", "e", "enter", "n", "e", "x", "t"):
            composer.post_message(events.Key(key, key if len(key) == 1 else None))
        assert (await sent(stage, client))[0].text == "adce"
        await stage.until(lambda: composer.text == "next")


async def test_emacs_keys() -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
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
    async with play(PlayedSessions(PlayedClient())) as stage:
        composer = stage.app.composer
        await stage.type("one")
        await stage.press("ctrl+u")
        assert composer.text == ""
        await stage.press("ctrl+underscore")
        assert composer.text == "one"
        await stage.press("alt+underscore")
        assert composer.text == ""


async def test_ctrl_d_leaves_only_from_an_empty_prompt() -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
        await stage.type("ab")
        await stage.press("left", "ctrl+d")
        assert stage.app.composer.text == "a"
        await stage.press("ctrl+d")
        assert stage.app.is_running
        await stage.press("backspace", "ctrl+d")
        await stage.until(lambda: stage.app.return_value == 0)


async def test_ctrl_e_on_an_empty_prompt_shows_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
        asked: list[str] = []
        monkeypatch.setattr(stage.app, "action_errors", lambda: asked.append("errors"))
        await stage.press("a", "ctrl+e")
        assert asked == []
        await stage.press("backspace", "ctrl+e")
        assert asked == ["errors"]


async def test_ctrl_c_puts_the_draft_into_the_history_and_copies_what_is_selected() -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
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
async def test_ctrl_c_stops_the_turn_first_and_the_draft_stays(keys: tuple[str, ...]) -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        client.play(TurnStarted("t1", "work", "edit_mode"))
        await stage.until(lambda: stage.app.executing)
        await stage.type("half a thought")
        await stage.press(*keys)
        await stage.press("ctrl+c")
        assert client.submitted == [Interrupt()]
        client.play(TurnEnded("t1", "interrupted", "", 1))
        await stage.until(lambda: not stage.app.executing)
        assert stage.app.composer.draft.text == ("half a thought" if not keys else "")
        if keys:
            await stage.press("escape")
        assert stage.app.composer.text == "half a thought"
        await stage.press("ctrl+c")
        assert stage.app.composer.text == ""


async def test_ctrl_c_stops_a_command_of_the_user(open_app: OpenApp) -> None:
    async with open_app([]) as stage:
        await stage.send("!echo begun; sleep 600")
        await stage.shows("begun")
        await stage.type("a draft")
        await stage.press("ctrl+c")
        await stage.shows("interrupted by the user")
        assert stage.app.composer.text == "a draft"


async def test_ctrl_w_stops_where_a_shell_does() -> None:
    async with play(PlayedSessions(PlayedClient())) as stage:
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
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        client.play(TurnStarted("t1", "work", "edit_mode"))
        await stage.shows("Enter queues · Ctrl+S steers the running turn")
        client.play(TurnEnded("t1", "end_turn", "", 1))
        await stage.until(lambda: "Enter queues" not in stage.screen())


@pytest.mark.slow
async def test_up_and_down_walk_through_what_was_written() -> None:
    sessions = PlayedSessions(PlayedClient())
    sessions.prompted = ("of yesterday", "older")
    async with play(sessions) as stage:
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


async def test_what_is_left_behind_on_a_walk_is_called_back_later() -> None:
    """Somebody wrote half a thought, looked for an earlier prompt, changed one, and sent a third: nothing is gone."""
    async with play(PlayedSessions(PlayedClient())) as stage:
        composer = stage.app.composer
        await stage.send("first")
        await stage.send("second")
        await stage.type("half a thought")
        await stage.press("up")
        await stage.type(", changed")
        await stage.press("up")
        assert composer.text == "first"
        await stage.press("enter")
        met: list[str] = []
        for _ in range(4):
            await stage.press("up")
            met.append(composer.text)
        assert met == ["first", "half a thought", "second, changed", "second"]


async def test_earlier_prompts_are_found_by_their_letters() -> None:
    sessions = PlayedSessions(PlayedClient())
    sessions.prompted = ("fix the parser", "write a test", "fix the docs")
    async with play(sessions) as stage:
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
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        await stage.shows("─ edit ─")
        await stage.press("f2")
        await stage.shows("─ ask ─")
        await stage.send("why?")
        await stage.press("f2")
        await stage.shows("─ plan ─")
        await stage.send("how?")
        assert [op.mode for op in await sent(stage, client, 2)] == ["ask_mode", "plan_mode"]


async def test_ctrl_y_goes_through_the_permission_modes_but_never_to_the_bypass() -> None:
    client = PlayedClient()
    async with play(PlayedSessions(client)) as stage:
        for mode in ("acceptEdits", "auto", "default"):
            await stage.press("ctrl+y")
            await stage.until(lambda mode=mode: SetPermissionMode(mode) in client.submitted)
            client.play(PermissionModeChanged(mode))
            await stage.until(lambda mode=mode: stage.app.composer.target.permission_mode == mode)
            await stage.until(lambda mode=mode: (f"· {mode}" in stage.screen()) == (mode != "default"))
        client.play(PermissionModeChanged("bypassPermissions"))
        await stage.shows("permissions bypassed")
        await stage.press("ctrl+y")
        await stage.until(lambda: client.submitted[-1] == SetPermissionMode("default"))


async def test_ctrl_y_says_why_auto_is_not_to_be_had_and_goes_on(open_app: OpenApp) -> None:
    async with open_app(config={"sandbox": {"backend": "off"}}) as stage:
        await stage.press("ctrl+y")
        await stage.shows("· acceptEdits")
        await stage.press("ctrl+y")
        await stage.shows("auto needs a sandbox, and the sandbox", "─ edit ─")


async def test_a_line_with_an_exclamation_mark_runs_at_once(open_app: OpenApp, workspace: Path) -> None:
    async with open_app([say("Fine.")]) as stage:
        await stage.type("!echo o")
        await stage.shows("! shell command")
        await stage.type("din > made && cat made")
        await stage.press("enter")
        await stage.shows("odin")
        assert (workspace / "made").read_text() == "odin\n"
        assert stage.server.requests == []


async def test_what_cannot_be_sent_is_put_back() -> None:
    class Refusing(PlayedClient):
        async def submit(self, op: Op) -> bool:
            if isinstance(op, Prompt | RunUserShell):
                raise UsageError("That cannot be done today.")
            return await super().submit(op)

    async with play(PlayedSessions(Refusing())) as stage:
        await stage.send("very long thought")
        await stage.shows("That cannot be done today.")
        assert stage.app.composer.text == "very long thought"


async def test_a_draft_stays_when_the_session_is_another() -> None:
    first, second = PlayedClient(), PlayedClient(session="20260101140000000")
    sessions = PlayedSessions(first, second)
    async with play(sessions) as stage:
        await stage.type("half")
        async with stage.app.input_panel.submit_queue.pause():
            await stage.type(" done")
            await stage.press("enter")
            await stage.type("next")
            await sessions.resume(second.session)
            await stage.app.show_session()
            assert prompts(first) == [] and prompts(second) == []
        await stage.until(lambda: [op.text for op in prompts(second)] == ["half done"])
        assert prompts(first) == []
        assert stage.app.composer.text == "next"


async def test_what_is_typed_before_the_session_is_open_is_sent_in_order(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    from odin.ui.tui.app import OdinApp

    async def typed(app: OdinApp) -> None:
        for key in ("o", "n", "e", "enter", "t", "w", "o", "enter", "x"):
            app.composer.post_message(events.Key(key, key if len(key) == 1 else None))
        await opened(app)

    opened = OdinApp._open
    monkeypatch.setattr(OdinApp, "_open", typed)
    async with open_app(
        [say("First."), say("Second.")], first="zero", config={"queue": {"mode": "sequential"}}
    ) as stage:
        await stage.until(lambda: len(stage.server.requests) >= 2)
        assert "zero" in str(stage.server.requests[0].body)
        assert stage.app.composer.text == "x"


async def test_lines_that_the_terminal_gathered_are_sent_once() -> None:
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
    """The scroll bar goes while the cursor is still behind the end of the text."""
    async with play(PlayedSessions(PlayedClient())) as stage:
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
async def test_the_editor_changes_the_prompt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The terminal of a test cannot be left to an editor, so the leaving alone is left out here."""
    from contextlib import nullcontext

    script = tmp_path / "editor"
    script.write_text('#!/bin/sh\ncat "$1" > ' + str(tmp_path / "seen") + '\nprintf "made of\\r\\nit\\n" > "$1"\n')
    script.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(script))
    async with play(PlayedSessions(PlayedClient())) as stage:
        await stage.type("abc")
        await stage.press("ctrl+x")
        await stage.shows("does not support running another program")
        assert stage.app.composer.text == "abc"
        monkeypatch.setattr(stage.app, "suspend", nullcontext)
        await stage.press("ctrl+x")
        await stage.until(lambda: stage.app.composer.text == "made of\nit")
        assert (tmp_path / "seen").read_text() == "abc\n"
        await stage.press("ctrl+underscore")
        assert stage.app.composer.text == "abc"
        monkeypatch.setenv("VISUAL", "false")
        await stage.press("ctrl+x")
        await stage.shows("exited with code 1")
        monkeypatch.setenv("VISUAL", str(tmp_path / "no such editor").replace(" ", "-"))
        await stage.press("ctrl+x")
        await stage.shows("cannot be started")
        assert stage.app.composer.text == "abc"


@LOOKS
async def test_pictures_of_writing(size: tuple[int, int], theme: str) -> None:
    from odin.core.tui_settings import TuiSettings

    settings = TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]
    client = PlayedClient()
    async with play(PlayedSessions(client), size=size, settings=settings, clock=lambda: client.now) as stage:
        await stage.type("/re")
        await stage.shows("/resume")
        await stage.pictured(f"commands-{size[0]}x{size[1]}-{theme}")


async def test_prompts_of_earlier_sessions_are_called_back(open_app: OpenApp) -> None:
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
def test_alt_as_plain_terminals_send_it(sent_by_terminal: str, key: str) -> None:
    from odin.ui.tui.terminal_input import ReplyParser

    assert [event.key for event in ReplyParser().feed(sent_by_terminal) if isinstance(event, events.Key)] == [key]
