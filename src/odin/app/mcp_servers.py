"""Connects the MCP servers of a session with its approvals, its log and its small model."""

from typing import TYPE_CHECKING, Any, cast

from odin.core.errors import OdinError
from odin.core.small_jobs import SmallJob
from odin.mcp.servers import ServerDeps, SessionServers

if TYPE_CHECKING:
    from odin.app.compose import SessionComposition

_MAX_SAMPLE_TOKENS = 4_096
_SAMPLING = "Answer the request of a program. You have no tools."


def make_servers(session: "SessionComposition") -> SessionServers:
    async def sample(server: str, params: Any) -> Any:
        return await _sample(session, server, params)

    can_ask = session.approvals.can_ask
    deps = ServerDeps(
        config=session.config,
        env=session.env,
        folder=session.folder,
        bus=session.recorder.bus,
        emit=session.recorder.emit,
        redact=lambda text: session.redact(text).text,
        is_busy=lambda: session.recorder.state.conversation.is_executing,
        ask_user=session.approvals.ask_questions if can_ask else None,
        sample=sample,
        is_lazy=session.options.headless,
    )
    return SessionServers(deps, sorted(session.recorder.state.enabled_servers))


async def _sample(session: "SessionComposition", server: str, params: Any) -> Any:
    """Answer a sampling request with the small model. The configuration of the server allows it."""
    from mcp_types import INTERNAL_ERROR, CreateMessageResult, ErrorData, TextContent

    texts: list[str] = []
    for message in params.messages:
        content: Any = message.content
        blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
        said = "\n".join(block.text for block in blocks if block.type == "text")
        texts.append(said if len(params.messages) == 1 else f"{message.role}: {said}")
    job = SmallJob("sampling", params.system_prompt or _SAMPLING, min(params.max_tokens, _MAX_SAMPLE_TOKENS))
    try:
        text = await session.small_model.ask(job, session.redact("\n\n".join(texts)).text)
    except OdinError as error:
        return ErrorData(code=INTERNAL_ERROR, message=error.describe())
    return CreateMessageResult(role="assistant", content=TextContent(type="text", text=text), model="odin-small")
