"""A server made with fastmcp, which most servers in Python are."""

# It runs in the environment that has fastmcp.
# pyright: basic, reportMissingImports=false

import sys

from fastmcp import Context, FastMCP
from fastmcp.tools.base import ToolResult

server = FastMCP("fast")


@server.tool
def find_rows() -> ToolResult:
    """Find rows."""
    return ToolResult(content="Found 2 rows.", structured_content={"rows": [{"id": 17}]})


@server.tool
async def ask_name(context: Context) -> str:
    """Ask who is there."""
    answer = await context.elicit("Who are you?", response_type=str)
    return f"{answer.action}: {getattr(answer, 'data', '')}"


@server.resource("mem://item/{n}")
def read_item(n: str) -> str:
    """The nth item."""
    return f"item {n}"


if len(sys.argv) > 1:
    server.run("http", show_banner=False, host="127.0.0.1", port=int(sys.argv[1]))
else:
    server.run(show_banner=False)
