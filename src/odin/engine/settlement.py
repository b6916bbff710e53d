"""What becomes of a command when it has run: whether it runs again with more access, and whether what it wrote is kept.

Caches are kept without a word, and what the mode or a rule lets through is applied. The user is asked about the rest,
and about protected files always. What nobody answers for is discarded, and the model is told which.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from odin.core.effects import FileEffect, ViewLayer
from odin.core.errors import CommandTimedOut, ExternalModification, NeedsConfirmation, Rejected
from odin.core.event_values import SkippedFile
from odin.core.lazy_pattern import compile_lazily
from odin.core.op import Answer
from odin.core.path_names import show_path
from odin.core.policy import RuleAction
from odin.core.profile import UNSANDBOXED, ProcessProfile
from odin.core.text import join_some
from odin.core.timing import run_in_thread
from odin.core.tool import ToolContext, ToolOutput
from odin.engine.call import Call, CallDeps, CallScope
from odin.engine.command_effects import (
    CommandEffects,
    EffectTexts,
    apply_unrecorded,
    describe_caches,
    describe_effects,
    drop_layer,
    read_command_effects,
)
from odin.engine.permission_request import PermissionRequest
from odin.policy.decision import Decision
from odin.policy.modes import get_mode_spec
from odin.sandbox.views.applier import find_conflicts
from odin.sandbox.views.caches import is_kept_unasked

_NETWORK_DENIALS = ("reaching the network", "reaching port")
_WRITE_DENIALS = ("writing", "changing")
_SEARCH = compile_lazily(r"\b(?:rg|[ef]?grep|ag|ack)\b")
_MAX_NAMED = 5
_UNCHANGED = "The project is unchanged."


class Rerun(Struct, frozen=True):
    """Run the command again with this profile. `remark` tells the model, `note` the user, in a few words.

    `edited`: with the arguments of this answer.
    """

    profile: ProcessProfile
    remark: str = ""
    note: str = ""
    edited: Answer | None = None


class Settlement:
    """Settles one run of a call. `stops_turn`: the user's answer also ends the turn."""

    def __init__(
        self,
        call: Call,
        scope: CallScope,
        deps: CallDeps,
        context: ToolContext,
        evaluate_again: Callable[[Call], Decision],
    ) -> None:
        self.stops_turn = False
        self._has_ended = False
        self._is_applied = False
        self._late_turn = ""
        self._call = call
        self._scope = scope
        self._deps = deps
        self._context = context
        self._evaluate_again = evaluate_again
        self._request = PermissionRequest(call, scope, deps)

    async def settle(self, output: ToolOutput) -> ToolOutput | Rerun:
        """Offer to run a command again that the sandbox blocked, else decide about what it wrote."""
        self._has_ended = True
        outcome: ToolOutput | Rerun = output
        if output.blocked:
            outcome = await self._offer_more_access(output)
        if output.layer is None:
            # Of a command that goes on in the background it is told here, not in its report.
            tells = _SEARCH.search(self._call.target.command) or (output.asynchronous and self._context.profile.view)
            return self._tell_hidden(outcome) if tells and isinstance(outcome, ToolOutput) else outcome
        if isinstance(outcome, Rerun):
            drop_layer(output.layer)
            return outcome
        cut_off = "It ran into its time limit." if output.error_kind == CommandTimedOut.__name__ else ""
        return await self._settle_layer(outcome, output.layer, cut_off)

    async def settle_interrupted(self, output: ToolOutput) -> ToolOutput:
        """Offer what a command wrote whose turn was cancelled. Unless the user wants it, it is discarded."""
        settled, layer, output = None, output.layer, replace(output, layer=None)
        assert layer is not None
        if not self._has_ended:
            with suppress(asyncio.CancelledError):
                settled = await self._settle_layer(output, layer, "It was interrupted.")
        if isinstance(settled, ToolOutput):
            return settled
        if self._is_applied:
            return _add_remark(output, "What it changed was kept.")
        drop_layer(layer)
        return _add_remark(output, f"What it had changed was discarded. {_UNCHANGED}")

    async def settle_later(self, layer: ViewLayer, cut_off: str) -> ToolOutput:
        """Decide about what a command wrote that the user has sent to the background. It cannot run again."""
        self._late_turn = self._call.id
        outcome = await self._settle_layer(ToolOutput(""), layer, cut_off)
        if isinstance(outcome, ToolOutput):
            return outcome
        return _add_remark(ToolOutput(""), f"What it had changed was discarded. {_UNCHANGED} Run it again.")

    # --- what it wrote ---

    async def _settle_layer(self, output: ToolOutput, layer: ViewLayer, cut_off: str) -> ToolOutput | Rerun:
        policy = self._deps.policy()
        approves_all = policy.yes or policy.permission_mode == "bypassPermissions"
        root, hidden = self._context.root, self._context.profile.hidden
        effects = await read_command_effects(layer, root, makes_repositories=approves_all, hidden=hidden)
        output = replace(output, layer=None)
        output = output if self._late_turn else self._tell_hidden(output)
        after, keeps = self._call.decision.after, get_mode_spec(self._scope.mode).allows_changes
        silent = effects.silent if keeps and not cut_off else ()
        if after != "apply":
            silent = tuple(effect for effect in silent if effect.group != "cache" or is_kept_unasked(effect))
        chosen, asked = effects.split("ask" if cut_off else after)
        if not chosen and not asked:
            return await self._apply(output, effects, silent)
        if after == "discard":
            texts = await self._describe(effects, asked)
            mode = self._scope.mode if not keeps else "the permission mode dontAsk"
            output = _add_remark(
                output, f"Discarded, because {mode} keeps no changes: {texts.describe()}. {_UNCHANGED}"
            )
            return await self._apply(output, effects, silent)
        if effects.emptied:
            drop_layer(layer)
            names = join_some((show_path(path.removeprefix(f"{root}/")) for path in effects.emptied), _MAX_NAMED)
            profile = replace(self._context.profile, hidden=())
            again = Rerun(profile, f"The user let it read {names}.", f"again, with {names}")
            why = f"It was kept from reading {names}, which may contain secrets, so git recorded an empty file."
            return await self._ask_again(output, again, why, "Run this again and let it read the secrets")
        if effects.refusals:
            drop_layer(layer)
            return await self.offer_direct_run(output, _describe_skipped(effects.refusals, self._context.root))
        if not asked:
            return await self._apply(output, effects, (*chosen, *silent))
        texts = await self._describe(effects, asked)
        if not self._can_ask():
            return await self._leave_out(output, effects, texts, chosen, silent, cut_off)
        conflicts = await run_in_thread(lambda stopped: find_conflicts(layer, (*chosen, *asked)))
        if conflicts:
            return self._report_conflicts(output, conflicts, layer)
        return await self._ask(output, effects, texts, asked, (chosen, silent), cut_off)

    async def _describe(self, effects: CommandEffects, shown: Sequence[FileEffect]) -> EffectTexts:
        root, layer = self._context.root, effects.layer
        return await run_in_thread(lambda stopped: describe_effects(layer, (*shown, *effects.silent), root))

    async def _leave_out(
        self,
        output: ToolOutput,
        effects: CommandEffects,
        texts: EffectTexts,
        chosen: Sequence[FileEffect],
        silent: Sequence[FileEffect],
        cut_off: str,
    ) -> ToolOutput:
        """Discard what nobody can be asked about. That is an error, unless only protected files are left out."""
        what, rest = texts.describe(), "" if chosen else f" {_UNCHANGED}"
        if cut_off:
            output = _add_remark(output, f"Discarded, because {_uncapitalize(cut_off)} {what}. {_UNCHANGED}")
        elif self._call.decision.after == "apply":
            why = "other programs execute or obey these files, and no user can be asked here"
            told = f"Left out, because {why}: {what}.{rest}"
            output = replace(_add_remark(output, told), for_user=f"{output.for_user}\n{told}".lstrip())
        else:
            hint = suggest_flag(self._request)
            why = f"It requires confirmation: {what}. No user can be asked here, so this was discarded.{rest} {hint}"
            output = replace(_add_remark(output, why), is_error=True, error_kind=NeedsConfirmation.__name__)
        return await self._apply(output, effects, (*chosen, *silent))

    async def _ask(
        self,
        output: ToolOutput,
        effects: CommandEffects,
        texts: EffectTexts,
        asked: Sequence[FileEffect],
        unasked: tuple[Sequence[FileEffect], Sequence[FileEffect]],
        cut_off: str,
    ) -> ToolOutput | Rerun:
        layer, root, (chosen, silent) = effects.layer, self._context.root, unasked
        preview = await self._deps.preview_effects(layer, asked, root)
        reason = cut_off
        if effects.protected and not cut_off:
            names = (show_path(effect.path.removeprefix(f"{root}/")) for effect in effects.protected)
            reason = f"Other programs execute or obey {join_some(names, _MAX_NAMED)}."

        def recheck() -> RuleAction:
            """Return what the rules decide now. None keeps protected files, or what was cut off."""
            now = self._evaluate_again(self._call)
            if now.action == "deny" or now.after == "discard":
                return "deny"
            return "allow" if now.action == "allow" and now.after == "apply" and not reason else "ask"

        answer = await self._request.ask_effects(
            texts, preview, reason, recheck, has_rules=not cut_off, turn=self._late_turn
        )
        if answer is None:
            answer = Answer("", "allow_once" if recheck() == "allow" else "deny", by="rule")
        self.stops_turn = answer.interrupt
        what = texts.describe()
        if answer.allow and answer.args is not None:
            drop_layer(layer)
            return Rerun(self._context.profile, edited=answer)
        if answer.allow:
            silent = silent if cut_off else effects.silent
            told = f"{'Kept' if answer.by == 'rule' else 'The user kept'}: {what}."
            return await self._apply(output, effects, (*chosen, *asked, *silent), told)
        who = "The user discarded" if answer.by in ("user", "sdk", "api") else "Discarded"
        rest = "The rest was kept." if chosen else _UNCHANGED
        why = f"\nThe user says: {answer.text}" if answer.text and answer.by == "user" else f" {answer.text}".rstrip()
        output = replace(output, is_error=True, error_kind=output.error_kind or Rejected.__name__)
        return await self._apply(
            _add_remark(output, f"{who}: {what}. {rest}{why}"), effects, (*chosen, *silent) if chosen else ()
        )

    async def _apply(
        self, output: ToolOutput, effects: CommandEffects, chosen: Sequence[FileEffect], told: str = ""
    ) -> ToolOutput:
        """Make these effects real and remove the layer, unless others changed the same files meanwhile. On success, add
        the remark `told` to the result."""
        layer, call = effects.layer, self._call
        if not chosen:
            drop_layer(layer)
            return output
        is_cache = all(effect in effects.silent for effect in chosen)
        apply = None if is_cache else self._deps.steps.apply
        self._is_applied = True
        result = await (apply or apply_unrecorded)(call.id, self._scope.agent, layer, chosen)
        if result.conflicts and not is_cache:
            return self._report_conflicts(output, result.conflicts, layer, is_partial=bool(result.applied))
        drop_layer(layer)
        output = _add_remark(output, told) if told else output
        if result.skipped:
            output = _add_remark(output, f"Left out: {_describe_skipped(result.skipped, self._context.root)}.")
        caches = describe_caches(chosen, layer, self._context.root) if effects.silent else ""
        return replace(output, aside=caches)

    def _report_conflicts(
        self, output: ToolOutput, conflicts: Sequence[SkippedFile], layer: ViewLayer, *, is_partial: bool = False
    ) -> ToolOutput:
        what = _describe_skipped(conflicts, self._context.root)
        rest = "The rest was kept." if is_partial else f"Nothing was kept. {_UNCHANGED}"
        kept = layer.folder
        with suppress(OSError):
            kept = self._deps.keep_layer(layer)
        output = _add_remark(output, f"Conflict: {what}. {rest} Look at the files and run the command again.")
        return replace(
            output,
            is_error=True,
            error_kind=ExternalModification.__name__,
            for_user=f"{output.for_user}\nWhat the command wrote is in {kept}.".lstrip(),
        )

    def _tell_hidden(self, output: ToolOutput) -> ToolOutput:
        """Say which files were hidden: once a turn, and again if the command failed, perhaps for lack of them."""
        hidden = tuple(path.removeprefix(f"{self._context.root}/") for path in self._context.profile.hidden)
        if not hidden or (hidden == self._scope.told_hidden and not output.is_error):
            return output
        self._scope.told_hidden = hidden
        names = self._deps.clean(join_some(map(show_path, hidden), _MAX_NAMED))
        return _add_remark(output, f"It could not read {names}, which may contain secrets, because nobody approved it.")

    # --- running it again ---

    def _can_ask(self) -> bool:
        return self._deps.interactions.can_ask and self._deps.policy().permission_mode != "dontAsk"

    async def offer_direct_run(self, output: ToolOutput, reason: str) -> ToolOutput | Rerun:
        """Let a command that cannot have a view change the project directly, if the user agrees."""
        policy, profile = self._deps.policy(), replace(self._context.profile, view=False, hidden=())
        again = Rerun(profile, f"It ran directly in the project, not in a private view: {reason}.", "without a view")
        if not self._late_turn and (policy.yes or policy.permission_mode == "bypassPermissions"):
            return again
        why = f"It cannot run in a private view: {reason}. It would change the project directly."
        return await self._ask_again(output, again, why, "Run this directly in the project")

    async def _offer_more_access(self, output: ToolOutput) -> ToolOutput | Rerun:
        """Let the user run a command that the sandbox blocked once more: with network, with writes, or outside.

        Only the user can agree, once per call: no rule, hook or permission mode leads out of the sandbox. In a
        read-only mode, or to an agent with a write scope, only the network is offered, because nothing would confine
        the command.
        """
        blocked, profile = self._deps.clean(output.blocked), self._context.profile
        limits, why = self._deps.policy().write_scope, f"The sandbox kept it from {blocked}."

        def make_again(other: ProcessProfile, how: str) -> Rerun:
            remark = f"The sandbox had kept it from {blocked}. The user let it run again {how}."
            return Rerun(other, remark, f"again, {how}, because the sandbox had kept it from {blocked}")

        if profile.writes and blocked.startswith(_NETWORK_DENIALS) and not profile.grants.network:
            granted = replace(profile, name="granted", grants=replace(profile.grants, network=True))
            again, title = make_again(granted, "with network access"), "Run this again with network access"
            return await self._ask_again(output, again, why, title, network=True)
        if limits.is_limited:
            return _add_remark(output, f"{why} This agent may change: {limits.describe()}.")
        if not get_mode_spec(self._scope.mode).allows_changes:
            return output
        if self._call.decision.runs_in == "read" and not profile.writes and blocked.startswith(_WRITE_DENIALS):
            again = make_again(replace(profile, name="project", hidden=()), "with write access to the project")
            return await self._ask_again(output, again, why, "Run this again and let it change files")
        if not profile.writes:
            return output
        return await self._ask_again(output, make_again(UNSANDBOXED, "outside the sandbox"), why, "", unsandboxed=True)

    async def _ask_again(
        self, output: ToolOutput, again: Rerun, why: str, title: str, **more: bool
    ) -> ToolOutput | Rerun:
        """Ask whether a command may run again. If not, return its output with a remark."""
        if self._late_turn:
            return _add_remark(output, f"{why} What it had changed was discarded. {_UNCHANGED} Run it again.")
        if not self._can_ask():
            if more:
                return output
            text = f"It requires confirmation: {why} No user can be asked here. {suggest_flag(self._request)}"
            return replace(_add_remark(output, text), is_error=True, error_kind=NeedsConfirmation.__name__)
        answer = await self._request.ask_again(why, title, **more)
        self.stops_turn = answer.interrupt
        if answer.allow:
            return again
        who = "No user allowed" if answer.by in ("timeout", "shutdown", "nobody") else "The user did not allow"
        where = " outside the sandbox" if again.profile is UNSANDBOXED else ""
        return _add_remark(output, f"{why} {who} it to run{where}{f': {answer.text}' if answer.text else '.'}")


def _add_remark(output: ToolOutput, remark: str) -> ToolOutput:
    return replace(output, text=f"{output.text}\n\n[{remark}]".lstrip())


def _describe_skipped(files: Sequence[SkippedFile], root: str) -> str:
    return join_some((f"{show_path(file.path.removeprefix(f'{root}/'))}: {file.reason}" for file in files), _MAX_NAMED)


def _uncapitalize(sentence: str) -> str:
    return f"{sentence[0].lower()}{sentence[1:].rstrip('.')}:"


def suggest_flag(request: PermissionRequest) -> str:
    """Return how a user without a terminal lets this command keep what it writes."""
    rule = next((rule for rule in request.list_rules() if "'" not in rule), "")
    return f"Allow it with --allowedTools '{rule}', or everything with --yes." if rule else "Allow it with --yes."
