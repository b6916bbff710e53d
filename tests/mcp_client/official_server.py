"""A server made with the official package, which speaks every revision."""

from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

server = MCPServer("official")


class Name(BaseModel):
    name: str


@server.tool()
async def ask_name(context: Context) -> str:
    """Ask who is there."""
    answer = await context.elicit("Who are you?", Name)
    return f"{answer.action}: {answer.data.name}" if answer.action == "accept" else answer.action


server.run()
