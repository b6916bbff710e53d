"""Onboarding at the first run: it offers the models it finds, stores keys safely, and contacts no server unasked."""

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

from odin.commands.trust import find_pending_trust
from odin.config import Options, load
from odin.core.client import Sessions
from odin.core.tui_settings import TuiSettings
from odin.host.workspace_sessions import open_workspace_sessions
from odin.models.onboarding import Onboarding
from odin.testing import ScriptedServer, say
from odin.ui.tui.app import OdinApp
from odin.ui.tui.dialogs.interaction import InteractionDialog
from odin.ui.tui.dialogs.onboarding import OnboardingDialog
from tests.conftest import Run
from tests.providers.servers import Connection, serve
from tests.tui.conftest import SHORT_WAITS, SIZES_AND_THEMES, Stage
from tests.tui.test_permission_dialog import click_text
from tests.tui.test_request_snapshots import get_snapshot_suffix, wait_until_ready
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.usefixtures("no_network")


class CountingServer:
    """Listens on a loopback port and counts the connections."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.connections = 0
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(LIMIT_S)


@pytest.fixture
def counting_server() -> Iterator[CountingServer]:
    server = CountingServer()
    yield server
    server.close()


@pytest.fixture
def start_app(workspace: Path) -> Any:
    """start_app(env={…}, size=…, theme=…): runs the app as `odin` starts it, in an empty home."""

    @asynccontextmanager
    async def run(
        env: dict[str, str] | None = None, size: tuple[int, int] = (100, 30), theme: str = "dark", trust: bool = False
    ) -> AsyncGenerator[Stage]:
        environ = {**os.environ, **(env or {})}
        options = Options(cwd=str(workspace), env=environ, can_ask=True)
        held: list[Sessions] = []
        setup = Onboarding(options)

        async def connect() -> Sessions:
            held.append(await open_workspace_sessions(replace(options, model=setup.model)))
            return held[0]

        settings = TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]
        app = OdinApp(
            connect,
            settings,
            timing=SHORT_WAITS,
            setup=lambda: setup,
            trust=(lambda: find_pending_trust(str(workspace), environ)) if trust else None,
        )
        try:
            async with app.run_test(size=size, notifications=True) as pilot:
                yield Stage(app, pilot, None)
        finally:
            for sessions in held:
                await sessions.close()

    return run


async def wait_for_onboarding(stage: Stage) -> None:
    await stage.until(lambda: isinstance(stage.app.screen, OnboardingDialog) and stage.app.screen.ready)
    await stage.shows("Welcome to Odin", "Enter Use this model")


async def wait_until_open(stage: Stage) -> None:
    await stage.until(lambda: stage.app.info is not None and len(stage.app.screen_stack) == 1)


def make_env(server: ScriptedServer) -> dict[str, str]:
    """Return an environment with the key and the URL of the server, but without a model."""
    env = dict(server.env("anthropic"))
    env.pop("ODIN_MODEL", None)
    return env


async def test_enter_uses_the_found_model_and_opens_the_session(start_app: Any, home: Path) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with start_app(make_env(server)) as stage:
            await wait_for_onboarding(stage)
            await stage.shows("anthropic/", "ANTHROPIC_API_KEY", "No model")
            assert server.requests == []
            await stage.press("enter")
            await wait_until_open(stage)
            assert stage.app.info is not None
            assert stage.app.info.model.startswith("anthropic/")
            await stage.send("Hello")
            await stage.shows("Hello yourself.")
            await stage.idle()
        async with start_app(make_env(server)) as stage:
            await wait_until_open(stage)
            assert stage.app.info is not None
            assert stage.app.info.model.startswith("anthropic/")


@pytest.mark.slow
async def test_setups_of_other_agents_are_named(start_app: Any, home: Path) -> None:
    (home / ".codex").mkdir()
    (home / ".gemini").mkdir()
    async with start_app() as stage:
        await wait_for_onboarding(stage)
        await stage.shows("Found setups of Codex, Gemini CLI: `odin migrate` imports what you choose.")


async def test_a_prompt_typed_at_the_welcome_screen_chooses_no_model(start_app: Any) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with start_app(make_env(server)) as stage:
            await wait_for_onboarding(stage)
            await stage.send("hello there")
            assert isinstance(stage.app.screen, OnboardingDialog)
            await wait_for_onboarding(stage)
            assert stage.app.composer.text == ""
            await stage.press("enter")
            await wait_until_open(stage)
            await stage.shows("› hello there", "Hello yourself.")


async def test_esc_uses_the_offline_planner_and_onboarding_is_not_shown_again(
    start_app: Any, counting_server: CountingServer, home: Path
) -> None:
    async with start_app({"ODIN_LOCAL_PORTS": str(counting_server.port)}) as stage:
        await wait_for_onboarding(stage)
        await stage.press("escape")
        await wait_until_open(stage)
        assert stage.app.info is not None
        assert stage.app.info.model == "offline/planner"
        await stage.shows("No model connected. /setup connects one.")
        await stage.send("hello")
        await stage.idle()
        assert counting_server.connections == 0
    async with start_app() as stage:  # there is a session now, so onboarding is not shown
        await wait_until_open(stage)
        await stage.shows("No model connected. /setup connects one.")
    assert not (home / ".config" / "odin" / "odinconfig.json").exists()
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with start_app(make_env(server)) as stage:
            await wait_until_open(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("escape",), ("2",)], ids=["esc", "chosen"])
async def test_the_offline_planner_is_used_for_this_run_only(start_app: Any, home: Path, keys: tuple[str, ...]) -> None:
    """The choice is not saved, although a key is available."""
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with start_app(make_env(server)) as stage:
            await wait_for_onboarding(stage)
            await stage.press(*keys)
            await wait_until_open(stage)
            await stage.shows("Using the offline planner.")
            await stage.send("hello")
            await stage.idle()
            assert stage.app.info is not None
            assert stage.app.info.model == "offline/planner"
            assert server.requests == []
        assert not (home / ".config" / "odin" / "odinconfig.json").exists()
        async with start_app(make_env(server)) as stage:
            await wait_until_open(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")


@pytest.mark.slow
async def test_esc_closes_onboarding_opened_by_setup(start_app: Any, home: Path) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with start_app(make_env(server)) as stage:
            await wait_for_onboarding(stage)
            await stage.press("enter")
            await wait_until_open(stage)
            await stage.type("/setup")
            await stage.press("escape", "enter")
            await stage.until(lambda: isinstance(stage.app.screen, OnboardingDialog) and stage.app.screen.ready)
            await stage.shows("Esc Close")
            await stage.press("escape")
            await wait_until_open(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")


@pytest.mark.slow
async def test_local_servers_are_searched_only_on_request(start_app: Any, counting_server: CountingServer) -> None:
    async with start_app({"ODIN_LOCAL_PORTS": str(counting_server.port)}) as stage:
        await wait_for_onboarding(stage)
        assert counting_server.connections == 0
        await stage.press("l")
        await stage.shows("No local model server found.")
        assert counting_server.connections > 0
        await stage.press("escape")
        await wait_until_open(stage)


@pytest.mark.slow
async def test_a_server_is_added_by_its_url(start_app: Any, home: Path) -> None:
    async with serve(answer_models) as server, start_app() as stage:
        await wait_for_onboarding(stage)
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
        await wait_until_open(stage)
        assert stage.app.info is not None and stage.app.info.model == f"local-{server.port}/mine"
    assert server.url in (home / ".config/odin/odinconfig.json").read_text()


async def answer_models(connection: Connection) -> None:
    body = b'{"data": [{"id": "mine"}]}'
    while True:
        await connection.read_request()
        await connection.send(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))


async def test_a_key_is_hidden_and_stored_readable_only_by_the_user(start_app: Any, home: Path) -> None:
    secret = "sk-ant-api03-0123456789abcdefghijklmnopqrstuvwxyz"
    async with start_app() as stage:
        await wait_for_onboarding(stage)
        await stage.press("k")
        await stage.shows("Which provider is the key for?", "anthropic")
        for _ in range(40):
            if "› 1 anthropic" in stage.screen() or "anthropic" in _line_with(stage, "›"):
                break
            await stage.press("down")
        await stage.press("enter")
        await stage.shows("API key for anthropic")
        await stage.press("enter")
        await stage.shows("The key is empty.")
        await stage.type(secret)
        assert secret[:12] not in stage.screen()
        await stage.press("enter")
        await stage.shows("Saved to ~/.config/odin/auth.json", "Not checked: ", "anthropic/")
        file = home / ".config" / "odin" / "auth.json"
        assert secret in file.read_text()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert secret not in stage.screen()
        await stage.press("enter")
        await wait_until_open(stage)
        assert stage.app.info is not None
        assert stage.app.info.model.startswith("anthropic/")


def _line_with(stage: Stage, mark: str) -> str:
    return next((line for line in stage.screen().split("\n") if mark in line), "")


@pytest.mark.slow
async def test_esc_goes_back_a_step_and_invalid_keys_are_rejected(start_app: Any, home: Path) -> None:
    async with start_app() as stage:
        await wait_for_onboarding(stage)
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
async def test_onboarding_with_the_mouse(start_app: Any) -> None:
    async with start_app() as stage:
        await wait_for_onboarding(stage)
        await wait_until_ready(stage)
        await click_text(stage, "Enter an API key")
        await stage.shows("Which provider is the key for?")
        await click_text(stage, "Back")
        await stage.shows("Choose a model.")
        await click_text(stage, "offline planner")
        await wait_until_open(stage)


@pytest.mark.slow
async def test_setup_opens_onboarding_and_changes_the_model(start_app: Any) -> None:
    with ScriptedServer([say("Hello yourself.")]) as server:
        async with start_app(make_env(server)) as stage:
            await wait_for_onboarding(stage)
            await stage.press("escape")
            await wait_until_open(stage)
            await stage.type("/setup")
            await stage.press("escape", "enter")
            await wait_for_onboarding(stage)
            await stage.press("enter")
            await wait_until_open(stage)
            await stage.send("Hello")
            await stage.shows("Hello yourself.")
            assert len(server.requests) == 1


@SIZES_AND_THEMES
async def test_onboarding_snapshot(start_app: Any, size: tuple[int, int], theme: str) -> None:
    async with start_app({"ANTHROPIC_API_KEY": "sk-ant-api03-0123456789abcdefghijkl"}, size=size, theme=theme) as stage:
        await wait_for_onboarding(stage)
        await wait_until_ready(stage)
        await stage.assert_snapshot(f"welcome-{get_snapshot_suffix(size, theme)}")


async def test_onboarding_fits_a_small_screen(start_app: Any) -> None:
    async with start_app({"ANTHROPIC_API_KEY": "sk-ant-api03-0123456789abcdefghijkl"}, size=(40, 12)) as stage:
        await wait_for_onboarding(stage)
        await stage.shows("Enter Use this model", "Esc")
        await stage.press("down", "enter")
        await wait_until_open(stage)


# --- trust ---

CONFIG_WITH_HOOK = '{"hooks": {"on_idle": [{"command": "./spy.sh"}]}, "allowed_tools": ["Bash(make:*)"]}'


@pytest.mark.parametrize("keys", [("y",), ("enter",), ("left", "enter")], ids=["yes", "no", "network"])
async def test_a_folder_is_trusted_only_after_a_yes(
    start_app: Any, workspace: Path, home: Path, keys: tuple[str, ...]
) -> None:
    yes = keys != ("enter",)
    (workspace / "odinconfig.json").write_text(CONFIG_WITH_HOOK)
    (workspace / ".mcp.json").write_text('{"mcpServers": {"db": {"command": "false"}}}')
    (home / ".config" / "odin").mkdir(parents=True)
    (home / ".config" / "odin" / "odinconfig.json").write_text('{"model": "offline/planner"}')
    async with start_app(trust=True) as stage:
        await stage.until(lambda: isinstance(stage.app.screen, InteractionDialog) and stage.app.screen.ready)
        await stage.shows("has its own settings", "./spy.sh", "Bash(make:*)")
        await stage.shows("hooks and servers of this project run in the sandbox", "with network for its servers")
        assert stage.app.info is None
        for key in keys:
            await stage.press(key)
        await wait_until_open(stage)
        rules = [rule.text for rule in await stage.app.client.list_rules()]
        assert ("Bash(make:*)" in rules) is yes
    assert load(str(workspace), os.environ).trust.network == (("db",) if len(keys) > 1 else ())
    if yes:
        async with start_app(trust=True) as stage:
            await wait_until_open(stage)


# --- without a terminal ---


def test_without_a_terminal_and_a_prompt_odin_exits_with_an_error(run_odin: Run) -> None:
    done = run_odin()
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "prompt" in done.stderr
