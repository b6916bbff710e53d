"""The everyday commands of `tests/safety/tables/typical.json`, run in a real project: how often is the user asked?"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked
from odin.core.event import TurnEnded
from odin.core.op import Answer, Prompt
from odin.testing import call, say

from .conftest import Start

COMMANDS = [
    case["command"]
    for case in json.loads((Path(__file__).parents[1] / "safety" / "tables" / "typical.json").read_text())
]
_TOOLS = {
    # Installed in the home of the developer, which the tests do not use.
    "RUSTUP_HOME": str(Path.home() / ".rustup"),
    "CARGO_HOME": str(Path.home() / ".cargo"),
    "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # the developer's plugins take longer than the tests
}

_PROJECT = r"""
set -e
git init -q -b main .; git config user.name N; git config user.email n@example.org
mkdir -p src tests docs build scripts
echo 'print("hi")' > src/a.py; echo '# hi TODO' > README.md; printf 'src/a.py\n' > list.txt
printf 'import unittest\n\n\nclass T(unittest.TestCase):\n    def test_b(self):\n        pass\n' > tests/test_a.py
printf 'test:\n\tpython3 -m unittest discover -s tests\nbuild:\n\tmkdir -p build; cp src/a.py build/\n' > Makefile
printf '#!/bin/sh\nmkdir -p build\necho built > build/out.txt\n' > scripts/build.sh; chmod +x scripts/build.sh
echo '{"name":"p","scripts":{"test":"node --test","lint":"node -e 1","build":"cp src/a.py build/b.js"}}' > package.json
mkdir -p node_modules/typescript node_modules/.bin; ln -s ../typescript/tsc node_modules/.bin/tsc
echo '{"name":"typescript","version":"1.0.0","bin":{"tsc":"tsc"}}' > node_modules/typescript/package.json
printf '#!/usr/bin/env node\nconsole.log("ok")\n' > node_modules/typescript/tsc; chmod +x node_modules/typescript/tsc
printf '[package]\nname = "p"\nversion = "0.1.0"\nedition = "2021"\n[lib]\npath = "src/lib.rs"\n' > Cargo.toml
printf '#[test]\nfn it_works() {}\n' > src/lib.rs
printf 'build/\ntarget/\n__pycache__/\n.venv*/\nnode_modules/\n' > .gitignore
echo o > build/x.o; sqlite3 x.db 'create table t(a)'; (cd docs; echo d > d.md); zip -q x.zip README.md
git add -A; git commit -qm first; git branch feature/x; echo more >> README.md; git commit -qam second
echo edit >> src/a.py
"""


async def count_questions(start: Start, workspace: Path, **options: Any) -> tuple[set[str], set[str]]:
    """Return the commands that are asked about before they run, and those that are asked about when they have."""
    subprocess.run(["bash", "-c", _PROJECT], cwd=workspace, check=True)
    calls = (call("Bash", {"command": command, "timeout": 30_000}) for command in COMMANDS)
    script = [turn for one in calls for turn in (one, say("ok"))]
    config = {"verify": {"mode": "off"}, **options.pop("config", {})}
    talk = await start(script, yes=False, can_ask=True, config=config, env=_TOOLS, **options)
    before: set[str] = set()
    after: set[str] = set()
    for number, command in enumerate(COMMANDS):
        await talk.client.submit(Prompt(f"p{number}", "go", "edit_mode"))
        async for envelope in talk.remaining():
            event = envelope.event
            if isinstance(event, PermissionAsked):
                (before if event.effects is None else after).add(command)
                choice = "deny" if event.effects is None else "allow_once"
                await talk.client.submit(Answer(event.ask_id, choice))
            if isinstance(event, TurnEnded) and event.id == f"p{number}":
                break
    return before, after


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("options", "most_before", "most"),
    [
        ({}, 16, 58),
        ({"permission_mode": "auto"}, 16, 16),
        ({"config": {"sandbox": {"backend": "landlock"}}}, 60, 60),
    ],
    ids=["default", "auto", "landlock"],
)
async def test_everyday_commands_ask_rarely(
    start: Start, workspace: Path, options: dict[str, Any], most_before: int, most: int
) -> None:
    before, after = await count_questions(start, workspace, **options)
    told = json.dumps({"before": sorted(before), "after": sorted(after)}, indent=1)
    assert len(before) <= most_before, told
    assert len(before | after) <= most, told
    for quiet in ("python3 -m pytest -q", "mypy src", "ruff check .", "git status"):
        assert quiet not in before | after
