"""Model lists of configured servers: listing, cache, and refusal of unknown models."""

import json
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.config import load
from odin.core.errors import ConfigError
from odin.models.connector import ModelConnector
from odin.models.model_lists import CACHE_NAME, is_listed
from odin.models.selection import ModelSelector
from odin.testing import ScriptedServer, say
from tests.conftest import Run
from tests.table import each


def configure(home: Path, **keys: Any) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odinconfig.json").write_text(json.dumps(keys))


@asynccontextmanager
async def open_selector(
    workspace: Path, env: dict[str, str] | None = None, *, eager: bool = True
) -> AsyncGenerator[ModelSelector]:
    environ = {**os.environ, **(env or {})}
    models = ModelSelector(ModelConnector(load(str(workspace), environ), environ, eager=eager))
    yield models
    await models.connector.close()


def test_models_of_a_server_are_listed_and_the_first_is_the_default(run_odin: Run, workspace: Path, home: Path) -> None:
    with ScriptedServer([say("Hi.")], models=["coder", "coder-small"]) as server:
        configure(home, providers={"work": {"base_url": server.openai_url, "api_key": "scripted-key"}})
        rows = {row["model"]: row for row in json.loads(run_odin("models", "--json").stdout)}
        assert list(rows) == ["work/coder", "work/coder-small", "offline/planner"]
        assert (rows["work/coder"]["address"], rows["work/coder"]["price_input"]) == (server.openai_url, None)
        ran = run_odin("-p", "hello")
        assert (ran.returncode, ran.stdout) == (0, "Hi.\n")
        assert server.requests[0].model == "coder"


def test_models_command_reports_an_unreachable_server(run_odin: Run, home: Path) -> None:
    configure(home, providers={"work": {"base_url": "http://127.0.0.1:9/v1"}})
    ran = run_odin("models")
    assert ran.returncode == 0
    assert "The models of work cannot be listed: " in ran.stdout


async def test_model_list_is_cached_for_the_next_start(workspace: Path, home: Path) -> None:
    with ScriptedServer([], models=["coder"]) as server:
        configure(home, providers={"work": {"base_url": server.openai_url, "api_key": "scripted-key"}})
        async with open_selector(workspace, eager=False) as models:
            assert [row.ref for row in await models.connector.list_available()] == ["offline/planner"]
            assert await models.choose("") == "offline/planner"
            assert server.others == []
        async with open_selector(workspace) as models:
            assert await models.choose("") == "work/coder"
            asked = len(server.others)
            assert [row.ref for row in await models.connector.list_available("configured")] == [
                "work/coder",
                "offline/planner",
            ]
            assert len(server.others) == asked
    assert (home / ".cache" / "odin" / CACHE_NAME).stat().st_mode & 0o077 == 0
    async with open_selector(workspace, eager=False) as models:
        assert await models.choose("") == "work/coder"
        assert [row.ref for row in await models.connector.list_available()] == ["work/coder", "offline/planner"]
    (home / ".cache" / "odin" / CACHE_NAME).write_text("{]")
    async with open_selector(workspace, eager=False) as models:
        assert await models.choose("") == "offline/planner"


async def test_a_server_without_a_key_is_listed_as_such(workspace: Path, home: Path) -> None:
    configure(home, providers={"work": {"base_url": "http://127.0.0.1:9/v1", "models": {"coder": {}}}})
    async with open_selector(workspace) as models:
        rows = await models.connector.list_available()
        assert ("work/coder", "no key") in [(row.ref, row.note) for row in rows]


async def test_catalog_prices_do_not_apply_to_another_base_url(workspace: Path) -> None:
    with ScriptedServer([], models=["gpt-6-sol", "house-model"]) as server:
        env = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "scripted-key"}
        async with open_selector(workspace, env) as models:
            rows = {row.ref: row for row in await models.connector.list_available("configured")}
            assert list(rows) == ["openai/gpt-6-sol", "openai/house-model", "offline/planner"]
            assert rows["openai/gpt-6-sol"].price_input is None
            assert await models.choose("") == "openai/gpt-6-sol"
    with ScriptedServer([], models=["house-model"]) as server:
        env = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "scripted-key"}
        async with open_selector(workspace, env) as models:
            assert await models.choose("") == "openai/house-model"


async def test_unknown_model_of_a_server_is_refused_with_a_suggestion(workspace: Path, home: Path) -> None:
    with ScriptedServer([], models=["coder", "coder-small"]) as server:
        configure(home, providers={"work": {"base_url": server.openai_url, "api_key": "scripted-key"}})
        async with open_selector(workspace) as models:
            for name in ("work/codr", "codr"):
                with pytest.raises(ConfigError) as caught:
                    await models.connector.check_name(name)
                assert str(caught.value) == "work has no model 'codr'. Did you mean work/coder?"
                assert "It has coder, coder-small." in caught.value.hint
            for name in ("work/coder", "coder-small", "offline"):
                assert await models.connector.check_name(name) == ""
            with pytest.raises(ConfigError, match="no provider 'wrok'"):
                await models.connector.check_name("wrok/coder")


async def test_model_name_that_cannot_be_checked_is_accepted_with_a_note(workspace: Path) -> None:
    env = {"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "ANTHROPIC_API_KEY": "k"}
    async with open_selector(workspace, env) as models:
        assert await models.connector.check_name("anthropic/claude-sonnet-5-5") == ""
        note = await models.connector.check_name("anthropic/claude-sonet-5-5")
    assert note == (
        "Odin does not know anthropic/claude-sonet-5-5, and its server provides no list of models. "
        "Did you mean anthropic/claude-sonnet-5-5?"
    )


async def test_other_configured_models_are_checked_at_the_start(workspace: Path, home: Path) -> None:
    configure(home, small_model="anthropc/claude", fallback_model=["ollama/qwen3", "opnai/gpt-6-sol"])
    async with open_selector(workspace) as models:
        warnings = " ".join(models.connector.warnings)
        assert "small_model 'anthropc/claude' cannot be used: There is no provider 'anthropc'." in warnings
        assert "fallback_model 'opnai/gpt-6-sol' cannot be used: " in warnings
        assert "ollama" not in warnings.split("Known:")[0]


@each(
    ("model", "expected"),
    [("qwen3", True), ("qwen3:latest", True), ("claude-x", True), ("claude-x-20260101", True), ("claude", False)],
)
def test_tag_or_date_of_a_model_name_may_be_omitted(model: str, expected: bool) -> None:
    assert is_listed(model, ["qwen3:latest", "claude-x-20260101", "gpt"]) is expected
