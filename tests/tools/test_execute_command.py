"""ExecuteCommand: output, exit codes, timeouts, and refused interactive programs."""

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from odin.core.timing import Timing
from odin.tools.interactive_commands import explain_interactive
from tests.table import each
from tests.tools.toolbox import Toolbox
from tests.waiting import TimeLimit


async def run(box: Toolbox, command: str, **args: Any) -> str:
    return (await box.call("ExecuteCommand", command=command, **args)).text


async def test_stdout_and_stderr_are_returned_in_order(box: Toolbox) -> None:
    output = await box.ok("ExecuteCommand", command="pwd; echo err >&2; echo out", description="look around")
    assert output.text == f"{box.folder}\nerr\nout"
    assert output.note == "look around: pwd; echo err >&2; echo out"


async def test_users_are_told_how_many_lines_a_long_output_has(box: Toolbox) -> None:
    for count in (1_500, 20_000):
        output = await box.ok("ExecuteCommand", command=f"seq 1 {count}")
        assert output.note == f"Ran: seq 1 {count}: {count:,} lines"


async def test_a_command_without_output_says_so(box: Toolbox) -> None:
    assert await run(box, "true") == "(no output)"


async def test_a_failure_shows_its_exit_code(box: Toolbox) -> None:
    output = await box.call("ExecuteCommand", command="echo oops; exit 3")
    assert output.is_error
    assert output.text == "oops\n(exit code 3)"
    assert await run(box, "kill -9 $$") == "(no output)\n(killed by signal SIGKILL)"


async def test_a_timeout_keeps_the_output_so_far(box: Toolbox) -> None:
    output = await box.call("ExecuteCommand", command="echo begun; sleep 60", timeout=200)
    assert output.is_error
    assert output.text.startswith("begun\n(timed out after 0.2s")


async def test_the_timeout_is_two_minutes_by_default_and_ten_at_most(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EXEC1: without a timeout, with 0, and with more than the maximum. The schema names the same limits."""
    limits: list[float] = []
    run_command = box.runner.run

    async def run_and_keep_limit(*args: Any, timeout: float, **options: Any) -> Any:
        limits.append(timeout)
        return await run_command(*args, timeout=timeout, **options)

    monkeypatch.setattr(box.runner, "run", run_and_keep_limit)
    for given in ({}, {"timeout": 0}, {"timeout": 5000}, {"timeout": 900_000}):
        await run(box, "true", **given)
    assert limits == [120, 120, 5, 600]
    schema = box.tools["ExecuteCommand"].build_spec().schema
    assert schema["properties"]["timeout"]["description"] == "Milliseconds; default 120000, max 600000"


async def test_a_long_timeout_is_limited_and_says_so(box: Toolbox) -> None:
    assert "limited to 600000 ms" in await run(box, "true", timeout=900_000)
    assert "limited" not in await run(box, "true", timeout=600_000)


async def test_commands_have_no_stdin_and_no_terminal(box: Toolbox) -> None:
    """Even if Odin's own stdin is open and silent, on which a child would wait."""
    reading, writing = os.pipe()
    own = os.dup(0)
    os.dup2(reading, 0)
    try:
        text = await run(box, "cat; read x; echo read=$?; test -t 0 || echo no-tty", timeout=2000)
    finally:
        os.dup2(own, 0)
        for fd in (own, reading, writing):
            os.close(fd)
    assert text == "read=1\nno-tty"
    assert await run(box, "(: </dev/tty) 2>/dev/null || echo none") == "none"


async def test_a_background_child_does_not_delay_the_result(box: Toolbox) -> None:
    async with TimeLimit():
        text = await run(box, "sleep 1000 & echo $!")
    pid = int(text.split("\n")[0])
    assert "still runs in the background" in text
    os.kill(pid, 0)
    await box.runner.close()
    assert not _is_running(pid)


async def test_long_output_shows_head_and_tail_and_is_saved_whole_in_a_file(box: Toolbox) -> None:
    output = await box.ok("ExecuteCommand", command="seq 1 100000")
    whole = "".join(f"{n}\n" for n in range(1, 100_001))
    head, _, rest = output.text.partition("\n\n[... ")
    note, _, tail = rest.partition(" ...]\n\n")
    assert head + tail == whole[:12_000] + whole[-18_000:].rstrip(), "30,000 characters"
    assert Path(note.split("the full text: ")[1]).read_text() == whole


async def test_a_deleted_working_directory_is_reported_and_not_fatal(box: Toolbox) -> None:
    shutil.rmtree(box.folder)
    assert "no longer exists" in await box.refused("ExecuteCommand", command="true")
    box.folder.mkdir()
    assert await run(box, "echo back") == "back"


async def test_empty_and_nul_commands_are_refused(box: Toolbox) -> None:
    await box.refused("ExecuteCommand", command="  ")
    await box.refused("ExecuteCommand", command="echo \0")


async def test_a_command_too_long_for_the_system_is_an_error(box: Toolbox) -> None:
    assert "Not run" in await box.refused("ExecuteCommand", command=": " + "x" * 4_000_000)


@pytest.mark.parametrize("box", [Timing(command_output_s=0.0)], indirect=True)
async def test_progress_shows_the_last_line(box: Toolbox) -> None:
    await box.ok("ExecuteCommand", command="echo one; sleep 0.05; echo two")
    assert box.progress == ["one", "two"]


async def test_an_interactive_program_is_not_run(box: Toolbox) -> None:
    text = await box.refused("ExecuteCommand", command="touch made; vim made")
    assert "Not run: vim is an interactive editor" in text
    assert not (box.folder / "made").exists()


@each(
    "command",
    [
        "vi a",
        "cd x && nano b.txt",
        "/usr/bin/vim c",
        "EDITED=1 emacs d",
        "less README.md",
        "cat a | more",
        "top",
        "watch ls",
        "sudo apt install x",
        "ssh host",
        "ssh -p 22 user@host",
        "git commit",
        "git commit -a",
        "git -C sub commit --amend",
        "git rebase -i HEAD~2",
        "git add -p",
        "docker run -it ubuntu bash",
        "docker exec -i -t box sh",
        "gh auth login",
        "echo hi\nvim a",
        "timeout 5 vim a",
        "bash -c 'less a'",
        "'vim' a",
        "find . -name x -exec nano {} +",
        "docker -H unix:///x run -it image",
        "kubectl -n web exec -it pod -- sh",
    ],
)
def test_interactive_commands_are_recognized(command: str) -> None:
    assert explain_interactive(command)


@each(
    "command",
    [
        "echo 'vim is an editor'",
        "grep -rn vim .",
        "which vim less sudo",
        "command -v vim",
        "type less; hash vim",
        "GIT_EDITOR=true git commit --amend",
        "git -c core.editor=true commit",
        "kubectl exec pod -- ls",
        "git commit -m 'use less memory'",
        "git commit -am fix",
        "git commit --amend --no-edit",
        "git commit -F msg.txt",
        "git commit --message=x",
        "git -c user.name=x commit -m y",
        "GIT_SEQUENCE_EDITOR='sed -i 1d' git rebase -i HEAD~2",
        "git log --oneline | head",
        "git add -A && git status",
        "sudo -n true",
        "ssh host uptime",
        "ssh -o BatchMode=yes host 'ls -l'",
        "ssh -N -L 1:localhost:1 host",
        "docker run --rm ubuntu ls",
        "docker build -t app .",
        "top -b -n 1",
        "emacs --batch -l x.el",
        "vim -es +q",
        "gh pr list",
        "gh auth login --with-token",
        "echo 'unbalanced",
        "npm run watch",
    ],
)
def test_other_commands_are_not_taken_for_interactive(command: str) -> None:
    assert explain_interactive(command) == ""


def _is_running(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
