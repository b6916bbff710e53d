"""How a session is set up, in words, and what is said where there is nothing to show.

The last errors of this run, kept to be looked at: with their time, whose they were, and without keys in them.
"""

import re
from collections import deque

from msgspec import Struct

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, Event, RetryScheduled, TurnEnded, Warned

NO_MCP_SERVERS = "No MCP servers are connected: this version of Odin does not speak MCP yet."
NO_LANGUAGE_SERVERS = "No language servers are connected, so nothing is said here about the files at hand."
DOCTOR_HINT = "`odin doctor` looks at the settings, the keys and this machine."


def list_facts(info: SessionInfo) -> list[tuple[str, str]]:
    """What one would want to know when something is wrong."""
    return [
        ("session", info.session),
        ("folder", info.cwd),
        ("model", info.model),
        ("version", info.version),
        ("permissions", info.permission_mode),
        ("commands run in", info.sandbox or "no sandbox"),
        ("budget", f"${info.budget_usd:g}" if info.budget_usd else "no limit"),
        ("tools", f"{len(info.tools)}"),
        *([("log file", info.log_file)] if info.log_file else []),
    ]


MAX_ERRORS_KEPT = 80
MAX_DETAIL_CHARS = 4_000
"""Characters of one error that are kept."""

DUPLICATE_WINDOW_S = 2.0
_FINE_REASONS = ("end_turn", "interrupted")
_SECRET = re.compile(
    r"""(?ix)
      (?P<name> (?: api[-_]?key | x-api-key | token | secret | password | authorization ) ["']? \s* [:=] \s* ["']?
                (?: bearer \s+ | basic \s+ )? | \bbearer \s+ )
      (?P<value> [^\s"',;&]{6,} )
    | (?P<shape> \b (?: sk | pk | rk | gsk | ghp | gho | ghs | glpat | xox[abprs] | AIza | AKIA | hf | nvapi )
                [-_]? [A-Za-z0-9_\-]{12,} )
    """
)


class ErrorEntry(Struct, frozen=True):
    """One error. `agent` is "" for the main agent; `detail` is the whole of it, the first line says what it is."""

    ts: float
    kind: str
    detail: str
    agent: str = ""

    @property
    def line(self) -> str:
        return next(iter(self.detail.splitlines()), "")


class ErrorLog:
    """Keeps them across the sessions that are shown, as long as the app runs."""

    def __init__(self) -> None:
        self._entries: deque[ErrorEntry] = deque(maxlen=MAX_ERRORS_KEPT)
        self.count = 0

    @property
    def newest_first(self) -> list[ErrorEntry]:
        return list(reversed(self._entries))

    def add(self, ts: float, kind: str, detail: str, agent: str = "") -> None:
        """What was said a moment ago is not kept twice: an event may also be told as a notice."""
        detail = mask_secrets(detail.strip())[:MAX_DETAIL_CHARS]
        last = self._entries[-1] if self._entries else None
        if last is not None and last.detail == detail and abs(ts - last.ts) < DUPLICATE_WINDOW_S:
            return
        self.count += 1
        self._entries.append(ErrorEntry(ts, kind, detail, agent))

    # --- as a watcher ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        return None

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        found = _describe_error(envelope.event) if live else None
        if found is not None:
            self.add(envelope.ts, *found, envelope.agent)

    def draw_frame(self) -> None:
        return None


def mask_secrets(text: str) -> str:
    """The text with the middle of everything that looks like a key left out."""
    return _SECRET.sub(lambda found: f"{found['name'] or ''}{_mask_secret(found['value'] or found['shape'])}", text)


def _mask_secret(secret: str) -> str:
    return f"{secret[:4]}…{secret[-2:]}" if len(secret) >= 12 else "…"


def _describe_error(event: Event) -> tuple[str, str] | None:
    """What kind of trouble an event tells of, and all that is known of it."""
    if isinstance(event, TurnEnded) and (event.error or event.reason not in _FINE_REASONS):
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
