"""`odin doctor` as a user runs it: what is here, what is used, why not the others, and what is broken."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from odin.commands.doctor import examine

from .conftest import Run


def facts(run_odin: Run, env: dict[str, str] | None = None, code: int = 0) -> dict[str, Any]:
    done = run_odin("doctor", "--json", env=env)
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_it_says_what_there_is(run_odin: Run, home: Path) -> None:
    done = run_odin("doctor")
    assert done.returncode == 0, done.stderr
    for topic in ("Odin", "Python", "state", "ripgrep", "git", "sandbox", "bubblewrap", "landlock", "keys", "project"):
        assert any(line[2:].startswith(topic) for line in done.stdout.splitlines()), topic
    assert str(home / ".local/state/odin") in done.stdout
    assert done.stdout.endswith("No problems found.\n")


def test_programs_get_the_same_as_json(run_odin: Run, workspace: Path) -> None:
    found = facts(run_odin)
    assert found["ok"] is True
    assert found["python"]["version"].startswith("3.")
    assert found["folders"]["state"]["writable"] is True
    assert found["sandbox"]["backend"] == "auto"
    assert found["sandbox"]["used"] in ("bubblewrap", "landlock", "none")
    assert set(found["sandbox"]["available"]) == {"bubblewrap", "landlock"}
    assert found["trust"] == {"folder": str(workspace), "trusted": False}


def test_the_strongest_that_works_is_used(run_odin: Run) -> None:
    sandbox = facts(run_odin)["sandbox"]
    working = [name for name in ("bubblewrap", "landlock") if sandbox["available"][name]]
    assert sandbox["used"] == (working[0] if working else "none")
    assert set(sandbox["reasons"]) == {"bubblewrap", "landlock"} - set(working)


def test_the_exact_cause_is_named(run_odin: Run, tmp_path: Path) -> None:
    sandbox = facts(run_odin, env={"PATH": str(tmp_path)})["sandbox"]
    assert sandbox["reasons"]["bubblewrap"] == "bwrap is not installed"
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    sandbox = facts(run_odin, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})["sandbox"]
    assert sandbox["reasons"]["bubblewrap"].startswith("bwrap: No permissions to create new namespace")
    assert sandbox["used"] != "bubblewrap", "the binary alone proves nothing"


def test_a_sandbox_that_was_asked_for_and_does_not_work_is_broken(run_odin: Run, home: Path, tmp_path: Path) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"sandbox": {"backend": "bubblewrap"}}')
    done = run_odin("doctor", env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "configured sandbox bubblewrap does not work: bwrap is not installed" in done.stdout


def test_no_value_of_a_key_is_shown(run_odin: Run, home: Path) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"providers": {"mine": {"base_url": "http://127.0.0.1:9/v1", "api_key": "VALUE-B"}}}')
    env = {"OPENAI_API_KEY": "VALUE-A"}
    for argument in ((), ("--json",)):
        done = run_odin("doctor", *argument, env=env)
        assert "OPENAI_API_KEY" in done.stdout
        assert "mine" in done.stdout
        assert "VALUE" not in done.stdout + done.stderr


def test_settings_that_cannot_be_read_are_broken(run_odin: Run, home: Path) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{")
    found = facts(run_odin, code=1)
    assert found["ok"] is False
    assert str(settings) in found["configuration"]["error"]


@pytest.mark.unknown_keys
def test_warnings_about_settings_are_shown(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{"sandbox": {"backend": "off"}, "nonsense": 1}')
    found = facts(run_odin)
    assert found["configuration"]["files"] == [str(workspace / "odinconfig.json")]
    assert any("sandbox is ignored in a project file" in text for text in found["configuration"]["warnings"])
    assert found["sandbox"]["backend"] == "auto"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_broken(run_odin: Run, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    assert facts(run_odin, env={"ODIN_STATE_DIR": str(folder / "state")}, code=1)["ok"] is False


def test_a_file_where_a_folder_should_be_is_broken(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = examine(str(workspace), {**os.environ, "ODIN_STATE_DIR": str(tmp_path / "file/state")})
    assert report.broken
    assert any(item.topic == "state" and item.health == "broken" for item in report.findings)
