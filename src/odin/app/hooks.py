"""The hooks of one session: those of the configuration, and callbacks of front ends and programs.

The hook modules are loaded with the first hook.
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


class HookFacts(msgspec.Struct, frozen=True):
    """What hooks are told about the session with every call."""

    id: str
    transcript: str
    cwd: str
    root: str
    permission_mode: Callable[[], str]
    model: Callable[[], str]


class HookSet:
    """All hooks of a session. `warnings` list the problems of configured hooks."""

    def __init__(
        self,
        declarations: Sequence[LayerDeclaration],
        facts: HookFacts,
        *,
        runner: ProcessRunner,
        emit: Callable[[AnyEvent, str], object],
        redact: Redact,
        find_changed_programs: Callable[[], Sequence[str]],
    ) -> None:
        self.warnings: tuple[str, ...] = ()
        self._facts = facts
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._find_changed_programs = find_changed_programs
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
        """Add the user's hooks first, then the project's."""
        from odin.policy.hooks.declaration import parse_hooks

        parsed = [(parse_hooks(item.value, item.source), item.layer == "project") for item in declarations]
        self.warnings = tuple(warning for hooks, _ in parsed for warning in hooks.warnings)
        for hooks, is_project in parsed:
            for hook in hooks.hooks:
                self._load_hooks().add(msgspec.structs.replace(hook, project=is_project))

    def _load_hooks(self) -> "SessionHooks":
        if self._hooks is None:
            from odin.policy.hooks.session_hooks import HookSession, SessionHooks

            session = HookSession(**msgspec.structs.asdict(self._facts))
            self._hooks = SessionHooks((), session, self._runner, self._emit, self._redact, self._find_changed_programs)
        return self._hooks
