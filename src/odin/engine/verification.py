"""Verification before done: the project's checks run after the last file change of a turn, or the model is reminded.

The checks that Odin runs are ordinary tool calls, which the user has approved by configuring or confirming them: deny
rules, hooks, sandbox and limits apply, and front ends show them. They are not part of the conversation; the model reads
a note about those that failed.
"""

from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from pathlib import PurePath
from typing import get_args

import msgspec
from msgspec import Struct

from odin.core.call_events import ActivityChanged, ToolEnded
from odin.core.errors import CommandTimedOut, OdinError
from odin.core.event import CHECK_ID_PREFIX, ChecksRan
from odin.core.event_values import CheckOutcome, CheckResult, Verification
from odin.core.message import ToolCall
from odin.core.text import join_some
from odin.engine.call import Call, CallScope, TurnCalls
from odin.engine.limits import RepetitionGuard
from odin.engine.pipeline import CallPipeline
from odin.engine.recorder import Recorder
from odin.engine.turn import TurnReview
from odin.policy.commands.checks import ProjectChecks, choose_fitting, find_check
from odin.session.thread import INTERRUPTED

MAX_ROUNDS = 3
"""Maximum number of times per turn that failed checks are sent to the model."""

_CHECK_TOOL = "ExecuteCommand"
_MAX_NAMED = 5
_TAIL_CHARS = 6_000
_OUTCOMES: tuple[CheckOutcome, ...] = get_args(CheckOutcome)
_REPEAT_ANSWER = "Then give your whole final answer again: it replaces the last one."
_NO_REVIEW = TurnReview()

_DOCUMENT_ENDINGS = frozenset((".md", ".mdx", ".rst", ".txt", ".adoc", ".org", ".tex", ".log", ".pdf", ".docx"))
_IMAGE_ENDINGS = frozenset((".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".ico"))
_CODE_TEXTS = ("requirements", "constraints", "CMakeLists")
"""The starts of names of text files that are part of a build."""

_SKIPPED_FOLDERS = frozenset(
    (".git", ".odin", ".claude", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache", "node_modules", ".venv")
)
_DOCUMENT_NAMES = frozenset(("LICENSE", "LICENCE", "COPYING", "AUTHORS", "NOTICE", "CODEOWNERS", ".gitignore"))


class VerificationDeps(Struct, frozen=True):
    """The collaborators of a verifier. With `runs_checks`, Odin runs the checks; `configured` are the user's.

    `find_checks` finds those of a project from a working directory up to its root. `confirm` asks the user once per
    project whether Odin may run checks it found; it gets them and an id for the question. While `is_looping`, loop mode
    reminds the model.
    """

    recorder: Recorder
    pipeline: CallPipeline
    find_checks: Callable[[str, str], ProjectChecks | None]
    confirm: Callable[[ProjectChecks, str], Awaitable[bool]]
    is_looping: Callable[[], bool]
    runs_checks: bool = False
    configured: tuple[str, ...] = ()
    timeout_s: float = 600.0


class ChangeVerifier:
    """Verifies the changes of the turn `turn`, whose finished calls are `calls`."""

    def __init__(self, deps: VerificationDeps, turn: str, scope: CallScope, calls: TurnCalls) -> None:
        self.verification: Verification | None = None
        self._deps = deps
        self._turn = turn
        self._scope = scope
        self._calls = calls.finished
        self._checks: ProjectChecks | None = None
        self._is_confirmed: bool | None = True if deps.configured else None
        self._is_reminded = False
        self._rounds = 0
        self._call_count = 0
        self._checked_calls = 0
        """The number of finished calls when Odin last ran the checks."""

    async def review(self, *, can_continue: bool) -> TurnReview:
        changed = self._find_last_change()
        if changed < 0:
            return _NO_REVIEW
        if self._checks is None:
            scope, configured = self._scope, self._deps.configured
            found = None if configured else self._deps.find_checks(scope.cwd, scope.root)
            self._checks = found or ProjectChecks(scope.root, configured)
        checks = self._checks
        if not checks.commands:
            return _NO_REVIEW
        if not self._deps.runs_checks or not await self._may_run(checks):
            # Report the last outcome of each check that the model ran since the last change. If it ran none, remind it
            # once.
            outcomes: dict[str, CheckOutcome] = {}
            for call in self._calls[changed:]:
                check = find_check(call.command, checks.commands) if call.command else None
                if check is not None and call.status in ("success", "error"):
                    is_hidden = check.is_masked or call.asynchronous
                    outcomes.pop(check.label, None)
                    outcomes[check.label] = "unknown" if is_hidden else _get_outcome(call.status, call.error_kind)
            results = tuple(CheckResult(label, outcome) for label, outcome in outcomes.items())
            if results:
                self.verification = Verification(get_worst_outcome(results), results)
                return _NO_REVIEW
            if not self._deps.configured:
                checks = msgspec.structs.replace(checks, commands=choose_fitting(checks.commands, self._list_changed()))
            self.verification = Verification("not_run", tuple(CheckResult(name, "not_run") for name in checks.commands))
            if self._is_reminded or not can_continue or self._deps.is_looping():
                return _NO_REVIEW
            self._is_reminded = True
            return TurnReview(_format_reminder(checks, self._list_changed(), self._scope.cwd))
        if changed < self._checked_calls:
            return _NO_REVIEW
        return await self._run_round(checks, changed, can_continue)

    def _find_last_change(self) -> int:
        """Return the position of the last call that changed a file which checks could be about; -1 if none did."""
        for at in range(len(self._calls) - 1, -1, -1):
            if any(is_checked_file(path, self._scope.root) for path in self._calls[at].changed):
                return at
        return -1

    async def _may_run(self, checks: ProjectChecks) -> bool:
        if self._is_confirmed is None:
            self._is_confirmed = await self._deps.confirm(checks, f"{CHECK_ID_PREFIX}{self._turn}")
        return self._is_confirmed

    def _make_id(self) -> str:
        self._call_count += 1
        return f"{CHECK_ID_PREFIX}{self._turn}-{self._call_count}"

    def _list_changed(self) -> list[str]:
        paths = dict.fromkeys(path for call in self._calls for path in call.changed)
        names = [path for path in paths if is_checked_file(path, self._scope.root)]
        return [_get_relative_name(path, self._scope.root) for path in names]

    # --- run ---

    async def _run_round(self, checks: ProjectChecks, changed: int, can_continue: bool) -> TurnReview:
        """Run the checks. Those that the model has run in the same words since the last change have passed already."""
        passed = {call.command.strip() for call in self._calls[changed:] if call.status == "success"}
        if passed.issuperset(checks.commands):
            self.verification = Verification(
                "passed", tuple(CheckResult(name, "passed") for name in checks.commands), rounds=self._rounds
            )
            return _NO_REVIEW
        self._checked_calls = len(self._calls)
        self._rounds += 1
        results = [CheckResult(name, "not_run", "The turn ended before.") for name in checks.commands]
        outputs: list[str] = []
        for at, command in enumerate(checks.commands):
            self._set_results(results)
            ended, stops_turn = await self._run_check(command, checks.folder)
            if stops_turn:
                return TurnReview(stops_turn=True)
            if ended.status == "cancelled":  # a steering prompt came first; the checks run when it is answered
                self._rounds, self._checked_calls = self._rounds - 1, 0
                return _NO_REVIEW
            reason = next((line.strip() for line in ended.text.splitlines() if line.strip()), "")
            if ended.status not in ("success", "error") or (ended.status == "error" and reason.startswith("Not run:")):
                results[at] = CheckResult(command, "not_run", reason)
            elif ended.text.rstrip().endswith("(exit code 127)"):
                results[at] = CheckResult(command, "not_run", "The command was not found.")
            else:
                results[at] = CheckResult(command, _get_outcome(ended.status, ended.error_kind))
            outputs.append(ended.text)
        self._set_results(results)
        failed = any(result.outcome in ("failed", "timed_out") for result in results)
        continues = failed and can_continue and self._rounds <= MAX_ROUNDS
        if self.verification is not None:
            self._deps.recorder.emit(ChecksRan(self.verification, continues), self._scope.agent)
        return TurnReview(_format_failures(results, outputs, self._rounds)) if continues else _NO_REVIEW

    def _set_results(self, results: Iterable[CheckResult]) -> None:
        results = tuple(results)
        self.verification = Verification(get_worst_outcome(results), results, "odin", self._rounds)

    async def _run_check(self, command: str, folder: str) -> tuple[ToolEnded, bool]:
        """Run one check as a tool call. Return its result, and whether the user stops the turn."""
        request = ToolCall(self._make_id(), _CHECK_TOOL, self._make_arguments(command))
        ended = [ToolEnded(request.id, request.name, "cancelled", INTERRUPTED)]

        def keep_result(call: Call, event: ToolEnded) -> None:
            ended.append(event)

        scope = msgspec.structs.replace(
            self._scope, cwd=folder, guard=RepetitionGuard(), on_result=keep_result, is_approved=True
        )
        self._deps.recorder.emit(ActivityChanged("verifying", command), scope.agent)
        try:
            stops_turn = await self._deps.pipeline.run_all((request,), scope)
        finally:
            if len(ended) == 1:  # no model asked for this call, so nothing else ends it
                with suppress(OdinError):
                    self._deps.recorder.emit(ended[0], scope.agent)
        return ended[-1], stops_turn

    def _make_arguments(self, command: str) -> dict[str, object]:
        return {"command": command, "timeout": self._deps.timeout_s * 1000, "description": "Check"}


def is_checked_file(path: str, root: str) -> bool:
    """True if checks could be about a file: it is in the project, and no document, picture, plan or cache."""
    file = PurePath(path)
    if file.is_absolute() and not file.is_relative_to(root):
        return False
    inner = file.relative_to(root) if file.is_absolute() else file
    if _SKIPPED_FOLDERS.intersection(inner.parts) or file.name in _DOCUMENT_NAMES:
        return False
    if file.suffix.lower() in _DOCUMENT_ENDINGS:
        return file.name.startswith(_CODE_TEXTS)
    return not (file.suffix.lower() in _IMAGE_ENDINGS and "docs" in inner.parts)


def get_worst_outcome(results: Iterable[CheckResult]) -> CheckOutcome:
    """Return the worst outcome; `not_run` if there is none."""
    outcomes: list[CheckOutcome] = [result.outcome for result in results]
    return max(outcomes, key=_OUTCOMES.index) if outcomes else "not_run"


def _get_outcome(status: str, error_kind: str) -> CheckOutcome:
    if status == "success":
        return "passed"
    return "timed_out" if error_kind == CommandTimedOut.__name__ else "failed"


def _format_reminder(checks: ProjectChecks, changed: list[str], cwd: str) -> str:
    names = join_some([f"`{command}`" for command in checks.commands], _MAX_NAMED)
    where = "" if checks.folder == cwd else f" (in {checks.folder})"
    return (
        f"You changed {join_some(changed, _MAX_NAMED)} and have not run a check of the project since. Its checks: "
        f"{names}{where}. Run those that apply, and fix what fails; if none applies, say why. {_REPEAT_ANSWER}"
    )


def _format_failures(results: list[CheckResult], outputs: list[str], rounds: int) -> str:
    parts = [f"Odin ran the project's checks after your changes (round {rounds} of {MAX_ROUNDS})."]
    for result, output in zip(results, outputs, strict=True):
        if result.outcome in ("failed", "timed_out"):
            parts.append(f"`{result.command}` {describe_outcome(result.outcome)}:\n{_cut_tail(output)}")
        else:
            parts.append(f"`{result.command}` {describe_outcome(result.outcome)}.")
    parts.append(f"Fix the cause of what failed. {_REPEAT_ANSWER}")
    return "\n\n".join(parts)


def describe_outcome(outcome: CheckOutcome) -> str:
    return {"timed_out": "timed out", "not_run": "was not run", "unknown": "ran"}.get(outcome, outcome)


def _cut_tail(output: str) -> str:
    text = output.strip()
    if len(text) <= _TAIL_CHARS:
        return text
    tail = text[-_TAIL_CHARS:]
    return "[…]\n" + (tail.partition("\n")[2] or tail)


def _get_relative_name(path: str, root: str) -> str:
    file = PurePath(path)
    return str(file.relative_to(root)) if file.is_absolute() and file.is_relative_to(root) else path
