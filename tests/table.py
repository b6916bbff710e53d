"""A table of cases as one test: it tries them all and lists those that fail."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

MOST_SHOWN = 40

Test = Callable[..., None]


def each(names: str | tuple[str, ...], cases: Collection[Any]) -> Callable[[Test], Test]:
    """Call a test with every case, as `pytest.mark.parametrize` does, but within one test.

    It suits tests that leave nothing behind: the cases share their fixtures.
    """
    asked = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    assert cases, "a table without cases tries nothing"

    def decorate(test: Test) -> Test:
        assert not inspect.iscoroutinefunction(test), "an asynchronous test gets no table"

        @functools.wraps(test)
        def try_all(**fixtures: Any) -> None:
            __tracebackhide__ = True
            failed: list[str] = []
            for case in cases:
                values = (case,) if len(asked) == 1 else case
                try:
                    test(**fixtures, **dict(zip(asked, values, strict=True)))
                except Exception as error:
                    failed.append(f"{case!r}: {type(error).__name__}: {error}")
            if failed:
                rest = [f"and {len(failed) - MOST_SHOWN} more"] if len(failed) > MOST_SHOWN else []
                said = [f"{len(failed)} of {len(cases)} cases failed:", *failed[:MOST_SHOWN], *rest]
                raise AssertionError("\n\n".join(said))

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in asked]
        try_all.__signature__ = signature.replace(parameters=left)  # pyright: ignore[reportAttributeAccessIssue]
        return try_all

    return decorate
