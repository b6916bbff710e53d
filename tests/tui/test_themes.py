"""Readable colors in the dark and the light theme, with truecolor, 256 and 16 colors."""

import re
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from rich.style import Style
from textual.theme import Theme

import odin.ui.tui
from odin.context.agent_files import COLORS
from odin.ui.tui.palette import DARK, LIGHT, make_palette, theme_name_of

TEXTS = ("text", "dim", "strong", "accent", "user", "good", "warn", "bad", "link", "cursor")


def contrast(one: Color, other: Color) -> float:
    """The contrast ratio of WCAG 2, from 1 to 21."""
    lighter, darker = sorted((_light(one), _light(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _light(colour: Color) -> float:
    parts = [part / 255 for part in colour.get_truecolor()]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def styles(theme: Theme) -> dict[str, Style]:
    colours = make_palette(theme)
    agents = {f"agent {number}": style for number, style in enumerate(colours.agents)}
    named = {color: colours.style_of_agent("scout-1", color) for color in COLORS}
    return {**{name: getattr(colours, name) for name in TEXTS}, **agents, **named}


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
@pytest.mark.parametrize(
    ("system", "least"),
    [(ColorSystem.TRUECOLOR, 4.5), (ColorSystem.EIGHT_BIT, 3.0), (ColorSystem.STANDARD, 3.0)],
    ids=["millions", "256", "16"],
)
def test_every_text_can_be_read_on_every_ground(theme: Theme, system: ColorSystem, least: float) -> None:
    for ground in (theme.background, theme.surface, theme.panel):
        behind = Color.parse(ground or "").downgrade(system)
        for name, style in styles(theme).items():
            assert style.color is not None, name
            found = contrast(style.color.downgrade(system), behind)
            assert found >= least, f"{name} on {ground}: {found:.2f}"


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_changed_lines_can_be_read(theme: Theme) -> None:
    colours = make_palette(theme)
    assert colours.text.color is not None
    for style in (colours.added, colours.removed, colours.added_word, colours.removed_word, colours.code_block):
        assert style.bgcolor is not None
        assert contrast(colours.text.color, style.bgcolor) >= 4.5


def test_the_terminal_says_what_is_behind_its_text() -> None:
    assert theme_name_of("auto", {"COLORFGBG": "0;15"}) == "odin-light"
    assert theme_name_of("auto", {"COLORFGBG": "0;default;15"}) == "odin-light"
    assert theme_name_of("auto", {"COLORFGBG": "15;0"}) == "odin-dark"
    assert theme_name_of("auto", {"COLORFGBG": "rubbish"}) == "odin-dark"
    assert theme_name_of("auto", {}) == "odin-dark"
    assert theme_name_of("light", {"COLORFGBG": "15;0"}) == "odin-light"
    assert theme_name_of("dark", {"COLORFGBG": "0;15"}) == "odin-dark"


def test_colours_are_named_in_one_file_only() -> None:
    folder = Path(odin.ui.tui.__file__).parent
    literal = re.compile(r"#[0-9a-fA-F]{6}\b|Style\(color=\"")
    found = {str(path.relative_to(folder)) for path in folder.rglob("*.py") if literal.search(path.read_text())}
    assert found <= {"palette.py"}


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=["dark", "light"])
def test_the_name_of_an_agent_is_never_painted_in_the_color_behind_it(theme: Theme) -> None:
    colours = make_palette(theme)
    assert colours.style_of_agent("scout-2", theme.background or "") == colours.style_of_agent("scout-2")
    assert colours.style_of_agent("scout-2") != colours.style_of_agent("scout-1")
