"""The small model reviews edits of partially read files: its questions, and that its answers can only refuse."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.context.file_cache import FileCache
from odin.context.settings import CacheSettings, Validation
from odin.core.background_prompts import BackgroundPrompt, EditContextCheck, EditContextRequest, LineRange, PlannedEdit
from odin.core.errors import BadRequest, ConfigError, Overloaded
from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.providers.offline.background import answer_background
from odin.tools import ToolDeps, build_standard_tools
from odin.tools.edit import EditTool
from odin.tools.file_edit import EditReviewer
from tests.tools.toolbox import Toolbox

Answer = Callable[[EditContextRequest], EditContextCheck | str]


class RecordingSmallModel:
    """A small model in this process that records its questions."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.questions: list[EditContextRequest] = []
        self.jobs: list[BackgroundPrompt] = []

    async def __call__(self, job: BackgroundPrompt, text: str) -> str:
        self.jobs.append(job)
        self.questions.append(msgspec.json.decode(text, type=EditContextRequest))
        said = self.answer(self.questions[-1])
        return said if isinstance(said, str) else msgspec.json.encode(said).decode()


def use_small_model(box: Toolbox, answer: Answer, validation: Validation = "auto") -> RecordingSmallModel:
    small_model = RecordingSmallModel(answer)
    box.files = FileCache(CacheSettings(validation=validation))
    box.tools = {
        tool.name: tool for tool in build_standard_tools(ToolDeps(box.files, box.runner, small_model=small_model))
    }
    return small_model


def approve(question: EditContextRequest) -> EditContextCheck:
    return EditContextCheck(True, "fine")


def answer_with(text: str) -> Answer:
    return lambda question: text


def request_lines(*ranges: tuple[int, int]) -> Answer:
    lines = tuple(LineRange(first, last, "look") for first, last in ranges)
    return lambda question: EditContextCheck(False, "The caller is not shown", lines)


@pytest.fixture
async def box(workspace: Path) -> AsyncIterator[Toolbox]:
    box = Toolbox(workspace)
    yield box
    await box.runner.close()


def write_hundred_lines(box: Toolbox) -> str:
    return box.write("a.txt", "".join(f"line {n}.\n" for n in range(1, 101)))


def make_edit(name: str, line: int = 15) -> dict[str, Any]:
    return {"file_path": name, "old_string": f"line {line}.", "new_string": "new"}


# --- the question ---


async def test_the_question_contains_the_edit_and_the_lines_that_were_read(box: Toolbox) -> None:
    small_model, name = use_small_model(box, approve), write_hundred_lines(box)
    await box.ok("Read", file_path=name, offset=50, limit=1)
    await box.ok("Read", file_path=name, offset=14, limit=2)
    await box.ok("Read", file_path=name, offset=16, limit=1)
    await box.ok("EditTool", **make_edit(name), replace_all=True)
    assert small_model.questions == [
        EditContextRequest(
            file_path=name,
            edits=(PlannedEdit("line 15.", "new", True),),
            cached_content="--- Lines 14-16 ---\nline 14.\nline 15.\nline 16.\n--- Lines 50-50 ---\nline 50.\n",
            is_partial=True,
            segment_keys=("50-50", "14-15", "16-16"),
            total_lines=100,
        )
    ]


async def test_several_edits_are_one_question(box: Toolbox) -> None:
    small_model, name = use_small_model(box, approve), write_hundred_lines(box)
    await box.ok("Read", file_path=name, offset=10, limit=20)
    edits = [{"old_string": f"line {n}.", "new_string": f"{n}!"} for n in (12, 20)]
    await box.ok("MultiEditTool", file_path=name, edits=edits)
    (question,) = small_model.questions
    assert [edit.new_string for edit in question.edits] == ["12!", "20!"]


@pytest.mark.parametrize(
    ("validation", "whole", "asked"),
    [
        ("auto", True, 0),
        ("auto", False, 1),
        ("always", True, 1),
        ("always", False, 1),
        ("never", True, 0),
        ("never", False, 0),
    ],
)
async def test_the_validation_setting_decides_when_the_small_model_is_asked(
    box: Toolbox, validation: Validation, whole: bool, asked: int
) -> None:
    small_model, name = use_small_model(box, approve, validation), write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=None if whole else 20)
    await box.ok("EditTool", **make_edit(name))
    assert len(small_model.questions) == asked


async def test_a_file_read_completely_in_segments_needs_no_review(box: Toolbox) -> None:
    small_model, name = use_small_model(box, approve), write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=50)
    await box.ok("Read", file_path=name, offset=51)
    await box.ok("EditTool", **make_edit(name))
    assert small_model.questions == []


async def test_a_file_with_truncated_lines_is_reviewed(box: Toolbox) -> None:
    small_model = use_small_model(box, approve)
    name = box.write("a.txt", "y" * 3000 + " end\n")
    await box.ok("Read", file_path=name)
    await box.ok("EditTool", file_path=name, old_string=" end", new_string="")
    assert [question.is_partial for question in small_model.questions] == [False]


async def test_deterministic_refusals_do_not_ask_the_small_model(box: Toolbox) -> None:
    """These refusals need no answer, and no answer could override them."""
    small_model, name = use_small_model(box, approve), write_hundred_lines(box)
    assert "Must read file first" in await box.refused("EditTool", **make_edit(name))
    await box.ok("Read", file_path=name, limit=20)
    assert "Must read lines 50-50 first" in await box.refused("EditTool", **make_edit(name, 50))
    assert "not found" in await box.refused("EditTool", file_path=name, old_string="nowhere", new_string="x")
    assert "occurs" in await box.refused("EditTool", file_path=name, old_string="line", new_string="x")
    Path(name).write_text("line 15.\n")
    assert "changed on disk" in await box.refused("EditTool", **make_edit(name))
    assert small_model.questions == []
    assert Path(name).read_text() == "line 15.\n"


async def test_the_question_about_a_large_file_shows_only_lines_around_the_edits(box: Toolbox) -> None:
    small_model = use_small_model(box, approve)
    name = box.write("a.txt", "".join(f"{n:04} {'x' * 60}\n" for n in range(1, 3001)))
    for offset in range(1, 2500, 500):
        await box.ok("Read", file_path=name, offset=offset, limit=500)
    edits = [{"old_string": f"{n:04} ", "new_string": f"{n}: "} for n in (700, 710, 2000)]
    await box.ok("MultiEditTool", file_path=name, edits=edits)
    content = small_model.questions[0].cached_content
    assert "--- Lines 660-750 ---\n0660 " in content
    assert "--- Lines 1960-2040 ---\n1960 " in content
    assert content.count("--- Lines") == 2


async def test_a_question_that_would_be_too_large_is_not_asked(box: Toolbox) -> None:
    """Neither the new text nor the context may be larger than a small model can read."""
    small_model = use_small_model(box, request_lines((900, 950)))
    name = box.write("a.txt", "".join(f"{n:04} {'x' * 90}\n" for n in range(1, 1001)))
    await box.ok("Read", file_path=name, limit=450)
    await box.ok("Read", file_path=name, offset=451, limit=100)
    await box.ok("EditTool", file_path=name, old_string="0007 " + "x" * 90, new_string="y" * 41_000)
    other = box.write("b.txt", "".join(f"{n % 7} {'x' * 90}\n" for n in range(1000)) + "end\n")
    for offset in (1, 251, 501, 751):
        await box.ok("Read", file_path=other, offset=offset, limit=250)
    await box.ok("EditTool", file_path=other, old_string="3 x", new_string="4 y", replace_all=True)
    assert small_model.questions == []


async def test_a_file_that_is_not_utf8_can_be_reviewed(box: Toolbox) -> None:
    small_model = use_small_model(box, approve)
    name = box.write("a.txt", b"caf\xe9 x\nb\nc\n")
    await box.ok("Read", file_path=name, limit=2)
    await box.ok("EditTool", file_path=name, old_string="b", new_string="B")
    assert "caf\ufffd x" in small_model.questions[0].cached_content
    assert Path(name).read_bytes() == b"caf\xe9 x\nB\nc\n"


# --- the answer ---


@pytest.mark.parametrize("tool", ["EditTool", "MultiEditTool"])
async def test_a_refusal_names_lines_and_after_reading_them_the_same_edit_succeeds(box: Toolbox, tool: str) -> None:
    small_model, name = use_small_model(box, request_lines((60, 70), (90, 92))), write_hundred_lines(box)
    before = Path(name).read_bytes()
    await box.ok("Read", file_path=name, limit=20)
    args = make_edit(name)
    if tool == "MultiEditTool":
        args = {"file_path": name, "edits": [{"old_string": "line 15.", "new_string": "new"}]}
    text = await box.refused(tool, **args)
    assert text.startswith("Read lines 60-70 and 90-92 first; nothing was written. The caller is not shown.")
    assert "offset=60 and limit=11, then offset=90 and limit=3, then repeat the same edit" in text
    assert Path(name).read_bytes() == before
    await box.ok("Read", file_path=name, offset=60, limit=11)
    assert (await box.refused(tool, **args)).startswith("Read lines 90-92 first")
    await box.ok("Grep", pattern="line 9[0-2]", path=name)
    await box.ok(tool, **args)
    assert len(small_model.questions) == 1, "the requested lines were read, so it is not asked again"
    assert "\nnew\n" in Path(name).read_text()


async def test_another_edit_is_another_question(box: Toolbox) -> None:
    small_model, name = use_small_model(box, request_lines((60, 70))), write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=20)
    await box.refused("EditTool", **make_edit(name, 15))
    await box.refused("EditTool", **make_edit(name, 16))
    assert len(small_model.questions) == 2


async def test_a_changed_file_is_reviewed_again(box: Toolbox) -> None:
    small_model, name = use_small_model(box, request_lines((60, 70))), write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=20)
    await box.refused("EditTool", **make_edit(name))
    Path(name).write_text(Path(name).read_text() + "more\n")
    await box.ok("Read", file_path=name, limit=20)
    await box.refused("EditTool", **make_edit(name))
    assert [question.total_lines for question in small_model.questions] == [100, 101]


@pytest.mark.parametrize(
    ("suggested", "named"),
    [
        (((-5, 30),), "1-30"),
        (((95, 4000),), "95-100"),
        (((30, 35), (36, 40), (33, 34)), "30-40"),
        (((50, 40), (60, 61)), "60-61"),
        (tuple((n, n) for n in range(30, 100, 10)), "30-30 and 40-40 and 50-50 and 60-60 and 70-70"),
    ],
)
async def test_suggested_line_ranges_are_clamped_merged_and_limited(box: Toolbox, suggested: Any, named: str) -> None:
    use_small_model(box, request_lines(*suggested))
    name = write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=20)
    assert (await box.refused("EditTool", **make_edit(name))).startswith(f"Read lines {named} first;")


def fail_with(error: BaseException) -> Answer:
    def answer(question: EditContextRequest) -> str:
        raise error

    return answer


@pytest.mark.parametrize(
    "answer",
    [
        fail_with(Overloaded("busy")),
        fail_with(ConfigError("there is no such model")),
        fail_with(BadRequest("no")),
        answer_with("I think that is fine."),
        answer_with('{"is_sufficient": "no idea"}'),
        answer_with('{"is_sufficient": false, "explanation": "hm", "suggested_line_ranges": [{"start_line": 3}]}'),
        request_lines(),
        request_lines((1, 20), (5, 6)),
        request_lines((0, 0), (200, 300), (50, 40)),
    ],
    ids=[
        "busy",
        "misconfigured",
        "refused",
        "prose",
        "not a verdict",
        "half a range",
        "no lines",
        "seen",
        "no such lines",
    ],
)
async def test_without_a_usable_answer_the_edit_is_made(box: Toolbox, answer: Answer) -> None:
    small_model, name = use_small_model(box, answer), write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=20)
    await box.ok("EditTool", **make_edit(name))
    assert small_model.questions
    assert "\nnew\n" in Path(name).read_text()


async def test_an_objection_about_lines_that_were_read_becomes_a_note(box: Toolbox) -> None:
    use_small_model(box, request_lines((1, 20)))
    name = write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=20)
    output = await box.ok("EditTool", **make_edit(name))
    assert output.text.endswith("(Note from the review of this edit: The caller is not shown)")


async def test_an_objection_without_lines_becomes_a_note(box: Toolbox) -> None:
    use_small_model(box, lambda question: EditContextCheck(False, "The second edit\nundoes the first."), "always")
    name = write_hundred_lines(box)
    await box.ok("Read", file_path=name)
    output = await box.ok("EditTool", **make_edit(name))
    assert output.text.endswith("(Note from the review of this edit: The second edit undoes the first.)")


async def test_a_model_that_rejects_the_schema_is_asked_without_it(box: Toolbox) -> None:
    def answer(question: EditContextRequest) -> EditContextCheck:
        if small_model.jobs[-1].schema is not None:
            raise BadRequest("output_config: unknown field")
        return EditContextCheck(False, "more", (LineRange(30, 31, ""),))

    small_model, name = use_small_model(box, answer), write_hundred_lines(box)
    await box.ok("Read", file_path=name, limit=20)
    assert "Read lines 30-31 first" in await box.refused("EditTool", **make_edit(name))
    await box.refused("EditTool", **make_edit(name, 16))
    assert [job.schema is None for job in small_model.jobs] == [False, True, True]


async def test_a_model_that_does_not_answer_times_out(box: Toolbox) -> None:
    name = write_hundred_lines(box)
    cancelled = asyncio.Event()

    async def never_answer(job: BackgroundPrompt, text: str) -> str:
        try:
            return await asyncio.Future[str]()
        finally:
            cancelled.set()

    tool = EditTool(box.files, never_answer)
    tool._reviewer = EditReviewer(box.files, never_answer, seconds=0.01)
    box.tools["EditTool"] = tool
    await box.ok("Read", file_path=name, limit=20)
    await box.ok("EditTool", **make_edit(name))
    assert cancelled.is_set()


async def test_a_call_can_be_cancelled_during_the_review(box: Toolbox) -> None:
    name = write_hundred_lines(box)
    asked = asyncio.Event()

    async def never_answer(job: BackgroundPrompt, text: str) -> str:
        asked.set()
        return await asyncio.Future[str]()

    box.tools["EditTool"] = EditTool(box.files, never_answer)
    await box.ok("Read", file_path=name, limit=20)
    task = asyncio.create_task(box.call("EditTool", **make_edit(name)))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "new" not in Path(name).read_text()


async def test_a_file_change_during_the_review_is_detected(box: Toolbox) -> None:
    name = write_hundred_lines(box)

    def change_file(question: EditContextRequest) -> EditContextCheck:
        Path(name).write_text("theirs\n")
        return EditContextCheck(True)

    use_small_model(box, change_file)
    await box.ok("Read", file_path=name, limit=20)
    assert "changed on disk in the meantime" in await box.refused("EditTool", **make_edit(name))
    assert Path(name).read_text() == "theirs\n"


# --- no small model: the offline planner cannot review ---


async def ask_offline_planner(job: BackgroundPrompt, text: str) -> str:
    return answer_background(Request("m", (PromptMessage(text),), system=job.system, schema=job.schema))


@pytest.mark.parametrize(
    ("content", "old", "new"),
    [
        ("one\ntwo TODO\nthree\n", "TODO", "DONE"),
        ("one\r\ntwo TODO\r\nthree\r\n", "two TODO\n", "two\n2\n"),
        ("one\nTODO", "TODO\n", "DONE\n"),
        ("one\nTODO caf\udce9\nx\n", "TODO", "DONE"),
    ],
)
async def test_without_a_model_a_line_that_grep_showed_can_be_edited(
    box: Toolbox, content: str, old: str, new: str
) -> None:
    box.tools["EditTool"] = EditTool(box.files, ask_offline_planner)
    name = box.write("a.txt", content.encode("utf-8", "surrogateescape"))
    await box.ok("Grep", pattern="TODO", path=name)
    assert box.files.list_unseen(name)
    await box.ok("EditTool", file_path=name, old_string=old, new_string=new)


# --- files that changed since they were read ---


async def test_a_refusal_shows_how_the_file_changed(box: Toolbox) -> None:
    name = write_hundred_lines(box)
    await box.ok("Read", file_path=name)
    Path(name).write_text(Path(name).read_text().replace("line 50.", "line fifty."))
    for text in (
        await box.refused("EditTool", **make_edit(name)),
        await box.refused("WriteFile", file_path=name, content="mine\n"),
    ):
        assert "changed on disk since you read it. Nothing was written." in text
        assert "-line 50.\n+line fifty.\n" in text
    assert "line fifty." in Path(name).read_text()
    await box.ok("Read", file_path=name)
    await box.ok("EditTool", **make_edit(name))


async def test_a_refusal_says_how_each_segment_changed(box: Toolbox) -> None:
    name = write_hundred_lines(box)
    for first in (10, 50, 90):
        await box.ok("Read", file_path=name, offset=first, limit=3)
    lines = Path(name).read_text().splitlines(keepends=True)
    Path(name).write_text("".join([*lines[:50], "odd\n", "one more\n", *lines[51:]]))
    text = await box.refused("EditTool", **make_edit(name, 10))
    assert "Lines 50-52 changed. Lines 90-92 are now lines 91-93." in text
    assert "10-12" not in text


async def test_a_long_difference_is_truncated_with_a_note(box: Toolbox) -> None:
    name = write_hundred_lines(box)
    await box.ok("Read", file_path=name)
    Path(name).write_text("".join(f"{n} {'x' * 100}\n" for n in range(100)))
    text = await box.refused("EditTool", **make_edit(name))
    assert "(3000 of " in text
    assert len(text) < 3500
    Path(name).write_text("".join(f"line {n}.\n" for n in range(1, 101)).rstrip("\n"))
    assert "Only its final newline" in await box.refused("EditTool", **make_edit(name))


async def test_a_missing_final_newline_is_not_part_of_the_question(box: Toolbox) -> None:
    """EditTool tolerates it, so the small model must not be shown text that is not in the file."""
    small_model = use_small_model(box, approve)
    path = box.write("a.txt", "".join(f"line {number}\n" for number in range(1, 100)) + "the end")
    await box.ok("Read", file_path=path, offset=95)
    await box.ok("EditTool", file_path=path, old_string="line 99\nthe end\n", new_string="the new end\n")
    assert small_model.questions[0].edits[0].old_string == "line 99\nthe end"
    assert Path(path).read_text().endswith("line 98\nthe new end")
