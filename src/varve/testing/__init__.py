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

A Python dataset is called as the function that it is; `context_for` makes the context that it asks for.

Not here: the tests of the library itself (tests/).
"""

from varve.testing.context import context_for
from varve.testing.session import spark_session
from varve.testing.sql import check, run_sql

__all__ = ["check", "context_for", "run_sql", "spark_session"]
