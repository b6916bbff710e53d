"""`odin onboard`: make the workspace of the gateway, with files that say who Odin is there and what it looks at."""

import os
from pathlib import Path

from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import load
from odin.config.files import write_atomically
from odin.config.paths import make_environment
from odin.core.errors import UsageError
from odin.gateway.heartbeat import HEARTBEAT_FILE, TEMPLATE

_FILES = {
    "AGENTS.md": """\
# Workspace

This folder is where chats, schedules and the heartbeat of `odin gateway` work.

- HEARTBEAT.md: what to look at from time to time
- memory/: notes about what lasts; read them when they could matter
- cron/: scripts that schedules run (`odin cron add --command 'sh cron/NAME.sh'`)
""",
    ".odin/SOUL.md": "<!-- How Odin speaks and behaves here, such as: brief, friendly, no emoji. -->\n",
    ".odin/USER.md": "<!-- Who you are, and what Odin should know about you: name, language, habits. -->\n",
    ".odin/IDENTITY.md": "<!-- Who Odin is here: its name and its job. -->\n",
    HEARTBEAT_FILE: TEMPLATE,
    "memory/MEMORY.md": "<!-- Notes that last. -->\n",
}
_FOLDERS = (".odin/skills", "cron")


def run_onboard(argv: list[str]) -> int:
    parser = Parser(
        prog="odin onboard",
        description="Make the workspace of the gateway. Files that exist stay as they are.",
        epilog="The folder is gateway.workspace in odinconfig.json, by default ~/odin.\n",
        formatter_class=make_formatter,
    )
    parser.parse_args(argv)
    workspace = Path(make_environment(os.environ, "/").expand_home(load("/", os.environ).read_gateway().workspace))
    made: list[str] = []
    try:
        workspace.mkdir(parents=True, mode=0o700, exist_ok=True)
        for name in _FOLDERS:
            (workspace / name).mkdir(parents=True, exist_ok=True)
        for name, text in _FILES.items():
            path = workspace / name
            path.parent.mkdir(exist_ok=True)
            if not os.path.lexists(path):
                write_atomically(path, text.encode())
                made.append(name)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise UsageError(f"{workspace} cannot be made: {why}.", "Set gateway.workspace to another folder.") from error
    lines = [f"{workspace}: made {', '.join(made)}." if made else f"{workspace} is complete."]
    lines += [
        f"1. Write into .odin/SOUL.md, USER.md and IDENTITY.md, then let Odin read them: `odin trust add {workspace}`.",
        "2. Set up a channel in odinconfig.json, and start `odin gateway`.",
        "3. `odin gateway pair --owner` pairs you; `odin status` shows how it goes.",
    ]
    return write_output("".join(f"{line}\n" for line in lines))
