"""The Gemini API of Google (`streamGenerateContent`).

A thought signature belongs to the part it came with: to a tool call, to a thought, or, as an empty part of its own, to
the text before it. Signatures are sent back to the model that issued them, in the place where they came, and to no
other. Models since Gemini 3 reject a call without one, so calls of other models get the value that Google documents for
them. The model is part of the URL, the key is a header.
"""

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct, field

from odin.core.errors import BadRequest, ReplyBlocked
from odin.core.message import (
    Message,
    PromptMessage,
    ReplyMessage,
    StopReason,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    Usage,
)
from odin.core.provider import CallChunk, Chunk, Request, StopChunk, TextChunk, ThinkingChunk, UsageChunk
from odin.providers import errors
from odin.providers.contracts import ModelContract, get_contract
from odin.providers.errors import ApiErrorInfo, ErrorContext
from odin.providers.payload import (
    IMAGES_INTRO,
    NO_OUTPUT,
    CallIdMap,
    EncodedHistory,
    ImageBudget,
    ImageSelection,
    ShownContent,
    append_items,
    choose_history,
    decode_event,
    encode_arguments,
    get_reply_model,
    make_legal_name,
    may_replay,
)
from odin.providers.wire import ApiKey, ListedModel, ServerEvent, WireProvider, WireReader

FOREIGN_SIGNATURE = "skip_thought_signature_validator"
"""Google's documented signature for calls that come from another model."""

MAX_OUTPUT_TOKENS = 65_536
_DEFAULT_THINKING = 8192
"""Tokens to leave for thinking if the model thinks by its own measure: they count as output."""


class GeminiProvider(WireProvider):
    """One server of the Gemini API. `base_url` may end with a version or not."""

    path = ""
    list_path = "/models?pageSize=1000"
    _trusts_signatures = True

    def resolve_url(self, base_url: str) -> str:
        base = base_url.partition("/models/")[0]
        return base if re.search(r"/v\d+\w*$", base) else f"{base}/v1beta"

    def build_headers(self, key: str, bearer: bool) -> dict[str, str]:
        return super().build_headers(key, bearer) if bearer or not key else {"x-goog-api-key": key}

    def make_error_context(self, model: str, key: ApiKey) -> ErrorContext:
        url = f"{self.url}/models/{_quote(model.removeprefix('models/'))}:streamGenerateContent?alt=sse"
        return ErrorContext(self.name, url, model, key.value, self._options.key_places)

    def parse_models(self, body: bytes) -> tuple[ListedModel, ...]:
        listed = msgspec.json.decode(body, type=_GeminiModelList).models
        return tuple(
            ListedModel(model.name.removeprefix("models/"), model.input_tokens or 0)
            for model in listed
            if model.name and (model.methods is None or "generateContent" in model.methods)
        )

    def encode(self, request: Request, images: ImageSelection, history: EncodedHistory) -> bytes:
        effort = self.get_named_effort(request.model)
        provider = self.name if self._trusts_signatures else ""
        return encode_request(request, provider, images, history, effort=effort)

    def adapt(self, request: Request, error: BadRequest) -> bool:
        """A signature that is refused, as after a change of the server behind a gateway, is not sent again."""
        if self._trusts_signatures and re.search(r"thought.?signature", str(error), re.IGNORECASE):
            self._trusts_signatures = False
            return True
        return self.learn_effort(request, error)

    def make_reader(self, context: ErrorContext, request: Request) -> WireReader:
        return _GeminiReader(context)

    def takes_answer_schema(self, request: Request) -> bool:
        """Models before Gemini 3 reject a schema beside tools, and later ones may call tools without end."""
        return len(request.tools) == 1 and get_contract(request.model).schemas


def _quote(model: str) -> str:
    """Return the name as part of a URL path."""
    return re.sub(
        rb"[^A-Za-z0-9._~@/-]", lambda found: b"%%%02X" % found[0][0], model.encode("utf-8", "replace")
    ).decode()


# --- request ---


def encode_request(
    request: Request,
    provider: str,
    selection: ImageSelection | None = None,
    history: EncodedHistory | None = None,
    *,
    effort: str | None = None,
) -> bytes:
    """Return the body with keys in a fixed order and contents last, so each request extends the bytes of the previous
    one. `effort` is sent instead of what the table says."""
    contract = get_contract(request.model)
    # The generation config. The limit of the output includes the thinking, so there is room for both.
    thinking = _encode_thinking(request, contract) if effort is None else _encode_level(effort)
    room = thinking.get("thinkingBudget", 0)
    if contract.signed_calls:
        room = max(request.thinking, _DEFAULT_THINKING)
    options: dict[str, Any] = {
        "maxOutputTokens": max(request.max_tokens, min(request.max_tokens + room, MAX_OUTPUT_TOKENS))
    }
    if request.temperature is not None and contract.sampling:
        options["temperature"] = request.temperature
    if thinking:
        options["thinkingConfig"] = thinking
    if request.schema is not None:
        options["responseMimeType"] = "application/json"
        options["responseJsonSchema"] = clean_schema(request.schema)
    body: dict[str, Any] = {"generationConfig": options}
    if request.service_tier:
        body["serviceTier"] = request.service_tier
    if request.tools:
        body["tools"] = [
            {
                "functionDeclarations": [
                    {"name": tool.name, "description": tool.description, "parametersJsonSchema": tool.schema}
                    for tool in request.tools
                ]
            }
        ]
    system = _encode_texts(*request.system)
    if system:
        body["systemInstruction"] = {"parts": system}
    return append_items(body, "contents", _encode_contents(request, provider, contract, selection, history))


def _encode_thinking(request: Request, contract: ModelContract) -> dict[str, Any]:
    """Return the thinking config: a level, a token budget for Gemini 2.5, nothing for older models.

    Models since Gemini 3 cannot be told not to think; without a level they use their default.
    """
    if contract.signed_calls:  # since Gemini 3
        if request.thinking or request.effort:
            return _encode_level(contract.choose_effort(request))
        return {"thinkingLevel": contract.efforts[0].upper()} if request.brief else {}
    off, least, most = contract.budgets
    if not most:
        return {}
    if not request.thinking:
        return {"thinkingBudget": off}
    return {"includeThoughts": True, "thinkingBudget": min(max(request.thinking, least), most)}


def _encode_level(effort: str) -> dict[str, Any]:
    return {"includeThoughts": True, "thinkingLevel": effort.upper()} if effort else {}


_SCHEMA_KEYWORDS = (
    "$id $defs $ref $anchor type format title description enum items prefixItems minItems maxItems minimum maximum "
    "anyOf oneOf properties additionalProperties required propertyOrdering"
)
_SCHEMA_KEYS = frozenset(_SCHEMA_KEYWORDS.split())


def clean_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema with only the keywords that the API takes for replies. `const` becomes an `enum`."""
    found: dict[str, Any] = {key: _clean_value(key, value) for key, value in schema.items() if key in _SCHEMA_KEYS}
    constant: Any = schema.get("const")
    if isinstance(constant, bool):
        found["type"] = "boolean"
    elif constant is not None:
        found["enum"] = [constant]
    return found


def _clean_value(key: str, value: Any) -> Any:
    if key in ("properties", "$defs") and isinstance(value, dict):
        return {name: _clean_value("", child) for name, child in cast("dict[str, Any]", value).items()}
    if key in ("enum", "required", "propertyOrdering"):
        return value
    if isinstance(value, list):
        return [_clean_value("", item) for item in cast("list[Any]", value)]
    return clean_schema(cast("dict[str, Any]", value)) if isinstance(value, dict) else value


def _encode_contents(
    request: Request,
    provider: str,
    contract: ModelContract,
    selection: ImageSelection | None,
    history: EncodedHistory | None,
) -> bytes:
    history = choose_history(request, history)
    shown = selection or ImageBudget().select_images(request, history.has_images)

    def encode(message: Message, index: int, ids: CallIdMap) -> list[dict[str, Any]]:
        if isinstance(message, ReplyMessage):
            own = may_replay(message, provider, request.model)
            role, parts = "model", _encode_reply(message, own, ids, signed=contract.signed_calls)
        elif isinstance(message, PromptMessage):
            role, parts = "user", _encode_prompt(shown.render(message), message.notes)
        else:
            # The tool name of each result. Calls of one reply may share an id; their results come in their order.
            before = request.messages[index - 1] if index else None
            left = list(before.calls) if isinstance(before, ReplyMessage) else []
            names: list[str] = []
            for result in message.results:
                call = next((call for call in left if call.id == result.call_id), None)
                names.append(_make_name(call.name if call else ""))
                if call is not None:
                    left.remove(call)
            role, parts = "user", _encode_results(message, names, ids, shown, holds_images=contract.signed_calls)
        return [{"role": role, "parts": parts}] if parts else []

    return history.encode((request.model, request.images, provider), encode)


def _encode_texts(*texts: str) -> list[dict[str, Any]]:
    return [{"text": text} for text in texts if text.strip()]


def _encode_images(*shown: ShownContent) -> list[dict[str, Any]]:
    return [{"inlineData": {"mimeType": kind, "data": data}} for one in shown for kind, data in one.images]


def _encode_prompt(shown: ShownContent, notes: tuple[str, ...]) -> list[dict[str, Any]]:
    return [*_encode_images(shown), *_encode_texts(shown.text, *notes)]


def _encode_reply(message: ReplyMessage, own: bool, ids: CallIdMap, *, signed: bool) -> list[dict[str, Any]]:
    """Return the reply's parts. Thinking without a signature is not sent back."""
    parts: list[dict[str, Any]] = []
    is_first_call = True
    for part in message.parts:
        if isinstance(part, ToolCall):
            call = {"id": ids.get(part.id), "name": _make_name(part.name), "args": part.args}
            needed = FOREIGN_SIGNATURE if is_first_call and signed else ""
            signature = part.signature if own and part.signature else needed
            parts.append({"functionCall": call, **({"thoughtSignature": signature} if signature else {})})
            is_first_call = False
        elif isinstance(part, Text):
            parts += _encode_texts(part.text)
        elif own and part.signature:
            shown: dict[str, Any] = {"text": part.text, "thought": True} if part.text else {"text": ""}
            parts.append({**shown, "thoughtSignature": part.signature})
    said = any("functionCall" in part or (part["text"] and "thought" not in part) for part in parts)
    return parts if said else []


def _make_name(name: str) -> str:
    """Return a legal function name, which starts with a letter or an underscore."""
    legal = make_legal_name(name)
    return legal if legal[0].isalpha() or legal[0] == "_" else f"_{legal[:63]}"


def _encode_results(
    message: ToolMessage, names: list[str], ids: CallIdMap, selection: ImageSelection, *, holds_images: bool
) -> list[dict[str, Any]]:
    """Return the function responses. Images are parts of them, or follow where the model takes none there."""
    shown = [selection.render(result) for result in message.results]
    parts: list[dict[str, Any]] = []
    for result, name, content in zip(message.results, names, shown, strict=True):
        answer: dict[str, Any] = {"id": ids.get(result.call_id), "name": name}
        answer["response"] = _encode_response(result, content)
        images = _encode_images(content) if holds_images else []
        parts.append({"functionResponse": {**answer, **({"parts": images} if images else {})}})
    images = [] if holds_images else _encode_images(*shown)
    return [*parts, *(_encode_texts(IMAGES_INTRO) if images else ()), *images, *_encode_texts(*message.notes)]


def _encode_response(result: ToolResult, shown: ShownContent) -> dict[str, Any]:
    return {"error" if result.is_error else "output": shown.text if shown.text.strip() else NO_OUTPUT}


# --- response ---


class _GeminiModel(Struct):
    name: str = ""
    input_tokens: int | None = field(name="inputTokenLimit", default=None)
    methods: list[str] | None = field(name="supportedGenerationMethods", default=None)


class _GeminiModelList(Struct):
    models: list[_GeminiModel] = field(default_factory=list[_GeminiModel])


class _GeminiCall(Struct):
    id: str | None = None
    name: str | None = None
    args: Any = None


class _GeminiPart(Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    thought_signature: str | None = None
    function_call: _GeminiCall | None = None


class _GeminiContent(Struct):
    parts: list[_GeminiPart] | None = None


class _GeminiCandidate(Struct, rename="camel"):
    content: _GeminiContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _GeminiFeedback(Struct, rename="camel"):
    block_reason: str | None = None


class _GeminiUsage(Struct, rename="camel"):
    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    cached_content_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _GeminiChunk(Struct, rename="camel"):
    candidates: list[_GeminiCandidate] | None = None
    prompt_feedback: _GeminiFeedback | None = None
    usage_metadata: _GeminiUsage | None = None
    model_version: str | None = None
    error: Any = None


_STOP_REASONS: dict[str, StopReason] = {"STOP": "end_turn", "MAX_TOKENS": "max_tokens", "CONTINUATION": "max_tokens"}

_MALFORMED_REASONS = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"})

_BLOCK_REASONS = {
    "SAFETY": "its safety filter",
    "RECITATION": "its filter for recited text",
    "LANGUAGE": "its filter for unsupported languages",
    "BLOCKLIST": "its list of blocked terms",
    "PROHIBITED_CONTENT": "its filter for prohibited content",
    "SPII": "its filter for sensitive personal data",
    "IMAGE_SAFETY": "its safety filter for images",
    "MODEL_ARMOR": "Model Armor",
    "JAILBREAK": "its filter for jailbreaks",
}


class _GeminiReader(WireReader):
    """A response ends with its body: no event says that it is the last."""

    reads_whole = True

    def __init__(self, context: ErrorContext) -> None:
        super().__init__(context)
        self._calls = 0
        self._has_text = False
        self._usage = _GeminiUsage()
        self._note = ""

    def feed(self, event: ServerEvent) -> Iterator[Chunk]:
        chunk = decode_event(_GeminiChunk, event.data)
        if chunk.error:
            raise errors.make_reported_error(self._context, errors.parse_error_body(event.data))
        if chunk.model_version and not self._context.model.endswith("-latest"):
            self._model = get_reply_model(chunk.model_version, self._context.model)
        if chunk.usage_metadata is not None:
            self._usage = chunk.usage_metadata
            if not self.settled:
                yield UsageChunk(_build_usage(self._usage))
        if chunk.prompt_feedback and chunk.prompt_feedback.block_reason:
            raise _make_block_error(self._context, "prompt", chunk.prompt_feedback.block_reason)
        for candidate in (chunk.candidates or ())[:1]:
            for part in (candidate.content and candidate.content.parts) or ():
                yield from self._handle_part(part)
            if candidate.finish_reason:
                yield from self._settle(candidate.finish_reason, candidate.finish_message or "")

    def finish(self) -> Iterator[Chunk]:
        yield UsageChunk(_build_usage(self._usage))
        reason = "tool_use" if self._calls and self._stop == "end_turn" else self._stop
        yield StopChunk(reason, self._model, self._note)

    def _handle_part(self, part: _GeminiPart) -> Iterator[Chunk]:
        signature = part.thought_signature or ""
        if part.function_call is not None:
            yield self._make_call(part.function_call, signature)
        elif part.thought:
            if part.text or signature:
                yield ThinkingChunk(part.text or "", signature)
        else:
            if part.text:
                self._has_text = True
                yield TextChunk(part.text)
            if signature:
                yield ThinkingChunk(signature=signature)

    def _make_call(self, call: _GeminiCall, signature: str) -> CallChunk:
        number, self._calls = self._calls, self._calls + 1
        args = encode_arguments(call.args)
        return CallChunk(number, call.id or "", call.name or "", args, done=True, signature=signature)

    def _settle(self, reason: str, message: str) -> Iterator[Chunk]:
        self.settled = True
        if reason in _MALFORMED_REASONS:
            # The function that a malformed call names, for example print(default_api.Read(…)), or "".
            found = re.search(r"default_api\.(\w+)", message)
            yield self._make_call(_GeminiCall(name=found[1] if found else "", args=message or reason), "")
        elif reason == "MALFORMED_RESPONSE":
            raise errors.make_reported_error(self._context, ApiErrorInfo("the model's reply was malformed", "INTERNAL"))
        elif reason in _BLOCK_REASONS:
            if self._calls or not self._has_text:
                raise _make_block_error(self._context, "reply", reason)
            why = f"{_BLOCK_REASONS[reason]} matched ({reason})"
            self._stop, self._note = "refusal", f"{self._context.name} ended the reply early: {why}."
        else:
            self._stop = _STOP_REASONS.get(reason, "end_turn")


def _make_block_error(context: ErrorContext, what: str, reason: str) -> ReplyBlocked:
    by = _BLOCK_REASONS.get(reason, "one of its filters")
    return ReplyBlocked(
        f"{context.name} blocked the {what}: {by} matched ({reason}).",
        "Rephrase the prompt, or use another model.",
        type=reason,
    )


def _build_usage(usage: _GeminiUsage) -> Usage:
    """Return usage without overlaps: the prompt includes cached tokens, the candidates do not include thoughts."""
    read = usage.cached_content_token_count or 0
    prompt = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    return Usage(
        input=max(0, prompt - read),
        output=usage.candidates_token_count or 0,
        cache_read=read,
        reasoning=usage.thoughts_token_count or 0,
    )
