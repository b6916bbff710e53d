"""Which colours go with the terminal: what the person chose, else what the terminal says of its background."""

import os
from collections.abc import Mapping

from odin.core.screen import ThemeSetting

DARK_NAME, LIGHT_NAME = "odin-dark", "odin-light"
_LIGHT_BACKGROUNDS = ("7", "15")
"""The colours of sixteen that a light terminal has behind its text."""


def theme_name_of(look: ThemeSetting, env: Mapping[str, str] | None = None) -> str:
    """The name of the theme. `auto` reads COLORFGBG; a terminal that says nothing is taken for a dark one at first."""
    if look == "auto":
        look = "light" if _is_light_background(os.environ if env is None else env) else "dark"
    return LIGHT_NAME if look == "light" else DARK_NAME


def should_query_background(look: ThemeSetting, env: Mapping[str, str] | None = None) -> bool:
    """Whether the terminal itself should say what is behind its text: nobody else did, and it understands questions."""
    found = os.environ if env is None else env
    return look == "auto" and not found.get("COLORFGBG") and found.get("TERM", "") not in ("", "dumb", "linux")


def _is_light_background(env: Mapping[str, str]) -> bool:
    """COLORFGBG is `text;background`, or `text;something;background`, in the numbers of the sixteen colours."""
    return env.get("COLORFGBG", "").rsplit(";", 1)[-1].strip() in _LIGHT_BACKGROUNDS
