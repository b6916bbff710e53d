"""Admission: hooks at a call, the unsandboxed retry, and redaction of results."""

from pathlib import Path
from typing import Any

import pytest

from odin.context.file_cache import FileCache
from odin.core.call_events import PermissionAnswered, PermissionAsked, ToolEnded, ToolProgressed, ToolStarted
from odin.core.event import NoteAdded, Warned
from odin.core.event_values import Mode
from odin.core.op import AnswerPermission
from odin.core.policy import HookCall, HookVerdict, RedactedText, RuleAction
from odin.core.tool import Kind, Subject, ToolContext, ToolOutput
from odin.policy.policy import Policy
from odin.policy.verdict import Verdict
from odin.tools.whole_file import DeleteTool

from .pipeline import Bench, HookReply, Run, ScriptedHooks

MAKE = {"command": "mkdir made"}
FORBIDDEN = {"command": "touch made"}
YES, NO = AnswerPermission("", True), AnswerPermission("", False, "no")


def saying(**fields: Any) -> HookReply:
    def say(call: HookCall) -> HookVerdict:
        return HookVerdict(**fields)

    return say


class TestHooksBefore:
    async def test_a_deny_is_a_result_with_its_message(self, workspace: Path) -> None:
        tool = Run()
        bench = Bench(
            workspace, tool, hooks=ScriptedHooks(tool_call=saying(decision="deny", message="not today")), yes=True
        )
        assert not await bench.call(MAKE)
        (ended,) = bench.all(ToolEnded)
        assert (ended.status, ended.text) == ("denied", "Denied by a hook: not today")
        assert tool.ran == []

    async def test_an_allow_answers_what_would_be_asked(self, workspace: Path) -> None:
        tool = Run()
        bench = Bench(workspace, tool, hooks=ScriptedHooks(tool_call=saying(decision="allow")))
        await bench.call(MAKE)
        assert bench.all(ToolEnded)[0].status == "success"
        assert bench.all(PermissionAsked) == []

    async def test_an_allow_is_no_answer_to_a_deny_and_the_hook_is_not_even_told(self, workspace: Path) -> None:
        tool, hooks = Run(), ScriptedHooks(tool_call=saying(decision="allow"))
        bench = Bench(workspace, tool, hooks=hooks, forbidden_commands=["touch"], yes=True)
        await bench.call(FORBIDDEN)
        assert bench.all(ToolEnded)[0].status == "denied"
        assert (tool.ran, hooks.told) == ([], [])

    async def test_an_ask_asks_even_where_all_is_allowed(self, workspace: Path) -> None:
        tool = Run()
        hooks = ScriptedHooks(tool_call=saying(decision="ask", message="are you sure?"))
        bench = Bench(workspace, tool, hooks=hooks, answers=[NO], yes=True)
        await bench.call(MAKE)
        assert bench.all(PermissionAsked)[0].reason == "are you sure?"
        assert bench.all(ToolEnded)[0].text.startswith("The user said no: no")

    @pytest.mark.parametrize(
        "policy", [{"yes": True}, {"permission_mode": "dontAsk", "allowed_tools": ["Run(mkdir:*)"]}]
    )
    async def test_an_ask_with_nobody_to_ask_is_a_no(self, workspace: Path, policy: dict[str, Any]) -> None:
        tool = Run()
        bench = Bench(workspace, tool, hooks=ScriptedHooks(tool_call=saying(decision="ask", message="why?")), **policy)
        await bench.call(MAKE)
        assert bench.all(ToolEnded)[0].status == "denied"
        assert "requires confirmation: why?" in bench.all(ToolEnded)[0].text
        assert tool.ran == []

    async def test_changed_arguments_run_are_audited_and_the_model_is_told(self, workspace: Path) -> None:
        tool = Run()
        hooks = ScriptedHooks(tool_call=saying(args={"command": "mkdir other"}, message="house style"))
        bench = Bench(workspace, tool, hooks=hooks, yes=True)
        await bench.call(MAKE)
        assert [command for command, _ in tool.ran] == ["mkdir other"]
        (ended,) = bench.all(ToolEnded)
        assert (ended.audit.original, ended.audit.effective, ended.audit.by) == (
            MAKE,
            {"command": "mkdir other"},
            "hook",
        )
        assert '[A hook changed the arguments of this call (house style): command was "mkdir made"' in ended.text
        assert bench.all(ToolStarted)[0].args == {"command": "mkdir other"}
        assert len(hooks.told) == 1, "its own change is not shown to it again"

    @pytest.mark.parametrize("decision", ["", "allow", "ask"])
    async def test_changed_arguments_that_are_denied_are_denied(self, workspace: Path, decision: Any) -> None:
        tool = Run()
        hooks = ScriptedHooks(tool_call=saying(args=FORBIDDEN, decision=decision))
        bench = Bench(workspace, tool, hooks=hooks, answers=[], forbidden_commands=["touch"], yes=True)
        await bench.call(MAKE)
        (ended,) = bench.all(ToolEnded)
        assert ended.status == "denied"
        assert ended.text.startswith("Denied by rule Bash(touch:*)")
        assert ended.audit.effective == FORBIDDEN
        assert tool.ran == []

    async def test_changed_arguments_that_must_be_asked_are_asked_as_they_are_now(self, workspace: Path) -> None:
        tool = Run()
        bench = Bench(workspace, tool, hooks=ScriptedHooks(tool_call=saying(args=MAKE)), answers=[YES])
        await bench.call({"command": "ls"})
        assert bench.all(PermissionAsked)[0].args == MAKE
        assert [command for command, _ in tool.ran] == ["mkdir made"]

    async def test_changed_arguments_that_do_not_fit_are_refused(self, workspace: Path) -> None:
        tool = Run()
        bench = Bench(workspace, tool, hooks=ScriptedHooks(tool_call=saying(args={"order": 1})), yes=True)
        await bench.call(MAKE)
        assert "do not fit its schema" in bench.all(ToolEnded)[0].text
        assert tool.ran == []

    async def test_what_a_person_writes_is_shown_to_hooks_which_may_deny_it(self, workspace: Path) -> None:
        def judge(call: HookCall) -> HookVerdict:
            return HookVerdict("deny", "not that") if call.args == FORBIDDEN else HookVerdict()

        tool = Run()
        answer = AnswerPermission("", True, args=FORBIDDEN)
        bench = Bench(workspace, tool, hooks=ScriptedHooks(tool_call=judge), answers=[answer])
        await bench.call(MAKE)
        (ended,) = bench.all(ToolEnded)
        assert ended.text.startswith("Denied by a hook: not that")
        assert ended.audit.effective == FORBIDDEN
        assert tool.ran == []

    async def test_what_a_hook_makes_of_a_persons_arguments_is_asked_again(self, workspace: Path) -> None:
        def prefix(call: HookCall) -> HookVerdict:
            command = (call.args or {})["command"]
            return HookVerdict() if command.endswith("!") else HookVerdict(args={"command": f"{command}!"})

        tool = Run()
        bench = Bench(
            workspace,
            tool,
            hooks=ScriptedHooks(tool_call=prefix),
            answers=[AnswerPermission("", True, args={"command": "mkdir b"}), YES],
        )
        await bench.call(MAKE)
        assert [event.args["command"] for event in bench.all(PermissionAsked)] == ["mkdir made!", "mkdir b!"]
        assert [command for command, _ in tool.ran] == ["mkdir b!"]
        assert bench.all(ToolEnded)[0].audit.original == MAKE

    async def test_changing_it_without_end_is_a_no(self, workspace: Path) -> None:
        tool, count = Run(), iter(range(100))
        hooks = ScriptedHooks(tool_call=lambda call: HookVerdict(args={"command": f"mkdir h{next(count)}"}))
        edits = [AnswerPermission("", True, args={"command": f"mkdir p{number}"}) for number in range(50)]
        bench = Bench(workspace, tool, hooks=hooks, answers=edits)
        await bench.call(MAKE)
        assert bench.all(ToolEnded)[0].status == "denied"
        assert tool.ran == []

    async def test_context_waits_for_the_result_and_a_notice_is_shown(self, workspace: Path) -> None:
        bench = Bench(
            workspace, Run(), hooks=ScriptedHooks(tool_call=saying(context="mind the gap", notice="look")), yes=True
        )
        await bench.call(MAKE)
        told = [type(event) for event in bench.events if isinstance(event, ToolEnded | NoteAdded)]
        assert told == [ToolEnded, NoteAdded], "nothing comes between a call and its result"
        assert [event.text for event in bench.all(Warned)] == ["look"]

    @pytest.mark.parametrize("decision", ["deny", "allow", ""])
    async def test_after_a_hook_ended_the_turn_nothing_more_is_begun(self, workspace: Path, decision: str) -> None:
        """Not even the call it was told of."""
        tool = Run()
        bench = Bench(
            workspace,
            tool,
            hooks=ScriptedHooks(tool_call=saying(decision=decision, message="stop", halt=True)),
            yes=True,
        )
        await bench.call(MAKE, MAKE)
        assert [event.text for event in bench.all(ToolEnded)] == [
            "Denied by a hook: stop",
            "Not run: a hook ended this turn.",
        ]
        assert tool.ran == []


class TestSeveralPaths:
    """The verdict on all paths together is not trusted to be the strictest: each is judged alone as well."""

    def policy(self, root: Path, whole: RuleAction, alone: dict[str, RuleAction]) -> Policy:
        class Loose(Policy):
            def judge(self, name: str, kind: Kind, subject: Subject, mode: Mode) -> Verdict:
                names = [Path(path).name for path in subject.paths]
                return Verdict(whole if len(names) > 1 else alone[names[0]], "because.")

        return Loose(root=str(root))

    async def delete(self, bench: Bench, root: Path) -> None:
        await bench.call({"paths": [str(root / "a"), str(root / "b")], "reason": "old"})

    async def test_one_denied_path_denies_them_all(self, workspace: Path) -> None:
        policy = self.policy(workspace, "allow", {"a": "allow", "b": "deny"})
        bench = Bench(workspace, DeleteTool(FileCache()), answers=[], policy=policy)
        await self.delete(bench, workspace)
        assert bench.all(ToolEnded)[0].text == "Denied: because."

    async def test_one_asked_path_asks_about_itself(self, workspace: Path) -> None:
        policy = self.policy(workspace, "allow", {"a": "ask", "b": "allow"})
        bench = Bench(workspace, DeleteTool(FileCache()), answers=[NO], policy=policy)
        await self.delete(bench, workspace)
        (asked,) = bench.all(PermissionAsked)
        assert (asked.asked_paths, asked.allowed_paths) == ((str(workspace / "a"),), (str(workspace / "b"),))

    async def test_what_is_asked_only_of_all_together_is_asked_of_all(self, workspace: Path) -> None:
        policy = self.policy(workspace, "ask", {"a": "allow", "b": "allow"})
        bench = Bench(workspace, DeleteTool(FileCache()), answers=[NO], policy=policy)
        await self.delete(bench, workspace)
        assert len(bench.all(PermissionAsked)[0].asked_paths) == 2


class TestHooksAfter:
    async def test_they_come_in_their_order_around_the_result(self, workspace: Path) -> None:
        hooks = ScriptedHooks(
            tool_call=saying(),
            tool_result=saying(),
            before_tool_result_append=saying(),
            tool_batch_complete=saying(),
        )
        await Bench(workspace, Run(), hooks=hooks, yes=True).call(MAKE, {"command": "mkdir b"})
        assert [call.point for call in hooks.told] == [
            "tool_call",
            "tool_call",
            *["tool_result", "before_tool_result_append"] * 2,
            "tool_batch_complete",
        ]

    async def test_a_replaced_result_is_what_everybody_reads(self, workspace: Path) -> None:
        async def tell(command: str, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("the password is x", view="the password is x", for_user="the password is x")

        bench = Bench(workspace, Run(tell), hooks=ScriptedHooks(tool_result=saying(output="hidden")), yes=True)
        await bench.call(MAKE)
        (ended,) = bench.all(ToolEnded)
        assert (ended.text, ended.display, ended.for_user) == ("hidden", "", "")

    async def test_the_last_look_sees_what_the_model_would_read(self, workspace: Path) -> None:
        async def flood(command: str, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("x" * 100_000 + " secret")

        hooks = ScriptedHooks(
            before_tool_result_append=lambda call: HookVerdict(output=call.output[-40:] + "y" * 100_000)
        )
        bench = Bench(workspace, Run(flood), hooks=hooks, redact=take_out, yes=True)
        await bench.call(MAKE)
        assert "result cut" in hooks.told[0].output
        assert "secret" not in hooks.told[0].output
        assert len(bench.all(ToolEnded)[0].text) < 60_000, "what a hook gives is bounded, too"

    async def test_a_call_that_was_refused_has_no_result_for_them(self, workspace: Path) -> None:
        hooks = ScriptedHooks(tool_result=saying(), tool_batch_complete=saying())
        bench = Bench(workspace, Run(), hooks=hooks)
        await bench.call(MAKE)
        assert hooks.told == []


class TestSandbox:
    def make(self) -> Run:
        async def deed(command: str, ctx: ToolContext) -> ToolOutput:
            if ctx.sandbox_profile.unsandboxed:
                return ToolOutput("fetched", note="Ran it")
            ctx.progress("trying")
            return ToolOutput("no route", is_error=True, note="Ran it", blocked="reaching the network")

        return Run(deed)

    async def test_a_person_may_let_it_run_again_outside(self, workspace: Path) -> None:
        tool = self.make()
        bench = Bench(workspace, tool, answers=[YES, YES])
        await bench.call(MAKE)
        inside, outside = bench.all(PermissionAsked)
        assert (inside.unsandboxed, inside.sandbox) == (False, "a box")
        assert outside.unsandboxed
        assert (outside.rules, outside.args) == ((), MAKE)
        assert "kept it from reaching the network." in outside.reason
        assert [ctx.sandbox_profile.unsandboxed for _, ctx in tool.ran] == [False, True]
        (ended,) = bench.all(ToolEnded)
        assert ended.status == "success"
        assert ended.text.startswith("fetched\n\n[The sandbox had kept it from reaching the network.")
        assert "outside the sandbox, which had kept it from reaching the network" in ended.note
        assert len(bench.all(ToolStarted)) == 1

    async def test_a_no_leaves_the_result_and_says_why(self, workspace: Path) -> None:
        tool = self.make()
        bench = Bench(workspace, tool, answers=[YES, AnswerPermission("", False, "stay inside")])
        await bench.call(MAKE)
        (ended,) = bench.all(ToolEnded)
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
            {"hooks": ScriptedHooks(tool_call=saying(decision="allow"))},
        ],
    )
    async def test_nothing_but_a_person_leads_out_of_it(self, workspace: Path, options: dict[str, Any]) -> None:
        tool = self.make()
        await Bench(workspace, tool, **options).call(MAKE)
        assert len(tool.ran) == 1, "nobody can be asked"
        tool = self.make()
        bench = Bench(workspace, tool, answers=[NO], **options)
        await bench.call(MAKE)
        assert [event.unsandboxed for event in bench.all(PermissionAsked)] == [True]
        assert len(tool.ran) == 1

    async def test_in_a_mode_that_changes_nothing_it_is_not_offered(self, workspace: Path) -> None:
        tool = self.make()
        bench = Bench(workspace, tool, answers=[YES], mode="ask_mode")
        await bench.call(MAKE)
        assert len(bench.all(PermissionAsked)) == 1
        assert [(ctx.sandbox_profile.writes, ctx.sandbox_profile.unsandboxed) for _, ctx in tool.ran] == [
            (False, False)
        ]

    async def test_it_is_asked_once_even_when_it_is_blocked_again(self, workspace: Path) -> None:
        async def deed(command: str, ctx: ToolContext) -> ToolOutput:
            return ToolOutput("no", is_error=True, blocked="everything")

        tool = Run(deed)
        bench = Bench(workspace, tool, answers=[YES], yes=True)
        await bench.call(MAKE)
        assert len(tool.ran) == 2
        assert len(bench.all(PermissionAsked)) == 1

    async def test_other_arguments_are_no_answer_and_nothing_is_remembered(self, workspace: Path) -> None:
        tool = self.make()
        bench = Bench(workspace, tool, answers=[AnswerPermission("", True, args=FORBIDDEN)], yes=True)
        await bench.call(MAKE)
        assert [command for command, _ in tool.ran] == ["mkdir made"]
        assert [event.allowed for event in bench.all(PermissionAnswered)] == [False]
        bench = Bench(workspace, tool, answers=[AnswerPermission("", True, rule="Run", remember="session")], yes=True)
        await bench.call(MAKE)
        assert [event.remember for event in bench.all(PermissionAnswered)] == [None]
        assert "no rule was saved" in bench.all(Warned)[0].text

    async def test_who_stops_the_turn_there_stops_what_comes_after(self, workspace: Path) -> None:
        tool = self.make()
        bench = Bench(workspace, tool, answers=[AnswerPermission("", True, interrupt=True)], yes=True)
        assert await bench.call(MAKE, {"command": "mkdir b"})
        assert [event.status for event in bench.all(ToolEnded)] == ["success", "cancelled"]


def take_out(text: str) -> RedactedText:
    return RedactedText(text.replace("secret", "[gone]"), ("TOKEN",)) if "secret" in text else RedactedText(text)


class TestRedaction:
    async def test_nothing_of_a_result_keeps_it(self, workspace: Path) -> None:
        saved: list[str] = []

        def save(text: str) -> str:
            saved.append(text)
            return "/kept"

        async def tell(command: str, ctx: ToolContext) -> ToolOutput:
            ctx.progress("a secret line")
            return ToolOutput("secret " * 20_000, note="secret note", view="secret view", for_user="secret for you")

        bench = Bench(workspace, Run(tell), redact=take_out, save=save, yes=True)
        await bench.call({"command": "echo secret"})
        (ended,) = bench.all(ToolEnded)
        said = (
            ended.text,
            ended.note,
            ended.display,
            ended.for_user,
            *saved,
            *(x.text for x in bench.all(ToolProgressed)),
        )
        assert all("secret" not in text and "[gone]" in text for text in said)
        assert len(saved) == 1
        assert ended.redacted == ("TOKEN",)
        assert ended.text.endswith("\n\n[redacted: TOKEN]"), "the model is told, also after a cut"
        assert bench.all(ToolStarted)[0].description == "echo [gone]"

    async def test_the_question_shows_none_either(self, workspace: Path) -> None:
        bench = Bench(workspace, Run(), redact=take_out, answers=[NO])
        await bench.call({"command": "echo secret > f"})
        assert bench.all(PermissionAsked)[0].subject == "echo [gone] > f"

    async def test_where_nothing_was_found_nothing_is_said(self, workspace: Path) -> None:
        bench = Bench(workspace, Run(), redact=take_out, yes=True)
        await bench.call(MAKE)
        (ended,) = bench.all(ToolEnded)
        assert (ended.text, ended.redacted) == ("ran mkdir made", ())
