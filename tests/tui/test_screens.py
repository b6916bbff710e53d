"""How every screen and every window looks, at two sizes and on dark and light ground, and that none was forgotten."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual._context import visible_screen_stack

from odin.core.call_events import Replied, ToolEnded, ToolStarted
from odin.core.event import TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, ToolCall
from odin.core.setup import TrustRequest
from odin.core.tui_settings import ThemeSetting
from odin.ui.tui.dialogs.onboarding import OnboardingDialog, TrustDialog
from odin.ui.tui.dialogs.rules import NewRuleDialog
from odin.ui.tui.dialogs.sessions import ContentsDialog, RewindScopePicker
from odin.ui.tui.panels.status import TOAST_SECONDS
from tests.tui.conftest import LOOKS, SNAPSHOTS, Stage, play
from tests.tui.key_cases import FakeSetup
from tests.tui.played import START, PlayedClient, PlayedSessions
from tests.tui.test_asking_pictures import COMMAND, EDIT, QUESTIONS, ready, settings, shown
from tests.tui.test_pick_dialogs import going_back

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
WISH = TrustRequest(
    "/p", starts=("hooks: make lint", "MCP server: npx notes"), allows=("Bash(git push:*)", "model: other/one")
)


class Set:
    """What a picture is taken of."""

    def __init__(self, stage: Stage, client: PlayedClient) -> None:
        self.stage = stage
        self.client = client

    async def asks(self, event: Any, *keys: str) -> None:
        self.client.play(TurnStarted("t3", "Greet people properly.", "edit_mode"), event)
        await ready(self.stage)
        for key in keys:
            await self.stage.press(key)

    async def push(self, dialog: Any) -> None:
        self.stage.app.push_screen(dialog)
        await self.stage.until(lambda: self.stage.app.screen is dialog)
        if hasattr(dialog, "ready"):
            await ready(self.stage)

    async def command(self, name: str, rest: str = "") -> None:
        await self.stage.app.run_command(name, rest)
        await self.stage.until(lambda: len(self.stage.app.screen_stack) == 2)


async def files(this: Set) -> None:
    this.client.paths = ("src/parser.py", "src/parser_test.py", "docs/parsing.md")
    await this.stage.type("Look at @pars")
    await this.stage.shows("docs/parsing.md")


async def history(this: Set) -> None:
    this.stage.app.composer.prompt_history.add_older(["Make the parser faster", "What is a parser?", "Write tests"])
    await this.stage.press("ctrl+r")
    await this.stage.type("pars")
    await this.stage.shows("What is a parser?")


async def writing(this: Set) -> None:
    await this.stage.type("One line,\nand another:\n")
    await this.stage.app.composer.paste("\n".join(f"row {number}" for number in range(40)))
    await this.stage.shows("40 lines")


async def search(this: Set) -> None:
    await this.stage.press("ctrl+up", "slash")
    await this.stage.type("parser")
    await this.stage.shows(" of ")


async def looking(this: Set) -> None:
    await this.stage.press("ctrl+up", "k")
    await this.stage.shows("▌")


async def toasts(this: Set) -> None:
    for level, text in (("info", "Copied."), ("warn", "The disk is nearly full."), ("error", "The server is gone.")):
        this.stage.app.show_toast(text, level)  # pyright: ignore[reportArgumentType]
    await this.stage.shows("The server is gone.")


async def permission_why(this: Set) -> None:
    await this.asks(COMMAND, "r")
    await this.stage.type("Push it yourself")


async def permission_note(this: Set) -> None:
    await this.asks(COMMAND, "w")
    await this.stage.type("Only this once")


async def permission_edit(this: Set) -> None:
    await this.asks(COMMAND, "e")
    await this.stage.shows("command (argument")


async def permission_all(this: Set) -> None:
    await this.asks(EDIT, "v")
    await this.stage.shows("Rules you can save:")


async def permission_keys(this: Set) -> None:
    await this.asks(COMMAND, "question_mark")
    await this.stage.shows("Allow once.")


async def questions_several(this: Set) -> None:
    await this.asks(QUESTIONS, "enter", "space")
    await this.stage.shows("[x] Fixtures")


async def questions_words(this: Set) -> None:
    await this.asks(QUESTIONS, "o")
    await this.stage.type("MariaDB")


async def questions_review(this: Set) -> None:
    await this.asks(QUESTIONS, "enter", "space", "enter")
    await this.stage.shows("Your answers", "Submit")


async def trust(this: Set) -> None:
    await this.push(TrustDialog(WISH))
    await this.stage.shows("make lint", "y Trust")


async def welcome_provider(this: Set) -> None:
    await this.push(OnboardingDialog(FakeSetup()))
    await this.stage.press("k")
    await this.stage.shows("Which provider is the key for?")


async def welcome_key(this: Set) -> None:
    await welcome_provider(this)
    await this.stage.press("enter")
    await this.stage.type("secret")
    await this.stage.shows("API key for")


async def new_rule(this: Set) -> None:
    await this.push(NewRuleDialog())
    await this.stage.type("Bash(git push")


async def sure(this: Set) -> None:
    await this.command("rules")
    await this.stage.shows("Bash(git log:*)")
    await this.stage.press("d")
    await this.stage.shows("Remove “")


async def rewind_how(this: Set) -> None:
    await this.push(RewindScopePicker("t2"))
    await this.stage.shows("theirs.py")


async def contents(this: Set) -> None:
    await this.stage.shows("It reads a file")
    await this.stage.press("ctrl+t")
    await this.stage.until(lambda: isinstance(this.stage.app.screen, ContentsDialog))
    await this.stage.shows("› Make it faster")


async def stats_overview(this: Set) -> None:
    await this.command("stats")
    await this.stage.shows("[overview]", "compaction")


async def stats_days(this: Set) -> None:
    await this.command("stats", "dates")
    await this.stage.shows("2023-11-14")


async def usage(this: Set) -> None:
    await this.command("usage")
    await this.stage.shows("Usage of this session")


PICTURES: dict[str, Callable[[Set], Awaitable[None]]] = {
    "files": files,
    "history": history,
    "writing": writing,
    "search": search,
    "looking": looking,
    "toasts": toasts,
    "permission-why": permission_why,
    "permission-note": permission_note,
    "permission-edit": permission_edit,
    "permission-all": permission_all,
    "permission-keys": permission_keys,
    "questions-several": questions_several,
    "questions-words": questions_words,
    "questions-review": questions_review,
    "trust": trust,
    "welcome-provider": welcome_provider,
    "welcome-key": welcome_key,
    "new-rule": new_rule,
    "rules-sure": sure,
    "rewind-how": rewind_how,
    "contents": contents,
    "stats-overview": stats_overview,
    "stats-days": stats_days,
    "usage": usage,
}
"""Taken here; the others with the tests of their own parts."""

ELSEWHERE = (
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
MORE = {"conversation-search-100x30-dark", "conversation-split-160x24-dark", "work-160x45-dark", "work-160x45-light"}
"""Other sizes, where there is more to see."""


@pytest.mark.slow
@LOOKS
@pytest.mark.parametrize("name", PICTURES)
async def test_picture(name: str, size: tuple[int, int], theme: ThemeSetting, monkeypatch: pytest.MonkeyPatch) -> None:
    for level in TOAST_SECONDS:
        monkeypatch.setitem(TOAST_SECONDS, level, 600.0)
    client = going_back()
    client.play(*PAST)
    sessions = PlayedSessions(client)
    async with play(sessions, size=size, settings=settings(theme), clock=lambda: START + 60) as stage:
        await stage.until(lambda: len(stage.app.transcript.blocks) >= 5)
        await PICTURES[name](Set(stage, client))
        await stage.pictured(f"{name}-{shown(size, theme)}")


async def test_what_is_behind_a_dialog_is_seen_however_early_one_looks() -> None:
    client = going_back()
    client.play(*PAST)
    async with play(PlayedSessions(client)) as stage:
        await stage.shows("It reads a file")
        await Set(stage, client).command("rules")
        await stage.shows("Bash(git log:*)")
        stage.app.screen.refresh()
        visible_screen_stack.set([])
        assert "It reads a file" in stage.screen()


def test_no_screen_is_without_its_pictures() -> None:
    wanted = {
        f"{name}-{size}-{theme}"
        for name in (*PICTURES, *ELSEWHERE)
        for size in ("100x30", "60x20")
        for theme in ("dark", "light")
    }
    assert {path.stem for path in SNAPSHOTS.glob("*.svg")} == wanted | MORE


def test_the_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in SNAPSHOTS.glob("*.svg")) < 6_000_000
