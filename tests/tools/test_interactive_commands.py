"""Commands that prompt or leave children in the background: the call returns, and nothing outlives the session."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from odin.core.timing import Timing
from tests.sandbox.processes import is_alive, wait_for_pids, wait_until_gone
from tests.tools.toolbox import Toolbox
from tests.waiting import TimeLimit


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("cat", "(no output)"),
        ("read x; echo got=$x", "got="),
        ("python3", "(no output)"),
        ("python3 -c 'input(\"name? \")'", "EOFError"),
        ("git init -q . && git commit --allow-empty", "-m MESSAGE"),
        ("ssh-keygen -t ed25519 -f file", "Overwrite (y/n)?"),
        ("sudo -k true", "sudo -n"),
        ("npm init", "package.json"),
        ("less file", "Use Read"),
        ("rm -i file </dev/tty", "/dev/tty"),
        ("select x in a b; do echo $x; done", "1) a"),
    ],
)
async def test_programs_that_prompt_do_not_wait_for_input(box: Toolbox, command: str, says: str) -> None:
    program = command.split()[0]
    if program in ("npm", "ssh-keygen") and shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    box.write("file", "text\n")
    async with TimeLimit():
        output = await box.call("ExecuteCommand", command=command, timeout=50_000)
    assert says in output.text
    assert "timed out" not in output.text
    assert (box.folder / "file").exists()


@pytest.mark.parametrize(
    "command",
    [
        "cat > notes <<'EOF'\nsudo apt install x\nvim notes\nEOF\necho done",
        "cat > notes <<-EOF\n\tless is more\n\tEOF\necho done",
        "cat <<A > one; cat <<B > two; echo done\nvi\nA\nnano\nB",
        "git init -q . && git -c user.name=a -c user.email=b commit -q --allow-empty -am'all of it' && echo done",
    ],
)
async def test_commands_that_only_mention_editors_are_run(box: Toolbox, command: str) -> None:
    assert (await box.call("ExecuteCommand", command=command)).text == "done"


async def test_an_editor_after_a_here_document_is_refused(box: Toolbox) -> None:
    assert "interactive editor" in (await box.call("ExecuteCommand", command="cat <<E\nx\nE\nvim x")).text


async def test_a_timeout_tells_how_to_avoid_it(box: Toolbox) -> None:
    text = await box.refused("ExecuteCommand", command="mkfifo pipe; cat pipe", timeout=200)
    assert "use a flag that avoids the question" in text
    assert "Spawn" in text


@pytest.mark.parametrize(
    "command",
    [
        "sleep 1000 & echo $! >>pids; echo started",
        "nohup sleep 1000 >/dev/null & echo $! >>pids; echo started",
        "(sleep 1000 & echo $! >>pids; echo started)",
        "setsid sh -c 'echo $$ >>pids; exec sleep 1000' & echo started",
        "python3 -m http.server 0 --bind 127.0.0.1 >/dev/null 2>&1 & echo $! >>pids; echo started",
        "python3 -m http.server 0 --bind 127.0.0.1 & echo $! >>pids; echo started",
    ],
)
async def test_a_background_child_delays_no_call_and_ends_with_the_session(box: Toolbox, command: str) -> None:
    async with TimeLimit():
        output = await box.ok("ExecuteCommand", command=command)
    assert "started" in output.text
    found = wait_for_pids(box.folder / "pids", 1)
    assert all(is_alive(pid) for pid in found)
    assert "on" in (await box.ok("ExecuteCommand", command="echo on")).text
    assert all(is_alive(pid) for pid in found), "a later command does not end children of an earlier one"
    await box.runner.close()
    wait_until_gone(found)


async def test_a_suspended_child_ends_with_its_command(box: Toolbox) -> None:
    command = "sleep 1000 & echo $! >>pids; kill -STOP $!; echo $$ >>pids; kill -STOP $$"
    output = await box.call("ExecuteCommand", command=command, timeout=300)
    assert "timed out" in output.text
    wait_until_gone(wait_for_pids(box.folder / "pids", 2))


async def test_colors_and_progress_bars_are_removed_for_the_model_but_kept_in_the_file(box: Toolbox) -> None:
    bar = r"for i in 1 2 3; do printf '\033[32m%d0%%\033[0m\r' $i; done; printf 'done\n'"
    assert (await box.ok("ExecuteCommand", command=bar)).text == "done"
    long = r"for i in $(seq 20000); do printf '\033[1m%s\033[0m\n' $i; done"
    output = await box.ok("ExecuteCommand", command=long)
    assert "\x1b" not in output.text
    assert output.text.endswith("19999\n20000")
    spill = Path(output.text.split("the full text: ")[1].split(" ...]")[0])
    assert spill.read_bytes().startswith(b"\x1b[1m1\x1b[0m\n")


@pytest.mark.parametrize("box", [Timing(command_output_s=0.01)], indirect=True)
async def test_progress_is_limited_however_much_is_printed(box: Toolbox) -> None:
    await box.ok("ExecuteCommand", command="head -c 30000000 /dev/zero | tr '\\0' x; sleep 0.1")
    assert 0 < len(box.progress) < 500
    assert all(len(line) <= 200 for line in box.progress)


@pytest.mark.parametrize("box", [Timing(command_output_s=0.1)], indirect=True)
async def test_an_unfinished_line_is_shown_as_progress(box: Toolbox) -> None:
    await box.ok("ExecuteCommand", command=r"printf '10%%\r\033[1m20%%\033[0m\r'; sleep 0.5")
    assert box.progress == ["20%"]


async def test_output_bytes_that_are_not_text_are_replaced(box: Toolbox) -> None:
    output = await box.ok("ExecuteCommand", command=r"printf 'a\xff\xfe\x00b\n'")
    assert output.text == "a\ufffd\ufffd\ufffdb"


async def test_a_program_that_closes_its_output_is_waited_for(box: Toolbox) -> None:
    output = await box.call("ExecuteCommand", command="exec >&- 2>&-; sleep 0.1; exit 4")
    assert output.text == "(no output)\n(exit code 4)"


async def test_an_interrupt_spares_background_children_of_earlier_commands(box: Toolbox) -> None:
    await box.ok("ExecuteCommand", command="sleep 1000 & echo $! >>before")
    (before,) = wait_for_pids(box.folder / "before", 1)
    task = asyncio.create_task(box.call("ExecuteCommand", command="echo $$ >>pids; sleep 1000"))
    await asyncio.to_thread(wait_for_pids, box.folder / "pids", 1)
    task.cancel()
    await asyncio.wait([task])
    wait_until_gone(wait_for_pids(box.folder / "pids", 1))
    assert is_alive(before)
    os.kill(before, 0)
