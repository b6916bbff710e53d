"""A server with one or both of the OpenAI APIs.

Models since GPT-5 are asked over Responses, which takes their tools together with reasoning. Where the server does not
have it, they are asked over Chat Completions, as all others; that is remembered for the server.
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import cached_property
from typing import TYPE_CHECKING

from odin.core.errors import BadReply, BadRequest, ModelNotFound, ProviderError
from odin.core.provider import Chunk, Request, RollbackChunk, WaitChunk
from odin.providers.contracts import get_contract
from odin.providers.openai_chat import ChatProvider

if TYPE_CHECKING:
    from odin.providers.openai_responses import ResponsesProvider

_PLACE = r"(endpoint|url|path|route|/responses)"
_UNKNOWN = r"(unknown|unsupported|invalid|not (found|support|exist))"
_UNKNOWN_PATTERN = rf"{_UNKNOWN}.{{0,40}}{_PLACE}|{_PLACE}.{{0,40}}{_UNKNOWN}"
"""In a refusal of the Responses API with status 400."""


class OpenAIProvider(ChatProvider):
    """One server with {base_url}/chat/completions, and perhaps {base_url}/responses."""

    @cached_property
    def _responses(self) -> "ResponsesProvider":
        from odin.providers.openai_responses import ResponsesProvider

        return ResponsesProvider(
            name=self.name,
            base_url=self.server,
            api_key=self._keys,
            http=self._http,
            headers=self._own_headers,
            options=self._options,
        )

    async def stream(self, request: Request) -> AsyncGenerator[Chunk]:
        memory, is_refused = self._options.memory, False
        if get_contract(request.model).tool_apis[0] == "responses" and not memory.has_refused(self.server, "responses"):
            is_silent = True
            try:
                async with aclosing(self._responses.stream(request)) as chunks:
                    async for chunk in chunks:
                        is_silent = is_silent and isinstance(chunk, WaitChunk | RollbackChunk)
                        yield chunk
            except (BadReply, BadRequest, ModelNotFound) as error:
                if not (is_silent and _is_unknown_endpoint(error)):
                    raise
                is_refused = True
            else:
                return
        try:
            async with aclosing(super().stream(request)) as chunks:
                async for chunk in chunks:
                    yield chunk
        except BadRequest as error:
            if request.tools and "chat" not in get_contract(request.model).tool_apis:
                error.hint = f"{request.model} takes tools over the Responses API, which {self.name} does not have."
            raise
        if is_refused:
            memory.note_refusal(self.server, "responses")


def _is_unknown_endpoint(error: ProviderError) -> bool:
    """True if the server may lack the API. That it does is known when it answers over the other one."""
    named = re.search(_UNKNOWN_PATTERN, str(error), re.IGNORECASE) is not None
    if error.status in (404, 405):
        return named or error.code != "model_not_found"
    return named and error.status == 400
