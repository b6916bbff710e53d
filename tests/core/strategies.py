"""Hypothesis strategies for random events and messages."""

from typing import Any, get_args

import msgspec
from hypothesis import strategies as st

from odin.core import call_events, client, event, event_values, message
from odin.core.event import AnyEvent, Envelope

_json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def _make_field(kind: Any) -> st.SearchStrategy[Any]:
    if kind == dict[str, Any]:
        return st.dictionaries(st.text(max_size=5), _json, max_size=3)
    if kind == dict[str, Any] | None:
        return st.none() | st.dictionaries(st.text(max_size=5), _json, max_size=3)
    return st.from_type(kind)


def _make_struct(kind: type[Any]) -> st.SearchStrategy[Any]:
    fields = msgspec.structs.fields(kind)
    return st.builds(kind, **{field.name: _make_field(field.type) for field in fields})


for _module in (message, event_values, call_events, event, client):
    for _value in vars(_module).values():
        if isinstance(_value, type) and issubclass(_value, msgspec.Struct) and _value is not msgspec.Struct:
            st.register_type_strategy(_value, _make_struct)
st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
st.register_type_strategy(str, st.text(st.characters(exclude_categories=["Cs"]), max_size=12))
st.register_type_strategy(int, st.integers(-(2**53), 2**53))

EVENT_TYPES: tuple[type[AnyEvent], ...] = get_args(AnyEvent)
events: st.SearchStrategy[AnyEvent] = st.sampled_from(EVENT_TYPES).flatmap(st.from_type)
envelopes: st.SearchStrategy[Envelope] = st.builds(
    Envelope,
    seq=st.integers(0, 10**6),
    ts=st.from_type(float),
    session=st.just("s"),
    event=events,
    agent=st.sampled_from(["", "a-1"]),
)
