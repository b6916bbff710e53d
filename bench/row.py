"""A row of the table that `make bench` prints, with its bound."""

from collections.abc import Sequence
from typing import NamedTuple


class Row(NamedTuple):
    """A measured value of Odin and, if there is one, the floor: the minimum for any program.

    With `by_ratio` the bound is a multiple of the floor; `allowance` is added to it, in the row's unit.
    """

    what: str
    odin: float
    floor: float | None
    bound: float
    unit: str
    by_ratio: bool
    allowance: float = 0.0

    @property
    def good(self) -> bool:
        if self.by_ratio and self.floor:
            return self.odin <= self.bound * self.floor + self.allowance
        return self.odin <= self.bound


def table(rows: Sequence[Row]) -> str:
    width = max(len(row.what) for row in rows) + 1
    lines = [f"{'':{width}}{'odin':>10}{'floor':>10}{'ratio':>8}   bound"]
    for row in rows:
        floor = f"{row.floor:.1f}" if row.floor is not None else ""
        ratio = f"{row.odin / row.floor:.2f}" if row.floor else ""
        more = f" + {row.allowance:g} {row.unit}" if row.allowance else ""
        bound = f"≤ {row.bound:g} ×{more}" if row.by_ratio else f"≤ {row.bound:g} {row.unit}"
        verdict = "" if row.good else "   MISSED"
        lines.append(f"{row.what:{width}}{row.odin:>7.1f} {row.unit:2}{floor:>10}{ratio:>8}   {bound}{verdict}")
    return "\n".join(lines)
