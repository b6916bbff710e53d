"""What the composer tells the part of the screen it stands in. The handlers are called `on_composer_…`."""

from textual.message import Message

from odin.core.client import QueuedPrompt
from odin.core.event import Lane, Mode
from odin.ui.tui.composer.draft import Draft
from odin.ui.tui.panels.toasts import Level


class Sent(Message, namespace="composer"):
    """The person sends what is written; `lane` is how it gets in while Odin works, None for the usual way."""

    def __init__(self, draft: Draft, lane: Lane | None, mode: Mode) -> None:
        super().__init__()
        self.draft = draft
        self.lane: Lane | None = lane
        self.mode: Mode = mode


class Saved(Message, namespace="composer"):
    """A prompt that waits is to be this from now on."""

    def __init__(self, prompt: QueuedPrompt, draft: Draft, mode: Mode) -> None:
        super().__init__()
        self.prompt = prompt
        self.draft = draft
        self.mode: Mode = mode


class Told(Message, namespace="composer"):
    """Something to say to the person."""

    def __init__(self, text: str, level: Level = "info") -> None:
        super().__init__()
        self.text = text
        self.level: Level = level


class ModeChosen(Message, namespace="composer"):
    """The mode of the next prompt is this from now on."""

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self.mode: Mode = mode
