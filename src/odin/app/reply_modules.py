"""Modules that a reply with a tool call needs, but not the request: they are loaded while the model works on it.

If the model takes 0.3 s, the request after its first tool call is sent 60 ms sooner.

The reply stream starts this with the pipeline of the calls, when the request has been sent. A module that is needed
earlier is imported where it is used, as usual.
"""

import asyncio
import importlib
from collections.abc import Iterator

REPLY_MODULES = (
    "odin.providers.text_calls",
    "odin.policy.policy",
    "odin.tools.interactive_commands",
    "odin.policy.commands.parser",
    "odin.policy.commands.short_list",
    "odin.policy.commands.hard_stop",
    "odin.policy.secret_patterns",
    "odin.checkpoints.checkpointer",
    "odin.sandbox.sandbox",
    "odin.tools.listing",
    "odin.tools.grep",
)
"""In the order in which a reply with a tool call needs them."""


def load_reply_modules() -> None:
    """Load the modules soon, one by one: the model's chunks and the user's keys are handled in between."""
    asyncio.get_running_loop().call_soon(_load_next, iter(REPLY_MODULES))


def _load_next(names: Iterator[str]) -> None:
    name = next(names, None)
    if name is not None:
        importlib.import_module(name)
        asyncio.get_running_loop().call_soon(_load_next, names)
