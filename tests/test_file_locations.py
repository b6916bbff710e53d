"""docs/files.md: its table lists every path that Odin creates, and how to move the folders."""

import json
import os
import re
from pathlib import Path

import pytest

from odin.app.crash_log import append_entry
from odin.commands.command_line import FOLDER_FLAGS
from odin.config import get_cache_dir, get_config_dir, get_state_dir
from odin.testing import ScriptedServer, call, fault, say
from tests.table import each

from .conftest import Run

PAGE = Path(__file__).parent.parent / "docs" / "files.md"
KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
FOLDERS = {"CONFIG": get_config_dir, "STATE": get_state_dir, "CACHE": get_cache_dir}


def read_rows() -> list[str]:
    """Return the paths of the table."""
    return re.findall(r"^\| `((?:CONFIG|STATE|CACHE)/[^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def compile_row(row: str) -> re.Pattern[str]:
    parts = re.split(r"(PROJECT|ID|NAME|\*)", row)
    names = {"PROJECT": r"[^/]+", "ID": r"[\w-]+", "NAME": r"[^/]+", "*": r".+"}
    text = "".join(names.get(part, re.escape(part)) for part in parts)
    return re.compile(f"{text}.*" if row.endswith("/") else text)


def list_files(env: dict[str, str]) -> set[str]:
    """Return all files in the three folders, with the folder names of the table."""
    return {
        f"{name}/{path.relative_to(folder_of(env))}"
        for name, folder_of in FOLDERS.items()
        for path in folder_of(env).rglob("*")
        if path.is_file()
    }


@pytest.mark.usefixtures("no_network")
def test_every_path_is_documented(run_odin: Run, workspace: Path) -> None:
    (workspace / "a.txt").write_text("one")
    edit = call("EditTool", {"file_path": str(workspace / "a.txt"), "old_string": "one", "new_string": "two"})
    long = call("ExecuteCommand", {"command": "seq 1 200000"})
    with ScriptedServer(
        [call("Read", {"file_path": str(workspace / "a.txt")}), edit, long, say("done"), fault(401), say("hi")]
    ) as server:
        env = server.env("anthropic")
        assert run_odin("-p", "edit", "-y", env=env).returncode == 0
        assert (workspace / "a.txt").read_text() == "two"
        assert run_odin("-p", "hi", env=env).returncode == 1
        assert run_odin("-p", "hi", env=env).returncode == 0
        assert run_odin("models", env=env).returncode == 0
    gone, kept, _ = (row["id"] for row in json.loads(run_odin("sessions", "--json").stdout))
    for line in (
        ("sessions", "export", kept),
        ("sessions", "delete", gone, "--yes"),
        ("auth", "add", "anthropic"),
        ("trust", "add", "--yes"),
        ("rules", "add", "Bash(ls)"),
        ("pair",),
        ("share", kept, "--yes", "--url", "http://127.0.0.1:7070"),
        ("doctor",),
    ):
        done = run_odin(*line, input=KEY)
        assert done.returncode == 0, done.stderr
    append_entry("something", os.environ)
    known = [compile_row(row) for row in read_rows()]
    found = list_files(dict(os.environ))
    assert {path for path in found if not any(one.fullmatch(path) for one in known)} == set()
    not_created = [
        row for row, one in zip(read_rows(), known, strict=True) if not any(one.fullmatch(path) for path in found)
    ]
    by_hand = {"CONFIG/odinconfig.json", "CONFIG/models.json", "CONFIG/commands/NAME.md", "CONFIG/checks.json"}
    beside = {"STATE/worktrees/PROJECT/NAME/", "STATE/worktrees/PROJECT/.removed/*", "STATE/sessions/PROJECT/*.lock"}
    beside |= {
        "STATE/run/*",
        "CONFIG/servers.json",
        "STATE/model-choices.json",
        "CACHE/model-catalog.json",
        "STATE/memory/PROJECT/*",
    }
    beside |= {"STATE/gateway/*", "STATE/logs/gateway.log", "STATE/fleet/*"}
    beside |= {"STATE/scratch/*", "STATE/servers/NAME/", "STATE/said.json", "STATE/logs/server.log", "CACHE/servers/*"}
    by_hand |= {"CONFIG/memory/*", "CONFIG/skills/NAME/", "CONFIG/plugins.json"}
    assert set(not_created) <= by_hand | beside
    assert [folder_of(os.environ).stat().st_mode & 0o777 for folder_of in FOLDERS.values()] == [0o700] * 3


def test_variables_and_flags_move_the_folders(tmp_path: Path) -> None:
    home = {"HOME": "/h"}
    page = PAGE.read_text(encoding="utf-8")
    for name, folder_of, variable, xdg, usual in (
        ("CONFIG", get_config_dir, "ODIN_CONFIG_DIR", "XDG_CONFIG_HOME", ".config/odin"),
        ("STATE", get_state_dir, "ODIN_STATE_DIR", "XDG_STATE_HOME", ".local/state/odin"),
        ("CACHE", get_cache_dir, "ODIN_CACHE_DIR", "XDG_CACHE_HOME", ".cache/odin"),
    ):
        assert folder_of(home) == Path("/h", usual)
        assert folder_of({**home, xdg: "/x"}) == Path("/x/odin")
        assert folder_of({**home, xdg: "/x", variable: "/own"}) == Path("/own")
        flag = next(flag for flag, moved in FOLDER_FLAGS.items() if moved == variable)
        assert re.search(
            rf"^\| {name}, .*`~/{re.escape(usual)}` \| `{variable}`, `{xdg}` \| `{flag}` \|$", page, re.MULTILINE
        )


@each("row", read_rows())
def test_every_row_matches_its_own_path(row: str) -> None:
    assert compile_row(row).fullmatch(row.replace("*", "x").replace("PROJECT", "p").replace("NAME", "n"))
