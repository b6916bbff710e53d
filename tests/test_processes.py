"""Every process starts through one door: the runner, `run_own` or the user's programs, each with a named profile."""

import ast
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, get_args

import pytest

from odin.app.git import open_git
from odin.app.git_diff import list_changed_files
from odin.config import load
from odin.config.paths import make_environment
from odin.core.event import ContextAdded
from odin.core.op import RunUserShell
from odin.core.profile import ProcessProfile, ProfileName
from odin.core.timing import Timing
from odin.host.stored_sessions import open_project_sessions
from odin.sandbox.runner import CommandSandbox, ProcessRunner
from odin.sandbox.terminal import make_terminal_programs
from odin.testing import call, say
from tests.engine.conftest import Start, start
from tests.pdfs import pdf
from tests.sources import PACKAGE, list_modules, parse
from tests.table import each

__all__ = ["start"]

STARTERS = {
    "sandbox/process.py",
    "sandbox/supervisor.py",
    "sandbox/init.py",
    "sandbox/terminal.py",
    "fleet/worker.py",
    "config/token_renewal.py",
}
"""The only modules that start processes; the last two start Odin itself."""

FORBIDDEN = re.compile(
    r"(?:os|posix|libc|_LIBC)\.(?:exec\w+|spawn\w+|posix_spawnp?|v?fork|forkpty|system|popen|startfile)"
    r"|subprocess\.(?!(?:DEVNULL|PIPE|STDOUT)$).+"
    r"|asyncio\.(?:create_subprocess_\w+|subprocess\..+)"
    r"|(?:pty|webbrowser|multiprocessing|_posixsubprocess)(?:\..+)?"
    r"|concurrent\.futures\.(?:process|ProcessPoolExecutor).*"
    r"|.*\.(?:Popen|ProcessPoolExecutor|subprocess_(?:exec|shell)|create_subprocess_(?:exec|shell)|execv\w*|forkpty)"
)
"""Matches the full names of what starts a process."""


def find_starts(tree: ast.AST) -> Iterator[str]:
    """Yield the full names of what can start a process: used, imported, or looked up by a constant name."""
    names: dict[str, str] = {}
    nodes = [node for node in ast.walk(tree) if isinstance(node, _RELEVANT)]
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name for alias in node.names if alias.asname}
            yield from (alias.name for alias in node.names if is_forbidden(alias.name))
        elif isinstance(node, ast.ImportFrom) and node.module:
            full = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            names |= full
            yield from (name for name in full.values() if is_forbidden(name))
    for node in nodes:
        name = spell(node, names) if isinstance(node, ast.Attribute) else ""
        if isinstance(node, ast.Call):
            called = spell(node.func, names).rpartition(".")[2]
            words = [word.value for word in node.args if isinstance(word, ast.Constant)]
            if called == "getattr" and words:
                name = f"{spell(node.args[0], names)}.{words[0]}"
            elif called in ("import_module", "__import__") and words:
                name = f"{words[0]}.?"
        if name and is_forbidden(name):
            yield name


_RELEVANT = ast.Import, ast.ImportFrom, ast.Attribute, ast.Call


@cache
def is_forbidden(name: str) -> bool:
    return FORBIDDEN.fullmatch(name) is not None


def spell(node: ast.AST, names: dict[str, str]) -> str:
    """Return the full name of an expression such as `os.path.join`, with imported names replaced."""
    if isinstance(node, ast.Attribute):
        return f"{spell(node.value, names)}.{node.attr}"
    return names.get(node.id, node.id) if isinstance(node, ast.Name) else "?"


def test_only_the_door_starts_processes() -> None:
    paths = {path.relative_to(PACKAGE).as_posix(): path for path in list_modules()}
    found = {name: sorted(set(find_starts(parse(path)))) for name, path in paths.items()}
    assert {name: starts for name, starts in found.items() if starts and name not in STARTERS} == {}
    assert [name for name in STARTERS if not found[name]] == [], "it starts nothing: take it out of the table"
    ctypes = [name for name, path in paths.items() if re.search(r"^\s*(?:import|from) ctypes", path.read_text(), re.M)]
    callers = ["sandbox/lockdown.py", "sandbox/renames.py", "sandbox/views/open_tree.py", "session/lock.py"]
    assert ctypes == callers, "C functions can start processes"


@each(
    "source",
    [
        "import subprocess\nsubprocess.run(['x'])",
        "import subprocess as s\ns.Popen(['x'])",
        "from subprocess import check_output as ask",
        "def late():\n    import subprocess\n    return subprocess.call('x', shell=True)",
        "import asyncio\nasyncio.create_subprocess_shell('x')",
        "from asyncio import create_subprocess_exec",
        "import asyncio\nasyncio.get_running_loop().subprocess_exec(p, 'x')",
        "from asyncio import subprocess\nsubprocess.create_subprocess_exec('x')",
        "import os\nos.execvp('x', ['x'])",
        "import os as o\no.fork()",
        "from os import posix_spawn",
        "import os\nos.spawnl(0, 'x')",
        "import os\nos.system('x')",
        "import os\ngetattr(os, 'popen')('x')",
        "import pty\npty.spawn('x')",
        "import webbrowser",
        "from multiprocessing import Process",
        "import concurrent.futures\nconcurrent.futures.ProcessPoolExecutor()",
        "from concurrent.futures import ProcessPoolExecutor",
        "import importlib\nimportlib.import_module('subprocess')",
        "__import__('pty')",
        "libc.execve(b'x')",
    ],
)
def test_a_start_beside_the_door_is_found(source: str) -> None:
    assert list(find_starts(ast.parse(source))) != []


def test_other_code_is_no_start() -> None:
    source = (
        "import os, subprocess, platform\nsubprocess.DEVNULL\nplatform.system()\nsessions.fork('x')\nos.open('x', 0)"
    )
    assert list(find_starts(ast.parse(source))) == []


RUNNER_METHODS = ("run", "capture", "run_with_input", "start_detached", "start_connected")
TERMINAL_METHODS = ("run", "capture", "open_page")

PROFILES: dict[str, dict[str, set[str]]] = {
    "app/command_shell.py": {"profile": {"read"}},
    "app/git.py": {"profile": {"git"}},
    "commands/doctor.py": {"OWN": {"own"}},
    "commands/mcp.py": {"TERMINAL": {"terminal"}},
    "engine/user_shell.py": {"UNSANDBOXED": {"none"}},
    "fleet/eval_suite.py": {"PROJECT": {"project"}},
    "fleet/session_run.py": {"PROJECT": {"project"}},
    "gateway/schedules.py": {"profile": {"project"}},
    "hooks/session_hooks.py": {"start.profile": {"project", "read", "none"}},
    "lsp/server.py": {"launch.profile": {"server", "none"}},
    "mcp/transport.py": {"self._start.profile": {"server", "none"}},
    "sandbox/background.py": {"request.profile": {"project", "granted", "none"}},
    "session/search.py": {"OWN": {"own"}},
    "tools/atomic_write.py": {"OWN": {"own"}},
    "tools/commands.py": {"ctx.profile": {"read", "project", "granted", "none"}},
    "tools/documents.py": {"READ": {"read"}},
    "tools/file_finder.py": {"OWN": {"own"}},
    "tools/listing.py": {"OWN": {"own"}},
    "tools/search.py": {"OWN": {"own"}},
    "tools/web_page.py": {"READ": {"read"}},
    "ui/plain/external_editor.py": {"TERMINAL": {"terminal"}},
    "ui/tui/composer/external_text.py": {"TERMINAL": {"terminal"}},
}
"""Who starts processes: the expressions that give the profile, and the profiles that these can be."""


def find_profiles(tree: ast.AST) -> Iterator[str]:
    """Yield the expression of the profile of every call, or of a `partial`, that starts a process."""
    given = {
        id(node): [ast.unparse(word.value) for word in call_node.keywords if word.arg == "profile"]
        for call_node in ast.walk(tree)
        if isinstance(call_node, ast.Call)
        for node in (call_node.func, *call_node.args[:1])
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "run_own" and isinstance(node.ctx, ast.Load):
            yield "OWN"
        elif isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value).rpartition(".")[2].removeprefix("_")
            if node.attr == "open_page" or (node.attr in TERMINAL_METHODS and owner == "programs"):
                yield "TERMINAL"
            elif node.attr in RUNNER_METHODS and (owner == "runner" or node.attr != "run"):
                yield from given.get(id(node)) or ["?"]


def test_every_process_is_listed_with_its_profile() -> None:
    modules = {path.relative_to(PACKAGE).as_posix(): set(find_profiles(parse(path))) for path in list_modules()}
    listed = {name: set(expressions) for name, expressions in PROFILES.items()}
    assert {name: found for name, found in modules.items() if found} == listed
    used = {name for entry in PROFILES.values() for names in entry.values() for name in names}
    assert used <= set(get_args(ProfileName))


class RecordingRunner(ProcessRunner):
    """Records the program and the profile of every process, and whether it runs in a sandbox."""

    started: ClassVar[set[tuple[str, str, bool]]] = set()

    async def _choose_sandbox(self, command: str | Sequence[str], profile: ProcessProfile) -> CommandSandbox | None:
        sandbox = await super()._choose_sandbox(command, profile)
        program = command if isinstance(command, str) else Path(command[0]).name
        self.started.add((program, profile.name, sandbox is not None))
        return sandbox


class ProcessAudit:
    """Notes what the interpreter itself starts. An audit hook cannot be removed, so it is switched off."""

    def __init__(self) -> None:
        self.is_on = True
        self.started: list[str] = []
        sys.addaudithook(self._note)

    def _note(self, event: str, args: tuple[Any, ...]) -> None:
        if self.is_on and event == "subprocess.Popen":
            self.started.append(" ".join(map(str, args[1])))
        elif self.is_on and event in ("os.posix_spawn", "os.exec", "os.fork", "os.forkpty", "os.system", "os.spawn"):
            self.started.append(event)


async def test_each_program_of_a_session_runs_under_its_profile(
    start: Start, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside the sandbox, the interpreter starts nothing but these programs, the watchdog and the sandbox itself."""
    subprocess.run(["git", "init", "-q", workspace], check=True)
    (workspace / "a.pdf").write_bytes(pdf("some text"))
    RecordingRunner.started.clear()
    for module in ("odin.app.compose", "odin.app.process_services", "odin.app.git"):
        monkeypatch.setattr(f"{module}.ProcessRunner", RecordingRunner)
    script = [
        call("Bash", {"command": "touch made", "description": "make it"}),
        call("Grep", {"pattern": "needle"}),
        call("Glob", {"pattern": "*.pdf"}),
        call("Read", {"file_path": "a.pdf"}),
        say("Done."),
        call("Bash", {"command": "ls made", "description": "list it"}),
        say("Seen."),
    ]
    hook = {"type": "command", "command": "true hook"}
    theirs = {"UserPromptSubmit": [{"command": "true their hook"}]}
    (workspace / "odinconfig.json").write_text(json.dumps({"hooks": theirs}))
    servers = {"mcpServers": {"theirs": {"command": "false", "args": ["server"]}}}
    (workspace / ".mcp.json").write_text(json.dumps(servers))
    (workspace / ".gitignore").write_text("odinconfig.json\n.mcp.json\n.gitignore\n")
    mine = {"mine": {"command": "true", "args": ["server"]}}
    audit = ProcessAudit()
    try:
        config = {"hooks": {"UserPromptSubmit": [{"hooks": [hook]}]}, "mcp": mine, "mcp_limits": {"wait_s": 60}}
        talk = await start(script, config=config, trust=True, timing=Timing(mcp_retry_pauses_s=(0.0, 0.0)))
        assert (await talk.say("Go.")).text == "Done."
        assert (await talk.say("Look.", "ask_mode")).text == "Seen."
        await talk.client.submit(RunUserShell("s", "echo mine"))
        await talk.until(ContextAdded)
        await talk.client.find_files("made")
        async with open_git(load(str(workspace), os.environ), make_environment(cwd=str(workspace))) as git:
            assert [file.path for file in await list_changed_files(git, str(workspace))] == ["a.pdf", "made"]
        open_project_sessions(str(workspace)).search("needle")
        assert await make_terminal_programs(await talk.client.get_info(), os.environ).run(["true", "editor"]) == 0
    finally:
        audit.is_on = False
    assert RecordingRunner.started == {
        ("true hook", "none", False),
        ("true their hook", "project", True),
        ("true", "none", False),
        ("false", "server", True),
        ("touch made", "project", True),
        ("ls made", "read", True),
        ("rg", "own", False),
        (Path(sys.executable).name, "read", True),
        ("echo mine", "none", False),
        ("git", "git", True),
    }
    own = r".*/rg --no-config .*|.*sh -c (?:true hook|echo mine)|.*/true editor|true server"
    machinery = r"(?s:/bin/sh -c .* odin-watchdog .*)|.*/bwrap .*|.*python\S* .*odin.*sandbox.*"
    assert [argv for argv in audit.started if not re.fullmatch(f"{own}|{machinery}", argv)] == []
