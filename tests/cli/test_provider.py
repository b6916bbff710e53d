"""`odin provider`, `/model add` and the settings they write: a server is added by its URL and lists its own models."""

import json
import os
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from odin.config import Options, load
from odin.config.files import insert_key, remove_key
from odin.core.errors import ConfigError, OdinError, UsageError
from odin.core.op import SetModel
from odin.host.workspace_sessions import open_workspace_sessions
from odin.models.connector import ModelConnector
from odin.models.server_setup import add_server
from odin.providers.settings import ProviderSettings
from odin.ui.slash_commands.actions import CommandContext, set_model
from tests.conftest import Run, RunHere

MODELS = {"object": "list", "data": [{"id": "small"}, {"id": "big", "context_length": 54_321}, {"id": "small"}]}
KEY = "sk-0123456789abcdefghij"


class _ModelHandler(BaseHTTPRequestHandler):
    """/v1/models is open, /keyed/v1/models needs a key, /page is not an API."""

    def do_GET(self) -> None:
        keyed = self.path.startswith("/keyed")
        status = 404
        body = b"<html>nothing here</html>"
        if self.path in ("/v1/models", "/keyed/v1/models"):
            status = 401 if keyed and self.headers["authorization"] != f"Bearer {KEY}" else 200
            body = json.dumps(MODELS).encode() if status == 200 else b"{}"
        elif self.path == "/page/models":
            status = 200
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a running server, without a scheme."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _ModelHandler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_password_in_a_url_is_never_shown(run_here: RunHere, home: Path, server: str) -> None:
    providers = {
        "mine": {"base_url": f"http://user:hunter2@{server}/v1"},
        "slash": {"base_url": f"http://user:hun/ter2@{server}/v1"},
        "token": {"base_url": f"http://hunter2@{server}/v1"},
        "wrong": {"base_url": "htp://user:hunter2@127.0.0.1/v1"},
        "gone": {"base_url": "http://user:hunter2@127.0.0.1:9/v1", "proxy": "http://me:hunter2@127.0.0.1:9"},
    }
    servers = {
        "web": {"url": "http://user:hunter2@127.0.0.1:9/mcp"},
        "base": {"command": "no-such-program", "args": ["postgres://user:hunter2@127.0.0.1/db"]},
    }
    settings = {
        "providers": {name: {"type": "openai-chat", **own} for name, own in providers.items()},
        "mcp": servers,
        "retry": {"attempts": 1},
        "catalog_url": "https://user:hunter2@127.0.0.1:9/api.json",
    }
    file = home / ".config/odin/odinconfig.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(settings))
    for args in (
        *(("doctor", "config"), ("doctor", "config", "--json"), ("provider",), ("provider", "--json"), ("models",)),
        *(("models", "--json"), ("models", "refresh"), ("doctor", "models"), ("mcp", "get", "web")),
        *(("mcp", "get", "--json", "base"), ("provider", "add", "user:hunter2@:x")),
        *(("-p", "hi", "--model", f"{name}/small", "--strict-mcp-config") for name in providers),
    ):
        _, printed, said = run_here(*args)
        assert "ter2" not in printed + said, args
    assert f"mine   http://…@{server}/v1\n" in run_here("provider")[1]


def test_server_is_added_listed_and_removed(run_here: RunHere, home: Path, server: str) -> None:
    file = home / ".config/odin/odinconfig.json"
    code, printed, _ = run_here("provider", "add", server)
    name = f"local-{server.partition(':')[2]}"
    assert code == 0 and f"Added {name} (http://{server}/v1) to {file}." in printed
    assert f"\n  {name}/small\n  {name}/big\n" in printed and f"odin --model {name}/small" in printed
    assert json.loads(file.read_text()) == {"providers": {name: {"type": "openai", "base_url": f"http://{server}/v1"}}}
    assert run_here("provider")[1] == f"{name}  http://{server}/v1\n"
    assert f"{name}/big" in run_here("models")[1]
    assert run_here("provider", "add", f"http://{server}/v1/chat/completions")[0] == 0
    assert len(json.loads(file.read_text())["providers"]) == 1
    assert run_here("provider", "add", server, "--name", "mine")[0] == 0
    assert run_here("provider", "remove", name)[0] == 0
    assert list(json.loads(file.read_text())["providers"]) == ["mine"]
    code, _, error = run_here("provider", "remove", name)
    assert code == 2 and "There is no provider" in error
    assert run_here("provider", "add")[0] == 2


async def test_context_window_listed_by_the_server_is_used(home: Path, workspace: Path, server: str) -> None:
    await add_server(server, {}, os.environ, name="mine")
    connector = ModelConnector(load(str(workspace), os.environ), os.environ, eager=False)
    found = [(await connector.connect(f"mine/{model}", preconnect=False))[1].context for model in ("big", "small")]
    await connector.close()
    assert found == [54_321, 0]


PROBLEMS = [
    ("http://127.0.0.1:1", "", OdinError, "127.0.0.1"),
    ("ftp://x", "", ConfigError, "is not an http or https address"),
    ("http://me:secret@x/", "", UsageError, "A password in a URL is not accepted."),
    ("http://{}/page", "", ConfigError, "No OpenAI-compatible server was found at"),
    ("http://{}/keyed/v1", "", UsageError, "needs a key (HTTP status 401)."),
    ("http://{}/keyed/v1", "sk-wrong-0123456789abc", UsageError, "refused the key"),
]


@pytest.mark.parametrize(("url", "key", "kind", "problem"), PROBLEMS)
async def test_unusable_server_is_not_written_to_the_settings(
    home: Path, server: str, url: str, key: str, kind: type[OdinError], problem: str
) -> None:
    with pytest.raises(kind) as raised:
        await add_server(url.format(server), {}, {"HOME": str(home)}, key=key)
    assert problem in raised.value.describe() and "secret" not in raised.value.describe()
    assert not (home / ".config/odin/odinconfig.json").exists()


async def test_key_is_stored_and_names_must_be_free_and_valid(home: Path, server: str) -> None:
    env = {"HOME": str(home)}
    added = await add_server(f"http://{server}/keyed", {}, env, name="work", key=KEY)
    assert added.base_url == f"http://{server}/keyed/v1"
    assert json.loads((home / ".config/odin/auth.json").read_text()) == {"work": KEY}
    taken = {"work": ProviderSettings("openai-chat", "http://elsewhere/v1")}
    for name in ("work", "openai", "offline", "Mine!"):
        with pytest.raises(UsageError):
            await add_server(server, taken, env, name=name)
    port = server.partition(":")[2]
    other = {f"local-{port}": ProviderSettings("openai-chat", "http://elsewhere/v1")}
    assert (await add_server(server, other, env)).provider == f"local-{port}-2"


async def test_a_running_session_uses_a_server_added_with_a_slash_command(
    workspace: Path, home: Path, server: str
) -> None:
    env = {"HOME": str(home), "PATH": "/usr/bin:/bin", "ODIN_LOCAL_PORTS": "", "ODIN_MODEL": "offline"}
    sessions = await open_workspace_sessions(Options(cwd=str(workspace), env=env))
    try:
        ctx = CommandContext(sessions.client, "edit_mode", sessions)
        name = f"local-{server.partition(':')[2]}"
        assert await set_model(ctx, f"add {server}") == (
            f"Added {name}/small, {name}/big. Use one with /model {name}/small"
        )
        await sessions.client.submit(SetModel(f"{name}/big", check=True))
        assert (await sessions.client.get_info()).model == f"{name}/big"
        refs = [model.ref for model in await sessions.client.list_models("configured")]
        assert {f"{name}/small", f"{name}/big"} <= set(refs)
        for rest, problem in (("add", "No URL was given"), (f"add {server}/keyed/v1", "needs a key")):
            with pytest.raises(UsageError, match=problem):
                await set_model(ctx, rest)
    finally:
        await sessions.close()


REMOVALS: list[tuple[str, str, dict[str, object]]] = [
    ('{"a": 1, "providers": {"x": {}, "y": {"z": [1, 2]}}, "b": 2}', "providers.x", {"y": {"z": [1, 2]}}),
    ('{\n  "providers": {\n    "x": {}\n  }\n}\n', "providers.x", {}),
    ('{"providers": {"y": 1, "x": {"q": "}"}}}', "providers.x", {"y": 1}),
]


@pytest.mark.unknown_keys
@pytest.mark.parametrize(("text", "key", "left"), REMOVALS)
def test_a_removed_key_leaves_the_rest_as_it_was(home: Path, text: str, key: str, left: object) -> None:
    file = home / ".config/odin/odinconfig.json"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    before = json.loads(text)
    remove_key(key, {"HOME": str(home)})
    assert json.loads(file.read_text()) == {**before, "providers": left}
    with pytest.raises(ConfigError, match="has no key"):
        remove_key(key, {"HOME": str(home)})
    json.loads(insert_key(file.read_bytes(), file, key, {}))


def test_key_that_the_provider_refuses_is_not_stored(run_odin: Run, home: Path, server: str) -> None:
    insert = {"keyed": {"type": "openai", "base_url": f"http://{server}/keyed/v1"}}
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text(json.dumps({"providers": insert}))
    done = run_odin("auth", "add", "keyed", input="hello\n")
    assert done.returncode == 2
    assert "keyed refused the key. Nothing was stored. Copy the key of keyed again." in done.stderr
    assert not (home / ".config/odin/auth.json").exists()
    done = run_odin("auth", "add", "keyed", input=f"{KEY}\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("(readable only by you). keyed accepts it.\n")
