"""WebFetch: ask something of one web page."""

import asyncio

from odin.core.errors import OdinError
from odin.core.job import WEB_ANSWER_JOB
from odin.core.passages import extract_excerpt
from odin.core.reading import PageQuestion
from odin.core.tool import Args, AskSmallModel, Fetch, FetchResponse, Subject, Tool, ToolContext, ToolOutput, fail
from odin.policy.process.runner import ProcessRunner
from odin.tools.web.address import InvalidUrl, normalize_url
from odin.tools.web.page import UnreadablePage, WebPage, read_page

MAX_BYTES = 5_000_000
MAX_MODEL_CHARS = 50_000
"""Characters of a page that the lesser model is given."""

MAX_FALLBACK_CHARS = 8_000
"""Characters of a page that are shown when the lesser model cannot be asked."""

_ANSWER_SECONDS = 180.0
_QUOTED_CHARS = 300


class WebFetchArgs(Args, frozen=True):
    url: str
    prompt: str


class WebFetchTool(Tool[WebFetchArgs]):
    """Fetch a web page and answer the prompt about it."""

    name = "WebFetch"
    kind = "network"
    short = "Answer a prompt about a web page."
    args = WebFetchArgs

    def __init__(self, fetch: Fetch, small_model: AskSmallModel, runner: ProcessRunner) -> None:
        self._fetch = fetch
        self._small_model = small_model
        self._runner = runner

    def subject_of(self, args: WebFetchArgs) -> Subject:
        try:
            return Subject(url=normalize_url(args.url))
        except InvalidUrl:
            return Subject(url=args.url)

    async def run(self, args: WebFetchArgs, ctx: ToolContext) -> ToolOutput:
        if not args.prompt.strip():
            return fail("The prompt is empty. Say what to find out from the page.")
        try:
            fetched = await self._fetch(normalize_url(args.url), limit=MAX_BYTES)
        except InvalidUrl as error:
            return fail(str(error))
        except OdinError as error:
            return fail(error.describe())
        if fetched.location:
            return _report_redirect(fetched)
        fine = 200 <= fetched.status < 300
        try:
            page = await read_page(fetched, self._runner)
        except UnreadablePage as error:
            if not fine:
                return fail(_describe_http_error(fetched, ""))
            advice = "If it is needed, download it with ExecuteCommand and look at the file."
            return fail(f"{fetched.url} cannot be shown: {error}. {advice}")
        if not fine:
            return fail(_describe_http_error(fetched, page.text))
        if not page.text:
            return fail(f"{fetched.url} has no text ({len(fetched.body):,} bytes).{_describe_script_page(page)}")
        return await self._answer(args, fetched, page)

    async def _answer(self, args: WebFetchArgs, fetched: FetchResponse, page: WebPage) -> ToolOutput:
        shown = extract_excerpt(page.text, args.prompt, MAX_MODEL_CHARS)
        question = PageQuestion(fetched.url, args.prompt, shown, page.title)
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                answer = await self._small_model(WEB_ANSWER_JOB, question.render())
            notes: list[str] = []
        except (OdinError, TimeoutError) as error:
            why = str(error) or f"no answer within {_ANSWER_SECONDS:g} s"
            answer = shown = extract_excerpt(page.text, args.prompt, MAX_FALLBACK_CHARS)
            notes = [f"The lesser model could not be asked ({why}): this is the page itself."]
        notes += _list_caveats(fetched, page, len(shown))
        heading = f"{fetched.url}: {page.title}" if page.title else fetched.url
        text = "\n\n".join([heading, answer, *(f"({note})" for note in notes)])
        return ToolOutput(text=text, note=f"Read {fetched.url}: {len(page.text):,} characters")


def _report_redirect(fetched: FetchResponse) -> ToolOutput:
    text = (
        f"{fetched.url} redirects to another place, which was not read: {fetched.location}\n"
        "Call WebFetch with that address if you want it."
    )
    return ToolOutput(text=text, note=f"{fetched.url} redirects elsewhere")


def _describe_http_error(fetched: FetchResponse, text: str) -> str:
    said = " ".join(text.split())[:_QUOTED_CHARS]
    tail = f" The page says: {said}" if said else ""
    return f"{fetched.url} answered with HTTP status {fetched.status}. Check the address.{tail}"


def _list_caveats(fetched: FetchResponse, page: WebPage, shown: int) -> list[str]:
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
    if page.needs_scripts:
        notes.append(_describe_script_page(page).strip())
    return notes


def _describe_script_page(page: WebPage) -> str:
    if not page.needs_scripts:
        return ""
    return " This page is suspect: it has hardly any text and is filled by scripts, which do not run here."
