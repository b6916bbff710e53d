"""`odin completions`: the scripts list every command and flag, and bash offers the right words."""

import shutil
import subprocess
from pathlib import Path

import pytest

from odin.commands.command_line import Parser
from odin.commands.completions import list_commands
from odin.commands.main import COMMANDS, SHORTHANDS
from odin.session.store import SessionStore
from tests.conftest import RunHere
from tests.session.logs import opened, turn, write_session
from tests.ui.pseudo_terminal import ODIN
from tests.waiting import LIMIT_S


def test_every_command_is_listed_with_its_words_and_flags() -> None:
    known = {item.name: item for item in list_commands()}
    assert list(known) == [*COMMANDS, *SHORTHANDS]
    assert [word.text for word in known["cleanup"].words] == ["status", "sessions", "cache", "logs", "project"]
    assert "--older-than" in [word.text for word in known["cleanup"].flags]
    assert {"run", "status"} <= {word.text for word in known["fleet"].words}
    assert known["usage"].choices["--by"][0] == "day"
    assert Parser.observer is None


def complete_in_bash(script: str, line: str, workspace: Path, path: Path) -> list[str]:
    """Return the words that bash offers at the end of the line."""
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
        timeout=LIMIT_S,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_flags_values_and_sessions(
    run_here: RunHere, workspace: Path, home: Path, store: SessionStore
) -> None:
    code, script, _ = run_here("completions", "bash")
    assert code == 0
    write_session(store, "20260101000000000", [opened(), *turn("t1", "hello")])
    (workspace / "notes.md").touch()
    programs = home / "bin"
    programs.mkdir()
    odin = programs / "odin"
    odin.write_text(f'#!/bin/sh\nexec {" ".join(ODIN)} "$@"\n')
    odin.chmod(0o755)

    def complete(line: str) -> list[str]:
        return complete_in_bash(script, line, workspace, programs)

    assert set(complete("odin ")) >= {"models", "resume", "cleanup", "--plain"}
    assert complete("odin cle") == ["cleanup"]
    assert complete("odin cleanup s") == ["status", "sessions"]
    assert complete("odin cleanup --ol") == ["--older-than"]
    assert complete("odin usage --by d") == ["day"]
    assert complete("odin --output-format st") == ["stream-json"]
    assert complete("odin resume 2026") == complete("odin -r 2026") == ["20260101000000000"]
    assert complete("odin import no") == ["notes.md"]
    assert complete("odin --model off") == complete("odin eval --model off") == ["offline/planner"]
    auth = home / ".config/odin/auth.json"
    auth.parent.mkdir(parents=True)
    auth.write_text('{"anthropic": "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"}')
    auth.chmod(0o600)
    assert "anthropic/claude-sonnet-4-5" in complete("odin -m anth")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_have_valid_syntax(run_here: RunHere, shell: str, tmp_path: Path) -> None:
    code, script, _ = run_here("completions", shell)
    assert code == 0 and "cleanup" in script and "--older-than" in script.replace("-l older-than", "--older-than")
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    path = tmp_path / "script"
    path.write_text(script)
    subprocess.run([shell, "-n", str(path)], check=True, capture_output=True, timeout=LIMIT_S)


def test_unknown_shell_is_refused(run_here: RunHere) -> None:
    assert run_here("completions", "tcsh")[0] == run_here("completions")[0] == 2
