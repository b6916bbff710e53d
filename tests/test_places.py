"""docs/files.md: every path that Odin makes is in its table, and every folder can be moved."""

import json
import os
import re
from pathlib import Path

from odin.app.crash_log import append_entry
from odin.commands.command_line import FOLDER_FLAGS
from odin.config import get_cache_dir, get_config_dir, get_state_dir
from odin.testing import ScriptedServer, call, fault, say
from tests.table import each

from .conftest import Run

PAGE = Path(__file__).parent.parent / "docs" / "files.md"
KEY = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
PLACE = {"CONFIG": get_config_dir, "STATE": get_state_dir, "CACHE": get_cache_dir}


def rows() -> list[str]:
    """The paths of the table, as they are written there."""
    return re.findall(r"^\| `((?:CONFIG|STATE|CACHE)/[^`]+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def pattern(row: str) -> re.Pattern[str]:
    parts = re.split(r"(PROJECT|ID|NAME|\*)", row)
    names = {"PROJECT": r"[^/]+", "ID": r"[\w-]+", "NAME": r"[^/]+", "*": r".+"}
    text = "".join(names.get(part, re.escape(part)) for part in parts)
    return re.compile(f"{text}.*" if row.endswith("/") else text)


def made(env: dict[str, str]) -> set[str]:
    """Every file there is below the three folders, by the names of the table."""
    return {
        f"{name}/{path.relative_to(place(env))}"
        for name, place in PLACE.items()
        for path in place(env).rglob("*")
        if path.is_file()
    }


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
        ("doctor",),
    ):
        done = run_odin(*line, input=KEY)
        assert done.returncode == 0, done.stderr
    append_entry("something", os.environ)
    known = [pattern(row) for row in rows()]
    found = made(dict(os.environ))
    assert {path for path in found if not any(one.fullmatch(path) for one in known)} == set()
    never = [row for row, one in zip(rows(), known, strict=True) if not any(one.fullmatch(path) for path in found)]
    by_hand = {"CONFIG/odinconfig.json", "CONFIG/models.json", "CONFIG/commands/NAME.md", "CONFIG/checks.json"}
    beside = {"STATE/worktrees/PROJECT/NAME/", "STATE/worktrees/PROJECT/.removed/*", "STATE/sessions/PROJECT/*.lock"}
    beside |= {"STATE/model-choices.json", "CACHE/model-catalog.json", "STATE/memory/PROJECT/*"}
    by_hand |= {"CONFIG/memory/*", "CONFIG/skills/NAME/", "CONFIG/plugins.json"}
    assert set(never) <= by_hand | beside
    assert [place(os.environ).stat().st_mode & 0o777 for place in PLACE.values()] == [0o700] * 3


def test_what_moves_them(tmp_path: Path) -> None:
    home = {"HOME": "/h"}
    page = PAGE.read_text(encoding="utf-8")
    for name, place, variable, xdg, usual in (
        ("CONFIG", get_config_dir, "ODIN_CONFIG_DIR", "XDG_CONFIG_HOME", ".config/odin"),
        ("STATE", get_state_dir, "ODIN_STATE_DIR", "XDG_STATE_HOME", ".local/state/odin"),
        ("CACHE", get_cache_dir, "ODIN_CACHE_DIR", "XDG_CACHE_HOME", ".cache/odin"),
    ):
        assert place(home) == Path("/h", usual)
        assert place({**home, xdg: "/x"}) == Path("/x/odin")
        assert place({**home, xdg: "/x", variable: "/own"}) == Path("/own")
        flag = next(flag for flag, moved in FOLDER_FLAGS.items() if moved == variable)
        assert re.search(
            rf"^\| {name}, .*`~/{re.escape(usual)}` \| `{variable}`, `{xdg}` \| `{flag}` \|$", page, re.MULTILINE
        )


@each("row", rows())
def test_a_row_is_a_pattern(row: str) -> None:
    assert pattern(row).fullmatch(row.replace("*", "x").replace("PROJECT", "p").replace("NAME", "n"))
