"""`odin doctor`: the report, its JSON form, the choice of the sandbox, and problems."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.commands.doctor import examine

from .conftest import Run


def load_report(run_odin: Run, env: dict[str, str] | None = None, code: int = 0) -> dict[str, Any]:
    done = run_odin("doctor", "--json", env=env)
    assert done.returncode == code, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_report_has_a_line_for_every_topic(run_odin: Run, home: Path) -> None:
    done = run_odin("doctor")
    assert done.returncode == 0, done.stderr
    for topic in (
        "Odin",
        "Python",
        "state",
        "ripgrep",
        "git",
        "sandbox",
        "commands",
        "bubblewrap",
        "landlock",
        "keys",
        "project",
    ):
        assert any(line[2:].startswith(topic) for line in done.stdout.splitlines()), topic
    assert str(home / ".local/state/odin") in done.stdout
    assert "odin migrate" not in done.stdout
    assert "* model          none. Only the offline planner answers. Add a key with `odin auth add`, or" in done.stdout
    assert done.stdout.endswith("No problems found, but no model is connected.\n")


def test_report_names_the_model_that_a_key_connects(run_odin: Run) -> None:
    done = run_odin("doctor", env={"ANTHROPIC_API_KEY": "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"})
    assert "  model          anthropic/claude-sonnet-5-5\n" in done.stdout
    assert done.stdout.endswith("No problems found.\n")


def test_json_report_has_the_same_facts(run_odin: Run, workspace: Path) -> None:
    found = load_report(run_odin)
    assert found["ok"] is True
    assert found["python"]["version"].startswith("3.")
    assert found["folders"]["state"]["writable"] is True
    assert found["sandbox"]["backend"] == "auto"
    assert found["sandbox"]["used"] in ("bubblewrap", "landlock", "none")
    assert set(found["sandbox"]["available"]) == {"bubblewrap", "landlock"}
    assert (found["sandbox"]["level"] == "view") == (found["sandbox"]["advice"] == "")
    assert found["trust"] == {"folder": str(workspace), "trusted": False}


def test_strongest_working_sandbox_is_used(run_odin: Run) -> None:
    sandbox = load_report(run_odin)["sandbox"]
    working = [name for name in ("bubblewrap", "landlock") if sandbox["available"][name]]
    assert sandbox["used"] == (working[0] if working else "none")
    assert set(sandbox["reasons"]) == {"bubblewrap", "landlock"} - set(working)


def test_report_says_why_bubblewrap_does_not_work(run_odin: Run, tmp_path: Path) -> None:
    sandbox = load_report(run_odin, env={"PATH": str(tmp_path)})["sandbox"]
    assert sandbox["reasons"]["bubblewrap"] == "bwrap is not installed"
    assert sandbox["level"] in ("kernel", "none")
    assert sandbox["advice"].endswith("Install bubblewrap (the program bwrap).")
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    sandbox = load_report(run_odin, env={"PATH": f"{tmp_path}:/usr/bin:/bin"})["sandbox"]
    assert sandbox["reasons"]["bubblewrap"].startswith("bwrap: No permissions to create new namespace")
    assert sandbox["used"] != "bubblewrap", "an installed bwrap that does not work must not be used"


def test_configured_sandbox_that_does_not_work_is_a_problem(run_odin: Run, home: Path, tmp_path: Path) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"sandbox": {"backend": "bubblewrap"}}')
    done = run_odin("doctor", env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert "configured sandbox bubblewrap does not work: bwrap is not installed" in done.stdout


def test_keys_are_shown_without_their_values(run_odin: Run, home: Path) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"providers": {"mine": {"base_url": "http://127.0.0.1:9/v1", "api_key": "VALUE-B"}}}')
    env = {"OPENAI_API_KEY": "VALUE-A"}
    for argument in ((), ("--json",)):
        done = run_odin("doctor", *argument, env=env)
        assert "OPENAI_API_KEY" in done.stdout
        assert "mine" in done.stdout
        assert "VALUE" not in done.stdout + done.stderr


def test_invalid_configuration_file_is_a_problem(run_odin: Run, home: Path) -> None:
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text("{")
    found = load_report(run_odin, code=1)
    assert found["ok"] is False
    assert str(settings) in found["configuration"]["error"]


@pytest.mark.unknown_keys
def test_warnings_about_the_configuration_are_shown(run_odin: Run, workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{"sandbox": {"backend": "off"}, "nonsense": 1}')
    found = load_report(run_odin)
    assert found["configuration"]["files"] == [str(workspace / "odinconfig.json")]
    assert any("sandbox is ignored in a project file" in text for text in found["configuration"]["warnings"])
    assert found["sandbox"]["backend"] == "auto"


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_unwritable_state_folder_is_a_problem(run_odin: Run, tmp_path: Path) -> None:
    folder = tmp_path / "closed"
    folder.mkdir(mode=0o500)
    assert load_report(run_odin, env={"ODIN_STATE_DIR": str(folder / "state")}, code=1)["ok"] is False


def test_file_instead_of_the_state_folder_is_a_problem(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    report = examine(str(workspace), {**os.environ, "ODIN_STATE_DIR": str(tmp_path / "file/state")})
    assert report.broken
    assert any(item.topic == "state" and item.health == "broken" for item in report.findings)


def test_programs_of_the_project_are_not_asked_for_their_version(run_odin: Run, workspace: Path, home: Path) -> None:
    """An activated environment of the project is on the PATH; commands can write there."""
    (workspace / ".venv/bin").mkdir(parents=True)
    (home / "bin").mkdir()
    for name in ("git", "rg"):
        program = workspace / ".venv/bin" / name
        program.write_text(f"#!/bin/sh\ntouch {home}/hit\necho {name} 9\n")
        program.chmod(0o755)
        (home / "bin" / name).symlink_to(program)
    path = f"{workspace}/.venv/bin:{home}/bin:.venv/bin:{os.environ['PATH']}"
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    for text, code in (("{}", 0), ("{", 1)):
        settings.write_text(text)
        report = load_report(run_odin, env={"PATH": path}, code=code)
        assert str(workspace) not in report["git"]["path"] + report["ripgrep"]["path"]
        assert report["git"]["path"] == shutil.which("git")
        assert not (home / "hit").exists()


def test_setups_of_other_agents_are_named_until_odin_has_settings(run_odin: Run, home: Path) -> None:
    (home / ".claude.json").touch()
    assert "* setups         Found setups of Claude Code: `odin migrate` imports" in run_odin("doctor").stdout
    (home / ".config/odin").mkdir(parents=True)
    (home / ".config/odin/odinconfig.json").write_text("{}")
    assert "odin migrate" not in run_odin("doctor").stdout


def test_channels_that_lack_a_package(workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    channels = {"chat": {"type": "matrix"}, "slack": {"token": "$SLACK"}, "off": {"type": "slack", "enabled": False}}
    settings = home / ".config/odin/odinconfig.json"
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"gateway": {"channels": channels}}))
    for has_packages in (True, False):
        found = [
            (one.text, one.health) for one in examine(str(workspace), os.environ).findings if one.topic == "channel"
        ]
        assert found == (
            []
            if has_packages
            else [
                ("chat: Encrypted rooms need a package: pip install 'odin-code[matrix]'", "note"),
                ("slack: Slack needs a package: pip install 'odin-code[slack]'", "broken"),
            ]
        )
        monkeypatch.setitem(sys.modules, "vodozemac", None)
        monkeypatch.setitem(sys.modules, "websockets", None)
