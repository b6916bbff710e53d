"""What the composer tells the part of the screen it stands in. The handlers are called `on_composer_…`."""

from textual.message import Message

from odin.core.client import QueuedPrompt
from odin.core.event import Delivery, Mode
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.panels.toasts import ToastLevel


class DraftSent(Message, namespace="composer"):
    """The person sends what is written; `lane` is how it gets in while Odin works, None for the usual way."""

    def __init__(self, draft: PromptDraft, lane: Delivery | None, mode: Mode) -> None:
        super().__init__()
        self.draft = draft
        self.lane: Delivery | None = lane
        self.mode: Mode = mode


class QueuedPromptEdited(Message, namespace="composer"):
    """A prompt that waits is to be this from now on."""

    def __init__(self, prompt: QueuedPrompt, draft: PromptDraft, mode: Mode) -> None:
        super().__init__()
        self.prompt = prompt
        self.draft = draft
        self.mode: Mode = mode


class ToastRequested(Message, namespace="composer"):
    """Something to say to the person."""

    def __init__(self, text: str, level: ToastLevel = "info") -> None:
        super().__init__()
        self.text = text
        self.level: ToastLevel = level


class ModeChosen(Message, namespace="composer"):
    """The mode of the next prompt is this from now on."""

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self.mode: Mode = mode
