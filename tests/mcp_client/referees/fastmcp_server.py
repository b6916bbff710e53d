"""A server made with fastmcp, which most servers in Python are."""

from typing import Any

from fastmcp import Context, FastMCP  # pyright: ignore[reportMissingImports, reportUnknownVariableType]
from fastmcp.tools.base import ToolResult  # pyright: ignore[reportMissingImports, reportUnknownVariableType]

server: Any = FastMCP("fast")


@server.tool
def find_rows() -> Any:
    """Find rows."""
    return ToolResult(content="Found 2 rows.", structured_content={"rows": [{"id": 17}]})


@server.tool
async def ask_name(context: Context) -> str:  # pyright: ignore[reportUnknownParameterType]
    """Ask who is there."""
    answer: Any = await context.elicit("Who are you?", response_type=str)
    return f"{answer.action}: {getattr(answer, 'data', '')}"


@server.resource("mem://item/{n}")
def read_item(n: str) -> str:
    """The nth item."""
    return f"item {n}"


server.run(show_banner=False)
