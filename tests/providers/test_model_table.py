"""The table of known models, and the user's file that overrides it."""

import json
from pathlib import Path
from typing import Any

import pytest

from odin.core.message import Usage
from odin.models.catalog import lookup_model
from odin.models.model_table import ModelTable
from odin.providers.settings import ModelSettings, ProviderSettings
from odin.testing import ScriptedServer, reply
from tests.conftest import Run

SONNET = "anthropic/claude-sonnet-5-5"


def load_table(tmp_path: Path, written: Any) -> ModelTable:
    path = tmp_path / "models.json"
    path.write_text(written if isinstance(written, str) else json.dumps(written))
    return ModelTable.load_with_overrides(path)


def test_user_file_overrides_the_table_and_the_configuration_overrides_both(tmp_path: Path) -> None:
    table = load_table(tmp_path, {"anthropic": {"claude-sonnet-5-5": {"price_input": 7, "context": 50_000}}})
    info = lookup_model(SONNET, {}, table)
    assert (info.price_input, info.context, info.price_output, info.tools) == (7, 50_000, 10, "native")
    own = {"anthropic": ProviderSettings(models={"claude-sonnet-5-5": ModelSettings(price_input=1.0)})}
    info = lookup_model(SONNET, own, table)
    assert (info.price_input, info.context, info.images) == (1, 50_000, True)
    assert table.warning == ""


def test_user_file_can_add_models(tmp_path: Path) -> None:
    table = load_table(
        tmp_path, {"mistral": {"new-one": {"price_input": 2, "price_output": 3}}, "ollama": {"q": {"tools": "json"}}}
    )
    info = lookup_model("mistral/new-one", {}, table)
    assert (info.price_output, info.tools, info.has_price, info.free) == (3, "auto", True, False)
    assert lookup_model("ollama/q", {}, table).tools == "json"
    assert "new-one" in table.list_models("mistral") and "q" in table.list_models("ollama")
    assert not lookup_model("ollama/other", {}, table).has_price


def test_row_of_the_user_applies_to_dated_and_resold_names(tmp_path: Path) -> None:
    table = load_table(
        tmp_path, {"anthropic": {"claude-opus-5-5": {"price_output": 99}}, "acme": {"x": {"context": 5}}}
    )
    assert lookup_model("anthropic/claude-opus-5-5-20260101", {}, table).price_output == 99
    assert lookup_model("openrouter/anthropic/claude-opus-5.5", {}, table).price_output == 99
    assert lookup_model("openrouter/acme/x", {}, table).context == 5


def test_price_of_zero_in_the_user_file_means_free(tmp_path: Path) -> None:
    table = load_table(tmp_path, {"groq": {"openai/gpt-oss-120b": {"price_input": 0, "price_output": 0}}})
    assert lookup_model("groq/openai/gpt-oss-120b", {}, table).free
    assert not lookup_model("groq/openai/gpt-oss-120b", {}).has_price


@pytest.mark.parametrize(
    "written",
    [
        "",
        "{",
        "[]",
        '{"anthropic": []}',
        '{"anthropic": {"m": {"price_input": "much"}}}',
        '{"a": {"m": {"context": -1}}}',
        "\udcff",
    ],
)
def test_broken_file_gives_one_warning(tmp_path: Path, written: str) -> None:
    path = tmp_path / "models.json"
    path.write_bytes(written.encode("utf-8", "surrogateescape"))
    table = ModelTable.load_with_overrides(path)
    assert str(path) in table.warning
    assert lookup_model(SONNET, {}, table).price_input == 2


def test_unknown_key_gives_a_warning(tmp_path: Path) -> None:
    table = load_table(tmp_path, {"anthropic": {"claude-sonnet-5-5": {"price_inptu": 7, "context": 9}}})
    assert "price_inptu" in table.warning
    assert lookup_model(SONNET, {}, table).context == 9


def test_missing_file_gives_no_warning_but_a_folder_does(tmp_path: Path) -> None:
    assert ModelTable.load_with_overrides(tmp_path / "none.json").warning == ""
    assert "cannot be read" in ModelTable.load_with_overrides(tmp_path).warning


def test_session_is_billed_by_the_user_file(home: Path, run_odin: Run) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text('{"anthropic": {"m": {"price_input": 500000, "price_output": 0}}}')
    with ScriptedServer([reply("hi", usage=Usage(3))] * 2) as server:
        env = {**server.env("anthropic"), "ODIN_MODEL": "anthropic/m"}
        result = json.loads(run_odin("-p", "hi", "--output-format", "json", env=env).stdout)
        assert result["total_cost_usd"] == 1.5
        spent = result["modelUsage"]["anthropic/m"]
        assert (spent["inputTokens"], spent["costUSD"]) == (3, 1.5)
        (folder / "models.json").write_text("{")
        ran = run_odin("-p", "hi", env=env)
    assert (ran.returncode, ran.stdout) == (0, "hi\n")
    assert ran.stderr.count("models.json") == 1


def test_models_command_shows_prices(home: Path, run_odin: Run) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "models.json").write_text('{"groq": {"mine": {"price_input": 0.5, "price_output": 1.25}}}')
    env = {"GROQ_API_KEY": "k"}
    lines = [line.split() for line in run_odin("models", env=env).stdout.splitlines()]
    rows = {line[0]: line for line in lines if line}
    assert rows["groq/mine"][2:4] == ["$0.5", "$1.25"]
    assert rows["groq/openai/gpt-oss-120b"][3:5] == ["unknown", "unknown"]
    assert rows["offline/planner"][2:4] == ["free", "free"]
    listed = {row["model"]: row for row in json.loads(run_odin("models", "--json", env=env).stdout)}
    assert listed["groq/openai/gpt-oss-120b"]["price_input"] is None
    assert listed["groq/mine"]["price_output"] == 1.25
