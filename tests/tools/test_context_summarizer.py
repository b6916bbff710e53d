"""ContextSummarizer: the results it covers, the question to the small model, and the tool result."""

from pathlib import Path

import pytest

from odin.core.background_prompts import CONTEXT_SUMMARY_PROMPT, BackgroundPrompt, CollectedContext
from odin.core.errors import Overloaded
from odin.core.message import PromptMessage
from odin.core.provider import Request
from odin.core.tool import CollectedItem, ToolOutput
from odin.providers.offline.background import answer_background
from odin.tools.context_summarizer import MAX_INPUT, SHORT_CHARS, ContextSummarizerTool
from tests.tools.toolbox import Toolbox

LONG = "a finding " * 100


def parse_collected(text: str) -> CollectedContext:
    head, *parts = f"\n{text}".split("\n=====> ")
    items = [part.partition("\n") for part in parts]
    return CollectedContext(
        head.strip().removeprefix("Focus: "), tuple((title, body.strip()) for title, _, body in items)
    )


class SummarizerHarness:
    """Calls the tool with the collected items of a test; `asked` records the questions to the small model."""

    def __init__(self, box: Toolbox, *collected: CollectedItem) -> None:
        self.collected = collected
        self.asked: list[CollectedContext] = []
        self.answer: str | Exception = "In short."
        self._box = box

    async def call(self, **args: str) -> ToolOutput:
        tool = ContextSummarizerTool(lambda: self.collected, self._ask_small_model, self._box.files)
        return await tool.run(tool.parse(args), self._box.context())

    async def _ask_small_model(self, job: BackgroundPrompt, text: str) -> str:
        assert job == CONTEXT_SUMMARY_PROMPT
        self.asked.append(parse_collected(text))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def make_result(name: str, text: str = LONG, args: str = "{}") -> CollectedItem:
    return CollectedItem(f"Read {args}", f"{name} {text}".strip(), name)


async def test_older_results_are_condensed_and_the_newest_stay(box: Toolbox):
    harness = SummarizerHarness(box, *(make_result(name) for name in "abcd"))
    output = await harness.call(focus="the port")
    assert harness.asked == [
        CollectedContext("the port", (("Read {}", f"a {LONG}".strip()), ("Read {}", f"b {LONG}".strip())))
    ]
    assert (output.summary, output.covers) == ("In short.", ("a", "b"))
    assert output.text == "Summary of 2 results and 0 pieces of context (2,002 characters became 9):\n\nIn short."


async def test_short_results_and_repeated_ids_are_left_alone(box: Toolbox):
    harness = SummarizerHarness(
        box,
        make_result("a"),
        make_result("a"),
        make_result("b", "x" * (SHORT_CHARS - 2)),
        make_result("c"),
        make_result("d"),
        make_result("e"),
    )
    output = await harness.call()
    assert output.covers == ("c",)


async def test_pieces_of_context_are_condensed_too(box: Toolbox):
    harness = SummarizerHarness(box, CollectedItem("Context from /w/a", "port = 1\n" * 60), make_result("a"))
    output = await harness.call()
    assert harness.asked[0].items[0][0] == "Context from /w/a"
    assert (output.summary, output.covers) == ("In short.", ())
    assert "0 results and 1 pieces of context" in output.text


@pytest.mark.parametrize(
    "found", [(), (make_result("a"), make_result("b")), (CollectedItem("Context from the user", "small"),)]
)
async def test_without_anything_to_shorten_the_small_model_is_not_asked(box: Toolbox, found: tuple[CollectedItem, ...]):
    harness = SummarizerHarness(box, *found)
    output = await harness.call()
    assert not output.is_error
    assert output.text == "Nothing has been collected that a summary would shorten."
    assert (harness.asked, output.summary, output.covers) == ([], "", ())


async def test_nothing_is_replaced_when_the_small_model_fails(box: Toolbox):
    harness = SummarizerHarness(box, *(make_result(name) for name in "abc"))
    harness.answer = Overloaded("It is overloaded.", "Try later.")
    output = await harness.call()
    assert output.is_error
    assert output.text == "The small model could not summarize: It is overloaded. Try later. Nothing was replaced."
    assert (output.summary, output.covers) == ("", ())


async def test_a_summary_longer_than_the_original_is_not_used(box: Toolbox):
    harness = SummarizerHarness(box, *(make_result(name) for name in "abc"))
    harness.answer = "word " * 1000
    output = await harness.call()
    assert "Nothing was replaced" in output.text
    assert (output.summary, output.covers) == ("", ())


async def test_results_that_do_not_fit_are_kept_and_reported(box: Toolbox):
    harness = SummarizerHarness(box, *(make_result(name, "x" * 60_000) for name in "abcdefg"))
    output = await harness.call()
    assert output.covers == ("c", "d", "e")
    assert "(2 older results did not fit and stay as they are; call this tool again for them.)" in output.text
    assert sum(len(text) for _, text in harness.asked[0].items) <= MAX_INPUT


async def test_a_piece_of_context_that_is_too_long_loses_its_middle(box: Toolbox):
    harness = SummarizerHarness(box, CollectedItem("Context from `cat x`", "head " + "x" * 300_000 + " tail"))
    output = await harness.call()
    (_, text) = harness.asked[0].items[0]
    assert text.startswith("head x")
    assert text.endswith("x tail")
    assert "200,010 characters left out" in text
    assert "The middle of the longest pieces of context was left out" in output.text


async def test_files_whose_content_is_replaced_are_named(box: Toolbox, workspace: Path):
    gone, seen, other = (box.write(f"{name}.py", f"{name} = 1\n") for name in ("gone", "seen", "other"))
    for path in (gone, seen, other):
        await box.ok("Read", file_path=path)
    harness = SummarizerHarness(
        box,
        make_result("a", args=f'{{"file_path":"{gone}"}}'),
        make_result("b", args=f'{{"file_path":"{seen}"}}'),
        make_result("c", args=f'{{"file_path":"{seen}"}}'),
        make_result("d"),
    )
    said = (await harness.call()).text
    assert f"no longer in view: {gone}. Read the lines you need again" in said


async def test_the_offline_provider_answers_with_extracts(box: Toolbox):
    question = CollectedContext(
        "the port",
        (
            ("Read a", "first line\n" + "noise\n" * 200 + "port = 8080\n" + "noise\n" * 200),
            ("Grep b", "b.py:7: host = 'x'\n" + "more\n" * 400),
        ),
    )
    said = answer_background(Request("m", (PromptMessage(question.render()),), system=CONTEXT_SUMMARY_PROMPT.system))
    assert "extracts" in said
    assert "- Read a\n" in said
    assert "b.py:7: host = 'x'" in said
    assert len(said) < 7000
