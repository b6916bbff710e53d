"""What is known about API keys: which of them are in cooldown, and which were rejected for good.

All sessions and agents of a process share one `KeyStates`, and it is kept in the state folder for later runs. A key is
named by its fingerprint and its last four characters; the key itself is never written.
"""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odin.config.files import lock_file, write_atomically
from odin.core.errors import OdinError

SAVE_DELAY_S = 0.1
"""Changes are written together: a storm of failures must not write the file for each."""

MAX_ENTRIES = 500

MAX_COOLDOWN_S = 7 * 86_400.0
"""No key is left alone for longer. A later end is that of a wrong clock."""


class KeyLimits(Struct, frozen=True, omit_defaults=True):
    """What a key has left of its rate limits, -1 if not reported; known until `until`, in seconds since 1970."""

    until: float
    requests_left: int = -1
    requests_limit: int = -1
    tokens_left: int = -1
    tokens_limit: int = -1


class KeyState(Struct, frozen=True, omit_defaults=True):
    """The state of a key. `until` is when one that has failed may be used again, in seconds since 1970.

    `failures` counts those since the last success. `rejected` is why the key is not used until then, or "". `limits`
    are those of its last reply.
    """

    provider: str
    tail: str = ""
    until: float = 0.0
    failures: int = 0
    rejected: str = ""
    limits: KeyLimits | None = None


FailureMark = tuple[int, float, str]
"""Identifies the last failure of a key."""

_FILE_DECODER = msgspec.json.Decoder(dict[str, KeyState])


class KeyStates:
    """The states by fingerprint. `path` is None for one that is not kept; `clock` is the time of day."""

    def __init__(self, path: Path | None = None, clock: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self._path = path
        self._states: dict[str, KeyState] = {}
        self._unsaved: dict[str, KeyState | None] = {}
        self._unsaved_limits: dict[str, KeyState] = {}
        self._read_mark = 0
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._listeners: list[Callable[[str], object]] = []

    @classmethod
    def get_shared(cls, path: Path) -> "KeyStates":
        """Return the states of this process that are kept in this file."""
        return _SHARED.get(path) or _SHARED.setdefault(path, cls(path))

    def listen(self, listener: Callable[[str], object]) -> Callable[[], None]:
        """Call `listener` with the name of a provider whenever the state of one of its keys changes.

        It is called in the event loop that is running now, although sessions of other threads change keys, too. Return
        the function that ends this.
        """
        loop = _find_running_loop()

        def notify(provider: str) -> None:
            if loop is None or loop is _find_running_loop():
                listener(provider)
                return
            with suppress(RuntimeError):  # that session's loop has ended
                loop.call_soon_threadsafe(listener, provider)

        def stop() -> None:
            if notify in self._listeners:
                self._listeners.remove(notify)

        self._listeners.append(notify)
        return stop

    def find(self, fingerprint: str) -> KeyState | None:
        return self._states.get(fingerprint)

    def is_rejected(self, fingerprint: str) -> bool:
        state = self._states.get(fingerprint)
        return state is not None and bool(state.rejected and self._get_seconds_left(state))

    def is_healthy(self, fingerprint: str) -> bool:
        """True unless the key has failed since its last success."""
        state = self._states.get(fingerprint)
        return state is None or not (state.failures or state.rejected)

    def get_cooling_time(self, fingerprint: str) -> float:
        """Return the seconds until the key may be used again; 0 for a rejected one."""
        state = self._states.get(fingerprint)
        return 0.0 if state is None or state.rejected else self._get_seconds_left(state)

    def _get_seconds_left(self, state: KeyState) -> float:
        left = max(0.0, state.until - self.clock())
        return left if left <= MAX_COOLDOWN_S else 0.0

    def get_failure_mark(self, fingerprint: str) -> FailureMark:
        """Return what changes with every failure of the key."""
        state = self._states.get(fingerprint)
        return (0, 0.0, "") if state is None else (state.failures, state.until, state.rejected)

    def set(self, fingerprint: str, state: KeyState | None) -> None:
        """Change the state of a key; None forgets its failures, after a success."""
        before = self._states.get(fingerprint)
        if before is not None and before.limits is not None:
            state = replace(state or KeyState(before.provider, before.tail), limits=before.limits)
        if before == state:
            return
        if state is None:
            del self._states[fingerprint]
        else:
            self._states[fingerprint] = state
        self._unsaved[fingerprint] = state
        loop = _find_running_loop()
        if loop is None:
            self.save()
        elif self._path is not None and (self._timer is None or self._loop is not loop):
            self._timer, self._loop = loop.call_later(SAVE_DELAY_S, self._start_flush, loop), loop
        provider = (state or before or KeyState("")).provider
        for listener in tuple(self._listeners):
            listener(provider)

    def set_limits(self, fingerprint: str, provider: str, tail: str, limits: KeyLimits) -> None:
        """Remember the rate limits of a key. They are written with the next change, or when the session ends."""
        self._unsaved_limits[fingerprint] = KeyState(provider, tail, limits=limits)
        self._states[fingerprint] = _add_limits(self._states.get(fingerprint), self._unsaved_limits[fingerprint])

    def refresh(self) -> None:
        """Read what other processes have written since the last call."""
        if self._path is None:
            return
        try:
            mark = os.stat(self._path).st_mtime_ns  # noqa: PTH116 -- called before requests; Path.stat is slower
        except OSError:
            return
        if mark != self._read_mark:
            self._read_mark = mark
            self._states = _merge_states(_read_states(self._path), self._unsaved, self._unsaved_limits)

    def save(self) -> None:
        """Write unsaved changes now. A folder that cannot be written only makes later runs know less."""
        self._cancel_timer()
        self._settle(*self._write())

    async def flush(self) -> None:
        """Like `save`, in a thread: the disk may be slow, and another process may hold the lock."""
        self._cancel_timer()
        self._settle(*await asyncio.to_thread(self._write))

    def _start_flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flushing = loop.create_task(self.flush())

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _write(self) -> tuple[dict[str, KeyState | None], dict[str, KeyState]]:
        """Write the unsaved states and limits, and return them.

        They are taken under the lock, so the newest ones win. Of a key that has only new limits, the rest stays as
        another process may have written it.
        """
        if self._path is None or not (self._unsaved or self._unsaved_limits):
            return {}, {}
        try:
            with lock_file(self._path):
                unsaved, limits = dict(self._unsaved), dict(self._unsaved_limits)
                states = _merge_states(_read_states(self._path), unsaved, limits)
                newest = sorted(states, key=lambda name: (bool(states[name].rejected), states[name].until))
                kept = {name: states[name] for name in newest[-MAX_ENTRIES:]}
                write_atomically(self._path, msgspec.json.encode(kept))
        except OdinError:
            return {}, {}
        return unsaved, limits

    def _settle(self, states: dict[str, KeyState | None], limits: dict[str, KeyState]) -> None:
        """Forget changes that are in the file now, unless there are newer ones meanwhile."""
        for name, state in states.items():
            if name in self._unsaved and self._unsaved[name] is state:
                del self._unsaved[name]
        for name, state in limits.items():
            if self._unsaved_limits.get(name) is state:
                del self._unsaved_limits[name]


_SHARED: WeakValueDictionary[Path, KeyStates] = WeakValueDictionary()
"""By the file that holds them, while a session uses it. Sessions with another state folder have other states; those
with the same one must learn at once that a key failed, in whichever thread they run."""


def _find_running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _merge_states(
    states: dict[str, KeyState], changes: dict[str, KeyState | None], limits: dict[str, KeyState]
) -> dict[str, KeyState]:
    """Return the states with the changes, and with these limits."""
    merged: dict[str, KeyState | None] = {**states, **changes}
    merged |= {name: _add_limits(merged.get(name), limited) for name, limited in limits.items()}
    return {name: state for name, state in merged.items() if state is not None}


def _add_limits(state: KeyState | None, limited: KeyState) -> KeyState:
    return limited if state is None else replace(state, limits=limited.limits)


def _read_states(path: Path) -> dict[str, KeyState]:
    """Return the states in the file; none if it does not exist or is damaged."""
    try:
        return _FILE_DECODER.decode(path.read_bytes())
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return {}


def make_fingerprint(provider: str, key: str) -> str:
    import hashlib

    return hashlib.sha256(f"{provider}\0{key}".encode()).hexdigest()[:20]
