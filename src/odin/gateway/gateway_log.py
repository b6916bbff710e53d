"""`<state>/logs/gateway.log`: one line for each thing that happens in the gateway, also on standard error."""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal, TextIO

from odin.core.errors import OdinError
from odin.core.format import clip_line
from odin.core.private_folders import append_to_log

GATEWAY_LOG_NAME = "gateway.log"
MAX_LOG_BYTES = 5_000_000

GatewayEvent = (
    Literal["started", "stopped", "connected", "failed", "received", "ignored", "duplicate", "system", "paired"]
    | Literal["turn", "answered", "asked", "decided", "command", "bound", "waits"]
    | Literal["scheduled", "missed", "ended", "heartbeat", "clock"]
    | Literal["sent", "retry", "dead", "unsure"]
)


class GatewayLog:
    """Writes lines without texts of messages. `redact` removes secrets, which errors may repeat."""

    def __init__(
        self,
        path: Path,
        err: TextIO | None,
        redact: Callable[[str], str],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.redact = redact
        self._path = path
        self._err = err
        self._clock = clock

    def write(self, event: GatewayEvent, channel: str, chat: str = "", key: str = "", note: str = "") -> None:
        """Write a line. Failing to is ignored."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(self._clock()))
        place = f"{channel}:{chat}" if chat else channel
        line = self.redact(" ".join(clip_line(word) for word in (when, event, place, key, note) if word))
        line = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in line)
        with suppress(OSError, OdinError):
            append_to_log(self._path, f"{line}\n".encode(), MAX_LOG_BYTES)
        if self._err is not None:
            with suppress(OSError, ValueError):
                self._err.write(f"{line}\n")
                self._err.flush()
