"""A block whose painter fails is shown as one line and does not end the app."""

from typing import Any

import pytest

from odin.testing import say
from odin.ui.transcript.blocks import EndBlock
from odin.ui.tui.paint import painter
from tests.tui.conftest import OpenApp

pytestmark = pytest.mark.every_frame


async def test_a_failing_painter_leaves_the_rest_of_the_transcript(
    open_app: OpenApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail_to_paint(*_: Any) -> Any:
        raise ZeroDivisionError("a number nobody thought of")

    monkeypatch.setitem(painter._PAINTERS, EndBlock, fail_to_paint)
    async with open_app([say("Hello."), say("Still here.")], faults=1) as stage:
        await stage.send("hi")
        await stage.shows("Hello.", "Could not display this block (ZeroDivisionError).")
        await stage.send("and now?")
        await stage.shows("Still here.")
        assert any("a number nobody thought of" in item.detail for item in stage.app.error_log.newest_first)
