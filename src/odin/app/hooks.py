"""The hooks of one session: those of the configuration, and callbacks of front ends and programs.

Nothing of them is loaded before there is one.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from odin.config.keys import Declared
from odin.core.errors import UsageError
from odin.core.event import AnyEvent
from odin.core.hook import SILENT, CallbackHook, HookCall, HookVerdict, Point
from odin.core.redaction import Redact
from odin.policy.process.runner import ProcessRunner

if TYPE_CHECKING:
    from odin.policy.hook.hooks import SessionHooks


class HookBook:
    """Listens from the first hook on. `warnings` say what is wrong with those of the configuration."""

    def __init__(
        self,
        said: Sequence[Declared],
        *,
        session: str,
        transcript: str,
        cwd: str,
        root: str,
        runner: ProcessRunner,
        emit: Callable[[AnyEvent, str], object],
        redact: Redact,
        swapped: Callable[[], Sequence[str]],
        permission_mode: Callable[[], str],
        model: Callable[[], str],
    ) -> None:
        self.warnings: tuple[str, ...] = ()
        self._about = {"id": session, "transcript": transcript, "cwd": cwd, "root": root}
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._swapped = swapped
        self._permission_mode = permission_mode
        self._model = model
        self._hooks: SessionHooks | None = None
        trusted = [item for item in said if item.trusted and item.value]
        if trusted:
            self._declare(trusted)

    def listens(self, point: Point, tool: str = "") -> bool:
        return self._hooks is not None and self._hooks.listens(point, tool)

    async def fire(self, call: HookCall) -> HookVerdict:
        return SILENT if self._hooks is None else await self._hooks.fire(call)

    def add(self, hook: CallbackHook) -> None:
        from odin.policy.hook.declared import of_callback

        try:
            self._loaded().add(of_callback(hook))
        except ValueError as error:
            raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}") from None

    def _declare(self, said: Sequence[Declared]) -> None:
        """The user's hooks first, then the project's."""
        from odin.policy.hook.declared import declared

        found = [(declared(item.value, item.source), item.layer == "project") for item in said]
        self.warnings = tuple(warning for one, _ in found for warning in one.warnings)
        for hook, theirs in ((hook, theirs) for one, theirs in found for hook in one.hooks):
            self._loaded().add(msgspec.structs.replace(hook, project=theirs))

    def _loaded(self) -> "SessionHooks":
        if self._hooks is None:
            from odin.policy.hook.envelope import Session
            from odin.policy.hook.hooks import SessionHooks

            session = Session(**self._about, permission_mode=self._permission_mode, model=self._model)
            self._hooks = SessionHooks((), session, self._runner, self._emit, self._redact, self._swapped)
        return self._hooks
