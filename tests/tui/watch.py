"""Invariants of the app, checked after every step and whenever it is idle."""

import time
from pathlib import Path
from typing import Any

from textual.screen import Screen

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope
from odin.core.op import AnswerPermission, AnswerPlan, AnswerQuestions, Interrupt, Op, Prompt, RunUserShell
from odin.core.slash_commands import find_slash_command
from odin.session.log import read_log
from odin.ui.tui.blocks import NoticeBlock
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.dialogs.permission import PermissionDialog
from odin.ui.tui.dialogs.plan import PlanDialog
from odin.ui.tui.dialogs.questions import QuestionsDialog
from odin.ui.tui.paint.painter import RenderCache, is_joined
from odin.ui.tui.transcript_model import TranscriptModels
from tests.tui.conftest import Stage
from tests.tui.hands import Hands
from tests.tui.stories import differences, stories_of
from tests.tui.wire import FarSessions

PATIENCE_S = 90
STOPPING = ("escape", "ctrl+c", "click", "/")


class Watch:
    """Also a session observer, to know which events the app has seen."""

    def __init__(self, stage: Stage, hands: Hands, far: FarSessions) -> None:
        self.stage = stage
        self.app: Any = stage.app
        self.hands = hands
        self.far = far
        self.wrong: list[str] = []
        self.opened: dict[Screen[Any], int] = {}
        self.sent: list[PromptDraft] = []
        self.given_back: list[PromptDraft] = []
        self.exits: list[int] = []
        self.seq = -1
        far.heard = self._heard
        self.app.observers.append(self)
        self._spy()

    def _spy(self) -> None:
        push, put, back = self.app.push_screen, self.app.input_panel.submit_queue.put, self.app.composer.restore_draft

        def pushed(screen: Any, *args: Any, **more: Any) -> Any:
            self.opened[screen] = len(self.hands.done)
            return push(screen, *args, **more)

        def sent(draft: PromptDraft, *args: Any) -> None:
            self.sent.append(draft)
            put(draft, *args)

        def returned(draft: PromptDraft) -> None:
            self.given_back.append(draft)
            back(draft)

        self.app.push_screen, self.app.input_panel.submit_queue.put, self.app.composer.restore_draft = (
            pushed,
            sent,
            returned,
        )
        self.app.exit = self._exit

    def _exit(self, code: int = 0) -> None:
        """Record the exit instead of leaving, which would end the test."""
        self.exits.append(len(self.hands.done))

    # --- as a watcher ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self.seq = -1

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        self.seq = max(self.seq, envelope.seq)

    def draw_frame(self) -> None:
        return None

    # --- what is asked of the session ---

    def _heard(self, op: Op) -> None:
        """Every op sent to the session was caused by the user."""
        done = self.hands.done
        if isinstance(op, AnswerPermission | AnswerQuestions | AnswerPlan):
            kinds = {AnswerPermission: PermissionDialog, AnswerQuestions: QuestionsDialog, AnswerPlan: PlanDialog}
            kind = kinds[type(op)]
            dialogs = [one for one in self.app.screen_stack if isinstance(one, kind) and one.ask_id == op.ask_id]
            if not dialogs or not dialogs[0].ready or self.opened[dialogs[0]] >= len(done):
                self.wrong.append(f"answered by nobody: {op}")
        elif isinstance(op, Interrupt) and not any(any(key in one for key in STOPPING) for one in done[-8:]):
            self.wrong.append(f"interrupted by nobody: {done[-8:]}")
        elif isinstance(op, Prompt) and op.delivery != "merge":
            said = [draft.expand() for draft in self.sent]
            if not any(op.text in text for text in said):
                self.wrong.append(f"a prompt of nobody: {op}")

    # --- after every step ---

    async def after_step(self) -> None:
        app = self.app
        assert app._exception is None, repr(app._exception)
        assert app.failure is None
        assert app.is_running
        assert not app.follower.task.done(), f"nobody follows the session: {app.follower.task}"
        assert self.wrong == []
        focused = app.focused
        assert len(app.screen_stack) > 1 or (focused is not None and focused.is_attached), "the keys go nowhere"
        view = app.transcript
        assert 0 <= view.scroll_y <= max(view.max_scroll_y, 0), (view.scroll_y, view.max_scroll_y)
        assert len(view.block_layout.heights) == len(view.blocks) == len(view.block_layout.index)
        self._nothing_lost()
        for at in self.exits:
            keys = self.hands.done[max(at - 3, 0) : at]
            assert any(any(key in one.split() for key in ("ctrl+c", "ctrl+d", "q")) for one in keys), keys

    def _nothing_lost(self) -> None:
        composer = self.app.composer
        drafts = [composer.draft, composer._stashed_draft, composer._saved_draft, *composer.prompt_history._past]
        drafts += composer.prompt_history._edited.values()
        texts = [draft.expand() for draft in drafts]
        lost = [word for word in self.hands.typed if not any(word in text for text in texts)]
        assert lost == [], f"{lost} are nowhere: {texts[:8]}"

    # --- when all is quiet ---

    async def at_rest(self) -> None:
        """Bring the app to rest as a user would: answer questions, close dialogs, stop endless turns."""
        began = time.monotonic()
        quiet = 0
        while quiet < 3:
            spent = time.monotonic() - began
            assert spent < PATIENCE_S, f"no rest: {self.app.screen_stack} {await self.far.near.client.snapshot()}"
            if await self._calm(stop=spent > 4):
                quiet += 1
            else:
                quiet = 0
            await self.stage.pilot.pause(0.1)
            await self.after_step()
        await self._look_closely()

    async def _calm(self, stop: bool) -> bool:
        app = self.app
        top = app.screen
        if isinstance(top, PermissionDialog | QuestionsDialog | PlanDialog):
            if top.ready:
                await self.hands.press(self.hands.random.choice(("escape", "n", "y", "enter")))
            return False
        if len(app.screen_stack) > 1:
            await self.hands.press("escape")
            return False
        if stop and app.executing:
            await self.hands.press("escape")
            await self.stage.pilot.pause(0.3)
            return False
        shot = await self.far.near.client.snapshot()
        if shot.executing or app.executing or app.is_catching_up or shot.seq != self.seq:
            return False
        return app.input_panel.submit_queue._drafts.empty() and app.input_panel.submit_queue._open.is_set()

    async def _look_closely(self) -> None:
        client = self.far.near.client
        shot, info = await client.snapshot(), await client.get_info()
        assert self.app.info.session == info.session, "another session is shown than is open"
        self._arrived()
        if shot.seq >= 0:
            self._same_story(info.session)
        self._same_paint()

    def _arrived(self) -> None:
        """Every sent prompt reached the session or returned to the composer."""
        asked = [op.text for op in self.far.ops if isinstance(op, Prompt)]
        asked += [op.command for op in self.far.ops if isinstance(op, RunUserShell)]
        for draft in self.sent:
            text = draft.expand()
            own = text.startswith("/") and find_slash_command(text.split()[0]) is not None
            ran = text[1:].strip() if text.startswith("!") else text
            assert own or ran in asked or draft in self.given_back, f"{text!r} was sent and came nowhere"

    def _same_story(self, session: str) -> None:
        """The live transcript equals the one read from the log."""
        folder = Path.home() / ".local" / "state" / "odin" / "sessions"
        log = stories_of(read_log(next(folder.glob(f"*/{session}/main.jsonl"))))
        live = TranscriptModels()
        live.update(self.app.transcripts)
        kept = {agent: story.blocks for agent, story in live.items()}
        try:
            for story in live.values():
                notices = {id(block) for block in story.blocks if _only_live(block)}
                story._block_list.blocks = [block for block in story.blocks if id(block) not in notices]
            for story in log.values():
                story._block_list.blocks = [block for block in story.blocks if not _only_live(block)]
            assert differences(live, log)[:3] == []
        finally:
            for agent, blocks in kept.items():
                live[agent]._block_list.blocks = blocks

    def _same_paint(self) -> None:
        """The screen equals a fresh painting of the transcript."""
        view = self.app.transcript
        view.sync()
        assert [id(block) for block in view.blocks] == [id(block) for block in view.model.blocks]
        if not view.render_cache.width:
            return
        fresh = RenderCache(view.palette, view.render_cache._diff)
        fresh.width, fresh.cwd, fresh.home, fresh.thumbnails = (
            view.render_cache.width,
            view.render_cache.cwd,
            view.render_cache.home,
            view.render_cache.thumbnails,
        )
        now = view.block_layout._clock()
        for index in view.block_layout.heights.find_range(view.scroll_offset.y, view.size.height):
            block = view.blocks[index]
            if block.is_animated:
                continue
            painted = [strip.text for strip in view.block_layout.lines_of(block)]
            gap = is_joined(block, view.blocks[index - 1] if index else None)
            assert painted == [strip.text for strip in fresh.lines_of(block, now)][gap:], block
            assert view.block_layout.heights[index] == len(painted), (
                block,
                view.block_layout.heights[index],
                len(painted),
            )
        assert view.virtual_size.height == view.block_layout.heights.total
        assert not view.following or view.scroll_offset.y == view.max_scroll_y

    async def one_more_prompt(self) -> None:
        """A last prompt is accepted and completes."""
        app = self.app
        await self.stage.pilot.resize_terminal(100, 30)
        for _ in range(4):
            if app.focused is app.composer and not app.composer.text:
                break
            await self.hands.press("escape" if app.focused is not app.composer else "ctrl+c")
            if app.focused is app.transcript:
                await self.hands.press("i")
        assert app.focused is app.composer
        await self.stage.send("the last words")
        asked = self.far.ops
        await self.stage.until(lambda: any(isinstance(op, Prompt) and op.text == "the last words" for op in asked))
        await self.at_rest()


def _only_live(block: object) -> bool:
    """Notices may show warnings, which the log does not store."""
    return isinstance(block, NoticeBlock)
