"""The colours that hold where a widget is."""

from typing import Any, cast

from textual.app import App
from textual.widget import Widget

from odin.ui.tui.palette import Palette, palette


def app_of(widget: Widget) -> "App[Any]":
    return cast("App[Any]", widget.app)  # pyright: ignore[reportUnknownMemberType]


def colours_of(widget: Widget) -> Palette:
    return palette(app_of(widget).current_theme)
