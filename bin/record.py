"""Record a real offline run of Odin in a small project for the documentation.

The offline planner is deterministic, so `make docs-check` detects changes of the visible output.
"""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

FILES = {
    "auth.py": (
        "import hashlib\n\n\ndef login(name, password):\n    # TODO: limit the number of tries\n"
        "    return find(name) == digest(password)\n\n\ndef digest(text):\n"
        "    # TODO: use a slow hash\n    return hashlib.sha256(text.encode()).hexdigest()\n"
    ),
    "shop.py": "from auth import login\n\n\ndef checkout(user, cart):\n    return sum(item.price for item in cart)\n",
    "README.md": "# Shop\n\nA small shop.\n",
}
COMMANDS = (
    ("-p", "Search for TODO in auth.py"),
    ("-p", "--continue", "--yes", "Replace TODO with FIXME"),
    ("-p", "Outline auth.py"),
    ("-p", "--mode", "ask", "Create an empty file notes.txt"),
)


@cache
def recorded() -> tuple[str, ...]:
    """Run the commands one after the other and return the terminal's lines."""
    lines: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve() / "shop"
        work.mkdir()
        for path, text in FILES.items():
            (work / path).write_text(text)
        env = {"PATH": os.environ["PATH"], "HOME": name, "ODIN_LOCAL_PORTS": "", "LANG": "C.UTF-8"}
        for command in COMMANDS:
            lines.append("$ odin " + " ".join(f'"{word}"' if " " in word else word for word in command))
            done = subprocess.run(
                [sys.executable, "-I", "-m", "odin", *command],
                cwd=work,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
                check=True,
            )
            lines += [*done.stdout.replace(str(work), "/home/you/shop").rstrip().split("\n"), ""]
    return tuple(lines[:-1])


def as_text() -> str:
    return "\n".join(("```console", *recorded(), "```"))
