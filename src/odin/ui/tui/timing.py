"""How long the app waits for keys, and between frames."""

from msgspec import Struct


class AppTiming(Struct, frozen=True, kw_only=True):
    """The waits of the app, in seconds. Tests of the app pass their own."""

    quiet_s: float = 0.3
    """A dialog that opens by itself accepts keys after this long without input."""

    typing_s: float = 0.7
    """A dialog is not opened within this time after a key press in the composer, to not steal the keyboard."""

    retry_s: float = 0.1
    """Before the app tries again to open a dialog."""

    key_debounce_s: float = 0.25
    """Keys closer together than this are taken for typed text, not for an answer."""

    search_s: float = 0.3
    """Before the text of all sessions is searched for what was typed."""

    frame_s: float = 1 / 30


DEFAULT_APP_TIMING = AppTiming()
