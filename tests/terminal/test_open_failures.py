"""A session that cannot be opened: the terminal is restored and shows the reason."""

from pathlib import Path

import pytest

from odin.config import Options
from odin.core.op import SetTitle
from odin.host.workspace_sessions import open_workspace_sessions
from tests.terminal.emulator import open_terminal


async def test_locked_session_is_explained(workspace: Path) -> None:
    host = await open_workspace_sessions(Options(cwd=str(workspace), model="offline/planner"))
    try:
        await host.client.submit(SetTitle("Taken"))
        session = (await host.client.get_info()).session
        with open_terminal("--resume", session, cwd=workspace) as odin:
            odin.assert_exit_code(1)
            assert odin.is_restored
            told = " ".join(line.strip() for line in odin.scrollback)
            assert f"Session {session} is already open in another process" in told
            assert "Traceback" not in told
    finally:
        await host.close()


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "value", "code"), [("--model", "none/such", 2), ("--resume", "no-such-session", 2)])
def test_unknown_model_or_session_is_explained(workspace: Path, flag: str, value: str, code: int) -> None:
    with open_terminal(flag, value, cwd=workspace) as odin:
        odin.assert_exit_code(code)
        assert odin.is_restored
        told = " ".join(line.strip() for line in odin.scrollback)
        assert value.partition("/")[0] in told
        assert "Traceback" not in told
