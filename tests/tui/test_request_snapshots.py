"""Snapshots of the permission and questions dialogs at two sizes, dark and light."""

from odin.core.call_events import PermissionAsked, QuestionsAsked
from odin.core.event import TurnStarted
from odin.core.event_values import Option, Question
from odin.core.tui_settings import TuiSettings
from tests.tui.conftest import SIZES_AND_THEMES, Stage, run_app
from tests.tui.fake_sessions import START, FakeClient, FakeSessions

DIFF = """--- /home/ann/project/greet.py
+++ /home/ann/project/greet.py
@@ -1,4 +1,5 @@
 def greet(name):
-    print("Hello", name)
+    greeting = f"Hello, {name}!"
+    print(greeting)
 #
 greet("Ann")"""

EDIT = PermissionAsked(
    "ask-1",
    "c1",
    "EditTool",
    {"file_path": "/home/ann/project/greet.py", "old_string": "…", "new_string": "…"},
    "Changes greet.py.",
    subject="/home/ann/project/greet.py",
    rules=("Edit(./greet.py)", "Edit(./**)"),
    preview=DIFF,
    effect="Changes greet.py.",
    permission_modes=("acceptEdits", "auto"),
    title="Edit greet.py",
)
COMMAND = PermissionAsked(
    "ask-2",
    "c2",
    "ExecuteCommand",
    {"command": "git push origin main", "description": "Publish the branch"},
    "The rule 'Bash(git push:*)' asks for approval.",
    subject="git push origin main",
    rules=("Bash(git push origin main)", "Bash(git push:*)"),
    sandbox="bubblewrap, network off",
    danger="network",
    effect="Pushes commits to a remote.",
    title="Bash",
)
QUESTIONS = QuestionsAsked(
    "ask-3",
    "c3",
    (
        Question(
            "Database",
            "Which database should the tests use?",
            (
                Option("SQLite", "a file in the project, nothing to install"),
                Option("PostgreSQL", "what production uses; needs a server"),
            ),
        ),
        Question("Extras", "What else?", (Option("Fixtures"), Option("Migrations")), multiple=True),
    ),
)


def get_snapshot_suffix(size: tuple[int, int], theme: str) -> str:
    return f"{size[0]}x{size[1]}-{theme}"


async def wait_until_ready(stage: Stage) -> None:
    await stage.until(lambda: getattr(stage.app.screen, "ready", False))
    await stage.pilot.pause(0.1)


def sessions_with(*events: PermissionAsked | QuestionsAsked) -> FakeSessions:
    return FakeSessions(FakeClient([TurnStarted("p1", "Greet people properly.", "edit_mode"), *events]))


def settings_with(theme: str) -> TuiSettings:
    return TuiSettings(bell=False, title=False, theme=theme)  # pyright: ignore[reportArgumentType]


def get_time() -> float:
    return START + 10


@SIZES_AND_THEMES
async def test_permission_snapshot(size: tuple[int, int], theme: str) -> None:
    async with run_app(sessions_with(EDIT, COMMAND), size=size, settings=settings_with(theme), clock=get_time) as stage:
        await wait_until_ready(stage)
        await stage.shows("Edit greet.py · 1 more waiting")
        await stage.assert_snapshot(f"permission-{get_snapshot_suffix(size, theme)}")


@SIZES_AND_THEMES
async def test_rule_step_snapshot(size: tuple[int, int], theme: str) -> None:
    async with run_app(sessions_with(COMMAND), size=size, settings=settings_with(theme), clock=get_time) as stage:
        await wait_until_ready(stage)
        await stage.press("p")
        await stage.shows("Bash(git push origin main)", "for this project")
        await stage.assert_snapshot(f"permission-rule-{get_snapshot_suffix(size, theme)}")


@SIZES_AND_THEMES
async def test_questions_snapshot(size: tuple[int, int], theme: str) -> None:
    async with run_app(sessions_with(QUESTIONS), size=size, settings=settings_with(theme), clock=get_time) as stage:
        await wait_until_ready(stage)
        await stage.shows("Which database should the tests use?")
        await stage.assert_snapshot(f"questions-{get_snapshot_suffix(size, theme)}")
