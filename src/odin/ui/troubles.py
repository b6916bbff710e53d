"""The last errors of this run, kept to be looked at: with their time, whose they were, and without keys in them."""

import re
from collections import deque

from msgspec import Struct

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, Event, RetryScheduled, TurnEnded, Warned

KEPT = 80
DETAIL = 4_000
"""Characters of one error that are kept."""

SAME_S = 2.0
_FINE = ("end_turn", "interrupted")
_SECRET = re.compile(
    r"""(?ix)
      (?P<name> (?: api[-_]?key | x-api-key | token | secret | password | authorization ) ["']? \s* [:=] \s* ["']?
                (?: bearer \s+ | basic \s+ )? | \bbearer \s+ )
      (?P<value> [^\s"',;&]{6,} )
    | (?P<shape> \b (?: sk | pk | rk | gsk | ghp | gho | ghs | glpat | xox[abprs] | AIza | AKIA | hf | nvapi )
                [-_]? [A-Za-z0-9_\-]{12,} )
    """
)


class Trouble(Struct, frozen=True):
    """One error. `agent` is "" for the main agent; `detail` is the whole of it, the first line says what it is."""

    ts: float
    kind: str
    detail: str
    agent: str = ""

    @property
    def line(self) -> str:
        return next(iter(self.detail.splitlines()), "")


class Troubles:
    """Keeps them across the sessions that are shown, as long as the app runs."""

    def __init__(self) -> None:
        self._kept: deque[Trouble] = deque(maxlen=KEPT)
        self.count = 0

    @property
    def newest_first(self) -> list[Trouble]:
        return list(reversed(self._kept))

    def keep(self, ts: float, kind: str, detail: str, agent: str = "") -> None:
        """What was said a moment ago is not kept twice: an event may also be told as a notice."""
        detail = masked(detail.strip())[:DETAIL]
        last = self._kept[-1] if self._kept else None
        if last is not None and last.detail == detail and abs(ts - last.ts) < SAME_S:
            return
        self.count += 1
        self._kept.append(Trouble(ts, kind, detail, agent))

    # --- as a watcher ---

    def enter(self, client: Client, info: SessionInfo) -> None:
        return None

    def see(self, envelope: Envelope, live: bool) -> None:
        found = _trouble(envelope.event) if live else None
        if found is not None:
            self.keep(envelope.ts, *found, envelope.agent)

    def frame(self) -> None:
        return None


def masked(text: str) -> str:
    """The text with the middle of everything that looks like a key left out."""
    return _SECRET.sub(lambda found: f"{found['name'] or ''}{_mask(found['value'] or found['shape'])}", text)


def _mask(secret: str) -> str:
    return f"{secret[:4]}…{secret[-2:]}" if len(secret) >= 12 else "…"


def _trouble(event: Event) -> tuple[str, str] | None:
    """What kind of trouble an event tells of, and all that is known of it."""
    if isinstance(event, TurnEnded) and (event.error or event.reason not in _FINE):
        said = [event.error or f"The turn ended: {event.reason}.", event.hint]
        codes = (("status", event.error_status), ("code", event.error_code), ("type", event.error_type))
        said += [f"{name}: {value}" for name, value in codes if value]
        return event.error_kind or event.reason, "\n".join(filter(None, said))
    if isinstance(event, RetryScheduled):
        again = f"Attempt {event.attempt} of {event.attempts}; the next one followed after {event.delay_s:.1f} s."
        return event.error_kind or "retry", f"{event.error}\n{again}"
    if isinstance(event, Warned) and event.level != "info":
        return "warning" if event.level == "warn" else "error", event.text
    return None
