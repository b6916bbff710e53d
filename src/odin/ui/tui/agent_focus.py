"""Which agent the app shows and talks to: the main agent, or a sub-agent that the user has focused.

Prompts, `!` commands, Esc and Ctrl+C go to the focused agent; slash commands always belong to the main agent. An ended
agent can still be read, but prompts then go to the main agent.
"""

import asyncio

from odin.core.client import Client, SessionInfo
from odin.core.event import AgentEnded, AgentStarted, Envelope
from odin.core.op import CancelCompaction, Interrupt
from odin.ui.agent_activity import AgentList
from odin.ui.clean_text import sanitize_line
from odin.ui.session_follower import SessionObserver
from odin.ui.terminal import escape_hidden
from odin.ui.transcript.model import TranscriptModel
from odin.ui.transcript.words import is_folded
from odin.ui.tui.composer.input_panel import InputPanel
from odin.ui.tui.lifecycle import DoublePress
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.transcript import AgentTitle, TranscriptView


class AgentFocus(SessionObserver):
    def __init__(self, app: SessionApp, input_panel: InputPanel) -> None:
        self._app = app
        self._input_panel = input_panel
        self._stop_press = DoublePress(app.timing.double_press_s, app.timing.clock)

    @property
    def is_busy(self) -> bool:
        shown = self._app.agent
        return self._agents.get_activity(shown).is_in_turn if shown else self._app.executing

    @property
    def _agents(self) -> AgentList:
        return self._app.facts.agents

    # --- as a session observer ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._app.agent = ""
        self._app.query_one(TranscriptView).show(self._app.transcripts[""], cwd=info.cwd)
        self._input_panel.set_recipient("")

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """Return to the main agent when the focused agent ends; follow its task if a new agent continues it.

        An agent that was opened after it ended stays shown.
        """
        event, recipient = envelope.event, self._input_panel.composer.target.recipient
        if isinstance(event, AgentEnded) and event.id == self._app.agent:
            status = self._agents.all.get(event.id)
            outcome = status.outcome if status is not None else "ended"
            self.show("")
            self._app.show_toast(f"{escape_hidden(event.id)}: {outcome}. You are back at the main agent.")
        elif isinstance(event, AgentStarted) and event.continues and event.continues == recipient:
            self._app.transcripts.setdefault(event.id, TranscriptModel())
            self.show(event.id)

    # --- what is shown ---

    def show(self, agent: str) -> None:
        """Show the transcript of this agent, if there is one; prompts go to it if it is live."""
        app = self._app
        if agent not in app.transcripts:
            return
        app.agent = agent
        app.query_one(TranscriptView).show(app.transcripts[agent], title=self._make_title(agent))
        status = self._agents.all.get(app.recipient)
        self._input_panel.set_recipient(app.recipient, status.color if status is not None else "")
        app.request_frame()

    def show_next(self) -> None:
        """Show the next live agent, in a cycle that includes the main agent."""
        shown = self._app.agent
        agents = self._agents
        names = ["", *(name for name in agents.all if agents.is_open(name) and name in self._app.transcripts)]
        if names == [""] and not shown:
            self._app.show_toast("No sub-agent is running.")
            return
        self.show(names[(names.index(shown) + 1) % len(names)] if shown in names else "")

    def show_change(self, call_id: str) -> None:
        """Show the unfolded card of the tool call that changed a file, in the transcript of its agent."""
        app, transcript = self._app, self._app.query_one(TranscriptView)
        for agent, model in app.transcripts.items():
            block = next((block for block in reversed(model.blocks) if block.key == call_id), None)
            if block is not None:
                if agent != app.agent:
                    self.show(agent)
                transcript.point_at(block)
                if is_folded(block):
                    transcript.toggle(block)
                return
        app.show_toast("The change to this file has no card here: a command made it, or it was rewound.")

    def _make_title(self, agent: str) -> AgentTitle | None:
        if not agent:
            return None
        app, status = self._app, self._agents.all.get(agent)
        blocks = app.transcripts[""].agents
        task = next((block.description or block.task for block in blocks if block.key == agent), "")
        key = app.keys.get_label("next_agent")
        if self._agents.is_live(agent):
            hint = f"{key}: next agent"
        else:
            then = "; your next prompt continues it" if self._agents.is_open(agent) else ""
            hint = f"{status.outcome if status is not None else 'ended'}{then}; {key}: main agent"
        color = status.color if status is not None else ""
        return AgentTitle(sanitize_line(agent), color, f"{sanitize_line(task)}  ({hint})")

    # --- stopping and leaving ---

    async def stop(self) -> bool:
        """Interrupt the shown agent (Esc); leave a sub-agent that does nothing. False if there was nothing to stop.

        While only sub-agents work, stopping all of them takes two presses.
        """
        app = self._app
        if app.agent:
            if self.is_busy:
                await app.submit(Interrupt(agent=app.agent))
            else:
                self.show("")
            return True
        if app.executing:
            await app.submit(Interrupt())
            return True
        working = self._agents.describe_working()
        if await app.submit(Interrupt(alone=True)):
            return True
        if working and self._stop_press.press():
            await app.submit(Interrupt())
        elif working:
            stop, switch = app.keys.get_label("stop"), app.keys.get_label("next_agent")
            app.show_toast(f"{working}. Press {stop} again to stop them all; {switch} shows one.")
        return bool(working)

    async def interrupt(self) -> bool:
        """Interrupt the focused agent (Ctrl+C). Sub-agents are left alone while the main agent is idle.

        A command of the user (`!`) is stopped all the same.
        """
        if agent := self._app.recipient:
            return self._agents.is_live(agent) and await self._app.submit(Interrupt(agent=agent))
        interrupt = Interrupt(alone=not self._app.executing)
        return await self._app.submit(interrupt) or await self._app.submit(CancelCompaction())

    def exit_app(self) -> None:
        """Exit. While work goes on that would be lost, say what it is and ask first."""
        if self._agents.working or self._app.facts.processes:
            self._app.run_in_background(self._ask_to_exit())
        else:
            self._app.exit(0)

    async def _ask_to_exit(self) -> None:
        if await self.may_leave("Exit anyway?", "Exiting"):
            self._app.exit(0)

    async def may_leave(self, question: str, act: str) -> bool:
        """Return whether the session may be left, which stops its agents and processes.

        While agents work, or a command whose changes would be discarded, the user is asked.
        """
        from odin.ui.tui.dialogs.form import FormDialog, FormResult

        app, working = self._app, self._agents.working
        processes = await app.client.list_processes() if app.facts.processes else ()
        undecided = [one for one in processes if one.is_undecided and one.status == "running"]
        if not working and not undecided:
            return True
        now = app.clock()
        lines = [
            f"• {escape_hidden(agent.id)}: {sanitize_line(agent.task)} ({agent.activity.describe(now).text or 'waits'})"
            for agent in working[:_MAX_LISTED]
        ]
        more = [f"• {len(working) - _MAX_LISTED} more"] if len(working) > _MAX_LISTED else []
        if working:
            more.append(f"{act} stops them. Resume the session to continue their tasks.")
        for one in undecided:
            command = sanitize_line(one.command)
            more.append(f"• {one.id}: {command}. {act} stops it and discards what it has changed.")
        about = "\n".join([*lines, *more])
        answered: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def answer(yes: FormResult | None) -> None:
            if not answered.done():
                answered.set_result(yes is not None)

        app.push_screen(
            FormDialog(f"{'Agents are' if working else 'A command is'} still at work. {question}", about), answer
        )
        return await answered


_MAX_LISTED = 5
