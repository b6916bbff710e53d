"""A field of `PromptData` survives the queue, a change, the log, a resume and the start of its turn."""

import threading
from typing import Any

import msgspec
import msgspec.inspect as shapes

from odin.core.event import PromptChanged, PromptInjected, PromptQueued, TurnStarted
from odin.core.op import ChangePrompt, Interrupt, Prompt
from odin.core.prompt import PromptData
from odin.testing import say

from .conftest import Start


def make_value(name: str, kind: shapes.Type, default: object = None) -> Any:
    """Return a value of this type that is not the default."""
    match kind:
        case shapes.LiteralType():
            return next(value for value in kind.values if value != default)
        case shapes.UnionType():
            return make_value(name, next(item for item in kind.types if not isinstance(item, shapes.NoneType)))
        case shapes.VarTupleType():
            return (make_value(name, kind.item_type),)
        case shapes.StructType():
            return kind.cls(
                **{field.name: make_value(field.name, field.type) for field in kind.fields if field.required}
            )
        case shapes.BoolType():
            return True
        case shapes.IntType():
            return 1000
        case shapes.FloatType():
            return 0.5
        case shapes.DictType():
            return {"type": "object"}
        case _:
            return f"/no/such/{name}"


def make_fields(*, left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    shape = shapes.type_info(PromptData)
    assert isinstance(shape, shapes.StructType)
    fields = [field for field in shape.fields if field.name not in left_out]
    return {field.name: make_value(field.name, field.type, field.default) for field in fields}


def list_fields(prompt: PromptData, names: dict[str, Any]) -> dict[str, Any]:
    return {name: getattr(prompt, name) for name in names}


async def test_every_field_survives_the_queue_a_change_a_resume_and_the_start_of_the_turn(start: Start) -> None:
    gate, fields = threading.Event(), make_fields()
    talk = await start([say("one").hold(gate), say("two")])
    await talk.submit("a")
    await talk.client.submit(Prompt(**fields))
    fields["mode"] = "plan_mode"
    assert await talk.client.submit(ChangePrompt(fields["id"], mode="plan_mode"))
    (queued,), (changed,) = await talk.recorded_events(PromptQueued), await talk.recorded_events(PromptChanged)
    assert list_fields(queued, fields) == make_fields()
    assert list_fields(changed, fields) == fields
    session = (await talk.client.get_info()).session
    gate.set()
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session)
    (left,) = (await again.client.snapshot()).queue
    assert list_fields(left, fields) == fields
    assert await again.client.submit(ChangePrompt(left.id, delivery=left.delivery))
    await again.until_end(left.id)
    started = (await again.recorded_events(TurnStarted))[-1]
    assert list_fields(started, fields) == fields


async def test_every_field_is_in_the_event_of_an_injected_prompt(start: Start) -> None:
    gate, fields = threading.Event(), make_fields(left_out=("attachments",))
    talk = await start([say("one").hold(gate)])
    first = await talk.submit("a")
    await talk.client.submit(Prompt(**fields))
    await talk.client.submit(Interrupt("inject"))
    gate.set()
    await talk.until_end(first)
    (injected,) = await talk.recorded_events(PromptInjected)
    assert list_fields(injected, fields) == fields


def test_the_fields_lie_flat_in_a_line_of_the_log_and_defaults_are_left_out() -> None:
    assert msgspec.to_builtins(TurnStarted("t", "go", "edit_mode")) == {
        "type": "TurnStarted",
        "id": "t",
        "text": "go",
        "mode": "edit_mode",
    }
