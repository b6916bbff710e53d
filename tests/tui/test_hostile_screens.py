"""With hostile text in every field of a session, no screen emits control sequences and the app keeps running."""

import random
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, QuestionsAsked
from odin.core.client import (
    AvailableModel,
    ContextReport,
    CustomCommand,
    Exchange,
    ServerScope,
    SessionPreview,
    SessionSummary,
)
from odin.core.errors import UsageError
from odin.core.event import SessionSwitched
from odin.core.policy import RuleLine
from odin.ui.tui.dialogs.permission import PermissionDialog
from tests.hostile import NASTY, Maker, event_types, steering
from tests.tui.conftest import Stage, play
from tests.tui.played import START, PlayedClient, PlayedSessions

pytestmark = pytest.mark.every_frame

PAST = [kind for kind in event_types() if kind not in (SessionSwitched, PermissionAsked, QuestionsAsked)]
NAMED = ("branch", "sandbox", "notice", "model", "permission_mode", "cwd")
COMMANDS = ("sessions", "models", "rules", "context", "usage", "stats", "errors", "diagnostics", "help", "rewind")
TEXTS = pytest.mark.parametrize("nasty", [" ".join(NASTY[:6]), " ".join(NASTY[8:17])], ids=["sequences", "letters"])


def written(stage: Stage) -> str:
    """The whole screen as written to a terminal."""
    app: Any = stage.app
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    return str(update.render_segments(app.console))


class HostileClient(PlayedClient):
    def __init__(self, nasty: str, maker: Maker) -> None:
        super().__init__([maker.struct(kind) for kind in PAST], warnings=(nasty,), **dict.fromkeys(NAMED, nasty))
        self._nasty = nasty
        self.custom = (CustomCommand(nasty, nasty, nasty),)
        self.paths = (nasty,)

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return (AvailableModel(self._nasty, 1, self._nasty, self._nasty, note=self._nasty),)

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return (RuleLine(1, "user", "allow", self._nasty, self._nasty),)


class HostileSessions(PlayedSessions):
    def __init__(self, client: PlayedClient, nasty: str) -> None:
        summary = SessionSummary("20260101120000001", START, title=nasty, first=nasty, turns=1, model=nasty)
        super().__init__(client, summaries=[summary])
        self._nasty = nasty

    async def preview(self, session: str) -> SessionPreview:
        return SessionPreview(session, (Exchange(self._nasty, self._nasty),))


@pytest.mark.slow
@TEXTS
async def test_the_whole_screen(nasty: str) -> None:
    maker = Maker(lambda: nasty, random.Random(7).choice)
    client = HostileClient(nasty, maker)
    async with play(HostileSessions(client, nasty), size=(140, 30)) as stage:
        stage.app.show_toast(nasty, "warn")
        assert not steering(written(stage))
        for name in COMMANDS:
            await stage.app.run_command(name)
            await stage.until(lambda: len(stage.app.screen_stack) > 1)
            await stage.pilot.pause(0.1)
            assert not steering(written(stage)), name
            await stage.press("escape")
            await stage.until(lambda: len(stage.app.screen_stack) == 1)
        client.play(maker.struct(PermissionAsked, unsandboxed=False), maker.struct(QuestionsAsked))
        await stage.until(lambda: isinstance(stage.app.screen, PermissionDialog))
        await stage.pilot.pause(0.1)
        assert not steering(written(stage))
        assert stage.app.failure is None


@TEXTS
async def test_an_error_instead_of_a_report(nasty: str) -> None:
    class Failing(PlayedClient):
        async def report_context(self) -> ContextReport:
            raise UsageError(nasty, nasty)

    async with play(PlayedSessions(Failing()), size=(140, 30)) as stage:
        await stage.app.run_command("context")
        await stage.until(lambda: len(stage.app.screen_stack) > 1)
        await stage.pilot.pause(0.1)
        assert not steering(written(stage))
