from odin.core.message import AssistantMessage, Message, Text, Thinking, ToolCall, ToolMessage, ToolResult, UserMessage
from odin.providers.payload import running_loop
from tests.table import each

PROMPT = UserMessage("go")
CALLS = AssistantMessage((Thinking("hmm", "s"), ToolCall("t", "Read", {})))
RESULTS = ToolMessage((ToolResult("t", "text"),))
ANSWER = AssistantMessage((Thinking("so", "s"), Text("done")))
THOUGHTS = AssistantMessage((Thinking("cut", "s"), Text(" \n")), interrupted=True)


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
    assert running_loop(messages) == start
