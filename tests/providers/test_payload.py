from odin.core.message import Message, PromptMessage, ReplyMessage, Text, Thinking, ToolCall, ToolMessage, ToolResult
from odin.providers.payload import find_loop_start
from tests.table import each

PROMPT = PromptMessage("go")
CALLS = ReplyMessage((Thinking("hmm", "s"), ToolCall("t", "Read", {})))
RESULTS = ToolMessage((ToolResult("t", "text"),))
ANSWER = ReplyMessage((Thinking("so", "s"), Text("done")))
THOUGHTS = ReplyMessage((Thinking("cut", "s"), Text(" \n")), interrupted=True)


@each(
    ("messages", "start"),
    [
        ((), 0),
        ((CALLS, RESULTS), 0),
        ((PROMPT,), 1),
        ((PROMPT, PROMPT), 2),
        ((PROMPT, CALLS, RESULTS), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT, PROMPT), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT, CALLS, RESULTS), 1),
        ((PROMPT, CALLS, RESULTS, PROMPT, CALLS, RESULTS, PROMPT), 1),
        ((PROMPT, CALLS, RESULTS, THOUGHTS, PROMPT), 1),
        ((PROMPT, THOUGHTS, PROMPT, CALLS, RESULTS), 3),
        ((PROMPT, CALLS, RESULTS, ANSWER), 1),
        ((PROMPT, CALLS, RESULTS, ANSWER, PROMPT), 5),
        ((PROMPT, CALLS, RESULTS, ANSWER, PROMPT, PROMPT, CALLS, RESULTS), 6),
        ((PROMPT, CALLS, RESULTS, PROMPT, ANSWER, PROMPT, CALLS, RESULTS, PROMPT), 6),
    ],
)
def test_where_the_running_loop_begins(messages: tuple[Message, ...], start: int) -> None:
    assert find_loop_start(messages) == start
