"""Admission of tool calls: hooks before and after a call, the unsandboxed retry, and redaction of results."""

from pathlib import Path
from typing import Any

import pytest

from odin.config.paths import make_environment
from odin.context.file_cache import FileCache
from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolEnded, ToolProgressed, ToolStarted
from odin.core.event import NoteAdded, Warned
from odin.core.event_values import Mode
from odin.core.op import AnswerPermission
from odin.core.policy import HookCall, HookEffect, RedactedText, RuleAction
from odin.core.tool import Kind, Target, ToolContext, ToolOutput
from odin.policy.decision import Decision
from odin.policy.policy import Policy
from odin.tools.whole_file import DeleteTool

from .pipeline_harness import HookReply, PipelineHarness, RunTool, ScriptedHooks

MAKE = {"command": "mkdir made"}
FORBIDDEN = {"command": "touch made"}
YES, NO = AnswerPermission("", True), AnswerPermission("", False, "no")


def reply_with(**fields: Any) -> HookReply:
    def reply(call: HookCall) -> HookEffect:
        return HookEffect(**fields)

    return reply


class TestHooksBefore:
    async def test_denied_call_ends_with_the_message_of_the_hook(self, workspace: Path) -> None:
        tool = RunTool()
        harness = PipelineHarness(
            workspace, tool, hooks=ScriptedHooks(tool_call=reply_with(decision="deny", message="not today")), yes=True
        )
        assert not await harness.call(MAKE)
        (ended,) = harness.all(ToolEnded)
        assert (ended.status, ended.text) == ("denied", "Denied by a hook: not today")
        assert tool.ran == []

    async def test_allow_skips_the_permission_request(self, workspace: Path) -> None:
        tool = RunTool()
        harness = PipelineHarness(workspace, tool, hooks=ScriptedHooks(tool_call=reply_with(decision="allow")))
        await harness.call(MAKE)
        assert harness.all(ToolEnded)[0].status == "success"
        assert harness.all(PermissionAsked) == []

    async def test_call_denied_by_a_rule_never_reaches_the_hook(self, workspace: Path) -> None:
        tool, hooks = RunTool(), ScriptedHooks(tool_call=reply_with(decision="allow"))
        harness = PipelineHarness(workspace, tool, hooks=hooks, forbidden_commands=["touch"], yes=True)
        await harness.call(FORBIDDEN)
        assert harness.all(ToolEnded)[0].status == "denied"
        assert (tool.ran, hooks.calls) == ([], [])

    async def test_ask_asks_the_user_even_with_yes(self, workspace: Path) -> None:
        tool = RunTool()
        hooks = ScriptedHooks(tool_call=reply_with(decision="ask", message="are you sure?"))
        harness = PipelineHarness(workspace, tool, hooks=hooks, answers=[NO], yes=True)
        await harness.call(MAKE)
        assert harness.all(PermissionAsked)[0].reason == "are you sure?"
        assert harness.all(ToolEnded)[0].text.startswith("The user denied this tool call: no")

    @pytest.mark.parametrize(
        "policy", [{"yes": True}, {"permission_mode": "dontAsk", "allowed_tools": ["Run(mkdir:*)"]}]
    )
    async def test_ask_denies_when_no_user_can_be_asked(self, workspace: Path, policy: dict[str, Any]) -> None:
        tool = RunTool()
        harness = PipelineHarness(
            workspace, tool, hooks=ScriptedHooks(tool_call=reply_with(decision="ask", message="why?")), **policy
        )
        await harness.call(MAKE)
        assert harness.all(ToolEnded)[0].status == "denied"
        assert "requires confirmation: why?" in harness.all(ToolEnded)[0].text
        assert tool.ran == []

    async def test_changed_arguments_run_and_appear_in_audit_and_result(self, workspace: Path) -> None:
        tool = RunTool()
        hooks = ScriptedHooks(tool_call=reply_with(args={"command": "mkdir other"}, message="house style"))
        harness = PipelineHarness(workspace, tool, hooks=hooks, yes=True)
        await harness.call(MAKE)
        assert [command for command, _ in tool.ran] == ["mkdir other"]
        (ended,) = harness.all(ToolEnded)
        assert (ended.audit.original, ended.audit.effective, ended.audit.by) == (
            MAKE,
            {"command": "mkdir other"},
            "hook",
        )
        assert '[A hook changed the arguments of this call (house style): command was "mkdir made"' in ended.text
        assert harness.all(ToolStarted)[0].args == {"command": "mkdir other"}
        assert len(hooks.calls) == 1, "the hook does not see its own change"

    @pytest.mark.parametrize("decision", ["", "allow", "ask"])
    async def test_rule_denies_changed_arguments(self, workspace: Path, decision: Any) -> None:
        tool = RunTool()
        hooks = ScriptedHooks(tool_call=reply_with(args=FORBIDDEN, decision=decision))
        harness = PipelineHarness(workspace, tool, hooks=hooks, answers=[], forbidden_commands=["touch"], yes=True)
        await harness.call(MAKE)
        (ended,) = harness.all(ToolEnded)
        assert ended.status == "denied"
        assert ended.text.startswith("Denied by rule Bash(touch:*)")
        assert ended.audit.effective == FORBIDDEN
        assert tool.ran == []

    async def test_permission_request_shows_the_changed_arguments(self, workspace: Path) -> None:
        tool = RunTool()
        harness = PipelineHarness(workspace, tool, hooks=ScriptedHooks(tool_call=reply_with(args=MAKE)), answers=[YES])
        await harness.call({"command": "ls"})
        assert harness.all(PermissionAsked)[0].args == MAKE
        assert [command for command, _ in tool.ran] == ["mkdir made"]

    async def test_changed_arguments_that_do_not_fit_the_schema_are_refused(self, workspace: Path) -> None:
        tool = RunTool()
        harness = PipelineHarness(
            workspace, tool, hooks=ScriptedHooks(tool_call=reply_with(args={"order": 1})), yes=True
        )
        await harness.call(MAKE)
        assert "do not fit its schema" in harness.all(ToolEnded)[0].text
        assert tool.ran == []

    async def test_hook_can_deny_arguments_edited_by_the_user(self, workspace: Path) -> None:
        def judge(call: HookCall) -> HookEffect:
            return HookEffect("deny", "not that") if call.args == FORBIDDEN else HookEffect()

        tool = RunTool()
        answer = AnswerPermission("", True, args=FORBIDDEN)
        harness = PipelineHarness(workspace, tool, hooks=ScriptedHooks(tool_call=judge), answers=[answer])
        await harness.call(MAKE)
        (ended,) = harness.all(ToolEnded)
        assert ended.text.startswith("Denied by a hook: not that")
        assert ended.audit.effective == FORBIDDEN
        assert tool.ran == []

    async def test_user_is_asked_again_when_a_hook_changes_edited_arguments(self, workspace: Path) -> None:
        def prefix(call: HookCall) -> HookEffect:
            command = (call.args or {})["command"]
            return HookEffect() if command.endswith("!") else HookEffect(args={"command": f"{command}!"})

        tool = RunTool()
        harness = PipelineHarness(
            workspace,
            tool,
            hooks=ScriptedHooks(tool_call=prefix),
            answers=[AnswerPermission("", True, args={"command": "mkdir b"}), YES],
        )
        await harness.call(MAKE)
        assert [event.args["command"] for event in harness.all(PermissionAsked)] == ["mkdir made!", "mkdir b!"]
        assert [command for command, _ in tool.ran] == ["mkdir b!"]
        assert harness.all(ToolEnded)[0].audit.original == MAKE

    async def test_endless_changes_of_arguments_end_in_a_denial(self, workspace: Path) -> None:
        tool, count = RunTool(), iter(range(100))
        hooks = ScriptedHooks(tool_call=lambda call: HookEffect(args={"command": f"mkdir h{next(count)}"}))
        edits = [AnswerPermission("", True, args={"command": f"mkdir p{number}"}) for number in range(50)]
        harness = PipelineHarness(workspace, tool, hooks=hooks, answers=edits)
        await harness.call(MAKE)
        assert harness.all(ToolEnded)[0].status == "denied"
        assert tool.ran == []

    async def test_context_follows_the_result_and_a_notice_is_a_warning(self, workspace: Path) -> None:
        harness = PipelineHarness(
            workspace,
            RunTool(),
            hooks=ScriptedHooks(tool_call=reply_with(context="mind the gap", notice="look")),
            yes=True,
        )
        await harness.call(MAKE)
        order = [type(event) for event in harness.events if isinstance(event, ToolEnded | NoteAdded)]
        assert order == [ToolEnded, NoteAdded], "nothing comes between a call and its result"
        assert [event.text for event in harness.all(Warned)] == ["look"]

    @pytest.mark.parametrize("decision", ["deny", "allow", ""])
    async def test_no_call_runs_after_a_hook_ended_the_turn(self, workspace: Path, decision: str) -> None:
        """Neither the call that the hook judged nor the next one."""
        tool = RunTool()
        harness = PipelineHarness(
            workspace,
            tool,
            hooks=ScriptedHooks(tool_call=reply_with(decision=decision, message="stop", halt=True)),
            yes=True,
        )
        await harness.call(MAKE, MAKE)
        assert [event.text for event in harness.all(ToolEnded)] == [
            "Denied by a hook: stop",
            "Not run: a hook ended this turn.",
        ]
        assert tool.ran == []


class TestSeveralPaths:
    """Each path is also judged alone, since the verdict on all paths together may be less strict."""

    def make_policy(self, root: Path, whole: RuleAction, alone: dict[str, RuleAction]) -> Policy:
        class Loose(Policy):
            def evaluate(self, name: str, kind: Kind, target: Target, mode: Mode) -> Decision:
                names = [Path(path).name for path in target.paths]
                return Decision(whole if len(names) > 1 else alone[names[0]], "because.")

        return Loose(root=str(root), environment=make_environment(cwd=str(root)))

    async def delete(self, harness: PipelineHarness, root: Path) -> None:
        await harness.call({"paths": [str(root / "a"), str(root / "b")], "reason": "old"})

    async def test_one_denied_path_denies_the_call(self, workspace: Path) -> None:
        policy = self.make_policy(workspace, "allow", {"a": "allow", "b": "deny"})
        harness = PipelineHarness(workspace, DeleteTool(FileCache()), answers=[], policy=policy)
        await self.delete(harness, workspace)
        assert harness.all(ToolEnded)[0].text == "Denied: because."

    async def test_request_tells_asked_paths_from_allowed_ones(self, workspace: Path) -> None:
        policy = self.make_policy(workspace, "allow", {"a": "ask", "b": "allow"})
        harness = PipelineHarness(workspace, DeleteTool(FileCache()), answers=[NO], policy=policy)
        await self.delete(harness, workspace)
        (asked,) = harness.all(PermissionAsked)
        assert (asked.asked_paths, asked.allowed_paths) == ((str(workspace / "a"),), (str(workspace / "b"),))

    async def test_request_names_all_paths_when_only_the_whole_call_needs_approval(self, workspace: Path) -> None:
        policy = self.make_policy(workspace, "ask", {"a": "allow", "b": "allow"})
        harness = PipelineHarness(workspace, DeleteTool(FileCache()), answers=[NO], policy=policy)
        await self.delete(harness, workspace)
        assert len(harness.all(PermissionAsked)[0].asked_paths) == 2


class TestHooksAfter:
    async def test_hook_points_fire_in_order(self, workspace: Path) -> None:
        hooks = ScriptedHooks(
            tool_call=reply_with(),
            tool_result=reply_with(),
            before_tool_result_append=reply_with(),
            tool_batch_complete=reply_with(),
        )
        await PipelineHarness(workspace, RunTool(), hooks=hooks, yes=True).call(MAKE, {"command": "mkdir b"})
        assert [call.point for call in hooks.calls] == [
            "PreToolUse",
            "PreToolUse",
            *["PostToolUse", "on_before_tool_result_append"] * 2,
            "on_tool_batch_complete",
        ]

    async def test_replaced_result_hides_every_part_of_the_original(self, workspace: Path) -> None:
        async def tell(command: str, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("the password is x", view="the password is x", for_user="the password is x")

        harness = PipelineHarness(
            workspace, RunTool(tell), hooks=ScriptedHooks(tool_result=reply_with(output="hidden")), yes=True
        )
        await harness.call(MAKE)
        (ended,) = harness.all(ToolEnded)
        assert (ended.text, ended.display, ended.for_user) == ("hidden", "", "")

    async def test_hook_before_append_sees_the_cut_and_redacted_result(self, workspace: Path) -> None:
        async def flood(command: str, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("x" * 100_000 + " secret")

        hooks = ScriptedHooks(
            before_tool_result_append=lambda call: HookEffect(output=call.output[-40:] + "y" * 100_000)
        )
        harness = PipelineHarness(workspace, RunTool(flood), hooks=hooks, redact=redact_secret, yes=True)
        await harness.call(MAKE)
        assert "result cut" in hooks.calls[0].output
        assert "secret" not in hooks.calls[0].output
        assert len(harness.all(ToolEnded)[0].text) < 60_000, "the output of a hook is bounded, too"

    async def test_refused_call_fires_no_result_hooks(self, workspace: Path) -> None:
        hooks = ScriptedHooks(tool_result=reply_with(), tool_batch_complete=reply_with())
        harness = PipelineHarness(workspace, RunTool(), hooks=hooks)
        await harness.call(MAKE)
        assert hooks.calls == []


class TestSandbox:
    def make_tool(self) -> RunTool:
        async def action(command: str, ctx: ToolContext) -> ToolOutput:
            if ctx.profile.name == "none":
                return ToolOutput("fetched", note="Ran it")
            ctx.progress("trying")
            return ToolOutput("no route", is_error=True, note="Ran it", blocked="using your keys")

        return RunTool(action)

    async def test_user_can_allow_an_unsandboxed_retry(self, workspace: Path) -> None:
        tool = self.make_tool()
        harness = PipelineHarness(workspace, tool, answers=[YES, YES])
        await harness.call(MAKE)
        inside, outside = harness.all(PermissionAsked)
        assert (inside.unsandboxed, inside.sandbox) == (False, "a box")
        assert outside.unsandboxed
        assert (outside.rules, outside.args) == ((), MAKE)
        assert "kept it from using your keys." in outside.reason
        assert [(ctx.profile.name == "none") for _, ctx in tool.ran] == [False, True]
        (ended,) = harness.all(ToolEnded)
        assert ended.status == "success"
        assert ended.text.startswith("fetched\n\n[The sandbox had kept it from using your keys.")
        assert "outside the sandbox, because the sandbox had kept it from using your keys" in ended.note
        assert len(harness.all(ToolStarted)) == 1

    async def test_denied_retry_keeps_the_sandboxed_result_with_the_reason(self, workspace: Path) -> None:
        tool = self.make_tool()
        harness = PipelineHarness(workspace, tool, answers=[YES, AnswerPermission("", False, "stay inside")])
        await harness.call(MAKE)
        (ended,) = harness.all(ToolEnded)
        assert ended.status == "error"
        assert ended.text.startswith("no route")
        assert "The user did not allow it to run outside the sandbox: stay inside" in ended.text
        assert len(tool.ran) == 1

    @pytest.mark.parametrize(
        "options",
        [
            {"yes": True},
            {"permission_mode": "bypassPermissions"},
            {"allowed_tools": ["Run(mkdir:*)"]},
            {"hooks": ScriptedHooks(tool_call=reply_with(decision="allow"))},
        ],
    )
    async def test_only_the_user_can_allow_an_unsandboxed_retry(self, workspace: Path, options: dict[str, Any]) -> None:
        tool = self.make_tool()
        await PipelineHarness(workspace, tool, **options).call(MAKE)
        assert len(tool.ran) == 1, "no user can be asked"
        tool = self.make_tool()
        harness = PipelineHarness(workspace, tool, answers=[NO], **options)
        await harness.call(MAKE)
        assert [event.unsandboxed for event in harness.all(PermissionAsked)] == [True]
        assert len(tool.ran) == 1

    async def test_ask_mode_offers_no_unsandboxed_retry(self, workspace: Path) -> None:
        tool = self.make_tool()
        harness = PipelineHarness(workspace, tool, answers=[YES], mode="ask_mode")
        await harness.call(MAKE)
        assert len(harness.all(PermissionAsked)) == 1
        assert [(ctx.profile.writes, (ctx.profile.name == "none")) for _, ctx in tool.ran] == [(False, False)]

    async def test_retry_is_offered_once_even_if_it_is_blocked_again(self, workspace: Path) -> None:
        async def action(command: str, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("no", is_error=True, blocked="everything")

        tool = RunTool(action)
        harness = PipelineHarness(workspace, tool, answers=[YES], yes=True)
        await harness.call(MAKE)
        assert len(tool.ran) == 2
        assert len(harness.all(PermissionAsked)) == 1

    async def test_retry_accepts_no_edited_arguments_and_saves_no_rule(self, workspace: Path) -> None:
        tool = self.make_tool()
        harness = PipelineHarness(workspace, tool, answers=[AnswerPermission("", True, args=FORBIDDEN)], yes=True)
        await harness.call(MAKE)
        assert [command for command, _ in tool.ran] == ["mkdir made"]
        assert [event.allowed for event in harness.all(PermissionAnswered)] == [False]
        harness = PipelineHarness(
            workspace, tool, answers=[AnswerPermission("", True, rule="Run", remember="session")], yes=True
        )
        await harness.call(MAKE)
        assert [event.remember for event in harness.all(PermissionAnswered)] == [None]
        assert "no rule was saved" in harness.all(Warned)[0].text

    async def test_interrupt_with_the_answer_cancels_the_following_calls(self, workspace: Path) -> None:
        tool = self.make_tool()
        harness = PipelineHarness(workspace, tool, answers=[AnswerPermission("", True, interrupt=True)], yes=True)
        assert await harness.call(MAKE, {"command": "mkdir b"})
        assert [event.status for event in harness.all(ToolEnded)] == ["success", "cancelled"]


def redact_secret(text: str) -> RedactedText:
    return RedactedText(text.replace("secret", "[gone]"), ("TOKEN",)) if "secret" in text else RedactedText(text)


class TestRedaction:
    async def test_secret_is_redacted_in_every_part_of_a_result(self, workspace: Path) -> None:
        saved: list[str] = []

        def save(text: str) -> str:
            saved.append(text)
            return "/kept"

        async def tell(command: str, ctx: ToolContext) -> ToolOutput:
            ctx.progress("a secret line")
            return ToolOutput("secret " * 20_000, note="secret note", view="secret view", for_user="secret for you")

        harness = PipelineHarness(workspace, RunTool(tell), redact=redact_secret, save=save, yes=True)
        await harness.call({"command": "echo secret"})
        (ended,) = harness.all(ToolEnded)
        texts = (
            ended.text,
            ended.note,
            ended.display,
            ended.for_user,
            *saved,
            *(x.text for x in harness.all(ToolProgressed)),
        )
        assert all("secret" not in text and "[gone]" in text for text in texts)
        assert len(saved) == 1
        assert ended.redacted == ("TOKEN",)
        assert ended.text.endswith("\n\n[redacted: TOKEN]"), "the model reads it, also after a cut"
        assert harness.all(ToolStarted)[0].description == "echo [gone]"

    async def test_permission_request_shows_no_secret(self, workspace: Path) -> None:
        harness = PipelineHarness(workspace, RunTool(), redact=redact_secret, answers=[NO])
        await harness.call({"command": "echo secret > f"})
        assert harness.all(PermissionAsked)[0].subject == "echo [gone] > f"

    async def test_result_without_secrets_is_unchanged(self, workspace: Path) -> None:
        harness = PipelineHarness(workspace, RunTool(), redact=redact_secret, yes=True)
        await harness.call(MAKE)
        (ended,) = harness.all(ToolEnded)
        assert (ended.text, ended.redacted) == ("ran mkdir made", ())
