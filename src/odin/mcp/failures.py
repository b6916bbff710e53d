"""What goes wrong with a server, in words: whatever the server, the system or the official package makes of it."""

import importlib
from typing import cast

from odin.config.settings import McpLimits, McpServerSettings
from odin.sandbox.runner import CONFINED_HINT, SandboxUnavailable

_UNREADABLE = ("Failed to parse JSON response", "Failed to parse SSE message")


def import_package() -> None:
    """Import the official package, and keep what it logs off the terminal: Odin says itself what matters."""
    import logging

    importlib.import_module("mcp")
    for name in ("mcp", "client", "httpx2"):
        logging.getLogger(name).propagate = False
        logging.getLogger(name).addHandler(logging.NullHandler())


def unpack(error: BaseException) -> BaseException:
    """Return the first error in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_refusal(error: BaseException) -> bool:
    """True if the server has answered, with an error or with what its revision of the protocol does not allow."""
    from mcp import MCPError

    error = unpack(error)
    return isinstance(error, RuntimeError | ValueError | MCPError) and not is_lost(error)


def is_lost(error: BaseException) -> bool:
    """True if the connection ended before there was an answer."""
    import anyio
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    error = unpack(error)
    lost = anyio.ClosedResourceError | anyio.BrokenResourceError | anyio.EndOfStream
    return isinstance(error, lost) or (isinstance(error, MCPError) and error.error.code == CONNECTION_CLOSED)


def describe_failure(error: BaseException, settings: McpServerSettings, limits: McpLimits) -> str:
    """Return why a server failed, as a clause."""
    error = unpack(error)
    if isinstance(error, TimeoutError):
        return f"it did not answer within {limits.connect_s:g} s"
    if isinstance(error, FileNotFoundError):
        is_cwd = bool(settings.cwd) and str(error.filename).endswith(settings.cwd)
        missing = settings.cwd if is_cwd else settings.command
        return f"{missing} was not found"
    if isinstance(error, SandboxUnavailable):
        return f"{str(error)[:1].lower()}{str(error)[1:].rstrip('.')}. {CONFINED_HINT}"
    if isinstance(error, PermissionError):
        return f"{settings.command} cannot be run"
    name = type(error).__name__
    if name in ("ConnectError", "ConnectTimeout"):
        return f"{settings.url} cannot be reached"
    if name == "ValidationError":
        return "it sent a message that breaks the protocol"
    text = str(error).strip().split("\n")[0]
    if text.startswith(_UNREADABLE):
        text = text[text.index("it sent") :] if "it sent" in text else "it sent broken JSON"
    return (text or name).rstrip(".")[:300]
