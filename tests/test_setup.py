"""Onboarding: the model options of a first run, the saved choice, and no network access before the user chooses."""

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from odin.config import Options
from odin.config.files import insert_key, set_key
from odin.core.errors import ConfigError, UsageError
from odin.core.op import SetModel
from odin.core.setup import ModelOption, Setup
from odin.host.workspace_sessions import open_workspace_sessions
from odin.models.onboarding import Onboarding
from odin.models.server_setup import add_server
from odin.session.store import SessionStore
from odin.testing import ScriptedServer
from tests.providers.servers import Connection, serve
from tests.session.logs import opened, turn, write_session
from tests.table import each
from tests.waiting import until

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
CONFIG = Path("odinconfig.json")

pytestmark = pytest.mark.usefixtures("no_network")


def make_setup(workspace: Path, **more: str) -> Setup:
    return Onboarding(Options(cwd=str(workspace), env={**os.environ, **more}))


async def test_keys_and_the_planner_are_found_without_network_access(workspace: Path) -> None:
    with ScriptedServer([], local="ollama") as server:
        setup = make_setup(
            workspace, OPENAI_API_KEY="sk-abcdefghijklmnopqrst", XAI_API_KEY=" ", ODIN_LOCAL_PORTS=str(server.port)
        )
        assert not setup.is_done
        assert await setup.find_options() == (
            ModelOption("key", "openai", "openai/gpt-6-sol", "OPENAI_API_KEY (sk-…qrst)"),
            ModelOption(
                "planner", "offline planner", "offline/planner", "built in; edits and searches without a model"
            ),
        )
        assert server.requests == []
        servers = await setup.find_local_servers()
        assert [(item.kind, item.name, item.ref) for item in servers] == [("server", "ollama", "ollama/scripted-model")]
        assert servers[0].detail == f"http://127.0.0.1:{server.port}/v1, 4,096 tokens"
    assert setup.providers[:2] == ("anthropic", "openai") and "ollama" not in setup.providers


async def test_stored_key_is_found(workspace: Path, home: Path) -> None:
    setup = make_setup(workspace)
    stored = await setup.store_key("anthropic", f" {KEY}\n")
    option = ModelOption("stored", "anthropic", "anthropic/claude-sonnet-5-5", "auth.json (sk-ant-…1234)")
    assert stored == replace(option, unchecked=stored.unchecked) and "127.0.0.1:9" in stored.unchecked
    assert (await setup.find_options())[0] == option
    assert setup.is_done, "a key is configuration"
    for provider, key in (("nobody", KEY), ("anthropic", "two words")):
        with pytest.raises(UsageError):
            await setup.store_key(provider, key)
    assert json.loads((home / ".config/odin/auth.json").read_text()) == {"anthropic": KEY}


async def test_key_is_checked_before_it_is_stored(workspace: Path, home: Path) -> None:
    async with serve(_refuse_other_keys) as spot:
        setup = make_setup(workspace, ANTHROPIC_BASE_URL=spot.url)
        with pytest.raises(UsageError, match="anthropic refused the key: invalid x-api-key"):
            await setup.store_key("anthropic", "hello")
        assert not (home / ".config/odin/auth.json").exists()
        assert (await setup.store_key("anthropic", KEY)).unchecked == ""


async def _refuse_other_keys(connection: Connection) -> None:
    while True:
        head, _ = await connection.read_request()
        error = b'{"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}'
        status, body = (b"200 OK", b'{"data": []}') if KEY in head else (b"401 Unauthorized", error)
        await connection.send(b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status, len(body), body))


async def test_server_that_was_added_meanwhile_is_an_option_and_can_be_used(workspace: Path) -> None:
    with ScriptedServer([], local="vllm") as server:
        setup = make_setup(workspace)
        host = await open_workspace_sessions(Options(cwd=str(workspace)))
        await add_server(f"127.0.0.1:{server.port}", {}, os.environ, name="work")
        option = (await setup.find_options())[0]
        url = f"http://127.0.0.1:{server.port}/v1"
        assert option == ModelOption("server", "work", "work/scripted-model", url)
        await host.client.submit(SetModel(option.ref))
        assert (await host.client.get_info()).model == option.ref
        await host.close()


async def test_chosen_model_is_written_to_the_user_file(workspace: Path, home: Path) -> None:
    setup = make_setup(workspace)
    path = Path(await setup.choose_model("ollama/qwen3"))
    assert path == home / ".config/odin/odinconfig.json"
    assert path.read_text() == '{\n  "model": "ollama/qwen3"\n}\n'
    assert setup.is_done
    assert not Path(workspace, "odinconfig.json").exists()
    with pytest.raises(UsageError):
        await setup.choose_model(" ")


async def test_setup_is_done_after_a_configuration_or_a_session(workspace: Path, home: Path) -> None:
    assert not make_setup(workspace).is_done
    assert make_setup(workspace, ODIN_MODEL="offline").is_done
    assert Onboarding(Options(cwd=str(workspace), model="offline")).is_done
    write_session(SessionStore(home / ".local/state/odin", "/elsewhere"), "aa1", [opened(), *turn("t1", "hi")])
    assert make_setup(workspace).is_done


async def test_first_run_searches_for_local_servers_only_on_request(workspace: Path) -> None:
    with ScriptedServer([], local="ollama") as local:
        env = {**os.environ, "ODIN_LOCAL_PORTS": str(local.port)}
        host = await open_workspace_sessions(Options(cwd=str(workspace), env=env))
        assert (await host.client.get_info()).model == "offline/planner"
        assert "No model is configured" in (await host.client.get_info()).notice
        assert [item.ref for item in await host.client.list_models()] == ["offline/planner"]
        assert local.requests == []
        refs = [item.ref for item in await host.client.list_models("all")]
        assert refs == ["ollama/scripted-model", "offline/planner"]
        await host.client.submit(SetModel("ollama/scripted-model"))
        assert (await host.client.get_info()).model == "ollama/scripted-model"
        await host.close()


async def test_first_run_connects_to_no_provider_before_a_choice(workspace: Path, home: Path) -> None:
    async with serve(_serve_model_list) as spot:
        env = {**os.environ, "ANTHROPIC_BASE_URL": spot.url, "ANTHROPIC_API_KEY": KEY}

        async def count_connections(expected: int) -> int:
            host = await open_workspace_sessions(Options(cwd=str(workspace), env=env))
            assert (await host.client.get_info()).model == "anthropic/claude-sonnet-5-5"
            await until(lambda: spot.accepted >= expected)
            await asyncio.sleep(0.2)  # an unwanted connection would be opened at once
            await host.close()
            return spot.accepted

        assert await count_connections(0) == 0
        await Onboarding(Options(cwd=str(workspace), env=env)).choose_model("anthropic/claude-sonnet-5-5")
        assert await count_connections(1) == 1


async def _serve_model_list(connection: Connection) -> None:
    """A server that lists its model, but does not identify its program."""
    while True:
        head, _ = await connection.read_request()
        found = b'{"data":[{"id":"tiny"}]}' if head.startswith("GET /v1/models ") else b""
        status = b"200 OK" if found else b"404 Not Found"
        await connection.send(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(found), found))


async def test_later_run_searches_for_local_servers(workspace: Path, home: Path) -> None:
    write_session(SessionStore(home / ".local/state/odin", "/elsewhere"), "aa1", [opened(), *turn("t1", "hi")])
    with ScriptedServer([], local="ollama") as local:
        host = await open_workspace_sessions(
            Options(cwd=str(workspace), env={**os.environ, "ODIN_LOCAL_PORTS": str(local.port)})
        )
        assert (await host.client.get_info()).model == "ollama/scripted-model"
        await host.close()


async def test_unidentified_local_server_can_be_saved_as_the_model(workspace: Path) -> None:
    """A server with only the common API gets the provider name `local`, which finds it again in later runs."""
    async with serve(_serve_model_list) as spot:
        env = {**os.environ, "ODIN_LOCAL_PORTS": spot.url.rpartition(":")[2]}
        setup = Onboarding(Options(cwd=str(workspace), env=env))
        assert [item.ref for item in await setup.find_local_servers()] == ["local/tiny"]
        await setup.choose_model("local/tiny")
        host = await open_workspace_sessions(Options(cwd=str(workspace), env=env))
        assert (await host.client.get_info()).model == "local/tiny"
        await host.close()


# --- changes of the configuration file ---


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '{\n  "model": "a/b"\n}\n'),
        ("", '{\n  "model": "a/b"\n}\n'),
        ("{}", '{\n  "model": "a/b"\n}'),
        ("{ }\n", '{\n  "model": "a/b"\n}\n'),
        ('{"mode": "ask"}', '{"model": "a/b", "mode": "ask"}'),
        ('{\n    "mode": "ask"\n}\n', '{\n    "model": "a/b",\n    "mode": "ask"\n}\n'),
        ('{\r\n\t"mode" : "ask"\r\n}', '{\r\n\t"model": "a/b",\r\n\t"mode" : "ask"\r\n}'),
        (
            '{"x":[1,\n 2], "model"  :\n"old" ,"y":{"model":"in"}}',
            '{"x":[1,\n 2], "model"  :\n"a/b" ,"y":{"model":"in"}}',
        ),
        ('{"model": 1, "model": {"a": "}"}}', '{"model": 1, "model": "a/b"}'),
        ('\ufeff{"model":"é\\u00e9"}', '\ufeff{"model":"a/b"}'),
        ('{"y": "\\"model\\": 1"}', '{"model": "a/b", "y": "\\"model\\": 1"}'),
    ],
)
def test_setting_a_key_keeps_all_other_bytes(before: str | None, after: str) -> None:
    raw = None if before is None else before.encode()
    assert insert_key(raw, CONFIG, "model", "a/b") == after


@each(
    ("before", "after"),
    [
        (None, '{\n  "tui": {"theme": "dark"}\n}\n'),
        ('{"mode": "ask"}', '{"tui": {"theme": "dark"}, "mode": "ask"}'),
        ('{"tui": {}}', '{"tui": {"theme": "dark"}}'),
        ('{"tui": 3}', '{"tui": {"theme": "dark"}}'),
        ('{"tui": {"vim":true, "theme" : "light"},\n "x":1}', '{"tui": {"vim":true, "theme" : "dark"},\n "x":1}'),
        (
            '{\n  "tui": {\n    "keys": {"theme": "f3"}\n  }\n}\n',
            '{\n  "tui": {\n    "theme": "dark",\n    "keys": {"theme": "f3"}\n  }\n}\n',
        ),
    ],
)
def test_setting_a_nested_key_keeps_the_other_keys(before: str | None, after: str) -> None:
    raw = None if before is None else before.encode()
    assert insert_key(raw, CONFIG, "tui.theme", "dark") == after


def test_invalid_json_file_is_not_changed(home: Path) -> None:
    path = home / ".config/odin/odinconfig.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"model": }')
    with pytest.raises(ConfigError, match="line 1, column"):
        set_key("model", "a/b", os.environ)
    assert path.read_text() == '{"model": }'


def test_setting_a_key_keeps_links_and_permissions(home: Path, tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.json"
    real.write_text("{}")
    real.chmod(0o644)
    path = home / ".config/odin/odinconfig.json"
    path.parent.mkdir(parents=True)
    path.symlink_to(real)
    set_key("model", "a/b", os.environ)
    assert path.is_symlink() and json.loads(real.read_text()) == {"model": "a/b"}
    assert stat.S_IMODE(real.stat().st_mode) == 0o644
    assert sorted(item.name for item in tmp_path.iterdir() if item.is_file()) == ["dotfiles.json"]
