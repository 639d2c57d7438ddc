"""The graph of datasets: an order to compute in, or an error that names who is wrong."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pendulum
import pytest

from varve.model.dataset import Dataset, StoreKind
from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension, TimeDimension
from varve.model.partitions.grain import Grain
from varve.model.partitions.partitioning import Partitioning
from varve.model.reads import Reads
from varve.model.schema import Column, ColumnType, Schema
from varve.planning.graph import Graph

DAY = TimeDimension("day", Grain.DAY, pendulum.datetime(2013, 1, 1))


def graph(**reads: tuple[str, ...]) -> Graph:
    """A graph over datasets `t.<name>`, each with the names it reads."""
    schema = Schema((Column("sold", ColumnType.BIGINT),))
    datasets = {
        f"t.{name}": Dataset(f"t.{name}", Partitioning((DAY,)), schema, StoreKind.LAKE, "One row per sale.")
        for name in reads
    }
    undeclared = replace(datasets[next(iter(datasets))], name="t.sails")
    return Graph(
        datasets,
        {f"t.{name}": tuple(Reads(datasets.get(f"t.{up}", undeclared)) for up in ups) for name, ups in reads.items()},
        {},
    )


def test_datasets_are_in_an_order_in_which_each_comes_after_those_it_reads() -> None:
    project = graph(report=("sales", "stores"), sales=("raw",), stores=("raw",), raw=())
    names = [dataset.table for dataset in project.in_order()]
    assert sorted(names) == ["raw", "report", "sales", "stores"]
    assert names[0] == "raw"
    assert names[-1] == "report"


def test_the_upstreams_of_a_dataset_are_those_it_reads_in_its_own_order() -> None:
    project = graph(report=("stores", "sales"), sales=(), stores=())
    assert [dataset.table for dataset in project.upstreams(project.datasets["t.report"])] == ["stores", "sales"]
    assert project.upstreams(project.datasets["t.sales"]) == []


def test_a_dataset_that_reads_what_nobody_declares_is_named_with_it() -> None:
    with pytest.raises(VarveError, match=r"dataset t\.report reads t\.sails, which nobody declares"):
        graph(report=("sails", "stores"), stores=())


def test_a_circle_is_told_with_its_path() -> None:
    with pytest.raises(VarveError) as refused:
        graph(a=("b",), b=("c",), c=("a",), apart=())
    match = re.fullmatch(r"datasets read each other in a circle: (.*)\.", str(refused.value))
    assert match
    path = match[1].split(" <- ")
    assert path[0] == path[-1]
    assert set(path) == {"t.a", "t.b", "t.c"}
    # Each is read by the one after it.
    reads = {"t.a": "t.b", "t.b": "t.c", "t.c": "t.a"}
    assert all(reads[reader] == read for read, reader in pairwise(path))


def test_a_dataset_that_reads_itself_is_a_circle() -> None:
    with pytest.raises(VarveError, match=r"in a circle: t\.a <- t\.a\."):
        graph(a=("a",))


def test_a_set_with_keys_of_two_types_is_refused_with_both_datasets() -> None:
    """What one of them has as its keys would be none of the other, whose partitions would be retired."""
    schema = Schema((Column("sold", ColumnType.BIGINT),))
    datasets = {
        f"t.{name}": Dataset(
            f"t.{name}", Partitioning((DynamicDimension(name, "shops", kind),)), schema, StoreKind.LAKE, "Sales."
        )
        for name, kind in {"a": int, "b": int, "c": str}.items()
    }
    with pytest.raises(VarveError, match=r"dataset t\.c: the set shops has keys of int in t\.a, and of str here\."):
        Graph(datasets, {}, {})
    del datasets["t.c"]
    Graph(datasets, {}, {})
