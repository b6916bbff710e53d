"""The config options of a session: mode, role, model, effort and permission mode.

The older session modes are not sent: every setting is an option, and version 2 of the protocol has no modes.
"""

from collections.abc import Sequence

from odin.acp.protocol import INVALID_PARAMS, ConfigOption, OptionValue, RpcError
from odin.core.client import AgentSummary, AvailableModel, Client, SessionInfo
from odin.core.event_values import Mode
from odin.core.op import SetEffort, SetMode, SetModel, SetPermissionMode, SetRole
from odin.core.provider import EFFORTS
from odin.ui.line_server import parse_mode

_MODES = (
    ("ask", "Ask", "Answers questions and changes nothing."),
    ("plan", "Plan", "Reads and plans, but changes nothing."),
    ("edit", "Edit", "Edits files and runs commands."),
)
_PERMISSION_MODES = (
    ("default", "Ask", "Asks before it changes something."),
    ("acceptEdits", "Accept edits", "Edits in the project need no answer."),
    ("auto", "Sandboxed", "Sandboxed commands and edits in the project need no answer."),
    ("dontAsk", "Do not ask", "Denies what would need an answer."),
    ("bypassPermissions", "Allow all", "Asks nothing. Deny rules still apply."),
)
_USUAL = "default"


def list_options(
    info: SessionInfo, mode: Mode, agents: Sequence[AgentSummary], models: Sequence[AvailableModel]
) -> tuple[ConfigOption, ...]:
    roles = [OptionValue(value=one.name, name=one.name, description=one.description) for one in agents if one.is_role]
    refs = dict.fromkeys((info.model, *(model.ref for model in models)))
    options = [
        _make_option("mode", "Mode", mode.removesuffix("_mode"), _MODES, "mode"),
        ConfigOption(
            id="model",
            name="Model",
            current_value=info.pool or info.model,
            options=tuple(OptionValue(value=ref, name=ref) for ref in dict.fromkeys((*info.pools, *refs))),
            category="model",
        ),
        _make_option(
            "effort",
            "Effort",
            info.effort or _USUAL,
            ((_USUAL, "Default", "The model's own."), *((one, one.capitalize(), "") for one in EFFORTS)),
            "thought_level",
        ),
        _make_option("permission_mode", "Permissions", info.permission_mode, _PERMISSION_MODES),
    ]
    if len(roles) > 1:
        options.insert(1, ConfigOption(id="role", name="Role", current_value=info.role, options=tuple(roles)))
    return tuple(options)


def _make_option(
    id: str, name: str, value: str, values: Sequence[tuple[str, str, str]], category: str = ""
) -> ConfigOption:
    known = [OptionValue(value=one, name=label, description=about) for one, label, about in values]
    if all(one.value != value for one in known):
        known.append(OptionValue(value=value, name=value))
    return ConfigOption(id=id, name=name, current_value=value, options=tuple(known), category=category)


async def set_option(client: Client, id: str, value: str, mode: Mode) -> Mode:
    """Change a setting and return the mode of the next prompts. Raise OdinError if it cannot have that value."""
    match id:
        case "mode":
            mode = parse_mode(value)
            await client.submit(SetMode(mode))
        case "role":
            await client.submit(SetRole(value))
        case "model":
            await client.submit(SetModel(value, check=True))
        case "effort":
            await client.submit(SetEffort("" if value == _USUAL else value))
        case "permission_mode":
            await client.submit(SetPermissionMode(value))
        case _:
            known = "mode, role, model, effort or permission_mode"
            raise RpcError(INVALID_PARAMS, f"There is no option {id!r}.", f"Use {known}.")
    return mode
