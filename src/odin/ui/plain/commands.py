"""Slash commands in plain mode: the shared actions, and the lists and texts that plain mode prints itself."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TextIO

from odin.core.client import Client, SessionInfo, Sessions, SessionSummary, close_events
from odin.core.errors import OdinError, UsageError
from odin.core.event import Redone, Rewound
from odin.core.event_values import Event, Mode
from odin.core.format import pluralize
from odin.core.op import Prompt, Redo, Rewind
from odin.core.slash_commands import make_usage_error
from odin.ui.plain import command_views as views
from odin.ui.plan_text import parse_execution
from odin.ui.slash_commands.actions import (
    ACTIONS,
    SHOWN_WITHOUT_ARGUMENT,
    Action,
    CommandContext,
    delete_session,
    describe_entered_mode,
    find_fork_turn,
    format_roots,
    format_rules,
    is_model_choice,
)
from odin.ui.slash_commands.agents import describe_working, find_focus, format_agents
from odin.ui.slash_commands.extensions import (
    format_language_servers,
    format_memory,
    format_plugins,
    format_servers,
    format_skills,
)
from odin.ui.slash_commands.processes import control_process, describe_process, find_process, format_processes
from odin.ui.slash_commands.reports import (
    VIEW_GROUPINGS,
    ErrorLog,
    describe_model,
    format_changes,
    format_context,
    format_models,
    format_stats,
    format_usage,
    gather_status,
    parse_paths,
    parse_stats,
)
from odin.ui.slash_commands.sessions import (
    MAX_SESSIONS_LISTED,
    PlainSessionPicker,
    describe_hidden,
    describe_rewind,
    filter_sessions,
    format_match,
    format_queue,
    format_session,
    list_conversations,
    parse_force,
    parse_rewind,
    strip_all_option,
)
from odin.ui.terminal import TextPainter, escape_control, escape_hidden, get_terminal_size, write_line, write_text

MODES: dict[str, Mode] = {"ask": "ask_mode", "plan": "plan_mode", "edit": "edit_mode"}
FOLLOW_S = 0.5
"""Between two looks at the output of a background process that is being followed."""

_PROBE_WORD = "look"
"""`/models look` also asks model servers on this machine."""


class PlainCommands:
    """Runs slash commands and keeps their state. A command without a shared action is the method `run_` and its name.

    `mode` is the mode of the next prompt, `agent` the focused agent. While `is_choosing`, the next line answers the
    list that /resume printed. With `can_follow` the output of a process may come after the command that follows it.
    """

    def __init__(
        self,
        sessions: Sessions,
        info: SessionInfo,
        mode: Mode,
        err: TextIO,
        expect_turn: Callable[[], None],
        *,
        can_follow: bool = False,
    ) -> None:
        self.mode: Mode = mode
        self.first_prompt: Prompt | None = None
        """To be sent in the session that a command opened."""
        self.error_log = ErrorLog()
        self.permission_mode = ""
        self.columns = 100
        """Of an output that is no terminal."""
        self._sessions = sessions
        self._err = err
        self._expect_turn = expect_turn
        self._picker: PlainSessionPicker | None = None
        self._draft = ""
        self._can_follow = can_follow
        self._following: asyncio.Task[None] | None = None
        self._handlers: dict[str, Callable[[str], Awaitable[None]]] = {
            **{name: partial(self._run_action, action) for name, action in ACTIONS.items()},
            **{name: partial(self._print_unavailable, name) for name in views.UNAVAILABLE_SENTENCES},
            **{name[4:].replace("_", "-"): getattr(self, name) for name in dir(self) if name.startswith("run_")},
        }
        self._refused_switch = ""
        self.enter_session(info.permission_mode, info.role)

    def record_role(self, role: str) -> None:
        self.role = role

    def record_permission_mode(self, mode: str) -> None:
        self.permission_mode = mode

    def enter_session(self, permission_mode: str, role: str) -> None:
        """Forget the state of the previous session."""
        self.role = role
        self.agent = ""
        if message := describe_entered_mode(self.permission_mode, permission_mode):
            write_line(self._err, message)
        self.permission_mode = permission_mode
        self.user_shell, self.compaction = views.UserShellView(self._err), views.CompactionView(self._err)
        self._loop_view = views.LoopView(self._err)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._handlers)

    @property
    def is_choosing(self) -> bool:
        return self._picker is not None

    def list_views_for(self, event: Event) -> list[views.CommandView]:
        """Return the views that print something about this event."""
        return [view for view in (self.user_shell, self.compaction, self._loop_view) if view.wants(event)]

    def has_command(self, name: str) -> bool:
        return name in self._handlers

    async def run(self, name: str, rest: str) -> str:
        """Run a command. Return the prompt that a fork left out, to be edited and sent again, or ""."""
        rest = rest.strip()
        if rest and name in SHOWN_WITHOUT_ARGUMENT:
            await self._run_action(ACTIONS[name], rest)
        else:
            await self._handlers[name](rest)
        draft, self._draft = self._draft, ""
        return draft

    async def cancel_compaction(self) -> None:
        await self.compaction.run_command(self._context, "cancel")

    @property
    def _client(self) -> Client:
        return self._sessions.client

    @property
    def _context(self) -> CommandContext:
        return CommandContext(
            self._client,
            self.mode,
            self._sessions,
            self._expect_turn,
            record_role=self.record_role,
            record_permission_mode=self.record_permission_mode,
        )

    @property
    def _columns(self) -> int:
        return get_terminal_size(self._err)[0] if self._err.isatty() else self.columns

    async def _run_action(self, action: Action, rest: str) -> None:
        if message := await action(self._context, rest):
            write_line(self._err, message)

    # --- help ---

    async def run_help(self, rest: str) -> None:
        await views.print_help(self._client, rest, self._err)

    async def run_commands(self, rest: str) -> None:
        columns = get_terminal_size(self._err)[0] if self._err.isatty() else 1000
        write_text(self._err, views.format_custom_commands(await self._client.list_commands(), columns))

    async def run_mcp(self, rest: str) -> None:
        write_text(self._err, format_servers((await self._client.get_info()).servers, self._columns))

    async def run_skills(self, rest: str) -> None:
        write_text(self._err, await format_skills(self._client, rest, self._columns))

    async def run_memory(self, rest: str) -> None:
        write_text(self._err, await format_memory(self._client))

    async def run_lsp(self, rest: str) -> None:
        write_text(self._err, format_language_servers(await self._client.get_info(), self._columns))

    async def run_plugins(self, rest: str) -> None:
        write_text(self._err, format_plugins(await self._client.get_info(), self._columns))

    async def run_keys(self, rest: str) -> None:
        for line in views.KEY_LINES:
            write_line(self._err, line)

    async def _print_unavailable(self, name: str, rest: str) -> None:
        write_line(self._err, views.UNAVAILABLE_SENTENCES[name])

    # --- the running turn, the queue and the conversation ---

    async def run_queue(self, rest: str) -> None:
        write_text(self._err, format_queue((await self._client.snapshot()).queue, self._columns))

    async def run_agents(self, rest: str) -> None:
        write_text(self._err, format_agents(await self._client.snapshot(), self._columns))

    async def run_ps(self, rest: str) -> None:
        told, verb = await control_process(self._client, rest, self.agent)
        if verb and not told:
            write_text(self._err, format_processes(await self._client.list_processes(), self._columns))
        elif verb == "show" or (verb == "follow" and not self._can_follow):
            if verb == "follow":
                write_line(self._err, "Nothing can be followed here; this is the output so far.", "dim")
            write_text(self._err, escape_control((await self._client.read_process(told)).text) or "(no output)\n")
            write_line(self._err, f"{told}: {describe_process(await find_process(self._client, told))}", "dim")
        elif verb == "follow":
            self._following = asyncio.create_task(self._follow(self._client, told))
        elif told:
            write_line(self._err, told)

    async def _follow(self, client: Client, id: str) -> None:
        write_line(self._err, f"Following {id}. Enter or Ctrl-C stops that, not the process.", "dim")
        end, is_running = 0, True
        with suppress(OdinError):  # the session was left
            while is_running:
                is_running = (await find_process(client, id)).status == "running"
                read = await client.read_process(id, end)
                write_text(self._err, escape_control(read.text))
                end = read.end
                await asyncio.sleep(FOLLOW_S if is_running else 0)
            write_line(self._err, f"{id}: {describe_process(await find_process(client, id))}", "dim")

    def stop_following(self) -> bool:
        """Stop following a background process; False if none is followed."""
        is_following = self._following is not None and not self._following.done()
        if self._following is not None:
            self._following.cancel()
            self._following = None
        return is_following

    async def run_focus(self, rest: str) -> None:
        self.agent = await find_focus(self._client, rest)
        where = f"{escape_hidden(self.agent)}. /focus main returns" if self.agent else "the main agent"
        write_line(self._err, f"Prompts go to {where}.")

    async def run_steer(self, rest: str) -> None:
        """Send a message to the running turn; without one it is an ordinary prompt."""
        if not rest:
            raise make_usage_error("steer", "/steer needs a message.")
        prompt = Prompt(os.urandom(6).hex(), rest, self.mode, delivery="steer")
        await self._client.submit(prompt)
        if any(item.id == prompt.id for item in (await self._client.snapshot()).queue):
            write_line(self._err, "Sent. The model sees it before its next step.")

    async def run_compact(self, rest: str) -> None:
        await self.compaction.run_command(self._context, rest)

    async def run_rewind(self, rest: str) -> None:
        turns = (await self._client.snapshot()).prompts
        if rest:
            await self._submit_and_report(parse_rewind(rest.split(), turns, "rewind"))
        else:
            write_text(self._err, views.format_prompts(turns))

    async def run_undo(self, rest: str) -> None:
        turns = (await self._client.snapshot()).prompts
        await self._submit_and_report(parse_rewind(rest.split(), turns, "undo"))

    async def run_redo(self, rest: str) -> None:
        await self._submit_and_report(Redo(force=parse_force(rest.split())))

    async def _submit_and_report(self, op: Rewind | Redo) -> None:
        events = self._client.stream_events()
        try:
            await self._client.submit(op)
            async for envelope in events:
                if isinstance(envelope.event, Rewound | Redone):
                    write_text(self._err, describe_rewind(envelope.event, (await self._client.get_info()).cwd))
                    return
        finally:
            close_events(events)

    # --- sessions ---

    async def _may_switch(self, command: str) -> bool:
        """Return whether another session may be opened. While sub-agents work, the user has to repeat the command."""
        is_repeated, self._refused_switch = command == self._refused_switch, ""
        working = [] if is_repeated or not sys.stdin.isatty() else describe_working(await self._client.snapshot())
        if not working:
            return True
        self._refused_switch = command
        write_line(self._err, "Agents are still at work:")
        for line in working:
            write_line(self._err, f"  {line}")
        write_line(self._err, f"Type {command} again to stop them. Resuming this session continues their tasks.")
        return False

    async def run_new(self, rest: str) -> None:
        if not await self._may_switch("/new"):
            return
        await self._sessions.open_new()
        write_line(self._err, f"New session {await self._context.get_session_id()}")

    async def run_execute(self, rest: str) -> None:
        if not await self._may_switch(f"/execute {rest}".strip()):
            return
        _, self.first_prompt = await self._sessions.execute_plan(*parse_execution(rest))
        self.mode = self.first_prompt.mode
        write_line(self._err, f"New session {await self._context.get_session_id()}")

    async def run_resume(self, rest: str) -> None:
        if session := strip_all_option(rest):
            if not await self._may_switch(f"/resume {session}"):
                return
            await self._sessions.resume(session)
            await self.print_resumed()
            return
        here = await self._context.get_session_id()
        others = [item for item in await self._sessions.list_sessions() if item.id != here and item.turns]
        self._picker = PlainSessionPicker(list_conversations(others, rest))
        self._print_picker()
        self._print_hidden(others, rest)

    def _print_hidden(self, sessions: Sequence[SessionSummary], rest: str) -> None:
        if line := describe_hidden(sessions, rest):
            write_line(self._err, line, "dim")

    async def choose_session(self, typed: str) -> None:
        """Handle the line typed after /resume printed its list."""
        picker, self._picker = self._picker, None
        chosen = picker.parse_choice(typed) if picker is not None else ""
        if chosen is None:
            self._picker = picker
            self._print_picker()
        elif chosen:
            await self.run_resume(chosen)

    def _print_picker(self) -> None:
        if self._picker is None:
            return
        for row in self._picker.format_lines(self._columns):
            write_line(self._err, row)
        if self._picker.is_empty:
            self._picker = None

    async def print_resumed(self) -> None:
        """Print which session continues, unless it is a new one."""
        snapshot = await self._client.snapshot()
        if snapshot.messages:
            count = pluralize(len(snapshot.prompts), "prompt")
            title = snapshot.title or "(no title)"
            write_line(self._err, f"Resumed {await self._context.get_session_id()}: {title}, {count}")

    async def run_fork(self, rest: str) -> None:
        if not await self._may_switch(f"/fork {rest}".strip()):
            return
        _, self._draft = await self._sessions.fork(await find_fork_turn(self._client, rest))
        session = await self._context.get_session_id()
        write_line(self._err, f"Continuing in a copy: {session}. The original session is unchanged.")

    async def run_sessions(self, rest: str) -> None:
        columns, here = self._columns, await self._context.get_session_id()
        listed = await self._sessions.list_sessions()
        if words := strip_all_option(rest):
            found = await self._sessions.search(words)
            rows = [row for match in found[:MAX_SESSIONS_LISTED] for row in format_match(match, columns, here)]
        else:
            found = list_conversations(listed, rest, here)
            rows = [format_session(item, columns, here) for item in found[:MAX_SESSIONS_LISTED]]
        for row in rows or ["No matching sessions." if words else "No sessions yet."]:
            write_line(self._err, row)
        if len(found) > MAX_SESSIONS_LISTED:
            write_line(self._err, f"and {len(found) - MAX_SESSIONS_LISTED} more; see `odin sessions`")
        if not words:
            self._print_hidden([item for item in listed if item.id != here], rest)

    async def run_delete(self, session: str) -> None:
        if message := await delete_session(self._context, session):
            write_line(self._err, message)
            return
        here = await self._context.get_session_id()
        others = [item for item in await self._sessions.list_sessions() if item.id != here]
        matches = filter_sessions(others, session)
        if len(matches) != 1:
            raise UsageError(f"No other session {session}.", "/sessions lists the sessions.")
        write_line(self._err, format_session(matches[0], self._columns, here))
        write_line(self._err, f"Type /delete {matches[0].id} to delete it permanently.")

    # --- model and cost ---

    async def run_model(self, rest: str) -> None:
        model = escape_hidden(describe_model(await self._client.get_info()))
        write_line(self._err, f"Model: {model}. /model NAME switches, /models lists models.")

    async def run_models(self, rest: str) -> None:
        if is_model_choice(rest, (await self._client.get_info()).pools):
            await self._run_action(ACTIONS["model"], rest)
            return
        words = rest.split()
        probe = _PROBE_WORD in words
        models = await self._client.list_models("all" if probe else "configured")
        filter_words = " ".join(word for word in words if word != _PROBE_WORD)
        info = await self._client.get_info()
        write_text(self._err, format_models(models, (info.model, info.pool), self._columns, filter_words))
        if not probe:
            write_line(self._err, "/model NAME switches; /models look also asks the servers on this machine.")

    async def run_context(self, rest: str) -> None:
        write_text(self._err, format_context(await self._client.report_context()))

    async def run_usage(self, rest: str) -> None:
        write_text(self._err, format_usage(await self._client.snapshot(), await self._client.get_info(), self._columns))

    async def run_budget(self, rest: str) -> None:
        await self.run_usage("")

    async def run_stats(self, rest: str) -> None:
        request = parse_stats(rest)
        session = await self._context.get_session_id() if request.scope == "session" else ""
        report = await self._sessions.report_usage(VIEW_GROUPINGS[request.view], days=request.days, session=session)
        write_line(self._err, f"{request.scope}, {request.view}, {report.period}")
        write_text(self._err, format_stats(report, request.view, self._columns))

    # --- permissions and diagnostics ---

    async def run_rules(self, rest: str) -> None:
        if rest:
            await self._run_action(ACTIONS["rules"], rest)
        else:
            write_text(self._err, format_rules(await self._client.list_rules()))

    async def run_add_dir(self, rest: str) -> None:
        write_text(self._err, f"{format_roots(await self._client.get_info())}\n")

    async def run_status(self, rest: str) -> None:
        painter = TextPainter(self._err)
        for label, value in await gather_status(self._client):
            write_text(self._err, f"{painter.paint(f'{label:<11} ', 'dim')}{value}\n")

    async def run_diff(self, rest: str) -> None:
        files = await self._sessions.list_changes(parse_paths(rest))
        write_text(self._err, format_changes(files, TextPainter(self._err)))

    async def run_diagnostics(self, rest: str) -> None:
        views.print_diagnostics(await self._client.get_info(), self.error_log.count, self._err)

    async def run_errors(self, rest: str) -> None:
        views.print_errors(self.error_log, self._err)
