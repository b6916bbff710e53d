"""What is settled with a person before the session is opened: whether the folder is trusted, and which model to use."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odin.core.errors import OdinError
from odin.core.op import SetModel
from odin.core.setup import Setup
from odin.core.trust import TrustGate

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

LoadTrust = Callable[[], TrustGate | None]
"""Looks whether the folder asks to be trusted; None when there is nothing to ask. It reads files."""

LoadSetup = Callable[[], Setup]
"""Looks whether this is a first run; reads files, too."""


class Startup:
    """Both are asked only when there is something to ask, and nothing of the project is used before the answer."""

    def __init__(self, app: "OdinApp", trust: LoadTrust | None, setup: LoadSetup | None) -> None:
        self._app = app
        self._load_trust = trust
        self._load_setup = setup
        self._setup: Setup | None = None

    async def run_dialogs(self) -> None:
        """Called once, in a worker, before the session is opened."""
        if self._load_trust is not None:
            trust = await asyncio.to_thread(self._load_trust)
            if trust is not None:
                await self._ask_trust(trust)
        if self._load_setup is not None:
            self._setup = await asyncio.to_thread(self._load_setup)
            if not self._setup.is_done:
                await self.show_onboarding()

    async def _ask_trust(self, trust: TrustGate) -> None:
        from odin.ui.tui.dialogs.trust import TrustDialog

        if not await self._app.push_screen_wait(TrustDialog(trust.request)):
            self._app.show_toast("Not trusted: going on without the settings of this folder.")
            return
        try:
            await trust.grant()
            self._app.show_toast("Trusted until its content changes. `odin trust remove` takes it back.")
        except OdinError as error:
            self._app.show_toast(error.describe(), "error")

    async def show_onboarding(self) -> None:
        """Show what there is, also to somebody who was here before. The open session takes the model at once."""
        from odin.ui.tui.dialogs.welcome import OnboardingDialog

        if self._setup is None:
            self._app.show_toast("Nothing can be set up from here: use `odin auth` where Odin runs.")
            return
        open_already = self._app.info is not None
        chosen = await self._app.push_screen_wait(OnboardingDialog(self._setup, again=open_already))
        if open_already:
            if chosen is not None and await self._app.submit(SetModel(chosen.ref)):
                self._app.show_toast(f"Using {chosen.ref}. /setup and /model change it.")
        elif chosen is None or chosen.kind == "planner":
            await self._setup.use_offline_planner()
            self._app.show_toast("The offline planner answers for now. /setup and /model choose a model.")
        else:
            self._app.show_toast(f"Using {chosen.ref}. /setup and /model change it.")
