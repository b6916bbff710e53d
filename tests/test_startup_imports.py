"""Limits on what is imported before the version is printed and before the first request is sent."""

import asyncio
import os
import platform
import subprocess
import sys
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

from odin.app.reply_modules import REPLY_MODULES
from odin.core.event_values import DiscardReason
from odin.core.provider import Chunk, Request, StopChunk, TextChunk, WaitChunk
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.engine.stream import ReplyStream, RetryPolicy
from odin.sandbox import supervisor
from odin.session.state import SessionState
from odin.testing import ScriptedServer, say
from tests.waiting import LIMIT_S, TimeLimit

SLOW_MODULES = {
    "_ssl",
    "html_to_markdown",
    "httpx2",
    "importlib.metadata",
    "inspect",
    "logging",
    "mcp",
    "prompt_toolkit",
    "pydantic",
    "pypdf",
    "redis",
    "rich",
    "sqlite3",
    "textual",
    "tree_sitter",
    "urllib.request",
    "yaml",
}
"""Heavy packages that are too slow to import before the first request."""

ODIN_MODULES_AT_VERSION = {"odin", "odin.entry", "odin.version"}

LATE_ODIN_MODULES = {
    "odin.api",
    "odin.engine.pipeline",
    "odin.lsp",
    "odin.policy.commands",
    "odin.providers.offline",
    "odin.providers.openai_chat",
    "odin.providers.whole_files",
    "odin.replay",
    "odin.testing",
    "odin.ui.plain",
    "odin.ui.stream_json",
    "odin.ui.tui",
    *REPLY_MODULES,
}
"""Parts of Odin that one headless prompt to Anthropic does not need, with what is in them."""


MAX_REQUEST_BYTES = 10_000
"""The limit for the first request: every session pays for it."""


def list_imports(*args: str, env: dict[str, str], cwd: Path) -> set[str]:
    """Run Odin, and return the modules that it imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-I", "-m", "odin", *args],
        capture_output=True,
        text=True,
        env=env,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        check=True,
        timeout=LIMIT_S,
    )
    return {line.rsplit("|", 1)[1].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}


def test_the_init_program_of_a_sandbox_imports_few_modules() -> None:
    folder = Path(supervisor.__file__).parent
    code = f"import sys; sys.path.append({str(folder)!r}); import init, view_mounter; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    found = {*done.stdout.split()}
    assert {"init", "lockdown", "renames", "view_mounter"} < found
    assert not found & {"typing", "collections", "contextlib", "enum", "functools", "re", "signal", "socket"}


def test_version_flag_imports_few_modules(workspace: Path) -> None:
    bare = subprocess.run(
        [sys.executable, "-X", "importtime", "-I", "-c", "import runpy"], capture_output=True, text=True, check=True
    )
    known = {line.rsplit("|", 1)[1].strip() for line in bare.stderr.splitlines() if line.startswith("import time:")}
    extra = list_imports("--version", env=dict(os.environ), cwd=workspace) - known - ODIN_MODULES_AT_VERSION
    assert not {name for name in extra if name.split(".")[0] in {"odin", "asyncio", "msgspec", "argparse"}}
    assert not extra & SLOW_MODULES


LAZY_MODULES_IN_USE = """
import sys, threading
from odin import entry
entry._import_lazily()
import argparse, inspect, platform, subprocess
assert "ast" not in sys.modules
seen = []
threads = [threading.Thread(target=lambda: seen.append(inspect.signature(entry.main).return_annotation)) for _ in "12"]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert seen == [int] * 2, seen
from textwrap import dedent
print(platform.system(), platform.python_version(), dedent("  x"), argparse.ArgumentParser(prog="p").format_usage())
"""

LIBRARIES_IN_USE = """
import sys
from odin import entry
entry._import_lazily()
entry._import_libraries()
late = {name for name in entry._LAZY_MODULES if type(sys.modules[name]).__name__ == "_LazyModule"}
import asyncio, concurrent.futures, msgspec, subprocess, time
asyncio.run(asyncio.sleep(0))
asyncio.log.logger.debug("not shown")
assert late == {name for name in entry._LAZY_MODULES if type(sys.modules[name]).__name__ == "_LazyModule"}
assert len(late) >= 8, late
assert subprocess.run(["echo", "run"], stdout=subprocess.PIPE).stdout == b"run\\n"
assert asyncio.base_events.ssl is None
from odin.providers import tls
assert asyncio.base_events.ssl is asyncio.selector_events.ssl is asyncio.sslproto.ssl is sys.modules["ssl"]
assert asyncio.sslproto.SSLProtocol.__module__ == "asyncio.sslproto"
assert type(msgspec.inspect.type_info(int)).__name__ == "IntType" and msgspec.json.schema(int) == {"type": "integer"}

async def fail(): raise ValueError("lost")
async def lose():
    task = asyncio.create_task(fail())
    await asyncio.wait([task])
asyncio.run(lose())
import logging
assert logging.getLogger("asyncio").hasHandlers() is asyncio.log.logger.hasHandlers() is False
assert logging.getLogger("own") is logging.getLogger("own") and logging.getLogger() is logging.root
logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s")
asyncio.log.logger.debug("shown %s", 1)
"""


def test_lazy_modules_work_as_usual(workspace: Path) -> None:
    done = subprocess.run([sys.executable, "-c", LAZY_MODULES_IN_USE], capture_output=True, text=True, check=False)
    expected = f"{platform.system()} {platform.python_version()} x usage: p [-h]"
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_libraries_with_lazy_parts_work_as_usual(workspace: Path) -> None:
    """An exception of a task that is never retrieved is logged with its traceback; so are enabled debug messages."""
    done = subprocess.run([sys.executable, "-c", LIBRARIES_IN_USE], capture_output=True, text=True, check=False)
    lines = done.stderr.splitlines()
    assert (done.returncode, done.stdout, lines[-1]) == (0, "", "asyncio DEBUG shown 1"), done.stderr
    assert (lines[0], lines[-2]) == ("Task exception was never retrieved", "ValueError: lost"), done.stderr


STOP_AT_FIRST_REQUEST = """
import os, sys
from odin import entry
entry._import_lazily()
entry._import_libraries()
from odin.providers.http import HttpClient
from odin.ui import print as headless

async def print_modules(*args, **options):
    print(*(name for name, module in sys.modules.items() if type(module).__name__ != "_LazyModule"), flush=True)
    os._exit(0)

HttpClient.send = print_modules
headless._HEAD_START_S = 60  # on a busy machine
entry.start()
"""


def test_no_unneeded_module_is_imported_before_the_first_request(workspace: Path) -> None:
    with ScriptedServer([]) as server:
        done = subprocess.run(
            [sys.executable, "-I", "-c", STOP_AT_FIRST_REQUEST, "-p", "hi"],
            capture_output=True,
            text=True,
            env={**os.environ, **server.env("anthropic")},
            cwd=workspace,
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=LIMIT_S,
        )
    modules = set(done.stdout.split())
    late = SLOW_MODULES | LATE_ODIN_MODULES
    assert {name for name in modules if any(name == item or name.startswith(f"{item}.") for item in late)} == set()


class LateObserver:
    """A call observer that does nothing. It is created, which imports its modules, while the model works."""

    def __init__(self) -> None:
        self.is_made = asyncio.Event()

    def make(self) -> "LateObserver":
        self.is_made.set()
        return self

    def on_call_started(self, call_id: str) -> None: ...

    def on_call_complete(self, call_id: str, name: str, args: object) -> None: ...

    async def rollback(self, reason: DiscardReason) -> None: ...


class SlowModel:
    """Replies after the observer has been created."""

    name = "slow"

    def __init__(self, observer: LateObserver) -> None:
        self._observer = observer

    async def stream(self, request: Request) -> AsyncIterator[Chunk]:
        yield WaitChunk("waiting_headers")
        assert not self._observer.is_made.is_set()
        await self._observer.is_made.wait()
        yield TextChunk("hi")
        yield StopChunk("end_turn")

    async def close(self) -> None: ...


async def test_reply_modules_are_imported_while_the_model_works() -> None:
    observer = LateObserver()
    stream = ReplyStream(Recorder(None, SessionState("s"), EventBus()), "", observer.make)
    async with TimeLimit():
        reply = await stream.run(
            SlowModel(observer), Request("m", ()), RetryPolicy(), lambda usage, *, estimated=False: None
        )
    assert reply.message.text == "hi"
    assert [name for name in REPLY_MODULES if find_spec(name) is None] == []


def test_first_request_is_small_for_every_api(workspace: Path) -> None:
    """The bytes of the first request in a git repository, for each API."""
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    with ScriptedServer([say("hi")], repeat=True) as server:
        models = server.env("anthropic"), server.env("openai", "gpt-5"), server.env("openai", "a-long-model-name-32b")
        for model in models:
            list_imports("-p", "Fix the bug in mean()", env={**os.environ, **model}, cwd=workspace)
    assert [len(seen.body) for seen in server.requests if len(seen.body) > MAX_REQUEST_BYTES] == []
    assert len(server.requests) == 3
