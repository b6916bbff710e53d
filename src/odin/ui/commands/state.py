"""How a session is set up, in words, and what is said where there is nothing to show."""

from odin.core.client import SessionInfo

NO_MCP_SERVERS = "No MCP servers are connected: this version of Odin does not speak MCP yet."
NO_LANGUAGE_SERVERS = "No language servers are connected, so nothing is said here about the files at hand."
DOCTOR_HINT = "`odin doctor` looks at the settings, the keys and this machine."


def list_facts(info: SessionInfo) -> list[tuple[str, str]]:
    """What one would want to know when something is wrong."""
    return [
        ("session", info.session),
        ("folder", info.cwd),
        ("model", info.model),
        ("version", info.version),
        ("permissions", info.permission_mode),
        ("commands run in", info.sandbox or "no sandbox"),
        ("budget", f"${info.budget_usd:g}" if info.budget_usd else "no limit"),
        ("tools", f"{len(info.tools)}"),
        *([("log file", info.log_file)] if info.log_file else []),
    ]
