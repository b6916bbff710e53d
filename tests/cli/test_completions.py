"""Completions: made from the parsers, and tried in a real shell where there is one."""

import shutil
import subprocess
from pathlib import Path

import pytest

from odin.commands.command_line import Parser
from odin.commands.completions import list_commands
from odin.commands.main import COMMANDS, SHORTHANDS
from odin.session.store import SessionStore
from tests.conftest import Here
from tests.session.logs import opened, turn, write
from tests.ui.pseudo import ODIN


def test_every_command_is_known() -> None:
    known = {item.name: item for item in list_commands()}
    assert list(known) == [*COMMANDS, *SHORTHANDS]
    assert [word.text for word in known["cleanup"].words] == ["status", "sessions", "cache", "logs", "project"]
    assert "--older-than" in [word.text for word in known["cleanup"].flags]
    assert known["usage"].choices["--by"][0] == "day"
    assert Parser.observer is None


def bash(script: str, line: str, workspace: Path, path: Path) -> list[str]:
    """What bash would offer at the end of this line."""
    words = line.split(" ")
    asked = (
        f"{script}\nCOMP_WORDS=({' '.join(words[:-1])} '{words[-1]}'); COMP_CWORD={len(words) - 1}; _odin\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", asked],
        cwd=workspace,
        env={"PATH": f"{path}:/usr/bin:/bin", "HOME": str(path.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(here: Here, workspace: Path, home: Path, store: SessionStore) -> None:
    code, script, _ = here("completions", "bash")
    assert code == 0
    write(store, "20260101000000000", [opened(), *turn("t1", "hello")])
    (workspace / "notes.md").touch()
    programs = home / "bin"
    programs.mkdir()
    odin = programs / "odin"
    odin.write_text(f'#!/bin/sh\nexec {" ".join(ODIN)} "$@"\n')
    odin.chmod(0o755)

    def offered(line: str) -> list[str]:
        return bash(script, line, workspace, programs)

    assert set(offered("odin ")) >= {"models", "resume", "cleanup", "--plain"}
    assert offered("odin cle") == ["cleanup"]
    assert offered("odin cleanup s") == ["status", "sessions"]
    assert offered("odin cleanup --ol") == ["--older-than"]
    assert offered("odin usage --by d") == ["day"]
    assert offered("odin --output-format st") == ["stream-json"]
    assert offered("odin resume 2026") == offered("odin -r 2026") == ["20260101000000000"]
    assert offered("odin import no") == ["notes.md"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_scripts_are_valid(here: Here, shell: str, tmp_path: Path) -> None:
    code, script, _ = here("completions", shell)
    assert code == 0 and "cleanup" in script and "--older-than" in script.replace("-l older-than", "--older-than")
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    path = tmp_path / "script"
    path.write_text(script)
    subprocess.run([shell, "-n", str(path)], check=True, capture_output=True, timeout=60)


def test_a_shell_nobody_knows(here: Here) -> None:
    assert here("completions", "tcsh")[0] == here("completions")[0] == 2
