"""Invariants of the app, checked after every step and whenever it is idle."""

import time
from pathlib import Path
from typing import Any

from textual.screen import Screen

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope
from odin.core.op import Answer, Interrupt, Op, Prompt, RunUserShell
from odin.core.slash_commands import find_slash_command
from odin.session.log import read_log
from odin.ui.transcript.blocks import NoticeBlock
from odin.ui.transcript.model import TranscriptModels
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.dialogs.interaction import InteractionDialog
from odin.ui.tui.paint.painter import RenderCache, is_joined
from tests.tui.conftest import Stage
from tests.tui.random_input import RandomInput
from tests.tui.remote_sessions import RemoteSessions
from tests.tui.transcript_comparison import find_differences, make_transcripts

TURN_TIMEOUT_S = 90
STOP_ACTIONS = ("escape", "ctrl+c", "click", "/")


class InvariantChecker:
    """Checks the app after each action. It is also a session observer, to know which events the app has seen."""

    def __init__(self, stage: Stage, random_input: RandomInput, remote: RemoteSessions) -> None:
        self.stage = stage
        self.app: Any = stage.app
        self.random_input = random_input
        self.remote = remote
        self.violations: list[str] = []
        self.opened_at: dict[Screen[Any], int] = {}
        self.sent: list[PromptDraft] = []
        self.returned: list[PromptDraft] = []
        self.exits: list[int] = []
        self.seq = -1
        remote.on_op = self._check_op
        self.app.observers.append(self)
        self._wrap_app_methods()

    def _wrap_app_methods(self) -> None:
        push, put, back = self.app.push_screen, self.app.input_panel.submit_queue.put, self.app.composer.restore_draft

        def push_and_record(screen: Any, *args: Any, **more: Any) -> Any:
            self.opened_at[screen] = len(self.random_input.actions)
            return push(screen, *args, **more)

        def put_and_record(draft: PromptDraft, *args: Any) -> None:
            self.sent.append(draft)
            put(draft, *args)

        def restore_and_record(draft: PromptDraft) -> None:
            self.returned.append(draft)
            back(draft)

        self.app.push_screen, self.app.input_panel.submit_queue.put, self.app.composer.restore_draft = (
            push_and_record,
            put_and_record,
            restore_and_record,
        )
        self.app.exit = self._exit

    def _exit(self, code: int = 0) -> None:
        """Record the exit instead of leaving, which would end the test."""
        self.exits.append(len(self.random_input.actions))

    # --- as a session observer ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self.seq = -1

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        self.seq = max(self.seq, envelope.seq)

    def draw_frame(self) -> None:
        return None

    # --- ops sent to the session ---

    def _check_op(self, op: Op) -> None:
        """Record a violation if the user did not cause this op."""
        done = self.random_input.actions
        if isinstance(op, Answer):
            dialogs = [
                one for one in self.app.screen_stack if isinstance(one, InteractionDialog) and one.ask_id == op.id
            ]
            if not dialogs or not dialogs[0].ready or self.opened_at[dialogs[0]] >= len(done):
                self.violations.append(f"answered without input of the user: {op}")
        elif isinstance(op, Interrupt) and not any(any(key in one for key in STOP_ACTIONS) for one in done[-8:]):
            self.violations.append(f"interrupted without input of the user: {done[-8:]}")
        elif isinstance(op, Prompt) and op.delivery != "merge":
            sent_texts = [draft.expand() for draft in self.sent]
            if not any(op.text in text for text in sent_texts):
                self.violations.append(f"a prompt that the user did not send: {op}")

    # --- after every step ---

    async def check_step(self) -> None:
        app = self.app
        assert app._exception is None, repr(app._exception)
        assert app.failure is None
        assert app.is_running
        assert not app.follower.task.done(), f"the app no longer follows the session: {app.follower.task}"
        assert self.violations == []
        focused = app.focused
        assert len(app.screen_stack) > 1 or (focused is not None and focused.is_attached), "no widget has the focus"
        view = app.transcript
        assert 0 <= view.scroll_y <= max(view.max_scroll_y, 0), (view.scroll_y, view.max_scroll_y)
        assert len(view.block_layout.heights) == len(view.blocks) == len(view.block_layout.index)
        self._check_typed_words()
        for at in self.exits:
            keys = self.random_input.actions[max(at - 3, 0) : at]
            assert any(any(key in one.split() for key in ("ctrl+c", "ctrl+d", "q")) for one in keys), keys

    def _check_typed_words(self) -> None:
        composer = self.app.composer
        drafts = [composer.draft, composer._stashed_draft, composer._saved_draft, *composer.prompt_history._past]
        drafts += composer.prompt_history._edited.values()
        texts = [draft.expand() for draft in drafts]
        lost = [word for word in self.random_input.typed_words if not any(word in text for text in texts)]
        assert lost == [], f"{lost} were typed and are lost: {texts[:8]}"

    # --- when the app is idle ---

    async def settle_and_check(self) -> None:
        """Bring the app to rest as a user would (answer requests, close dialogs, stop endless turns) and check it."""
        began = time.monotonic()
        quiet = 0
        while quiet < 3:
            spent = time.monotonic() - began
            assert spent < TURN_TIMEOUT_S, (
                f"the app did not become idle: {self.app.screen_stack} {await self.remote.local.client.snapshot()}"
            )
            if await self._settle_once(stop=spent > 4):
                quiet += 1
            else:
                quiet = 0
            await self.stage.pilot.pause(0.1)
            await self.check_step()
        await self._check_settled_app()

    async def _settle_once(self, stop: bool) -> bool:
        app = self.app
        top = app.screen
        if isinstance(top, InteractionDialog):
            keys = ("escape", "n", "y", "enter") if top.ready else ("tab",)  # a draft has the keys until then
            await self.random_input.press(self.random_input.random.choice(keys))
            return False
        if len(app.screen_stack) > 1:
            await self.random_input.press("escape")
            return False
        if stop and app.executing:
            await self.random_input.press("escape")
            await self.stage.pilot.pause(0.3)
            return False
        shot = await self.remote.local.client.snapshot()
        if shot.executing or app.executing or app.is_catching_up or shot.seq != self.seq:
            return False
        return app.input_panel.submit_queue._drafts.empty() and app.input_panel.submit_queue._open.is_set()

    async def _check_settled_app(self) -> None:
        client = self.remote.local.client
        shot, info = await client.snapshot(), await client.get_info()
        assert self.app.info.session == info.session, "the app shows another session than the open one"
        self._check_sent_prompts()
        if shot.seq >= 0:
            self._check_transcript(info.session)
        self._check_painting()

    def _check_sent_prompts(self) -> None:
        """Assert that every sent prompt reached the session or returned to the composer."""
        asked = [op.text for op in self.remote.ops if isinstance(op, Prompt)]
        asked += [op.command for op in self.remote.ops if isinstance(op, RunUserShell)]
        for draft in self.sent:
            text = draft.expand()
            is_command = text.startswith("/") and find_slash_command(text.split()[0]) is not None
            submitted_text = text[1:].strip() if text.startswith("!") else text
            assert is_command or submitted_text in asked or draft in self.returned, (
                f"{text!r} was sent, but neither submitted nor returned"
            )

    def _check_transcript(self, session: str) -> None:
        """Assert that the live transcript equals the one read from the log."""
        folder = Path.home() / ".local" / "state" / "odin" / "sessions"
        log = make_transcripts(read_log(next(folder.glob(f"*/{session}/main.jsonl"))))
        live = TranscriptModels()
        live.update(self.app.transcripts)
        kept = {agent: transcript.blocks for agent, transcript in live.items()}
        try:
            for transcript in live.values():
                notices = {id(block) for block in transcript.blocks if _may_be_live_only(block)}
                transcript.blocks = [block for block in transcript.blocks if id(block) not in notices]
            for transcript in log.values():
                transcript.blocks = [block for block in transcript.blocks if not _may_be_live_only(block)]
            assert find_differences(live, log)[:3] == []
        finally:
            for agent, blocks in kept.items():
                live[agent].blocks = blocks

    def _check_painting(self) -> None:
        """Assert that the screen equals a fresh painting of the transcript."""
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
            painted = [strip.text for strip in view.block_layout.get_lines(block)]
            gap = is_joined(block, view.blocks[index - 1] if index else None)
            assert painted == [strip.text for strip in fresh.get_lines(block, now)][gap:], block
            assert view.block_layout.heights[index] == len(painted), (
                block,
                view.block_layout.heights[index],
                len(painted),
            )
        assert view.virtual_size.height == view.block_layout.heights.total
        assert not view.following or view.scroll_offset.y == view.max_scroll_y

    async def check_last_prompt(self) -> None:
        """Assert that a last prompt is accepted and completes."""
        app = self.app
        await self.stage.pilot.resize_terminal(100, 30)
        for _ in range(4):
            if app.focused is app.composer and not app.composer.text:
                break
            await self.random_input.press("escape" if app.focused is not app.composer else "ctrl+c")
            if app.focused is app.transcript:
                await self.random_input.press("i")
        assert app.focused is app.composer
        await self.stage.send("the last words")
        asked = self.remote.ops
        await self.stage.until(lambda: any(isinstance(op, Prompt) and op.text == "the last words" for op in asked))
        await self.settle_and_check()


def _may_be_live_only(block: object) -> bool:
    """Return True for notices: they may show warnings, which the log does not store."""
    return isinstance(block, NoticeBlock)
