"""Every key of the key table does its action, and a configured key replaces it."""

import ast
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from odin.core.errors import UsageError
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.dialogs.dialog import RequestDialog
from odin.ui.tui.dialogs.reports import HelpDialog, describe_scope
from odin.ui.tui.keys import KEYS, KeyTable, format_key, is_typing_key, parse_key, split_keys
from tests.tui.conftest import run_app
from tests.tui.key_cases import CASES, MORE_CASES, Case, Scene

KEYS_BY_NAME = {key.name: key for key in KEYS}
UNUSED_KEY = "f24"
"""A key without a default action."""

SOURCE = Path(__file__).parents[2] / "src" / "odin" / "ui" / "tui"


class SharedApp:
    """One app for several cases; each case starts with a fresh scene."""

    def __init__(self) -> None:
        self.scene = Scene()
        self._fresh = True

    async def prepare(self, case: Case) -> Scene:
        """Prepare the case in a fresh scene and assert that its action is not done yet."""
        if not self._fresh:
            earlier, self.scene = self.scene, Scene()
            await self.scene.take_over(earlier)
        self._fresh = False
        await case.prepare(self.scene)
        assert not case.is_done(self.scene), self.scene.stage.screen()
        return self.scene

    async def press_and_check(self, case: Case, key: str) -> None:
        """Prepare the case, press the key, and wait until its action is done."""
        try:
            scene = await self.prepare(case)
            await scene.stage.press(key)
            await scene.stage.until(lambda: case.is_done(scene))
        except BaseException as error:
            error.add_note(f"This is about the key {key} ({case.name}).")
            raise


@asynccontextmanager
async def open_shared_app(keys: dict[str, str] | None = None) -> AsyncGenerator[SharedApp]:
    shared = SharedApp()
    settings = TuiSettings(bell=False, title=False, side_panel=False, keys=keys or {})
    async with run_app(shared.scene.sessions, settings=settings, clock=lambda: shared.scene.client.now) as stage:
        await shared.scene.wait_until_loaded(stage)
        yield shared


def test_every_key_has_a_case() -> None:
    assert {case.name for case in CASES} == set(KEYS_BY_NAME)
    assert len(KEYS_BY_NAME) == len(KEYS) == len(CASES)


def test_every_key_has_a_description_and_a_scope() -> None:
    for key in KEYS:
        assert key.description.endswith(".") and key.description[0].isupper(), key
        assert not describe_scope(key.scope).startswith("In the " + key.scope) or key.scope in (
            "welcome",
            "contents",
        ), key
        assert [parse_key(one) for one in split_keys(key.keys)] == split_keys(key.keys), key


EXIT_CASE = "end_of_input"
"""This case ends the app, so it comes last."""


def cases_by_scope(cases: Iterable[Case]) -> dict[str, list[Case]]:
    scopes: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.name == EXIT_CASE):
        scopes.setdefault(KEYS_BY_NAME[case.name].scope, []).append(case)
    return scopes


@pytest.mark.slow
@pytest.mark.parametrize("scope", cases_by_scope(CASES))
async def test_the_keys_of_each_scope_do_their_action(scope: str) -> None:
    async with open_shared_app() as shared:
        for case in cases_by_scope(CASES)[scope]:
            for key in split_keys(KEYS_BY_NAME[case.name].keys):
                await shared.press_and_check(case, key)


@pytest.mark.slow
async def test_keys_in_other_dialogs_do_their_action() -> None:
    async with open_shared_app() as shared:
        for case in MORE_CASES:
            await shared.press_and_check(case, split_keys(KEYS_BY_NAME[case.name].keys)[0])


ALSO_EDITS = {"paste_image", "write", "queue_leave"}
"""Cases whose default key still works: Ctrl+V pastes in any text field, an unbound letter returns to the composer."""

LEFT_BY_LETTERS = {"transcript", "queue", "permission", "plan", "confirm", "questions", "welcome"}
"""Scopes that an unbound letter leaves. A request is entered again, anything else is prepared again."""

DISTURBING = {"next_role", "choose", "choose_next", "choose_previous", "choose_and_send", "deny_words", "yes"}
"""Cases whose default key has another effect there, so that the case must be prepared again."""


async def check_configured_key(shared: SharedApp, case: Case, configured: str) -> None:
    """Assert that the default key no longer does the action, but the configured one does."""
    scene = await shared.prepare(case)
    for key in () if case.name in ALSO_EDITS else split_keys(KEYS_BY_NAME[case.name].keys):
        await scene.stage.press(key)
        await scene.stage.pilot.pause()
        assert not case.is_done(scene), f"{case.name}: {key}\n{scene.stage.screen()}"
    is_left, is_request = KEYS_BY_NAME[case.name].scope in LEFT_BY_LETTERS, isinstance(scene.dialog, RequestDialog)
    if case.name in DISTURBING or (is_left and not is_request):
        scene = await shared.prepare(case)
    elif is_left:
        scene.app.composer.clear_draft()
        scene.dialog.focus_request()
        await scene.stage.pilot.pause()
        assert not case.is_done(scene), scene.stage.screen()
    await scene.stage.press(configured)
    await scene.stage.until(lambda: case.is_done(scene))


_MODIFIERS = ("ctrl+", "shift+", "alt+", "ctrl+shift+", "ctrl+alt+", "alt+shift+", "ctrl+alt+shift+")
CONFIGURED_KEYS = {case.name: f"{_MODIFIERS[number // 24]}f{number % 24 + 1}" for number, case in enumerate(CASES)}
"""A key without a default action for each case."""


@pytest.mark.slow
@pytest.mark.parametrize("scope", cases_by_scope(CASES))
async def test_configured_keys_replace_the_defaults(scope: str) -> None:
    async with open_shared_app(CONFIGURED_KEYS) as shared:
        for case in cases_by_scope(CASES)[scope]:
            await check_configured_key(shared, case, CONFIGURED_KEYS[case.name])


async def test_help_shows_configured_keys() -> None:
    keys = dict.fromkeys(("send", "allow_once", "list_up", "stats_week", "stop"), UNUSED_KEY)
    scene = Scene()
    settings = TuiSettings(bell=False, title=False, keys={**keys})
    async with run_app(scene.sessions, settings=settings) as stage:
        await stage.app.run_command("help", "key")
        await stage.until(lambda: isinstance(stage.app.screen, HelpDialog))
        shown: Any = stage.app.screen
        await stage.until(lambda: shown.rows.items)
        entries = {item.name: item for item in shown.all_items if item.kind == "key"}
        assert set(entries) == set(KEYS_BY_NAME)
        for name, entry in entries.items():
            wanted = "F24" if name in keys else format_key(split_keys(KEYS_BY_NAME[name].keys)[0])
            assert entry.label == wanted
            assert f'tui.keys {{"{name}": ' in entry.details


# --- key settings ---


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
def test_invalid_key_settings_are_rejected(chosen: dict[str, str], told: str) -> None:
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
def test_key_names_are_normalized(written: str, comes: str) -> None:
    assert parse_key(written) == comes


def test_keys_can_be_swapped_and_disabled() -> None:
    table = KeyTable({"models": "ctrl+t", "contents": "ctrl+p", "diagnostics": ""})
    assert table.find_action("ctrl+t", "everywhere") == "models"
    assert table.find_action("ctrl+p", "everywhere") == "contents"
    assert table.find_action("ctrl+g", "everywhere") == ""
    assert table.get_label("diagnostics") == ""


def test_typing_keys_are_not_offered_while_the_user_types() -> None:
    assert all(map(is_typing_key, ("a", "slash", "space", "home", "ä")))
    assert not any(map(is_typing_key, ("f2", "ctrl+l", "delete", "pageup", "tab", "enter", "escape", "up")))
    assert KeyTable().get_label("delete_session", typing=True) == "Del"
    assert KeyTable({"rename_session": "r,f7"}).get_label("rename_session", typing=True) == "F7"


@pytest.mark.slow
def test_key_names_appear_only_in_the_key_table() -> None:
    """A key compared directly with the key of an event would ignore the configured keys."""
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


def test_only_the_composer_defines_bindings() -> None:
    """Editing keys are fixed; all other keys come from the table."""
    bound = [path.name for path in SOURCE.rglob("*.py") if "Binding(" in path.read_text()]
    assert bound == ["composer.py"]
