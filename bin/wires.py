"""Compare the fields of the vendors' SDKs with those that Odin knows.

    wires.py           list the fields and types that the installed SDKs added or removed; exits with 1 if there are any
    wires.py --write   store the fields of the installed SDKs as known

`make wires` does this with the newest SDKs, which it installs in a temporary folder.
"""

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.providers import vendor_types  # noqa: E402

KNOWN = ROOT / "tests" / "providers" / "wire_fields.json"

Fields = dict[str, dict[str, list[str]]]
"""Field names by wire format and direction, and by type."""


def read_fields() -> Fields:
    """Return the fields of the installed SDKs."""
    found: Fields = {}
    for api, kinds in vendor_types.REQUESTS.items():
        request: dict[str, list[str]] = {}
        for place in kinds.values():
            request |= vendor_types.list_fields(vendor_types.load(place))
        found[f"{api} request"] = dict(sorted(request.items()))
        found[f"{api} response"] = vendor_types.list_fields(vendor_types.load(vendor_types.RESPONSES[api]))
    return found | {api: vendor_types.list_names(api) for api in vendor_types.NAMES}


def compare(known: Fields, now: Fields) -> list[str]:
    """Return one line for each field or type that was added (+) or removed (-)."""
    lines: list[str] = []
    for wire in dict.fromkeys([*known, *now]):
        before, after = known.get(wire, {}), now.get(wire, {})
        for kind in sorted({*before, *after}):
            if kind not in before or kind not in after:
                fields = ", ".join(after.get(kind, before.get(kind, ())))
                lines.append(f"{'+' if kind in after else '-'} {wire}: {kind} ({fields})")
                continue
            lines += [f"+ {wire}: {kind}.{name}" for name in sorted({*after[kind]} - {*before[kind]})]
            lines += [f"- {wire}: {kind}.{name}" for name in sorted({*before[kind]} - {*after[kind]})]
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="store the fields of the installed SDKs as known")
    args = parser.parse_args()
    versions, now = vendor_types.list_versions(), read_fields()
    if args.write:
        KNOWN.write_text(_format(versions, now))
        print(f"Stored the fields of {_join(versions)} in {KNOWN.relative_to(ROOT)}.")
        return 0
    known = json.loads(KNOWN.read_text())
    lines = compare(known["fields"], now)
    print(f"Known: {_join(known['versions'])}. Now: {_join(versions)}.")
    print("\n".join(lines) if lines else "The fields are the same.")
    if lines:
        print("Decide for each whether the adapters in src/odin/providers need it, then run: make wires ARGS=--write")
    return 1 if lines else 0


def _join(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _format(versions: dict[str, str], fields: Fields) -> str:
    """Return JSON with one line per type, so that a change is easy to read."""
    blocks: list[str] = []
    for wire, types in fields.items():
        rows = ",\n".join(f"   {json.dumps(kind)}: {json.dumps(names)}" for kind, names in types.items())
        blocks.append(f"  {json.dumps(wire)}: {{\n{rows}\n  }}")
    body = ",\n".join(blocks)
    return f'{{\n "versions": {json.dumps(versions)},\n "fields": {{\n{body}\n }}\n}}\n'


if __name__ == "__main__":
    sys.exit(main())
