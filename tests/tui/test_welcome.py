"""The first run: what was found is offered, keys are kept safely, and nobody is asked over the network unasked."""

import os
import socket
import stat
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.app.sessions import open_switcher
from odin.commands.trust import find_pending_trust
from odin.config import Options
from odin.core.client import Sessions
from odin.core.tui_settings import TuiSettings
from odin.models.onboarding import Onboarding
from odin.testing import ScriptedServer, say
from odin.ui.tui.app import OdinApp
from odin.ui.tui.dialogs.onboarding import OnboardingDialog, TrustDialog
from tests.conftest import Run
from tests.providers.servers import Line, listening
from tests.tui.conftest import LOOKS, Stage
from tests.tui.test_asking_pictures import ready, shown
from tests.tui.test_permission_dialog import click


class Counting:
    """Listens on a port of the loopback and counts who knocks."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.knocks = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                found, _ = self._socket.accept()
            except OSError:
                return
            self.knocks += 1
            found.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def counting() -> Iterator[Counting]:
    found = Counting()
    yield found
    found.close()


@pytest.fixture
def begin(workspace: Path) -> Any:
    """begin(env={…}, size=…, theme=…): the app as `odin` starts it, in an empty home."""

    @asynccontextmanager
    async def open_it(
        env: dict[str, str] | None = None, size: tuple[int, int] = (100, 30), theme: str = "dark", trust: bool = False
    ) -> AsyncGenerator[Stage]:
        environ = {**os.environ, **(env or {})}
        options = Options(cwd=str(workspace), env=environ, can_ask=True)
        held: list[Sessions] = []
        setup = Onboarding(options)

        async def connect() -> Sessions:
            held.append(await open_switcher(replace(options, model=setup.model)))
            return held[0]

        settings = TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]
        app = OdinApp(
            connect,
            settings,
            setup=lambda: setup,
            trust=(lambda: find_pending_trust(str(workspace), environ)) if trust else None,
        )
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                yield Stage(app, pilot, None)
        finally:
            for sessions in held:
                await sessions.close()

    return open_it


async def welcomed(stage: Stage) -> None:
    await stage.until(lambda: isinstance(stage.app.screen, OnboardingDialog) and stage.app.screen.ready)
    await stage.shows("Welcome to Odin", "Enter Use this model")


async def opened(stage: Stage) -> None:
    await stage.until(lambda: stage.app.info is not None and len(stage.app.screen_stack) == 1)


def key_of(server: ScriptedServer) -> dict[str, str]:
    """A key and an address in the environment, and no model named."""
    env = dict(server.env("anthropic"))
    env.pop("ODIN_MODEL", None)
    return env


async def test_one_key_and_the_conversation_begins(begin: Any, home: Path) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with begin(key_of(server)) as stage:
            await welcomed(stage)
            await stage.shows("anthropic/", "ANTHROPIC_API_KEY", "No model")
            assert server.requests == []
            await stage.press("enter")
            await opened(stage)
            assert stage.app.info is not None
            assert stage.app.info.model.startswith("anthropic/")
            await stage.send("Hello")
            await stage.shows("Hello yourself.")
            await stage.idle()
        async with begin(key_of(server)) as stage:
            await opened(stage)
            assert stage.app.info is not None
            assert stage.app.info.model.startswith("anthropic/")


@pytest.mark.slow
async def test_esc_goes_on_without_a_model_and_once_there_is_a_session_it_is_asked_no_more(
    begin: Any, counting: Counting, home: Path
) -> None:
    async with begin({"ODIN_LOCAL_PORTS": str(counting.port)}) as stage:
        await welcomed(stage)
        await stage.press("escape")
        await opened(stage)
        assert stage.app.info is not None
        assert stage.app.info.model == "offline/planner"
        await stage.send("hello")
        await stage.idle()
        assert counting.knocks == 0
    assert not (home / ".config" / "odin" / "odinconfig.json").exists()
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with begin(key_of(server)) as stage:
            await opened(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("escape",), ("2",)], ids=["esc", "chosen"])
async def test_going_without_a_model_holds_for_this_run_only(begin: Any, home: Path, keys: tuple[str, ...]) -> None:
    """A key is there, the person does without it today, and no file remembers that."""
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with begin(key_of(server)) as stage:
            await welcomed(stage)
            await stage.press(*keys)
            await opened(stage)
            await stage.shows("Using the offline planner.")
            await stage.send("hello")
            await stage.idle()
            assert stage.app.info is not None
            assert stage.app.info.model == "offline/planner"
            assert server.requests == []
        assert not (home / ".config" / "odin" / "odinconfig.json").exists()
        async with begin(key_of(server)) as stage:
            await opened(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")


@pytest.mark.slow
async def test_esc_closes_it_when_it_is_shown_again(begin: Any, home: Path) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with begin(key_of(server)) as stage:
            await welcomed(stage)
            await stage.press("enter")
            await opened(stage)
            await stage.type("/setup")
            await stage.press("escape", "enter")
            await stage.until(lambda: isinstance(stage.app.screen, OnboardingDialog) and stage.app.screen.ready)
            await stage.shows("Esc Close")
            await stage.press("escape")
            await opened(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")


@pytest.mark.slow
async def test_servers_are_looked_for_only_when_asked(begin: Any, counting: Counting) -> None:
    async with begin({"ODIN_LOCAL_PORTS": str(counting.port)}) as stage:
        await welcomed(stage)
        assert counting.knocks == 0
        await stage.press("l")
        await stage.shows("No local model server found.")
        assert counting.knocks > 0
        await stage.press("escape")
        await opened(stage)


@pytest.mark.slow
async def test_a_server_is_added_by_its_url(begin: Any, home: Path) -> None:
    async with listening(answer_models) as server, begin() as stage:
        await welcomed(stage)
        await stage.press("u")
        await stage.shows("URL of an OpenAI-compatible server")
        await stage.press("enter")
        await stage.shows("The URL is empty.")
        await stage.type("http://127.0.0.1:1/v1")
        await stage.press("enter")
        await stage.shows("127.0.0.1:1")
        await stage.press(*["backspace"] * 21)
        await stage.type(server.url)
        await stage.press("enter")
        await stage.shows(f"› 1 local-{server.port}/mine")
        await stage.press("enter")
        await opened(stage)
        assert stage.app.info is not None and stage.app.info.model == f"local-{server.port}/mine"
    assert server.url in (home / ".config/odin/odinconfig.json").read_text()


async def answer_models(line: Line) -> None:
    body = b'{"data": [{"id": "mine"}]}'
    while True:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


@pytest.mark.slow
async def test_a_key_is_hidden_and_stored_for_this_user_alone(begin: Any, home: Path) -> None:
    secret = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz"
    async with begin() as stage:
        await welcomed(stage)
        await stage.press("k")
        await stage.shows("Which provider is the key for?", "anthropic")
        for _ in range(40):
            if "› 1 anthropic" in stage.screen() or "anthropic" in _line(stage, "›"):
                break
            await stage.press("down")
        await stage.press("enter")
        await stage.shows("API key for anthropic")
        await stage.press("enter")
        await stage.shows("The key is empty.")
        await stage.type(secret)
        assert secret[:12] not in stage.screen()
        await stage.press("enter")
        await stage.shows("Saved to ~/.config/odin/auth.json", "anthropic/")
        file = home / ".config" / "odin" / "auth.json"
        assert secret in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert secret not in stage.screen()
        await stage.press("enter")
        await opened(stage)
        assert stage.app.info is not None
        assert stage.app.info.model.startswith("anthropic/")


def _line(stage: Stage, mark: str) -> str:
    return next((line for line in stage.screen().split("\n") if mark in line), "")


@pytest.mark.slow
async def test_esc_goes_back_a_step_and_wrong_keys_are_refused(begin: Any, home: Path) -> None:
    async with begin() as stage:
        await welcomed(stage)
        await stage.press("k", "enter")
        await stage.shows("API key for")
        await stage.type("a b")
        await stage.press("enter")
        await stage.shows("This is not a valid key")
        await stage.press("escape")
        await stage.shows("Which provider is the key for?")
        await stage.press("escape")
        await stage.shows("Enter Use this model")
        assert not (home / ".config" / "odin" / "auth.json").exists()


@pytest.mark.slow
async def test_by_mouse(begin: Any) -> None:
    async with begin() as stage:
        await welcomed(stage)
        await ready(stage)
        await click(stage, "Enter an API key")
        await stage.shows("Which provider is the key for?")
        await click(stage, "Back")
        await stage.shows("Choose a model.")
        await click(stage, "offline planner")
        await opened(stage)


@pytest.mark.slow
async def test_setup_shows_it_again_and_the_session_takes_the_model(begin: Any) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with begin(key_of(server)) as stage:
            await welcomed(stage)
            await stage.press("escape")
            await opened(stage)
            await stage.type("/setup")
            await stage.press("escape", "enter")
            await welcomed(stage)
            await stage.press("enter")
            await opened(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")
            assert len(server.requests) == 1


@LOOKS
async def test_how_it_looks(begin: Any, size: tuple[int, int], theme: str) -> None:
    async with begin({"ANTHROPIC_API_KEY": "sk-ant-api03-0123456789abcdefghijkl"}, size=size, theme=theme) as stage:
        await welcomed(stage)
        await ready(stage)
        await stage.pictured(f"welcome-{shown(size, theme)}")


async def test_it_fits_a_small_screen(begin: Any) -> None:
    async with begin({"ANTHROPIC_API_KEY": "sk-ant-api03-0123456789abcdefghijkl"}, size=(40, 12)) as stage:
        await welcomed(stage)
        await stage.shows("Enter Use this model", "Esc")
        await stage.press("down", "enter")
        await opened(stage)


# --- trust ---

HOOKED = '{"hooks": {"on_idle": [{"command": "./spy.sh"}]}, "allowed_tools": ["Bash(make:*)"]}'


@pytest.mark.slow
@pytest.mark.parametrize("yes", [True, False], ids=["yes", "no"])
async def test_a_folder_is_trusted_only_with_a_yes(begin: Any, workspace: Path, home: Path, yes: bool) -> None:
    (workspace / "odinconfig.json").write_text(HOOKED)
    (home / ".config" / "odin").mkdir(parents=True)
    (home / ".config" / "odin" / "odinconfig.json").write_text('{"model": "offline/planner"}')
    async with begin(trust=True) as stage:
        await stage.until(lambda: isinstance(stage.app.screen, TrustDialog) and stage.app.screen.ready)
        await stage.shows("has its own settings", "./spy.sh", "Bash(make:*)")
        assert stage.app.info is None
        await stage.press("y" if yes else "enter")
        await opened(stage)
        rules = [rule.text for rule in await stage.app.client.list_rules()]
        assert ("Bash(make:*)" in rules) is yes
    if yes:
        async with begin(trust=True) as stage:
            await opened(stage)


# --- without a terminal ---


def test_without_a_terminal_and_without_a_prompt_it_says_so_and_ends(run_odin: Run) -> None:
    done = run_odin()
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "prompt" in done.stderr
