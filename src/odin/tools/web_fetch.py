"""WebFetch: ask something of one web page."""

import asyncio

from odin.core.errors import OdinError
from odin.core.job import WEB_ANSWER
from odin.core.passages import excerpt
from odin.core.reading import PageQuestion
from odin.core.tool import Args, AskLesser, Fetch, Fetched, Subject, Tool, ToolContext, ToolOutput, failed
from odin.policy.process.runner import ProcessRunner
from odin.tools.web.address import BadAddress, tidy_url
from odin.tools.web.page import Page, Unreadable, read_page

MAX_BYTES = 5_000_000
FOR_THE_MODEL = 50_000
"""Characters of a page that the lesser model is given."""

INSTEAD = 8_000
"""Characters of a page that are shown when the lesser model cannot be asked."""

_PATIENCE = 180.0
_SAID = 300


class WebFetchArgs(Args, frozen=True):
    url: str
    prompt: str


class WebFetch(Tool[WebFetchArgs]):
    """Fetch a web page and answer the prompt about it."""

    name = "WebFetch"
    kind = "network"
    short = "Answer a prompt about a web page."
    args = WebFetchArgs

    def __init__(self, fetch: Fetch, lesser: AskLesser, runner: ProcessRunner) -> None:
        self._fetch = fetch
        self._lesser = lesser
        self._runner = runner

    def subject(self, args: WebFetchArgs) -> Subject:
        try:
            return Subject(url=tidy_url(args.url))
        except BadAddress:
            return Subject(url=args.url)

    async def run(self, args: WebFetchArgs, ctx: ToolContext) -> ToolOutput:
        if not args.prompt.strip():
            return failed("The prompt is empty. Say what to find out from the page.")
        try:
            fetched = await self._fetch(tidy_url(args.url), limit=MAX_BYTES)
        except BadAddress as error:
            return failed(str(error))
        except OdinError as error:
            return failed(error.sentence())
        if fetched.location:
            return _elsewhere(fetched)
        fine = 200 <= fetched.status < 300
        try:
            page = await read_page(fetched, self._runner)
        except Unreadable as error:
            if not fine:
                return failed(_refusal(fetched, ""))
            advice = "If it is needed, download it with ExecuteCommand and look at the file."
            return failed(f"{fetched.url} cannot be shown: {error}. {advice}")
        if not fine:
            return failed(_refusal(fetched, page.text))
        if not page.text:
            return failed(f"{fetched.url} has no text ({len(fetched.body):,} bytes).{_shell(page)}")
        return await self._answer(args, fetched, page)

    async def _answer(self, args: WebFetchArgs, fetched: Fetched, page: Page) -> ToolOutput:
        shown = excerpt(page.text, args.prompt, FOR_THE_MODEL)
        question = PageQuestion(fetched.url, args.prompt, shown, page.title)
        try:
            async with asyncio.timeout(_PATIENCE):
                answer = await self._lesser(WEB_ANSWER, question.text())
            notes: list[str] = []
        except (OdinError, TimeoutError) as error:
            why = str(error) or f"no answer within {_PATIENCE:g} s"
            answer = shown = excerpt(page.text, args.prompt, INSTEAD)
            notes = [f"The lesser model could not be asked ({why}): this is the page itself."]
        notes += _cuts(fetched, page, len(shown))
        heading = f"{fetched.url}: {page.title}" if page.title else fetched.url
        text = "\n\n".join([heading, answer, *(f"({note})" for note in notes)])
        return ToolOutput(text=text, note=f"Read {fetched.url}: {len(page.text):,} characters")


def _elsewhere(fetched: Fetched) -> ToolOutput:
    text = (
        f"{fetched.url} redirects to another place, which was not read: {fetched.location}\n"
        "Call WebFetch with that address if you want it."
    )
    return ToolOutput(text=text, note=f"{fetched.url} redirects elsewhere")


def _refusal(fetched: Fetched, text: str) -> str:
    said = " ".join(text.split())[:_SAID]
    tail = f" The page says: {said}" if said else ""
    return f"{fetched.url} answered with HTTP status {fetched.status}. Check the address.{tail}"


def _cuts(fetched: Fetched, page: Page, shown: int) -> list[str]:
    """What of the page was not looked at, and what makes it doubtful."""
    notes: list[str] = []
    if not fetched.complete:
        notes.append(f"The page is longer than {MAX_BYTES:,} bytes; the rest was not read.")
    if page.total > len(page.text) or shown < len(page.text):
        kept = f", of the first {len(page.text):,}" if page.total > len(page.text) else ""
        notes.append(
            f"{shown:,} of {page.total:,} characters were looked at: the beginning and what matches the prompt{kept}. "
            "For all of it, download the page with ExecuteCommand."
        )
    if page.shell:
        notes.append(_shell(page).strip())
    return notes


def _shell(page: Page) -> str:
    if not page.shell:
        return ""
    return " This page is suspect: it has hardly any text and is filled by scripts, which do not run here."
