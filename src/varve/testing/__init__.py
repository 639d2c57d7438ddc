"""For tests of one's own datasets: their SQL on a small Spark of the test's own, with no server and no run.

    from varve.testing import check, run_sql

    def test_revenue_is_summed_by_product():
        rows = run_sql(
            "assets", "shop.revenue", partition={"day": "2026-11-01"},
            inputs={"shop.orders": [{"day": "2026-11-01", "product": "pen", "price": 2.5}]},
        )
        assert rows == [{"product": "pen", "revenue": 2.5, "day": dt.date(2026, 11, 1)}]

    def test_every_file_is_right():
        assert check("assets") == []

A Python dataset is called as the function that it is; `context_for` makes the context that it asks for. Tests may be
written without Python too, as files beside the datasets: `*.test.yaml`, which `varve test` and the pytest plugin run.

Not here: the tests of the library itself (tests/).
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from varve.testing.context import context_for
    from varve.testing.session import spark_session
    from varve.testing.sql import check, run_sql

__all__ = ["check", "context_for", "run_sql", "spark_session"]

_PLACES = {
    "check": "varve.testing.sql",
    "context_for": "varve.testing.context",
    "run_sql": "varve.testing.sql",
    "spark_session": "varve.testing.session",
}

# To a type checker a name that is none is an error.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A public name, imported when it is first used: pytest loads the plugin before it knows of any test."""
        if name not in _PLACES:
            raise AttributeError(f"module 'varve.testing' has no attribute {name!r}; docs/testing.md lists its names")
        value = getattr(importlib.import_module(_PLACES[name]), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return __all__
