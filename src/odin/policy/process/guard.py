"""What the runner asks of a sandbox. Which one there is, is decided elsewhere."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from odin.core.tool import SandboxProfile
from odin.policy.process.child import ChildProcess


class SandboxUnavailable(OSError):
    """The sandbox that was asked for does not work, so a command was not run. The text says why and what to do."""

    def __str__(self) -> str:
        return str(self.args[-1])


class CommandSandbox(Protocol):
    def watch_groups(self, tell: Callable[[int, bool], None]) -> None:
        """Tell of process groups that begin and end, so that somebody can end them when Odin is killed."""
        ...

    def should_sandbox(self, command: str | Sequence[str], sandbox_profile: SandboxProfile) -> bool:
        """Whether a command is to run inside. Raises Unconfined when it must and cannot."""
        ...

    def build_environment(self, env: Mapping[str, str], sandbox_profile: SandboxProfile) -> dict[str, str]:
        """What a command inside gets to see of the environment."""
        ...

    def start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, err: int, sandbox_profile: SandboxProfile
    ) -> ChildProcess:
        """Start a command inside. Raises OSError when it cannot be started."""
        ...

    def stamp_protected_files(self, cwd: str, sandbox_profile: SandboxProfile) -> Any:
        """What is to be compared after a command."""
        ...

    def find_tampered_files(self, seen: Any, cwd: str) -> tuple[str, ...]:
        """Files that the command left or changed and that other programs obey."""
        ...

    def describe_denial(self, output: str, code: int, cwd: str, sandbox_profile: SandboxProfile) -> str:
        """What the sandbox seems to have kept a failed command from, or ""."""
        ...

    def kill(self) -> None:
        """End the sandbox with everything in it."""
        ...
