"""A session that cannot be opened: the terminal is given back, and why is readable on it, with an exit code."""

from pathlib import Path

import pytest

from odin.app.sessions import open_switcher
from odin.config import Options
from odin.core.op import SetTitle
from tests.terminal.emulator import terminal


async def test_another_process_has_the_session(workspace: Path) -> None:
    host = await open_switcher(Options(cwd=str(workspace), model="offline/planner"))
    try:
        await host.client.submit(SetTitle("Taken"))
        session = (await host.client.get_info()).session
        with terminal("--resume", session, cwd=workspace) as odin:
            odin.ends(1)
            assert odin.as_it_was
            told = " ".join(line.strip() for line in odin.scrollback)
            assert session in told
            assert "open" in told or "lock" in told
            assert "Traceback" not in told
    finally:
        await host.close()


@pytest.mark.slow
@pytest.mark.parametrize(("flag", "value", "code"), [("--model", "none/such", 2), ("--resume", "no-such-session", 2)])
def test_what_is_not_there(workspace: Path, flag: str, value: str, code: int) -> None:
    with terminal(flag, value, cwd=workspace) as odin:
        odin.ends(code)
        assert odin.as_it_was
        told = " ".join(line.strip() for line in odin.scrollback)
        assert value.partition("/")[0] in told
        assert "Traceback" not in told
