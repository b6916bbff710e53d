"""The shape of the configuration: every key once, with its default, its limits and what it means.

The file's schema and the table in the documentation are made from these lines.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, to_builtins

from odin.config.checkpoints import CheckpointSettings
from odin.config.queue import QueueSettings
from odin.config.sandbox import SandboxSettings
from odin.config.trust import Trust
from odin.config.web import WebSettings
from odin.context.settings import CacheSettings, CompactionSettings
from odin.core.rule import Layer
from odin.core.screen import ScreenSettings
from odin.policy.modes import PermissionMode
from odin.providers.settings import ProviderSettings

ModeName = Literal["ask", "plan", "edit", "ask_mode", "plan_mode", "edit_mode"]
Text = Annotated[str, Meta(min_length=1)]
Warmth = Annotated[float, Meta(ge=0, le=2)]
Texts = tuple[Text, ...]


def about(text: str, **limits: Any) -> Meta:
    return Meta(description=text, **limits)


class Retry(Struct, frozen=True, kw_only=True):
    """How a failed model call is tried again."""

    attempts: Annotated[int, about("How many times a call is made at most; 1 means no retry.", ge=1, le=50)] = 6
    base_s: Annotated[float, about("Seconds before the first retry; each later one waits twice as long.", ge=0)] = 1.0
    max_s: Annotated[float, about("The longest wait between two tries, in seconds.", ge=0, le=3600)] = 60.0


class Keys(Struct, frozen=True, kw_only=True):
    """Everything `odinconfig.json` may say."""

    allowed_commands: Annotated[
        Texts,
        about(
            "Commands that run without a question, as the words they begin with: `git status` allows `git status -s`."
        ),
    ] = field(default=(), name="AllowedCommands")
    forbidden_commands: Annotated[
        Texts,
        about(
            "Commands that never run, as the words they begin with, also inside compound commands. "
            "They win over everything, and all files add to them."
        ),
    ] = field(default=(), name="ForbiddenCommands")
    model: Annotated[str, about("The planner's model as `provider/model`. Empty: the first that is found.")] = ""
    small_model: Annotated[str, about("The lesser model for titles, checks and summaries. Empty: chosen for you.")] = ""
    fallback_model: Annotated[
        Texts, about("Models that answer, in this order, while the planner's model cannot: it is overloaded, say.")
    ] = ()
    mode: Annotated[ModeName, about("The mode of a prompt that names none: `ask`, `plan` or `edit`.")] = "edit_mode"
    permission_mode: Annotated[PermissionMode, about("What runs without a question.")] = "default"
    max_turns: Annotated[int, about("Model calls in one prompt at most; 0 means no limit.", ge=0)] = 100
    max_budget_usd: Annotated[float, about("US dollars one session may cost; 0 means no limit.", ge=0)] = 0.0
    max_budget_usd_per_day: Annotated[
        float, about("US dollars all sessions together may cost in a day; 0 means no limit.", ge=0)
    ] = 0.0
    max_tokens: Annotated[int, about("Tokens in one reply at most.", ge=1)] = 8192
    max_context: Annotated[
        int, about("Tokens a request may have at most, whatever the model can hold; 0 means what it can hold.", ge=0)
    ] = 0
    compaction: Annotated[
        CompactionSettings, about("How a long conversation is kept within the window of the model.")
    ] = CompactionSettings()
    temperature: Annotated[Warmth | None, about("The model's temperature. Not sent when absent.")] = None
    thinking: Annotated[int, about("Tokens the model may think with; 0 means no extended thinking.", ge=0)] = 0
    default_response: Annotated[str, about("What is shown when the model's final answer is empty.")] = (
        "Completed processing; there is no response to show."
    )
    allowed_tools: Annotated[
        Texts, about("Calls that run without a question: `Tool` or `Tool(pattern)`, such as `Bash(git log:*)`.")
    ] = ()
    disallowed_tools: Annotated[
        Texts,
        about("Calls that never run, in the same form. A bare name is not offered at all. All files add to them."),
    ] = ()
    restrict_to_workspace: Annotated[bool, about("Refuse what lies outside the project instead of asking.")] = False
    confirm_timeout_s: Annotated[
        float,
        about("Seconds a permission question waits; then the answer is no. 0 means as long as it takes.", ge=0),
    ] = 0.0
    question_timeout_s: Annotated[
        float, about("Seconds a question of the model waits for an answer; 0 means as long as it takes.", ge=0)
    ] = 0.0
    read_before_edit: Annotated[bool, about("A file must have been read before it is changed.")] = True
    speculate: Annotated[bool, about("Begin calls that can be taken back while the model still writes its reply.")] = (
        True
    )
    cache: Annotated[
        CacheSettings, about("What an agent keeps of the files it has read, and how edits are checked against it.")
    ] = CacheSettings()
    checkpoints: Annotated[
        CheckpointSettings, about("What is saved before files change, so that undo can bring it back. User file only.")
    ] = CheckpointSettings()
    sandbox: Annotated[
        SandboxSettings, about("What commands are kept in, and what is let out of it. User file only.")
    ] = SandboxSettings()
    keep_env: Annotated[
        Texts, about("Secret-looking environment variables that commands may see all the same. User file only.")
    ] = ()
    providers: Annotated[
        dict[str, ProviderSettings], about("Where models are reached and with which key. User file only.")
    ] = field(default_factory=dict[str, ProviderSettings])
    web: Annotated[WebSettings, about("How web pages are fetched and searched. User file only.")] = WebSettings()
    retry: Annotated[Retry, about("How a failed model call is tried again.")] = Retry()
    queue: Annotated[QueueSettings, about("What becomes of a prompt that comes while another is answered.")] = (
        QueueSettings()
    )
    tui: Annotated[ScreenSettings, about("How the terminal app looks and behaves. User file only.")] = ScreenSettings()
    commands: Annotated[
        dict[str, Any],
        about(
            "Custom commands: name → text, or name → `body`, `description` and `argument-hint`. "
            "`$ARGUMENTS` in a text is what was typed behind the name. Files in `commands` win over these."
        ),
    ] = field(default_factory=dict[str, Any])
    system_header: Annotated[
        str, about("A block of text that stands before the system prompt, where an API wants one. User file only.")
    ] = ""
    rules: Annotated[
        list[Any] | dict[str, Any],
        about("What is allowed, asked about and denied, by tool and pattern. All files add to them, in their order."),
    ] = field(default_factory=list[Any])
    hooks: Annotated[
        dict[str, Any],
        about("Programs that are told what happens and may have a say in it, by event. All files add to them."),
    ] = field(default_factory=dict[str, Any])


_UNSEEN = ("providers", "web", "system_header", "keep_env", "hooks", "tui", "commands")


class Declared(Struct, frozen=True):
    """What one layer says under a key, word for word, and where it is written.

    A project's rules and hooks may allow or start something only when `trusted`.
    """

    value: Any
    layer: Layer
    source: str
    trusted: bool = True


class Config(Keys, frozen=True, kw_only=True):
    """What holds for one session: the keys after all layers, and how they came about.

    `sources` names the layer that set each key. `written` keeps, for a value that came from a variable, the text with
    the variable's name, which is all that anyone but the session itself gets to see. `declared` keeps apart what each
    layer says about rules and hooks, the strongest layer last. `wanted` is what the project's file asks for and gets
    only when the folder is trusted, whether it is or not.
    """

    root: str = ""
    warnings: tuple[str, ...] = ()
    trust: Trust = field(default_factory=Trust)
    declared: dict[str, tuple[Declared, ...]] = field(default_factory=dict[str, tuple[Declared, ...]])
    wanted: dict[str, Any] = field(default_factory=dict[str, Any])
    sources: dict[str, str] = field(default_factory=dict[str, str])
    written: dict[str, Any] = field(default_factory=dict[str, Any])

    def public(self) -> dict[str, Any]:
        """The settings without anything secret, for the log and the model: never an address, a header or a key."""
        shown: dict[str, Any] = {}
        for name, key in zip(Keys.__struct_fields__, Keys.__struct_encode_fields__, strict=True):
            if name not in _UNSEEN:
                shown[key] = self.written[key] if key in self.written else to_builtins(getattr(self, name))
        shown["providers"] = sorted(self.providers)
        return shown


class Options(Struct, frozen=True, kw_only=True):
    """What the caller of a session asks for. What is empty or None is left to the configuration.

    Unless `reach_out`, nothing is connected to before a model is named or a prompt is sent.
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

    def flags(self) -> dict[str, Any]:
        """The keys of the configuration that these options set, for `load`."""
        given = {name: getattr(self, name) for name in _FLAGS}
        return {name: value for name, value in given.items() if value is not None and value not in ("", ())}


_FLAGS = tuple(name for name in Options.__struct_fields__ if name in Keys.__struct_fields__)
