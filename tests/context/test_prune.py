"""Which tool results are pruned first."""

from collections.abc import Mapping
from typing import Any

from odin.compaction.prune import select_prunable
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolMessage, ToolResult

LONG = "some words of a file " * 100

LIST_CALL: tuple[str, dict[str, Any], bool] = ("LS", {}, False)


def make_conversation(*calls: tuple[str, Mapping[str, Any], bool]) -> list[Message]:
    """Return a conversation of calls c0, c1 and so on, each given by name, arguments and whether it failed."""
    messages: list[Message] = [PromptMessage("go")]
    for number, (name, args, failed) in enumerate(calls):
        messages.append(ReplyMessage((ToolCall(f"c{number}", name, dict(args)),)))
        messages.append(ToolMessage((ToolResult(f"c{number}", LONG, failed),)))
    return messages


def prune(messages: list[Message], recent: int = 1_000_000) -> tuple[str, ...]:
    return select_prunable(messages, recent=recent, is_gone=lambda result: False).calls


def test_read_repeated_by_a_later_read_is_pruned() -> None:
    a, b = {"file_path": "a.py"}, {"file_path": "b.py"}
    assert prune(make_conversation(("Read", a, False), ("Read", b, False), ("Read", a, False), LIST_CALL)) == ("c0",)
    assert prune(make_conversation(("LS", {"path": "a"}, False), ("LS", {"path": "a"}, False), LIST_CALL)) == ()


def test_partial_read_is_repeated_by_the_same_part_or_by_the_whole_file() -> None:
    whole, part = {"file_path": "a.py"}, {"file_path": "a.py", "offset": 5, "limit": 10}
    assert prune(make_conversation(("Read", part, False), ("Read", whole, False), LIST_CALL)) == ("c0",)
    assert prune(make_conversation(("Read", part, False), ("Read", part, False), LIST_CALL)) == ("c0",)
    assert prune(make_conversation(("Read", whole, False), ("Read", part, False), LIST_CALL)) == ()


def test_failed_read_does_not_replace_an_earlier_one() -> None:
    a = {"file_path": "a.py"}
    assert prune(make_conversation(("Read", a, False), ("Read", a, True), LIST_CALL)) == ()


def test_old_results_are_pruned_but_not_those_of_the_newest_reply() -> None:
    messages = make_conversation(LIST_CALL, LIST_CALL, LIST_CALL)
    assert prune(messages, recent=0) == ("c0", "c1")
    assert select_prunable(messages, recent=0, is_gone=lambda result: result.call_id == "c0").calls == ("c1",)
    assert select_prunable(messages, recent=0, is_gone=lambda result: False, newest=True).calls == ("c0", "c1", "c2")
