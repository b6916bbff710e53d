"""Events survive JSON, and the union `AnyEvent` is complete."""

from typing import get_args

import msgspec
import pytest
from hypothesis import given, settings

from odin.core import call_events
from odin.core import event as event_module
from odin.core.event import AnyEvent, Envelope
from odin.core.event_values import Event
from tests.table import each

from .strategies import EVENT_TYPES, envelopes


@pytest.mark.slow
@settings(max_examples=400)
@given(envelopes)
def test_every_event_survives_json(envelope: Envelope) -> None:
    assert msgspec.json.decode(msgspec.json.encode(envelope), type=Envelope) == envelope


def test_the_union_names_every_event_class() -> None:
    values = [*vars(call_events).values(), *vars(event_module).values()]
    declared = {value for value in values if isinstance(value, type) and issubclass(value, Event)} - {Event}
    assert declared == set(get_args(AnyEvent))


@each("kind", EVENT_TYPES)
def test_each_event_type_declares_whether_it_is_durable(kind: type[AnyEvent]) -> None:
    assert isinstance(kind.durable, bool)
