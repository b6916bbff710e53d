"""Verification in one session: the settings, the checks of the project, and the user's consent to run them.

The consent is stored in the configuration folder. It holds as long as a folder has exactly the same checks.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from odin.config import Config, get_config_dir
from odin.config.files import lock_file, write_atomically
from odin.core.errors import OdinError
from odin.core.event import Warned
from odin.core.event_values import Option, Question
from odin.core.text import join_some
from odin.engine.call import CallScope, TurnCalls
from odin.engine.interactions import Interactions
from odin.engine.pipeline import CallPipeline
from odin.engine.recorder import Recorder
from odin.engine.verification import ChangeVerifier, VerificationDeps
from odin.policy.commands.checks import ProjectChecks
from odin.tools.project_checks import find_project_checks

_YES = Option("Yes", "Odin runs them when a turn has changed files, and has the model fix what fails.")
_NO = Option("No", "Odin only reminds the model to run them.")
_MAX_NAMED = 5


class SessionVerification:
    """Makes the verifiers of the turns. What the user declines is not asked again in the same session."""

    def __init__(self, config: Config, env: Mapping[str, str], recorder: Recorder, interactions: Interactions) -> None:
        self._config = config
        self._env = env
        self._recorder = recorder
        self._interactions = interactions
        self._answers: dict[ProjectChecks, bool] = {}

    def make_verifier(self, pipeline: CallPipeline, turn: str, scope: CallScope, calls: TurnCalls) -> ChangeVerifier:
        """Return the verifier of one turn. Sub-agents are only reminded: their work is checked with the whole."""
        settings = self._config.verify
        deps = VerificationDeps(
            recorder=self._recorder,
            pipeline=pipeline,
            find_checks=lambda cwd, root: find_project_checks(cwd, root, self._env),
            confirm=lambda checks, ask: self._confirm(checks, ask, scope.agent),
            is_looping=lambda: self._recorder.state.get_loop(scope.agent).is_active,
            runs_checks=settings.mode == "run" and not scope.agent,
            configured=settings.configured,
            timeout_s=settings.timeout_s,
        )
        return ChangeVerifier(deps, turn, scope, calls)

    async def _confirm(self, checks: ProjectChecks, ask_id: str, agent: str) -> bool:
        """Return whether Odin may run checks that it found. The user is asked once per folder and set of checks."""
        known = self._answers.get(checks)
        if known is None:
            known = read_confirmation(checks, self._env)
        if known is None:
            known = await self._ask_user(checks, ask_id, agent) if self._interactions.can_ask else False
        self._answers[checks] = known
        return known

    async def _ask_user(self, checks: ProjectChecks, ask_id: str, agent: str) -> bool:
        names = join_some([f"`{command}`" for command in checks.commands], _MAX_NAMED)
        text = f"Odin found the checks {names} in {checks.folder}. May it run them after changes?"
        try:
            answers = await self._interactions.ask_questions(ask_id, (Question("Checks", text, (_YES, _NO)),), agent)
        except TimeoutError:
            return False
        if answers is None:
            return False
        allowed = answers[0][:1] == (_YES.label,)
        try:
            store_confirmation(checks, allowed=allowed, env=self._env)
        except (OdinError, OSError) as error:
            self._recorder.emit(Warned(f"The answer about the checks could not be saved: {error}"))
        return allowed


class ConfirmedChecks(msgspec.Struct, frozen=True):
    """The user's answer about the checks of a folder."""

    commands: tuple[str, ...]
    allowed: bool


def locate_confirmed_checks(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / "checks.json"


def read_confirmation(checks: ProjectChecks, env: Mapping[str, str]) -> bool | None:
    """Return the user's answer about these checks; None if there is none, or the store cannot be read."""
    entry = _read_confirmations(env).get(os.path.realpath(checks.folder))
    return entry.allowed if entry is not None and entry.commands == checks.commands else None


def store_confirmation(checks: ProjectChecks, *, allowed: bool, env: Mapping[str, str]) -> None:
    path = locate_confirmed_checks(env)
    with lock_file(path):
        answer = ConfirmedChecks(checks.commands, allowed)
        known = {**_read_confirmations(env), os.path.realpath(checks.folder): answer}
        data = msgspec.json.encode(dict(sorted(known.items())))
        write_atomically(path, msgspec.json.format(data, indent=2) + b"\n")


def _read_confirmations(env: Mapping[str, str]) -> dict[str, ConfirmedChecks]:
    try:
        return msgspec.json.decode(locate_confirmed_checks(env).read_bytes(), type=dict[str, ConfirmedChecks])
    except (OSError, msgspec.MsgspecError, UnicodeError):
        return {}
