"""Which agent of a session wrote a file last, so that another one that has read it is told whose change it meets."""

MAIN_AGENT = "the main agent"


class LastWriters:
    """One for all agents of a session."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}

    def record(self, path: str, agent: str, sha256: str) -> None:
        self._last[path] = (agent, sha256)

    def find_other_writer(self, path: str, sha256: str, reader: str) -> str:
        """The other agent that left the file with these bytes; empty when it was somebody outside the session."""
        agent, written = self._last.get(path, (reader, ""))
        return "" if agent == reader or written != sha256 else agent or MAIN_AGENT
