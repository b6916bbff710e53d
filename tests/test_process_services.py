"""What the sessions of one process share, and what they must not share."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from odin.app import open_session
from odin.app.process_services import ProcessServices
from odin.config import Options
from odin.core.client import Client
from odin.core.event import TurnEnded, TurnStarted
from odin.core.op import Prompt
from odin.models.key_states import KeyStates
from odin.models.model_table import ModelTables
from odin.providers.http import HttpClients
from odin.testing import ScriptedServer, call
from odin.testing import say as answer
from odin.ui.print import run_json, run_text
from odin.ui.stream_json.protocol import run_stream_json

from .sandbox.processes import list_helpers


async def say(client: Client, text: str) -> str:
    events = client.stream_events()
    await client.submit(Prompt("p", text))
    async for envelope in events:
        if isinstance(envelope.event, TurnEnded):
            return envelope.event.text
    return ""


async def test_sessions_share_a_connection_and_a_watchdog_but_no_key(workspace: Path, home: Path) -> None:
    before = len(list_helpers())
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odinconfig.json").write_text(json.dumps({"sandbox": {"backend": "off"}, "verify": {"mode": "off"}}))
    script = [step for _ in range(3) for step in (call("ExecuteCommand", {"command": "true"}), answer("Done."))]
    process = ProcessServices()
    clients: list[Client] = []
    with ScriptedServer(script) as server:
        for number in range(3):
            env = {**os.environ, **server.env("anthropic"), "ANTHROPIC_API_KEY": f"key-{number}"}
            options = Options(env=env, cwd=str(workspace), yes=True)
            clients.append(await open_session(options, process=process))
            assert await say(clients[-1], "Go.") == "Done."
        keys = [dict(request.headers)["x-api-key"] for request in server.requests]
        assert keys == [f"key-{number}" for number in range(3) for _ in range(2)]
        assert len(server.connections) == 1
        assert sum("odin-watchdog" in line for line in list_helpers().values()) == 1
        for client in clients:
            assert len(list_helpers()) == before + 1
            await client.close()
        while len(list_helpers()) > before:  # the watchdog exits without being waited for
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "other",
    [
        {"HTTPS_PROXY": "http://proxy.test"},
        {"https_proxy": "http://me:secret@proxy.test"},
        {"NO_PROXY": "*"},
        {"SSL_CERT_FILE": "/ca.pem"},
    ],
)
async def test_sessions_with_other_proxies_or_certificates_share_no_connection(other: dict[str, str]) -> None:
    clients = HttpClients()
    env = {"HOME": "/one", "ANTHROPIC_API_KEY": "one"}
    same = clients.get(env)
    assert clients.get({"HOME": "/other", "ANTHROPIC_API_KEY": "other"}) is same
    assert clients.get({**env, **other}) is not same
    assert not any("one" in value for value in same._env.values())


async def test_tls_contexts_are_built_once_and_again_for_other_certificates(tmp_path: Path) -> None:
    import ssl

    bundle = tmp_path / "ca.pem"
    found = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
    bundle.write_bytes(Path(found).read_bytes())
    tls, env = HttpClients().tls, {"SSL_CERT_FILE": str(bundle)}
    first = await tls.get(env)
    assert await tls.get({**env, "HOME": "/other"}) is first
    assert await tls.get({}) is not first
    os.utime(bundle, (1, 1))
    assert await tls.get(env) is not first


def test_model_table_is_loaded_once_until_a_file_changes(tmp_path: Path) -> None:
    tables, own, catalog = ModelTables(), tmp_path / "models.json", tmp_path / "catalog.json"
    first = tables.load(own, catalog)
    assert tables.load(own, catalog) is first
    own.write_text('{"anthropic": {"mine": {"context": 5000}}}')
    changed = tables.load(own, catalog)
    assert changed.find_override("anthropic", "mine") is not None
    assert tables.load(tmp_path / "other.json", catalog).find_override("anthropic", "mine") is None
    assert tables.load(own, catalog) is changed


def test_key_states_are_kept_while_they_are_used(tmp_path: Path) -> None:
    states: Any = KeyStates.get_shared(tmp_path / "keys.json")
    assert KeyStates.get_shared(tmp_path / "keys.json") is states
    assert KeyStates.get_shared(tmp_path / "other.json") is not states
    states.clock = None
    states = None
    assert KeyStates.get_shared(tmp_path / "keys.json").clock is not None


@pytest.mark.parametrize("front_end", ["text", "json", "stream-json"])
async def test_only_the_owner_of_the_process_handles_signals(
    workspace: Path, home: Path, tmp_path: Path, front_end: str
) -> None:
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]

    async def look_during_turn(client: Client) -> bool:
        async for envelope in client.stream_events():
            if isinstance(envelope.event, TurnStarted):
                return [signal.getsignal(number) for number in numbers] == before
        raise AssertionError

    with ScriptedServer([answer("Hi."), answer("Hi.")]) as server, (tmp_path / "out").open("w") as out:
        for owns in (False, True):
            env = {**os.environ, **server.env("anthropic")}
            client = await open_session(Options(env=env, cwd=str(workspace)))
            looking = asyncio.create_task(look_during_turn(client))
            await asyncio.sleep(0)
            prompt = Prompt("p", "hello")
            if front_end == "stream-json":
                await run_stream_json(client, out=out, prompt=prompt, owns_process=owns)
            else:
                show = run_text if front_end == "text" else run_json
                await show(client, prompt, out=out, err=None, owns_process=owns)
            assert await looking is not owns
            assert [signal.getsignal(number) for number in numbers] == before
            await client.close()
