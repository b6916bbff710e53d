"""Each kind of line in a log has stored samples, which every later version reads without losing a value.

`event_shapes.json` has the shape of each kind, and `event_samples.jsonl` samples of this and of earlier shapes.
`ODIN_SNAPSHOTS=write` and `-n 0` store a new shape with its samples; those of the earlier shapes stay. A sample that a
reader turns into something else has that beside it: `{"kind": …, "sample": …, "reads_as": …}`.
"""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from odin.session.log import LogHeader, read_header, read_log

from .event_samples import KINDS, describe_shape, find_lost, make_samples

SHAPES = Path(__file__).with_name("event_shapes.json")
SAMPLES = Path(__file__).with_name("event_samples.jsonl")
IS_RECORDING = os.environ.get("ODIN_SNAPSHOTS") == "write"
HEADER = LogHeader(2, "s", "/w", 1.0)


class Sample(msgspec.Struct, omit_defaults=True):
    kind: str
    sample: dict[str, Any]
    reads_as: dict[str, Any] | None = None


def load_samples() -> list[Sample]:
    lines = SAMPLES.read_text().splitlines() if SAMPLES.exists() else []
    return [msgspec.json.decode(line, type=Sample) for line in lines]


def store(kind: str, shape: dict[str, Any]) -> None:
    """Store the shape of a kind, and add its samples."""
    shapes: dict[str, Any] = {**(json.loads(SHAPES.read_text()) if SHAPES.exists() else {}), kind: shape}
    rows = [f"{json.dumps(name)}: {json.dumps(shapes[name])}" for name in sorted(shapes)]
    SHAPES.write_text("{\n" + ",\n".join(rows) + "\n}\n")
    samples = load_samples()
    known = [sample.sample for sample in samples if sample.kind == kind]
    samples += [Sample(kind, sample) for sample in make_samples(KINDS[kind]) if sample not in known]
    samples.sort(key=lambda sample: sample.kind)
    SAMPLES.write_bytes(b"".join(msgspec.json.encode(sample) + b"\n" for sample in samples))


@pytest.mark.parametrize("kind", KINDS)
def test_shape_has_stored_samples(kind: str) -> None:
    shape = describe_shape(KINDS[kind])
    if IS_RECORDING:
        store(kind, shape)
    stored = json.loads(SHAPES.read_text()).get(kind)
    how = "ODIN_SNAPSHOTS=write .venv/bin/python -m pytest -n 0 tests/session/test_event_samples.py"
    assert shape == stored, (
        f"{kind} has another shape than in the logs that exist. Keep those readable: a new field has a default, an old "
        f"value is converted when it is read. Then add samples of the new shape with `{how}`, and keep the old samples."
    )
    samples = [sample.sample for sample in load_samples() if sample.kind == kind]
    assert [sample for sample in make_samples(KINDS[kind]) if sample not in samples] == [], f"add samples with `{how}`"


@pytest.mark.parametrize("kind", sorted({*KINDS, *(sample.kind for sample in load_samples())}))
def test_stored_samples_are_read_without_a_loss(kind: str, tmp_path: Path) -> None:
    samples = [sample for sample in load_samples() if sample.kind == kind]
    assert samples, f"{kind} has no sample"
    log = tmp_path / "main.jsonl"
    for sample in samples:
        if kind == "LogHeader":
            log.write_bytes(msgspec.json.encode({**sample.sample, "odin_log": HEADER.odin_log, "session": "s"}))
            read: Any = msgspec.structs.replace(read_header(log), odin_log=7, session="some session")
        else:
            line = {"seq": 0, "ts": 1.0, "session": "s", "event": sample.sample, "agent": ""}
            log.write_bytes(msgspec.json.encode(HEADER) + b"\n" + msgspec.json.encode(line) + b"\n")
            (envelope,) = read_log(log)
            read = envelope.event
        lost = [*find_lost(sample.reads_as or sample.sample, read)]
        assert lost == [], f"this version does not read these values of {json.dumps(sample.sample)}"


def test_a_lost_value_is_found() -> None:
    class Part(msgspec.Struct):
        name: str
        kept: tuple[str, ...] = ()

    class Whole(msgspec.Struct, tag=True):
        parts: tuple[Part, ...] = ()

    sample = {"type": "Whole", "parts": [{"name": "a", "kept": ["x"]}, {"name": "b", "gone": 1}], "old_name": "c"}
    assert [*find_lost(sample, msgspec.convert(sample, Whole))] == ["parts[1].gone", "old_name"]
