"""Provider packages: found by their entry points, imported only if a model names them."""

import json
import os
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from odin.config import load
from odin.models.connector import ModelConnector
from odin.models.keys import check_provider
from odin.testing import ScriptedServer, say
from tests.conftest import RunHere

EXAMPLE = Path(__file__).parents[1] / "example_provider"

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """install(module, code, name="module:object") puts a package with this entry point on `sys.path`."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])

    def install_package(module: str, code: str, **entries: str) -> None:
        (folder / f"{module}.py").write_text(code)
        about = folder / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module.replace('_', '-')}\nVersion: 1.0\n")
        lines = "".join(f"{name} = {place}\n" for name, place in entries.items())
        (about / "entry_points.txt").write_text(f"[odin.providers]\n{lines}")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return install_package


@pytest.fixture
def example(install: Install) -> None:
    entries = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]["entry-points"]["odin.providers"]
    install("odin_example", (EXAMPLE / "odin_example.py").read_text(), **entries)


def write_settings(home: Path, **values: object) -> None:
    path = home / ".config/odin/odinconfig.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


@pytest.mark.usefixtures("example")
def test_model_of_a_package_answers(run_here: RunHere, home: Path) -> None:
    code, printed, errors = run_here("-p", "hello", "--model", "example/echo", "--output-format", "json")
    assert code == 0, errors
    answer = json.loads(printed)
    assert answer["result"].startswith("You said: hello")
    assert answer["total_cost_usd"] > 0, "the package says what the model costs"
    write_settings(home, providers={"example": {"options": {"prefix": "> "}, "models": {"echo": {"context": 100_000}}}})
    assert run_here("-p", "hello", "--model", "example/echo")[1].startswith("> hello")
    assert "example/echo" in run_here("models")[1]
    assert "odin-example 1.0" in run_here("models")[1]
    assert run_here("doctor", "models")[1].startswith("  example/echo (configured): answers after")


@pytest.mark.usefixtures("example")
def test_package_is_not_imported_unless_selected(
    run_here: RunHere, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(home, providers={"example": {"models": {"echo": {}}}})
    with ScriptedServer([say("hi")]) as server:
        for name, value in server.env("anthropic").items():
            monkeypatch.setenv(name, value)
        assert run_here("-p", "hello")[0] == 0
        assert run_here("models")[0] == 0
    assert "odin_example" not in sys.modules


@pytest.mark.usefixtures("example")
def test_package_has_suggestions_its_own_errors_and_stored_keys(run_here: RunHere) -> None:
    """A misspelled name gets a suggestion, the package reports a missing model, and a key can be stored."""
    assert "Did you mean example/echo?" in run_here("-p", "hi", "--model", "exampel/echo")[2]
    code, _, errors = run_here("-p", "hi", "--model", "example/other")
    assert code != 0
    assert "example has no model 'other'. It has echo." in errors
    assert check_provider("example", {}) == "example"


def test_package_cannot_replace_a_known_provider(
    install: Install, run_here: RunHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("odin_thief", "raise SystemExit('stolen')", anthropic="odin_thief:steal")
    with ScriptedServer([say("hi")]) as server:
        for name, value in server.env("anthropic").items():
            monkeypatch.setenv(name, value)
        assert run_here("-p", "hello")[1] == "hi\n"


async def test_replaced_provider_is_closed_at_the_end(install: Install, workspace: Path, home: Path) -> None:
    """Another agent may still use it. Closing a session twice is safe."""
    code = "closed = []\nclass connect:\n    def __init__(self, setup): pass\n"
    code += "    async def stream(self, request): yield\n    async def close(self): closed.append(1)\n"
    install("odin_mine", code, mine="odin_mine:connect")
    connector = ModelConnector(load(str(workspace), os.environ), os.environ, eager=False)
    await connector.connect("mine/m")
    await connector.connect("mine/m", again=True)
    assert sys.modules["odin_mine"].closed == []
    await connector.close()
    await connector.close()
    assert sys.modules["odin_mine"].closed == [1, 1]


@pytest.mark.parametrize(
    ("raised", "asked"), [("RuntimeError('throttled')", 1), ("TimeoutError()", 2), ("ConfigError('no region')", 1)]
)
def test_next_model_of_a_pool_answers_if_a_package_fails(
    install: Install, run_here: RunHere, home: Path, monkeypatch: pytest.MonkeyPatch, raised: str, asked: int
) -> None:
    code = (
        "from odin.core.errors import ConfigError\nasked = []\nclass connect:\n"
        "    def __init__(self, setup): self.keys = setup.api_keys\n"
        f"    async def stream(self, request):\n        asked.append(self.keys)\n        raise {raised}\n"
        "        yield\n"
        "    async def close(self): pass\n"
    )
    install("odin_down", code, down="odin_down:connect")
    with ScriptedServer([say("hi")]) as server:
        for name, value in {**server.env("anthropic"), "ODIN_MODEL": ""}.items():
            monkeypatch.setenv(name, value)
        pools = {"main": ["down/m", "anthropic/claude-sonnet-4-5"]}
        keys = {"down": {"api_keys": ["key-1", "key-2"]}}
        write_settings(home, model_pools=pools, providers=keys, retry={"base_s": 0.01})
        assert run_here("-p", "hello", "--pool", "main")[1] == "hi\n"
    assert sys.modules["odin_down"].asked == [("key-1", "key-2")] * asked


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("import no_such_module", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'."),
        ("x = (", "cannot be loaded: SyntaxError: '(' was never closed"),
        ("other = 1", "cannot be loaded: AttributeError: module 'odin_broken' has no attribute 'connect'."),
        ("connect = 1", "cannot be used: odin_broken:connect cannot be called."),
        ("def connect(setup): return 7", "cannot be used: it returns int, which has no stream()."),
        ("def connect(setup): raise RuntimeError('no region')", "cannot be loaded: RuntimeError: no region."),
        ("def connect(setup): pass\nconnect.models = {'m': {}}", "cannot be used: models['m'] is no ModelSettings."),
        (
            "class connect:\n    def __init__(self, setup): self.key = setup.api_key\n"
            "    async def stream(self, request):\n        raise RuntimeError('refused ' + self.key)\n        yield\n"
            "    async def close(self): raise OSError('closed twice')\n",
            "failed: RuntimeError: refused [key].",
        ),
    ],
    ids=range(8),
)
def test_broken_package_is_reported_in_one_sentence(
    install: Install, run_here: RunHere, home: Path, code: str, sentence: str
) -> None:
    install("odin_broken", code, broken="odin_broken:connect")
    write_settings(home, providers={"broken": {"api_key": "secret-key-1234"}}, model="broken/m")
    status, _, errors = run_here("-p", "hello")
    assert status != 0
    assert f"The provider 'broken' of the package odin-broken 1.0 {sentence}" in errors
    assert "Traceback" not in errors
    assert "secret-key" not in errors
    assert run_here("-p", "hello", "--model", "offline/planner")[0] == 0, "Odin starts without it"
