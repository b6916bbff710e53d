"""The hooks of one session: those of the configuration, and callbacks of front ends and programs.

Nothing of them is loaded before there is one.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from odin.config.settings import LayerDeclaration
from odin.core.errors import UsageError
from odin.core.event import AnyEvent
from odin.core.policy import NO_VERDICT, CallbackHook, HookCall, HookPoint, HookVerdict, Redact
from odin.sandbox.runner import ProcessRunner

if TYPE_CHECKING:
    from odin.policy.hooks.session_hooks import SessionHooks


class HookSet:
    """Listens from the first hook on. `warnings` say what is wrong with those of the configuration."""

    def __init__(
        self,
        declarations: Sequence[LayerDeclaration],
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
        self._session_facts = {"id": session, "transcript": transcript, "cwd": cwd, "root": root}
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._swapped = swapped
        self._permission_mode = permission_mode
        self._model = model
        self._hooks: SessionHooks | None = None
        trusted = [item for item in declarations if item.trusted and item.value]
        if trusted:
            self._add_declared(trusted)

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return self._hooks is not None and self._hooks.has_hook_for(point, tool)

    async def fire(self, call: HookCall) -> HookVerdict:
        return NO_VERDICT if self._hooks is None else await self._hooks.fire(call)

    def add(self, hook: CallbackHook) -> None:
        from odin.policy.hooks.declaration import make_callback_hook

        try:
            self._load_hooks().add(make_callback_hook(hook))
        except ValueError as error:
            raise UsageError(f"{str(error)[:1].upper()}{str(error)[1:]}") from None

    def _add_declared(self, declarations: Sequence[LayerDeclaration]) -> None:
        """The user's hooks first, then the project's."""
        from odin.policy.hooks.declaration import parse_hooks

        found = [(parse_hooks(item.value, item.source), item.layer == "project") for item in declarations]
        self.warnings = tuple(warning for one, _ in found for warning in one.warnings)
        for hook, theirs in ((hook, theirs) for one, theirs in found for hook in one.hooks):
            self._load_hooks().add(msgspec.structs.replace(hook, project=theirs))

    def _load_hooks(self) -> "SessionHooks":
        if self._hooks is None:
            from odin.policy.hooks.session_hooks import HookSession, SessionHooks

            session = HookSession(**self._session_facts, permission_mode=self._permission_mode, model=self._model)
            self._hooks = SessionHooks((), session, self._runner, self._emit, self._redact, self._swapped)
        return self._hooks
