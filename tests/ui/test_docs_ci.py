"""The recipes of docs/ci.md: they are YAML, their scripts are bash, their flags exist, and the one that fixes runs."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from odin.commands.command_line import build_parser
from odin.testing import ScriptedServer, call, say

PAGE = (Path(__file__).parent.parent.parent / "docs" / "ci.md").read_text(encoding="utf-8")
RECIPES: list[dict[str, Any]] = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]


def list_scripts() -> Iterator[str]:
    """Yield the scripts of every job, on GitHub and GitLab, and the blocks of shell."""
    for recipe in RECIPES:
        jobs: list[Any] = list((recipe.get("jobs") or recipe).values())
        for job in jobs:
            if isinstance(job, dict):
                named = cast("dict[str, Any]", job)
                yield from (step["run"] for step in named.get("steps", ()) if "run" in step)
                yield from ("\n".join(named[part]) for part in ("before_script", "script") if part in named)
    yield from re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def test_scripts_are_bash_and_their_flags_exist() -> None:
    known = {flag for action in build_parser()._actions for flag in action.option_strings}
    scripts, flags = list(list_scripts()), set[str]()
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), script
        for line in script.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["odin"]:
                flags |= {word.partition("=")[0] for word in words if re.match("--?[a-zA-Z]", word)}
    assert len(scripts) >= 8
    assert {"-p", "--summary", "--mode"} <= flags <= known
    inline = {flag for code in re.findall(r"`([^`\n]+)`", PAGE) for flag in re.findall(r"(?<![\w-])--[a-zA-Z-]+", code)}
    assert inline - known == {"--body-file"}, "a flag of gh"


@pytest.mark.slow
def test_the_recipe_that_fixes_makes_a_pull_request(workspace: Path, tmp_path: Path, home: Path) -> None:
    (fix,) = [recipe["jobs"] for recipe in RECIPES if "pull-request" in recipe.get("jobs", {})]
    scripts = {step["name"]: step["run"] for job in fix.values() for step in job["steps"] if "run" in step}
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "odin").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -m odin "$@"\n')
    (tools / "gh").write_text('#!/bin/sh\nprintf "%s\\n" "$@" > "$RUNNER_TEMP/gh"\n')
    for tool in tools.iterdir():
        tool.chmod(0o755)
    given = {
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "TASK": "Fix `x`; $(touch broken)",
        "RUNNER_TEMP": str(tmp_path),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary"),
        **{f"GITHUB_{name}": "1" for name in ("RUN_ID", "SERVER_URL", "REPOSITORY")},
    }

    def run(script: str, **env: str) -> None:
        argv = ["bash", "-e", "-c", script]
        done = subprocess.run(argv, cwd=workspace, env={**os.environ, **given, **env}, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    run("git init -q --bare ../origin.git; git clone -q ../origin.git .; echo 'x = 1' > a.py; git add a.py")
    run("git -c user.name=a -c user.email=a@b.test commit -qm start && git push -q origin HEAD")
    (tmp_path / "summary").write_text("Earlier.\n")
    script = [
        call("Read", {"file_path": "a.py"}),
        call("Write", {"file_path": "a.py", "content": "x = 2\n"}),
        say("Ok."),
    ]
    with ScriptedServer(script) as server:
        run(scripts["Fix"], **server.env("anthropic"))
    summary = (tmp_path / "summary").read_text()
    assert summary.startswith("Earlier.\n")
    assert "- `a.py` +1 −1\n" in summary
    run("git reset -q --hard")
    run(scripts["Open"])
    log = subprocess.check_output(
        ["git", "log", "-1", "--format=%s", "-p", "odin/1"], cwd=tmp_path / "origin.git", text=True
    )
    assert log.startswith(given["TASK"])
    assert "+x = 2" in log
    assert (tmp_path / "gh").read_text().splitlines()[:4] == ["pr", "create", "--title", given["TASK"]]
    assert not (workspace / "broken").exists()
