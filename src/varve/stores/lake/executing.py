"""How statements about lake tables reach the metastore: in one call, within a Spark that Varve has started.

There a procedure executes them in a thread that lives on. Spark Connect has a new thread for each statement, and the
embedded metastore makes a new store for each thread, which takes as long as what is asked of it.

Not here: the text of the statements (statements.py), and what a deployed metastore is asked in its own protocol
(stores/folders/metastore.py).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from varve.services.jvm.class_path import METASTORE
from varve.stores.frames import spark_errors
from varve.stores.lake import statements

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from varve.model.batch import Batch
    from varve.model.dataset import Dataset

logger = logging.getLogger(__name__)
# One call executes so many statements, each of which may name hundreds of partitions.
EXECUTE_AT_ONCE = 50
# One call of the embedded metastore moves so many, all or none.
MOVE_AT_ONCE = 1_000
# What Spark says where the table or its partitions are gone.
LOST = {"TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND", "PARTITIONS_NOT_FOUND"}
# What it says where a partition is there already.
ALREADY_THERE = "PARTITIONS_ALREADY_EXIST"


def execute(spark: SparkSession, *texts: str) -> None:
    """Execute statements without rows one after another, up to the first that fails; raises what it raises.

    They may be executed twice, where the procedure is not there or fails for another reason than the table.
    """
    in_one_call = bool(texts) and _has_our_class(spark)
    for start in range(0, len(texts), EXECUTE_AT_ONCE):
        chunk = texts[start : start + EXECUTE_AT_ONCE]
        if in_one_call:
            try:
                spark.sql(statements.execute_sql(chunk))
            except spark_errors() as error:
                if _is_of_the_table(error):
                    raise
                logger.info("statements are executed one by one: %s", error)
                in_one_call = False
        if not in_one_call:
            for text in chunk:
                spark.sql(text)


def move(spark: SparkSession, dataset: Dataset, batches: Sequence[Batch]) -> set[str]:
    """Point existing partitions at their batches by the procedure. Returns those that it has moved; without it, none.

    Raises what Spark raises where the table or a partition of it is gone.
    """
    moved: set[str] = set()
    if not batches or not _has_our_class(spark):
        return moved
    for start in range(0, len(batches), MOVE_AT_ONCE):
        chunk = batches[start : start + MOVE_AT_ONCE]
        try:
            spark.sql(statements.move_partitions_sql(dataset, chunk))
        except spark_errors() as error:
            if _is_of_the_table(error):
                raise
            # All or none: whichever of them the table does not have is found one by one. The procedure itself may be
            # missing too, where somebody's Spark has the setting and not our class.
            logger.info("%s: its partitions are moved one by one: %s", dataset, error)
            break
        moved |= {batch.partition for batch in chunk}
    return moved


def _has_our_class(spark: SparkSession) -> bool:
    """Whether the session names the catalog of our procedures: a Spark that Varve has started on this machine."""
    return spark.conf.get(f"spark.sql.catalog.{METASTORE}", None) is not None


def _is_of_the_table(error: Exception) -> bool:
    """Whether a failure says that the table or a partition of it is gone, or that a partition is there already."""
    from pyspark.errors import PySparkException

    return isinstance(error, PySparkException) and error.getCondition() in LOST | {ALREADY_THERE}
