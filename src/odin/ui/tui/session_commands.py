"""Slash commands of the app that switch, fork or rewind the session, or act on the running turn."""

from collections.abc import Awaitable, Callable, Sequence

from odin.core.call_events import PlanAnswered, PlanAsked
from odin.core.client import Client, SessionInfo
from odin.core.errors import SessionNotFound
from odin.core.event import Envelope, ModeChanged, PermissionModeChanged, Redone, Rewound, TurnEnded
from odin.core.event_values import Mode
from odin.core.format import pluralize
from odin.core.message import Attachment
from odin.core.op import Redo, Rewind
from odin.core.slash_commands import make_usage_error
from odin.ui.plan_text import format_execution, parse_execution
from odin.ui.session_follower import SessionObserver
from odin.ui.slash_commands.actions import (
    ACTIONS,
    CommandContext,
    delete_session,
    describe_entered_mode,
    find_fork_turn,
)
from odin.ui.slash_commands.agents import MAIN, find_focus
from odin.ui.slash_commands.extensions import make_skill_prompt
from odin.ui.slash_commands.sessions import (
    describe_loop_status,
    describe_rewind,
    parse_force,
    parse_rewind,
    strip_all_option,
)
from odin.ui.terminal import escape_hidden
from odin.ui.tui.agent_focus import AgentFocus
from odin.ui.tui.composer.draft import make_draft
from odin.ui.tui.composer.input_panel import InputPanel
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.transcript import TranscriptView


class SharedActions(SessionObserver):
    """Runs the slash commands that all front ends share.

    As a session observer, says that a session has another permission mode than the one before.
    """

    def __init__(self, app: SessionApp) -> None:
        self._app = app
        self._permission_mode = ""

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        if message := describe_entered_mode(self._permission_mode, info.permission_mode):
            self._app.show_toast(message)
        self._permission_mode = info.permission_mode

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """Record the permission mode. Changes made in an earlier run no longer apply."""
        event = envelope.event
        if live and isinstance(event, PermissionModeChanged) and not envelope.agent:
            self._permission_mode = event.mode

    @property
    def context(self) -> CommandContext:
        return CommandContext(self._app.sessions.client, self._app.mode, self._app.sessions)

    async def run(self, name: str, rest: str) -> None:
        """Run an action and show its message as a toast."""
        if message := await ACTIONS[name](self.context, rest):
            self._app.show_toast(message)


class NavigationCommands(SessionObserver):
    """Commands that open, fork and rewind sessions.

    As a session observer, reports the files a rewind changed, and carries out what the user decided about a plan.
    """

    def __init__(
        self, app: SessionApp, actions: SharedActions, agent_focus: AgentFocus, input_panel: InputPanel
    ) -> None:
        self._app = app
        self._actions = actions
        self._agent_focus = agent_focus
        self._composer = input_panel.composer
        self._submit_queue = input_panel.submit_queue
        self._presented = ""
        self._execution = ""

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._presented = self._execution = ""

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if live and isinstance(event, Rewound | Redone):
            cwd = self._app.info.cwd if self._app.info else "."
            self._app.show_toast(describe_rewind(event, cwd).rstrip(), "warn" if event.skipped_files else "info")
        elif live and not envelope.agent:
            # Follow the decision about a plan: the new mode here, or a new session once the turn has ended.
            match event:
                case ModeChanged(mode=mode):
                    self._app.mode = mode
                case PlanAsked(path=path):
                    self._presented = path
                case PlanAnswered(ask, decision="approve_new_session", role=role) if ask in self._app.own_answers:
                    self._execution = format_execution(self._presented, role)
                case TurnEnded() if self._execution:
                    rest, self._execution = self._execution, ""
                    self._app.run_in_background(self.run_execute(rest))
                case _:
                    pass

    async def _may_switch(self) -> bool:
        return await self._agent_focus.may_leave("Switch to another session anyway?", "Switching")

    async def run_new(self, rest: str) -> None:
        if not await self._may_switch():
            return
        async with self._submit_queue.pause():
            await self._app.sessions.open_new()
            await self._app.show_session()

    async def run_execute(self, rest: str) -> None:
        plan, role = parse_execution(rest)
        if not await self._may_switch():
            return
        async with self._submit_queue.pause():
            client, prompt = await self._app.sessions.execute_plan(plan, role)
            await self._app.show_session()
            self._app.mode = prompt.mode
            await client.submit(prompt)

    async def run_resume(self, rest: str) -> None:
        if session := strip_all_option(rest):
            await self.resume_session(session)
        else:
            self.choose_session(rest)

    async def resume_session(self, session: str) -> None:
        """Open this session. If that fails, the current one stays open."""
        if not await self._may_switch():
            return
        async with self._submit_queue.pause():
            await self._app.sessions.resume(session)
            await self._app.show_session()
        shot = await self._app.client.snapshot()
        count = pluralize(len(shot.prompts), "prompt")
        self._app.show_toast(f"Resumed {escape_hidden(shot.title or 'a session without a title')}, {count}.")

    def choose_session(self, words: str = "") -> None:
        from odin.ui.tui.dialogs.sessions import SessionPicker

        self._app.push_screen(SessionPicker(words), self._open_choice)

    def _open_choice(self, answer: str | None) -> None:
        verb, _, session = (answer or "").rpartition(" ")
        if verb:
            self.ask_fork(session=session)
        elif session and (self._app.info is None or session != self._app.info.session):
            self._app.run_in_background(self.resume_session(session))

    async def run_fork(self, rest: str) -> None:
        await self.fork(await find_fork_turn(self._app.client, rest))

    def ask_fork(self, turn: str = "", session: str = "") -> None:
        """Ask before forking, because a single key must not replace the conversation on the screen."""
        from odin.ui.tui.dialogs.form import FormDialog, FormResult

        def answered(yes: FormResult | None) -> None:
            if yes is not None:
                self._app.run_in_background(self.fork(turn, session))

        question = "Edit this prompt in a copy of the session?" if turn else "Continue in a copy of this session?"
        about = "The prompt is put into the composer. " if turn else ""
        self._app.push_screen(FormDialog(question, f"{about}The original session stays as it is."), answered)

    async def fork(self, turn: str = "", session: str = "") -> None:
        """Switch to a copy of this session, or of another one, and put the prompt at `turn` into the composer.

        If the other session cannot be forked, open it instead.
        """
        if not await self._may_switch():
            return
        async with self._submit_queue.pause():
            here = self._app.client
            attached = next((one.attachments for one in (await here.snapshot()).messages if one.id == turn), ())
            try:
                if session and session != (await here.get_info()).session:
                    await self._app.sessions.resume(session)
                _, left = await self._app.sessions.fork(turn)
            finally:
                if self._app.client is not here:
                    await self._app.show_session()
        self.edit_prompt(left, attached)
        self._app.show_toast("Continuing in a copy. The original session is unchanged.")

    def edit_prompt(self, text: str, attached: Sequence[Attachment]) -> None:
        """Put a prompt with its images into the composer, selected, so that what is typed next replaces it."""
        if text:
            self._composer.offer_draft(make_draft(text, attached))
        self._composer.focus()

    def edit_command(self, text: str) -> None:
        """Put a command into the composer, so that arguments can be typed after it."""
        self._composer.restore_draft(make_draft(text, ()))
        self._composer.focus()

    async def run_sessions(self, rest: str) -> None:
        self.choose_session(rest)

    async def run_delete(self, rest: str) -> None:
        """Delete the session with this ID; any other argument opens the list, filtered by it."""
        if message := await delete_session(self._actions.context, rest):
            self._app.show_toast(message)
        else:
            self.choose_session(rest)

    def show_contents(self) -> None:
        from odin.ui.tui.dialogs.sessions import ContentsDialog

        def chosen(turn: str | None) -> None:
            if turn:
                self.ask_fork(turn)

        self._app.push_screen(ContentsDialog(self._app.query_one(TranscriptView).blocks), chosen)

    def choose_rewind(self) -> None:
        from odin.ui.tui.dialogs.sessions import RewindPicker

        self._app.push_screen(RewindPicker(), self._choose_rewind_scope)

    def _choose_rewind_scope(self, turn: str | None) -> None:
        if turn == "redo":
            self._app.run_in_background(self._app.client.submit(Redo()))
        elif turn:
            from odin.ui.tui.dialogs.sessions import RewindScopePicker, make_rewind

            def chosen(choice: str | None) -> None:
                if choice:
                    self._app.run_in_background(self.rewind(make_rewind(turn, choice)))

            self._app.push_screen(RewindScopePicker(turn), chosen)

    async def rewind(self, op: Rewind) -> None:
        turns = (await self._app.client.snapshot()).prompts
        turn = next((turn for turn in turns if turn.id == op.turn), None)
        if turn is None:
            raise SessionNotFound("This prompt is no longer in the conversation.")
        if await self._app.client.submit(op) and op.chat:
            self.edit_prompt(turn.body, turn.attachments)


class TurnCommands:
    def __init__(
        self, app: SessionApp, actions: SharedActions, navigation: NavigationCommands, agent_focus: AgentFocus
    ) -> None:
        self._app = app
        self._actions = actions
        self._agent_focus = agent_focus
        self._navigation = navigation

    def build_prompt_table(self) -> dict[str, Callable[[str, Sequence[Attachment]], Awaitable[None]]]:
        """Return the commands whose argument is a prompt for the model."""
        return {
            "ask": lambda rest, attached: self._send_in_mode("ask_mode", rest, attached),
            "plan": lambda rest, attached: self._send_in_mode("plan_mode", rest, attached),
            "edit": lambda rest, attached: self._send_in_mode("edit_mode", rest, attached),
            "steer": self._steer,
            "use": self._use_skill,
        }

    async def _use_skill(self, rest: str, attached: Sequence[Attachment]) -> None:
        await self._app.send_prompt(await make_skill_prompt(self._app.client, rest), attached=attached)

    async def _send_in_mode(self, mode: Mode, rest: str, attached: Sequence[Attachment]) -> None:
        self._app.mode = mode
        self._app.is_mode_chosen = True
        if rest or attached:
            await self._app.send_prompt(rest, attached=attached)

    async def run_queue(self, rest: str) -> None:
        await self._app.run_action("queue")

    async def run_focus(self, rest: str) -> None:
        self._agent_focus.show(await find_focus(self._app.client, rest))

    async def _steer(self, rest: str, attached: Sequence[Attachment]) -> None:
        if not rest and not attached:
            raise make_usage_error("steer", "/steer needs a message.")
        await self._app.send_prompt(rest, "steer", attached)

    async def run_loop(self, rest: str) -> None:
        await self._actions.run("loop", rest)
        if rest.rpartition(" ")[2] == "off":
            name = rest.partition(" ")[0].removeprefix("@") if rest.startswith("@") else MAIN
            agent = await find_focus(self._app.client, name)
            self._app.show_toast(describe_loop_status(await self._app.client.get_loop_status(agent)))

    async def run_rewind(self, rest: str) -> None:
        if rest:
            await self._rewind_to(rest, "rewind")
        else:
            self._navigation.choose_rewind()

    async def run_undo(self, rest: str) -> None:
        await self._rewind_to(rest, "undo")

    async def _rewind_to(self, rest: str, command: str) -> None:
        turns = (await self._app.client.snapshot()).prompts
        await self._navigation.rewind(parse_rewind(rest.split(), turns, command))

    async def run_redo(self, rest: str) -> None:
        await self._app.client.submit(Redo(force=parse_force(rest.split())))
