"""Events of a running turn, their names on the bus, and the error kinds they carry (EVENT3-12, ERR4-6)."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from odin.api import make_error
from odin.core import errors
from odin.core.call_events import (
    ActivityChanged,
    CallStreamed,
    PlanAnswered,
    Replied,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    StatusUpdated,
    TextStreamed,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.errors import UsageError
from odin.core.event import AgentEnded, AnyEvent, CompactionChanged, Envelope, TurnEnded, TurnStarted
from odin.core.op import AnswerPermission, Op
from odin.core.team import MailSent, TaskChanged
from odin.engine.event_bus import BUS_NAMES, EVENT_NAMES, get_bus_name, list_sources
from odin.testing import call, fault, reply, say
from tests.waiting import TimeLimit

from .conftest import Start
from .test_recovery import APIS, make_options
from .test_sub_agents import TASK
from .test_team import TeamScript, complete, delegate, settle


class TestRequests:
    async def test_request_event_has_its_step_and_model(self, start: Start, workspace: Path) -> None:
        talk = await start([call("LS", {"path": str(workspace)}), say("ok"), say("ok")])
        await talk.say("one")
        await talk.say("two")
        started = talk.all(RequestStarted)
        assert [event.step for event in started] == [1, 2, 1]
        assert {event.model for event in started} == {talk.server.requests[0].model}

    async def test_request_event_has_the_estimated_size_also_for_sub_agents(
        self, start: Start, workspace: Path
    ) -> None:
        """The estimate includes the messages since the last reply, and is rather too high."""
        (workspace / "long.txt").write_text("some words in a long file\n" * 400)
        read = call("Read", {"file_path": str(workspace / "long.txt")})
        talk = await start([read, call("AgentTool", TASK), read, say("seen"), say("ok")])
        await talk.say("one")
        estimates = [
            (event.agent, event.event.tokens) for event in talk.heard if isinstance(event.event, RequestStarted)
        ]
        spent = [event.event.usage for event in talk.heard if isinstance(event.event, UsageRecorded)]
        real = [usage.input + usage.cache_read + usage.cache_write for usage in spent]
        assert [agent for agent, _ in estimates] == ["", "", "agent-1", "agent-1", ""]
        assert all(size <= tokens <= 2 * size for (_, tokens), size in zip(estimates, real, strict=True)), (
            estimates,
            real,
        )

    async def test_progress_events_are_few_and_the_last_has_the_total(self, start: Start) -> None:
        text = "word " * 100
        talk = await start([say(text, chunk=5)])
        await talk.say("go")
        progress = talk.all(RequestProgressed)
        assert 1 <= len(progress) < 50
        assert progress[-1].chars == len(text)
        assert progress[-1].chunks >= 100
        assert [event.chars for event in progress] == sorted(event.chars for event in progress)

    @pytest.mark.parametrize("api", APIS)
    async def test_streamed_call_ends_with_its_arguments(self, start: Start, workspace: Path, api: str) -> None:
        args = {"command": "echo " + "x" * 200}
        made = reply("", [call("ExecuteCommand", args), call("LS", {"path": str(workspace)})], chunk=20)
        talk = await start([made, say("ok")], **make_options(api))
        await talk.say("go")
        streamed = talk.all(CallStreamed)
        done = [event for event in streamed if event.done]
        assert [(event.name, event.args) for event in done] == [
            ("ExecuteCommand", args),
            ("LS", {"path": str(workspace)}),
        ]
        assert {event.chars for event in done} == {0}
        chars = [event.chars for event in streamed if not event.done and event.call_id == done[0].call_id]
        assert chars == sorted(chars)
        assert chars[-1] > 200
        assert {event.call_id for event in done} == {event.call_id for event in talk.all(ToolStarted)}

    async def test_rollback_never_follows_the_final_reply(self, start: Start, workspace: Path) -> None:
        half = say("half", chunk=1).cut(events=5)
        talk = await start([half, call("LS", {"path": str(workspace)}), half, say("ok")])
        await talk.say("go")
        shown = ""
        for event in talk.events:
            if isinstance(event, TextStreamed):
                shown += event.text
            elif isinstance(event, ReplyRolledBack):
                shown = ""
            elif isinstance(event, Replied):
                assert event.message.text == shown, "the shown text is the text of the reply"
                shown = ""
        assert len(talk.all(ReplyRolledBack)) == 2


class TestActivities:
    async def test_activities_have_details_and_idle_has_the_end_reason(self, start: Start, workspace: Path) -> None:
        three = reply("", [call("LS", {"path": str(workspace / name)}) for name in "abc"])
        talk = await start([three, call("Glob", {"pattern": "*"}), say("ok")])
        seen: list[tuple[str, str]] = []
        talk.client.observe_activity(lambda event: seen.append((event.activity, event.detail)))
        await talk.say("go")
        assert [detail for activity, detail in seen if activity == "executing"] == ["3 tools", "Glob"]
        assert ("streaming", "") in seen
        assert {"connecting", "waiting_headers", "waiting_token"} <= {activity for activity, _ in seen}
        assert seen[-1] == ("idle", "end_turn")

    async def test_new_activity_observer_replaces_the_old_one(self, start: Start) -> None:
        talk = await start([say("one"), say("two")])
        first: list[ActivityChanged] = []
        second: list[ActivityChanged] = []
        talk.client.observe_activity(first.append)
        await talk.say("one")
        count = len(first)
        assert count > 2
        talk.client.observe_activity(second.append)
        await talk.say("two")
        assert (len(first), len(second) > 2) == (count, True)

    async def test_the_observer_is_told_which_agent(self, start: Start) -> None:
        script = TeamScript([delegate("a"), say("ok"), say("seen")], a=[complete("found it")])
        talk = await start(script)
        seen: dict[str, list[str]] = {"main": [], "general-1": []}
        talk.client.observe_activity(lambda event: seen[event.agent].append(event.activity))
        await talk.say("go")
        await settle(talk.client)
        assert all("streaming" in activities and activities[-1] == "idle" for activities in seen.values())

    async def test_failing_observer_does_not_affect_the_turn(self, start: Start) -> None:
        def broken(event: ActivityChanged) -> None:
            raise RuntimeError("not my day")

        talk = await start([say("one")])
        talk.client.observe_activity(broken)
        assert (await talk.say("go")).text == "one"


class TestAgents:
    async def test_events_name_their_agent_and_its_end_has_the_answer(self, start: Start, workspace: Path) -> None:
        def play(seen: Any) -> Any:
            if "AgentTool" not in seen.tool_names:
                return say("I found it.") if seen.results else call("LS", {"path": str(workspace)})
            return say("ok") if seen.results else call("AgentTool", {"description": "find", "prompt": "find it"})

        talk = await start(play)
        await talk.say("go")
        (ended,) = talk.all(AgentEnded)
        assert (ended.reason, ended.text) == ("end_turn", "I found it.")
        by_agent = {
            agent: {type(envelope.event).__name__ for envelope in talk.heard if envelope.agent == agent}
            for agent in {envelope.agent for envelope in talk.heard}
        }
        assert set(by_agent) == {"", ended.id}
        for kind in ("TurnStarted", "RequestStarted", "TextStreamed", "Replied", "ToolStarted", "ActivityChanged"):
            assert kind in by_agent[""], kind
            assert kind in by_agent[ended.id], kind


class TestNames:
    VERBATIM = (
        "user_message append_context llm_response tool_result turn_cancelled agent_error execute_plan "
        "session_control model_pool_switch mcp_control mcp_control_done pending_draft_upsert "
        "pending_draft_remove agent_done agent_idle agent_notify escalate subagent_mailbox "
        "subagent_state_changed subagent_close_requested subagent_progress_updated subagent_send_message "
        "subagent_stop agent_log reset_nudge background_object_finished continue loop_assessment "
        "compaction_ready compaction_failed compaction_oversize_suspend"
    )

    def test_bus_names_are_complete(self) -> None:
        assert list(BUS_NAMES) == self.VERBATIM.split() and len(BUS_NAMES) == 31

    def test_every_named_event_has_a_bus_name(self) -> None:
        for name in BUS_NAMES:
            events, ops = list_sources(name)
            assert events or ops
            assert set(events) <= set(AnyEvent.__args__)
            assert set(ops) <= set(Op.__args__)
        named = set(itertools.chain.from_iterable(list_sources(name)[0] for name in BUS_NAMES))
        assert named == set(EVENT_NAMES)

    @pytest.mark.parametrize(
        ("event", "agent", "name"),
        [
            (TurnStarted("a", "hi", "edit_mode"), "", "user_message"),
            (TurnStarted("a", "", "edit_mode", continues=True), "", "continue"),
            (TurnEnded("a", "end_turn"), "", "agent_done"),
            (TurnEnded("a", "end_turn"), "agent-1", "subagent_state_changed"),
            (TurnEnded("a", "interrupted"), "", "turn_cancelled"),
            (TurnEnded("a", "error"), "agent-1", "agent_error"),
            (ActivityChanged("idle"), "", "agent_idle"),
            (ActivityChanged("streaming"), "", None),
            (ActivityChanged("streaming"), "agent-1", "subagent_state_changed"),
            (StatusUpdated("x"), "", "agent_notify"),
            (StatusUpdated("x"), "agent-1", "subagent_progress_updated"),
            (CompactionChanged("started", "overflow"), "", "compaction_oversize_suspend"),
            (CompactionChanged("started", "auto"), "", None),
            (CompactionChanged("succeeded"), "", "compaction_ready"),
            (CompactionChanged("cancelled"), "", "compaction_failed"),
            (TextStreamed("x"), "", None),
            (ToolStarted("c", "LS", {}), "", None),
            (ToolStarted("c", "LS", {}), "agent-1", "reset_nudge"),
            (TaskChanged("adhoc-1", "waiting_main"), "agent-1", "escalate"),
            (TaskChanged("adhoc-1", "running"), "agent-1", "subagent_state_changed"),
            (MailSent("mail-1", "", "agent-1", "message", "x"), "", "subagent_send_message"),
            (MailSent("mail-2", "agent-1", "", "progress", "x"), "agent-1", "subagent_mailbox"),
            (PlanAnswered("a", "c", "approve"), "", "execute_plan"),
        ],
        ids=str,
    )
    def test_bus_name_depends_on_the_content_of_the_event(self, event: AnyEvent, agent: str, name: str | None) -> None:
        assert get_bus_name(Envelope(0, 0.0, "s", event, agent)) == name

    async def test_named_stream_yields_the_selected_events_with_names(self, start: Start, workspace: Path) -> None:
        talk = await start([call("LS", {"path": str(workspace)}), say("ok")])
        some = talk.client.stream_named_events(("tool_result", "agent_idle"))
        everything = talk.client.stream_named_events()
        await talk.say("go")
        await talk.client.close()
        async with TimeLimit():
            heard = [(name, type(envelope.event).__name__) async for name, envelope in some]
            names = [name async for name, _ in everything]
        assert heard == [("tool_result", "ToolEnded"), ("agent_idle", "ActivityChanged")]
        order = ["session_control", "user_message", "llm_response", "tool_result", "llm_response", "agent_done"]
        assert [name for name in names if name in order] == order

    async def test_unknown_event_name_is_refused(self, start: Start) -> None:
        talk = await start([])
        with pytest.raises(UsageError, match="Unknown event name 'tool_results'"):
            talk.client.stream_named_events(("tool_results",))


class TestErrorKinds:
    """Error kinds: a tool result has the kind of a tool error, and TurnEnded the kind of a failed turn."""

    async def test_edits_of_unread_or_changed_files_have_their_error_kinds(self, start: Start, workspace: Path) -> None:
        file = workspace / "a"
        file.write_text("one\n")
        edit = call("EditTool", {"file_path": str(file), "old_string": "one", "new_string": "two"})
        read = call("Read", {"file_path": str(file)})
        change = call("ExecuteCommand", {"command": "echo three >> a"})
        missing = call("EditTool", {"file_path": str(file), "old_string": "none", "new_string": "two"})
        talk = await start([edit, read, missing, change, edit, say("ok")])
        await talk.say("go")
        kinds = [(event.name, event.error_kind) for event in talk.all(ToolEnded)]
        assert kinds == [
            ("EditTool", "UnreadFile"),
            ("Read", ""),
            ("EditTool", ""),
            ("ExecuteCommand", ""),
            ("EditTool", "ExternalModification"),
        ]

    async def test_edit_after_a_change_by_another_agent_is_a_conflict(self, start: Start, workspace: Path) -> None:
        file = workspace / "a"
        file.write_text("one\n")
        steps = itertools.count()
        edit = {"file_path": str(file), "old_string": "one", "new_string": "two"}

        def play(seen: Any) -> Any:
            if "AgentTool" not in seen.tool_names:
                turns = [call("Read", {"file_path": str(file)}), call("EditTool", edit), say("changed")]
                return turns[len(seen.results)]
            turns = [call("Read", {"file_path": str(file)}), call("AgentTool", TASK), call("EditTool", edit)]
            step = next(steps)
            return turns[step] if step < 3 else say("ok")

        talk = await start(play)
        await talk.say("go")
        last = talk.all(ToolEnded)[-1]
        assert (last.name, last.error_kind) == ("EditTool", "Conflict")
        assert "changed by agent-1" in last.text

    @pytest.mark.parametrize(
        ("ask", "statuses"), [("before", ["denied", "denied", "denied"]), ("effects", ["error", "error", "denied"])]
    )
    async def test_three_kinds_of_denial_have_different_error_kinds(
        self, start: Start, workspace: Path, ask: Any, statuses: list[str]
    ) -> None:
        command = call("ExecuteCommand", {"command": "touch made"})
        plain: dict[str, Any] = {"yes": False, "permission_mode": "default", "commands_ask": ask}
        alone = await start([command, say("ok")], **plain)
        await alone.say("go")
        asked = await start([command, say("ok")], can_ask=True, **plain)
        asked.answers = [AnswerPermission("", False, "not today")]
        await asked.say("go")
        ruled = await start([command, say("ok")], disallowed_tools=("ExecuteCommand(touch:*)",), **plain)
        await ruled.say("go")
        ended = [talk.all(ToolEnded)[0] for talk in (alone, asked, ruled)]
        assert [event.error_kind for event in ended] == ["NeedsConfirmation", "Rejected", "Denied"]
        assert [event.status for event in ended] == statuses
        assert "not today" in ended[1].text
        assert not (workspace / "made").exists()

    @pytest.mark.parametrize(
        ("status", "type", "kind"),
        [
            (429, "rate_limit_error", errors.RateLimited),
            (401, "authentication_error", errors.AuthFailed),
            (404, "not_found_error", errors.ModelNotFound),
            (400, "invalid_request_error", errors.BadRequest),
        ],
    )
    async def test_error_details_of_an_api_reach_the_caller(
        self, start: Start, status: int, type: str, kind: Any
    ) -> None:
        refusal = fault(status, {"retry-after": "3600"}, message="No.", type=type)
        talk = await start([refusal], **make_options("anthropic"))
        ended = await talk.say("go")
        error = make_error(ended)
        assert isinstance(error, kind)
        assert isinstance(error, errors.ProviderError)
        assert (error.status, error.type) == (status, type)
        assert error.retry_after == 3600.0
        assert ended.error_kind == kind.__name__
