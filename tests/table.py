"""`each`: run one test with a table of cases, and list the cases that fail."""

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any

MAX_SHOWN = 40

Test = Callable[..., None]


def each(names: str | tuple[str, ...], cases: Collection[Any]) -> Callable[[Test], Test]:
    """Call a test with every case, as `pytest.mark.parametrize` does, but within one test.

    The cases share their fixtures, so the test must not depend on a fresh state.
    """
    parameters = tuple(name.strip() for name in names.split(",")) if isinstance(names, str) else names
    assert cases, "the table has no cases"

    def decorate(test: Test) -> Test:
        assert not inspect.iscoroutinefunction(test), "asynchronous tests are not supported"

        @functools.wraps(test)
        def run_all(**fixtures: Any) -> None:
            __tracebackhide__ = True
            failed: list[str] = []
            for case in cases:
                values = (case,) if len(parameters) == 1 else case
                try:
                    test(**fixtures, **dict(zip(parameters, values, strict=True)))
                except Exception as error:
                    failed.append(f"{case!r}: {type(error).__name__}: {error}")
            if failed:
                rest = [f"and {len(failed) - MAX_SHOWN} more"] if len(failed) > MAX_SHOWN else []
                report = [f"{len(failed)} of {len(cases)} cases failed:", *failed[:MAX_SHOWN], *rest]
                raise AssertionError("\n\n".join(report))

        signature = inspect.signature(test)
        remaining = [parameter for name, parameter in signature.parameters.items() if name not in parameters]
        run_all.__signature__ = signature.replace(parameters=remaining)  # pyright: ignore[reportAttributeAccessIssue]
        return run_all

    return decorate
