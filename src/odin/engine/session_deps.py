"""The parts of a session that carry out its ops, and the start of a run."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from odin.core.event import ScheduleChanged, SessionOpened, Warned
from odin.core.policy import CallbackHook, SessionRedactor
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.engine.delegation import DelegationService
from odin.engine.hooks import TurnHooks
from odin.engine.interactions import Interactions
from odin.engine.job_notifier import JobNotifier
from odin.engine.limits import CostBudget
from odin.engine.prompts import Attachments, CommandExpander, NoAttachments
from odin.engine.recorder import Recorder
from odin.engine.rule_changes import RuleChanges
from odin.engine.team import Team
from odin.engine.user_shell import UserShell
from odin.sandbox.background import BackgroundProcesses

if TYPE_CHECKING:
    from odin.engine.controls import (
        AgentControl,
        Checkpoints,
        ManualCompaction,
        MemoryControl,
        ModelControl,
        RootControl,
        ServerControl,
        Surroundings,
    )
    from odin.engine.crash_recovery import DanglingEvents


class SessionDeps(Struct, frozen=True):
    """The parts of one session that carry out its ops and answer its queries.

    `find_unsaid` returns the warnings with which its first op begins.
    """

    team: Team
    recorder: Recorder
    interactions: Interactions
    rules: RuleChanges
    hooks: TurnHooks
    add_hook: Callable[[CallbackHook], None]
    set_permission_mode: Callable[[str], Awaitable[str]]
    redact: SessionRedactor
    budget: CostBudget
    compaction: "ManualCompaction"
    checkpoints: "Checkpoints"
    background: BackgroundProcesses
    job_notifier: JobNotifier
    user_shell: UserShell
    expander: CommandExpander
    models: "ModelControl"
    agents: "AgentControl"
    delegation: DelegationService
    memory: "MemoryControl"
    servers: "ServerControl"
    roots: "RootControl"
    surroundings: "Surroundings"
    attachments: Attachments = NoAttachments()
    timing: Timing = DEFAULT_TIMING
    find_unsaid: Callable[[], Sequence[str]] = lambda: ()


class SessionStart:
    """The start of a run, which its first op records. A session in which nothing was asked leaves no log.

    `opened` is None from then on. `lost_schedules` are those that do not hold any more, by their ids, with what is
    said of them. `lock` is held by every op that starts work, or that no work may start during.
    """

    def __init__(self, deps: SessionDeps, opened: SessionOpened) -> None:
        self.opened: SessionOpened | None = opened
        self.lock = asyncio.Lock()
        self._team = deps.team
        self._recorder = deps.recorder
        self._find_unsaid = deps.find_unsaid
        self._checkpoints = deps.checkpoints
        now = deps.timing.clock()
        schedules = deps.recorder.state.schedules.values()
        self.lost_schedules = {item.id: text for item in schedules if (text := item.describe_loss(now))}
        self._dangling: DanglingEvents | None = None
        self._recorder.state.board.cut_off()

    def open(self) -> None:
        """Record the start of this run, and the end of everything a killed process left open."""
        if self.opened is not None:
            if self._recorder.state.open_work:
                from odin.engine.crash_recovery import find_dangling

                self._dangling = find_dangling(self._recorder.state)
            self._recorder.emit(self.opened)
            self.opened = None
            for text in self._find_unsaid():
                self._recorder.emit(Warned(text))
            if note := self._recorder.state.board.describe_left():
                self._team.main.add_note(note)
            for number, text in self.lost_schedules.items():
                self._recorder.emit(ScheduleChanged(self._recorder.state.schedules[number], is_on=False, reason=text))
                self._recorder.emit(Warned(text, "info"))
            self.lost_schedules = {}
            for event, agent in self._dangling.events if self._dangling else ():
                self._recorder.emit(event, agent, past=True)

    async def recover(self) -> None:
        """Record the file changes of calls that were cut off; after a crash, tell the model."""
        changes = self._recorder.state.file_history
        mark = changes.mark()
        await self._checkpoints.recover()
        if self._dangling is not None:
            note = self._dangling.describe(tuple(change.change for change in changes.list_since(mark)))
            self._dangling = None
            if note:
                self._team.main.add_note(note)
