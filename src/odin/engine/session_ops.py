"""Ops that change a session's settings, rules or history, and loop mode. Loaded with the first of them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Any

from odin.core.call_events import MemoryChanged, Replied
from odin.core.errors import EmptyPrompt, SessionBusy, UsageError
from odin.core.event import (
    AnyEvent,
    MessageRemoved,
    NoteAdded,
    PermissionModeChanged,
    RoleChanged,
    ServersToggled,
    SystemPromptChanged,
    TitleSet,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.event_values import DEFAULT_ROLE
from odin.core.message import ReplyMessage, Text
from odin.core.op import (
    PREVIOUS_PERMISSION_MODE,
    AddMessage,
    AddRoot,
    AddRule,
    ChangeMemory,
    Compact,
    ControlLanguageServer,
    ControlProcess,
    ControlServers,
    DefineAgents,
    MoveToBackground,
    Op,
    Redo,
    RemoveLastMessage,
    RemoveRoot,
    RemoveRule,
    Rewind,
    SetBudget,
    SetEffort,
    SetLoop,
    SetMode,
    SetModel,
    SetPermissionMode,
    SetRole,
    SetSkills,
    SetSystemPrompt,
    SetTitle,
    SetTools,
)
from odin.core.team import TaskRecord
from odin.core.timeline import PROCESS_END_SUFFIX
from odin.engine.command_effects import drop_layer
from odin.engine.job_notifier import PROCESS_LINES
from odin.engine.session_deps import SessionDeps, SessionStart
from odin.sandbox.background import BackgroundProcess

if TYPE_CHECKING:
    from odin.engine.loop_mode import LoopMode

MAX_LOOP_ITERATIONS = 1000
"""The highest limit of iterations that can be chosen for loop mode."""


class SessionOps:
    """Handles the ops of one session. Each handler returns False if the op had nothing to act on."""

    def __init__(self, deps: SessionDeps, start: SessionStart) -> None:
        self.loop_modes: dict[str, LoopMode] = {}
        self._deps = deps
        self._start = start
        self._team = deps.team
        self._recorder = deps.recorder

    async def handle(self, op: Op) -> bool:
        done = await _OP_HANDLERS[type(op)](self, op)
        self._deps.interactions.settle_decided()  # it may have changed a rule, the permission mode or the role
        return done

    async def _set_loop(self, op: SetLoop) -> bool:
        if not 0 <= op.limit <= MAX_LOOP_ITERATIONS:
            raise UsageError(f"The limit of loop mode must be from 1 to {MAX_LOOP_ITERATIONS}, not {op.limit}.")
        if not op.enabled:
            return self._team.get(op.agent).stop_loop()
        async with self._start.lock:
            self._start.open()
            await self._start.recover()
            await self._deps.surroundings.refresh()
            agent = self._team.get(op.agent)
            if op.agent not in self.loop_modes:
                self.loop_modes[op.agent] = self._deps.agents.make_loop_mode(op.agent)
            self.loop_modes[op.agent].switch_on(op.goal, op.mode, op.limit)
            agent.start_loop(self.loop_modes[op.agent])
            self._team.mark_active(op.agent)
        return True

    async def _add_message(self, op: AddMessage) -> bool:
        async with self._start.lock:
            if self._team.main.is_busy:
                raise SessionBusy("Wait for it or interrupt it, then add the message.")
            if not op.text.strip():
                raise EmptyPrompt
            self._start.open()
            if op.role == "user":
                turn = f"message-{self._recorder.state.seq + 1}"
                self._recorder.emit(TurnStarted(turn, op.text, self._deps.agents.get_default_mode()))
                self._recorder.emit(TurnEnded(turn, "end_turn"))
            else:
                self._recorder.emit(Replied(ReplyMessage((Text(op.text),))))
        return True

    async def _remove_last(self, op: RemoveLastMessage) -> bool:
        async with self._start.lock:
            if self._team.main.is_busy:
                raise SessionBusy("Wait for it or interrupt it, then remove the message.")
            state = self._recorder.state
            if not state.build_history():
                return False
            self._start.open()
            self._recorder.emit(MessageRemoved())
            self._team.main.reset_context(state.conversation.unsent_context)
        return True

    async def _rewind_or_redo(self, op: Rewind | Redo) -> bool:
        """Only an idle session can go back or forward, and no turn starts meanwhile.

        The agents and background processes of undone prompts do not keep it busy: they are stopped.
        """
        async with self._start.lock:
            main, state = self._team.main, self._recorder.state
            turn = None
            if isinstance(op, Rewind) and op.chat and op.only_agent is None:
                turn = state.conversation.timeline.find(op.turn)
            since = inf if turn is None else turn.started
            undone = {task.id: task for task in state.board.tasks.values() if task.created_at >= since}
            if busy := self._team.pause(undone):
                raise SessionBusy("Wait for it or interrupt it, then rewind.", ", ".join(busy))
            if state.seq >= 0:
                self._start.open()
            main.is_held = True
            try:
                stopped = () if turn is None else await self._stop_started(since, undone)
                await self._team.settle()
                await self._deps.checkpoints.rewind_or_redo(op, stopped)
            finally:
                main.is_held = False
                main.wake()
            main.reset_context(state.conversation.unsent_context)
            for task in state.board.tasks.values():
                is_taken_back = task.state_changed_at >= since and task.last_mail not in state.board.messages
                if is_taken_back and task.is_ended and not task.owner and task.id not in undone:
                    main.add_note(
                        f"Task {task.id} is {task.state}: {task.summary}\n"
                        "The user undid a later prompt; that took back its mail and what it changed since then."
                    )
        return True

    async def _stop_started(self, since: float, tasks: Mapping[str, TaskRecord]) -> tuple[str, ...]:
        """Stop these tasks and the processes started since then. Return the names of what still ran.

        A redo tells the model: it finds a note, and the mail and reports it has not read, in the undone conversation.
        """
        main, background = self._team.main, self._deps.background
        main.stop_loop("You took its prompt back.")
        live = {agent.name for agent in self._team.list_agents()}
        agents = [task.agent for task in tasks.values() if task.agent in live]
        others = {task.agent for task in self._recorder.state.board.tasks.values() if task.id not in tasks}

        def list_started() -> list[BackgroundProcess]:
            found = (item for item in background.list_all() if item.request.call_id and item.started >= since)
            return [item for item in found if item.request.agent not in others]

        for item in list_started():  # before it ends: the user is not asked about what is undone
            await self._deps.job_notifier.withdraw(item)
        for task in tasks:
            if not (current := self._recorder.state.board.tasks[task]).is_ended:
                await self._team.cancel_task(current, "You took its prompt back.")
        started = {item.id: item for item in list_started()}
        undecided = [item for item in started.values() if await self._deps.job_notifier.withdraw(item)]
        running = [item for item in started.values() if item.is_left]
        await asyncio.gather(*map(background.stop, running))
        for item in undecided:
            if item.running.view is not None:
                drop_layer(item.running.view)
        await self._deps.checkpoints.record_background()
        processes = dict.fromkeys((*running, *undecided))
        stopped = (*(self._deps.redact(item.name).text for item in processes), *agents)
        mail = self._team.router.take("", tasks)
        told = [f"An undo stopped these; they do not run any more: {', '.join(stopped)}."] if stopped else []
        told += [mail.text] if mail.text else []
        for report in main.take_notifications():
            if report.id.removesuffix(PROCESS_END_SUFFIX).partition(PROCESS_LINES)[0] in started:
                told.append(report.text)
            else:
                main.notify(report)
        if told:
            self._recorder.emit(NoteAdded("\n\n".join(told), mail.ids))
        return stopped

    async def _compact(self, op: Compact) -> bool:
        async with self._start.lock:
            self._team.get(op.agent)
            if not self._recorder.state.build_history(op.agent):
                return False
            self._start.open()
            return await self._deps.compaction.compact(op)

    async def _control_servers(self, op: ControlServers) -> bool:
        names = await self._deps.servers.control(op)
        if names:
            self._start.open()
            self._recorder.emit(ServersToggled(names, op.action == "enable"))
        return bool(names) or op.action == "reconnect"

    async def _control_process(self, op: ControlProcess) -> bool:
        spawned = self._deps.background.find(op.id)
        if op.action == "stop":
            is_left = spawned.is_left
            if is_left:
                await self._deps.background.stop(spawned, by_user=True)
            return is_left
        await self._deps.background.look_for_ports()
        if not spawned.urls or (op.port and op.port not in spawned.urls):
            ports = ", ".join(map(str, spawned.urls))
            hint = f"It listens on {ports}." if ports else "Start it first, or wait until it listens."
            raise UsageError(f"{spawned.id} does not listen on {op.port or 'a port'}.", hint)
        closed = [port for port, url in spawned.urls.items() if not url and op.port in (0, port)]
        for port in closed:
            await self._deps.job_notifier.open_port(spawned, port)
        return bool(closed)

    async def _move_to_background(self, op: MoveToBackground) -> bool:
        return self._deps.background.release(op.agent)

    async def _add_rule(self, op: AddRule) -> bool:
        self._start.open()
        await self._deps.rules.add(op.text, op.action, op.scope)
        return True

    async def _remove_rule(self, op: RemoveRule) -> bool:
        self._start.open()
        await self._deps.rules.remove(op.number)
        return True

    async def _set_model(self, op: SetModel) -> bool:
        self._team.get(op.agent)
        return self._record(await self._deps.models.set_model(op.model, check=op.check, agent=op.agent), op.agent)

    async def _set_effort(self, op: SetEffort) -> bool:
        self._team.get(op.agent)
        return self._record(self._deps.models.set_effort(op.effort, op.agent), op.agent)

    async def _set_system_prompt(self, op: SetSystemPrompt) -> bool:
        self._team.get(op.agent)
        self._deps.agents.set_system_prompt(op.text, op.agent)
        return self._record(SystemPromptChanged(op.text), op.agent)

    async def _set_tools(self, op: SetTools) -> bool:
        self._team.get(op.agent)
        return self._record(ToolsChanged(self._deps.agents.set_tools(op.tools, op.agent)), op.agent)

    async def _set_permission_mode(self, op: SetPermissionMode) -> bool:
        mode = op.mode
        if mode == PREVIOUS_PERMISSION_MODE:
            self._start.open()  # with it, the session knows its mode
            permissions = self._recorder.state.permissions
            if permissions.mode == permissions.previous_mode:
                return False
            mode = permissions.previous_mode
        return self._record(PermissionModeChanged(await self._deps.set_permission_mode(mode)))

    async def _add_root(self, op: AddRoot) -> bool:
        self._start.open()
        return await self._deps.roots.add(op.path)

    async def _remove_root(self, op: RemoveRoot) -> bool:
        self._start.open()
        await self._deps.roots.remove(op.path)
        return True

    async def _set_role(self, op: SetRole) -> bool:
        async with self._start.lock:
            role, changed = await self._deps.agents.set_role(op.role)
            if not role:
                return False
            self._start.open()
            self._recorder.emit(RoleChanged(role))
            if changed is not None:
                self._recorder.emit(changed)
        return True

    async def _define_agents(self, op: DefineAgents) -> bool:
        role = self._deps.surroundings.describe().role
        for problem in self._deps.agents.define_agents(op.agents):
            self._recorder.emit(Warned(problem))
        if not any(item.name == role and item.is_role for item in self._deps.agents.list_agents()):
            await self._set_role(SetRole(DEFAULT_ROLE))
            self._recorder.emit(Warned(f"{role} is not a role any more. The role is now {DEFAULT_ROLE}."))
        return True

    async def _set_skills(self, op: SetSkills) -> bool:
        missing = self._deps.agents.set_skills(op.skills)
        self._deps.expander.forget()
        if missing:
            self._recorder.emit(Warned(f"There are no skills with these names: {', '.join(missing)}."))
        return True

    async def _change_memory(self, op: ChangeMemory) -> bool:
        self._recorder.emit(MemoryChanged(await self._deps.memory.change(op)))
        return True

    async def _set_mode(self, op: SetMode) -> bool:
        return self._team.main.set_mode(op.mode)

    async def _set_budget(self, op: SetBudget) -> bool:
        self._start.open()
        self._deps.budget.set(op.usd)
        return True

    async def _set_title(self, op: SetTitle) -> bool:
        return self._record(TitleSet(op.title))

    async def _switch_language_server(self, op: ControlLanguageServer) -> bool:
        return self._deps.servers.switch_language_server(op.name, op.action)

    def _record(self, event: AnyEvent, agent: str = "") -> bool:
        self._start.open()
        self._recorder.emit(event, agent)
        return True


_OP_HANDLERS: dict[type[Op], Callable[[SessionOps, Any], Awaitable[bool]]] = {
    SetLoop: SessionOps._set_loop,
    AddMessage: SessionOps._add_message,
    RemoveLastMessage: SessionOps._remove_last,
    Rewind: SessionOps._rewind_or_redo,
    Redo: SessionOps._rewind_or_redo,
    Compact: SessionOps._compact,
    AddRule: SessionOps._add_rule,
    RemoveRule: SessionOps._remove_rule,
    SetModel: SessionOps._set_model,
    SetEffort: SessionOps._set_effort,
    SetSystemPrompt: SessionOps._set_system_prompt,
    SetTools: SessionOps._set_tools,
    SetPermissionMode: SessionOps._set_permission_mode,
    AddRoot: SessionOps._add_root,
    RemoveRoot: SessionOps._remove_root,
    SetRole: SessionOps._set_role,
    DefineAgents: SessionOps._define_agents,
    SetSkills: SessionOps._set_skills,
    ChangeMemory: SessionOps._change_memory,
    SetMode: SessionOps._set_mode,
    SetBudget: SessionOps._set_budget,
    SetTitle: SessionOps._set_title,
    ControlServers: SessionOps._control_servers,
    ControlProcess: SessionOps._control_process,
    MoveToBackground: SessionOps._move_to_background,
    ControlLanguageServer: SessionOps._switch_language_server,
}
