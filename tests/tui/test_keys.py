"""Every key of the table does what it says, and any other key does it instead when the person wants that."""

import ast
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import UsageError
from odin.core.screen import ScreenSettings
from odin.ui.tui.dialogs.help import HelpDialog, place_of
from odin.ui.tui.keynames import each, spelled, understood, writes
from odin.ui.tui.keys import KEYS, KeyTable
from tests.tui.conftest import play
from tests.tui.key_cases import CASES, MORE, Case, Scene

NAMES = {key.name: key for key in KEYS}
OTHER = "f24"
"""A key that nothing has."""

SOURCE = Path(__file__).parents[2] / "src" / "odin" / "ui" / "tui"


@asynccontextmanager
async def situation(case: Case, keys: dict[str, str] | None = None) -> AsyncGenerator[Scene]:
    scene = Scene()
    settings = ScreenSettings(bell=False, title=False, side_panel=False, keys=keys or {})
    async with play(scene.sessions, settings=settings, clock=lambda: scene.client.now) as stage:
        await scene.begin(stage)
        await case.before(scene)
        assert not case.done(scene), stage.screen()
        yield scene


def test_every_key_has_a_case() -> None:
    assert {case.name for case in CASES} == set(NAMES)
    assert len(NAMES) == len(KEYS) == len(CASES)


def test_every_key_says_what_it_does_and_where() -> None:
    for key in KEYS:
        assert key.what.endswith(".") and key.what[0].isupper(), key
        assert not place_of(key.where).startswith("In the " + key.where) or key.where in ("welcome", "contents"), key
        assert [understood(one) for one in each(key.keys)] == each(key.keys), key


def pressed_each(cases: tuple[Case, ...]) -> Any:
    found = [(case, key) for case in cases for key in each(NAMES[case.name].keys)]
    return pytest.mark.parametrize(("case", "key"), found, ids=[f"{case.name}-{key}" for case, key in found])


@pressed_each(CASES)
async def test_a_key_does_what_it_says(case: Case, key: str) -> None:
    async with situation(case) as scene:
        await scene.stage.press(key)
        await scene.stage.until(lambda: case.done(scene))


@pytest.mark.parametrize("case", MORE, ids=lambda case: case.name)
async def test_and_elsewhere(case: Case) -> None:
    async with situation(case) as scene:
        await scene.stage.press(each(NAMES[case.name].keys)[0])
        await scene.stage.until(lambda: case.done(scene))


ALSO_EDITS = {"paste_image"}
"""Its key pastes a text in every text, as in any terminal."""

DISTURBING = {"next_mode", "choose_next", "choose_previous", "choose_and_send", "deny_words", "yes"}
"""Whose own key does something else there that ends the situation, so that the other key is tried anew."""


def of_each_place() -> list[Case]:
    """One key of every place, which is where keys are looked up; ODIN_ALL_KEYS=1 tries them all."""
    if os.environ.get("ODIN_ALL_KEYS"):
        return list(CASES)
    return list({NAMES[case.name].where: case for case in reversed(CASES)}.values())


@pytest.mark.parametrize("case", of_each_place(), ids=lambda case: case.name)
async def test_another_key_does_it_instead(case: Case) -> None:
    chosen = {case.name: OTHER}
    async with situation(case, chosen) as scene:
        for key in () if case.name in ALSO_EDITS else each(NAMES[case.name].keys):
            await scene.stage.press(key)
            await scene.stage.pilot.pause()
            assert not case.done(scene), scene.stage.screen()
        if case.name not in DISTURBING:
            await scene.stage.press(OTHER)
            await scene.stage.until(lambda: case.done(scene))
    if case.name in DISTURBING:
        async with situation(case, chosen) as scene:
            await scene.stage.press(OTHER)
            await scene.stage.until(lambda: case.done(scene))


async def test_help_shows_the_keys_as_they_are() -> None:
    keys = dict.fromkeys(("send", "allow_once", "list_up", "stats_week", "stop"), OTHER)
    scene = Scene()
    settings = ScreenSettings(bell=False, title=False, keys={**keys})
    async with play(scene.sessions, settings=settings) as stage:
        await stage.app.run_command("help", "key")
        await stage.until(lambda: isinstance(stage.app.screen, HelpDialog))
        shown: Any = stage.app.screen
        await stage.until(lambda: shown.rows.items)
        entries = {item.name: item for item in shown.everything if item.kind == "key"}
        assert set(entries) == set(NAMES)
        for name, entry in entries.items():
            wanted = "F24" if name in keys else spelled(each(NAMES[name].keys)[0])
            assert entry.left == wanted
            assert f"Its name is {name}" in entry.more


# --- what a person may write ---


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"sned": "f3"}, "There is no key called 'sned' (tui.keys). F1 in the app lists their names."),
        ({"send": "cotrl+x"}, "There is no key 'cotrl+x' (tui.keys). Write keys as f3, ctrl+t, alt+up or slash."),
        ({"send": "bogus"}, "There is no key 'bogus' (tui.keys)."),
        ({"models": "ctrl+t"}, "Ctrl+T cannot be the key of both 'models' and 'contents' (tui.keys)."),
        ({"models": "f3", "help": "F3"}, "F3 cannot be the key of both 'models' and 'help' (tui.keys)."),
        ({"rename_session": "j"}, "j cannot be the key of both 'list_down' and 'rename_session' (tui.keys)."),
    ],
)
def test_what_cannot_be_is_told(chosen: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        KeyTable(chosen)
    assert error.value.sentence().startswith(told)


@pytest.mark.parametrize(
    ("written", "comes"),
    [
        ("Ctrl+T", "ctrl+t"),
        ("/", "slash"),
        ("?", "question_mark"),
        ("shift+g", "G"),
        ("G", "G"),
        ("Esc", "escape"),
        ("PgUp", "pageup"),
        ("shift+ctrl+z", "ctrl+shift+z"),
        ("space", "space"),
        ("ä", "ä"),
    ],
)
def test_keys_are_understood_as_people_write_them(written: str, comes: str) -> None:
    assert understood(written) == comes


def test_keys_may_change_places_and_be_given_up() -> None:
    table = KeyTable({"models": "ctrl+t", "contents": "ctrl+p", "servers": ""})
    assert table.name("ctrl+t", "everywhere") == "models"
    assert table.name("ctrl+p", "everywhere") == "contents"
    assert table.name("ctrl+o", "everywhere") == ""
    assert table.shown("servers") == ""


def test_while_a_line_is_written_keys_that_write_do_nothing_else() -> None:
    assert all(map(writes, ("a", "slash", "space", "home", "ä")))
    assert not any(map(writes, ("f2", "ctrl+l", "delete", "pageup", "tab", "enter", "escape", "up")))
    assert KeyTable().shown("delete_session", typing=True) == "Del"
    assert KeyTable({"rename_session": "r,f7"}).shown("rename_session", typing=True) == "F7"


def test_no_key_is_written_anywhere_but_in_the_table() -> None:
    """What is compared with the key of an event would not follow when the person chooses another key."""
    known = {one for key in KEYS for one in each(key.keys) if len(one) > 1}
    allowed = {"field.py": {"enter"}}
    for path in SOURCE.rglob("*.py"):
        if path.name in ("keys.py", "keynames.py"):
            continue
        compared = {
            constant.value
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Compare) and ".key" in ast.unparse(node)
            for constant in ast.walk(node)
            if isinstance(constant, ast.Constant) and isinstance(constant.value, str)
        }
        assert not (compared & known) - allowed.get(path.name, set()), path


def test_only_texts_have_keys_of_their_own() -> None:
    """The editing keys of a line or a text are those of every terminal; all others come from the table."""
    bound = [path.name for path in SOURCE.rglob("*.py") if "Binding(" in path.read_text()]
    assert bound == ["area.py"]
