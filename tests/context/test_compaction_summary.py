"""Compaction: the kept tail, the portions for the summary, quotes, the local summary, and pruning."""

from odin.compaction.measure import count_message_tokens, estimate_tokens
from odin.compaction.prune import select_prunable
from odin.compaction.summary import (
    HEADINGS,
    SummaryFacts,
    build_local_summary,
    collect_quotes,
    find_tail_start,
    find_weakness,
    merge_facts,
    parse_sections,
    split_into_portions,
)
from odin.core.event_values import CachedFile, Todo
from odin.core.message import Message, PromptMessage, ReplyMessage, Text, ToolCall, ToolMessage, ToolResult


def make_reply(text: str, *calls: ToolCall) -> ReplyMessage:
    return ReplyMessage((Text(text), *calls))


def make_turn(number: int) -> list[Message]:
    call = ToolCall(f"c{number}", "Read", {"file_path": f"/p/{number}.py"})
    result = ToolResult(call.id, f"line of {number} " * 40)
    return [
        PromptMessage(f"prompt {number}"),
        make_reply("", call),
        ToolMessage((result,)),
        make_reply(f"answer {number}"),
    ]


def make_conversation(count: int) -> list[Message]:
    return [message for number in range(count) for message in make_turn(number)]


class TestTail:
    """COMP9: the newest turns stay word for word, and no tool result is without its call."""

    def test_wanted_number_of_turns_is_kept(self) -> None:
        messages = make_conversation(6)
        assert find_tail_start(messages, count_message_tokens, room=100_000, turns=2) == 16
        assert find_tail_start(messages, count_message_tokens, room=100_000, turns=1) == 20

    def test_fewer_turns_are_kept_if_there_is_no_room(self) -> None:
        messages = make_conversation(6)
        one_turn = sum(map(count_message_tokens, make_turn(0)))
        assert find_tail_start(messages, count_message_tokens, room=one_turn + 20, turns=2) == 20
        assert find_tail_start(messages, count_message_tokens, room=10, turns=2) == 24

    def test_tail_never_begins_with_a_tool_result(self) -> None:
        messages = make_conversation(6)
        for room in range(0, 2_000, 7):
            start = find_tail_start(messages, count_message_tokens, room=room, turns=3)
            assert start == len(messages) or not isinstance(messages[start], ToolMessage)


class TestPortions:
    """COMP3: portions that fit into the context of the model that summarizes."""

    def test_portions_contain_all_prompts_and_none_is_too_large(self) -> None:
        pieces = split_into_portions(make_conversation(30), 800, 99)
        assert len(pieces) > 2
        assert all(estimate_tokens(piece) <= 900 for piece in pieces)
        together = "\n".join(pieces)
        assert all(f"prompt {number}\n" in f"{together}\n" for number in range(30))

    def test_message_over_half_of_the_room_is_left_out_with_a_note(self) -> None:
        huge = PromptMessage("begins like this " + "and on " * 3_000)
        (piece,) = split_into_portions([PromptMessage("small"), huge, make_reply("fine")], 800, 6)
        assert "is left out" in piece
        assert "begins like this" in piece
        assert "small" in piece
        assert "fine" in piece
        assert estimate_tokens(piece) < 800

    def test_middle_portions_over_the_limit_are_left_out_with_a_note(self) -> None:
        pieces = split_into_portions(make_conversation(60), 400, 4)
        assert len(pieces) == 4
        assert "prompt 0" in pieces[0]
        assert "parts of the conversation are left out here]" in pieces[2]
        assert "answer 59" in pieces[-1]


class TestQuotes:
    """COMP9: corrections, errors and edits are quoted word for word."""

    MESSAGES: tuple[Message, ...] = (
        PromptMessage("No, the port is 8081 and never 8080."),
        make_reply("", ToolCall("e", "EditTool", {"file_path": "/a", "old_string": "8080", "new_string": "8081"})),
        ToolMessage((ToolResult("e", "permission denied on /a", is_error=True),)),
    )

    def test_corrections_errors_and_edits_are_quoted(self) -> None:
        found = collect_quotes(self.MESSAGES, 1_000)
        assert "- No, the port is 8081 and never 8080." in found
        assert "- permission denied on /a" in found
        assert "old_string='8080'" in found

    def test_quotes_are_limited_to_the_room(self) -> None:
        found = collect_quotes(self.MESSAGES, 25)
        assert "8081 and never 8080" in found
        assert "old_string" not in found
        assert collect_quotes(self.MESSAGES, 0) == ""


class TestLocalSummary:
    """COMP8: the same headings, filled from known facts without a model."""

    FACTS = SummaryFacts(
        prompt="mend the port",
        todos=(Todo("1", "mend the port", "in_progress"),),
        agents=("- agent-1: look around",),
        files=(CachedFile("/p/read.py", 10, 0.0, False, False),),
        changed=("/p/changed.py",),
    )

    def test_every_heading_is_filled_with_known_facts(self) -> None:
        text = build_local_summary(make_conversation(3), self.FACTS, 2_000)
        found = parse_sections(text)
        known = "Goal, User Constraints, Progress, Key Decisions, Files and Evidence, Todo State, SubAgent State"
        assert ", ".join(found) == f"{known}, Open Problems, Next Step"
        assert "prompt 0" in found["Goal"]
        assert "Read file_path='/p/2.py'" in found["Progress"]
        assert found["Todo State"] == "- [in_progress] mend the port"
        assert found["SubAgent State"] == "- agent-1: look around"
        assert "Changed in this session: /p/changed.py" in found["Files and Evidence"]
        assert "Read: /p/read.py" in found["Files and Evidence"]
        assert found["Next Step"] == "Continue with the latest prompt: mend the port"
        assert find_weakness(text, 4_000) == ""

    def test_summary_with_fewer_than_six_of_nine_headings_is_weak(self) -> None:
        sections = [f"## {name}\nsomething" for name in HEADINGS]
        assert find_weakness("\n".join(sections[:6]), 4_000) == ""
        assert find_weakness("\n".join(sections[:5]), 4_000) == "it had only 5 of 9 headings"

    def test_earlier_summary_is_continued(self) -> None:
        first = build_local_summary(make_conversation(2), self.FACTS, 2_000)
        facts = SummaryFacts(prompt="and now", earlier=first)
        second = parse_sections(build_local_summary(make_turn(9), facts, 2_000))
        assert "prompt 0" in second["Goal"]
        assert "prompt 1" in second["User Constraints"]
        assert "prompt 9" in second["User Constraints"]

    def test_known_facts_override_the_summary_of_a_model(self) -> None:
        text = "\n".join(f"## {name}\nas I remember it" for name in HEADINGS)
        found = parse_sections(merge_facts(text, self.FACTS))
        assert found["Todo State"] == "- [in_progress] mend the port"
        assert found["SubAgent State"] == "- agent-1: look around"
        assert found["Goal"] == "as I remember it"
        assert found["Files and Evidence"].startswith("as I remember it\nChanged in this session")


class TestPruning:
    """Tool results that can be removed without a model."""

    @staticmethod
    def make_reads(*paths: str) -> list[Message]:
        found: list[Message] = [PromptMessage("go")]
        for number, path in enumerate(paths):
            found += [
                make_reply("", ToolCall(f"c{number}", "Read", {"file_path": path})),
                ToolMessage((ToolResult(f"c{number}", "some text " * 100),)),
            ]
        return found

    def test_read_repeated_by_a_later_one_is_pruned_even_if_recent(self) -> None:
        found = select_prunable(self.make_reads("/a", "/b", "/a"), recent=1 << 60, is_gone=lambda result: False)
        assert found.calls == ("c0",)

    def test_newest_result_is_not_pruned(self) -> None:
        found = select_prunable(self.make_reads("/a", "/b", "/c"), recent=0, is_gone=lambda result: False)
        assert found.calls == ("c0", "c1")
