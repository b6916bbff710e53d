"""What the lesser model is given to read, as text that both a model and the offline planner understand."""

from msgspec import Struct

_PAGE_MARK = "----- the page, to the end of this message -----"
_ITEM_MARK = "=====>"


class PageQuestion(Struct, frozen=True):
    """A question about a web page."""

    url: str
    prompt: str
    page: str
    title: str = ""

    def render(self) -> str:
        return f"Address: {self.url}\nTitle: {self.title}\nQuestion: {self.prompt}\n\n{_PAGE_MARK}\n{self.page}"

    @classmethod
    def parse(cls, text: str) -> "PageQuestion":
        head, _, page = text.partition(f"\n\n{_PAGE_MARK}\n")
        address, _, rest = head.partition("\nTitle: ")
        title, _, prompt = rest.partition("\nQuestion: ")
        return cls(address.removeprefix("Address: "), prompt, page, title)


class CollectedContext(Struct, frozen=True):
    """Things that were collected, each with a title, and what of them matters; no focus means all."""

    focus: str
    items: tuple[tuple[str, str], ...]

    def render(self) -> str:
        focus = f"Focus: {self.focus}\n\n" if self.focus else ""
        return focus + "\n\n".join(f"{_ITEM_MARK} {title}\n{text}" for title, text in self.items)

    @classmethod
    def parse(cls, text: str) -> "CollectedContext":
        head, *parts = f"\n{text}".split(f"\n{_ITEM_MARK} ")
        cut = [part.partition("\n") for part in parts]
        return cls(head.strip().removeprefix("Focus: "), tuple((title, body.strip()) for title, _, body in cut))
