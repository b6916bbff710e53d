"""Errors, named after what the user can do about them.

Each has one sentence for the user (`str(error)`), an optional `hint`, and the exit code of the command line. None is
ever shown as a traceback.
"""

from typing import ClassVar

from odin.core.text import list_choices, suggest_similar

EXIT_CODES = {
    0: "success",
    1: "failure",
    2: "usage error",
    3: "checks did not pass",
    4: "all changes were denied",
    5: "no JSON that matches the schema",
    69: "no model could do the work",
    74: "output could not be written",
    75: "temporary failure",
    129: "hung up",
    130: "interrupted",
    141: "output was closed",
    143: "terminated",
}
"""The exit codes of `odin`, in words."""


class OdinError(Exception):
    exit_code: ClassVar[int] = 1
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint

    @property
    def kind(self) -> str:
        """The stable name used in events and JSON."""
        return type(self).__name__

    def describe(self) -> str:
        return f"{self} {self.hint}".strip()


class UsageError(OdinError):
    """The request is invalid: a flag, a mode, an empty prompt."""

    exit_code = 2


class OutputFailed(OdinError):
    """Standard output could not be written: the disk is full, or the device has failed."""

    exit_code = 74  # EX_IOERR

    @classmethod
    def from_error(cls, error: OSError) -> "OutputFailed":
        return cls(f"Cannot write to standard output: {error.strerror or error}.")


class EmptyPrompt(UsageError):
    def __init__(self) -> None:
        super().__init__("The prompt is empty.", "Say what you want done, as an argument or on standard input.")


class UnknownMode(UsageError):
    def __init__(self, mode: str) -> None:
        names = ("ask", "plan", "edit")
        super().__init__(f"Unknown mode {mode!r}.{suggest_similar(mode, names)}", f"Use {list_choices(names)}.")


class ConfigError(UsageError):
    """A configuration file is invalid; the message names the file and line."""


class SessionBusy(OdinError):
    def __init__(self, hint: str = "Wait for it, queue the prompt, or interrupt it.", agents: str = "") -> None:
        what = f"{agents} still works on an earlier prompt." if agents else "The session is already answering a prompt."
        super().__init__(what, hint)


class SessionNotFound(UsageError):
    pass


class SessionLocked(OdinError):
    """Another process has this session open."""


class SessionLockCorrupt(SessionLocked):
    """The session is locked, but the lock file does not say by whom."""


class DeleteCurrentSession(UsageError):
    def __init__(self) -> None:
        super().__init__("The current session cannot be deleted.", "Start or resume another session first.")


class QueueFull(OdinError):
    def __init__(self, most: int) -> None:
        super().__init__(f"{most} prompts are already queued.", "Wait until one starts, or drop one.")


class CompactionFailed(OdinError):
    """The conversation does not fit into the context window and could not be shortened."""


class MalformedCalls(OdinError):
    def __init__(self, rounds: int) -> None:
        super().__init__(
            f"The model sent {rounds} replies in a row without a valid tool call.",
            "Try again, use a stronger model, or set tools: json for this model.",
        )


class LogTooNew(OdinError):
    pass


class LogTooOld(OdinError):
    pass


class LogDamaged(OdinError):
    pass


class StateUnwritable(OdinError):
    pass


class Interrupted(OdinError):
    exit_code = 130


class OutputMismatch(OdinError):
    """The answer still did not match the JSON schema after the last correction."""

    exit_code = 5


class Denied(OdinError):
    """Denied by a rule, a mode or the user."""


class NeedsConfirmation(Denied):
    """Approval is required, but no one can be asked."""


class Rejected(Denied):
    """The user denied the request."""


class CommandTimedOut(OdinError):
    """A command was stopped at its time limit."""


class UnreadFile(OdinError):
    """The file must be read before it can be changed."""


class ExternalModification(OdinError):
    """The file has changed since it was read."""


class Conflict(ExternalModification):
    """Another agent of this session, `modified_by`, has changed the file since it was read."""

    def __init__(self, message: str, modified_by: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.modified_by = modified_by


class AgentShutdown(Denied):
    """The session is closing: open approvals are denied and queued work does not start."""

    def __init__(self) -> None:
        super().__init__("Odin is shutting down.")


class PromptBlocked(Denied):
    """A hook blocked the prompt; the model never sees it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"A hook blocked this prompt: {reason or 'it gave no reason.'}")


class TurnHalted(Denied):
    """A hook ended the turn."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Stopped by a hook: {reason}")


class ProviderError(OdinError):
    """A model request failed. `status`, `code` and `type` are what the API reported, `request_id` names the request."""

    def __init__(
        self,
        message: str,
        hint: str = "",
        *,
        status: int = 0,
        code: str = "",
        type: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, hint)
        self.status = status
        self.code = code
        self.type = type
        self.retry_after = retry_after
        self.request_id = ""


class RetryableError(ProviderError):
    exit_code = 75
    retryable = True


class RateLimited(RetryableError):
    pass


class Overloaded(RetryableError):
    pass


class Unreachable(RetryableError):
    """No connection: refused, unknown host, timeout, proxy down."""


class StreamCut(RetryableError):
    """The reply ended before it was complete."""


class StreamStalled(RetryableError):
    """The reply stopped arriving for longer than the timeout."""


class EmptyReply(RetryableError):
    pass


class EmptyTruncation(EmptyReply):
    """The reply hit the token limit before it contained anything."""


class UnreadableCall(EmptyReply):
    """The reply contains a tool call in a form that cannot be parsed. A retry would return the same."""

    retryable = False


class AllKeysCooling(RateLimited):
    """Every stored key of a provider reached its rate limit. `retry_after` says when the first may be used again."""


class NeedsModel(ProviderError):
    """The request needs a model, and none is connected."""

    exit_code = 69


class NoProgress(ProviderError):
    """A small model failed again and again. The message says at what, and what was done before."""


class BudgetSpent(ProviderError):
    """The budget is used up, or the model has no known price, so no request is sent."""


class AuthFailed(ProviderError):
    pass


class NoUsableKeys(AuthFailed):
    pass


class QuotaExhausted(ProviderError):
    pass


class ModelNotFound(ProviderError):
    pass


class ContextOverflow(ProviderError):
    """The request is too long. `limit` is the context window and `size` the request's size as reported by the server,
    or 0. `room` are the tokens that are left for the reply if only its limit was too high, else 0."""

    limit: int = 0
    size: int = 0
    room: int = 0


class BadRequest(ProviderError):
    """The API rejected the request as malformed: a bug in Odin or in the configuration."""


class ReplyBlocked(ProviderError):
    """The model or a filter of the provider refused to answer."""


class BadReply(ProviderError):
    """The response does not follow the API, for example an HTML page."""


class TlsFailed(ProviderError):
    pass


class Misconfigured(ProviderError):
    """No request can be sent as the provider is set up: its address, proxy or key is invalid."""

    exit_code = 2


class PackageFailed(ProviderError):
    """A provider of another package failed in a way of its own."""


class PrivateAddress(ProviderError):
    """A web page would have come from this machine or a private network."""
