"""Connects the MCP servers of a session with its approvals, its log and its small model."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from odin.app.policy import list_server_secrets
from odin.config.mcp_file import read_servers
from odin.config.settings import McpServerSettings
from odin.core.background_prompts import BackgroundPrompt
from odin.core.errors import OdinError
from odin.core.event import Warned
from odin.core.policy import mask_logins
from odin.mcp.servers import AgentServers, ServerDeps, SessionServers

if TYPE_CHECKING:
    from odin.app.compose import SessionServices
    from odin.context.agent_definition import AgentDefinition

_MAX_SAMPLE_TOKENS = 4_096
_SAMPLING = "Answer the request of a program. You have no tools."


def make_servers(session: "SessionServices") -> SessionServers:
    async def sample(server: str, params: Any) -> Any:
        return await _sample(session, server, params)

    can_ask = session.approvals.can_ask
    deps = ServerDeps(
        config=session.config,
        environment=session.environment,
        runner=session.runner,
        plan_start=session.launcher.plan_server,
        project_servers=session.launcher.list_project_servers(),
        folder=session.folder,
        bus=session.recorder.bus,
        emit=session.recorder.emit,
        redact=lambda text: mask_logins(session.redact(text).text),
        is_busy=lambda: session.recorder.state.conversation.is_executing,
        ask_user=session.approvals.ask_questions if can_ask else None,
        sample=sample,
        has_tool=lambda agent, tool: session.get_runtime(agent).has_tool(tool),
        is_lazy=session.options.headless,
    )
    return SessionServers(deps, sorted(session.recorder.state.enabled_servers))


def make_agent_servers(session: "SessionServices", definition: "AgentDefinition") -> AgentServers:
    """Return the servers of a sub-agent whose type brings its own. A server that cannot be used costs a warning."""
    if session.servers is None:
        session.servers = make_servers(session)
    written = {name: _convert_scalars(own) for name, own in definition.servers.items() if own is not None}
    path = Path(definition.path or f"agent {definition.name}")
    found = read_servers(written, path, session.env)
    for problem in found.problems:
        session.recorder.emit(Warned(problem.describe()))
    servers = msgspec.convert(found.servers, dict[str, McpServerSettings])
    session.redact.add_secrets(dict(list_server_secrets(servers)))
    return session.servers.add_agent_servers(definition.name, servers, of_project=definition.source == "project")


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


async def _sample(session: "SessionServices", server: str, params: Any) -> Any:
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
        text = await session.small_model.ask(job, session.redact("\n\n".join(texts)).text)
    except OdinError as error:
        return ErrorData(code=INTERNAL_ERROR, message=error.describe())
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="odin-small")
