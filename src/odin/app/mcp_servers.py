"""Connects the MCP servers of a session with its interactions, its log and its small model."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from odin.app.policy import list_server_secrets
from odin.app.session_parts import Permissions, SessionCore
from odin.config.mcp_file import read_servers
from odin.config.settings import McpServerSettings
from odin.core.background_prompts import BackgroundPrompt
from odin.core.errors import OdinError
from odin.core.policy import mask_logins
from odin.engine.stream import SmallModel
from odin.mcp.servers import AgentServers, ServerDeps, SessionServers
from odin.policy.secrets import Redactor

if TYPE_CHECKING:
    from odin.context.agent_definition import AgentDefinition

_MAX_SAMPLE_TOKENS = 4_096
_SAMPLING = "Answer the request of a program. You have no tools."


def make_servers(
    core: SessionCore, permissions: Permissions, small_model: SmallModel, has_tool: Callable[[str, str], bool]
) -> SessionServers:
    """Return the servers of a session. `has_tool` tells whether an agent may use a tool."""

    async def sample(server: str, params: Any) -> Any:
        return await _sample(small_model, permissions.redact, params)

    recorder = core.recorder
    deps = ServerDeps(
        folder=core.folder,
        bus=recorder.bus,
        emit=recorder.emit,
        redact=lambda text: mask_logins(permissions.redact(text).text),
        is_busy=lambda: recorder.state.conversation.is_executing,
        ask_user=permissions.interactions.ask_questions,
        sample=sample,
        has_tool=has_tool,
        is_lazy=core.options.headless,
    )
    return SessionServers(deps, core.shared.get_servers(), sorted(recorder.state.enabled_servers))


def add_agent_servers(
    servers: SessionServers, definition: "AgentDefinition", core: SessionCore, redact: Redactor
) -> AgentServers:
    """Return the servers of a sub-agent whose type brings its own. A server that cannot be used costs a warning."""
    written = {name: _convert_scalars(own) for name, own in definition.servers.items() if own is not None}
    path = Path(definition.path or f"agent {definition.name}")
    found = read_servers(written, path, core.environment.variables)
    for problem in found.problems:
        core.warn(problem.describe())
    settings = msgspec.convert(found.servers, dict[str, McpServerSettings])
    redact.add_secrets(dict(list_server_secrets(settings)))
    return servers.add_agent_servers(definition.name, settings, of_project=definition.source == "project")


def _convert_scalars(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of an agent file, where every scalar is a text, with the types that they must have."""
    words: dict[str, Any] = {"true": True, "false": False}
    found = dict(settings)
    for name in ("always_load", "sampling", "network"):
        found[name] = words.get(str(found.get(name, False)).casefold(), found.get(name))
    if isinstance(found.get("timeout_s"), str):
        with suppress(ValueError):
            found["timeout_s"] = float(found["timeout_s"])
    return found


async def _sample(small_model: SmallModel, redact: Redactor, params: Any) -> Any:
    """Answer a sampling request with the small model. The configuration of the server allows it."""
    from mcp_types import INTERNAL_ERROR, CreateMessageResult, ErrorData, TextContent

    texts: list[str] = []
    for message in params.messages:
        content: Any = message.content
        blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
        said = "\n".join(block.text for block in blocks if block.type == "text")
        texts.append(said if len(params.messages) == 1 else f"{message.role}: {said}")
    job = BackgroundPrompt("sampling", params.system_prompt or _SAMPLING, min(params.max_tokens, _MAX_SAMPLE_TOKENS))
    try:
        text = await small_model.ask(job, redact("\n\n".join(texts)).text)
    except OdinError as error:
        return ErrorData(code=INTERNAL_ERROR, message=error.describe())
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="odin-small")
