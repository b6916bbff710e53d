"""Attachments after a rewind, a fork, a replay and an export, and in the history of a session."""

from pathlib import Path

import pytest

from odin.core.call_events import ToolEnded
from odin.core.event import PromptInjected, ResultsPruned, TurnStarted
from odin.core.message import Attachment, Image, PromptMessage, ReplyMessage, Text
from odin.core.op import Prompt, Redo, Rewind
from odin.replay.replay import ReplayOptions, format_report, replay_session
from odin.session.history import IMAGE_REMOVED, find_paths_in_view
from odin.session.thread import Thread
from odin.testing import ScriptedServer, call, say
from tests import pictures
from tests.conftest import Run

from .conftest import Start, Talk
from .test_images import list_images

SHOT = Image("/s/images/1.png", "image/png", 3, 2, "shot.png")


async def submit_attachments(talk: Talk) -> None:
    await talk.client.submit(Prompt("q1", "look at @a.py", attachments=(Attachment("x.png", data=pictures.png()),)))
    await talk.until_end("q1")


@pytest.fixture
def code(workspace: Path) -> Path:
    path = workspace / "a.py"
    path.write_text("answer = 41\n")
    return path


async def test_rewind_removes_attachments_and_redo_restores_only_the_last_prompt(start: Start, code: Path) -> None:
    talk = await start([say("One."), say("Two."), say("Three.")])
    await submit_attachments(talk)
    await talk.client.submit(Rewind("q1"))
    await talk.say("something else")
    assert list_images(talk.server.requests[1]) == []
    assert "answer = 41" not in talk.server.requests[1].body.decode()
    await talk.client.submit(Rewind("p1"))
    await talk.client.submit(Redo())
    await talk.say("more")
    assert talk.server.rejected == []
    assert "something else" in str(talk.server.requests[2].messages)
    assert list_images(talk.server.requests[2]) == []


async def test_rewound_attachment_must_be_read_again_before_an_edit(start: Start, code: Path) -> None:
    edit = call("EditTool", {"file_path": str(code), "old_string": "41", "new_string": "42"})
    talk = await start([say("One."), edit, say("Two.")])
    await submit_attachments(talk)
    await talk.client.submit(Rewind("q1"))
    await talk.say("change it")
    assert [event.status for event in talk.all(ToolEnded)] == ["error"]


async def test_fork_has_its_own_copies_of_images(start: Start, code: Path) -> None:
    talk = await start([say("One."), say("Two.")])
    await submit_attachments(talk)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session, fork=True)
    await again.say("go on")
    assert list_images(talk.server.requests[1]) == [pictures.png()]
    own = (await again.client.get_info()).session
    assert own != session
    recorded = [envelope.event async for envelope in _recorded_envelopes(again)]
    (first,) = [event for event in recorded if isinstance(event, TurnStarted) and event.id == "q1"]
    assert own in first.images[0].path
    assert own in first.attachments[0].path


async def _recorded_envelopes(talk: Talk):
    last = (await talk.client.snapshot()).seq
    async for envelope in talk.client.stream_events(after=-1):
        yield envelope
        if envelope.seq >= last:
            return


async def test_session_with_attachments_replays_the_same(start: Start, code: Path, workspace: Path) -> None:
    edit = call("EditTool", {"file_path": str(code), "old_string": "41", "new_string": "42"})
    talk = await start([edit, say("Done.")])
    await submit_attachments(talk)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    report = await replay_session(ReplayOptions(session=session, cwd=str(workspace), yes=True))
    assert report.same, format_report(report, verbose=True)


@pytest.mark.parametrize(
    ("form", "expected"), [("md", r"\[image: x.png\]"), ("html", '<img alt="x.png" src="data:image/png')]
)
async def test_export_contains_the_image(
    start: Start, code: Path, run_odin: Run, tmp_path: Path, form: str, expected: str
) -> None:
    talk = await start([say("One.")])
    await submit_attachments(talk)
    session = (await talk.client.get_info()).session
    await talk.client.close()
    target = tmp_path / f"out.{form}"
    ran = run_odin("sessions", "export", session, "-o", str(target))
    assert ran.returncode == 0, ran.stderr
    assert expected in target.read_text()


def test_prompt_on_the_command_line_attaches_a_line_range(run_odin: Run, code: Path) -> None:
    code.write_text("".join(f"value_{number} = {number}\n" for number in range(1, 31)))
    with ScriptedServer([say("Values.")]) as server:
        ran = run_odin("-p", "explain @a.py:1-20", env=server.env("anthropic"))
    assert (ran.returncode, ran.stdout) == (0, "Values.\n")
    body = server.requests[0].body.decode()
    assert f"Context from {code}:1-20:" in body
    assert "value_20 = 20" in body
    assert "value_21" not in body


def test_prompt_on_the_command_line_with_an_invalid_image_fails(run_odin: Run, workspace: Path) -> None:
    (workspace / "x.png").write_bytes(b"")
    with ScriptedServer([say("No.")]) as server:
        ran = run_odin("-p", "explain @x.png", env=server.env("anthropic"))
    assert ran.returncode == 2
    assert "x.png cannot be attached: it is empty." in ran.stderr
    assert len(server.requests) == 0


class TestHistory:
    def test_images_and_notes_of_an_injected_prompt_are_in_the_history(self) -> None:
        thread = Thread()
        thread.apply(TurnStarted("a", "go", "edit_mode", images=(SHOT,)))
        thread.add_note("more")
        thread.add_reply(ReplyMessage((Text("ok"),)))
        thread.apply(PromptInjected("b", "and", "edit_mode", turn="a", notes=("Context from /x:\n1",), images=(SHOT,)))
        first, _, second = thread.build_history()
        assert first == PromptMessage("go", ("more",), (SHOT,))
        assert second == PromptMessage("and", ("Context from /x:\n1",), (SHOT,))

    def test_pruned_image_leaves_a_note(self) -> None:
        thread = Thread()
        thread.apply(TurnStarted("a", "go", "edit_mode", notes=("n",), images=(SHOT,)))
        thread.prune(ResultsPruned(images=(SHOT.path,)))
        assert thread.build_history() == (PromptMessage("go", ("n", IMAGE_REMOVED)),)

    def test_paths_of_attached_files_are_in_view(self) -> None:
        notes = (
            "Context from /p/a.py:\n     1\tx",
            "Context from /p/b.py:3-9:\n     3\ty",
            "Context from `ls`:\n/p/c.py:\n",
        )
        messages = (PromptMessage("go", notes),)
        assert find_paths_in_view(messages, ["/p/a.py", "/p/b.py", "/p/c.py"]) == {"/p/a.py", "/p/b.py"}
