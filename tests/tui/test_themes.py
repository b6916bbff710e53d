"""Readable colors in the dark and the light theme, with truecolor, 256 and 16 colors."""

import re
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style
from textual.theme import Theme

import odin.ui.tui
from odin.context.agent_files import COLORS
from odin.ui.tui.palette import DARK, LIGHT, choose_theme_name, make_palette

TEXTS = ("text", "dim", "strong", "accent", "user", "good", "warn", "bad", "link", "cursor")


def get_contrast(one: Color, other: Color) -> float:
    """Return the contrast ratio of WCAG 2, from 1 to 21."""
    lighter, darker = sorted((_get_luminance(one), _get_luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _get_luminance(color: Color) -> float:
    parts = [part / 255 for part in color.get_truecolor()]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def list_styles(theme: Theme) -> dict[str, Style]:
    palette = make_palette(theme)
    agents = {f"agent {number}": style for number, style in enumerate(palette.agents)}
    named = {color: palette.get_agent_style("scout-1", color) for color in COLORS}
    return {**{name: getattr(palette, name) for name in TEXTS}, **agents, **named}


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize(
    ("system", "least"),
    [(ColorSystem.TRUECOLOR, 4.5), (ColorSystem.EIGHT_BIT, 3.0), (ColorSystem.STANDARD, 3.0)],
    ids=["millions", "256", "16"],
)
def test_every_text_color_is_readable_on_every_background(theme: Theme, system: ColorSystem, least: float) -> None:
    for background in (theme.background, theme.surface, theme.panel):
        background_color = Color.parse(background or "").downgrade(system)
        for name, style in list_styles(theme).items():
            assert style.color is not None, name
            ratio = get_contrast(style.color.downgrade(system), background_color)
            assert ratio >= least, f"{name} on {background}: {ratio:.2f}"


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_text_is_readable_on_diff_colors(theme: Theme) -> None:
    palette = make_palette(theme)
    assert palette.text.color is not None
    for style in (palette.added, palette.removed, palette.added_word, palette.removed_word, palette.code_block):
        assert style.bgcolor is not None
        assert get_contrast(palette.text.color, style.bgcolor) >= 4.5


def test_the_theme_follows_colorfgbg() -> None:
    assert choose_theme_name("auto", {"COLORFGBG": "0;15"}) == "odin-light"
    assert choose_theme_name("auto", {"COLORFGBG": "0;default;15"}) == "odin-light"
    assert choose_theme_name("auto", {"COLORFGBG": "15;0"}) == "odin-dark"
    assert choose_theme_name("auto", {"COLORFGBG": "rubbish"}) == "odin-dark"
    assert choose_theme_name("auto", {}) == "odin-dark"
    assert choose_theme_name("light", {"COLORFGBG": "15;0"}) == "odin-light"
    assert choose_theme_name("dark", {"COLORFGBG": "0;15"}) == "odin-dark"


def test_color_literals_are_only_in_the_palette() -> None:
    folder = Path(odin.ui.tui.__file__).parent
    literal = re.compile(r"#[0-9a-fA-F]{6}\b|Style\(color=\"")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if literal.search(path.read_text())}
    assert found <= {"palette.py"}


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_an_agent_name_never_has_the_background_color(theme: Theme) -> None:
    palette = make_palette(theme)
    assert palette.get_agent_style("scout-2", theme.background or "") == palette.get_agent_style("scout-2")
    assert palette.get_agent_style("scout-2") != palette.get_agent_style("scout-1")
