"""Which results go first when a conversation must become shorter."""

from collections.abc import Mapping
from typing import Any

from odin.compaction.prune import select_prunable
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult

LONG = "some words of a file " * 100

LOOK: tuple[str, dict[str, Any], bool] = ("LS", {}, False)


def talk(*calls: tuple[str, Mapping[str, Any], bool]) -> list[Message]:
    """A conversation of these calls, c0, c1 and so on, each with whether it failed."""
    messages: list[Message] = [PromptMessage("go")]
    for number, (name, args, failed) in enumerate(calls):
        messages.append(ReplyMessage((ToolCall(f"c{number}", name, dict(args)),)))
        messages.append(ToolMessage((ToolResult(f"c{number}", LONG, failed),)))
    return messages


def gone(messages: list[Message], recent: int = 1_000_000) -> tuple[str, ...]:
    return select_prunable(messages, recent=recent, is_gone=lambda result: False).calls


def test_a_read_that_a_later_read_repeats() -> None:
    a, b = {"file_path": "a.py"}, {"file_path": "b.py"}
    assert gone(talk(("Read", a, False), ("Read", b, False), ("Read", a, False), LOOK)) == ("c0",)
    assert gone(talk(("LS", {"path": "a"}, False), ("LS", {"path": "a"}, False), LOOK)) == ()


def test_a_part_is_repeated_by_the_same_part_or_the_whole_and_a_whole_by_no_part() -> None:
    whole, part = {"file_path": "a.py"}, {"file_path": "a.py", "offset": 5, "limit": 10}
    assert gone(talk(("Read", part, False), ("Read", whole, False), LOOK)) == ("c0",)
    assert gone(talk(("Read", part, False), ("Read", part, False), LOOK)) == ("c0",)
    assert gone(talk(("Read", whole, False), ("Read", part, False), LOOK)) == ()


def test_a_later_read_that_failed_repeats_nothing() -> None:
    a = {"file_path": "a.py"}
    assert gone(talk(("Read", a, False), ("Read", a, True), LOOK)) == ()


def test_old_results_go_and_those_of_the_newest_reply_stay() -> None:
    messages = talk(LOOK, LOOK, LOOK)
    assert gone(messages, recent=0) == ("c0", "c1")
    assert select_prunable(messages, recent=0, is_gone=lambda result: result.call_id == "c0").calls == ("c1",)
    assert select_prunable(messages, recent=0, is_gone=lambda result: False, newest=True).calls == ("c0", "c1", "c2")
