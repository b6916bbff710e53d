"""Odin Code: a coding agent for the terminal.

`odin.query("…")` runs a prompt from Python; see docs/python-api.md. Names are imported on first use, so that
`import odin` is fast.
"""

from odin.version import __version__

TYPE_CHECKING = False  # importing `typing` would cost more than all the rest
if TYPE_CHECKING:
    from odin.api import (
        Allow,
        Callbacks,
        Compactor,
        Deny,
        Hook,
        NoCompactor,
        Query,
        Session,
        default_registry,
        new,
        query,
    )
    from odin.config import Options
    from odin.core.errors import OdinError
    from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput
    from odin.ui.stream_json.types import (
        AssistantMessage,
        Message,
        ResultMessage,
        StreamEvent,
        SystemMessage,
        TextBlock,
        ThinkingBlock,
        ToolProgress,
        ToolResultBlock,
        ToolUseBlock,
        UserMessage,
    )

_EXPORTS_BY_MODULE = {
    "odin.api": "Allow Callbacks Compactor Deny Hook NoCompactor Query Session default_registry new query",
    "odin.config": "Options",
    "odin.core.errors": "OdinError",
    "odin.core.tool": "Args Target Tool ToolContext ToolOutput",
    "odin.ui.stream_json.types": "AssistantMessage Message ResultMessage StreamEvent SystemMessage TextBlock "
    "ThinkingBlock ToolProgress ToolResultBlock ToolUseBlock UserMessage",
}

__all__ = [
    "Allow",
    "Args",
    "AssistantMessage",
    "Callbacks",
    "Compactor",
    "Deny",
    "Hook",
    "Message",
    "NoCompactor",
    "OdinError",
    "Options",
    "Query",
    "ResultMessage",
    "Session",
    "StreamEvent",
    "SystemMessage",
    "Target",
    "TextBlock",
    "ThinkingBlock",
    "Tool",
    "ToolContext",
    "ToolOutput",
    "ToolProgress",
    "ToolResultBlock",
    "ToolUseBlock",
    "UserMessage",
    "__version__",
    "default_registry",
    "new",
    "query",
]


def __getattr__(name: str) -> object:
    for home, names in _EXPORTS_BY_MODULE.items():
        if name in names.split():
            from importlib import import_module

            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
