"""Time choosing a model and a key: what comes before each request, and what follows a failure.

`run.py` calls `rows()`; run directly, this file prints the results. A pool has twelve models of six providers with four
keys each, one of them resting; the state of the keys is kept in a file.
"""

import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path

from row import Row, table

ROUNDS = 300
BOUND_MS = 0.2
PROVIDERS, KEYS = 6, 4


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(Path(folder)))


async def _measure(folder: Path) -> list[Row]:
    from odin.config import load
    from odin.core.errors import Overloaded, RateLimited
    from odin.engine.stream import RetryPolicy
    from odin.models.connector import ModelConnector
    from odin.models.key_pool import KeyPool
    from odin.models.key_states import KeyStates
    from odin.models.selection import ModelSelector
    from odin.providers.wire import ApiKey, KeyAttempts

    names = [f"p{number}" for number in range(PROVIDERS)]
    providers = {
        name: {
            "base_url": f"https://{name}.test/v1",
            "api_keys": [f"key-{name}-{number:020}" for number in range(KEYS)],
            "models": {model: {"context": 100_000, "tools": "native"} for model in ("large", "small")},
        }
        for name in names
    }
    pool = [f"{name}/{model}" for model in ("large", "small") for name in names]
    config = folder / "config" / "odinconfig.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"providers": providers, "model_pools": {"all": pool}}))
    env = {"HOME": str(folder), "ODIN_CONFIG_DIR": str(config.parent), "ODIN_STATE_DIR": str(folder / "state")}
    connector = ModelConnector(load(str(folder), env), env, eager=False)
    models = ModelSelector(connector)
    await models.choose("all")
    states = KeyStates(folder / "states.json")
    keys = KeyPool("p0", [ApiKey(f"key-{number:020}") for number in range(KEYS)], states)
    keys.record(keys.choose(), RateLimited("slow", retry_after=3600), KeyAttempts())
    states.save()
    before: list[float] = []
    after: list[float] = []
    for ref in pool:
        await connector.connect(ref)
    for _ in range(ROUNDS):
        started = time.perf_counter()
        models.begin_request()
        models.limit_retries(RetryPolicy())
        attempts = KeyAttempts()
        keys.record(keys.choose(attempts), None, attempts)
        before.append((time.perf_counter() - started) * 1000)
        started = time.perf_counter()
        await models.fail_over(models.ref, Overloaded("busy"))
        after.append((time.perf_counter() - started) * 1000)
        models.record_reply()
    await connector.close()
    return [
        Row("choosing a model and a key", statistics.median(before), None, BOUND_MS, "ms", by_ratio=False),
        Row("the next model after a failure", statistics.median(after), None, BOUND_MS, "ms", by_ratio=False),
    ]


if __name__ == "__main__":
    print(table(rows()))
