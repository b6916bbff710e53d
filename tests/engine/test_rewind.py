"""Rewind and redo: files are restored to the byte, and every API accepts the conversation."""

import asyncio
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, ToolStarted
from odin.core.errors import SessionBusy, UsageError
from odin.core.event import CheckpointSaved, FilesChanged, Redone, Rewound, Warned
from odin.core.op import AddContext, AnswerPermission, Interrupt, Prompt, Redo, Rewind
from odin.testing import call, reply, say
from tests.waiting import TimeLimit, until

from .conftest import WITHOUT_VIEWS, Start, Talk
from .tree import git, make_repository, read_git_state, read_tree


def run(command: str) -> Any:
    return call("ExecuteCommand", {"command": command})


def write(path: Path, text: str) -> Any:
    return call("WriteFile", {"file_path": str(path), "content": text})


def edit(path: Path, old: str, new: str) -> list[Any]:
    return [
        call("Read", {"file_path": str(path)}),
        call("EditTool", {"file_path": str(path), "old_string": old, "new_string": new}),
    ]


async def list_events(talk: Talk, kind: type[Any]) -> list[Any]:
    """Return the events of this kind in the log, in order."""
    snapshot = await talk.client.snapshot()
    found: list[Any] = []
    if snapshot.seq < 0:
        return found
    async for envelope in talk.client.stream_events(after=-1):
        if isinstance(envelope.event, kind):
            found.append(envelope.event)
        if envelope.seq >= snapshot.seq:
            return found
    return found


async def rewind(talk: Talk, number: int = 1, **more: Any) -> Rewound:
    turns = (await talk.client.snapshot()).messages
    await talk.client.submit(Rewind(turns[-number].id, **more))
    return (await list_events(talk, Rewound))[-1]


async def redo(talk: Talk, **more: Any) -> Redone:
    await talk.client.submit(Redo(**more))
    return (await list_events(talk, Redone))[-1]


def list_prompts(body: dict[str, Any]) -> list[str]:
    """Return the text blocks of the user messages in an Anthropic request."""
    said: list[str] = []
    for message in body["messages"]:
        if message["role"] == "user":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            said += [block["text"] for block in blocks if block["type"] == "text"]
    return said


# --- one call of each kind ---


async def test_edit_is_saved_in_a_checkpoint_first_and_can_be_rewound(start: Start, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_bytes(b"one\r\ntwo\n\xff no newline")
    file.chmod(0o640)
    before = read_tree(workspace)
    talk = await start([*edit(file, "two", "three"), say("done")], config={"speculate": False})
    await talk.say("change it")
    changed = read_tree(workspace)
    assert changed != before
    names = [type(event).__name__ for event in talk.events]
    started = [at for at, name in enumerate(names) if name == "ToolStarted"][-1]
    assert names[started : started + 4] == ["ToolStarted", "CheckpointSaved", "FilesChanged", "ToolEnded"]
    rewound = await rewind(talk)
    assert read_tree(workspace) == before
    assert [change.before.path for change in rewound.changes] == [str(file)]
    assert rewound.skipped_files == ()
    await redo(talk)
    assert read_tree(workspace) == changed


async def test_rewind_removes_created_files_and_folders(start: Start, workspace: Path) -> None:
    (workspace / "kept").mkdir()
    before = read_tree(workspace)
    talk = await start([write(workspace / "new/deep/file.txt", "x\n"), write(workspace / "kept/y.txt", "y\n"), say("")])
    await talk.say("make files")
    made = read_tree(workspace)
    assert len(made) == 5
    await rewind(talk)
    assert read_tree(workspace) == before
    await redo(talk)
    assert read_tree(workspace) == made


async def test_rewind_keeps_a_created_folder_with_other_files(start: Start, workspace: Path) -> None:
    talk = await start([write(workspace / "new/file.txt", "x\n"), say("done")])
    await talk.say("make a file")
    (workspace / "new/mine.txt").write_text("mine")
    rewound = await rewind(talk)
    assert read_tree(workspace).keys() == {"new", "new/mine.txt"}
    assert rewound.skipped_files == ()


async def test_rewind_restores_a_deleted_file(start: Start, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("precious\n")
    before = read_tree(workspace)
    talk = await start([call("Delete", {"paths": [str(file)], "reason": "asked"}), say("done")])
    await talk.say("delete it")
    assert not file.exists()
    await rewind(talk)
    assert read_tree(workspace) == before


async def test_rewind_restores_no_temporary_file_of_a_killed_write(start: Start, workspace: Path) -> None:
    """A write beside the command removes such leftovers. Here the command itself does, which is recorded alike."""
    left = workspace / ".a.txt.odin-4194999-18b0"
    copy = workspace / ".b.txt.odin-copy-4194999-18b0"
    left.write_text("half a fi")
    copy.write_text("the only complete text")
    folder = workspace / ".c.odin-4194999-18b0"
    folder.mkdir()
    (folder / "own.txt").write_text("a file of the user")
    talk = await start([run(f"rm -r {left.name} {copy.name} {folder.name}; echo x >made"), say("ok")], yes=True)
    await talk.say("go")
    await rewind(talk)
    assert sorted(os.listdir(workspace)) == [copy.name, folder.name]
    assert copy.read_text() == "the only complete text"
    assert (folder / "own.txt").read_text() == "a file of the user", "only files are temporary, never folders"


async def test_rewind_restores_the_file_behind_a_link(start: Start, workspace: Path) -> None:
    (workspace / "real.txt").write_text("old\n")
    (workspace / "link.txt").symlink_to("real.txt")
    before = read_tree(workspace)
    talk = await start([*edit(workspace / "link.txt", "old", "new"), say("done")])
    await talk.say("change it")
    assert (workspace / "real.txt").read_text() == "new\n"
    await rewind(talk)
    assert read_tree(workspace) == before


async def test_hard_links_stay_one_file(start: Start, workspace: Path) -> None:
    (workspace / "a").write_text("old\n")
    os.link(workspace / "a", workspace / "b")
    talk = await start([run("echo new > a"), say("done")])
    await talk.say("change it")
    assert (workspace / "b").read_text() == "new\n"
    await rewind(talk)
    assert (workspace / "a").read_text() == (workspace / "b").read_text() == "old\n"
    assert (workspace / "a").samefile(workspace / "b")


COMMANDS = {
    "rewritten": "echo new > plain.txt",
    "appended": "echo more >> plain.txt",
    "removed": "rm plain.txt",
    "created": "mkdir -p made/deep && echo x > made/deep/x && ln -s x made/deep/l",
    "executable": "chmod +x plain.txt",
    "folder mode": "chmod 700 folder",
    "link to elsewhere": "ln -sfn folder/inner.txt link",
    "link becomes a file": "rm link && echo file > link",
    "file becomes a link": "rm plain.txt && ln -s folder/inner.txt plain.txt",
    "file becomes a folder": "rm plain.txt && mkdir plain.txt && echo in > plain.txt/in",
    "folder becomes a file": "rm -r folder && echo file > folder",
    "empty folder removed": "rmdir empty",
    "moved": "mv folder moved && mv plain.txt moved/",
    "ignored files": "echo other > .env && rm -r build",
    "names of all kinds": "printf x > $'caf\\xe9 \\n'; rm 'a b'; mv ümlaut ö",
    "failed": "rm plain.txt; false",
}


@pytest.mark.parametrize("versioned", [True, False], ids=["git", "no git"])
async def test_rewind_restores_the_changes_of_a_command_to_the_byte(
    start: Start, workspace: Path, versioned: bool
) -> None:
    (workspace / "plain.txt").write_text("plain\n")
    (workspace / "folder").mkdir()
    (workspace / "folder/inner.txt").write_text("inner\n")
    (workspace / "empty").mkdir()
    (workspace / "link").symlink_to("plain.txt")
    (workspace / "a b").write_text("space")
    (workspace / "ümlaut").write_text("u")
    (workspace / ".gitignore").write_text(".env\nbuild/\n")
    if versioned:
        make_repository(workspace)
    (workspace / ".env").write_text("SECRET=1\n")
    (workspace / "build").mkdir()
    (workspace / "build/out").write_bytes(bytes(range(256)))
    before, untouched = read_tree(workspace), read_git_state(workspace) if versioned else ()
    talk = await start([turn for command in COMMANDS.values() for turn in (run(command), say("done"))])
    for name in COMMANDS:
        await talk.say(name)
        after = read_tree(workspace)
        assert after != before, name
        assert ((await rewind(talk)).skipped_files, read_tree(workspace)) == ((), before), name
        assert ((await redo(talk)).skipped_files, read_tree(workspace)) == ((), after), name
        assert ((await rewind(talk)).skipped_files, read_tree(workspace)) == ((), before), name
    assert talk.server.rejected == []
    if versioned:
        assert read_git_state(workspace) == untouched
        assert git(workspace, "status", "--porcelain") == ""


CLEANUP_COMMANDS = (
    "git checkout -- .",
    "git restore .",
    "git reset --hard",
    "git clean -fdx",
    "git stash -u && git stash drop",
)


@pytest.mark.parametrize("cleanup", CLEANUP_COMMANDS)
async def test_rewind_restores_files_that_git_removed(start: Start, workspace: Path, cleanup: str) -> None:
    (workspace / ".gitignore").write_text(".env\n")
    (workspace / "tracked.txt").write_text("committed\n")
    make_repository(workspace)
    (workspace / "tracked.txt").write_text("work of the whole day\n")
    (workspace / "untracked.txt").write_text("never added\n")
    (workspace / ".env").write_text("SECRET=1\n")
    before, status = read_tree(workspace), git(workspace, "status", "--porcelain")
    name = "-c user.name=x -c user.email=x@example.org"
    command = cleanup.replace("git stash -u", f"git {name} stash -u")
    talk = await start([run(command), say("done")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", allow=True)]
    await talk.say("clean up")
    assert [asked.subject for asked in talk.all(PermissionAsked)] == [command]
    assert read_tree(workspace) != before
    untouched = read_git_state(workspace)
    rewound = await rewind(talk)
    assert rewound.skipped_files == ()
    assert read_tree(workspace) == before
    assert read_git_state(workspace) == untouched
    assert git(workspace, "status", "--porcelain") == status


async def test_read_only_command_saves_no_checkpoint(start: Start, workspace: Path) -> None:
    (workspace / "a").write_text("x")
    talk = await start([run("ls && cat a"), say("done")])
    await talk.say("look")
    assert talk.all(CheckpointSaved) == []
    assert talk.all(FilesChanged) == []


async def test_checkpoint_store_is_outside_the_project_and_private(start: Start, workspace: Path, home: Path) -> None:
    (workspace / "a").write_text("secret\n")
    talk = await start([run("echo x > a; echo x > b"), say("done")])
    await talk.say("go")
    assert read_tree(workspace).keys() == {"a", "b"}
    store = home / ".local/state/odin/checkpoints"
    files = [path for path in store.rglob("*") if path.is_file()]
    assert b"secret\n" in [path.read_bytes() for path in files]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert {stat.S_IMODE(path.stat().st_mode) for path in store.rglob("*") if path.is_dir()} == {0o700}


# --- changes by the user ---


async def test_files_changed_by_the_user_after_the_turn_are_left_alone(start: Start, workspace: Path) -> None:
    for name in ("mine", "yours", "gone", "made"):
        (workspace / name).write_text("old\n")
    talk = await start([run("for f in mine yours gone; do echo new > $f; done; rm made; echo n > n"), say("done")])
    await talk.say("change all")
    (workspace / "mine").write_text("by the user\n")
    (workspace / "gone").unlink()
    (workspace / "made").write_text("made again by the user\n")
    (workspace / "n").chmod(0o755)
    rewound = await rewind(talk)
    assert {Path(file.path).name for file in rewound.skipped_files} == {"mine", "gone", "made", "n"}
    assert all("changed outside this session" in file.reason for file in rewound.skipped_files)
    assert (workspace / "mine").read_text() == "by the user\n"
    assert not (workspace / "gone").exists()
    assert (workspace / "made").read_text() == "made again by the user\n"
    assert (workspace / "yours").read_text() == "old\n"


async def test_force_overwrites_user_changes_and_redo_restores_them(start: Start, workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("old\n")
    talk = await start([run("echo new > a"), say("done")])
    await talk.say("go")
    file.write_text("by the user\n")
    rewound = await rewind(talk, force=True)
    assert rewound.skipped_files == ()
    assert file.read_text() == "old\n"
    await redo(talk)
    assert file.read_text() == "by the user\n"


async def test_user_edit_between_two_turns_is_kept(start: Start, workspace: Path) -> None:
    file = workspace / "a"
    file.write_text("0\n")
    talk = await start([run("echo 1 > a"), say("one"), run("echo 2 >> a"), say("two")])
    await talk.say("first")
    file.write_text("by the user\n")
    await talk.say("second")
    assert file.read_text() == "by the user\n2\n"
    kept = (await rewind(talk, 2, chat=False)).skipped_files
    assert [Path(item.path).name for item in kept] == ["a"]
    assert file.read_text() == "by the user\n2\n"
    assert (await rewind(talk, 1)).skipped_files == ()
    assert file.read_text() == "by the user\n"
    assert [Path(item.path).name for item in (await rewind(talk, 1)).skipped_files] == ["a"]
    assert file.read_text() == "by the user\n"


async def test_a_folder_that_became_a_link_is_not_written_through(start: Start, workspace: Path, home: Path) -> None:
    (workspace / "sub").mkdir()
    (workspace / "sub/a").write_text("old\n")
    talk = await start([run("echo new > sub/a"), say("done")])
    await talk.say("go")
    elsewhere = home / "elsewhere"
    (workspace / "sub").rename(elsewhere)
    (workspace / "sub").symlink_to(elsewhere)
    rewound = await rewind(talk)
    assert [file.reason for file in rewound.skipped_files] == ["a folder above it is a link now"]
    assert (elsewhere / "a").read_text() == "new\n"


async def test_one_path_that_fails_does_not_stop_the_others(
    start: Start, workspace: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "a").write_text("old a\n")
    (workspace / "b").write_text("old b\n")
    talk = await start([run("echo new > a; echo new > b"), say("done")])
    await talk.say("go")
    lost = next(path for path in home.rglob("objects/*/*") if path.read_bytes() == b"old a\n")
    lost.write_bytes(b"rotten")
    rewound = await rewind(talk)
    assert [(Path(file.path).name, file.reason) for file in rewound.skipped_files] == [
        ("a", "its earlier content in the checkpoint store is damaged")
    ]
    assert ((workspace / "a").read_text(), (workspace / "b").read_text()) == ("new\n", "old b\n")


# --- several turns ---


async def test_rewind_twice_and_redo_twice(start: Start, workspace: Path) -> None:
    talk = await start([run("echo 1 > a"), say("one"), run("echo 2 > a; echo b > b"), say("two"), say("unused")])
    trees = [read_tree(workspace)]
    await talk.say("first")
    trees.append(read_tree(workspace))
    await talk.say("second")
    trees.append(read_tree(workspace))
    await rewind(talk)
    assert read_tree(workspace) == trees[1]
    await rewind(talk)
    assert read_tree(workspace) == trees[0]
    assert (await talk.client.snapshot()).messages == ()
    await redo(talk)
    assert read_tree(workspace) == trees[1]
    await redo(talk)
    assert read_tree(workspace) == trees[2]
    assert [turn.body for turn in (await talk.client.snapshot()).messages] == ["first", "second"]
    with pytest.raises(UsageError, match="nothing to redo"):
        await talk.client.submit(Redo())
    await rewind(talk, 2)
    assert read_tree(workspace) == trees[0]


async def test_rewound_prompt_is_not_in_the_next_request(start: Start, workspace: Path) -> None:
    file = workspace / "a.txt"
    file.write_text("one\n")
    todos = {"todos": [{"id": "1", "content": "later", "status": "pending"}]}
    talk = await start(
        [
            *edit(file, "one", "two"),
            say("first answer"),
            reply(calls=[call("TodoWrite", todos), run("echo three > a.txt")]),
            say("second answer"),
            call("EditTool", {"file_path": str(file), "old_string": "two", "new_string": "four"}),
            say("third answer"),
        ]
    )
    await talk.say("first")
    await talk.client.submit(AddContext("remember me", "notes.md"))
    await talk.say("second")
    assert len((await talk.client.snapshot()).todos) == 1
    await rewind(talk)
    snapshot = await talk.client.snapshot()
    assert ([turn.body for turn in snapshot.messages], snapshot.todos, snapshot.files) == (["first"], (), ())
    await talk.say("again")
    said = list_prompts(talk.server.requests[-2].json)
    assert talk.server.rejected == []
    assert "first" in said[0]
    assert not any("second" in text for text in said)
    assert any("remember me" in text for text in said)
    assert "Must read file first" in str(talk.server.requests[-1].json)
    assert file.read_text() == "two\n"


async def test_rewinding_only_files_is_reported_to_the_model(start: Start, workspace: Path) -> None:
    (workspace / "a").write_text("old\n")
    talk = await start([run("echo new > a"), say("one"), say("two")])
    await talk.say("first")
    await rewind(talk, chat=False)
    assert (workspace / "a").read_text() == "old\n"
    await talk.say("second")
    said = list_prompts(talk.server.requests[-1].json)
    assert talk.server.rejected == []
    assert any("took file changes back" in text and str(workspace / "a") in text for text in said)
    assert [turn.body for turn in (await talk.client.snapshot()).messages] == ["first", "second"]


async def test_rewinding_only_the_chat_keeps_the_files(start: Start, workspace: Path) -> None:
    talk = await start([run("echo new > a"), say("one"), say("two")])
    await talk.say("first")
    await rewind(talk, files=False)
    assert (workspace / "a").read_text() == "new\n"
    assert (await talk.client.snapshot()).messages == ()
    await talk.say("second")
    assert not any("first" in text for text in list_prompts(talk.server.requests[-1].json))
    assert "Working directory" in str(talk.server.requests[-1].json)
    with pytest.raises(UsageError, match="nothing to redo"):
        await talk.client.submit(Redo())


@pytest.mark.parametrize("api", ["anthropic", "openai"])
async def test_rewind_and_redo_work_in_a_resumed_session(start: Start, workspace: Path, api: str) -> None:
    script = [run("echo 1 > a"), say("one"), run("echo 2 > a"), say("two"), say("three"), say("four")]
    talk = await start(script, api)
    await talk.say("first")
    await talk.say("second")
    await rewind(talk)
    before = await talk.client.snapshot()
    await talk.client.close()
    again = await start(None, api, server=talk.server, resume=before.session)
    resumed = await again.client.snapshot()
    assert [turn.body for turn in resumed.messages] == ["first"]
    assert (workspace / "a").read_text() == "1\n"
    await again.client.submit(Redo())
    assert (workspace / "a").read_text() == "2\n"
    await rewind(again)
    await again.client.submit(Prompt("third", "third"))
    await again.until_end("third")
    await rewind(again, 2)
    assert not (workspace / "a").exists()
    await again.say("fourth")
    assert talk.server.rejected == []
    assert "second" not in str(talk.server.requests[-2].json["messages"])


async def test_busy_session_refuses_a_rewind(start: Start, workspace: Path) -> None:
    talk = await start([run("echo x > a; sleep 30"), say("never")])
    prompt = await talk.submit("work")
    await talk.until(ToolStarted)
    with pytest.raises(SessionBusy):
        await talk.client.submit(Rewind(prompt))
    await talk.client.submit(Interrupt())
    await talk.until_end(prompt)


async def test_rewind_to_an_unknown_prompt_is_refused(start: Start) -> None:
    talk = await start([say("hi")])
    await talk.say("hello")
    with pytest.raises(UsageError, match="There is no prompt 'nonsense'"):
        await talk.client.submit(Rewind("nonsense"))


# --- interruptions and limits ---


async def test_rewind_restores_changes_of_an_interrupted_command(start: Start, workspace: Path) -> None:
    (workspace / "a").write_text("old\n")
    talk = await start([run("echo new > a; touch started; sleep 30"), say("never")], config=WITHOUT_VIEWS)
    prompt = await talk.submit("work")
    await until((workspace / "started").exists)
    await talk.client.submit(Interrupt())
    assert (await talk.until_end(prompt)).reason == "interrupted"
    await rewind(talk)
    assert (read_tree(workspace).keys(), (workspace / "a").read_text()) == ({"a"}, "old\n")


async def test_rewind_includes_changes_of_sub_agents(start: Start, workspace: Path) -> None:
    talk = await start(
        [
            call("AgentTool", {"description": "write", "prompt": "Write a file."}),
            write(workspace / "sub.txt", "x\n"),
            say("written"),
            say("done"),
        ]
    )
    await talk.say("go")
    assert {item.agent for item in talk.heard if isinstance(item.event, CheckpointSaved)} == {"agent-1"}
    assert (workspace / "sub.txt").exists()
    await rewind(talk)
    assert read_tree(workspace) == {}


async def test_files_beyond_the_size_limit_are_reported_and_not_restored(start: Start, workspace: Path) -> None:
    (workspace / "large").write_bytes(b"x" * 2000)
    (workspace / "small").write_text("old\n")
    limits = {"checkpoints": {"max_file_bytes": 1000}, **WITHOUT_VIEWS}
    talk = await start([run("echo new > large; echo new > small"), run("echo 3 > small"), say("done")], config=limits)
    await talk.say("go")
    assert [saved.skipped for saved in talk.all(CheckpointSaved)] == [1, 0]
    warned = [event.text for event in talk.all(Warned)]
    assert len(warned) == 1
    assert "At least 1 file" in warned[0]
    rewound = await rewind(talk)
    assert [(Path(file.path).name, file.reason) for file in rewound.skipped_files] == [
        ("large", "its earlier content was not saved")
    ]
    assert ((workspace / "large").read_text(), (workspace / "small").read_text()) == ("new\n", "old\n")


async def test_files_beyond_the_file_limit_are_left_alone(start: Start, workspace: Path) -> None:
    (workspace / "top").write_text("old\n")
    (workspace / "many").mkdir()
    for number in range(30):
        (workspace / f"many/{number}").write_text("mine")
    limits = {"checkpoints": {"max_files": 10}, **WITHOUT_VIEWS}
    talk = await start([run("echo new > top; rm many/1; echo new > many/new"), say("done")], config=limits)
    await talk.say("go")
    assert talk.all(CheckpointSaved)[0].skipped >= 30
    rewound = await rewind(talk)
    assert rewound.skipped_files == ()
    assert (workspace / "top").read_text() == "old\n"
    assert len(list((workspace / "many").iterdir())) == 30


async def test_file_too_large_to_be_saved_is_named_when_a_command_changed_it(start: Start, workspace: Path) -> None:
    (workspace / "large").write_bytes(b"x" * 2000)
    limits = {"checkpoints": {"max_file_bytes": 1000}}
    talk = await start([run("echo new > large"), say("done")], config=limits)
    await talk.say("go")
    (warned,) = talk.all(Warned)
    assert warned.text == f"Cannot save a checkpoint, so undo cannot restore: {workspace}/large."
    rewound = await rewind(talk)
    assert [file.reason for file in rewound.skipped_files] == ["its earlier content was not saved"]


async def test_home_folder_is_not_scanned(start: Start, home: Path) -> None:
    (home / "a").write_text("old\n")
    script = [run("echo new > a"), *edit(home / "a", "new", "newer"), say("done")]
    talk = await start(script, cwd=str(home), config=WITHOUT_VIEWS)
    await talk.say("go")
    assert ["too large to be saved" in event.text for event in talk.all(Warned)] == [True]
    await rewind(talk)
    assert (home / "a").read_text() == "new\n"


async def test_checkpoints_can_be_switched_off(start: Start, workspace: Path) -> None:
    talk = await start([write(workspace / "a", "x"), say("done")], config={"checkpoints": {"enabled": False}})
    await talk.say("go")
    assert talk.all(CheckpointSaved) == []


async def test_files_are_not_changed_if_no_checkpoint_can_be_saved(start: Start, workspace: Path, home: Path) -> None:
    file = workspace / "a"
    file.write_text("old\n")
    talk = await start([*edit(file, "old", "new"), run("echo new > a"), say("done")])
    store = home / ".local/state/odin/checkpoints"
    store.parent.mkdir(parents=True, exist_ok=True)
    store.write_text("a file where a folder should be")
    await talk.say("go")
    assert file.read_text() == "old\n"
    assert str(talk.server.requests[-1].json).count("A checkpoint cannot be saved") == 2


async def test_changes_during_a_background_process_are_rewound_only_with_force(start: Start, workspace: Path) -> None:
    (workspace / "theirs").write_text("old\n")
    (workspace / "early").write_text("old\n")
    command = "until [ -e go ]; do sleep 0.02; done; echo new > theirs"
    talk = await start(
        [run("echo new > early"), call("Spawn", {"command": command}), say("started"), say("It is over.")]
    )
    await talk.say("go")
    (workspace / "go").touch()
    await talk.until_end("spawn-1-ended")
    rewound = await rewind(talk, 2)
    assert {Path(file.path).name: "background" in file.reason for file in rewound.skipped_files} == {
        "go": True,
        "theirs": True,
    }
    assert [(workspace / name).read_text() for name in ("theirs", "early")] == ["new\n", "old\n"]
    await redo(talk)
    assert (await rewind(talk, 2, force=True)).skipped_files == ()
    assert [(workspace / name).read_text() for name in ("theirs", "early")] == ["old\n", "old\n"]


async def background_changes(talk: Talk) -> set[str]:
    """Return the names of the files recorded as changed while a background process ran."""
    recorded = [event for event in await list_events(talk, FilesChanged) if event.concurrent]
    return {Path(change.after.path).name for event in recorded for change in event.changes}


async def test_changes_of_a_background_process_are_recorded_when_it_ends(start: Start, workspace: Path) -> None:
    command = "until [ -e go ]; do sleep 0.02; done; echo new > theirs"
    talk = await start([call("Spawn", {"command": command}), say("started"), say("over"), run("echo x > x"), say("ok")])
    await talk.say("go")
    (workspace / "go").touch()
    await talk.until_end("spawn-1-ended")
    async with TimeLimit():
        while await background_changes(talk) != {"go", "theirs"}:
            await asyncio.sleep(0.01)
    (workspace / "mine").touch()
    await talk.say("go on")
    assert await background_changes(talk) == {"go", "theirs"}


async def test_changes_of_a_background_process_are_known_after_a_resume(start: Start, workspace: Path) -> None:
    command = "until [ -e go ]; do sleep 0.02; done; echo new > theirs; touch done; sleep 100"
    talk = await start([call("Spawn", {"command": command}), say("started")])
    await talk.say("go")
    (workspace / "go").touch()
    await until((workspace / "done").exists)
    await talk.client.close()
    again = await start(None, server=talk.server, resume=(await talk.client.get_info()).session)
    assert await background_changes(again) == {"go", "theirs", "done"}


async def test_rewind_after_a_resume_restores_changes_of_a_crashed_call(
    start: Start, workspace: Path, home: Path
) -> None:
    """The log is as a kill in the middle of the command would leave it."""
    (workspace / "a").write_text("old\n")
    sessions = home / ".local/state/odin/sessions"
    copy = f"for s in {sessions}/*; do mkdir $s/crashed; cp $s/*/main.jsonl $s/crashed/; done; echo new > a; echo > b"
    talk = await start([run(copy), say("unused"), say("on we go")], config={"sandbox": {"backend": "off"}})
    await talk.say("go")
    await talk.client.close()
    again = await start(None, server=talk.server, resume="crashed")
    assert (await again.client.snapshot()).messages[0].files == 0
    await again.client.submit(Prompt("next", "next"))
    await again.until_end("next")
    assert [turn.files for turn in (await again.client.snapshot()).messages] == [2, 0]
    await rewind(again, 2)
    assert (read_tree(workspace).keys(), (workspace / "a").read_text()) == ({"a"}, "old\n")
