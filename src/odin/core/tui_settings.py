"""Settings of the terminal app."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

ThemeSetting = Literal["auto", "dark", "light"]
DiffStyle = Literal["auto", "unified", "split"]


def _describe(text: str) -> Meta:
    return Meta(description=text)


class TuiSettings(Struct, frozen=True, kw_only=True):
    theme: Annotated[ThemeSetting, _describe("Dark or light colors; `auto` asks the terminal for its background.")] = (
        "auto"
    )
    mouse: Annotated[bool, _describe("Odin handles clicks, the wheel and mouse selection instead of the terminal.")] = (
        True
    )
    vim: Annotated[
        bool,
        _describe("Vim-style navigation: start in insert mode; Esc switches to moving between cards with j and k."),
    ] = False
    bell: Annotated[bool, _describe("Ring the terminal bell when Odin needs you or has finished.")] = True
    desktop_notification: Annotated[bool, _describe("Send a desktop notification for the same reasons.")] = True
    title: Annotated[bool, _describe("Show the activity in the terminal's title.")] = True
    diff: Annotated[
        DiffStyle, _describe("Diffs side by side (`split`) or inline (`unified`); `auto` depends on the width.")
    ] = "auto"
    side_panel: Annotated[bool, _describe("Show the side panel if there is room.")] = True
    transcript_on_exit: Annotated[bool, _describe("Print the conversation to the terminal's scrollback on exit.")] = (
        False
    )
    plain: Annotated[bool, _describe("Use plain mode instead of the app, like `--plain`.")] = False
    keys: Annotated[
        dict[str, str],
        _describe('Key bindings by the action names shown in the help: `{"send": "ctrl+s"}`.'),
    ] = field(default_factory=dict[str, str])
