"""Paths through symbolic links: the tools act on exactly the file that the policy judged.

Each path is compared with the kernel's resolution: inside the project a call works on that file; outside it is denied,
because no user can be asked. Removing `..` before following links would judge many of these paths inside the project
and use them outside.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import ToolEnded
from odin.core.op import Prompt
from odin.core.tool import ResolvedPath, Target
from odin.policy.paths import follow_links, resolve_given
from odin.testing import call, reply, say
from tests.engine.conftest import Start
from tests.policy.policies import make_policy
from tests.table import each
from tests.tools.toolbox import Toolbox

SECRET = "the-secret-of-another-project"
OURS = "a-line-of-ours"


class World:
    """A project full of links beside another project. Both have the same files; only one of them may be read."""

    def __init__(self, project: Path) -> None:
        self.project = project
        self.other = project.parent / "other"
        for folder, text in ((self.project, OURS), (self.other, SECRET)):
            for name in (
                "f.txt",
                "x/f.txt",
                "x/y/f.txt",
                "x/y/z/f.txt",
                "other/f.txt",
                "other/x/f.txt",
                "x/other/f.txt",
            ):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(f"{text}\n")
        package = self.project / "node_modules/.pnpm/foo@1/node_modules/foo"
        package.mkdir(parents=True)
        (package / "f.txt").write_text(f"{OURS}\n")
        (self.project / "node_modules/.pnpm/other").mkdir()
        (self.project / "node_modules/.pnpm/other/f.txt").write_text(f"{OURS}\n")
        for name, target in (
            ("deep", "x/y/z"),
            ("chain", "chain-2"),
            ("chain-2", "./chain-3"),
            ("chain-3", "x/../deep"),
            ("up", ".."),
            ("x/up", "../.."),
            ("here", "."),
            ("absolute", f"{self.project}/x/y/z"),
            ("absolute-other", f"{self.other}/x/y"),
            ("file", "x/f.txt"),
            ("file-other", f"{self.other}/f.txt"),
            ("dangling", f"{self.other}/made.txt"),
            ("node_modules/foo", ".pnpm/foo@1/node_modules/foo"),
            ("loop", "loop"),
            ("loop-2", "x/../loop-3"),
            ("loop-3", "loop-2"),
        ):
            (self.project / name).symlink_to(target)
        (self.other / "back").symlink_to(f"{self.project}/f.txt")
        (self.project / "out").symlink_to(self.other)
        self.before = self.state()

    def state(self) -> dict[str, str]:
        files = [path for path in sorted(self.other.rglob("*")) if path.is_file() or path.is_symlink()]
        return {str(path): os.readlink(path) if path.is_symlink() else path.read_text() for path in files}


PATHS = (
    # `..` after a link to a deeper folder; if links were ignored, these paths would lead to the other project
    "deep/../../other/f.txt",
    "chain/../../other/f.txt",
    "absolute/../../other/f.txt",
    "x/../deep/../../other/f.txt",
    "here/deep/../../../other/f.txt",
    "node_modules/foo/../../../other/f.txt",
    # the same with more or fewer `..`
    "deep/../../../other/f.txt",
    "deep/../../../../other/f.txt",
    "deep/../../../x/../other/f.txt",
    "deep/../../../../../../../../../../../../../..{other}/f.txt",
    "./deep/.././../../other/x/f.txt",
    "node_modules/foo/../../../../../other/f.txt",
    "node_modules/foo/../../../../../../other/f.txt",
    "node_modules/foo/../../../../../../../other/f.txt",
    # chains, links to absolute paths, links in the middle
    "chain/f.txt",
    "chain/../f.txt",
    "chain/../../../../other/f.txt",
    "x/../chain/../../../../other/f.txt",
    "absolute/../f.txt",
    "absolute/../../../../other/f.txt",
    "absolute-other/f.txt",
    "absolute-other/../f.txt",
    "absolute-other/../../f.txt",
    "absolute-other/../../../project/f.txt",
    "x/up/other/f.txt",
    "x/up/../f.txt",
    "x/up/project/f.txt",
    "up/other/f.txt",
    "up/project/f.txt",
    "up/project/deep/../../../other/f.txt",
    "here/here/deep/../../../../other/f.txt",
    "out/f.txt",
    "out/../f.txt",
    "out/../project/f.txt",
    "out/back",
    # links to files, trailing slashes, doubled slashes
    "file",
    "file-other",
    "dangling",
    "x//y///f.txt",
    "{project}/deep/../../../other//f.txt",
    "//{project}/deep/../../../../other/f.txt",
    # missing components
    "missing/../f.txt",
    "missing/../deep/../../../../other/f.txt",
    "missing/../up/other/f.txt",
    # the same folders by other names
    "/proc/self/root{other}/f.txt",
    "/proc/self/root{project}/f.txt",
    "/proc/self/cwd/{other}/f.txt",
    "/dev/fd/../root{other}/f.txt",
    "/proc/self/fd/../root{project}/deep/../../../../other/f.txt",
    "~/../{other}/f.txt",
)


def resolve_by_kernel(path: str) -> str:
    """Resolve a path as the kernel does; missing components are kept."""
    return os.path.realpath(path)


def format_path(world: World, path: str) -> str:
    return path.format(project=world.project, other=world.other)


def make_absolute(world: World, path: str) -> str:
    full = os.path.expanduser(format_path(world, path))
    return full if full.startswith("/") else f"{world.project}/{full}"


def is_inside(world: World, path: str) -> bool:
    return resolve_by_kernel(make_absolute(world, path)).startswith(f"{world.project}/")


@pytest.fixture
def world(workspace: Path) -> World:
    return World(workspace)


MakeArgs = Callable[[str], dict[str, Any]]
"""Returns the arguments of a call for a path."""


def find_folder(path: str) -> str:
    return os.path.dirname(path) or "."


READERS: dict[str, MakeArgs] = {
    "Read": lambda path: {"file_path": path},
    "Grep": lambda path: {"pattern": "secret|ours", "path": path},
    "Grep of the folder": lambda path: {"pattern": "secret|ours", "path": f"{find_folder(path)}/"},
    "LS": lambda path: {"path": find_folder(path)},
    "Glob": lambda path: {"pattern": "f.*", "path": find_folder(path)},
    "Glob by its pattern": lambda path: {"pattern": f"{os.path.dirname(path)}/f.*"},
}

EDITORS: dict[str, MakeArgs] = {
    "WriteFile": lambda path: {"file_path": path, "content": "written\n"},
    "EditTool": lambda path: {"file_path": path, "old_string": "e", "new_string": "EDITED", "replace_all": True},
    "MultiEditTool": lambda path: {
        "file_path": path,
        "edits": [{"old_string": "-", "new_string": "+", "replace_all": True}],
    },
    "AppendFile": lambda path: {"file_path": path, "content": "appended\n"},
    "Delete": lambda path: {"paths": [path], "reason": "test"},
}


def list_cases(world: World, tools: dict[str, MakeArgs]) -> Iterator[tuple[str, str, Any]]:
    """Yield tool, path and call: for files every path as written and as an absolute path, for folders one of them."""
    for label, make in tools.items():
        seen: set[str] = set()
        for at, given in enumerate(PATHS):
            both = dict.fromkeys((format_path(world, given), make_absolute(world, given)))
            for path in both if label not in READERS or label == "Read" else list(both)[at % 2 :][:1]:
                args = repr(make(path))
                if args not in seen and (label != "Glob by its pattern" or path.startswith("/")):
                    seen.add(args)
                    yield label, path, call(label.split(" ")[0], make(path))


async def run_calls(
    start: Start, world: World, tools: dict[str, MakeArgs], mode: str, **options: Any
) -> list[tuple[Any, ...]]:
    """Let the model make all calls in one reply. Return tool, path and result of each."""
    wanted = list(list_cases(world, tools))
    config = {"read_before_edit": False, "speculate": False, **options.pop("config", {})}
    script = [reply(calls=[made for _, _, made in wanted]), say("done")]
    talk = await start(script, config=config, yes=False, **options)
    await talk.client.submit(Prompt("p", "go", mode))  # pyright: ignore[reportArgumentType]
    await talk.until_end("p")
    return [(label, path, ended) for (label, path, _), ended in zip(wanted, talk.all(ToolEnded), strict=True)]


@pytest.mark.parametrize(
    ("mode", "options"),
    [
        ("edit_mode", {}),
        pytest.param("ask_mode", {}, marks=pytest.mark.slow),
        pytest.param("edit_mode", {"permission_mode": "dontAsk"}, marks=pytest.mark.slow),
        ("edit_mode", {"config": {"restrict_to_workspace": True}}),
    ],
    ids=["default", "ask mode", "dontAsk", "restrict_to_workspace"],
)
async def test_reads_use_only_paths_that_the_policy_allowed(
    start: Start, world: World, mode: str, options: dict[str, Any]
) -> None:
    wrong: list[Any] = []
    for label, path, ended in await run_calls(start, world, READERS, mode, **options):
        target = path if label in ("Read", "Grep") else find_folder(path)
        full = make_absolute(world, target)
        inside = resolve_by_kernel(full) == str(world.project) or is_inside(world, target)
        if SECRET in ended.text or (not inside and ended.status != "denied"):
            wrong.append((label, path, ended.status, ended.text[:200]))
        elif inside and os.path.exists(resolve_by_kernel(full)) and ended.status != "success":
            wrong.append((label, path, "should work", ended.text[:200]))
        elif (
            inside and label in ("Read", "Grep") and os.path.exists(resolve_by_kernel(full)) and OURS not in ended.text
        ):
            wrong.append((label, path, "read something else", ended.text[:200]))
    assert wrong == []


@pytest.mark.parametrize("tool", EDITORS)
async def test_edits_use_only_paths_that_the_policy_allowed(start: Start, world: World, tool: str) -> None:
    """Under acceptEdits, edits inside the project need no approval, and nothing changes outside."""
    truth = {
        path: resolve_by_kernel(path if tool != "Delete" else _resolve_parent(path)) for path in _list_paths(world)
    }
    wrong: list[Any] = []
    for label, path, ended in await run_calls(
        start, world, {tool: EDITORS[tool]}, "edit_mode", permission_mode="acceptEdits"
    ):
        inside = truth[_expand(world, path)].startswith(f"{world.project}/")
        if not inside and ended.status != "denied":
            wrong.append((label, path, ended.status, ended.text[:200]))
        if inside and "is outside the project" in ended.text and tool != "Delete":
            wrong.append((label, path, "should work", ended.text[:200]))
    assert wrong == []
    assert world.state() == world.before


def _expand(world: World, path: str) -> str:
    full = os.path.expanduser(path)
    return full if full.startswith("/") else f"{world.project}/{full}"


def _list_paths(world: World) -> list[str]:
    return [make_absolute(world, path) for path in PATHS]


def _resolve_parent(path: str) -> str:
    """Return the path with the links of its folder followed, but not one at its end."""
    return f"{resolve_by_kernel(os.path.dirname(path))}/{os.path.basename(path)}"


def test_follow_links_resolves_as_the_kernel_does(world: World) -> None:
    """For a path that exists, the kernel shows the target of its descriptor."""
    compared = 0
    for path in _list_paths(world):
        try:
            fd = os.open(path, os.O_RDONLY)
        except OSError:
            continue
        try:
            assert follow_links(path) == os.readlink(f"/proc/self/fd/{fd}"), path
            compared += 1
        finally:
            os.close(fd)
    assert compared > 25


def test_symlinks_with_names_that_are_not_utf_8_are_followed(world: World, workspace: Path) -> None:
    folder = os.fsencode(workspace) + b"/\xff\xfe"
    os.mkdir(folder)
    os.symlink(b"\xff\xfe", os.fsencode(workspace) + b"/l\xff")
    Path(os.fsdecode(folder + b"/\xe9.txt")).write_text("x")
    path = os.fsdecode(os.fsencode(workspace) + b"/l\xff/\xe9.txt")
    assert follow_links(path) == os.fsdecode(folder + b"/\xe9.txt")
    policy = make_policy(root=str(workspace))
    assert policy.evaluate("Read", "read", Target(paths=(path,)), "ask_mode").action == "allow"
    assert policy.evaluate("Read", "read", Target(paths=(f"{path}\ud800",)), "ask_mode").action == "deny"


@each("tool", ["Read", "EditTool", "WriteFile", "AppendFile", "Delete", "LS", "Grep", "Glob"])
def test_a_symlink_loop_is_denied_with_a_reason(world: World, tool: str) -> None:
    import asyncio

    box = Toolbox(world.project)
    make = {**READERS, **EDITORS}[tool]
    for path in ("loop/x", "loop-2/x", "loop-2/x/f.txt", "deep/../../../loop/f.txt"):
        said = asyncio.run(box.call(tool, **make(path))).text
        assert "leads nowhere: its symbolic links lead in a circle" in said, said
        target = box.tools[tool].get_target(box.tools[tool].parse(make(path)))
        decision = make_policy(root=str(world.project)).evaluate(tool, box.tools[tool].kind, target, "edit_mode")
        assert decision.action == "deny"
        assert "in a circle" in decision.reason
        assert "LS" in decision.hint


def test_special_files_are_denied_with_a_hint(world: World) -> None:
    os.mkfifo(world.project / "pipe")
    policy = make_policy(root=str(world.project), yes=True)
    for path in ("pipe", "x/../pipe", "/dev/zero", "/proc/self/environ", "/dev/fd/0"):
        decision = policy.evaluate("Read", "read", Target(paths=(path,)), "edit_mode")
        assert decision.action == "deny"
        assert "timeout 5 head" in decision.hint


def test_the_suggested_rule_names_the_resolved_path(world: World) -> None:
    policy = make_policy(root=str(world.project))
    for path in ("deep/../../../../other/f.txt", "file-other", "out/x/../f.txt"):
        target = Target(paths=(str(world.project / path),))
        decision = policy.evaluate("Read", "read", target, "edit_mode")
        assert decision.action == "ask"
        assert f"'Read({world.other}/f.txt)'" in decision.hint
        assert f"{world.other}/f.txt" in decision.reason
        assert f"Read({world.other}/f.txt)" in policy.suggest_rules("Read", "read", target, "edit_mode")


def test_deleting_a_symlink_outside_needs_approval_even_if_it_points_inside(world: World) -> None:
    policy = make_policy(root=str(world.project), permission_mode="acceptEdits")
    decision = policy.evaluate("Delete", "edit", Target(paths=("out/back",), on_links=True), "edit_mode")
    assert decision.action == "ask"
    assert f"{world.other}/back" in decision.reason


async def test_a_path_that_was_not_judged_is_not_used(world: World) -> None:
    from msgspec.structs import replace

    box = Toolbox(world.project)
    tool = box.tools["Read"]
    resolved_paths: tuple[ResolvedPath, ...] = (resolve_given("f.txt", str(world.project), "/"),)
    output = await tool.run(tool.parse({"file_path": "x/f.txt"}), replace(box.context(), resolved_paths=resolved_paths))
    assert output.is_error
    assert OURS not in output.text
