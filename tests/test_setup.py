"""What a first run finds and what it writes down, and that it reaches out to nobody unasked."""

import asyncio
import json
import os
import stat
from pathlib import Path

import pytest

from odin.app.sessions import open_switcher
from odin.config import Options
from odin.config.files import insert_key, set_key
from odin.core.errors import ConfigError, UsageError
from odin.core.op import SetModel
from odin.core.setup import ModelOption, Setup
from odin.models.onboarding import Onboarding
from odin.session.store import SessionStore
from odin.testing import ScriptedServer
from tests.providers.servers import Line, listening
from tests.session.logs import opened, turn, write
from tests.table import each

KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
CONFIG = Path("odinconfig.json")


def setup_in(workspace: Path, **more: str) -> Setup:
    return Onboarding(Options(cwd=str(workspace), env={**os.environ, **more}))


async def test_keys_and_the_planner_are_found_without_a_network(workspace: Path) -> None:
    with ScriptedServer([], local="ollama") as server:
        setup = setup_in(
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


async def test_a_key_that_is_stored_is_found(workspace: Path, home: Path) -> None:
    setup = setup_in(workspace)
    stored = await setup.store_key("anthropic", f" {KEY}\n")
    assert stored == ModelOption("stored", "anthropic", "anthropic/claude-sonnet-5-5", "auth.json (sk-ant-…1234)")
    assert (await setup.find_options())[0] == stored
    assert setup.is_done, "a key is configuration"
    for provider, key in (("nobody", KEY), ("anthropic", "two words")):
        with pytest.raises(UsageError):
            await setup.store_key(provider, key)
    assert json.loads((home / ".config/odin/auth.json").read_text()) == {"anthropic": KEY}


async def test_a_choice_is_written_into_the_users_file(workspace: Path, home: Path) -> None:
    setup = setup_in(workspace)
    path = Path(await setup.choose_model("ollama/qwen3"))
    assert path == home / ".config/odin/odinconfig.json"
    assert path.read_text() == '{\n  "model": "ollama/qwen3"\n}\n'
    assert setup.is_done
    assert not Path(workspace, "odinconfig.json").exists()
    with pytest.raises(UsageError):
        await setup.choose_model(" ")


async def test_when_a_run_is_not_the_first(workspace: Path, home: Path) -> None:
    assert not setup_in(workspace).is_done
    assert setup_in(workspace, ODIN_MODEL="offline").is_done
    assert Onboarding(Options(cwd=str(workspace), model="offline")).is_done
    write(SessionStore(home / ".local/state/odin", "/elsewhere"), "aa1", [opened(), *turn("t1", "hi")])
    assert setup_in(workspace).is_done


async def test_a_first_run_at_a_terminal_looks_for_no_server_unasked(workspace: Path) -> None:
    with ScriptedServer([], local="ollama") as local:
        env = {**os.environ, "ODIN_LOCAL_PORTS": str(local.port)}
        host = await open_switcher(Options(cwd=str(workspace), env=env))
        assert (await host.client.get_info()).model == "offline/planner"
        assert "No model is configured" in (await host.client.get_info()).notice
        assert [item.ref for item in await host.client.list_models()] == ["offline/planner"]
        assert local.requests == []
        refs = [item.ref for item in await host.client.list_models("all")]
        assert refs == ["ollama/scripted-model", "offline/planner"]
        await host.client.submit(SetModel("ollama/scripted-model"))
        assert (await host.client.get_info()).model == "ollama/scripted-model"
        await host.close()


async def test_a_first_run_at_a_terminal_connects_to_nobody_whose_key_it_found(workspace: Path, home: Path) -> None:
    async with listening(_tiny) as spot:
        env = {**os.environ, "ANTHROPIC_BASE_URL": spot.url, "ANTHROPIC_API_KEY": KEY}

        async def opened_and_closed(expected: int) -> int:
            host = await open_switcher(Options(cwd=str(workspace), env=env))
            assert (await host.client.get_info()).model == "anthropic/claude-sonnet-5-5"
            async with asyncio.timeout(30):
                while spot.accepted < expected:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.2)  # one that nobody asked for would be begun at once
            await host.close()
            return spot.accepted

        assert await opened_and_closed(0) == 0
        await Onboarding(Options(cwd=str(workspace), env=env)).choose_model("anthropic/claude-sonnet-5-5")
        assert await opened_and_closed(1) == 1


async def _tiny(line: Line) -> None:
    """A server that tells the name of its model and nothing about itself."""
    while True:
        head, _ = await line.request()
        found = b'{"data":[{"id":"tiny"}]}' if head.startswith("GET /v1/models ") else b""
        status = b"200 OK" if found else b"404 Not Found"
        await line.send(b"HTTP/1.1 %b\r\ncontent-length: %d\r\n\r\n%b" % (status, len(found), found))


async def test_a_run_that_is_not_the_first_looks_around_as_before(workspace: Path, home: Path) -> None:
    write(SessionStore(home / ".local/state/odin", "/elsewhere"), "aa1", [opened(), *turn("t1", "hi")])
    with ScriptedServer([], local="ollama") as local:
        host = await open_switcher(Options(cwd=str(workspace), env={**os.environ, "ODIN_LOCAL_PORTS": str(local.port)}))
        assert (await host.client.get_info()).model == "ollama/scripted-model"
        await host.close()


async def test_a_nameless_server_can_be_chosen_for_good(workspace: Path) -> None:
    """A server that only speaks the common API has the name `local`, and is looked for when that is named."""
    async with listening(_tiny) as spot:
        env = {**os.environ, "ODIN_LOCAL_PORTS": spot.url.rpartition(":")[2]}
        setup = Onboarding(Options(cwd=str(workspace), env=env))
        assert [item.ref for item in await setup.find_local_servers()] == ["local/tiny"]
        await setup.choose_model("local/tiny")
        host = await open_switcher(Options(cwd=str(workspace), env=env))
        assert (await host.client.get_info()).model == "local/tiny"
        await host.close()


# --- the file keeps what stands in it ---


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
def test_everything_else_stays_byte_for_byte(before: str | None, after: str) -> None:
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
def test_a_key_inside_an_object_is_set_alone(before: str | None, after: str) -> None:
    raw = None if before is None else before.encode()
    assert insert_key(raw, CONFIG, "tui.theme", "dark") == after


def test_a_file_that_is_not_json_is_left_alone(home: Path) -> None:
    path = home / ".config/odin/odinconfig.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"model": }')
    with pytest.raises(ConfigError, match="line 1, column"):
        set_key("model", "a/b", os.environ)
    assert path.read_text() == '{"model": }'


def test_a_link_stays_a_link_and_rights_stay_rights(home: Path, tmp_path: Path) -> None:
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
