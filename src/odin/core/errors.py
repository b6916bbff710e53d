"""Errors, named by what to do about them.

Each carries one sentence for the person (`str(error)`), an optional `hint` that says what to do, and the process exit
code a command line front end ends with. Nothing here is shown as a traceback.
"""

from typing import ClassVar


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
    """The request itself is wrong: a flag, a mode, an empty prompt."""

    exit_code = 2


class EmptyPrompt(UsageError):
    def __init__(self) -> None:
        super().__init__("The prompt is empty.", "Say what you want done, as an argument or on standard input.")


class UnknownMode(UsageError):
    def __init__(self, mode: str) -> None:
        super().__init__(f"There is no mode {mode!r}.", "Use ask, plan or edit.")


class ConfigError(UsageError):
    """A configuration file that cannot be used; the message names the file and the line."""


class SessionBusy(OdinError):
    def __init__(self, hint: str = "Wait for it, queue the prompt, or interrupt it.") -> None:
        super().__init__("The session is already answering a prompt.", hint)


class SessionNotFound(UsageError):
    pass


class SessionLocked(OdinError):
    """Another process is writing this session."""


class SessionLockCorrupt(SessionLocked):
    """Somebody holds this session and cannot be named: what they wrote about themselves cannot be read."""


class DeleteCurrentSession(UsageError):
    def __init__(self) -> None:
        super().__init__("The current session cannot be deleted.", "Begin or resume another one first.")


class QueueFull(OdinError):
    def __init__(self, most: int) -> None:
        super().__init__(f"{most} prompts are waiting already.", "Wait until one was taken, or take one back.")


class CompactionFailed(OdinError):
    """The conversation does not fit its window and could not be made to fit."""


class MalformedCalls(OdinError):
    def __init__(self, rounds: int) -> None:
        super().__init__(
            f"The model wrote {rounds} tool calls in a row that could not be read.",
            "Try again, use a stronger model, or set tools: json for this model.",
        )


class LogTooNew(OdinError):
    pass


class LogDamaged(OdinError):
    pass


class StateUnwritable(OdinError):
    pass


class Interrupted(OdinError):
    exit_code = 130


class Denied(OdinError):
    """A rule, a mode or a person said no."""


class NeedsConfirmation(Denied):
    """It must be asked and there is nobody to ask."""


class Rejected(Denied):
    """A person was asked and said no."""


class UnreadFile(OdinError):
    """A file is to be changed that was never read."""


class ExternalModification(OdinError):
    """A file is no longer what it was when it was read."""


class Conflict(ExternalModification):
    """A file that was read has been changed since by another agent of this session: `modified_by`."""

    def __init__(self, message: str, modified_by: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.modified_by = modified_by


class AgentShutdown(Denied):
    """The session ends: what somebody is being asked is answered with a no, and what waits is not begun any more."""

    def __init__(self) -> None:
        super().__init__("Odin is shutting down.")


class PromptBlocked(Denied):
    """A hook would not let a prompt through; the model never reads it."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"A hook stopped this prompt: {reason or 'it gave no reason.'}")


class TurnHalted(Denied):
    """A hook ended the turn."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"Stopped by a hook: {reason}")


class ProviderError(OdinError):
    """Something between us and the model failed. `status`, `code` and `type` are what the API said."""

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


class RetryableError(ProviderError):
    exit_code = 75
    retryable = True


class RateLimited(RetryableError):
    pass


class Overloaded(RetryableError):
    pass


class Unreachable(RetryableError):
    """No connection: refused, name not found, timed out, proxy down."""


class StreamCut(RetryableError):
    """The reply ended before it was complete."""


class StreamStalled(RetryableError):
    """The reply went silent for longer than we wait."""


class EmptyReply(RetryableError):
    pass


class EmptyTruncation(EmptyReply):
    """Cut off by the token limit before anything was said."""


class UnreadableCall(EmptyReply):
    """A call was written where no call belongs, in a way that cannot be read. Asking again would bring the same."""

    retryable = False


class AllKeysCooling(RetryableError):
    pass


class BudgetSpent(ProviderError):
    """What the session may cost has been spent, so no model is asked."""


class AuthFailed(ProviderError):
    pass


class NoUsableKeys(AuthFailed):
    pass


class QuotaExhausted(ProviderError):
    pass


class ModelNotFound(ProviderError):
    pass


class ContextOverflow(ProviderError):
    """The request is too long. `limit` is the window the server names and `size` the request's; 0 when it does not."""

    limit: int = 0
    size: int = 0


class BadRequest(ProviderError):
    """The API refused the request as malformed: a fault of ours or of the configuration."""


class BadReply(ProviderError):
    """The answer is not what the API speaks, for example an HTML page."""


class TlsFailed(ProviderError):
    pass
