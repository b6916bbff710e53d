"""Snapshots of all screens and dialogs at two sizes, dark and light, and a check that none is missing."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual._context import visible_screen_stack

from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.event import TurnEnded, TurnStarted
from odin.core.interaction import TrustRequest, ask_for_trust
from odin.core.message import ReplyMessage, Text, ToolCall
from odin.core.tui_settings import ThemeSetting
from odin.ui.tui.dialogs.interaction import InteractionDialog
from odin.ui.tui.dialogs.onboarding import OnboardingDialog
from odin.ui.tui.dialogs.rules import make_rule_form
from odin.ui.tui.dialogs.sessions import ContentsDialog, RewindScopePicker
from odin.ui.tui.toasts import TOAST_SECONDS
from tests.tui.conftest import SIZES_AND_THEMES, SNAPSHOTS, Stage, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions
from tests.tui.key_cases import FakeSetup
from tests.tui.test_picker_dialogs import client_with_turns
from tests.tui.test_request_snapshots import (
    COMMAND,
    EDIT,
    QUESTIONS,
    get_snapshot_suffix,
    settings_with,
    wait_until_ready,
)

READ = ToolCall("c1", "Read", {"file_path": "/p/src/parser.py"})
PAST: list[Any] = [
    TurnStarted("t1", "What does the parser do?", "ask_mode"),
    Replied(ReplyMessage((READ,))),
    ToolStarted("c1", "Read", READ.args, "/p/src/parser.py"),
    ToolEnded("c1", "Read", "success", "1 import re", "Read /p/src/parser.py (lines 1-20)", duration_ms=120),
    Replied(ReplyMessage((Text("It reads a file **line by line** and makes a tree of it."),))),
    TurnEnded("t1", "end_turn"),
    TurnStarted("t2", "Make it faster", "edit_mode"),
    Replied(ReplyMessage((Text("The pattern is compiled once now."),))),
    TurnEnded("t2", "end_turn"),
]
TRUST_REQUEST = TrustRequest(
    "/p",
    starts=("Stop-1: make lint", "MCP server notes: npx notes"),
    servers=("notes",),
    allows=("Bash(git push:*)", "model: other/one"),
)


class SnapshotScene:
    """The app and its session, which are prepared for a snapshot."""

    def __init__(self, stage: Stage, client: FakeClient) -> None:
        self.stage = stage
        self.client = client

    async def ask(self, event: Any, *keys: str) -> None:
        self.client.emit(TurnStarted("t3", "Greet people properly.", "edit_mode"), event)
        await wait_until_ready(self.stage)
        for key in keys:
            await self.stage.press(key)

    async def push_dialog(self, dialog: Any) -> None:
        self.stage.app.push_screen(dialog)
        await self.stage.until(lambda: self.stage.app.screen is dialog)
        if hasattr(dialog, "ready"):
            await wait_until_ready(self.stage)

    async def open_by_command(self, name: str, rest: str = "") -> None:
        await self.stage.app.run_command(name, rest)
        await self.stage.until(lambda: len(self.stage.app.screen_stack) == 2)


async def complete_files(scene: SnapshotScene) -> None:
    scene.client.paths = ("src/parser.py", "src/parser_test.py", "docs/parsing.md")
    await scene.stage.type("Look at @pars")
    await scene.stage.shows("docs/parsing.md")


async def search_history(scene: SnapshotScene) -> None:
    scene.stage.app.composer.prompt_history.add_older(["Make the parser faster", "What is a parser?", "Write tests"])
    await scene.stage.press("ctrl+r")
    await scene.stage.type("pars")
    await scene.stage.shows("What is a parser?")


async def type_draft(scene: SnapshotScene) -> None:
    await scene.stage.type("One line,\nand another:\n")
    await scene.stage.app.composer.paste("\n".join(f"row {number}" for number in range(40)))
    await scene.stage.shows("40 lines")


async def search_transcript(scene: SnapshotScene) -> None:
    await scene.stage.press("ctrl+up", "slash")
    await scene.stage.type("parser")
    await scene.stage.shows(" of ")


async def enter_card_mode(scene: SnapshotScene) -> None:
    await scene.stage.press("ctrl+up", "k")
    await scene.stage.shows("▌")


async def show_toasts(scene: SnapshotScene) -> None:
    for level, text in (("info", "Copied."), ("warn", "The disk is nearly full."), ("error", "The server is gone.")):
        scene.stage.app.show_toast(text, level)  # pyright: ignore[reportArgumentType]
    await scene.stage.shows("The server is gone.")


async def type_denial_reason(scene: SnapshotScene) -> None:
    await scene.ask(COMMAND, "r")
    await scene.stage.type("Push it yourself")


async def type_approval_note(scene: SnapshotScene) -> None:
    await scene.ask(COMMAND, "w")
    await scene.stage.type("Only this once")


async def edit_arguments(scene: SnapshotScene) -> None:
    await scene.ask(COMMAND, "e")
    await scene.stage.shows("command (argument")


async def show_arguments(scene: SnapshotScene) -> None:
    await scene.ask(EDIT, "v")
    await scene.stage.shows("Rules you can save:")


async def show_permission_keys(scene: SnapshotScene) -> None:
    await scene.ask(COMMAND, "question_mark")
    await scene.stage.shows("Allow once.")


async def mark_several_options(scene: SnapshotScene) -> None:
    await scene.ask(QUESTIONS, "enter", "space")
    await scene.stage.shows("[x] Fixtures")


async def type_own_answer(scene: SnapshotScene) -> None:
    await scene.ask(QUESTIONS, "o")
    await scene.stage.type("MariaDB")


async def review_answers(scene: SnapshotScene) -> None:
    await scene.ask(QUESTIONS, "enter", "space", "enter")
    await scene.stage.shows("Your answers", "Submit")


async def open_trust_dialog(scene: SnapshotScene) -> None:
    await scene.push_dialog(InteractionDialog(ask_for_trust(TRUST_REQUEST)))
    await scene.stage.shows("make lint", "y Trust")


async def choose_provider(scene: SnapshotScene) -> None:
    await scene.push_dialog(OnboardingDialog(FakeSetup()))
    await scene.stage.press("k")
    await scene.stage.shows("Which provider is the key for?")


async def type_provider_key(scene: SnapshotScene) -> None:
    await choose_provider(scene)
    await scene.stage.press("enter")
    await scene.stage.type("secret")
    await scene.stage.shows("API key for")


async def open_new_rule(scene: SnapshotScene) -> None:
    await scene.push_dialog(make_rule_form())
    await scene.stage.type("Bash(git push")


async def ask_to_remove_rule(scene: SnapshotScene) -> None:
    await scene.open_by_command("rules")
    await scene.stage.shows("Bash(git log:*)")
    await scene.stage.press("d")
    await scene.stage.shows("Remove “")


async def open_rewind_scopes(scene: SnapshotScene) -> None:
    await scene.push_dialog(RewindScopePicker("t2"))
    await scene.stage.shows("theirs.py")


async def open_contents(scene: SnapshotScene) -> None:
    await scene.stage.shows("It reads a file")
    await scene.stage.press("ctrl+t")
    await scene.stage.until(lambda: isinstance(scene.stage.app.screen, ContentsDialog))
    await scene.stage.shows("› Make it faster")


async def open_stats_overview(scene: SnapshotScene) -> None:
    await scene.open_by_command("stats")
    await scene.stage.shows("[overview]", "compaction")


async def open_stats_by_date(scene: SnapshotScene) -> None:
    await scene.open_by_command("stats", "dates")
    await scene.stage.shows("2023-11-14")


async def open_usage(scene: SnapshotScene) -> None:
    await scene.open_by_command("usage")
    await scene.stage.shows("Usage of this session")


SCENES: dict[str, Callable[[SnapshotScene], Awaitable[None]]] = {
    "files": complete_files,
    "history": search_history,
    "writing": type_draft,
    "search": search_transcript,
    "looking": enter_card_mode,
    "toasts": show_toasts,
    "permission-why": type_denial_reason,
    "permission-note": type_approval_note,
    "permission-edit": edit_arguments,
    "permission-all": show_arguments,
    "permission-keys": show_permission_keys,
    "questions-several": mark_several_options,
    "questions-words": type_own_answer,
    "questions-review": review_answers,
    "trust": open_trust_dialog,
    "welcome-provider": choose_provider,
    "welcome-key": type_provider_key,
    "new-rule": open_new_rule,
    "rules-sure": ask_to_remove_rule,
    "rewind-how": open_rewind_scopes,
    "contents": open_contents,
    "stats-overview": open_stats_overview,
    "stats-days": open_stats_by_date,
    "usage": open_usage,
}
"""Snapshots taken here, with the functions that prepare them."""

TAKEN_ELSEWHERE = (
    "commands",
    "context",
    "conversation-answer",
    "conversation-cards",
    "conversation-live",
    "diagnostics",
    "errors",
    "help",
    "models",
    "permission",
    "permission-rule",
    "questions",
    "queue",
    "rest",
    "rewind",
    "rules",
    "sessions",
    "stats",
    "welcome",
    "work",
)
OTHER_SIZES = {
    "conversation-search-100x30-dark",
    "conversation-split-160x24-dark",
    "work-160x45-dark",
    "work-160x45-light",
}
"""Snapshots at additional sizes."""


@pytest.mark.slow
@SIZES_AND_THEMES
@pytest.mark.parametrize("name", SCENES)
async def test_snapshot(name: str, size: tuple[int, int], theme: ThemeSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in TOAST_SECONDS:
        monkeypatch.setitem(TOAST_SECONDS, level, 600.0)
    client = client_with_turns()
    client.emit(*PAST)
    sessions = FakeSessions(client)
    async with run_app(sessions, size=size, settings=settings_with(theme), clock=lambda: START + 60) as stage:
        await stage.until(lambda: len(stage.app.transcript.blocks) >= 5)
        await SCENES[name](SnapshotScene(stage, client))
        await stage.assert_snapshot(f"{name}-{get_snapshot_suffix(size, theme)}")


async def test_the_screen_behind_a_dialog_is_always_rendered() -> None:
    client = client_with_turns()
    client.emit(*PAST)
    async with run_app(FakeSessions(client)) as stage:
        await stage.shows("It reads a file")
        await SnapshotScene(stage, client).open_by_command("rules")
        await stage.shows("Bash(git log:*)")
        stage.app.screen.refresh()
        visible_screen_stack.set([])
        assert "It reads a file" in stage.screen()


def test_every_screen_has_its_snapshots() -> None:
    wanted = {
        f"{name}-{size}-{theme}"
        for name in (*SCENES, *TAKEN_ELSEWHERE)
        for size in ("100x30", "60x20")
        for theme in ("dark", "light")
    }
    assert {path.stem for path in SNAPSHOTS.glob("*.svg")} == wanted | OTHER_SIZES


def test_the_snapshots_are_small() -> None:
    assert sum(path.stat().st_size for path in SNAPSHOTS.glob("*.svg")) < 6_000_000
