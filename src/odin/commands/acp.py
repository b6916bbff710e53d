"""`odin acp`: Odin as an agent of an editor, over standard input and output."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from odin.acp.connection import MAX_LINE_BYTES
from odin.acp.server import SETUP_ARGUMENT, AcpServer
from odin.commands.command_line import Parser, make_formatter
from odin.config import Options, get_current_folder, get_state_dir, load
from odin.core.errors import UsageError
from odin.policy.modes import parse_permission_mode
from odin.ui.pipes import PipeWriter, read_lines

if TYPE_CHECKING:
    from odin.host.manager import SessionManager
    from odin.remote.sessions import RemoteSessions

_EPILOG = """\
An editor that speaks the Agent Client Protocol starts this command. docs/editors.md shows what to write into the
settings of Zed, JetBrains, Neovim, Emacs and VS Code.
"""


def run_acp(argv: list[str]) -> int:
    parser = Parser(
        prog="odin acp",
        description="Work as an agent of an editor, with the Agent Client Protocol.",
        epilog=_EPILOG,
        formatter_class=make_formatter,
    )
    parser.add_argument("--model", default="", help="model of new sessions")
    parser.add_argument("--permission-mode", default=None, metavar="MODE", help="permission mode of new sessions")
    parser.add_argument(SETUP_ARGUMENT, action="store_true", help="connect a model in this terminal, and exit")
    args = parser.parse_args(argv)
    if args.setup:
        return _run_setup()
    if args.permission_mode:
        parse_permission_mode(args.permission_mode)
    if sys.stdin.isatty():
        raise UsageError("`odin acp` is started by an editor.", "docs/editors.md says how; `odin` starts the app.")
    options = Options(cwd=get_current_folder(), model=args.model, permission_mode=args.permission_mode, can_ask=True)
    return asyncio.run(_serve(options, _take_stdout()))


def _run_setup() -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(f"{SETUP_ARGUMENT} needs a terminal.", "`odin auth add PROVIDER` stores a key without one.")
    from odin.commands.tui import run_tui

    settings = load(get_current_folder(), os.environ).tui
    return asyncio.run(run_tui(Options(), settings, first="/setup", mode="", attaching=None))


def _take_stdout() -> int:
    """Return standard output for the protocol alone. What anything else writes there goes to standard error."""
    if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise UsageError("Standard output is closed.", "The editor reads it.")
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    return out


async def _serve(options: Options, out: int) -> int:
    output = PipeWriter(out)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    output.broken.add_done_callback(lambda _: stopped.set())
    async with AsyncExitStack() as stack:
        server = AcpServer(options, output, ManagerOpener(options, stack).open, _connect, _report)
        serving = asyncio.create_task(server.serve(read_lines(0, MAX_LINE_BYTES)))
        stopping = asyncio.create_task(stopped.wait())
        await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        serving.cancel()
        await asyncio.wait({serving})
    output.close()
    return 0


class ManagerOpener:
    """Opens the manager of all sessions with the first one: nothing of it is loaded before the editor is answered."""

    def __init__(self, options: Options, stack: AsyncExitStack) -> None:
        self._options = options
        self._stack = stack
        self._manager: SessionManager | None = None

    async def open(self) -> "SessionManager":
        if self._manager is None:
            from odin.host.manager import SessionManager
            from odin.server.local import LocalListener

            self._manager = SessionManager()
            state = Path(self._options.state_dir or get_state_dir(os.environ))
            await self._stack.enter_async_context(LocalListener(self._manager, self._options, state))
        return self._manager


async def _connect(log: Path, session: str) -> "RemoteSessions":
    from odin.commands.attach import connect_to_holder

    return await connect_to_holder(log, session)


def _report(error: Exception) -> str:
    """Log a bug and return what the editor is told."""
    from odin.app.crash_log import log_crash

    path = log_crash(error, os.environ)
    return f"Internal error ({type(error).__name__}). Details are in {path}; please attach them to a bug report."
