"""Build samples of log lines, and the shape of each kind of durable event, for `test_event_samples.py`.

The samples of a kind together have each of its fields, each value of its named choices and each type of its unions.
"""

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, cast, get_args

import msgspec
from msgspec import inspect

from odin.core.event import AnyEvent
from odin.session.log import LogHeader

KINDS: dict[str, Any] = {kind.__name__: kind for kind in get_args(AnyEvent) if kind.durable} | {"LogHeader": LogHeader}


def describe_shape(kind: type[Any]) -> dict[str, Any]:
    """Return the JSON schema of a kind with the types it contains, without texts for people."""
    (_,), parts = msgspec.json.schema_components([kind])
    shape = {name: _drop_texts(part) for name, part in sorted(parts.items())}
    return msgspec.json.decode(msgspec.json.encode(shape))


def find_lost(sample: Any, read: Any, place: str = "") -> Iterator[str]:
    """Yield the places in a sample whose values are not in what was read from it."""
    if isinstance(read, bytes):
        read = msgspec.to_builtins(read)
    if isinstance(sample, dict) and isinstance(read, msgspec.Struct):
        config = read.__struct_config__
        fields = {field.encode_name: getattr(read, field.name) for field in msgspec.structs.fields(read)}
        if config.tag_field:
            fields[config.tag_field] = config.tag
        for key, value in cast("dict[str, Any]", sample).items():
            where = f"{place}.{key}".lstrip(".")
            yield from find_lost(value, fields[key], where) if key in fields else [where]
    elif isinstance(sample, list) and isinstance(read, tuple):
        values, items = cast("list[Any]", sample), cast("tuple[Any, ...]", read)
        for number, (value, item) in enumerate(zip_longest(values, items)):
            yield from find_lost(value, item, f"{place}[{number}]")
    elif sample != read:
        yield place


def _drop_texts(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_drop_texts(item) for item in cast("list[Any]", schema)]
    if not isinstance(schema, dict):
        return schema
    items = cast("dict[str, Any]", schema).items()
    # A property may have the name `title` or `description`; then its value is a schema.
    return {
        key: _drop_texts(value)
        for key, value in items
        if not (key in ("title", "description") and isinstance(value, str))
    }


def make_samples(kind: type[Any]) -> Iterator[dict[str, Any]]:
    """Yield one sample with the required fields only, and as many with all fields as its values need."""
    shape = inspect.type_info(kind)
    samples = [_make(shape, 0, only_required=True), *(_make(shape, turn) for turn in range(_count_values(shape)))]
    yield from (sample for number, sample in enumerate(samples) if sample not in samples[:number])


def _make(shape: inspect.Type, turn: int, name: str = "", *, only_required: bool = False) -> Any:
    """Return a value of this type; `turn` chooses among literals and types, `name` is the field it is for."""
    match shape:
        case inspect.StructType():
            tag = {shape.tag_field: shape.tag} if shape.tag_field else {}
            fields = [field for field in shape.fields if field.required or not only_required]
            return tag | {field.encode_name: _make_field(field, turn) for field in fields}
        case inspect.LiteralType():
            return shape.values[turn % len(shape.values)]
        case inspect.UnionType():
            turns = [(option, value) for option in _list_options(shape) for value in range(_count_values(option))]
            return _make(*turns[turn % len(turns)], name)
        case inspect.ListType() | inspect.CollectionType() | inspect.VarTupleType():
            return [_make(shape.item_type, turn, name)]
        case inspect.TupleType():
            return [_make(item, turn, name) for item in shape.item_types]
        case inspect.DictType():
            return {name: _make(shape.value_type, turn, name)}
        case inspect.StrType():
            return f"some {name}"
        case inspect.BytesType():
            return "c2FtcGxl"
        case inspect.BoolType():
            return True
        case inspect.IntType():
            return 7
        case inspect.FloatType():
            return 1.5
        case inspect.AnyType():
            return "anything"
        case _:
            raise TypeError(f"{name} has a type without a sample yet: {shape}")


def _make_field(field: inspect.Field, turn: int) -> Any:
    is_on = isinstance(field.type, inspect.BoolType) and field.default is True
    return False if is_on else _make(field.type, turn, field.name)


def _list_options(shape: inspect.UnionType) -> list[inspect.Type]:
    """Return the types of a union, without None: the first sample has no optional fields."""
    return [option for option in shape.types if not isinstance(option, inspect.NoneType)]


def _count_values(shape: inspect.Type) -> int:
    """Return how many samples show all literals and all types of unions."""
    match shape:
        case inspect.StructType():
            return max([_count_values(field.type) for field in shape.fields], default=1)
        case inspect.LiteralType():
            return len(shape.values)
        case inspect.UnionType():
            return sum(map(_count_values, _list_options(shape)))
        case inspect.ListType() | inspect.CollectionType() | inspect.VarTupleType():
            return _count_values(shape.item_type)
        case inspect.TupleType():
            return max(map(_count_values, shape.item_types))
        case inspect.DictType():
            return _count_values(shape.value_type)
        case _:
            return 1
