"""Roles in the app: Tab, /role, the border and the status line."""

from pathlib import Path

from odin.core.event import RoleChanged
from odin.core.op import SetRole
from tests.tui.conftest import OpenApp, run_app
from tests.tui.fake_sessions import FakeClient, FakeSessions


async def test_tab_cycles_through_the_roles(open_app: OpenApp, home: Path) -> None:
    folder = home / ".config/odin/agents"
    folder.mkdir(parents=True)
    (folder / "docs.md").write_text("---\nmode: main\ndescription: Writes docs.\n---\nWrite.")
    (folder / "hidden.md").write_text("---\nmode: subagent\n---\nHide.")
    async with open_app(size=(100, 24)) as stage:
        await stage.shows("─ edit ─")
        await stage.press("tab")
        await stage.shows("─ planner · edit ─", "role: planner")
        await stage.press("tab")
        await stage.shows("─ docs · edit ─", "role: docs")
        await stage.press("tab")
        await stage.until(lambda: "─ edit ─" in stage.screen() and "role:" not in stage.screen())


async def test_tab_completes_while_the_popup_is_open() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        await stage.type("/rol")
        await stage.shows("/role")
        await stage.press("tab")
        assert stage.app.composer.text == "/role "
        await stage.type("pl")
        await stage.shows("Plans.")
        await stage.press("tab")
        assert stage.app.composer.text.strip() == "/role planner"
        assert client.submitted == []
        await stage.press("enter")
        await stage.until(lambda: client.submitted == [SetRole("planner")])


async def test_a_role_that_another_client_sets_is_shown() -> None:
    client = FakeClient()
    async with run_app(FakeSessions(client)) as stage:
        client.emit(RoleChanged("planner"))
        await stage.shows("─ planner · edit ─", "role: planner")
        await stage.press("tab")
        await stage.until(lambda: client.submitted == [SetRole("builder")])


async def test_an_unknown_role_is_refused_with_the_known_ones(open_app: OpenApp) -> None:
    async with open_app(size=(100, 24)) as stage:
        await stage.send("/role nobody")
        await stage.shows("There is no role 'nobody'.")
        await stage.shows("─ edit ─")
