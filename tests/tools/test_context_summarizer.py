"""ContextSummarizer: what it covers, what the small model reads, what it returns."""

from pathlib import Path

import pytest

from odin.core.errors import Overloaded
from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.core.small_jobs import CONTEXT_SUMMARY_JOB, CollectedContext, SmallJob
from odin.core.tool import CollectedItem, ToolOutput
from odin.providers.offline.jobs import do_job
from odin.tools.context_summarizer import MAX_INPUT, SHORT_CHARS, ContextSummarizerTool
from tests.tools.toolbox import Toolbox

LONG = "a finding " * 100


class Desk:
    """The tool with the collected items of a test."""

    def __init__(self, box: Toolbox, *collected: CollectedItem) -> None:
        self.collected = collected
        self.asked: list[CollectedContext] = []
        self.answer: str | Exception = "In short."
        self._box = box

    async def call(self, **args: str) -> ToolOutput:
        tool = ContextSummarizerTool(lambda: self.collected, self._ask_small_model, self._box.files)
        assert tool.runs_alone
        return await tool.run(tool.parse(args), self._box.context())

    async def _ask_small_model(self, job: SmallJob, text: str) -> str:
        assert job == CONTEXT_SUMMARY_JOB
        self.asked.append(CollectedContext.parse(text))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def result(name: str, text: str = LONG, args: str = "{}") -> CollectedItem:
    return CollectedItem(f"Read {args}", f"{name} {text}".strip(), name)


async def test_older_results_are_condensed_and_the_newest_stay(box: Toolbox):
    desk = Desk(box, *(result(name) for name in "abcd"))
    output = await desk.call(focus="the port")
    assert desk.asked == [
        CollectedContext("the port", (("Read {}", f"a {LONG}".strip()), ("Read {}", f"b {LONG}".strip())))
    ]
    assert (output.summary, output.covers) == ("In short.", ("a", "b"))
    assert output.text == "Summary of 2 results and 0 pieces of context (2,002 characters became 9):\n\nIn short."


async def test_short_results_and_repeated_ids_are_left_alone(box: Toolbox):
    desk = Desk(
        box, result("a"), result("a"), result("b", "x" * (SHORT_CHARS - 2)), result("c"), result("d"), result("e")
    )
    output = await desk.call()
    assert output.covers == ("c",)


async def test_pieces_of_context_are_condensed_too(box: Toolbox):
    desk = Desk(box, CollectedItem("Context from /w/a", "port = 1\n" * 60), result("a"))
    output = await desk.call()
    assert desk.asked[0].items[0][0] == "Context from /w/a"
    assert (output.summary, output.covers) == ("In short.", ())
    assert "0 results and 1 pieces of context" in output.text


@pytest.mark.parametrize("found", [(), (result("a"), result("b")), (CollectedItem("Context from the user", "small"),)])
async def test_nothing_to_shorten_asks_no_model(box: Toolbox, found: tuple[CollectedItem, ...]):
    desk = Desk(box, *found)
    output = await desk.call()
    assert not output.is_error
    assert output.text == "Nothing has been collected that a summary would shorten."
    assert (desk.asked, output.summary, output.covers) == ([], "", ())


async def test_a_lesser_model_that_fails_changes_nothing(box: Toolbox):
    desk = Desk(box, *(result(name) for name in "abc"))
    desk.answer = Overloaded("It is overloaded.", "Try later.")
    output = await desk.call()
    assert output.is_error
    assert output.text == "The small model could not summarize: It is overloaded. Try later. Nothing was replaced."
    assert (output.summary, output.covers) == ("", ())


async def test_a_summary_that_is_longer_than_what_it_replaces_is_not_used(box: Toolbox):
    desk = Desk(box, *(result(name) for name in "abc"))
    desk.answer = "word " * 1000
    output = await desk.call()
    assert "Nothing was replaced" in output.text
    assert (output.summary, output.covers) == ("", ())


async def test_what_does_not_fit_stays_and_is_said(box: Toolbox):
    desk = Desk(box, *(result(name, "x" * 60_000) for name in "abcdefg"))
    output = await desk.call()
    assert output.covers == ("c", "d", "e")
    assert "(2 older results did not fit and stay as they are; call this tool again for them.)" in output.text
    assert sum(len(text) for _, text in desk.asked[0].items) <= MAX_INPUT


async def test_a_piece_of_context_that_is_too_long_loses_its_middle(box: Toolbox):
    desk = Desk(box, CollectedItem("Context from `cat x`", "head " + "x" * 300_000 + " tail"))
    output = await desk.call()
    (_, text) = desk.asked[0].items[0]
    assert text.startswith("head x")
    assert text.endswith("x tail")
    assert "200,010 characters left out" in text
    assert "The middle of the longest pieces of context was left out" in output.text


async def test_files_that_go_out_of_view_are_named(box: Toolbox, workspace: Path):
    gone, seen, other = (box.write(f"{name}.py", f"{name} = 1\n") for name in ("gone", "seen", "other"))
    for path in (gone, seen, other):
        await box.ok("Read", file_path=path)
    desk = Desk(
        box,
        result("a", args=f'{{"file_path":"{gone}"}}'),
        result("b", args=f'{{"file_path":"{seen}"}}'),
        result("c", args=f'{{"file_path":"{seen}"}}'),
        result("d"),
    )
    said = (await desk.call()).text
    assert f"no longer in view: {gone}. Read the lines you need again" in said


async def test_without_a_model_extracts_take_its_place(box: Toolbox):
    question = CollectedContext(
        "the port",
        (
            ("Read a", "first line\n" + "noise\n" * 200 + "port = 8080\n" + "noise\n" * 200),
            ("Grep b", "b.py:7: host = 'x'\n" + "more\n" * 400),
        ),
    )
    said = do_job(
        CONTEXT_SUMMARY_JOB.marker, Request("m", (PromptMessage(question.render()),), system=CONTEXT_SUMMARY_JOB.system)
    )
    assert "extracts" in said
    assert "- Read a\n" in said
    assert "port = 8080" in said
    assert "b.py:7: host = 'x'" in said
    assert len(said) < 7000
    assert CollectedContext.parse(question.render()).focus == "the port"
