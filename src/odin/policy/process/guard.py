"""What the runner asks of a sandbox. Which one there is, is decided elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from odin.core.tool import Confinement
from odin.policy.process.child import Child


class Unconfined(OSError):
    """The sandbox that was asked for does not work, so a command was not run. The text says why and what to do."""

    def __str__(self) -> str:
        return str(self.args[-1])


class Guard(Protocol):
    def watch(self, tell: Callable[[int, bool], None]) -> None:
        """Tell of process groups that begin and end, so that somebody can end them when Odin is killed."""
        ...

    def confines(self, command: str | Sequence[str], confinement: Confinement) -> bool:
        """Whether a command is to run inside. Raises Unconfined when it must and cannot."""
        ...

    def environment(self, env: Mapping[str, str], confinement: Confinement) -> dict[str, str]:
        """What a command inside gets to see of the environment."""
        ...

    def start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, err: int, confinement: Confinement
    ) -> Child:
        """Start a command inside. Raises OSError when it cannot be started."""
        ...

    def before(self, cwd: str, confinement: Confinement) -> Any:
        """What is to be compared after a command."""
        ...

    def after(self, seen: Any, cwd: str) -> tuple[str, ...]:
        """Files that the command left or changed and that other programs obey."""
        ...

    def blocked(self, output: str, code: int, cwd: str, confinement: Confinement) -> str:
        """What the sandbox seems to have kept a failed command from, or ""."""
        ...

    def kill(self) -> None:
        """End the sandbox with everything in it."""
        ...
