"""`active_customers = PartitionAtRuntime(name="active_customers")`: keys that nobody knows before the function runs.

    dagster asset materialize --select aip76/found_customers

Dagster starts no partitioned asset without a partition. So what the proposal's one function does is two datasets here:
one without partitions, which gets the customer list and adds the keys, and the models, of which each is a partition and
is trained again after each such run.
"""

from pathlib import Path

import varve
from varve import Column, ColumnType, Dataset, DynamicDimension, Partitioning, Schema, StoreKind

CUSTOMERS = Path(__file__).with_name("customers.txt")
ACTIVE_CUSTOMERS = DynamicDimension("customer", "active_customers")
KWH = Schema((Column("kwh", ColumnType.DOUBLE, "Energy of a day."),))

FOUND_CUSTOMERS = Dataset(
    name="aip76.found_customers",
    partitioning=Partitioning(),
    schema=Schema((Column("customer", ColumnType.STRING, "Who is one today."),)),
    store=StoreKind.LAKE,
    comment="get customer list",
)
MODEL = Dataset(
    name="aip76.energy_consumption_model",
    partitioning=Partitioning((ACTIVE_CUSTOMERS,)),
    schema=KWH,
    store=StoreKind.LAKE,
    comment="train model",
)
PREDICTION = Dataset(
    name="aip76.energy_prediction",
    partitioning=Partitioning((ACTIVE_CUSTOMERS,)),
    schema=KWH,
    store=StoreKind.LAKE,
    comment="This is run once when a partition is added on active_customers.",
)


@varve.asset(FOUND_CUSTOMERS)
def found_customers(context):
    """Get the customer list, and add a partition for each of them."""
    customers = CUSTOMERS.read_text(encoding="utf-8").split()
    varve.partitions_of(context).add(ACTIVE_CUSTOMERS, customers)
    spark = context.resources.spark.spark_session
    return spark.createDataFrame([(customer,) for customer in customers], "customer string")


@varve.asset(MODEL, reads={"found": FOUND_CUSTOMERS})
def energy_consumption_model(context, found):
    """`train_model = ...`, for each customer whose partition the run computes."""
    return found.where(varve.partitions_of(context).where).selectExpr("customer", "10.0D * LENGTH(customer) AS kwh")


@varve.asset(PREDICTION, reads={"model": MODEL})
def energy_prediction(context, model):  # noqa: ARG001 - every function of a dataset has it first
    """Predict by the model."""
    return model.selectExpr("customer", "kwh * 1.1 AS kwh")
