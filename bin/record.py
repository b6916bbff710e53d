"""Record a real offline run of Odin in a small project for the README, as text and as a picture.

The offline planner is deterministic, so `make docs-check` detects changes of the visible output.
"""

import html
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


def as_picture() -> str:
    """Return the lines as an SVG picture of a terminal window."""
    lines = [line for text in recorded() for line in _wrapped(text)]
    height = 20 * len(lines) + 66
    rows: list[str] = []
    for number, line in enumerate(lines):
        colour = "#8be9a8" if line.startswith("$ ") else "#d7dae0"
        rows.append(f'<text x="24" y="{64 + 20 * number}" fill="{colour}">{html.escape(line)}</text>')
    dots = "".join(
        f'<circle cx="{24 + 20 * index}" cy="22" r="6" fill="{colour}"/>'
        for index, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {height}" width="920" height="{height}">'
        f'<rect width="920" height="{height}" rx="10" fill="#1b1e24"/>{dots}'
        '<g font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14" xml:space="preserve">'
        f"{''.join(rows)}</g></svg>\n"
    )


def _wrapped(line: str, width: int = 104) -> list[str]:
    if len(line) <= width:
        return [line]
    cut = line.rfind(" ", 0, width)
    cut = cut if cut > 0 else width
    return [line[:cut], *_wrapped(line[cut:].lstrip(), width)]
