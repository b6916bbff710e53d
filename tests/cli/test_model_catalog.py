"""`odin models refresh`: reads a model catalog from a URL or a file, and refuses a bad one."""

import asyncio
import json
import os
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from odin.config import load
from odin.config.paths import locate_model_catalog
from odin.core.errors import ConfigError, OdinError
from odin.models.catalog import lookup_model
from odin.models.catalog_refresh import refresh_catalog
from odin.models.connector import ModelConnector, load_model_table
from odin.models.model_table import TABLE_TIME, ModelTables
from tests.conftest import RunHere
from tests.table import each

NEW = {"context": 500_000, "max_output": 9_000, "price_input": 3, "price_output": 4}
PUBLIC: dict[str, Any] = {
    "togetherai": {
        "id": "togetherai",
        "models": {
            "old": {"limit": {"context": 9_000, "output": 900}, "release_date": "2025-01-01", "tool_call": True},
            "new": {
                "limit": {"context": 400_000, "output": 8_000},
                "cost": {"input": 1.5, "output": 6, "cache_read": 0.1},
                "modalities": {"input": ["text", "image"], "output": ["text"]},
                "reasoning": True,
                "release_date": "2026-10-01",
            },
            "free": {"cost": {"input": 0, "output": 0}, "release_date": "2024-01-01"},
            "speech": {"modalities": {"input": ["text"], "output": ["audio"]}},
            "embedding": {"tool_call": False},
            "huge": {"limit": {"context": 10**12}},
        },
    },
    "unheard-of": {"id": "unheard-of", "models": {"m": {}}},
}


def make_environment(home: Path) -> dict[str, str]:
    return {"HOME": str(home)}


async def refresh(tmp_path: Path, home: Path, catalog: Any) -> Any:
    file = tmp_path / "catalog.json"
    file.write_bytes(catalog if isinstance(catalog, bytes) else json.dumps(catalog).encode())
    return await refresh_catalog(str(file), {"work": None}, make_environment(home))


async def test_catalog_in_odins_format_is_merged_into_the_table(tmp_path: Path, home: Path) -> None:
    catalog: dict[str, Any] = {
        "anthropic": {
            "claude-sonnet-5-5": {"price_input": 77, "variants": {"x": {}}, "edit_format": "patch"},
            "next": NEW,
        },
        "work": {"coder": NEW},
        "ollama": {"llama": NEW},
    }
    done = await refresh(tmp_path, home, catalog)
    assert (done.providers, done.models, done.skipped) == (2, 3, 0)
    table = load_model_table(make_environment(home), ModelTables())
    sonnet = lookup_model("anthropic/claude-sonnet-5-5", {}, table)
    assert (sonnet.price_input, sonnet.price_output, sonnet.context, sonnet.edit_format) == (
        77,
        10,
        1_000_000,
        "replace",
    )
    found = lookup_model("anthropic/next", {}, table)
    assert (found.context, found.max_output, found.price_output, found.tools) == (500_000, 9_000, 4, "native")
    assert next(table.list_models("anthropic")) == "claude-sonnet-5-5" and table.warning == ""
    assert not lookup_model("anthropic/unheard-of", {}, table).has_price


async def test_catalog_of_models_dev_is_converted(tmp_path: Path, home: Path) -> None:
    done = await refresh(tmp_path, home, PUBLIC)
    assert (done.providers, done.models, done.skipped) == (1, 3, 1)
    table = load_model_table(make_environment(home), ModelTables())
    assert list(table.list_models("together"))[:3] == ["new", "old", "free"]
    new = lookup_model("together/new", {}, table)
    assert (new.context, new.price_input, new.price_cache_read, new.images, new.thinking) == (
        400_000,
        1.5,
        0.1,
        True,
        True,
    )
    assert not lookup_model("together/free", {}, table).has_price, "a price of 0 is unknown, not free"


BAD: list[Any] = [
    b"",
    b"{",
    b"[1]",
    b"[" * 100_000,
    b"\xff\xfe",
    {},
    {"anthropic": []},
    {"anthropic": {"m": {"price_input": -1}}},
    {"anthropic": {"m": {"price_input": 1e300}}},
    {"anthropic": {"m": {"context": 5}}},
    {"anthropic": {"a\u202eb": NEW, " ": NEW, "": NEW, "x" * 300: NEW}},
    {"anthropic": {"models": {"m": 7}}},
    {"nobody": {"m": NEW}},
]


@each("catalog", BAD)
def test_bad_catalog_is_refused_and_the_stored_copy_stays(catalog: Any, tmp_path: Path, home: Path) -> None:
    asyncio.run(refresh(tmp_path, home, {"anthropic": {"next": NEW}}))
    with pytest.raises(ConfigError) as raised:
        asyncio.run(refresh(tmp_path, home, catalog))
    assert "catalog.json" in str(raised.value) and len(str(raised.value)) < 300
    table = load_model_table(make_environment(home), ModelTables())
    assert "next" in table.list_models("anthropic"), "the stored copy stays"


DAMAGED = [
    b"",
    b"{",
    b"[" * 100_000,
    b"\xff",
    b'{"time": "x"}',
    b'{"time": 1e12, "models": {"anthropic": {"claude-sonnet-5-5": {"context": 5}}}}',
    b'{"time": 1e12, "models": {"anthropic": {"claude-sonnet-5-5": {"tools": "none"}}}}',
]


@each("written", DAMAGED)
def test_damaged_copy_is_ignored_with_one_warning(written: bytes, home: Path) -> None:
    path = locate_model_catalog(make_environment(home))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written)
    table = load_model_table(make_environment(home), ModelTables())
    assert lookup_model("anthropic/claude-sonnet-5-5", {}, table).price_input == 2
    assert table.warning.startswith(f"The model catalog {path} is ignored: ") and "odin models refresh" in table.warning


def test_copy_older_than_the_built_in_table_is_not_used(home: Path) -> None:
    path = locate_model_catalog(make_environment(home))
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"time": TABLE_TIME - 1, "models": {"anthropic": {"next": NEW}}}))
    table = load_model_table(make_environment(home), ModelTables())
    assert "next" not in table.list_models("anthropic") and table.warning == ""


class _CatalogHandler(BaseHTTPRequestHandler):
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        body = json.dumps({"groq": {"next": NEW}}).encode()
        self.send_response(200 if self.path == "/catalog.json" else 404)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _CatalogHandler) as listening:
        Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_address[1]}"
        listening.shutdown()


def test_refresh_command_stores_a_catalog_and_explains_failures(
    run_here: RunHere, home: Path, server: str, tmp_path: Path
) -> None:
    env = {"GROQ_API_KEY": "k"}
    assert "those built into Odin" in run_here("models", env=env)[1]
    code, printed, _ = run_here("models", "refresh", f"{server}/catalog.json")
    file = locate_model_catalog(os.environ)
    assert code == 0 and printed == f"Stored 1 model of 1 provider from {server}/catalog.json in {file}.\n"
    assert file.stat().st_mode & 0o077 == 0
    shown = run_here("models", env=env)[1]
    assert "groq/next" in shown and f"those of {server}/catalog.json on " in shown
    for source, problem in [
        (f"{server}/other", "answered with HTTP status 404"),
        ("http://127.0.0.1:1/x", "127.0.0.1:1"),
        ("http://me:secret@127.0.0.1/", "A password in a URL is not accepted"),
        (str(tmp_path / "none.json"), "No such file"),
        (str(tmp_path), "is not a file"),
        ("/dev/zero", "is not a file"),
        ("ftp://x/y", "is not an http or https address"),
    ]:
        code, _, error = run_here("models", "refresh", source)
        assert code and problem in error and "secret" not in error, source
    assert run_here("models", "list", "x")[0] == 2


async def test_catalog_url_is_refreshed_once_a_day_by_listing_models(home: Path, server: str) -> None:
    file = home / ".config/odin/odinconfig.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"catalog_url": f"{server}/catalog.json"}))
    env = {**make_environment(home), "GROQ_API_KEY": "k", "ODIN_LOCAL_PORTS": ""}
    before = _CatalogHandler.asked

    async def list_names() -> tuple[list[str], tuple[str, ...]]:
        models = ModelConnector(load(str(home), env), env)
        try:
            await models.list_available("none")
            found = await models.list_available("configured")
            return [item.ref for item in found], models.list_problems
        finally:
            await models.close()

    for _ in range(2):
        assert "groq/next" in (await list_names())[0]
    assert _CatalogHandler.asked == before + 1
    copy = locate_model_catalog(env)
    stored = json.loads(copy.read_text())
    for age_h, asked in ((23.9, 1), (24, 2)):
        copy.write_text(json.dumps({**stored, "time": time.time() - age_h * 3600}))
        await list_names()
        assert _CatalogHandler.asked == before + asked
    file.write_text(json.dumps({"catalog_url": f"{server}/gone"}))
    names, problems = await list_names()
    assert "groq/next" in names and "HTTP status 404" in problems[0], "the stored copy stays in use"


async def test_project_settings_cannot_set_the_catalog_url(workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{"catalog_url": "http://evil.example/"}')
    assert load(str(workspace), os.environ).catalog_url == ""


async def test_unreachable_catalog_is_an_error(home: Path) -> None:
    with pytest.raises(OdinError):
        await refresh_catalog("http://127.0.0.1:1/", {}, make_environment(home))
