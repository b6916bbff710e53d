"""TodoWrite: the list that is shown, and invalid lists."""

from typing import Any

import pytest

from odin.core.event_values import Todo
from tests.tools.toolbox import Toolbox
from tests.waiting import TimeLimit


def item(id: str, status: str, content: str = "work", **more: Any) -> dict[str, Any]:
    return {"id": id, "content": content, "status": status, **more}


async def test_the_list_is_replaced_and_shown(box: Toolbox) -> None:
    output = await box.ok(
        "TodoWrite",
        todos=[
            item("1", "completed", "read"),
            item("2", "in_progress", "edit", active_form="editing"),
            item("3", "pending", "test"),
            item("4", "cancelled", "dance"),
        ],
    )
    assert output.text == "Todos: 1 of 4 completed.\n[x] read\n[>] edit\n[ ] test\n[-] dance"
    assert output.todos is not None
    assert output.todos[1] == Todo("2", "edit", "in_progress", "editing")


@pytest.mark.parametrize(
    ("todos", "word"),
    [
        ([], "empty"),
        ([item("1", "pending"), item("1", "pending")], "'1'"),
        ([item("1", "in_progress"), item("2", "in_progress")], "2 items are in_progress"),
    ],
)
async def test_an_invalid_list_is_refused(box: Toolbox, todos: list[dict[str, Any]], word: str) -> None:
    output = await box.call("TodoWrite", todos=todos)
    assert output.is_error
    assert word in output.text
    assert output.todos is None


async def test_a_very_long_list_is_checked_quickly(box: Toolbox) -> None:
    """Comparing every id with every other would take minutes here."""
    todos = [{"id": str(number), "content": "x", "status": "pending"} for number in range(100_000)]
    async with TimeLimit():
        output = await box.call("TodoWrite", todos=todos)
    assert output.todos is not None
    assert len(output.todos) == 100_000
