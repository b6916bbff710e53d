"""One of several agents that work on the same task for `odin best`: its worktree, its session, and the verdict."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec.structs import replace

from odin.app.agent_worktree import AgentWorktree, WorktreeDiff, WorktreeFile
from odin.app.sandbox import LazySandbox
from odin.config import Options, load
from odin.config.paths import make_environment
from odin.core.errors import OdinError
from odin.fleet.engine import TaskResult
from odin.fleet.session_run import RunStopped, SessionRun, find_failed_check
from odin.host.manager import SessionManager
from odin.sandbox.runner import ProcessRunner

Verdict = Literal["passed", "unchecked", "failed", "unfinished", "unchanged"]
"""How the work is judged, the best first. `unchecked`: there is no check. `unfinished`: a limit or an error came first,
so it was not checked."""

_VERDICTS: tuple[Verdict, ...] = ("passed", "unchecked", "failed", "unfinished", "unchanged")


class Candidate:
    """An agent in its worktree. `fault` is why its work is not accepted. `variables` are added for the checks."""

    def __init__(self, number: int, tree: AgentWorktree, options: Options, variables: Mapping[str, str]) -> None:
        self.number = number
        self.tree = tree
        self.variables = variables
        self.run: SessionRun | None = None
        self.result: TaskResult | None = None
        self.diff: WorktreeDiff | None = None
        self.verdict: Verdict | None = None
        self.fault = ""
        self._is_checked = False
        self._options = replace(options, cwd=tree.cwd)

    @property
    def model(self) -> str:
        return (self.run and self.run.model) or self._options.model or "the default model"

    @property
    def activity(self) -> str:
        now = "checks" if self._is_checked else self.run.progress.activity if self.run else ""
        return self.verdict or now or "starting"

    @property
    def usd(self) -> float:
        return self.run.progress.usd if self.run else 0.0

    @property
    def seconds(self) -> float:
        """How long it has worked or, if it is done, how long that took."""
        return self.result.seconds if self.result and self.verdict else self.run.seconds if self.run else 0.0

    @property
    def files(self) -> tuple[WorktreeFile, ...]:
        return self.diff.files if self.diff else ()

    @property
    def lines(self) -> tuple[int, int]:
        """How many lines were added and removed."""
        return sum(max(file.added, 0) for file in self.files), sum(max(file.removed, 0) for file in self.files)

    @property
    def rank(self) -> tuple[int, int, float]:
        """What candidates are sorted by: the verdict, then how little was changed, then the cost."""
        return _VERDICTS.index(self.verdict or "unfinished"), sum(self.lines), self.usd

    async def work(self, manager: SessionManager, run: SessionRun, checks: Sequence[str], folder: str) -> None:
        """Do the task, and run the checks in this folder of the worktree."""
        self.run = run
        result = await run.run(manager, self._options, self.tree.name)
        verdict: Verdict = "unfinished"
        try:
            self.diff = await self.tree.collect_diff()
            if not self.files:
                verdict, self.fault = "unchanged", result.detail or "It changed nothing."
            elif result.outcome != "passed":
                self.fault = result.detail or "It was stopped."
            elif not checks:
                verdict = "unchecked"
            else:
                self.fault = await run.unless_stopped(self._check(checks, folder))
                verdict = "failed" if self.fault else "passed"
        except RunStopped:
            self.fault = run.describe_stop("failed").detail
        except (OdinError, OSError) as error:
            self.fault = str(error)
        self.result = replace(result, seconds=run.seconds)
        self.verdict = verdict

    async def _check(self, checks: Sequence[str], folder: str) -> str:
        self._is_checked = True
        environment = make_environment(cwd=str(Path(self.tree.root, folder)), state_dir=self._options.state_dir)
        config = load(environment.cwd, environment.variables)
        sandbox = LazySandbox(config, environment)
        runner = ProcessRunner(environment, env_passthrough=config.env_passthrough, sandbox=sandbox.get)
        try:
            return await find_failed_check(checks, environment.cwd, runner, self.variables)
        finally:
            await runner.close()
            await sandbox.close()
