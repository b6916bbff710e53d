"""A background process exchanges a folder of the project with a symlink to another place while tools work.

No tool call shows, changes or saves anything outside: it works on the folder that the policy judged, or fails.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.context.instructions import load_instructions
from odin.core.call_events import ToolEnded
from odin.core.op import Prompt, Redo, Rewind
from odin.core.tool import ToolOutput
from odin.policy.paths import open_for_reading
from odin.testing import call, reply, say
from tests.engine.conftest import Start
from tests.policy.policies import make_policy
from tests.soak import choose, soak
from tests.tools.toolbox import Toolbox
from tests.waiting import LIMIT_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="renameat2 exchanges names on Linux only")

SECRET = "the-secret-of-another-project"
OURS = "a-line-of-ours"
ROOT = Path(__file__).parents[2]
_AT_FDCWD, _EXCHANGE = -100, 2


class SwappedWorld:
    """`project/d` is a folder and `project/l` a link to `other`; `swap_in_background` exchanges them."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.other = project.parent / "other"
        for folder, text in ((project / "d", OURS), (self.other, SECRET)):
            for name in ("f.txt", "g.txt", "sub/f.txt", "sub/deeper/f.txt"):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(f"{text}\n")
        (self.other / "only-there.txt").write_text(f"{SECRET}\n")
        os.symlink(self.other, project / "l")
        self.before = self.state()

    def state(self) -> dict[str, tuple[str, int]]:
        """Return the content and inode of everything in the other project."""
        files = [path for path in sorted(self.other.rglob("*")) if path.is_file()]
        return {str(path): (path.read_text(), path.stat().st_ino) for path in files}

    @contextmanager
    def swap_in_background(self) -> Generator[None]:
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.safety.symlink_swapper", str(self.project), "d", "l"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert program.stdout is not None
        assert program.stdout.readline() == "swapping\n", program.communicate()[1]
        try:
            yield
        finally:
            program.communicate("stop\n", timeout=LIMIT_S)


@pytest.fixture
def world(workspace: Path) -> SwappedWorld:
    if missing := explain_no_exchange(workspace):
        pytest.skip(missing)
    return SwappedWorld(workspace)


def explain_no_exchange(folder: Path) -> str:
    """Return why no two names can be exchanged in this folder, or ""."""
    paths = [folder / "one", folder / "other"]
    for path in paths:
        path.touch()
    libc = ctypes.CDLL(None, use_errno=True)
    one, other = map(os.fsencode, paths)
    done = libc.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _EXCHANGE)
    for path in paths:
        path.unlink()
    return f"names cannot be exchanged here: {os.strerror(ctypes.get_errno())}" if done else ""


class JudgedToolbox(Toolbox):
    """Calls tools as the engine does: resolve, judge, run on the judged paths."""

    def __init__(self, world: SwappedWorld, **options: Any) -> None:
        super().__init__(world.project, **options)
        self._policy = make_policy(root=str(world.project), permission_mode="acceptEdits")

    async def attempt(self, name: str, **args: Any) -> ToolOutput | None:
        """Return None for a call that the policy does not allow."""
        from msgspec.structs import replace

        tool = self.tools[name]
        parsed = tool.parse(args)
        target = self._policy.resolve(tool.get_target(parsed))
        if self._policy.evaluate(name, tool.kind, target, "edit_mode").action != "allow":
            return None
        return await tool.run(parsed, replace(self.context(), resolved_paths=target.resolved))


MakeArgs = Callable[[int], dict[str, Any]]

TOOLS: dict[str, tuple[str, MakeArgs]] = {
    "Read": ("Read", lambda n: {"file_path": f"d/{'sub/deeper/' * (n % 2)}f.txt", "limit": n + 1}),
    "LS": ("LS", lambda n: {"path": "d/sub" if n % 2 else "d"}),
    "WriteFile": ("WriteFile", lambda n: {"file_path": f"d/sub/new/{n}/new.txt", "content": f"written {n}\n"}),
    "overwriting": ("WriteFile", lambda n: {"file_path": "d/g.txt", "content": f"written {n}\n"}),
    "AppendFile": ("AppendFile", lambda n: {"file_path": f"d/{'sub/' * (n % 2)}f.txt", "content": f"more {n}\n"}),
    "Delete": ("Delete", lambda n: {"paths": [f"d/sub/{'deeper/' * (n % 2)}f.txt"], "reason": "race"}),
    "Grep": ("Grep", lambda n: {"pattern": f"secret|ours|{n}", "path": "." if n % 2 else "d"}),
    "Grep of a file": ("Grep", lambda n: {"pattern": f"secret|ours|{n}", "path": "d/sub/f.txt"}),
    "Grep for names": ("Grep", lambda n: {"pattern": "secret", "path": ".", "output_mode": "files_with_matches"}),
    "Grep for counts": ("Grep", lambda n: {"pattern": "secret", "path": ".", "output_mode": "count"}),
    "Glob": ("Glob", lambda n: {"pattern": "**/*.txt", "path": "." if n % 2 else "d"}),
}


DIRECT = {kind: make(1).get("path") != "." for kind, (_, make) in TOOLS.items()}
"""Whether the calls name the exchanged folder, so that some of them must fail."""


async def race(world: SwappedWorld, kind: str, rounds: int, **options: Any) -> None:
    """Call a tool again and again while the folder is exchanged; check that nothing outside is shown or changed."""
    box = JudgedToolbox(world, **options)
    name, make = TOOLS[kind]
    shown: list[str] = []
    done = missed = 0
    with world.swap_in_background():
        for number in range(20 * rounds):
            if number >= rounds and done and (missed or not DIRECT[kind]):
                break
            output = await box.attempt(name, **make(number))
            missed += output is None or output.is_error
            if output is not None:
                shown.append(output.text + output.note + output.view)
                done += not output.is_error
    await box.runner.close()
    assert [text for text in shown if SECRET in text or "only-there" in text] == []
    if make(0).get("pattern") == "secret":
        assert [text for text in shown if not text.startswith("No matches found")] == []
        assert [text for text in shown if ": 0 " not in text] == []
    assert world.state() == world.before
    assert done, "no call succeeded, so nothing was tried"
    assert missed or not DIRECT[kind], "the folder was never exchanged at the wrong moment"


@soak
@pytest.mark.parametrize("kind", TOOLS)
async def test_a_folder_swap_exposes_nothing_outside(world: SwappedWorld, kind: str) -> None:
    await race(world, kind, choose(sample=40, full=300))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["Grep", "Glob"])
async def test_a_folder_swap_exposes_nothing_to_the_built_in_search(world: SwappedWorld, kind: str) -> None:
    await race(world, kind, 3, without_ripgrep=True)


async def race_session(start: Start, world: SwappedWorld, rounds: int) -> None:
    """Run a session that changes, reads, attaches and rewinds files while the folder is exchanged."""
    calls = [
        made
        for number in range(rounds)
        for made in (
            call("WriteFile", {"file_path": f"d/made-{number}.txt", "content": "x\n"}),
            call("Read", {"file_path": "d/f.txt", "limit": number + 1}),
            call("EditTool", {"file_path": "d/g.txt", "old_string": "-", "new_string": "-" * (2 + number % 2)}),
        )
    ]
    talk = await start(
        [reply(calls=calls[at : at + 30]) for at in range(0, len(calls), 30)] + [say("done")] * 9,
        yes=False,
        permission_mode="acceptEdits",
        config={"read_before_edit": False},
    )
    with world.swap_in_background():
        await talk.client.submit(Prompt("p", "look at @d/f.txt and @d/sub/", "edit_mode"))
        await talk.until_end("p")
    assert world.state() == world.before
    texts = [event.text + event.display for event in talk.all(ToolEnded)]
    assert len(texts) == len(calls)
    assert [text for text in texts if SECRET in text] == []
    assert SECRET not in str(talk.server.requests)
    if (world.project / "d").is_symlink():
        os.rename(world.project / "d", world.project / "l-again")
        os.rename(world.project / "l", world.project / "d")
    with world.swap_in_background():
        for number in range(rounds):
            await talk.client.submit(Rewind("p", chat=False, force=bool(number % 2)))
            await talk.client.submit(Redo(force=bool(number % 3)))
    assert world.state() == world.before


@soak
async def test_a_session_changes_rewinds_and_redoes_nothing_outside(start: Start, world: SwappedWorld) -> None:
    await race_session(start, world, choose(sample=10, full=100))


async def test_a_call_fails_if_its_folder_became_a_symlink_after_the_verdict(world: SwappedWorld) -> None:
    """The same without a race: the symlink appears between the verdict and the call, for every tool."""
    from msgspec.structs import replace

    policy = make_policy(root=str(world.project), permission_mode="acceptEdits")
    for name, args in (
        ("Read", {"file_path": "d/f.txt"}),
        ("Grep", {"pattern": "x", "path": "d"}),
        ("Grep", {"pattern": "x", "path": "d/f.txt"}),
        ("Glob", {"pattern": "*", "path": "d/sub"}),
        ("LS", {"path": "d"}),
        ("WriteFile", {"file_path": "d/new.txt", "content": "x"}),
        ("WriteFile", {"file_path": "d/f.txt", "content": "x"}),
        ("AppendFile", {"file_path": "d/f.txt", "content": "x"}),
        ("EditTool", {"file_path": "d/f.txt", "old_string": "e", "new_string": "x", "replace_all": True}),
        ("Delete", {"paths": ["d/f.txt"], "reason": "x"}),
    ):
        box = Toolbox(world.project)
        tool = box.tools[name]
        parsed = tool.parse(args)
        target = policy.resolve(tool.get_target(parsed))
        os.rename(world.project / "d", world.project / "kept")
        os.symlink(world.other, world.project / "d")
        output = await tool.run(parsed, replace(box.context(), resolved_paths=target.resolved))
        assert output.is_error, name
        assert "The path changed while it was being used" in output.text, (name, output.text)
        assert "Try again." in output.text
        os.unlink(world.project / "d")
        os.rename(world.project / "kept", world.project / "d")
    assert world.state() == world.before


async def test_a_file_that_became_a_symlink_is_neither_read_nor_written(world: SwappedWorld) -> None:
    from msgspec.structs import replace

    policy = make_policy(root=str(world.project), permission_mode="acceptEdits")
    path = world.project / "d/f.txt"
    for name, args in (
        ("Read", {"file_path": str(path)}),
        ("WriteFile", {"file_path": str(path), "content": "x"}),
        ("AppendFile", {"file_path": str(path), "content": "x"}),
        ("Grep", {"pattern": ".", "path": str(path)}),
    ):
        box = Toolbox(world.project)
        tool = box.tools[name]
        parsed = tool.parse(args)
        target = policy.resolve(tool.get_target(parsed))
        path.unlink()
        path.symlink_to(world.other / "f.txt")
        output = await tool.run(parsed, replace(box.context(), resolved_paths=target.resolved))
        assert output.is_error, name
        assert "The path changed while it was being used" in output.text, (name, output.text)
        path.unlink()
        path.write_text(OURS)
    assert world.state() == world.before


def test_instructions_that_became_a_symlink_are_not_read(world: SwappedWorld) -> None:
    path = world.project / "ODIN.md"
    path.write_text("Ours.")

    def open_late(resolved: str) -> int:
        path.unlink()
        path.symlink_to(world.other / "f.txt")
        return open_for_reading(resolved)

    found = load_instructions(str(world.project), open_file=open_late)
    assert SECRET not in found.text
    assert "cannot be read" in found.warning
