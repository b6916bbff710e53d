"""Values that logs of earlier versions have."""

import msgspec

from odin.core.call_events import PermissionAsked


def test_old_name_of_a_danger_level_is_read() -> None:
    event = PermissionAsked("a", "c", "Question", {}, "why", danger="read_only")
    old = msgspec.json.encode(event).replace(b'"read_only"', b'"harmless"')
    assert msgspec.json.decode(old, type=PermissionAsked) == event
