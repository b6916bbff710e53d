"""The sandbox of one session, made when its first command asks for it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from odin.config import Config, cache_dir, config_dir, home_dir, state_dir

if TYPE_CHECKING:
    from odin.policy.confine.layout import Session
    from odin.policy.confine.proof import Proof, Wanted
    from odin.policy.sandbox import Sandbox

PROOFS = "sandbox.json"


class Confined:
    """`shown` are folders of the session that its commands may read, although they lie in Odin's own."""

    def __init__(self, config: Config, env: Mapping[str, str], *, state: str = "", shown: tuple[str, ...] = ()) -> None:
        self._config = config
        self._env = env
        self._state = state
        self._shown = shown
        self._made: Sandbox | None = None

    def get(self) -> "Sandbox":
        if self._made is None:
            self._made = self._make()
        return self._made

    def describe(self) -> str:
        """One line that says what commands run in."""
        from odin.policy.confine.proof import describe

        if self._made is not None:
            return self._made.describe()
        return describe(self._wanted(), self._proof(), self._path())

    def warning(self) -> str:
        """Why no command will run, when that is known."""
        if self._config.sandbox.use in ("auto", "off"):
            return ""
        from odin.policy.confine.proof import problem

        return self._made.problem if self._made is not None else problem(self._wanted(), self._proof())

    def _wanted(self) -> "Wanted":
        from odin.policy.confine.proof import Wanted

        settings = self._config.sandbox
        return Wanted(settings.use, settings.network, settings.outside_commands)

    def _proof(self) -> "Proof | None":
        from odin.policy.confine.proof import proof_key, remembered

        return remembered(self._proofs(), lambda: proof_key(self._wanted(), self._path()))

    def _path(self) -> str:
        from odin.policy.confine.layout import programs_path

        return programs_path(self._session())

    def _proofs(self) -> Path:
        return cache_dir(self._env) / PROOFS

    def other(self, use: str) -> "Sandbox":
        """The same session's sandbox if the configuration asked for that one. Nothing is remembered of it."""
        from odin.policy.confine.proof import Wanted
        from odin.policy.sandbox import Sandbox

        return Sandbox(self._session(), Wanted(use, self._config.sandbox.network))

    def _make(self) -> "Sandbox":
        from odin.policy.sandbox import Sandbox

        return Sandbox(self._session(), self._wanted(), self._proofs())

    def _session(self) -> "Session":
        from odin.policy.confine.layout import Session

        env = self._env
        home = os.path.realpath(home_dir(env))
        writable = (_with_home(path, home) for path in self._config.sandbox.writable)
        return Session(
            root=os.path.realpath(self._config.root),
            home=home,
            env=env,
            own=(str(config_dir(env)), *self._state_folders(), str(cache_dir(env))),
            shown=self._shown,
            writable=tuple(path for path in writable if path.startswith("/")),
        )

    def _state_folders(self) -> list[str]:
        """The folder of the state; also what is secret in it, when the project is one of the work trees there."""
        state = self._state or str(state_dir(self._env))
        inside = Path(os.path.realpath(state)) in Path(os.path.realpath(self._config.root)).parents
        return [state, *(f"{state}/{name}" for name in ("sessions", "checkpoints", "logs") if inside)]


def _with_home(path: str, home: str) -> str:
    return str(Path(home, path[2:])) if path == "~" or path.startswith("~/") else path
