"""Text of /diagnostics, and the log of recent errors that /errors shows."""

import re
from collections import deque

from msgspec import Struct

from odin.core.call_events import RetryScheduled
from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope, TurnEnded, Warned
from odin.core.event_values import Event

DOCTOR_HINT = "Run `odin doctor` to check settings, keys and this machine."


def list_facts(info: SessionInfo) -> list[tuple[str, str]]:
    """Return the session's setup as label and value pairs."""
    return [
        ("session", info.session),
        ("folder", info.cwd),
        ("model", info.model),
        ("version", info.version),
        ("permissions", info.permission_mode),
        ("sandbox", info.sandbox or "none"),
        ("budget", f"${info.budget_usd:g}" if info.budget_usd else "no limit"),
        ("tools", f"{len(info.tools)}"),
        *([("log file", info.log_file)] if info.log_file else []),
    ]


MAX_ERRORS_KEPT = 80
MAX_DETAIL_CHARS = 4_000
"""Longer error texts are cut."""

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
    """One error. `agent` is "" for the main agent; the first line of `detail` is the summary."""

    ts: float
    kind: str
    detail: str
    agent: str = ""

    @property
    def line(self) -> str:
        return next(iter(self.detail.splitlines()), "")


class ErrorLog:
    """The most recent errors of this run, across sessions, with secrets masked."""

    def __init__(self) -> None:
        self._entries: deque[ErrorEntry] = deque(maxlen=MAX_ERRORS_KEPT)
        self.count = 0

    @property
    def newest_first(self) -> list[ErrorEntry]:
        return list(reversed(self._entries))

    def add(self, ts: float, kind: str, detail: str, agent: str = "") -> None:
        """Add an error. A repetition within two seconds is skipped: an event may also arrive as a notice."""
        detail = mask_secrets(detail.strip())[:MAX_DETAIL_CHARS]
        last = self._entries[-1] if self._entries else None
        if last is not None and last.detail == detail and abs(ts - last.ts) < DUPLICATE_WINDOW_S:
            return
        self.count += 1
        self._entries.append(ErrorEntry(ts, kind, detail, agent))

    # --- as a session observer ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        return None

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        error = _describe_error(envelope.event) if live else None
        if error is not None:
            self.add(envelope.ts, *error, envelope.agent)

    def draw_frame(self) -> None:
        return None


def mask_secrets(text: str) -> str:
    """Return the text with the middle of everything that looks like a secret replaced by an ellipsis."""
    return _SECRET.sub(lambda found: f"{found['name'] or ''}{_mask_secret(found['value'] or found['shape'])}", text)


def _mask_secret(secret: str) -> str:
    return f"{secret[:4]}…{secret[-2:]}" if len(secret) >= 12 else "…"


def _describe_error(event: Event) -> tuple[str, str] | None:
    """Return the kind and detail of the error that an event reports, or None."""
    if isinstance(event, TurnEnded) and (event.error or event.reason not in _FINE_REASONS):
        lines = [event.error or f"The turn ended: {event.reason}.", event.hint]
        codes = (("status", event.error_status), ("code", event.error_code), ("type", event.error_type))
        lines += [f"{name}: {value}" for name, value in codes if value]
        return event.error_kind or event.reason, "\n".join(filter(None, lines))
    if isinstance(event, RetryScheduled):
        again = f"Attempt {event.attempt} of {event.attempts}; retried after {event.delay_s:.1f} s."
        return event.error_kind or "retry", f"{event.error}\n{again}"
    if isinstance(event, Warned) and event.level != "info":
        return "warning" if event.level == "warn" else "error", event.text
    return None
