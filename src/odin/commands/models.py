"""`odin models`: list available models, or refresh the model catalog. And the test requests of `odin doctor models`."""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence

from msgspec import Struct

from odin.commands.command_line import REDIRECTED_COLUMNS, Parser, get_stdout, make_formatter, write_json, write_output
from odin.config import Config, get_config_dir, get_current_folder, load
from odin.config.auth import read_auth_file
from odin.core.client import AvailableModel
from odin.core.errors import (
    AuthFailed,
    BadReply,
    BadRequest,
    ConfigError,
    Misconfigured,
    ModelNotFound,
    NoUsableKeys,
    OdinError,
    Overloaded,
    PackageFailed,
    QuotaExhausted,
    RateLimited,
    ReplyBlocked,
    StreamStalled,
    TlsFailed,
    Unreachable,
    UsageError,
)
from odin.core.format import pluralize
from odin.core.message import PromptMessage
from odin.core.provider import CallChunk, Request, StopChunk, TextChunk, ThinkingChunk, open_stream
from odin.models.catalog import PRESETS, add_stored_keys, find_provider_default
from odin.models.connector import OVERRIDES_NAME, ModelConnector
from odin.models.model_lists import ON_THIS_MACHINE
from odin.ui.terminal import TextPainter, escape_hidden, get_terminal_size, shorten, wrap_words

_HEADINGS = ("MODEL", "CONTEXT", "TOOLS", "INPUT", "OUTPUT", "WHERE")

EPILOG = """\
commands:
  odin models [list]              list available models
  odin models refresh [SOURCE]    fetch models and prices from a URL or a file and keep them (default: the catalog_url
                                  of your settings, else https://models.dev/api.json)
"""


def run_models(argv: list[str]) -> int:
    parser = Parser(
        prog="odin models",
        description="List available models, including servers on this machine, or refresh the catalog of models.",
        epilog=EPILOG,
        formatter_class=make_formatter,
    )
    parser.add_argument("what", nargs="?", choices=("list", "refresh"), default="list", help="(default: list)")
    parser.add_argument("source", nargs="?", default="", metavar="SOURCE", help="the URL or the file of a catalog")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args(argv)
    if args.what == "list" and args.source:
        raise UsageError("`odin models list` takes no argument.", "See `odin models --help`.")
    return _refresh_catalog(args.source, as_json=args.json) if args.what == "refresh" else _list_models(args.json)


def _refresh_catalog(source: str, *, as_json: bool) -> int:
    from odin.models.catalog_refresh import refresh_catalog

    config = load(get_current_folder(), os.environ)
    done = asyncio.run(refresh_catalog(source or config.catalog_url, config.providers, os.environ))
    if as_json:
        return write_json(done)
    skipped = f" {pluralize(done.skipped, 'invalid entry', 'invalid entries')} skipped." if done.skipped else ""
    found = f"{pluralize(done.models, 'model')} of {pluralize(done.providers, 'provider')}"
    return write_output(f"Stored {found} from {escape_hidden(done.source)} in {escape_hidden(done.file)}.{skipped}\n")


def _list_models(as_json: bool) -> int:
    rows, remarks = asyncio.run(list_models(os.environ, get_current_folder()))
    if as_json:
        return write_json(rows)
    out = get_stdout()
    columns = get_terminal_size(out)[0] if out.isatty() else REDIRECTED_COLUMNS
    painter = TextPainter(out)
    lines = (wrap_words(escape_hidden(line), columns) for line in (*remarks, *_list_hints()))
    notes = "".join(f"{painter.paint(line, 'dim')}\n" for line in lines)
    pools = "".join(escape_hidden(f"{row.ref} ({row.note})") + "\n" for row in rows if row.pool)
    head, _, table = format_models([row for row in rows if not row.pool], columns).partition("\n")
    return write_output(f"{painter.paint(head, 'bold')}\n{table}\n{pools}{notes}")


def format_models(rows: Sequence[AvailableModel], columns: int) -> str:
    """Return the models as a table that fits into the columns."""
    lines = [_HEADINGS, *(tuple(map(escape_hidden, _format_cells(row))) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ""
    for line in lines:
        cells = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        text += shorten("  ".join(cells).rstrip(), columns - 1) + "\n"
    return text


def _format_cells(row: AvailableModel) -> tuple[str, ...]:
    context = f"{row.context:,}" if row.context else ""
    prices = (_format_price(row.price_input), _format_price(row.price_output))
    return row.ref, context, row.tools, *prices, row.address


def _format_price(price: float | None) -> str:
    if price is None:
        return "unknown"
    return f"${price:g}" if price else "free"


def _list_hints() -> tuple[str, ...]:
    keys = ", ".join(preset.key_names[0] for preset in PRESETS.values() if preset.key_names)
    return (
        f"Prices are US dollars per million tokens; {get_config_dir(os.environ) / OVERRIDES_NAME} can correct them.",
        f"More appear with a key: in the environment ({keys}), stored with `odin auth add`, or in providers of your "
        "odinconfig.json.",
    )


async def list_models(env: Mapping[str, str], cwd: str) -> tuple[tuple[AvailableModel, ...], tuple[str, ...]]:
    """Return all usable models, including those of local servers, and remarks: what is wrong with the lists of models,
    and how old the prices are."""
    from odin.models.catalog_refresh import describe_catalog

    models = ModelConnector(load(cwd, env), env)
    try:
        found = await models.list_available("all")
        return found, tuple(filter(None, (*models.list_problems, *models.warnings, describe_catalog(models.catalog))))
    finally:
        await models.close()


PROBE_TIMEOUT_S = 20.0
_PROBE_PROMPT = "Answer with the one word: yes"


class ModelProbe(Struct, frozen=True):
    """The result of one test request. `why` says why this model was tested: it is the model, the small model, …

    `problem` names the kind of failure in a few words: "bad key", "no credit", "wrong URL".
    """

    ref: str
    why: str
    ok: bool
    text: str
    seconds: float = 0.0
    problem: str = ""


async def probe_models(cwd: str, env: Mapping[str, str], timeout: float = PROBE_TIMEOUT_S) -> tuple[ModelProbe, ...]:
    """Test all models concurrently: those of the settings, and one of every other configured provider."""
    config = load(cwd, env)
    models = ModelConnector(config, env)
    try:
        refs = collect_probe_refs(config, env)
        probes = (_probe_model(models, ref, why, timeout) for ref, why in refs.items())
        answers, found = await asyncio.gather(asyncio.gather(*probes), models.list_available("all"))
        others = [name for name in config.providers if not any(ref.startswith(f"{name}/") for ref in refs)]
        more = await asyncio.gather(*(_probe_listed(models, name, found, timeout) for name in others))
    finally:
        await models.close()
    known = {answer.ref for answer in (*answers, *more)}
    servers = (
        ModelProbe(item.ref, ON_THIS_MACHINE, True, f"its server is there ({item.address})")
        for item in found
        if item.note == ON_THIS_MACHINE and item.ref not in known
    )
    return (*answers, *more, *servers)


def collect_probe_refs(config: Config, env: Mapping[str, str]) -> dict[str, str]:
    """Return the models named in the settings, and the default model of every provider with a key."""
    found: dict[str, str] = {}
    named = {
        "model": config.model,
        "small_model": config.small_model,
        "compaction.model": config.compaction.model,
        **{f"fallback_model {number}": ref for number, ref in enumerate(config.fallback_model, 1)},
    }
    pools = [(f"pool {name}", ref) for name, refs in config.model_pools.items() for ref in refs]
    for why, ref in (*named.items(), *pools):
        if ref and ref not in config.model_pools:
            found[ref] = f"{found[ref]}, {why}" if ref in found else why
    settings = add_stored_keys(config.providers, read_auth_file(env))
    for provider in dict.fromkeys([*PRESETS, *settings]):
        ref = find_provider_default(provider, settings, env)
        if ref and not any(other.startswith(f"{provider}/") for other in found):
            found[ref] = "has a key" if settings.get(provider) is None else "configured"
    return found


async def _probe_listed(
    models: ModelConnector, provider: str, found: Sequence[AvailableModel], timeout: float
) -> ModelProbe:
    """Test the first model that the server of a provider lists."""
    ref = next((item.ref for item in found if item.ref.startswith(f"{provider}/")), "")
    if ref:
        return await _probe_model(models, ref, "configured", timeout)
    start = f"The models of {provider} "
    why = next((line for line in models.list_problems if line.startswith(start)), "It lists no models.")
    return ModelProbe(provider, "configured", False, why, problem="no models")


async def _probe_model(models: ModelConnector, ref: str, why: str, timeout: float) -> ModelProbe:
    started, answered = time.monotonic(), False

    def after() -> float:
        return round(time.monotonic() - started, 2)

    try:
        async with asyncio.timeout(timeout):
            provider, info = await models.connect(ref)
            request = Request(info.id, (PromptMessage(_PROBE_PROMPT),), max_tokens=64, brief=True)
            async with open_stream(provider, request) as pieces:
                async for piece in pieces:
                    answered = answered or isinstance(piece, TextChunk | ThinkingChunk | CallChunk)
                    answered = answered or (isinstance(piece, StopChunk) and piece.reason == "max_tokens")
        if answered:
            return ModelProbe(ref, why, True, f"answers after {after():.1f} s", after())
        return ModelProbe(ref, why, False, "its answer was empty", after(), "no answer")
    except TimeoutError:
        return ModelProbe(ref, why, False, f"no answer within {timeout:g} s", after(), "no answer")
    except OdinError as error:
        return ModelProbe(ref, why, False, error.describe(), after(), name_problem(error))


_PROBLEMS: tuple[tuple[type[OdinError], str], ...] = (
    (NoUsableKeys, "no key"),
    (AuthFailed, "bad key"),
    (QuotaExhausted, "no credit"),
    (RateLimited, "rate limit"),
    (TlsFailed, "certificate"),
    (BadReply, "wrong URL"),
    (Unreachable, "no network"),
    (StreamStalled, "no answer"),
    (Overloaded, "provider is failing"),
    (ReplyBlocked, "blocked"),
    (BadRequest, "refused request"),
    (ConfigError, "settings"),
    (Misconfigured, "settings"),
    (PackageFailed, "package fails"),
)


def name_problem(error: OdinError) -> str:
    """Return the kind of failure in a few words."""
    if isinstance(error, AuthFailed | Unreachable) and "proxy" in str(error):
        return "proxy"
    if isinstance(error, NoUsableKeys) and error.status:
        return "bad key"
    if isinstance(error, Unreachable) and "model server running" in error.hint:
        return "no server"
    if isinstance(error, ModelNotFound):
        said = str(error).partition("': ")[2]
        return "unknown model" if "model" in said.lower() else "wrong URL"
    return next((name for kind, name in _PROBLEMS if isinstance(error, kind)), "")
