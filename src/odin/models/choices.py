"""What the user chose in a project: the model pool, and the model in each pool. Kept in the state folder."""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, field

from odin.config import get_state_dir
from odin.config.files import lock_file, write_atomically
from odin.core.errors import OdinError

CHOICES_NAME = "model-choices.json"
_MAX_PROJECTS = 1000


class ProjectChoice(Struct, frozen=True, omit_defaults=True):
    """`pool` is the chosen pool. `picks` are the models picked in a pool, by role and pool."""

    pool: str = ""
    picks: dict[str, str] = field(default_factory=dict[str, str])


_DECODER = msgspec.json.Decoder(dict[str, ProjectChoice])


class ModelChoices:
    """The choices of one project. A file that cannot be read or written only means that nothing is remembered."""

    def __init__(self, env: Mapping[str, str], root: str) -> None:
        self._path: Path = get_state_dir(env) / CHOICES_NAME
        self._root = root

    @property
    def pool(self) -> str:
        return self._load().get(self._root, ProjectChoice()).pool

    def find_pick(self, role: str, pool: str) -> str:
        return self._load().get(self._root, ProjectChoice()).picks.get(f"{role}:{pool}", "")

    def save(self, role: str, pool: str, ref: str) -> None:
        """Remember the pool, "" for none, and the model picked in it."""
        try:
            with lock_file(self._path):
                choices = self._load()
                before = choices.pop(self._root, ProjectChoice())
                picks = {**before.picks, f"{role}:{pool}": ref} if pool else before.picks
                choices[self._root] = ProjectChoice(pool, picks)
                kept = dict(list(choices.items())[-_MAX_PROJECTS:])
                write_atomically(self._path, msgspec.json.encode(kept))
        except OdinError:
            return

    def _load(self) -> dict[str, ProjectChoice]:
        try:
            return _DECODER.decode(self._path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeError):
            return {}
