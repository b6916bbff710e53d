"""Every configuration key with its default, limits and description.

The JSON schema and the table in the documentation are generated from these classes.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct, field, to_builtins
from msgspec.structs import replace

from odin.config.files import ConfigProblem
from odin.config.trust import TrustStatus
from odin.context.settings import CacheSettings, CompactionSettings
from odin.core.event_values import Delivery
from odin.core.policy import CommandsAsk, RuleLayer
from odin.core.provider import EditFormatSetting, Effort
from odin.core.root import Root
from odin.core.timing import DEFAULT_TIMING, Timing
from odin.core.tui_settings import TuiSettings
from odin.policy.modes import PermissionMode
from odin.providers.settings import ProviderSettings
from odin.redis.settings import RedisSettings

if TYPE_CHECKING:
    from odin.config.gateway_settings import GatewaySettings


class CheckpointSettings(Struct, frozen=True, kw_only=True):
    """Limits of the project snapshot before a command. A file that is edited is always saved."""

    enabled: Annotated[bool, Meta(description="Save files before they change. Required for undo.")] = True
    max_files: Annotated[int, Meta(description="Maximum number of project files saved before a command.", ge=0)] = (
        20_000
    )
    max_bytes: Annotated[int, Meta(description="Maximum total size of these files in bytes.", ge=0)] = 200_000_000
    max_file_bytes: Annotated[int, Meta(description="Larger files are not saved before a command.", ge=0)] = 10_000_000
    max_store_bytes: Annotated[
        int, Meta(description="Above this size Odin removes contents unused for 30 days from a project's store.", ge=0)
    ] = 2_000_000_000


_DELIVERIES: dict[str, Delivery] = {"sequential": "queue", "merge": "merge", "steer": "steer"}


class TeamSettings(Struct, frozen=True, kw_only=True):
    """Limits of delegated work."""

    max_running: Annotated[int, Meta(description="Sub-agents that may work at the same time.", ge=1, le=100)] = 10
    max_children: Annotated[int, Meta(description="Open tasks one agent may have given out.", ge=1, le=100)] = 10
    max_depth: Annotated[
        int, Meta(description="How deep tasks may be nested. 1: only the main agent delegates.", ge=1, le=5)
    ] = 1
    idle_s: Annotated[
        float, Meta(description="Seconds until a sub-agent that stopped without ending its task is reminded.", ge=0)
    ] = 120.0


class QueueSettings(Struct, frozen=True, kw_only=True):
    """A prompt joins the running turn only if both have the same mode; otherwise it waits for its own turn."""

    mode: Annotated[
        Literal["sequential", "merge", "steer"],
        Meta(
            description="`sequential`: the prompt waits for its own turn. `merge`: it is sent with the running turn's "
            "next request. `steer`: the same, and tool calls that have not started are skipped."
        ),
    ] = "sequential"
    steering: Annotated[
        Literal["one-at-a-time", "all"], Meta(description="How many steering prompts are sent with one request.")
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
        Meta(description="`auto` uses the strongest available. If the named one does not work, commands do not run."),
    ] = "auto"
    network: Annotated[bool, Meta(description="Give sandboxed commands network access.")] = False
    writable_paths: Annotated[
        tuple[SandboxEntry, ...],
        Meta(description="Folders outside the project that commands may write to, such as `~/.cache`."),
    ] = ()
    unsandboxed_commands: Annotated[
        tuple[SandboxEntry, ...],
        Meta(description="Command prefixes that always run without the sandbox, such as `docker`."),
    ] = ()


SearchBackend = Literal["none", "brave", "duckduckgo", "searxng"]


NonEmptyText = Annotated[str, Meta(min_length=1)]
NonEmptyTexts = tuple[NonEmptyText, ...]


class SearchSettings(Struct, frozen=True, kw_only=True):
    backend: Annotated[
        SearchBackend, Meta(description="The search engine of WebSearch. With `none` the tool is not offered.")
    ] = "none"
    api_key: Annotated[
        str, Meta(description="The API key for `brave`, or $NAME to read it from an environment variable.")
    ] = ""
    url: Annotated[str, Meta(description="The URL of your `searxng`; for the others, overrides the default URL.")] = ""


class WebSettings(Struct, frozen=True, kw_only=True):
    timeout_s: Annotated[float, Meta(description="Timeout of a page or search, in seconds.", gt=0, le=120)] = 30.0
    user_agent: Annotated[str, Meta(description="The User-Agent header. Empty: odin/VERSION.")] = ""
    private_hosts: Annotated[
        NonEmptyTexts,
        Meta(
            description="Hosts that WebFetch may read although their names lead to this machine or a private network: "
            "names (`*` for anything), addresses, networks such as `10.0.0.0/8`."
        ),
    ] = ()
    search: Annotated[SearchSettings, Meta(description="Web search.")] = SearchSettings()


ModeName = Literal["ask", "plan", "edit", "ask_mode", "plan_mode", "edit_mode"]
Temperature = Annotated[float, Meta(ge=0, le=2)]


def describe(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


Backoff = Literal["exponential", "constant"]


class RetrySettings(Struct, frozen=True, kw_only=True):
    """How failed model requests are retried."""

    attempts: Annotated[
        int, describe("Maximum number of attempts; 1 means no retry, 0 retries until it succeeds.", ge=0, le=50)
    ] = 6
    base_s: Annotated[float, describe("Seconds before the first retry.", ge=0)] = 1.0
    backoff: Annotated[
        Backoff, describe("`exponential`: the wait doubles with each further retry. `constant`: it stays the same.")
    ] = "exponential"
    max_s: Annotated[float, describe("Maximum wait between attempts, in seconds.", ge=0, le=3600)] = 60.0


VerifyMode = Literal["off", "remind", "run"]


class VerifySettings(Struct, frozen=True, kw_only=True):
    """What happens when a turn that changed files ends without a check of the project."""

    mode: Annotated[
        VerifyMode,
        describe(
            "`remind`: the model is reminded once. `run`: Odin runs the checks itself, and the model fixes what fails."
        ),
    ] = "remind"
    commands: Annotated[
        NonEmptyText | NonEmptyTexts,
        describe("The checks: one command or a list. Empty: found in the Makefile, the manifests or the CI settings."),
    ] = ()
    timeout_s: Annotated[float, describe("Time limit of one check that Odin runs, in seconds.", gt=0, le=600)] = 600.0

    @property
    def configured(self) -> tuple[str, ...]:
        """The configured commands."""
        return (self.commands,) if isinstance(self.commands, str) else self.commands


McpTransport = Literal["stdio", "http", "streamable-http", "sse", "sdk"]


class McpOAuth(Struct, frozen=True, kw_only=True):
    """How to sign in to a server that requires it. Without these, Odin registers itself with the server."""

    client_id: Annotated[str, describe("The ID of a client registered with the server.")] = ""
    client_secret: Annotated[str, describe("Its secret, or $NAME to read it from an environment variable.")] = ""
    token_endpoint_auth_method: Annotated[
        Literal["", "client_secret_basic", "client_secret_post"],
        describe("How the secret is sent. Empty: as the server takes it."),
    ] = ""
    client_metadata_url: Annotated[
        str, describe("The https address of a client metadata document, for servers without registration.")
    ] = ""
    scope: Annotated[str, describe("The scopes to request, separated by spaces.")] = ""
    callback_port: Annotated[int, describe("The local port of the redirect; 0 means any.", ge=0, le=65535)] = 0


class McpServerSettings(Struct, frozen=True, kw_only=True):
    """An MCP server: a program that Odin starts (`command`), or an address (`url`)."""

    type: Annotated[
        McpTransport | None, describe("The transport. Unset: `stdio` with `command`, `http` with `url`.")
    ] = None
    command: Annotated[str, describe("The program of a stdio server.")] = ""
    args: Annotated[tuple[str, ...], describe("Its arguments.")] = ()
    env: Annotated[dict[str, str], describe("Environment variables for it. Odin passes none that hold secrets.")] = (
        field(default_factory=dict[str, str])
    )
    cwd: Annotated[
        str,
        describe("The folder it runs in, from the project. Unset: one of its own; for a project's server the project."),
    ] = ""
    network: Annotated[
        bool, describe("A server of a project asks for the network, which you allow when you trust the folder.")
    ] = False
    url: Annotated[str, describe("The URL of an HTTP server.")] = ""
    headers: Annotated[dict[str, str], describe("HTTP headers, for example `Authorization`.")] = field(
        default_factory=dict[str, str]
    )
    oauth: Annotated[McpOAuth, describe("How to sign in.")] = McpOAuth()
    allowed_tools: Annotated[
        NonEmptyTexts, describe("The tools of the server to offer, with `*` for anything. Empty: all.")
    ] = ()
    manual: Annotated[bool, describe("Start the server only with `/mcp enable NAME`.")] = False
    always_load: Annotated[bool, describe("Send the schemas of its tools whatever their size.")] = False
    sampling: Annotated[bool, describe("Let the server ask the small model.")] = False
    shared: Annotated[
        bool,
        describe("Sessions of one program in the same project use one server. `false`: each has its own."),
    ] = True
    timeout_s: Annotated[float, describe("Seconds without progress until a call fails.", gt=0, le=86_400)] = 300.0

    @property
    def transport(self) -> str:
        """`stdio`, `http`, `sse` or `sdk`; "" if it has neither a command nor a URL."""
        if self.type in ("http", "streamable-http"):
            return "http"
        return self.type or ("stdio" if self.command else "http" if self.url else "")


class McpLimits(Struct, frozen=True, kw_only=True):
    max_schema_bytes: Annotated[
        int, describe("If the schemas of all tools are larger, they are not sent: the model searches for tools.", ge=0)
    ] = 16_000
    wait_s: Annotated[
        float, describe("How long the first request waits for a server that was never used before.", ge=0, le=600)
    ] = 10.0
    connect_s: Annotated[float, describe("Time limit of one of three attempts to connect.", gt=0, le=600)] = 20.0


class LoopSettings(Struct, frozen=True, kw_only=True):
    max_iterations: Annotated[
        int, describe("Maximum number of iterations each time loop mode is switched on.", ge=1, le=1000)
    ] = 10


class SkillSettings(Struct, frozen=True, kw_only=True):
    """Which skills the model may use."""

    enabled: Annotated[bool, describe("Use skills.")] = True
    paths: Annotated[
        NonEmptyTexts,
        describe(
            "Further folders of skills, after the project's and the user's. Those of a project lie in it. "
            "Merged across files."
        ),
    ] = ()


class LanguageServerSettings(Struct, frozen=True, kw_only=True):
    """The settings of a language server. For one that Odin knows, they override its built-in settings."""

    enabled: Annotated[bool, describe("False: the server is not used.")] = True
    command: Annotated[str, describe("The program: a name on PATH, or a path from the project.")] = ""
    args: Annotated[tuple[str, ...], describe("Its arguments.")] = ()
    env: Annotated[dict[str, str], describe("Environment variables to add.")] = field(default_factory=dict[str, str])
    file_types: Annotated[NonEmptyTexts, describe("Endings of the files it handles, such as `.lua`.")] = ()
    root_markers: Annotated[
        NonEmptyTexts, describe("Files in the project's root that show that the project is of its kind.")
    ] = ()
    options: Annotated[
        dict[str, Any], describe("Its own settings: initialization options, and the sections it asks for.")
    ] = field(default_factory=dict[str, Any])
    writes: Annotated[bool, describe("True: it may write to the project, for example its cache.")] = False
    sandbox: Annotated[bool, describe("False: it runs outside the sandbox.")] = True


LanguageServerMode = Literal["auto", "configured", "off"]

MemoryMode = Literal["auto", "on", "off"]


class MemorySettings(Struct, frozen=True, kw_only=True):
    """What later sessions are told of earlier ones."""

    mode: Annotated[
        MemoryMode,
        describe(
            "`auto`: used once something was remembered, such as with `#`. `on`: the model may begin. `off`: never."
        ),
    ] = "auto"


class ConfigKeys(Struct, frozen=True, kw_only=True):
    """All keys of `odinconfig.json`."""

    allowed_commands: Annotated[
        NonEmptyTexts, describe("Command prefixes that run without approval: `git status` also allows `git status -s`.")
    ] = field(default=(), name="AllowedCommands")
    forbidden_commands: Annotated[
        NonEmptyTexts,
        describe(
            "Command prefixes that never run, also inside compound commands. They override everything and are merged "
            "across files."
        ),
    ] = field(default=(), name="ForbiddenCommands")
    model: Annotated[
        str, describe("The main model as `provider/model`, or a model pool. Empty: the first pool or model found.")
    ] = ""
    small_model: Annotated[
        str, describe("The small model for titles, checks and summaries. Empty: chosen automatically.")
    ] = ""
    fallback_model: Annotated[
        NonEmptyTexts,
        describe(
            "Models to use, in this order, while the main model cannot answer, for example because it is overloaded."
        ),
    ] = ()
    model_pools: Annotated[
        dict[str, tuple[NonEmptyText, ...]],
        describe(
            "Named, ordered lists of models: while the selected model of a pool cannot answer, the next one does. "
            "`model`, `--pool`, `/models` and agent files name a pool. An entry is a model or another pool."
        ),
    ] = field(default_factory=dict[str, tuple[NonEmptyText, ...]])
    edit_format: Annotated[
        EditFormatSetting,
        describe(
            "How models edit files: `replace` with EditTool, `patch` with apply_patch, or `auto`: by the family of the "
            "model."
        ),
    ] = "auto"
    mode: Annotated[ModeName, describe("The default mode: `ask`, `plan` or `edit`.")] = "edit_mode"
    permission_mode: Annotated[PermissionMode, describe("What runs without approval.")] = "default"
    max_turns: Annotated[int, describe("Maximum number of model requests per prompt; 0 means no limit.", ge=0)] = 0
    max_budget_usd: Annotated[float, describe("Budget of one session in US dollars; 0 means no limit.", ge=0)] = 0.0
    max_budget_usd_per_day: Annotated[
        float, describe("Budget of all sessions per day in US dollars; 0 means no limit.", ge=0)
    ] = 0.0
    max_tokens: Annotated[int, describe("Maximum tokens of one reply.", ge=1)] = 8192
    max_context: Annotated[
        int, describe("Maximum tokens of one request; 0 means the model's context window.", ge=0)
    ] = 0
    compaction: Annotated[CompactionSettings, describe("How Odin keeps conversations within the context window.")] = (
        CompactionSettings()
    )
    temperature: Annotated[Temperature | None, describe("The model's temperature. Not sent if unset.")] = None
    thinking: Annotated[int, describe("Token budget for extended thinking; 0 turns it off.", ge=0)] = 0
    effort: Annotated[
        Effort | None, describe("How much a model reasons before it answers. Unset: as `thinking` or the model says.")
    ] = None
    default_response: Annotated[str, describe("Shown if the model's final answer is empty.")] = (
        "Completed processing; there is no response to show."
    )
    background_response: Annotated[
        str, describe("Shown instead if mail, a hook or loop mode started the turn, not you.")
    ] = "Completed background work; there is no response to show."
    allowed_tools: Annotated[
        NonEmptyTexts,
        describe("Tool calls that run without approval: `Tool` or `Tool(pattern)`, such as `Bash(git log:*)`."),
    ] = ()
    disallowed_tools: Annotated[
        NonEmptyTexts,
        describe(
            "Tool calls that never run, in the same form. A tool denied by its bare name is not offered to the model. "
            "Merged across files."
        ),
    ] = ()
    additional_directories: Annotated[
        NonEmptyTexts,
        describe(
            "Folders besides the project that Odin works in; `PATH:ro` is read-only. Those that a trusted project "
            "names must lie beside it. Merged across files."
        ),
    ] = ()
    restrict_to_workspace: Annotated[
        bool, describe("Refuse access outside the project and the folders added to it instead of asking.")
    ] = False
    confirm_timeout_s: Annotated[
        float, describe("Seconds until an unanswered permission request is denied; 0 means never.", ge=0)
    ] = 0.0
    question_timeout_s: Annotated[
        float, describe("Seconds until an unanswered question from the model times out; 0 means never.", ge=0)
    ] = 0.0
    read_before_edit: Annotated[bool, describe("Require that a file was read before it is changed.")] = True
    speculate: Annotated[
        bool, describe("Start tool calls that can be rolled back while the reply is still streaming.")
    ] = True
    cache: Annotated[
        CacheSettings, describe("The cache of files the agent has read, and how edits are checked against it.")
    ] = CacheSettings()
    checkpoints: Annotated[CheckpointSettings, describe("File snapshots for undo. User file only.")] = (
        CheckpointSettings()
    )
    sandbox: Annotated[SandboxSettings, describe("The sandbox for commands. User file only.")] = SandboxSettings()
    env_passthrough: Annotated[
        NonEmptyTexts,
        describe("Environment variables that look secret but are passed to commands anyway. User file only."),
    ] = ()
    providers: Annotated[
        dict[str, ProviderSettings], describe("API addresses and keys of providers. User file only.")
    ] = field(default_factory=dict[str, ProviderSettings])
    catalog_url: Annotated[
        str,
        describe(
            "The URL of a model catalog, which Odin fetches when models are listed and its copy is older than a day. "
            "Empty: only `odin models refresh` fetches one. User file only."
        ),
    ] = ""
    web: Annotated[WebSettings, describe("How web pages are fetched and searched. User file only.")] = WebSettings()
    redis: Annotated[
        RedisSettings, describe("A Redis server that sessions are published to. User file and environment only.")
    ] = RedisSettings()
    gateway: Annotated[
        dict[str, Any], describe("Chat channels and webhooks of `odin gateway`. User file and environment only.")
    ] = field(default_factory=dict[str, Any])
    retry: Annotated[RetrySettings, describe("Retries of failed model requests.")] = RetrySettings()
    team: Annotated[TeamSettings, describe("Delegated tasks and their sub-agents.")] = TeamSettings()
    queue: Annotated[QueueSettings, describe("What happens to prompts sent while Odin is busy.")] = QueueSettings()
    verify: Annotated[
        VerifySettings, describe("Whether the project's checks run before a turn that changed files ends.")
    ] = VerifySettings()
    loop: Annotated[LoopSettings, describe("Loop mode.")] = LoopSettings()
    skills: Annotated[SkillSettings, describe("Skills: instructions that the model reads when a task needs them.")] = (
        SkillSettings()
    )
    mcp: Annotated[
        dict[str, McpServerSettings], describe("MCP servers by name. `.mcp.json` in the project adds to them.")
    ] = field(default_factory=dict[str, McpServerSettings])
    mcp_limits: Annotated[McpLimits, describe("Limits of MCP servers. User file only.")] = McpLimits()
    lsp: Annotated[
        LanguageServerMode,
        describe(
            "Language servers, in trusted folders: those that are installed and configured (`auto`), only the "
            "`configured` ones, or none (`off`)."
        ),
    ] = "auto"
    lsp_servers: Annotated[
        dict[str, LanguageServerSettings], describe("Language servers by name. Merged across files.")
    ] = field(default_factory=dict[str, LanguageServerSettings])
    memory: Annotated[MemorySettings, describe("Memory: notes for later sessions.")] = MemorySettings()
    tui: Annotated[TuiSettings, describe("The terminal app. User file only.")] = TuiSettings()
    commands: Annotated[
        dict[str, Any],
        describe(
            "Custom commands: name → text, or name → `body`, `description` and `argument-hint`. "
            "`$ARGUMENTS` is replaced with the text after the name. Files in `commands` override these. Two names are "
            "settings of shell commands: `ask` is when you are asked about a command that runs in a private view, when "
            "it has ended (`effects`, the default) or `before`; `read_secrets` lists the secret files of the project "
            "that commands may read unasked, such as `.env` (user file only)."
        ),
    ] = field(default_factory=dict[str, Any])
    output_style: Annotated[
        str,
        describe(
            "How the main agent answers: `Explanatory`, `Learning`, `Proactive`, `Concise`, or the name of a file in "
            "`output-styles`. Empty: the default."
        ),
    ] = ""
    claude_settings: Annotated[
        bool,
        describe(
            "Use the settings files of Claude Code: `settings.json` in `~/.claude`, `settings.json` and "
            "`settings.local.json` in the project's `.claude`. User file only."
        ),
    ] = True
    system_header: Annotated[
        str, describe("A text block sent before the system prompt, for APIs that require one. User file only.")
    ] = ""
    rules: Annotated[
        list[Any] | dict[str, Any],
        describe("Rules that allow, ask about or deny tool calls by tool and pattern. Merged across files, in order."),
    ] = field(default_factory=list[Any])
    hooks: Annotated[
        dict[str, Any],
        describe(
            "Programs to run at defined points, by event; they can block or change what happens. Merged across files."
        ),
    ] = field(default_factory=dict[str, Any])


_PRIVATE_KEYS = (
    *("providers", "catalog_url", "web", "system_header", "env_passthrough", "hooks", "tui", "commands", "mcp"),
    *("mcp_limits", "lsp_servers", "redis", "gateway"),
)


class LayerDeclaration(Struct, frozen=True):
    """The value of a key in one layer, verbatim, and where it is written.

    A project's rules and hooks may allow or start something only if `trusted`. `plugin` is the folder of the plugin
    that the value belongs to. `is_claude`: it is written in a settings file of Claude Code.
    """

    value: Any
    layer: RuleLayer
    source: str
    trusted: bool = True
    plugin: str = ""
    is_claude: bool = False

    @property
    def hook_prefix(self) -> str:
        """What tells the ids of its hooks from those of the project's other files."""
        return f"{self.source.rpartition('/')[2]}:" if self.is_claude else ""


class CommandSettings(Struct, frozen=True):
    """Settings of shell commands: when the user is asked about one, and the secret files that all of them may read."""

    ask: CommandsAsk = "effects"
    read_secrets: tuple[str, ...] = ()


def is_command_setting(name: str, value: Any) -> bool:
    """True if an entry of `commands` is a setting of shell commands and no custom command."""
    return (name == "ask" and value in get_args(CommandsAsk)) or (name == "read_secrets" and isinstance(value, list))


def merge_command_settings(declarations: Iterable[LayerDeclaration]) -> CommandSettings:
    """Return the settings of shell commands. A project can only ask for more questions."""
    found = CommandSettings()
    for item in declarations:
        given = {name: value for name, value in item.value.items() if is_command_setting(name, value)}
        if item.layer == "project":
            found = replace(found, ask="before" if given.get("ask") == "before" else found.ask)
        else:
            secrets = tuple(str(name) for name in given.get("read_secrets", found.read_secrets))
            found = CommandSettings(given.get("ask", found.ask), secrets)
    return found


class PluginFiles(Struct, frozen=True):
    """Folders and single files of a plugin, relative to it."""

    folders: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.folders or self.files)


class Plugin(Struct, frozen=True, kw_only=True):
    """A plugin and its parts. `hooks` are declarations with the file each is in; `servers` are MCP servers by name.

    `written_servers` are the same with the names of variables in place of their values. `stamp` identifies the content
    of its files.
    """

    name: str
    folder: str
    version: str = ""
    description: str = ""
    commands: PluginFiles = PluginFiles()
    agents: PluginFiles = PluginFiles()
    skills: PluginFiles = PluginFiles()
    hooks: tuple[tuple[str, Any], ...] = ()
    servers: dict[str, Any] = field(default_factory=dict[str, Any])
    written_servers: dict[str, Any] = field(default_factory=dict[str, Any])
    stamp: str = ""
    problems: tuple[ConfigProblem, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """What it brings, in a word each."""
        kinds = {
            "commands": self.commands,
            "agents": self.agents,
            "skills": self.skills,
            "hooks": self.hooks,
            "MCP servers": self.servers,
        }
        return tuple(name for name, found in kinds.items() if found)


class Config(ConfigKeys, frozen=True, kw_only=True):
    """The configuration of one session: the merged keys and where they came from.

    `sources` names the layer that set each key. `written` keeps, for a value that came from a variable, the text with
    the variable's name; only the session itself sees the value. `declared` keeps the rules and hooks of each layer
    apart, strongest last. `wanted` is what the project's file requests and gets only in a trusted folder.
    `project_servers` are the MCP servers that the project brings. `variables` are added to the environment of
    commands, hooks and servers, `project_variables` only in the sandbox. `bypass_disabled_by` is the file that turns
    off bypassPermissions and `--yes`. `roots` are the folders besides the project `root`.
    """

    root: str = ""
    roots: tuple[Root, ...] = ()
    problems: tuple[ConfigProblem, ...] = ()
    trust: TrustStatus = field(default_factory=TrustStatus)
    declared: dict[str, tuple[LayerDeclaration, ...]] = field(default_factory=dict[str, tuple[LayerDeclaration, ...]])
    wanted: dict[str, Any] = field(default_factory=dict[str, Any])
    project_servers: frozenset[str] = frozenset()
    variables: dict[str, str] = field(default_factory=dict[str, str])
    project_variables: dict[str, str] = field(default_factory=dict[str, str])
    bypass_disabled_by: str = ""
    plugins: tuple[Plugin, ...] = ()
    sources: dict[str, str] = field(default_factory=dict[str, str])
    written: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(problem.describe() for problem in self.problems)

    def read_gateway(self) -> "GatewaySettings":
        """Return the settings of the gateway. Few processes need their types, which take long to import."""
        from odin.config.gateway_settings import GatewaySettings

        return msgspec.convert(self.gateway, GatewaySettings)

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

    With `reach_out=False` nothing is connected before a model is named or a prompt is sent. `usual_max_turns` is the
    limit if neither these options nor the configuration set one. `headless`: no person follows the conversation.
    `agent_definitions` is the JSON of `--agents`. `mcp_config` are files or JSON objects with MCP servers; with
    `strict_mcp_config` there are no others. `plugin_dirs` are folders of plugins for this run. `commands_ask` is when
    the caller is asked about commands; callers that answer by a program are asked before, unless they say otherwise.
    `add_dirs` are folders besides the project: `PATH`, or `PATH:ro` if it is read-only. `settings` are more keys of the
    configuration, by their Python names, which a program that opens sessions decides.
    """

    cwd: str = ""
    model: str = ""
    pool: str = ""
    fallback_model: tuple[str, ...] = ()
    mode: str = ""
    permission_mode: str = ""
    yes: bool = False
    commands_ask: CommandsAsk | None = None
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    restrict_to_workspace: bool | None = None
    max_turns: int | None = None
    usual_max_turns: int = 0
    max_budget_usd: float | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    thinking: int | None = None
    effort: str = ""
    system_prompt: str | None = None
    append_system_prompt: str = ""
    resume: str = ""
    continue_last: bool = False
    fork: bool = False
    fork_at: str = ""
    session_id: str = ""
    can_ask: bool = False
    headless: bool = False
    include_partial: bool = False
    plugin_dirs: tuple[str, ...] = ()
    add_dirs: tuple[str, ...] = ()
    state_dir: str = ""
    trust: bool = False
    reach_out: bool = True
    env: dict[str, str] | None = None
    agent_definitions: str = ""
    role: str = ""
    mcp_config: tuple[str, ...] = ()
    strict_mcp_config: bool = False
    output_schema: dict[str, Any] | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    timing: Timing = DEFAULT_TIMING

    def to_flags(self) -> dict[str, Any]:
        """Return the configuration keys these options set, for `load`."""
        given = {name: getattr(self, name) for name in _FLAG_NAMES}
        chosen = {name: value for name, value in given.items() if value is not None and value not in ("", ())}
        return {**self.settings, **chosen}


_FLAG_NAMES = tuple(name for name in Options.__struct_fields__ if name in ConfigKeys.__struct_fields__)
