"""JSON schemas of tool arguments: the fast path gives the same result as msgspec."""

from typing import Annotated, Any

import msgspec
import pytest

from odin.app import build_standard_registry
from odin.core import tool
from odin.core.tool import Registry, make_schema


class Odd(msgspec.Struct):
    """Types that the fast path does not handle."""

    either: int | str
    few: Annotated[float, msgspec.Meta(gt=1)]
    table: dict[str, int] = {}


def build_by_msgspec(args: type[msgspec.Struct], brief: bool) -> Any:
    raw = msgspec.json.schema(args)
    return tool._slim_schema(raw, raw.get("$defs", {}), brief)


@pytest.mark.parametrize("brief", [False, True])
def test_every_standard_tool_has_the_schema_msgspec_gives_it(tmp_path: Any, brief: bool) -> None:
    registry: Registry = build_standard_registry(str(tmp_path))
    for name in registry.list_names():
        found = registry.get(name)
        assert found is not None
        args = found.args
        assert tool._make_struct_schema(args, brief) == build_by_msgspec(args, brief), name


def test_unsupported_types_fall_back_to_msgspec() -> None:
    assert make_schema(Odd) == build_by_msgspec(Odd, False)
    assert set(make_schema(Odd)["properties"]) == {"either", "few", "table"}
