"""The file cache in sessions: the check before an edit, and two agents that edit one file."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.compaction.summary import HEADINGS
from odin.core.background_prompts import (
    EDIT_CONTEXT_SCHEMA,
    EditContextCheck,
    EditContextRequest,
    LineRange,
    PlannedEdit,
)
from odin.core.call_events import ToolEnded, UsageRecorded
from odin.core.event import Compacted
from odin.core.message import Usage
from odin.core.op import Compact, Rewind
from odin.testing import call, fault, reply, say

from .conftest import Start, Talk

SMALL = {"small_model": "anthropic/small"}


class Models:
    """The planner follows a script; the small model judges edits."""

    def __init__(self, script: list[Any], verdict: EditContextCheck | Any) -> None:
        self.script = iter(script)
        self.verdict = verdict
        self.asked: list[Any] = []

    def __call__(self, seen: Any) -> Any:
        if seen.json["model"] != "small":
            return next(self.script)
        if "odin-job: edit-sufficiency" not in seen.json["system"][0]["text"]:
            return say("A title")
        self.asked.append(seen.json)
        if not isinstance(self.verdict, EditContextCheck):
            return self.verdict
        return reply(msgspec.json.encode(self.verdict).decode(), usage=Usage(input=90, output=9))

    def questions(self) -> list[EditContextRequest]:
        texts = [request["messages"][0]["content"] for request in self.asked]
        return [msgspec.json.decode(_get_text(text), type=EditContextRequest) for text in texts]


def _get_text(content: Any) -> str:
    return content if isinstance(content, str) else content[0]["text"]


def list_results(talk: Talk) -> dict[str, ToolEnded]:
    return {event.call_id: event for event in talk.all(ToolEnded)}


@pytest.fixture
def hundred_lines(workspace: Path) -> Path:
    path = workspace / "a.txt"
    path.write_text("".join(f"line {n}.\n" for n in range(1, 101)))
    return path


async def test_refused_edit_succeeds_after_the_missing_lines_are_read(start: Start, hundred_lines: Path) -> None:
    edit = {"file_path": str(hundred_lines), "old_string": "line 15.", "new_string": "new"}
    models = Models(
        [
            call("Read", {"file_path": str(hundred_lines), "offset": 10, "limit": 10}, id="r1"),
            call("EditTool", edit, id="e1"),
            call("Read", {"file_path": str(hundred_lines), "offset": 60, "limit": 11}, id="r2"),
            call("EditTool", edit, id="e2"),
            say("done"),
        ],
        EditContextCheck(False, "Its caller is not shown.", (LineRange(60, 70, "the caller"),)),
    )
    talk = await start(models, config=SMALL)
    assert (await talk.say("change line 15")).text == "done"
    (request,) = models.asked
    assert request["output_config"]["format"] == {"type": "json_schema", "schema": EDIT_CONTEXT_SCHEMA}
    lines = "".join(f"line {n}.\n" for n in range(10, 20))
    assert models.questions() == [
        EditContextRequest(
            str(hundred_lines),
            (PlannedEdit("line 15.", "new"),),
            f"--- Lines 10-19 ---\n{lines}",
            is_partial=True,
            segment_keys=("10-19",),
            total_lines=100,
        )
    ]
    ended = list_results(talk)
    assert ended["e1"].status == "error"
    assert ended["e1"].text.startswith("Read lines 60-70 first; nothing was written. Its caller is not shown.")
    assert ended["e2"].status == "success"
    assert hundred_lines.read_text().count("new\n") == 1
    used = [event for event in talk.all(UsageRecorded) if event.purpose == "edit-sufficiency"]
    assert [event.usage for event in used] == [Usage(input=90, output=9)]
    assert talk.server.rejected == []


@pytest.mark.parametrize("verdict", [say("It seems fine to me."), fault(500), fault(401), fault(404)])
async def test_edit_succeeds_if_the_small_model_fails(start: Start, hundred_lines: Path, verdict: Any) -> None:
    edits = [{"old_string": f"line {n}.", "new_string": f"{n}!"} for n in (12, 15)]
    models = Models(
        [
            call("Grep", {"pattern": "line 1[0-9]", "path": str(hundred_lines)}),
            call("MultiEditTool", {"file_path": str(hundred_lines), "edits": edits}, id="e"),
            say("done"),
        ],
        verdict,
    )
    talk = await start(models, config=SMALL)
    await talk.say("change them")
    assert len(models.asked) == 1
    assert list_results(talk)["e"].status == "success"
    assert "12!\nline 13.\nline 14.\n15!\n" in hundred_lines.read_text()


@pytest.mark.parametrize(("validation", "asked"), [("never", 0), ("auto", 0), ("always", 1)])
async def test_validation_setting_decides_if_the_small_model_is_asked(
    start: Start, hundred_lines: Path, validation: str, asked: int
) -> None:
    script = [
        call("Read", {"file_path": str(hundred_lines)}),
        call("EditTool", {"file_path": str(hundred_lines), "old_string": "line 15.", "new_string": "new"}, id="e"),
        say("done"),
    ]
    models = Models(script, EditContextCheck(True, "fine"))
    talk = await start(models, config={**SMALL, "cache": {"validation": validation}})
    await talk.say("change it")
    assert len(models.asked) == asked
    assert list_results(talk)["e"].status == "success"


async def test_lines_shown_by_grep_can_be_edited_without_a_small_model(start: Start, hundred_lines: Path) -> None:
    script = [
        call("Grep", {"pattern": "line 42", "path": str(hundred_lines)}),
        call("EditTool", {"file_path": str(hundred_lines), "old_string": "line 42.", "new_string": "answer"}, id="e"),
        say("done"),
    ]
    talk = await start(script)
    await talk.say("change it")
    assert list_results(talk)["e"].status == "success"


@pytest.mark.parametrize("tool", ["EditTool", "WriteFile"])
async def test_file_changed_by_a_sub_agent_must_be_read_again(start: Start, hundred_lines: Path, tool: str) -> None:
    name = str(hundred_lines)
    change = {"file_path": name, "content": "mine\n"}
    if tool == "EditTool":
        change = {"file_path": name, "old_string": "line 15.", "new_string": "mine"}
    script = [
        call("Read", {"file_path": name}, id="r1"),
        call("AgentTool", {"description": "change it", "prompt": "Change line 90."}, id="t"),
        call("EditTool", {"file_path": name, "old_string": "line 90.", "new_string": "theirs"}, id="unread"),
        call("Read", {"file_path": name}, id="sub"),
        call("EditTool", {"file_path": name, "old_string": "line 90.", "new_string": "theirs"}, id="theirs"),
        say("Changed."),
        call(tool, change, id="refused"),
        call("Read", {"file_path": name}, id="r2"),
        call(tool, change, id="mine"),
        say("done"),
    ]
    talk = await start(script)
    assert (await talk.say("go")).text == "done"
    ended = list_results(talk)
    assert "Must read file first" in ended["unread"].text, "each agent must read the file itself"
    assert ended["theirs"].status == "success"
    assert ended["refused"].status == "error"
    assert "changed on disk since you read it" in ended["refused"].text
    assert "-line 90.\n+theirs\n" in ended["refused"].text
    assert "theirs" in ended["r2"].text
    assert ended["mine"].status == "success"
    assert hundred_lines.read_text().count("mine\n") == 1


async def test_configured_cache_limit_drops_the_oldest_file(start: Start, workspace: Path) -> None:
    for name in ("a", "b", "c"):
        (workspace / name).write_text(f"{name}\n")
    script = [
        *(call("Read", {"file_path": str(workspace / name)}) for name in ("a", "b", "c")),
        call("EditTool", {"file_path": str(workspace / "a"), "old_string": "a", "new_string": "x"}, id="a"),
        call("EditTool", {"file_path": str(workspace / "c"), "old_string": "c", "new_string": "x"}, id="c"),
        say("done"),
    ]
    talk = await start(script, config={"cache": {"max_entries": 2}})
    await talk.say("go")
    ended = list_results(talk)
    assert "Must read file first" in ended["a"].text
    assert ended["c"].status == "success"


LINES = "".join(f"line {number} of it\n" for number in range(1, 41))
SUMMARY = "\n".join(f"## {name}\nsomething" for name in HEADINGS)


class TestAfterACompaction:
    """C6: the model no longer sees a file it read before, but may edit it by an exact and unique text."""

    @staticmethod
    async def open_compacted(start: Start, path: Path, read: Any, edit: dict[str, Any]) -> Talk:
        """Open a session that has read a file and was compacted; the next prompt edits the file."""
        path.write_text(LINES)
        looks = [call("Read", {"file_path": str(path), **read})] if read is not None else []
        change = call("EditTool", {"file_path": str(path), "old_string": "line 30 of", "new_string": "new", **edit})
        script = iter([*looks, *[say("And more words. " * 80)] * 3, change, say("done")])

        def play(seen: Any) -> Any:
            return next(script) if seen.tool_names else say(SUMMARY)

        talk = await start(play)
        for prompt in ("one", "two", "three"):
            await talk.say(prompt)
        await talk.client.submit(Compact())
        await talk.until_live(Compacted)
        assert (str(path) in talk.all(Compacted)[0].text) is (read is not None), "the summary names what was read"
        assert (await talk.client.snapshot()).files == (), "the snapshot has no known files"
        return talk

    async def edit_after_compaction(
        self,
        start: Start,
        path: Path,
        *,
        read: Any = None,
        changed: bool = False,
        resumed: bool = False,
        **edit: Any,
    ) -> str:
        """Return the result of the edit."""
        talk = await self.open_compacted(start, path, read, edit)
        if resumed:
            session = (await talk.client.get_info()).session
            await talk.client.close()
            talk = await start(None, server=talk.server, resume=session)
        if changed:
            path.write_text(LINES + "another\n")
        assert (await talk.say("edit it")).text == "done"
        return talk.all(ToolEnded)[-1].text

    @pytest.mark.parametrize("resumed", [False, True])
    @pytest.mark.parametrize("read", [{}, {"limit": 5}])
    async def test_exact_and_unique_text_can_be_edited(
        self, start: Start, workspace: Path, read: dict[str, Any], resumed: bool
    ) -> None:
        path = workspace / "a.txt"
        assert "1 replacement" in await self.edit_after_compaction(start, path, read=read, resumed=resumed)
        assert path.read_text() == LINES.replace("line 30 of", "new")

    @pytest.mark.parametrize(
        ("why", "more"),
        [
            ("has not been read", {}),
            ("has not been read", {"read": {}, "changed": True}),
            ("has not been read", {"read": {}, "changed": True, "resumed": True}),
            ("occurs 40 times", {"read": {}, "old_string": "of it"}),
            ("was not found", {"read": {}, "old_string": "line 41"}),
            ("replace_all needs to know all of it", {"read": {}, "old_string": "of it", "replace_all": True}),
        ],
    )
    async def test_other_edits_are_refused(self, start: Start, workspace: Path, why: str, more: dict[str, Any]) -> None:
        path = workspace / "a.txt"
        assert why in await self.edit_after_compaction(start, path, **more)
        assert path.read_text().startswith(LINES)

    async def test_rewind_forgets_that_the_file_was_read(self, start: Start, workspace: Path) -> None:
        """The remaining conversation never read the file."""
        talk = await self.open_compacted(start, workspace / "a.txt", {}, {})
        await talk.client.submit(Rewind("p1", files=False, chat=True))
        await talk.say("edit it")
        assert "has not been read" in talk.all(ToolEnded)[-1].text
