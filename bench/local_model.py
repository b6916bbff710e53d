"""Sixteen small everyday tasks for a small local model, each scored by the resulting files or the answer.

    python bench/local_model.py http://127.0.0.1:8080 [task …]

Runs Odin as a user does, in a fresh project folder for each task, and prints one line for each and the score. It takes
minutes and needs a model server on this machine, so it is not part of the tests.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

FILES = {
    "README.md": "# Shop\n\nA tiny shop.\n\nYou will recieve an invoice by mail.\n\nTest it with `python3 check.py`.\n",
    "requirements.txt": "flask\nredis\n",
    "config.json": '{\n  "debug": true,\n  "port": 8055,\n  "name": "shop"\n}\n',
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.1.4"\ndescription = "A tiny shop"\n',
    "settings.py": 'DATABASE = "shop.db"\nMAX_RETRIES = 7\nPAGE_SIZE = 25\n',
    "mathx.py": "def add(a, b):\n    return a + b\n\n\n"
    "def average(values):\n    return sum(values) / (len(values) + 1)\n",
    "check.py": "from mathx import average\n\nassert average([2, 4, 6]) == 4, average([2, 4, 6])\nprint('ok')\n",
    "shop/__init__.py": "",
    "shop/cart.py": "def calc_total(items):\n    # TODO: round to cents\n"
    "    return sum(item.price for item in items)\n\n\n"
    "def discount(total, percent):\n    return total - total * percent / 100\n\n\n"
    "def checkout(items, percent=0):\n    return discount(calc_total(items), percent)\n",
    "shop/client.py": "import time\n\n\ndef fetch(url, timeout=10):\n    # TODO: retry\n    print('debug', url)\n"
    "    time.sleep(0)\n    return (url, timeout)\n",
    "shop/billing.py": "class Invoice:\n    # TODO: add tax\n    def __init__(self, number, amount):\n"
    "        self.number = number\n        self.amount = amount\n",
    "scripts/report.py": "print('orders:', 60 * 70 + 17)\n",
}

Check = Callable[[Path, str], bool]


class Task(NamedTuple):
    name: str
    prompt: str
    check: Check


def _runs(folder: Path, code: str) -> bool:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=folder, capture_output=True, timeout=20, check=False).returncode == 0


def _read(folder: Path, name: str) -> str:
    path = folder / name
    return path.read_text() if path.is_file() else ""


def _others_untouched(folder: Path, *changed: str) -> bool:
    return all(_read(folder, name) == text for name, text in FILES.items() if name not in changed)


def _has_lines(folder: Path, name: str, expected: str) -> bool:
    """True if the file has the expected lines, ignoring blank ones, and all other files are unchanged."""
    lines = [line for line in _read(folder, name).splitlines() if line.strip()]
    return lines == [line for line in expected.splitlines() if line.strip()] and _others_untouched(folder, name)


def _renamed(folder: Path, answer: str) -> bool:
    return _has_lines(folder, "shop/cart.py", FILES["shop/cart.py"].replace("calc_total", "order_total"))


def _functions(folder: Path, name: str) -> list[ast.FunctionDef]:
    try:
        return [node for node in ast.parse(_read(folder, name)).body if isinstance(node, ast.FunctionDef)]
    except SyntaxError:
        return []


def _documented(folder: Path, answer: str) -> bool:
    functions = {node.name: node for node in _functions(folder, "shop/cart.py")}
    works = "from shop.cart import discount; assert discount(200, 10) == 180"
    return "discount" in functions and bool(ast.get_docstring(functions["discount"])) and _runs(folder, works)


def _fixed(folder: Path, answer: str) -> bool:
    names = [node.name for node in _functions(folder, "mathx.py")]
    passes = _runs(folder, "import runpy; runpy.run_path('check.py')")
    return names == ["add", "average"] and passes and _others_untouched(folder, "mathx.py")


def _listed(folder: Path, answer: str) -> bool:
    return all(name in answer for name in ("cart.py", "client.py", "billing.py")) and _others_untouched(folder)


def _added(folder: Path, answer: str) -> bool:
    """True if every function occurs once. An addition that duplicates an existing function fails."""
    names = sorted(node.name for node in _functions(folder, "mathx.py"))
    works = "import mathx as m; assert m.is_even(4) and not m.is_even(3) and m.add(1, 2) == 3; m.average([1])"
    return names == ["add", "average", "is_even"] and _runs(folder, works) and _others_untouched(folder, "mathx.py")


def _debug_off(folder: Path, answer: str) -> bool:
    try:
        config = json.loads(_read(folder, "config.json"))
    except ValueError:
        return False
    return config == {"debug": False, "port": 8055, "name": "shop"}


def _prints_hello(folder: Path, answer: str) -> bool:
    code = "import subprocess, sys; out = subprocess.check_output([sys.executable, 'hello.py'], text=True)\n"
    return _runs(folder, code + "assert out.strip() == 'Hello, Odin!', out") and _others_untouched(folder)


def _says(pattern: str) -> Check:
    return lambda folder, answer: bool(re.search(pattern, answer)) and _others_untouched(folder)


def _file(name: str, old: str, new: str) -> Check:
    return lambda folder, answer: _has_lines(folder, name, FILES[name].replace(old, new))


TASKS = (
    Task("read-value", "What is the value of MAX_RETRIES in settings.py?", _says(r"\b7\b")),
    Task("fix-typo", "Fix the typo 'recieve' in README.md.", _file("README.md", "recieve", "receive")),
    Task("rename", "Rename the function calc_total to order_total everywhere in shop/cart.py.", _renamed),
    Task(
        "add-line",
        "Add the line requests at the end of requirements.txt.",
        _file("requirements.txt", "redis\n", "redis\nrequests\n"),
    ),
    Task("create-file", "Create a file hello.py that prints Hello, Odin!", _prints_hello),
    Task("count", "How many TODO comments are there in the shop folder?", _says(r"(?i)\b(3|three)\b")),
    Task("run", "Run python3 scripts/report.py and tell me the number of orders it prints.", _says(r"4,?217")),
    Task("find", "In which file is the class Invoice defined?", _says(r"billing\.py")),
    Task("docstring", "Add a docstring to the function discount in shop/cart.py.", _documented),
    Task(
        "default",
        "Change the default value of timeout in shop/client.py from 10 to 30.",
        _file("shop/client.py", "timeout=10", "timeout=30"),
    ),
    Task("fix-bug", "python3 check.py fails. Find the bug in mathx.py and fix it.", _fixed),
    Task(
        "remove-line",
        "Remove the line with the debug print from shop/client.py.",
        _file("shop/client.py", "    print('debug', url)\n", ""),
    ),
    Task("list", "Which Python files are in the shop folder?", _listed),
    Task("add-function", "Add a function is_even(n) to mathx.py that returns True when n is even.", _added),
    Task("version", "Set the version in pyproject.toml to 1.2.0.", _file("pyproject.toml", "1.1.4", "1.2.0")),
    Task("json", "Set debug to false in config.json.", _debug_off),
)


def write_project(folder: Path) -> None:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def run_odin(port: int, folder: Path, prompt: str) -> str:
    """Return the answer that Odin prints. Everything is allowed, because the folder was created for this task."""
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "XDG_STATE_HOME")}
    env = {"HOME": str(folder.parent), **kept, "ODIN_LOCAL_PORTS": str(port)}
    command = [sys.executable, "-I", "-m", "odin", "-p", prompt, "--yes", "--max-turns", "16"]
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900, check=False)
    except subprocess.TimeoutExpired:
        return ""
    return done.stdout


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    port, wanted = urlsplit(sys.argv[1]).port or 80, set(sys.argv[2:])
    solved = tried = 0
    for task in TASKS:
        if wanted and task.name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place).resolve() / "project"
            write_project(folder)
            began = time.monotonic()
            answer = run_odin(port, folder, task.prompt)
            good = task.check(folder, answer)
        tried += 1
        solved += good
        print(f"{'solved' if good else 'FAILED':7} {task.name:13} {time.monotonic() - began:5.0f} s", flush=True)
    print(f"{solved} of {tried} solved")


if __name__ == "__main__":
    main()
