"""Keeps the commands of a session in the strongest sandbox that works here, and says which one that is.

A sandbox is made when the first command needs it, and commands are started inside it from then on: one that may change
the project and temporary files, and one that may only look. Both see the same network, which is their own and leads
nowhere unless it is allowed.
"""

import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from odin.core.tool import Confinement
from odin.policy.confine.blocked import blocked
from odin.policy.confine.bubblewrap import WAYS, inner_argv
from odin.policy.confine.choice import candidates, leaks, make, possible
from odin.policy.confine.keeper import ConfinedChild, Keeper, KeeperGone, NotConfined, open_inner
from odin.policy.confine.landlock import temporary
from odin.policy.confine.layout import Layout, Session, exposed, layout, programs_path
from odin.policy.confine.planted import Stamps, obeyed, planted, stamps
from odin.policy.confine.proof import (
    Candidate,
    Kind,
    Proof,
    Wanted,
    describe,
    find_program,
    problem,
    proof_key,
    remember,
    remembered,
)
from odin.policy.confine.secret import NOT_INSIDE
from odin.policy.process.guard import Unconfined

_SHELL_SIGNS = re.compile(r"[;&|<>`$(){}\n\\\"'*?\[\]~#!]")

_PRIVATE_TMP = "/dev/shm"

_TRIES = 3


class Sandbox:
    """`proofs` is the file in which it is kept which sandbox works here."""

    def __init__(self, session: Session, wanted: Wanted | None = None, proofs: Path | None = None) -> None:
        self._session = session
        self._wanted = wanted or Wanted()
        self._proofs = proofs
        self._path = programs_path(session)
        self._fault = ""
        self._proof: Proof | None = None
        self._keepers: dict[bool, Keeper] = {}
        self._layouts: dict[bool, Layout] = {}
        self._root: tuple[int, int] = (0, 0)
        self._joined = False
        self._tell: Callable[[int, bool], None] = lambda group, alive: None

    def watch(self, tell: Callable[[int, bool], None]) -> None:
        """Tell of process groups that begin and end, so that somebody can end them when Odin is killed."""
        self._tell = tell

    @property
    def kind(self) -> Kind | None:
        """What commands run in, or None when it was never tried here."""
        if self._wanted.use == "off":
            return "none"
        proof = self._known()
        return proof.found.kind if proof else None

    @property
    def problem(self) -> str:
        """Why commands do not run at all: the sandbox that was asked for does not work, or not for this project."""
        return self._fault or problem(self._wanted, self._known())

    def reasons(self) -> dict[str, str]:
        """Why the sandboxes that were tried do not work."""
        proof = self._known()
        return proof.reasons if proof else {}

    def describe(self) -> str:
        """One line for people."""
        return describe(self._wanted, self._known(), self._path)

    def prove(self, *, anew: bool = False) -> None:
        """Find out now which sandbox works, instead of with the first command, whatever was found before."""
        if anew and self._wanted.use != "off":
            self._try_anew()
        elif self.kind is None:
            self._keeper(writes=True)

    def _try_anew(self) -> None:
        self.kill()
        keeper = self._try_all(writes=True)
        if keeper is not None:
            keeper.kill()

    def confines(self, command: str | Sequence[str], confinement: Confinement) -> bool:
        """Whether a command is to run inside. Raises Unconfined when it must and cannot."""
        if self._wanted.use == "off" or (confinement.outside and confinement.writes) or self._is_outside(command):
            return False
        if self.kind is None:
            self._keeper(writes=confinement.writes)
        lacking = problem(self._wanted, self._known())
        if lacking:
            raise Unconfined(0, lacking)
        return self.kind != "none"

    def _is_outside(self, command: str | Sequence[str]) -> bool:
        """Whether the user wants it outside: one plain command, without anything the shell would make of it."""
        if not isinstance(command, str) or _SHELL_SIGNS.search(command):
            return False
        words = command.split()
        begun = (prefix.split() for prefix in self._wanted.outside_commands)
        return any(prefix and words[: len(prefix)] == prefix for prefix in begun)

    def environment(self, env: Mapping[str, str], confinement: Confinement) -> dict[str, str]:
        """Without the ways to agents and daemons outside, and with a place for temporary files."""
        inside = {name: value for name, value in env.items() if name not in NOT_INSIDE}
        plan = self._layout(writes=confinement.writes)
        folders = temporary(plan) if self.kind == "landlock" else list(plan.temporary)
        if os.path.realpath(env.get("TMPDIR") or "/tmp") not in folders:
            inside["TMPDIR"] = folders[0] if folders else _PRIVATE_TMP
        return inside

    def start(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], out: int, err: int, confinement: Confinement
    ) -> ConfinedChild:
        """Start a command inside. Raises OSError when it cannot be started."""
        keeper = self._keeper(writes=confinement.writes)
        if keeper is None:
            raise Unconfined(0, self.problem or "the sandbox that worked before does not work any more")
        try:
            return keeper.start(argv, cwd, env, out, err)
        except KeeperGone:
            self.kill()
        keeper = self._keeper(writes=confinement.writes)
        if keeper is None:
            raise Unconfined(0, self.problem or "the sandbox has ended and cannot be made again")
        return keeper.start(argv, cwd, env, out, err)

    def before(self, cwd: str, confinement: Confinement) -> Stamps | None:
        """What other programs obey in the project, as it is before a command."""
        return stamps(self._session.root, os.path.realpath(cwd)) if confinement.writes else None

    def after(self, seen: Stamps | None, cwd: str) -> tuple[str, ...]:
        """Which of that is new, or not as it was."""
        return planted(seen, self._session.root, os.path.realpath(cwd)) if seen is not None else ()

    def blocked(self, output: str, code: int, cwd: str, confinement: Confinement) -> str:
        """What the sandbox seems to have kept a failed command from, or ""."""
        return blocked(output, code, cwd, self._layout(writes=confinement.writes), network=self._wanted.network)

    def kill(self) -> None:
        """End the sandboxes with everything in them."""
        for keeper in self._keepers.values():
            keeper.kill()
            if keeper.group:
                self._tell(keeper.group, False)
        self._keepers.clear()
        self._layouts.clear()
        self._joined = False

    def _known(self) -> Proof | None:
        if self._proof is None:
            proof = remembered(self._proofs, lambda: proof_key(self._wanted, self._path))
            if proof is not None and (proof.found in candidates(self._wanted.use) or proof.found.kind == "none"):
                self._proof = proof
        return self._proof

    def _layout(self, *, writes: bool) -> Layout:
        if writes not in self._layouts:
            self._layouts[writes] = layout(self._session, writes=writes)
        return self._layouts[writes]

    def _keeper(self, *, writes: bool) -> Keeper | None:
        """The sandbox to start commands in, made when it is needed. None when none works."""
        self._renew()
        if not writes and self._separate():
            self._keepers.pop(False).kill()
        if writes not in self._keepers:
            keeper = self._make(writes=writes)
            if keeper is None:
                return None
            self._keepers[writes] = keeper
            if keeper.group:
                self._tell(keeper.group, True)
        return self._keepers[writes]

    def _renew(self) -> None:
        """Begin anew when the project's folder is another one, or there is more to guard or hide and nothing runs."""
        moved = True in self._keepers and self._identity() != self._root
        if moved or (self._outdated() and all(self._alone(keeper) for keeper in self._keepers.values())):
            self.kill()

    def _outdated(self) -> bool:
        plans = [self._layouts[writes] for writes in self._keepers if writes in self._layouts]
        if any(plan.guarded != tuple(obeyed(self._session.root)) for plan in plans if plan.writable):
            return True
        return any(exposed(plan, self._session) for plan in plans)

    def _alone(self, keeper: Keeper) -> bool:
        """Whether nothing but our own programs runs in a sandbox."""
        proof = self._proof
        if proof is None or proof.found.kind != "bubblewrap" or not WAYS[proof.found.way].processes:
            return False
        inner = self._keepers.get(False)
        try:
            return keeper.count() <= (3 if inner is not None and not inner.group else 1)
        except OSError:
            return False

    def _separate(self) -> bool:
        """Whether the sandbox for looking has a network of its own although there is one to share, and is idle."""
        looking = self._keepers.get(False)
        shared = self._wanted.network or self._joined or True not in self._keepers
        return looking is not None and not shared and self._alone(looking)

    def _identity(self) -> tuple[int, int]:
        try:
            status = Path(self._session.root).stat()
        except OSError:
            return (0, 0)
        return status.st_dev, status.st_ino

    def _make(self, *, writes: bool) -> Keeper | None:
        if writes:
            self._layouts.pop(True, None)
            self._root = self._identity()
        known = self._known()
        if known is not None:
            if known.found.kind == "none":
                return None
            try:
                return self._open_or_stop(known.found, writes=writes)
            except NotConfined:
                self._proof = None
        return self._try_all(writes=writes)

    def _open_or_stop(self, candidate: Candidate, *, writes: bool) -> Keeper | None:
        """A sandbox of this kind; None when the machine can make one, and not this one.

        A project must not be able to choose a weaker one by what it puts in the way. What was to be hidden may have
        gone in the meantime, so it is tried again with what is there now. Raises NotConfined when the machine cannot.
        """
        self._fault = ""
        for _ in range(_TRIES):
            try:
                return self._open(candidate, writes=writes)
            except NotConfined as error:
                self._layouts.pop(writes, None)
                if not error.passing and not possible(candidate, network=self._wanted.network, path=self._path):
                    raise
                self._fault = (
                    f"The sandbox {candidate.kind} works on this machine and could not be made now: {error}. "
                    'If it stays so, set sandbox.use to "landlock" or "off" in your user file.'
                )
                if error.passing:
                    break
        return None

    def _try_all(self, *, writes: bool) -> Keeper | None:
        reasons: dict[str, str] = {}
        keeper, found = None, Candidate("none")
        for candidate in candidates(self._wanted.use):
            try:
                keeper, found = self._open_or_stop(candidate, writes=writes), candidate
            except NotConfined as error:
                reasons.setdefault(candidate.kind, str(error))
            else:
                reasons.pop(candidate.kind, None)
                break
        self._proof = Proof(proof_key(self._wanted, self._path), found, reasons, leaks(found))
        if not self._fault:
            remember(self._proofs, self._proof)
        return keeper

    def _open(self, candidate: Candidate, *, writes: bool) -> Keeper:
        plan = self._layout(writes=writes)
        network = self._wanted.network
        if not writes and not network and candidate.kind == "bubblewrap" and True in self._keepers:
            try:
                keeper = self._beside(self._keepers[True], candidate, plan)
            except (NotConfined, OSError):
                pass
            else:
                self._joined = True
                return keeper
        return make(candidate, plan, network=network, path=self._path)

    def _beside(self, outer: Keeper, candidate: Candidate, plan: Layout) -> Keeper:
        """A sandbox for looking, with the network of the one for writing: root enters it, others are put inside."""
        if os.getuid() == 0:
            return make(candidate, plan, network=False, path=self._path, join=f"/proc/{outer.pid}/ns/net")
        return open_inner(outer, inner_argv(find_program("bwrap", self._path), sys.executable), {"PATH": self._path})
