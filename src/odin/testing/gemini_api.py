"""The Gemini API of the scripted server: wire format, errors, and the checks of the real API."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection
from typing import Any, Literal

import msgspec

from odin.testing.gemini_rules import check_thinking
from odin.testing.render import RenderedCall, RenderedReply, is_sealed, seal_reasoning
from odin.testing.script import StreamError
from odin.testing.strict import (
    IssuedIds,
    RequestRefused,
    as_int,
    as_list,
    as_number,
    as_object,
    check_inline_data,
    find_unknown_key,
    split_keys,
)

PING = b": keepalive\r\n\r\n"
GARBLED = b'data: {"candidates": [{"content": {"par\r\n\r\n'
FOREIGN_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
"""What Google documents for calls that come from another model."""

INVALID_KEY = RequestRefused("API key not valid. Please pass a valid API key.", status=400, code="API_KEY_INVALID")
"""What this API answers to a wrong key; its 401 is for tokens."""

_PATH = re.compile(r"/v1(?:beta|alpha)?/models/([^/:?]+):(streamGenerateContent|generateContent)")
_STATUSES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_FINISH_REASONS = {
    "end_turn": "STOP",
    "tool_use": "STOP",
    "stop_sequence": "STOP",
    "max_tokens": "MAX_TOKENS",
    "refusal": "SAFETY",
    "content_filter": "SAFETY",
}


def parse_path(path: str) -> tuple[str, bool] | None:
    """Return the model and whether the reply is streamed, or None if the URL is not one of this API."""
    found = _PATH.fullmatch(path.partition("?")[0])
    return (found[1], found[2] == "streamGenerateContent") if found else None


def encode_event(data: dict[str, Any]) -> bytes:
    return b"data: %s\r\n\r\n" % msgspec.json.encode(data)


def encode_frames(rendered: RenderedReply, body: dict[str, Any]) -> list[bytes]:
    """Return the reply as server-sent events. The last one has the finish reason."""
    parts = _build_parts(rendered, rendered.split_chunks)
    frames = [encode_event(_build_response(rendered, [part])) for part in parts[:-1]]
    return [*frames, encode_event(_build_response(rendered, parts[-1:], last=True))]


def build_reply(rendered: RenderedReply, body: dict[str, Any]) -> dict[str, Any]:
    """Return the reply to a request without streaming."""
    return _build_response(rendered, _build_parts(rendered, lambda text: [text]), last=True)


def build_error_body(
    status: int, message: str, type: str | None, code: str | None, param: str | None
) -> dict[str, Any]:
    """Return a `google.rpc.Status`. `code` is a reason or, for a rate limit, the id of a quota."""
    kind = (
        type if type and type.isupper() else _STATUSES.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    )
    error: dict[str, Any] = {"code": status, "message": message or kind.replace("_", " ").capitalize(), "status": kind}
    if code and status == 429:
        quota = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"quotaId": code}]}
        error["details"] = [quota, {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]
    elif code:
        about = {"reason": code, "domain": "googleapis.com"}
        error["details"] = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", **about}]
    return {"error": error}


def encode_error_frames(error: StreamError, sequence: int) -> list[bytes]:
    status = {"overloaded_error": 503, "rate_limit_error": 429}.get(error.type, 500)
    return [encode_event(build_error_body(status, error.message, None, error.code, None))]


def make_signature(model: str, number: int, name: str) -> str:
    """Return the signature of a part: that of a call names its function, that of a text is empty."""
    return b64encode(seal_reasoning(model, f"{number}:{name}").encode()).decode()


def parse_version(model: str) -> tuple[int, int]:
    found = re.search(r"gemini-(\d+)(?:\.(\d+))?", model)
    return (int(found[1]), int(found[2] or 0)) if found else (0, 0)


def _is_signed(rendered: RenderedReply) -> bool:
    return bool(rendered.thinking) or parse_version(rendered.model) >= (3, 0)


def _build_parts(rendered: RenderedReply, split: Callable[[str], list[str]]) -> list[dict[str, Any]]:
    """Return the parts, of which a stream sends one at a time."""
    parts: list[dict[str, Any]] = [{"text": text, "thought": True} for text in split(rendered.thinking) if text]
    parts += [{"text": text} for text in split(rendered.text) if text]
    for number, call in enumerate(rendered.calls):
        signed = number == 0 and _is_signed(rendered)
        proof = {"thoughtSignature": make_signature(rendered.model, rendered.number, call.name)} if signed else {}
        args = _parse_arguments(call)
        if args is not None:
            parts.append({"functionCall": {"id": call.id, "name": call.name, "args": args}, **proof})
    last = {"thoughtSignature": make_signature(rendered.model, rendered.number, "")}
    return [*parts, {"text": "", **(last if _is_signed(rendered) and not rendered.calls else {})}]


def _parse_arguments(call: RenderedCall) -> dict[str, Any] | None:
    try:
        return as_object(msgspec.json.decode(call.json)) if call.json else {}
    except msgspec.DecodeError:
        return None


def _build_response(rendered: RenderedReply, parts: list[dict[str, Any]], *, last: bool = False) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    usage = rendered.usage
    prompt = usage.input + usage.cache_read + usage.cache_write
    counts = {"promptTokenCount": prompt, "totalTokenCount": prompt}
    if last:
        candidate |= _build_finish(rendered)
        counts["candidatesTokenCount"] = usage.output
        counts["totalTokenCount"] = prompt + usage.output + usage.reasoning
        counts |= {"thoughtsTokenCount": usage.reasoning} if usage.reasoning else {}
    counts |= {"cachedContentTokenCount": usage.cache_read} if usage.cache_read else {}
    return {
        "candidates": [candidate],
        "usageMetadata": counts,
        "modelVersion": rendered.model,
        "responseId": f"resp_{rendered.number:06d}",
    }


def _build_finish(rendered: RenderedReply) -> dict[str, Any]:
    reason = _FINISH_REASONS.get(rendered.stop, rendered.stop)
    broken = next((call for call in rendered.calls if _parse_arguments(call) is None), None)
    if broken is None or reason != "STOP":
        return {"finishReason": reason}
    said = f"Malformed function call: print(default_api.{broken.name}({broken.json}"
    return {"finishReason": "MALFORMED_FUNCTION_CALL", "finishMessage": said}


# --- checks ---

_TOP_LEVEL_KEYS = split_keys(
    "model contents tools toolConfig safetySettings systemInstruction generationConfig cachedContent store serviceTier"
)
_OPTION_KEYS = split_keys(
    "stopSequences responseMimeType responseSchema responseJsonSchema responseModalities candidateCount "
    "maxOutputTokens temperature topP topK seed presencePenalty frequencyPenalty responseLogprobs logprobs "
    "speechConfig thinkingConfig imageConfig mediaResolution"
)
_DATA_KEYS = split_keys("text inlineData functionCall functionResponse fileData executableCode codeExecutionResult")
_PART_KEYS = _DATA_KEYS | split_keys("thought thoughtSignature partMetadata videoMetadata mediaResolution")
_CALL_KEYS = {"functionCall": split_keys("id name args"), "functionResponse": split_keys("id name response parts")}
_FUNCTION_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,127}")
_NAME_RULE = (
    "Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), "
    "colons (:), or dashes (-), with a maximum length of 128."
)

Content = tuple[Literal["user", "model"], list[dict[str, Any]]]


def check_request(body: dict[str, Any], memory: IssuedIds, accepts: Collection[str] | None) -> None:
    body = _rename_fields(body)
    _check_keys(body, _TOP_LEVEL_KEYS, "", accepts)
    _check_options(body, accepts)
    _check_tools(body, accepts)
    if body.get("systemInstruction") is not None:
        _check_content(body["systemInstruction"], "system_instruction", accepts, role="user")
    given = as_list(body.get("contents"))
    if not given:
        raise RequestRefused("* GenerateContentRequest.contents: contents is not specified\n")
    contents = [_check_content(item, f"contents[{at}]", accepts) for at, item in enumerate(given)]
    _check_turns(contents)
    _check_signatures(body["model"], contents)


_PAYLOADS = split_keys("args response parameters parametersJsonSchema responseSchema responseJsonSchema")
"""Fields whose content is not part of the API."""


def _rename_fields(value: Any) -> Any:
    """Return the body with fields in camel case: the API takes both forms."""
    if isinstance(value, list):
        return [_rename_fields(item) for item in as_list(value) or []]
    found = as_object(value)
    if found is None:
        return value
    named = {_to_camel_case(key) if "_" in key else key: item for key, item in found.items()}
    return {key: item if key in _PAYLOADS else _rename_fields(item) for key, item in named.items()}


def _to_camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda letter: letter[1].upper(), name)


def _check_keys(found: dict[str, Any], known: Collection[str], where: str, accepts: Collection[str] | None) -> None:
    extra = find_unknown_key(found, known, accepts)
    if extra:
        place = f" at '{where}'" if where else ""
        raise RequestRefused(f'Invalid JSON payload received. Unknown name "{extra}"{place}: Cannot find field.')


def _check_options(body: dict[str, Any], accepts: Collection[str] | None) -> None:
    options = as_object(body.get("generationConfig") or {})
    if options is None:
        raise RequestRefused("Invalid value at 'generation_config' (type.googleapis.com/GenerationConfig)")
    _check_keys(options, _OPTION_KEYS, "generation_config", accepts)
    most = options.get("maxOutputTokens")
    if most is not None and (as_int(most) is None or most < 1):
        raise RequestRefused(f"Unable to submit request because it has a maxOutputTokens value of {most}.")
    heat = options.get("temperature")
    if heat is not None and (as_number(heat) is None or not 0 <= heat <= 2):
        raise RequestRefused(
            f"* GenerateContentRequest.generation_config.temperature: must be in the range [0.0, 2.0]; {heat}"
        )
    if "responseJsonSchema" in options and options.get("responseMimeType") != "application/json":
        raise RequestRefused(
            "* GenerateContentRequest.generation_config.response_json_schema: only allowed with response_mime_type "
            "'application/json'\n"
        )
    if options.get("responseMimeType") == "application/json" and body.get("tools"):
        raise RequestRefused("Function calling with a response mime type: 'application/json' is unsupported")
    _check_thinking(body["model"], as_object(options.get("thinkingConfig")) or {}, accepts)


def _check_thinking(model: str, thinking: dict[str, Any], accepts: Collection[str] | None) -> None:
    known = ("includeThoughts", "thinkingBudget", "thinkingLevel")
    _check_keys(thinking, known, "generation_config.thinking_config", accepts)
    check_thinking(model, thinking.get("thinkingLevel"), thinking.get("thinkingBudget"))


def _check_tools(body: dict[str, Any], accepts: Collection[str] | None) -> None:
    names: set[str] = set()
    for at, item in enumerate(as_list(body.get("tools")) or []):
        for n, one in enumerate(as_list((as_object(item) or {}).get("functionDeclarations")) or []):
            where = f"tools[{at}].function_declarations[{n}]"
            function = as_object(one) or {}
            known = split_keys("name description parameters parametersJsonSchema response responseJsonSchema behavior")
            _check_keys(function, known, where, accepts)
            name = function.get("name")
            if not isinstance(name, str) or not _FUNCTION_NAME.fullmatch(name):
                raise RequestRefused(
                    f"* GenerateContentRequest.{where}.name: [FIELD_INVALID] Invalid function name. {_NAME_RULE}"
                )
            if name in names:
                raise RequestRefused(f"Duplicate function declaration found: {name}")
            names.add(name)
            _check_parameters(function, where)


def _check_parameters(function: dict[str, Any], where: str) -> None:
    if "parameters" in function and "parametersJsonSchema" in function:
        raise RequestRefused(
            f"* GenerateContentRequest.{where}: parameters and parameters_json_schema are mutually exclusive"
        )
    schema = function.get("parametersJsonSchema", function.get("parameters"))
    if schema is None:
        return
    kind = str((as_object(schema) or {}).get("type", "")).lower()
    if kind != "object":
        raise RequestRefused(f"* GenerateContentRequest.{where}.parameters: schema should be of type OBJECT")


def _check_content(item: Any, where: str, accepts: Collection[str] | None, role: str | None = None) -> Content:
    content = as_object(item)
    if content is None:
        raise RequestRefused(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.Content)")
    _check_keys(content, ("role", "parts"), where, accepts)
    speaker = content.get("role", role or "user")
    if speaker not in ("user", "model"):
        raise RequestRefused("Please use a valid role: user, model.")
    parts = as_list(content.get("parts"))
    if not parts:
        raise RequestRefused(f"* GenerateContentRequest.{where}.parts: contents.parts must not be empty.\n")
    return speaker, [_check_part(part, f"{where}.parts[{n}]", speaker, accepts) for n, part in enumerate(parts)]


def _check_part(item: Any, where: str, role: str, accepts: Collection[str] | None) -> dict[str, Any]:
    part = as_object(item)
    if part is None:
        raise RequestRefused(f"Invalid value at '{where}' (type.googleapis.com/google.ai.generativelanguage.Part)")
    _check_keys(part, _PART_KEYS, where, accepts)
    data = [key for key in part if key in _DATA_KEYS]
    if len(data) != 1:
        why = "must have one initialized field" if not data else "is already set, cannot set another"
        raise RequestRefused(f"* GenerateContentRequest.{where}.data: required oneof field 'data' {why}\n")
    if data[0] == "text" and not isinstance(part["text"], str):
        raise RequestRefused(f"Invalid value at '{where}.text' (TYPE_STRING)")
    if data[0] == "inlineData":
        check_inline_data(part["inlineData"], where)
    if data[0] in _CALL_KEYS:
        _check_function_part(part, data[0], where, role, accepts)
    return part


def _check_function_part(
    part: dict[str, Any], kind: str, where: str, role: str, accepts: Collection[str] | None
) -> None:
    wanted = "model" if kind == "functionCall" else "user"
    if role != wanted:
        raise RequestRefused(f"* GenerateContentRequest.{where}: {kind} is only allowed in contents of role {wanted}")
    value = as_object(part[kind]) or {}
    _check_keys(value, _CALL_KEYS[kind], f"{where}.{kind}", accepts)
    if not isinstance(value.get("name"), str) or not _FUNCTION_NAME.fullmatch(value["name"]):
        raise RequestRefused(
            f"* GenerateContentRequest.{where}.{kind}.name: [FIELD_INVALID] Invalid function name. {_NAME_RULE}"
        )
    body = "args" if kind == "functionCall" else "response"
    if as_object(value.get(body, {})) is None or (kind == "functionResponse" and not value.get("response")):
        raise RequestRefused(f"Invalid value at '{where}.{kind}.{body}' (type.googleapis.com/google.protobuf.Struct)")
    for n, media in enumerate(as_list(value.get("parts")) or []):
        check_inline_data((as_object(media) or {}).get("inlineData"), f"{where}.functionResponse.parts[{n}]")


def _check_turns(contents: list[Content]) -> None:
    """Calls come after a user's turn and are answered by the next one: each exactly once."""
    calls: list[dict[str, Any]] = []
    before = ""
    for role, parts in contents:
        answers = [part["functionResponse"] for part in parts if "functionResponse" in part]
        if len(answers) != len(calls):
            if not calls:
                raise RequestRefused(
                    "Please ensure that function response turn comes immediately after a function call turn."
                )
            raise RequestRefused(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the function call turn."
            )
        left = list(calls)
        for answer in answers:
            ident, name = answer.get("id"), answer["name"]
            call = next((one for one in left if one["name"] == name and (not ident or one.get("id") == ident)), None)
            if call is None:
                raise RequestRefused(
                    f"Function response `{name}` with id `{ident}` matches no function call of the turn before."
                )
            left.remove(call)
        calls = [part["functionCall"] for part in parts if "functionCall" in part]
        if calls and before != "user":
            raise RequestRefused(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        before = role
    if before != "user":
        raise RequestRefused("Please ensure that multiturn requests end with a user role or a function response.")


def _check_signatures(model: str, contents: list[Content]) -> None:
    """Every signature is that of this model and of its part; the first call of each step needs one."""
    strict = parse_version(model) >= (3, 0)
    start = max((at for at, (role, parts) in enumerate(contents) if role == "user" and _has_words(parts)), default=0)
    for at, (_, parts) in enumerate(contents):
        is_first = True
        for n, part in enumerate(parts):
            call = as_object(part.get("functionCall"))
            proof = part.get("thoughtSignature")
            if proof is not None:
                _check_signature(model, str(proof), call["name"] if call else "")
            elif call and is_first and strict and at > start:
                raise RequestRefused(
                    "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                    "work correctly, and missing thought_signature may lead to degraded model performance. Additional "
                    f"data, function call `default_api:{call['name']}`, position {n + 1}."
                )
            is_first = is_first and call is None


def _has_words(parts: list[dict[str, Any]]) -> bool:
    return any("text" in part or "inlineData" in part for part in parts)


def _check_signature(model: str, proof: str, name: str) -> None:
    if proof in FOREIGN_SIGNATURES:
        return
    try:
        sealed = b64decode(proof, validate=True).decode()
        text = b64decode(sealed.partition(".")[0], validate=True).decode()
    except ValueError:
        raise RequestRefused("Corrupted thought signature.") from None
    if not is_sealed(model, sealed) or text.partition(":")[2] != name:
        raise RequestRefused("Invalid thought signature.")
