"""Questions of the model to the user, through the whole engine."""

from typing import Any

import msgspec

from odin.core.call_events import PermissionAsked, QuestionsAnswered, QuestionsAsked, ToolEnded, ToolStarted
from odin.core.op import AnswerPermission, AnswerQuestions, Interrupt
from odin.testing import call, reply, say
from tests.engine.conftest import Start, Talk
from tests.waiting import TimeLimit

DATABASE = {
    "header": "Database",
    "text": "Which database?",
    "options": [{"label": "PostgreSQL", "detail": "a server"}, {"label": "SQLite", "detail": "a file"}],
}
EXTRAS = {"header": "Extras", "text": "Which extras?", "options": [{"label": "a"}, {"label": "b"}], "multiple": True}
NAME = {"header": "Name", "text": "What is it called?"}


def ask(*questions: dict[str, Any], id: str = "q1"):
    return call("Question", {"questions": list(questions)}, id=id)


async def wait_for_event(talk: Talk, kind: type[Any] = QuestionsAsked, number: int = 1) -> Any:
    """Wait for the n-th event of that kind and return it."""
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            if isinstance(envelope.event, kind):
                number -= 1
                if not number:
                    return envelope.event
    raise AssertionError("the events ended before the expected one")


async def test_answers_reach_the_model_in_the_order_of_the_questions(start: Start):
    talk = await start([ask(DATABASE, EXTRAS, NAME), say("Good.")], can_ask=True)
    prompt = await talk.submit("Set it up.")
    event = await wait_for_event(talk)
    assert [question.text for question in event.questions] == ["Which database?", "Which extras?", "What is it called?"]
    await talk.client.submit(AnswerQuestions(event.ask_id, (("SQLite",), ("a", "b"), ("Mimir",))))
    assert (await talk.until_end(prompt)).text == "Good."
    assert talk.server.requests[1].results["q1"] == "The user answered:\nDatabase: SQLite\nExtras: a, b\nName: Mimir"
    (answered,) = talk.all(QuestionsAnswered)
    assert (answered.answers, answered.by) == ((("SQLite",), ("a", "b"), ("Mimir",)), "user")


async def test_unanswered_questions_take_the_first_option_and_extra_choices_are_dropped(start: Start):
    talk = await start([ask(DATABASE, EXTRAS, NAME), say("Good.")], can_ask=True)
    prompt = await talk.submit("Set it up.")
    event = await wait_for_event(talk)
    await talk.client.submit(AnswerQuestions(event.ask_id, (("SQLite", "PostgreSQL"), (" ",))))
    await talk.until_end(prompt)
    assert talk.server.requests[1].results["q1"].splitlines()[1:] == [
        "Database: SQLite",
        "Extras: a",
        "Name: (no answer)",
    ]


async def test_first_answer_wins_and_unknown_answers_are_ignored(start: Start):
    talk = await start([ask(DATABASE), say("Good.")], can_ask=True)
    prompt = await talk.submit("Set it up.")
    event = await wait_for_event(talk)
    assert not await talk.client.submit(AnswerQuestions("ask-of-yesterday", (("PostgreSQL",),)))
    assert await talk.client.submit(AnswerQuestions(event.ask_id, (("SQLite",),)))
    assert not await talk.client.submit(AnswerQuestions(event.ask_id, cancelled=True))
    await talk.until_end(prompt)
    assert "SQLite" in talk.server.requests[1].results["q1"]


async def test_a_cancelled_question_is_an_error_and_the_turn_goes_on(start: Start):
    talk = await start([ask(DATABASE), say("As you like.")], can_ask=True)
    prompt = await talk.submit("Set it up.")
    event = await wait_for_event(talk)
    await talk.client.submit(AnswerQuestions(event.ask_id, cancelled=True))
    assert (await talk.until_end(prompt)).text == "As you like."
    (ended,) = talk.all(ToolEnded)
    assert (ended.status, ended.text) == ("error", "cancelled by user")


async def test_unanswered_question_times_out(start: Start):
    talk = await start([ask(DATABASE), say("I took PostgreSQL.")], can_ask=True, config={"question_timeout_s": 0.05})
    assert (await talk.say("Set it up.")).text == "I took PostgreSQL."
    (ended,) = talk.all(ToolEnded)
    assert ended.status == "error"
    assert ended.text.startswith("The user did not answer in time.")
    (answered,) = talk.all(QuestionsAnswered)
    assert (answered.cancelled, answered.by) == (True, "timeout")


async def test_question_tool_is_not_offered_and_refuses_if_no_user_can_be_asked(start: Start):
    talk = await start([ask(DATABASE), say("I took PostgreSQL.")])
    await talk.say("Set it up.")
    assert "Question" not in talk.server.requests[0].tool_names
    assert talk.server.requests[1].results["q1"].startswith("No user can be asked here. Choose")


async def test_question_tool_is_offered_in_every_mode_if_a_user_can_be_asked(start: Start):
    talk = await start([say("a"), say("b"), say("c")], can_ask=True)
    for mode in ("ask_mode", "plan_mode", "edit_mode"):
        await talk.say("Hi.", mode)
    assert all("Question" in request.tool_names for request in talk.server.requests)


async def test_permission_and_questions_are_asked_one_at_a_time(start: Start):
    """A permission request and two questions in one reply: each waits for the answer to the one before."""
    calls = [ask(DATABASE, id="q1"), ask(NAME, id="q2")]
    push = call("ExecuteCommand", {"command": "git push"}, id="w")
    talk = await start([reply("", [*calls, push]), say("Done.")], can_ask=True, yes=False)
    prompt = await talk.submit("Go.")
    permission = await wait_for_event(talk, PermissionAsked)
    assert not [event for event in await list_durable_events(talk) if isinstance(event, QuestionsAsked)]
    await talk.client.submit(AnswerPermission(permission.ask_id, allow=True))
    first = await wait_for_event(talk)
    assert len([event for event in await list_durable_events(talk) if isinstance(event, QuestionsAsked)]) == 1
    await talk.client.submit(AnswerQuestions(first.ask_id))
    second = await wait_for_event(talk, number=2)
    assert {first.call_id, second.call_id} == {"q1", "q2"}
    await talk.client.submit(AnswerQuestions(second.ask_id, (("Mimir",),)))
    talk.answers = [AnswerPermission("", allow=False)]
    await talk.until_end(prompt)
    assert set(talk.server.requests[1].results) == {"q1", "q2", "w"}


async def list_durable_events(talk: Talk) -> list[Any]:
    """Return all durable events so far."""
    last = (await talk.client.snapshot()).seq
    found: list[Any] = []
    async with TimeLimit():
        async for envelope in talk.client.stream_events(after=-1):
            found.append(envelope.event)
            if envelope.seq >= last:
                break
    return found


async def test_an_interrupt_releases_a_waiting_question(start: Start):
    talk = await start([ask(DATABASE), say("Here again.")], can_ask=True)
    prompt = await talk.submit("Set it up.")
    event = await wait_for_event(talk)
    await talk.client.submit(Interrupt())
    assert (await talk.until_end(prompt)).reason == "interrupted"
    (ended,) = talk.all(ToolEnded)
    assert (ended.call_id, ended.status) == ("q1", "cancelled")
    await talk.client.submit(AnswerQuestions(event.ask_id, (("SQLite",),)))
    assert (await talk.say("And now?")).text == "Here again."
    assert "q1" in talk.server.requests[1].results
    assert not talk.server.rejected


async def test_closing_the_session_releases_a_waiting_question(start: Start):
    talk = await start([ask(DATABASE)], can_ask=True)
    await talk.submit("Set it up.")
    await wait_for_event(talk)
    async with TimeLimit():
        await talk.client.close()
    events = [envelope.event async for envelope in talk.remaining()]
    assert [event.call_id for event in events if isinstance(event, ToolEnded)] == ["q1"]


async def test_question_format_of_other_agents_is_accepted(start: Start):
    question = {
        "question": "Which database?",
        "header": "Database",
        "multiSelect": True,
        "options": [{"label": "PostgreSQL", "description": "a server"}],
    }
    talk = await start([call("AskUserQuestion", {"questions": [question]}, id="q1"), say("Ok.")], can_ask=True)
    prompt = await talk.submit("Go.")
    event = await wait_for_event(talk)
    assert msgspec.to_builtins(event.questions[0]) == {
        "header": "Database",
        "text": "Which database?",
        "options": ({"label": "PostgreSQL", "detail": "a server"},),
        "multiple": True,
    }
    await talk.client.submit(AnswerQuestions(event.ask_id))
    await talk.until_end(prompt)
    assert [event.description for event in talk.all(ToolStarted)] == ["Which database?"]


async def test_invalid_questions_are_refused_with_the_field_name(start: Start):
    calls = [
        call("Question", {"questions": []}, id="none"),
        call("Question", {"questions": [{"header": "h", "text": "t", "question": "u"}]}, id="twice"),
        call("Question", {"questions": [{"header": "h", "text": "t", "options": [{"detail": "x"}]}]}, id="nameless"),
    ]
    talk = await start([reply("", calls), say("Sorry.")], can_ask=True)
    await talk.say("Go.")
    results = talk.server.requests[1].results
    assert "length >= 1" in results["none"]
    assert "`question`" in results["twice"]
    assert "`label`" in results["nameless"]
