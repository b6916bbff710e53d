"""Sessions with secrets in every text of every event, for tests of what is shared."""

import itertools
import os
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from odin.config.paths import get_state_dir
from odin.core.event import AnyEvent, Envelope, SessionOpened, TurnEnded, TurnStarted
from odin.session.log import SessionLog
from odin.session.store import SessionStore

SHAPE = "sk-ant-api03-QpWnErTyUiOpAsDfGhJk1234"
COLORED = "ghp_Zx9Qw8Er7Ty6Ui5Op4As\x1b[1m3Df2Gh1Jk0\x1b(B"
HIDDEN = "glpat-Qw3rTy\u200bUi0pAsDfGhJkLzXc"
STORED = "stored-Key-8fj2kd93mfn4"
VARIABLE = "variable-Value-71hf8sk2"
ENV_FILE = "envfile-Value-92jf0a1x"
EMAIL = "jane.doe@corp-mail.com"
_numbers = itertools.count()
SECRETS = (SHAPE, "3Df2Gh1Jk0", "Ui0pAsDfGhJkLzXc", STORED, VARIABLE, ENV_FILE, EMAIL)
"""What must not be found, also of the two that are split by what a page drops."""


def plant_secrets(home: Path, workspace: Path) -> dict[str, str]:
    """Store the secrets that Odin knows by their values. Return the variables of the environment."""
    config = home / ".config/odin"
    config.mkdir(parents=True, exist_ok=True)
    (config / "auth.json").write_text(msgspec.json.encode({"anthropic": STORED}).decode())
    (config / "auth.json").chmod(0o600)
    (workspace / ".env").write_text(f"DB_LOGIN={ENV_FILE}\n")
    return {"SERVICE_TOKEN": VARIABLE}


def make_text(home: Path) -> str:
    return f"visible {SHAPE} {COLORED} {HIDDEN} {STORED} {VARIABLE} {ENV_FILE} {EMAIL} {home}/notes"


def make_full_event(kind: type[AnyEvent], text: str, **given: Any) -> AnyEvent:
    """Return an event of this kind with the text in every field that can hold one."""
    return kind(**{**_fill_fields(kind, text), **given})


def list_full_events(text: str) -> list[AnyEvent]:
    """Return one turn with an event of every durable kind, full of the text."""
    ends = (SessionOpened, TurnStarted, TurnEnded)
    middle = [kind for kind in get_args(AnyEvent) if kind.durable and kind not in ends]
    kinds = [SessionOpened, TurnStarted, *middle, TurnEnded]
    return [make_full_event(kind, text) for kind in kinds]


def write_log(workspace: Path, events: Sequence[AnyEvent | tuple[str, AnyEvent]], session: str = "") -> Path:
    """Write a session of the workspace and return its log. An event of a sub-agent comes with its name."""
    store, session = SessionStore(get_state_dir(os.environ), str(workspace)), session or f"s{next(_numbers)}"
    log: SessionLog = store.create(str(workspace), session)
    for number, item in enumerate(events):
        agent, event = item if isinstance(item, tuple) else ("", item)
        log.append(Envelope(number, 1_700_000_000.0 + number, session, event, agent))
    log.close()
    return log.path


def _fill_fields(kind: Any, text: str) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {item.name: _fill(hints[item.name], text) for item in msgspec.structs.fields(kind)}


def _fill(kind: Any, text: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _fill(inner[0], text)
    if origin is Literal:
        return inner[0]
    if origin in (Union, types.UnionType):
        return _fill(next(item for item in inner if item is not type(None)), text)
    if origin is tuple:
        return (_fill(inner[0], text),)
    if origin is dict or kind is dict:
        return {"text": text, "nested": [{"more": text}], text: 1}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return kind(**_fill_fields(kind, text))
    values: dict[Any, Any] = {str: text, bytes: text.encode(), bool: False, int: 1, float: 1.0}
    return values.get(kind, text)
