"""The local summary, which is made from known facts when no model can write one."""

from odin.compaction.summary import SummaryFacts, build_local_summary, parse_sections
from odin.core.event_values import CachedFile, Todo
from odin.core.message import (
    Message,
    PromptMessage,
    ReplyMessage,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)

CONVERSATION: list[Message] = [
    PromptMessage("Mend the parser, and do not touch the tests."),
    ReplyMessage(
        (Text("I look at it first."), ToolCall("c1", "Read", {"path": "parser.py"}), ToolCall("c2", "LS", {}))
    ),
    ToolMessage((ToolResult("c1", "def parse(): ..."), ToolResult("c2", "no such folder", True))),
    ReplyMessage((Text("I write it anew with a table."),)),
]


def test_summary_has_the_prompt_the_tool_calls_and_their_outcome() -> None:
    facts = SummaryFacts(
        prompt="Mend the parser.",
        todos=(Todo("1", "write the table", "pending"),),
        files=(CachedFile("seen.py", 10, 1.0),),
        changed=("parser.py",),
    )
    parts = parse_sections(build_local_summary(CONVERSATION, facts, 4_000))
    assert parts["Goal"] == "Mend the parser, and do not touch the tests."
    assert "do not touch the tests" in parts["User Constraints"]
    read, listed = parts["Progress"].splitlines()[:2]
    assert read.startswith("- Read")
    assert "parser.py" in read
    assert "failed" not in read
    assert listed.startswith("- LS")
    assert listed.endswith("(failed)")
    assert "with a table" in parts["Key Decisions"]
    assert "no such folder" in parts["Open Problems"]
    assert "write the table" in build_local_summary(CONVERSATION, facts, 4_000)
    assert "Changed in this session: parser.py" in build_local_summary(CONVERSATION, facts, 4_000)


def test_earlier_summary_is_continued() -> None:
    earlier = build_local_summary(CONVERSATION, SummaryFacts(), 4_000)
    later = parse_sections(
        build_local_summary([PromptMessage("Now the printer.")], SummaryFacts(earlier=earlier), 4_000)
    )
    assert later["Goal"] == "Mend the parser, and do not touch the tests."
    assert "- Read" in later["Progress"]
    assert "do not touch the tests" in later["User Constraints"]
    assert "Now the printer." in later["User Constraints"]


def test_summary_is_bounded_and_keeps_the_newest_prompts() -> None:
    conversation: list[Message] = [PromptMessage(f"prompt {number} {'x' * 100}") for number in range(200)]
    text = build_local_summary(conversation, SummaryFacts(), 900)
    assert len(text) < 900 * 4
    assert "prompt 199" in text
    assert "prompt 150 " not in text
