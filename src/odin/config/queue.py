"""What becomes of a prompt that comes while another is being answered."""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from odin.core.event import Delivery

_DELIVERIES: dict[str, Delivery] = {"sequential": "queue", "merge": "merge", "steer": "steer"}


class QueueSettings(Struct, frozen=True, kw_only=True):
    """A prompt goes into the running turn only when both have the same mode; otherwise it waits for its own."""

    mode: Annotated[
        Literal["sequential", "merge", "steer"],
        Meta(
            description="`sequential`: it waits and is answered by itself. `merge`: it goes into the running turn with "
            "the next request. `steer`: the same, and calls that have not begun are left out."
        ),
    ] = "sequential"
    steering: Annotated[
        Literal["one-at-a-time", "all"],
        Meta(description="How many steering prompts one request takes."),
    ] = "one-at-a-time"

    @property
    def delivery(self) -> Delivery:
        return _DELIVERIES[self.mode]
