"""The dark and the light theme, the styles derived from them, and the choice between them."""

import os
from collections.abc import Mapping
from typing import Any, cast

from msgspec import Struct
from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.color import Color, ColorParseError
from textual.filter import LineFilter
from textual.theme import Theme
from textual.widget import Widget

from odin.core.tui_settings import ThemeSetting

DARK_NAME, LIGHT_NAME = "odin-dark", "odin-light"
_LIGHT_BACKGROUNDS = ("7", "15")
"""Indexes of the 16 ANSI colors that mean a light background."""


def choose_theme_name(look: ThemeSetting, env: Mapping[str, str] | None = None) -> str:
    """Return the theme name. `auto` reads COLORFGBG and assumes a dark terminal if it is unset.

    Without colors there is only one theme.
    """
    env = os.environ if env is None else env
    if env.get("NO_COLOR"):
        return DARK_NAME
    if look == "auto":
        # The last field of COLORFGBG, e.g. `0;15` or `0;default;15`, is the background.
        look = "light" if (env.get("COLORFGBG", "").rsplit(";", 1)[-1].strip() in _LIGHT_BACKGROUNDS) else "dark"
    return LIGHT_NAME if look == "light" else DARK_NAME


def is_background_known(look: ThemeSetting, env: Mapping[str, str] | None = None) -> bool:
    """True if the theme follows the terminal's background and COLORFGBG says what it is."""
    return look == "auto" and bool((os.environ if env is None else env).get("COLORFGBG"))


def should_query_background(look: ThemeSetting, env: Mapping[str, str] | None = None) -> bool:
    """True if the terminal should be asked for its background: the theme is `auto` and COLORFGBG unset."""
    env = os.environ if env is None else env
    return look == "auto" and not env.get("COLORFGBG") and env.get("TERM", "") not in ("", "dumb", "linux")


DARK = Theme(
    name="odin-dark",
    primary="#7aa2c8",
    secondary="#a58fc2",
    accent="#d7a65f",
    foreground="#d3d6db",
    background="#14171c",
    surface="#1a1e24",
    panel="#20252d",
    success="#8db580",
    warning="#d9a45b",
    error="#d9736f",
    dark=True,
    variables={"dim": "#8b929d"},
)
LIGHT = Theme(
    name="odin-light",
    primary="#2c5f8a",
    secondary="#6b4d94",
    accent="#8a5a00",
    foreground="#23272e",
    background="#fbfaf7",
    surface="#f3f1ec",
    panel="#e9e6df",
    success="#35702a",
    warning="#855700",
    error="#b3302b",
    dark=False,
    variables={"dim": "#645f56"},
)

_AGENTS_DARK = ("#6fb3b8", "#c58fb0", "#a9b665", "#c9976b", "#a58fc2", "#7aa2c8")
_AGENTS_LIGHT = ("#1f6a70", "#8a3f6b", "#5d6b12", "#8c4a1c", "#6b4d94", "#2c5f8a")

_NAMED_COLORS = {
    "red": ("#d9736f", "#b3302b"),
    "orange": ("#d98f5b", "#9a4f10"),
    "yellow": ("#d9c45b", "#7a6400"),
    "green": ("#8db580", "#35702a"),
    "cyan": ("#6fb3b8", "#1f6a70"),
    "blue": ("#7aa2c8", "#2c5f8a"),
    "purple": ("#a58fc2", "#6b4d94"),
    "pink": ("#d68fb8", "#9a2f6b"),
}
"""The named colors of agent files, for dark and light backgrounds."""


class Palette(Struct, frozen=True):
    """Styles by purpose. `code` is the Pygments theme; sub-agents without a color use the `agents` styles in rotation.

    Style sheets use `$dim` for secondary text.
    """

    dark: bool
    text: Style
    dim: Style
    strong: Style
    accent: Style
    user: Style
    user_block: Style
    good: Style
    warn: Style
    bad: Style
    link: Style
    code: str
    code_block: Style
    added: Style
    removed: Style
    added_word: Style
    removed_word: Style
    cursor: Style
    heading: Style
    inline_code: Style
    match: Style
    match_here: Style
    agents: tuple[Style, ...]
    background: Color

    def get_agent_style(self, agent: str, color: str = "") -> Style:
        """Return the style of an agent's name: the color of its type, or one of `agents` by the number in its id.

        A color that is too close to the background is replaced, so that the name stays readable.
        """
        if named := _NAMED_COLORS.get(color):
            return Style(color=named[0 if self.dark else 1])
        own = _parse_color(color)
        if own is not None and abs(own.brightness - self.background.brightness) >= MIN_CONTRAST:
            return Style(color=own.hex6)
        number = agent.rpartition("-")[2]
        return self.agents[(int(number) - 1 if number.isdecimal() else 0) % len(self.agents)]


def _parse_color(color: str) -> Color | None:
    """Return the color, or None if there is none or it is not one: a log can contain anything."""
    try:
        return Color.parse(color) if color else None
    except ColorParseError:
        return None


def make_palette(theme: Theme) -> Palette:
    """Return the styles of a theme."""
    dark = theme.dark
    return Palette(
        dark=dark,
        text=Style(color=theme.foreground),
        dim=Style(color=theme.variables["dim"]),
        strong=Style(color=theme.foreground, bold=True),
        accent=Style(color=theme.accent),
        user=Style(color=theme.primary, bold=True),
        user_block=Style(bgcolor=theme.surface),
        good=Style(color=theme.success),
        warn=Style(color=theme.warning),
        bad=Style(color=theme.error),
        link=Style(color=theme.primary, underline=True),
        code="github-dark" if dark else "friendly",
        code_block=Style(bgcolor=theme.surface),
        added=Style(bgcolor="#1d2f20" if dark else "#e0f0da"),
        removed=Style(bgcolor="#3a2023" if dark else "#f8e0dd"),
        added_word=Style(bgcolor="#2f5233" if dark else "#b9e0ac"),
        removed_word=Style(bgcolor="#65302f" if dark else "#f0b9b3"),
        cursor=Style(color=theme.accent, bold=True),
        heading=Style(color=theme.primary, bold=True),
        inline_code=Style(color=theme.secondary, bgcolor=theme.surface),
        match=Style(bgcolor="#4d4320" if dark else "#f3e3a8"),
        match_here=Style(color="#14171c" if dark else "#23272e", bgcolor="#e0b95c" if dark else "#e6b93f"),
        agents=tuple(Style(color=color) for color in (_AGENTS_DARK if dark else _AGENTS_LIGHT)),
        background=Color.parse(theme.background or ""),
    )


MIN_CONTRAST = 0.15
"""A background that differs from the theme's by this much in brightness marks something: a cursor, a match."""


class TerminalBackground(LineFilter):
    """Replaces the theme's background by the terminal's own."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._background = Color.parse(theme.background or "").rich_color

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, self._replace_background(style) if style else style) for text, style, _ in segments]

    def _replace_background(self, style: Style) -> Style:
        return style + _OWN_BACKGROUND if style.bgcolor == self._background else style


class NoColors(LineFilter):
    """Replaces all colors by the terminal's own, backgrounds too. What only a background marks is reversed."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._brightness = Color.parse(theme.background or "").brightness

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        return [Segment(text, self._drop_colors(style) if style else style) for text, style, _ in segments]

    def _drop_colors(self, style: Style) -> Style:
        ground = Color.from_rich_color(style.bgcolor) if style.bgcolor is not None else None
        is_mark = ground is not None and abs(ground.brightness - self._brightness) >= MIN_CONTRAST
        return style + (_OWN_COLORS_REVERSED if is_mark else _OWN_COLORS)


_OWN_BACKGROUND = Style(bgcolor="default")
_OWN_COLORS = Style(color="default", bgcolor="default")
_OWN_COLORS_REVERSED = Style(color="default", bgcolor="default", reverse=True)


def get_theme(widget: Widget) -> Theme:
    return cast("App[Any]", widget.app).current_theme  # pyright: ignore[reportUnknownMemberType]


def get_palette(widget: Widget) -> Palette:
    return make_palette(get_theme(widget))
