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
from odin.ui.tui.dialogs.interaction import InteractionDialog
from tests.hostile_text import HOSTILE_TEXTS, ValueMaker, event_types, find_foreign_sequence
from tests.tui.conftest import Stage, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions

pytestmark = pytest.mark.every_frame

PAST = [kind for kind in event_types() if kind not in (SessionSwitched, PermissionAsked, QuestionsAsked)]
INFO_FIELDS = ("branch", "sandbox", "notice", "model", "permission_mode", "cwd")
COMMANDS = ("sessions", "models", "rules", "context", "usage", "stats", "errors", "diagnostics", "help", "rewind")
TEXTS = pytest.mark.parametrize(
    "nasty", [" ".join(HOSTILE_TEXTS[:6]), " ".join(HOSTILE_TEXTS[8:17])], ids=["sequences", "letters"]
)


def get_rendered_screen(stage: Stage) -> str:
    """Return the whole screen as written to a terminal."""
    app: Any = stage.app
    update = app.screen._compositor.render_update(full=True, screen_stack=app._background_screens)
    return str(update.render_segments(app.console))


class HostileClient(FakeClient):
    def __init__(self, nasty: str, maker: ValueMaker) -> None:
        super().__init__(
            [maker.make_struct(kind) for kind in PAST], warnings=(nasty,), **dict.fromkeys(INFO_FIELDS, nasty)
        )
        self._nasty = nasty
        self.custom_commands = (CustomCommand(nasty, nasty, nasty),)
        self.paths = (nasty,)

    async def list_models(self, servers: ServerScope = "none") -> tuple[AvailableModel, ...]:
        return (AvailableModel(self._nasty, 1, self._nasty, self._nasty, note=self._nasty),)

    async def list_rules(self) -> tuple[RuleLine, ...]:
        return (RuleLine(1, "user", "allow", self._nasty, self._nasty),)


class HostileSessions(FakeSessions):
    def __init__(self, client: FakeClient, nasty: str) -> None:
        summary = SessionSummary("20260101120000001", START, title=nasty, first=nasty, turns=1, model=nasty)
        super().__init__(client, summaries=[summary])
        self._nasty = nasty

    async def preview(self, session: str) -> SessionPreview:
        return SessionPreview(session, (Exchange(self._nasty, self._nasty),))


@pytest.mark.slow
@TEXTS
async def test_no_screen_emits_control_sequences(nasty: str) -> None:
    maker = ValueMaker(lambda: nasty, random.Random(7).choice)
    client = HostileClient(nasty, maker)
    async with run_app(HostileSessions(client, nasty), size=(140, 30)) as stage:
        stage.app.show_toast(nasty, "warn")
        assert not find_foreign_sequence(get_rendered_screen(stage))
        for name in COMMANDS:
            await stage.app.run_command(name)
            await stage.until(lambda: len(stage.app.screen_stack) > 1)
            await stage.pilot.pause(0.1)
            assert not find_foreign_sequence(get_rendered_screen(stage)), name
            await stage.press("escape")
            await stage.until(lambda: len(stage.app.screen_stack) == 1)
        client.emit(maker.make_struct(PermissionAsked, unsandboxed=False), maker.make_struct(QuestionsAsked))
        await stage.until(lambda: isinstance(stage.app.screen, InteractionDialog))
        await stage.pilot.pause(0.1)
        assert not find_foreign_sequence(get_rendered_screen(stage))
        assert stage.app.failure is None


@TEXTS
async def test_an_error_message_emits_no_control_sequences(nasty: str) -> None:
    class FailingClient(FakeClient):
        async def report_context(self) -> ContextReport:
            raise UsageError(nasty, nasty)

    async with run_app(FakeSessions(FailingClient()), size=(140, 30)) as stage:
        await stage.app.run_command("context")
        await stage.until(lambda: len(stage.app.screen_stack) > 1)
        await stage.pilot.pause(0.1)
        assert not find_foreign_sequence(get_rendered_screen(stage))
