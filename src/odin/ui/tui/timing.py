"""How long the app waits for keys, and between frames."""

import time
from collections.abc import Callable

from msgspec import Struct


class AppTiming(Struct, frozen=True, kw_only=True):
    """The waits of the app, in seconds. Tests of the app pass their own."""

    clock: Callable[[], float] = time.monotonic
    """Measures the pauses between keys."""

    quiet_s: float = 0.3
    """A dialog that opens by itself accepts keys after it was visible for this long without input."""

    typing_s: float = 1.0
    """For this long after a key was typed into the composer, it keeps the keyboard: no dialog takes a key."""

    double_press_s: float = 2.0
    """Within this time after the first press of a key, the second has to follow."""

    double_escape_s: float = 0.6
    """The same for Esc pressed twice, which opens the rewind dialog."""

    retry_s: float = 0.1
    """Before the app tries again to open a dialog."""

    search_s: float = 0.3
    """Before the text of all sessions is searched for what was typed."""

    follow_s: float = 1.0
    """Between two looks at the output of a background process that is being followed."""

    frame_s: float = 1 / 30


DEFAULT_APP_TIMING = AppTiming()
