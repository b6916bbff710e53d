"""Every key of the table does what it says, and any other key does it instead when the person wants that."""

import ast
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import UsageError
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.dialogs.reports import HelpDialog, describe_scope
from odin.ui.tui.keys import KEYS, KeyTable, format_key, is_typing_key, parse_key, split_keys
from tests.tui.conftest import play
from tests.tui.key_cases import CASES, MORE, Case, Scene

NAMES = {key.name: key for key in KEYS}
OTHER = "f24"
"""A key that nothing has."""

SOURCE = Path(__file__).parents[2] / "src" / "odin" / "ui" / "tui"


class Place:
    """An app in which one situation follows another; what a key did in one is not there in the next."""

    def __init__(self) -> None:
        self.scene = Scene()
        self._fresh = True

    async def situation(self, case: Case) -> Scene:
        """The situation of this case, in which its key has not done its work yet."""
        if not self._fresh:
            earlier, self.scene = self.scene, Scene()
            await self.scene.replace(earlier)
        self._fresh = False
        await case.before(self.scene)
        assert not case.done(self.scene), self.scene.stage.screen()
        return self.scene

    async def press(self, case: Case, key: str) -> None:
        """Press this key in the situation of the case: it does its work."""
        try:
            scene = await self.situation(case)
            await scene.stage.press(key)
            await scene.stage.until(lambda: case.done(scene))
        except BaseException as error:
            error.add_note(f"This is about the key {key} ({case.name}).")
            raise


@asynccontextmanager
async def opened(keys: dict[str, str] | None = None) -> AsyncGenerator[Place]:
    place = Place()
    settings = TuiSettings(bell=False, title=False, side_panel=False, keys=keys or {})
    async with play(place.scene.sessions, settings=settings, clock=lambda: place.scene.client.now) as stage:
        await place.scene.begin(stage)
        yield place


def test_every_key_has_a_case() -> None:
    assert {case.name for case in CASES} == set(NAMES)
    assert len(NAMES) == len(KEYS) == len(CASES)


def test_every_key_says_what_it_does_and_where() -> None:
    for key in KEYS:
        assert key.description.endswith(".") and key.description[0].isupper(), key
        assert not describe_scope(key.scope).startswith("In the " + key.scope) or key.scope in (
            "welcome",
            "contents",
        ), key
        assert [parse_key(one) for one in split_keys(key.keys)] == split_keys(key.keys), key


ENDING = "end_of_input"
"""It ends the app, so nothing can follow it there."""


def by_place(cases: Iterable[Case]) -> dict[str, list[Case]]:
    places: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.name == ENDING):
        places.setdefault(NAMES[case.name].scope, []).append(case)
    return places


@pytest.mark.slow
@pytest.mark.parametrize("scope", by_place(CASES))
async def test_the_keys_of_a_place_do_what_they_say(scope: str) -> None:
    async with opened() as place:
        for case in by_place(CASES)[scope]:
            for key in split_keys(NAMES[case.name].keys):
                await place.press(case, key)


@pytest.mark.slow
async def test_and_elsewhere() -> None:
    async with opened() as place:
        for case in MORE:
            await place.press(case, split_keys(NAMES[case.name].keys)[0])


ALSO_EDITS = {"paste_image", "write", "queue_leave"}
"""Ctrl+V pastes a text in every text, as in any terminal; a letter without a meaning leads back to the prompt."""

BY_LETTERS = {"transcript", "queue"}
"""Places that a letter without a meaning leaves."""

DISTURBING = {"next_role", "choose", "choose_next", "choose_previous", "choose_and_send", "deny_words", "yes"}
"""Whose own key does something else there that ends the situation, so that the other key is tried anew."""


async def instead(place: Place, case: Case, other: str) -> None:
    """The key of this case does its work no more, but another one does."""
    scene = await place.situation(case)
    for key in () if case.name in ALSO_EDITS else split_keys(NAMES[case.name].keys):
        await scene.stage.press(key)
        await scene.stage.pilot.pause()
        assert not case.done(scene), f"{case.name}: {key}\n{scene.stage.screen()}"
    if case.name in DISTURBING or NAMES[case.name].scope in BY_LETTERS:
        scene = await place.situation(case)
    await scene.stage.press(other)
    await scene.stage.until(lambda: case.done(scene))


_HELD = ("ctrl+", "shift+", "alt+", "ctrl+shift+", "ctrl+alt+", "alt+shift+", "ctrl+alt+shift+")
OTHERS = {case.name: f"{_HELD[number // 24]}f{number % 24 + 1}" for number, case in enumerate(CASES)}
"""Another key for each, which nothing has."""


@pytest.mark.slow
@pytest.mark.parametrize("scope", by_place(CASES))
async def test_another_key_does_it_instead(scope: str) -> None:
    async with opened(OTHERS) as place:
        for case in by_place(CASES)[scope]:
            await instead(place, case, OTHERS[case.name])


async def test_help_shows_the_keys_as_they_are() -> None:
    keys = dict.fromkeys(("send", "allow_once", "list_up", "stats_week", "stop"), OTHER)
    scene = Scene()
    settings = TuiSettings(bell=False, title=False, keys={**keys})
    async with play(scene.sessions, settings=settings) as stage:
        await stage.app.run_command("help", "key")
        await stage.until(lambda: isinstance(stage.app.screen, HelpDialog))
        shown: Any = stage.app.screen
        await stage.until(lambda: shown.rows.items)
        entries = {item.name: item for item in shown.all_items if item.kind == "key"}
        assert set(entries) == set(NAMES)
        for name, entry in entries.items():
            wanted = "F24" if name in keys else format_key(split_keys(NAMES[name].keys)[0])
            assert entry.label == wanted
            assert f'tui.keys {{"{name}": ' in entry.details


# --- what a person may write ---


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        ({"sned": "f3"}, "Unknown action 'sned' in tui.keys. Did you mean send? F1 in the app lists the names."),
        ({"send": "cotrl+x"}, "Unknown key 'cotrl+x' in tui.keys. Write keys as f3, ctrl+t, alt+up or slash."),
        ({"send": "bogus"}, "Unknown key 'bogus' in tui.keys."),
        ({"models": "ctrl+t"}, "Ctrl+T is assigned to both 'models' and 'contents' in tui.keys."),
        ({"models": "f3", "help": "F3"}, "F3 is assigned to both 'models' and 'help' in tui.keys."),
        ({"rename_session": "j"}, "j is assigned to both 'list_down' and 'rename_session' in tui.keys."),
    ],
)
def test_what_cannot_be_is_told(chosen: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        KeyTable(chosen)
    assert error.value.describe().startswith(told)


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
    assert parse_key(written) == comes


def test_keys_may_change_places_and_be_given_up() -> None:
    table = KeyTable({"models": "ctrl+t", "contents": "ctrl+p", "diagnostics": ""})
    assert table.find_action("ctrl+t", "everywhere") == "models"
    assert table.find_action("ctrl+p", "everywhere") == "contents"
    assert table.find_action("ctrl+g", "everywhere") == ""
    assert table.label_of("diagnostics") == ""


def test_while_a_line_is_written_keys_that_write_do_nothing_else() -> None:
    assert all(map(is_typing_key, ("a", "slash", "space", "home", "ä")))
    assert not any(map(is_typing_key, ("f2", "ctrl+l", "delete", "pageup", "tab", "enter", "escape", "up")))
    assert KeyTable().label_of("delete_session", typing=True) == "Del"
    assert KeyTable({"rename_session": "r,f7"}).label_of("rename_session", typing=True) == "F7"


@pytest.mark.slow
def test_no_key_is_written_anywhere_but_in_the_table() -> None:
    """What is compared with the key of an event would not follow when the person chooses another key."""
    known = {one for key in KEYS for one in split_keys(key.keys) if len(one) > 1}
    allowed: dict[str, set[str]] = {}
    for path in SOURCE.rglob("*.py"):
        if path.name == "keys.py":
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
    assert bound == ["composer.py"]
