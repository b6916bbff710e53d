"""`odin acp` as a process: standard output, its end, and two editors on one session."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError

from odin.testing import ScriptedServer, call, say
from tests.acp.editor import Editor, Message
from tests.acp.scenarios import EDIT, READ, TEXT, open_session
from tests.waiting import LIMIT_S, until, within_limit

ODIN = (sys.executable, "-m", "odin", "acp")


@asynccontextmanager
async def start_editor(model: ScriptedServer, workspace: Path, **more: Any) -> AsyncGenerator[Editor]:
    env = {**os.environ, **model.env("anthropic")}
    editor = Editor(more.get("answers", ()))
    process = await asyncio.create_subprocess_exec(
        *ODIN, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=workspace, limit=64 * 1024 * 1024
    )
    assert process.stdin is not None and process.stdout is not None
    client: Any = editor
    editor.agent = ClientSideConnection(
        client, process.stdin, process.stdout, observers=[editor.observe], use_unstable_protocol=True
    )
    await editor.initialize()
    yield editor
    process.stdin.close()
    assert await within_limit(process.wait()) == 0  # the end of input ends the process
    await editor.agent.close()
    assert not editor.problems, "\n".join(editor.problems)


async def test_two_editors_share_a_session(workspace: Path) -> None:
    """The second one attaches to the process that has the session open; what is typed in one is shown in the other."""
    (workspace / "a.txt").write_text(TEXT)
    with ScriptedServer([say("One."), READ, EDIT, say("Two.")]) as model:
        async with start_editor(model, workspace) as first, start_editor(model, workspace) as second:
            session = await open_session(first, workspace)
            await first.prompt(session, "From the first.")
            server: Message = {"name": "x", "command": "/bin/true", "args": [], "env": []}
            await second.ask("session/load", sessionId=session, cwd=str(workspace), mcpServers=[server])
            assert second.text("user_message_chunk") == "From the first."
            assert second.text().startswith("One.")
            await second.wait_until(lambda: "MCP servers of the editor are not used" in second.text())
            second.answers.append("allow_once")
            assert await first.prompt(session, "Again.") == "end_turn"
            assert (workspace / "a.txt").read_text() == "one\n2\n"
            await second.wait_until(lambda: second.text().endswith("Two."))
            assert second.text("user_message_chunk") == "From the first.Again."
            assert any(one.get("method") == "$/cancel_request" for _, one in first.messages)
            with pytest.raises(RequestError, match="open"):
                await second.ask("session/delete", sessionId=session)
            assert await second.ask("session/close", sessionId=session) == {}


def list_processes(mark: str) -> list[str]:
    """Return the command lines of the processes that have this in their arguments or environment."""
    found: list[str] = []
    for path in Path("/proc").iterdir():
        try:
            line = (path / "cmdline").read_bytes() if path.name.isdecimal() else b""
            if line and mark.encode() in line + (path / "environ").read_bytes():
                found.append(line.replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


EDITOR = """\
    import asyncio, os, sys
    sys.path[:0] = {paths!r}
    from acp.client.connection import ClientSideConnection
    from tests.acp.editor import Editor, Message

    async def main():
        process = await asyncio.create_subprocess_exec(
            *{odin!r}, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 26
        )
        editor = Editor(["allow_once"])
        editor.agent = ClientSideConnection(editor, process.stdin, process.stdout, observers=[editor.observe])
        await editor.initialize()
        await editor.prompt(await editor.open(os.getcwd()), "Run it.")

    asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_an_editor_that_dies_leaves_no_process(workspace: Path) -> None:
    mark = os.urandom(6).hex()
    run = call("ExecuteCommand", {"command": f"sh -c 'sleep 600' {mark}"}, id="x1")
    with ScriptedServer([run]) as model:
        code = textwrap.dedent(EDITOR).format(paths=[path for path in sys.path if path], odin=ODIN)
        env = {**os.environ, **model.env("anthropic"), "ACP_TEST": mark}
        editor = subprocess.Popen([sys.executable, "-c", code], cwd=workspace, env=env, start_new_session=True)
        await until(lambda: any("sleep 600" in line and mark in line for line in list_processes(mark)))
        os.kill(editor.pid, signal.SIGKILL)
        editor.wait()
        await until(lambda: not list_processes(mark))


def test_only_the_protocol_is_written_to_standard_output(workspace: Path) -> None:
    """What a library prints goes to standard error."""
    code = textwrap.dedent("""\
        import os, sys, odin.acp.server
        real = odin.acp.server.AcpServer._initialize
        async def noisy(self, params):
            print("noise")
            os.write(1, b"more noise\\n")
            os.system("echo noise of a program")
            return await real(self, params)
        odin.acp.server.AcpServer._initialize = noisy
        from odin.commands.acp import run_acp
        sys.exit(run_acp([]))
    """)
    line = '{"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\n'
    run = subprocess.run(
        [sys.executable, "-c", code], input=line, cwd=workspace, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert run.returncode == 0
    assert run.stdout.count("\n") == 1 and run.stdout.startswith('{"jsonrpc":"2.0","id":1,"result"')
    assert run.stderr.count("noise") == 3
