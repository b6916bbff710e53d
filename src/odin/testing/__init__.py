"""Test an agent without a model: a scripted server that speaks the real wire formats over real HTTP.

    with ScriptedServer([call("Read", {"file_path": "/x"}), say("done")]) as server:
        ...  # point the agent at server.url or server.openai_url
        assert server.requests[1].results

See docs/testing.md.
"""

from odin.core.message import Usage
from odin.testing.script import (
    EmulatedLocal,
    Script,
    ScriptedCall,
    SeenRequest,
    Turn,
    call,
    fault,
    read_script,
    reply,
    retry_after,
    say,
)
from odin.testing.server import ScriptedServer

__all__ = [
    "EmulatedLocal",
    "Script",
    "ScriptedCall",
    "ScriptedServer",
    "SeenRequest",
    "Turn",
    "Usage",
    "call",
    "fault",
    "read_script",
    "reply",
    "retry_after",
    "say",
]
