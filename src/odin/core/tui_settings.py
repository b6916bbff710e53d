"""Settings of the terminal app."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

ThemeSetting = Literal["auto", "dark", "light"]
DiffStyle = Literal["auto", "unified", "split"]


def _describe(text: str) -> Meta:
    return Meta(description=text)


class TuiSettings(Struct, frozen=True, kw_only=True):
    theme: Annotated[ThemeSetting, _describe("Colours for a dark or a light background; `auto` asks the terminal.")] = (
        "auto"
    )
    mouse: Annotated[
        bool, _describe("Clicks, the wheel and selecting with the mouse belong to Odin, not the terminal.")
    ] = True
    vim: Annotated[
        bool, _describe("Begin in the composer's insert mode; Esc goes to moving between cards with j and k.")
    ] = False
    bell: Annotated[bool, _describe("Ring the terminal's bell when Odin needs you or has finished.")] = True
    desktop_notification: Annotated[bool, _describe("Send a desktop notification for the same reasons.")] = True
    title: Annotated[bool, _describe("Show in the terminal's title what Odin is doing.")] = True
    diff: Annotated[DiffStyle, _describe("Changes side by side or below each other; `auto` goes by the width.")] = (
        "auto"
    )
    side_panel: Annotated[bool, _describe("Show the panel at the side where there is room for it.")] = True
    transcript_on_exit: Annotated[
        bool, _describe("Print the conversation into the ordinary scrollback when the app is left.")
    ] = False
    plain: Annotated[bool, _describe("Use ordinary lines instead of the app, as `--plain` does.")] = False
    keys: Annotated[
        dict[str, str],
        _describe('Other keys for what the app does, by the names that the help shows: `{"send": "ctrl+s"}`.'),
    ] = field(default_factory=dict[str, str])
