"""Every configuration key with its default, limits and description.

The JSON schema and the table in the documentation are generated from these classes.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, to_builtins

from odin.config.trust import TrustStatus
from odin.context.settings import CacheSettings, CompactionSettings
from odin.core.event import Delivery
from odin.core.policy import RuleLayer
from odin.core.tui_settings import TuiSettings
from odin.policy.modes import PermissionMode
from odin.providers.settings import ProviderSettings


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """Limits of the project snapshot before a command. A file that is edited is always saved."""

    enabled: Annotated[bool, Meta(description="Save files before they are changed. Without it there is no undo.")] = (
        True
    )
    max_files: Annotated[int, Meta(description="Files of the project saved before a command at most.", ge=0)] = 20_000
    max_bytes: Annotated[int, Meta(description="Bytes of all of them together at most.", ge=0)] = 200_000_000
    max_file_bytes: Annotated[int, Meta(description="Larger files are not saved before a command.", ge=0)] = 10_000_000
    max_store_bytes: Annotated[
        int, Meta(description="When a project's store is larger, what is older than 30 days is removed.", ge=0)
    ] = 2_000_000_000


_DELIVERIES: dict[str, Delivery] = {"sequential": "queue", "merge": "merge", "steer": "steer"}


class QueueSettings(Struct, frozen=True, kw_only=True):
    """A prompt joins the running turn only if both have the same mode; otherwise it waits for its own turn."""

    mode: Annotated[
        Literal["sequential", "merge", "steer"],
        Meta(
            description="`sequential`: it waits and is answered by itself. `merge`: it goes into the running turn with "
            "the next request. `steer`: the same, and calls that have not begun are left out."
        ),
    ] = "sequential"
    steering: Annotated[
        Literal["one-at-a-time", "all"],
        Meta(description="How many steering prompts one request takes."),
    ] = "one-at-a-time"

    @property
    def delivery(self) -> Delivery:
        return _DELIVERIES[self.mode]


SandboxBackend = Literal["auto", "bubblewrap", "landlock", "off"]
SandboxEntry = Annotated[str, Meta(min_length=1)]


class SandboxSettings(Struct, frozen=True, kw_only=True):
    """By default the strongest sandbox available, without network."""

    backend: Annotated[
        SandboxBackend,
        Meta(description="Which sandbox: `auto` takes the strongest; one that does not work runs no commands."),
    ] = "auto"
    network: Annotated[bool, Meta(description="Whether commands in the sandbox reach the network.")] = False
    writable_paths: Annotated[
        tuple[SandboxEntry, ...],
        Meta(description="Folders that commands may write beside the project, such as `~/.cache`."),
    ] = ()
    unsandboxed_commands: Annotated[
        tuple[SandboxEntry, ...],
        Meta(description="Commands that run outside at once, as the words they begin with, such as `docker`."),
    ] = ()


SearchBackend = Literal["none", "brave", "duckduckgo", "searxng"]


class SearchSettings(Struct, frozen=True, kw_only=True):
    backend: Annotated[
        SearchBackend, Meta(description="The search engine of WebSearch, which is not there without one.")
    ] = "none"
    api_key: Annotated[
        str, Meta(description="The key `brave` needs, or $NAME to take it from an environment variable.")
    ] = ""
    url: Annotated[
        str, Meta(description="The address of your `searxng`; for the others, one to use instead of the usual.")
    ] = ""


class WebSettings(Struct, frozen=True, kw_only=True):
    timeout_s: Annotated[float, Meta(description="Seconds a page or a search may take.", gt=0, le=120)] = 30.0
    user_agent: Annotated[str, Meta(description="How Odin names itself to web servers. Empty: odin/VERSION.")] = ""
    search: Annotated[SearchSettings, Meta(description="Searching the web.")] = SearchSettings()


ModeName = Literal["ask", "plan", "edit", "ask_mode", "plan_mode", "edit_mode"]
NonEmptyText = Annotated[str, Meta(min_length=1)]
Temperature = Annotated[float, Meta(ge=0, le=2)]
NonEmptyTexts = tuple[NonEmptyText, ...]


def describe(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class RetrySettings(Struct, frozen=True, kw_only=True):
    """How failed model requests are retried."""

    attempts: Annotated[int, describe("How many times a call is made at most; 1 means no retry.", ge=1, le=50)] = 6
    base_s: Annotated[float, describe("Seconds before the first retry; each later one waits twice as long.", ge=0)] = (
        1.0
    )
    max_s: Annotated[float, describe("The longest wait between two tries, in seconds.", ge=0, le=3600)] = 60.0


class ConfigKeys(Struct, frozen=True, kw_only=True):
    """All keys of `odinconfig.json`."""

    allowed_commands: Annotated[
        NonEmptyTexts,
        describe(
            "Commands that run without a question, as the words they begin with: `git status` allows `git status -s`."
        ),
    ] = field(default=(), name="AllowedCommands")
    forbidden_commands: Annotated[
        NonEmptyTexts,
        describe(
            "Commands that never run, as the words they begin with, also inside compound commands. "
            "They win over everything, and all files add to them."
        ),
    ] = field(default=(), name="ForbiddenCommands")
    model: Annotated[str, describe("The planner's model as `provider/model`. Empty: the first that is found.")] = ""
    small_model: Annotated[
        str, describe("The lesser model for titles, checks and summaries. Empty: chosen for you.")
    ] = ""
    fallback_model: Annotated[
        NonEmptyTexts,
        describe("Models that answer, in this order, while the planner's model cannot: it is overloaded, say."),
    ] = ()
    mode: Annotated[ModeName, describe("The mode of a prompt that names none: `ask`, `plan` or `edit`.")] = "edit_mode"
    permission_mode: Annotated[PermissionMode, describe("What runs without a question.")] = "default"
    max_turns: Annotated[int, describe("Model calls in one prompt at most; 0 means no limit.", ge=0)] = 100
    max_budget_usd: Annotated[float, describe("US dollars one session may cost; 0 means no limit.", ge=0)] = 0.0
    max_budget_usd_per_day: Annotated[
        float, describe("US dollars all sessions together may cost in a day; 0 means no limit.", ge=0)
    ] = 0.0
    max_tokens: Annotated[int, describe("Tokens in one reply at most.", ge=1)] = 8192
    max_context: Annotated[
        int, describe("Tokens a request may have at most, whatever the model can hold; 0 means what it can hold.", ge=0)
    ] = 0
    compaction: Annotated[
        CompactionSettings, describe("How a long conversation is kept within the window of the model.")
    ] = CompactionSettings()
    temperature: Annotated[Temperature | None, describe("The model's temperature. Not sent when absent.")] = None
    thinking: Annotated[int, describe("Tokens the model may think with; 0 means no extended thinking.", ge=0)] = 0
    default_response: Annotated[str, describe("What is shown when the model's final answer is empty.")] = (
        "Completed processing; there is no response to show."
    )
    allowed_tools: Annotated[
        NonEmptyTexts,
        describe("Calls that run without a question: `Tool` or `Tool(pattern)`, such as `Bash(git log:*)`."),
    ] = ()
    disallowed_tools: Annotated[
        NonEmptyTexts,
        describe("Calls that never run, in the same form. A bare name is not offered at all. All files add to them."),
    ] = ()
    restrict_to_workspace: Annotated[bool, describe("Refuse what lies outside the project instead of asking.")] = False
    confirm_timeout_s: Annotated[
        float,
        describe("Seconds a permission question waits; then the answer is no. 0 means as long as it takes.", ge=0),
    ] = 0.0
    question_timeout_s: Annotated[
        float, describe("Seconds a question of the model waits for an answer; 0 means as long as it takes.", ge=0)
    ] = 0.0
    read_before_edit: Annotated[bool, describe("A file must have been read before it is changed.")] = True
    speculate: Annotated[
        bool, describe("Begin calls that can be taken back while the model still writes its reply.")
    ] = True
    cache: Annotated[
        CacheSettings, describe("What an agent keeps of the files it has read, and how edits are checked against it.")
    ] = CacheSettings()
    checkpoints: Annotated[
        CheckpointSettings,
        describe("What is saved before files change, so that undo can bring it back. User file only."),
    ] = CheckpointSettings()
    sandbox: Annotated[
        SandboxSettings, describe("What commands are kept in, and what is let out of it. User file only.")
    ] = SandboxSettings()
    env_passthrough: Annotated[
        NonEmptyTexts,
        describe("Secret-looking environment variables that commands may see all the same. User file only."),
    ] = ()
    providers: Annotated[
        dict[str, ProviderSettings], describe("Where models are reached and with which key. User file only.")
    ] = field(default_factory=dict[str, ProviderSettings])
    web: Annotated[WebSettings, describe("How web pages are fetched and searched. User file only.")] = WebSettings()
    retry: Annotated[RetrySettings, describe("How a failed model call is tried again.")] = RetrySettings()
    queue: Annotated[QueueSettings, describe("What becomes of a prompt that comes while another is answered.")] = (
        QueueSettings()
    )
    tui: Annotated[TuiSettings, describe("How the terminal app looks and behaves. User file only.")] = TuiSettings()
    commands: Annotated[
        dict[str, Any],
        describe(
            "Custom commands: name → text, or name → `body`, `description` and `argument-hint`. "
            "`$ARGUMENTS` in a text is what was typed behind the name. Files in `commands` win over these."
        ),
    ] = field(default_factory=dict[str, Any])
    system_header: Annotated[
        str, describe("A block of text that stands before the system prompt, where an API wants one. User file only.")
    ] = ""
    rules: Annotated[
        list[Any] | dict[str, Any],
        describe(
            "What is allowed, asked about and denied, by tool and pattern. All files add to them, in their order."
        ),
    ] = field(default_factory=list[Any])
    hooks: Annotated[
        dict[str, Any],
        describe("Programs that are told what happens and may have a say in it, by event. All files add to them."),
    ] = field(default_factory=dict[str, Any])


_PRIVATE_KEYS = ("providers", "web", "system_header", "env_passthrough", "hooks", "tui", "commands")


class LayerDeclaration(Struct, frozen=True):
    """The value of a key in one layer, verbatim, and where it is written.

    A project's rules and hooks may allow or start something only if `trusted`.
    """

    value: Any
    layer: RuleLayer
    source: str
    trusted: bool = True


class Config(ConfigKeys, frozen=True, kw_only=True):
    """The configuration of one session: the merged keys and where they came from.

    `sources` names the layer that set each key. `written` keeps, for a value that came from a variable, the text with
    the variable's name; only the session itself sees the value. `declared` keeps the rules and hooks of each layer
    apart, strongest last. `wanted` is what the project's file requests and gets only in a trusted folder.
    """

    root: str = ""
    warnings: tuple[str, ...] = ()
    trust: TrustStatus = field(default_factory=TrustStatus)
    declared: dict[str, tuple[LayerDeclaration, ...]] = field(default_factory=dict[str, tuple[LayerDeclaration, ...]])
    wanted: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    written: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_public(self) -> dict[str, Any]:
        """Return the settings without secrets, for the log and the model: no address, header or key."""
        shown: dict[str, Any] = {}
        for name, key in zip(ConfigKeys.__struct_fields__, ConfigKeys.__struct_encode_fields__, strict=True):
            if name not in _PRIVATE_KEYS:
                shown[key] = self.written[key] if key in self.written else to_builtins(getattr(self, name))
        shown["providers"] = sorted(self.providers)
        return shown


class Options(Struct, frozen=True, kw_only=True):
    """What the caller of a session asks for. Empty or None leaves it to the configuration.

    With `reach_out=False` nothing is connected before a model is named or a prompt is sent.
    """

    cwd: str = ""
    model: str = ""
    fallback_model: tuple[str, ...] = ()
    mode: str = ""
    permission_mode: str = ""
    yes: bool = False
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    max_turns: int | None = None
    max_budget_usd: float | None = None
    max_tokens: int | None = None
    thinking: int | None = None
    system_prompt: str | None = None
    append_system_prompt: str = ""
    resume: str = ""
    continue_last: bool = False
    fork: bool = False
    fork_at: str = ""
    session_id: str = ""
    can_ask: bool = False
    include_partial: bool = False
    state_dir: str = ""
    trust: bool = False
    reach_out: bool = True
    env: dict[str, str] | None = None

    def to_flags(self) -> dict[str, Any]:
        """Return the configuration keys these options set, for `load`."""
        given = {name: getattr(self, name) for name in _FLAG_NAMES}
        return {name: value for name, value in given.items() if value is not None and value not in ("", ())}


_FLAG_NAMES = tuple(name for name in Options.__struct_fields__ if name in ConfigKeys.__struct_fields__)
