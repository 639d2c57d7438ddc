"""What a function returns is a DataFrame of Spark, or it is told what it is."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest

from varve.model.errors import BadInput
from varve.stores.frames import spark_frame


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        (None, "and returned nothing; is its `return` missing? Nothing was published"),
        (pd.DataFrame({"a": [1]}), "DataFrame of pandas. Make one of it: spark.createDataFrame(...). Nothing was"),
        (pa.table({"a": [1]}), "Table of pyarrow. Make one of it"),
        ([1], "returned list. Nothing was published"),
    ],
)
def test_what_is_no_frame_of_spark_is_told(returned: object, told: str) -> None:
    with pytest.raises(BadInput, match=r"^shop\.p1: its function is to return a DataFrame of Spark, ") as caught:
        spark_frame(returned, "shop.p1: its function")
    assert told in str(caught.value)
