"""The colours that hold where a widget is."""

from typing import Any, cast

from textual.app import App
from textual.widget import Widget

from odin.ui.tui.palette import Palette, make_palette


def app_of(widget: Widget) -> "App[Any]":
    return cast("App[Any]", widget.app)  # pyright: ignore[reportUnknownMemberType]


def palette_of(widget: Widget) -> Palette:
    return make_palette(app_of(widget).current_theme)
