"""Untrusted projects: their settings, instructions and git config cannot allow more, cost more or reveal files."""

import csv
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest

from odin.commands.usage import format_csv
from odin.config import load
from odin.context.instructions import load_instructions
from odin.core.call_events import UsageReport, UsageRow
from odin.core.tool import Target
from tests.policy.policies import make_policy


def load_config(home: Path, workspace: Path, user: dict[str, Any], project: dict[str, Any]) -> Any:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "odinconfig.json").write_text(json.dumps(user))
    (workspace / "odinconfig.json").write_text(json.dumps(project))
    return load(str(workspace), os.environ)


@pytest.mark.parametrize(
    ("key", "mine", "theirs"),
    [
        ("max_budget_usd", 1.0, 100.0),
        ("max_budget_usd", 1.0, 0.0),
        ("max_budget_usd_per_day", 1.0, 0.0),
        ("max_context", 20_000, 1_000_000),
        ("max_context", 20_000, 0),
        ("max_tokens", 1_000, 100_000),
        ("thinking", 0, 100_000),
        ("speculate", False, True),
        ("fallback_model", ["a/b"], ["evil/model"]),
        ("small_model", "a/b", "evil/model"),
        ("model", "a/b", "evil/model"),
    ],
)
def test_an_untrusted_project_cannot_raise_limits_or_choose_models(
    home: Path, workspace: Path, key: str, mine: Any, theirs: Any
):
    config = load_config(home, workspace, {key: mine}, {key: theirs})
    assert json.dumps(getattr(config, key)) == json.dumps(mine)
    assert any(key in warning and "not trusted" in warning for warning in config.warnings)


def test_an_untrusted_project_cannot_choose_the_compaction_model(home: Path, workspace: Path):
    config = load_config(home, workspace, {}, {"compaction": {"model": "evil/model"}})
    assert config.compaction.model == ""


@pytest.mark.parametrize(
    ("key", "theirs"), [("max_context", 10_000), ("max_tokens", 100), ("speculate", False), ("max_budget_usd", 0.5)]
)
def test_an_untrusted_project_can_lower_limits(home: Path, workspace: Path, key: str, theirs: Any):
    config = load_config(home, workspace, {}, {key: theirs})
    assert getattr(config, key) == theirs
    assert config.warnings == ()


def test_a_project_cannot_set_model_prices(home: Path, workspace: Path, run_odin: Any):
    """A model with a price of zero would never use up a budget."""
    free = {"anthropic/claude-sonnet-4-5": {"input": 0, "output": 0}}
    before = run_odin("models").stdout
    for place in (workspace, workspace / ".odin", workspace / ".config" / "odin"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "models.json").write_text(json.dumps(free))
    assert run_odin("models").stdout == before


@pytest.mark.parametrize("name", ["AGENTS.md", "CLAUDE.md", "CLAUDE.local.md", "ODIN.md"])
@pytest.mark.parametrize("way", ["link", "pipe", "device", "folder", "loop", "huge"])
def test_instruction_files_must_be_small_regular_files_of_the_project(
    tmp_path: Path, workspace: Path, name: str, way: str
):
    secret = tmp_path / "secret.txt"
    secret.write_text("the secret of somebody")
    path = workspace / name
    if way == "link":
        path.symlink_to(secret)
    elif way == "pipe":
        os.mkfifo(path)
    elif way == "device":
        path.symlink_to("/dev/zero")
    elif way == "folder":
        path.mkdir()
    elif way == "loop":
        path.symlink_to(name)
    else:
        with path.open("wb") as file:
            file.truncate(3_000_000_000)
    found = load_instructions(str(workspace))
    assert "secret" not in found.text
    assert len(found.text) < 40_000


def test_instructions_in_a_symlinked_folder_are_not_loaded(tmp_path: Path, workspace: Path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "AGENTS.md").write_text("obey")
    (workspace / "sub").symlink_to(outside)
    assert "obey" not in load_instructions(str(workspace), str(workspace / "sub")).text


@pytest.mark.parametrize("title", ["=HYPERLINK(1)", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_titles_in_csv_are_not_formulas(title: str):
    row = UsageRow("s", title, 1, 0, 0, 0, 0, 0, 0.0, 0, None)
    (cells,) = csv.DictReader(io.StringIO(format_csv(UsageReport(by="session", period="", rows=(row,), total=row))))
    assert not cells["title"].startswith(("=", "+", "-", "@", "\t", "\r"))


def test_file_urls_are_denied_with_a_reason(workspace: Path) -> None:
    policy = make_policy(root=str(workspace), yes=True)
    for url in ("file:///etc/passwd", "FILE://x/y", "file:notes.txt"):
        decision = policy.evaluate("WebFetch", "network", Target(url=url), "edit_mode")
        assert (decision.action, decision.builtin) == ("deny", True)
        assert "http and https" in decision.reason
