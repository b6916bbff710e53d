"""Sessions that work in folders besides the project: edits, commands, undo, rules, trust and instructions in each."""

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from odin.config.trust import TrustedFolder, add_trusted_folder, hash_pinned_files
from odin.core.call_events import ToolEnded
from odin.core.event import FilesChanged, RootAdded, RootRemoved, SessionOpened
from odin.core.op import AddRoot, Answer, Redo, RemoveRoot, Rewind
from odin.testing import call, reply, say
from tests.lsp.conftest import LONG_WAITS
from tests.waiting import TimeLimit

from .conftest import Start, Talk
from .test_language_servers import fake_config
from .test_questions import wait_for_event

ASKING: dict[str, Any] = {"yes": False, "can_ask": False, "permission_mode": "acceptEdits"}


class Folders:
    """A project, and beside it a writable folder `lib` and a read-only one, `docs`."""

    def __init__(self, project: Path) -> None:
        self.project, self.lib, self.docs = project, project.parent / "lib", project.parent / "docs"
        for folder in (self.lib, self.docs):
            folder.mkdir()
            (folder / "a.txt").write_text(f"{folder.name}\n")
        (project / "a.txt").write_text("project\n")

    @property
    def options(self) -> dict[str, Any]:
        return {"add_dirs": (str(self.lib), f"{self.docs}:ro")}

    def read(self) -> dict[str, str]:
        """Return the files of all three."""
        top = self.project.parent
        return {
            str(path.relative_to(top)): path.read_text()
            for folder in (self.project, self.lib, self.docs)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and ".git" not in path.parts
        }


@pytest.fixture
def folders(workspace: Path) -> Folders:
    return Folders(workspace)


def trust(folder: Path) -> None:
    hashes = hash_pinned_files(str(folder), _read(folder / "odinconfig.json"))
    add_trusted_folder(str(folder), TrustedFolder(files=hashes), os.environ)


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def list_results(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(ToolEnded)]


def write(path: Path, text: str = "new\n") -> Any:
    return call("WriteFile", {"file_path": str(path), "content": text})


def run(command: str) -> Any:
    return call("ExecuteCommand", {"command": command})


async def test_edits_follow_the_access_of_each_folder_and_are_undone(start: Start, folders: Folders) -> None:
    before = folders.read()
    calls = (write(folders.project / "new"), write(folders.lib / "new"), write(folders.docs / "new"))
    script = [reply(calls=[call("Read", {"file_path": str(folders.docs / "a.txt")}), *calls]), say("ok")]
    talk = await start(script, **ASKING, **folders.options)
    await talk.say("go")
    read, in_project, in_lib, in_docs = talk.all(ToolEnded)
    assert "docs" in read.text
    assert [read.status, in_project.status, in_lib.status] == ["success"] * 3
    assert f"is in {folders.docs}, which is read-only in this session" in in_docs.text
    assert f"--add-dir {folders.docs}" in in_docs.text
    after = {**before, "project/new": "new\n", "lib/new": "new\n"}
    assert folders.read() == after
    await talk.client.submit(Rewind("p1"))
    assert folders.read() == before
    await talk.client.submit(Redo())
    assert folders.read() == after


SANDBOXES: dict[str, dict[str, Any]] = {
    "view": {"sandbox": {"backend": "bubblewrap"}},
    "landlock": {"sandbox": {"backend": "landlock"}},
}


@pytest.mark.parametrize("backend", SANDBOXES)
async def test_the_kernel_decides_where_commands_write(start: Start, folders: Folders, backend: str) -> None:
    if backend == "view" and not shutil.which("bwrap"):
        pytest.skip("bubblewrap is not installed")
    (folders.lib / "odinconfig.json").write_text("{}")
    before = folders.read()
    lib, docs = folders.lib, folders.docs
    script = [
        run(f"echo two >> {lib}/a.txt; echo new > {lib}/new; rm -f {lib}/gone; echo here > new"),
        run(f"sh -c 'echo x > {docs}/new'; sh -c 'echo x >> {docs}/a.txt'; cat {docs}/a.txt"),
        run(f"echo '{{\"rules\": []}}' > {lib}/odinconfig.json"),
        say("ok"),
    ]
    talk = await start(script, config=SANDBOXES[backend], **folders.options)
    await talk.say("go")
    results = list_results(talk)
    assert "docs" in results[1] and ("Read-only file system" in results[1] or "Permission denied" in results[1])
    after = folders.read()
    changed = {name: text for name, text in after.items() if before.get(name) != text}
    assert {name: changed[name] for name in ("lib/a.txt", "lib/new", "project/new")} == {
        "lib/a.txt": "lib\ntwo\n",
        "lib/new": "new\n",
        "project/new": "here\n",
    }
    assert not [name for name in changed if name.startswith("docs")]
    if backend == "view":
        assert "lib/odinconfig.json" not in changed
    paths = {change.before.path for event in talk.all(FilesChanged) for change in event.changes}
    assert {f"{lib}/a.txt", f"{lib}/new", f"{folders.project}/new"} <= paths
    await talk.client.submit(Rewind("p1"))
    assert folders.read() == before


RULES = """{"rules": [
  {"rule": "Edit(src/**)", "action": "allow"},
  {"rule": "Edit(frozen/**)", "action": "deny"},
  {"rule": "Read(hidden/**)", "action": "deny"}
]}"""


@pytest.mark.parametrize("trusted", [True, False])
async def test_rules_and_instructions_of_a_folder_follow_its_trust(
    start: Start, folders: Folders, *, trusted: bool
) -> None:
    lib = folders.lib
    (lib / "odinconfig.json").write_text(RULES)
    (lib / "AGENTS.md").write_text("Use tabs in the library.\n")
    (lib / "src").mkdir()
    (lib / "src/AGENTS.md").write_text("Sort the sources.\n")
    if trusted:
        trust(lib)
    paths = (lib / "src/a", lib / "other", lib / "frozen/a", folders.project / "src/a", folders.project / "frozen/a")
    script = [reply(calls=[write(path) for path in paths]), say("ok")]
    talk = await start(script, yes=False, can_ask=False, **folders.options)
    await talk.say("go")
    errors = [event.error_kind for event in talk.all(ToolEnded)]
    asks = "NeedsConfirmation"
    assert errors == ["" if trusted else asks, asks, "Denied", asks, asks]
    assert (lib / "src/a").exists() is trusted
    first, second = (request.body.decode() for request in talk.server.requests)
    assert ("Use tabs in the library." in first) is trusted
    assert (f"{lib}/AGENTS.md" in first) is trusted
    assert ("Sort the sources." in second) is trusted
    assert f"- {lib} (writable)" in first and f"- {folders.docs} (read-only)" in first
    warnings = (await talk.client.get_info()).warnings
    assert any(f"{lib} is not trusted" in text for text in warnings) is not trusted


async def test_folder_is_added_and_removed_in_a_session(start: Start, folders: Folders) -> None:
    lib = folders.lib
    (lib / "AGENTS.md").write_text("Use tabs in the library.\n")
    trust(lib)
    script = [
        reply(calls=[write(lib / "one"), run(f"echo x > {lib}/two")]),
        say("before"),
        reply(calls=[write(lib / "one"), run(f"echo x > {lib}/two")]),
        say("after"),
        reply(calls=[write(lib / "three")]),
        say("removed"),
    ]
    talk = await start(script, **ASKING)
    await talk.say("go")
    assert not (lib / "one").exists() and not (lib / "two").exists()
    assert await talk.client.submit(AddRoot("../lib:ro"))
    assert await talk.client.submit(AddRoot(str(lib)))
    assert not await talk.client.submit(AddRoot(str(lib)))
    await talk.say("again")
    assert (lib / "one").exists() and (lib / "two").exists()
    bodies = [request.body.decode() for request in talk.server.requests]
    assert f"The user added the folder {lib} to this session: its files may be read and changed" in bodies[2]
    assert len({json.dumps(json.loads(body)["system"]) for body in bodies}) == 1, "the prefix stays the same"
    assert "Use tabs in the library." not in bodies[2] and "Use tabs in the library." in bodies[3]
    assert await talk.client.submit(RemoveRoot("../lib"))
    await talk.say("at last")
    assert not (lib / "three").exists()
    added = [event.root for event in await talk.recorded_events(RootAdded)]
    assert [(root.path, root.access, root.trusted) for root in added] == [
        (str(lib), "read", True),
        (str(lib), "write", True),
    ]
    assert await talk.recorded_events(RootRemoved) == [RootRemoved(str(lib))]
    await talk.client.submit(Rewind("p2"))
    assert not (lib / "one").exists() and not (lib / "two").exists()


async def test_resume_restores_what_was_added(start: Start, folders: Folders) -> None:
    talk = await start([say("hi")], **ASKING, add_dirs=(str(folders.lib),))
    await talk.say("go")
    await talk.client.submit(AddRoot(f"{folders.docs}:ro"))
    session = (await talk.client.get_info()).session
    await talk.client.close()
    resumed = await start([say("hi")], **ASKING, resume=session)
    assert [(root.path, root.access) for root in (await resumed.client.get_info()).roots] == [
        (str(folders.docs), "read")
    ]
    await resumed.say("again")
    opened = await resumed.recorded_events(SessionOpened)
    assert [[root.path for root in event.roots] for event in opened] == [[str(folders.lib)], [str(folders.docs)]]
    assert f"- {folders.docs} (read-only)" in resumed.server.requests[0].body.decode()


async def test_language_servers_know_the_trusted_folders(start: Start, folders: Folders) -> None:
    trust(folders.lib)
    script = [reply(calls=[write(folder / "b.txt", "BAD\n") for folder in (folders.lib, folders.docs)]), say("ok")]
    options = {"add_dirs": (str(folders.lib),), "timing": LONG_WAITS, "trust": True}
    config = {**fake_config("pull"), "additional_directories": [str(folders.docs)]}
    talk = await start(script, config=config, **options)
    await talk.say("go")
    in_lib, in_docs = list_results(talk)
    assert f"{folders.lib}/b.txt:1:1: bad word" in in_lib
    assert "bad word" not in in_docs


async def test_files_are_found_and_mentioned_by_absolute_paths(start: Start, folders: Folders) -> None:
    (folders.lib / "special.txt").write_text("special content\n")
    talk = await start([say("ok")], **ASKING, **folders.options)
    async with TimeLimit():
        while not (found := await talk.client.find_files("special", 5)):
            await asyncio.sleep(0.02)
    assert found == (f"{folders.lib}/special.txt",)
    assert {f"{folders.lib}/", f"{folders.docs}/"} <= {*await talk.client.find_files("", 20)}
    await talk.say(f"look at @{found[0]}")
    assert "special content" in talk.server.requests[0].body.decode()


async def test_an_added_folder_asks_for_trust(start: Start, folders: Folders) -> None:
    (folders.lib / "AGENTS.md").write_text("Use tabs in the library.\n")
    talk = await start([reply(calls=[write(folders.lib / "one")]), say("ok")], **{**ASKING, "can_ask": True})
    await talk.client.submit(AddRoot(str(folders.lib)))
    question = await wait_for_event(talk)
    assert "AGENTS.md" in question.questions[0].text
    await talk.client.submit(Answer(question.ask_id, "answer", answers=(("Trust",),)))
    async with TimeLimit():
        while not (await talk.client.get_info()).roots[0].trusted:
            await asyncio.sleep(0.01)
    await talk.say("go")
    assert "Use tabs in the library." in talk.server.requests[1].body.decode()
