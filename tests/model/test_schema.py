"""The types of columns: one canonical spelling, whatever is written, and errors that say what to write."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.errors import VarveError
from varve.model.schema import Column, ColumnType, Kind, Schema

SIMPLE = [kind for kind in Kind if kind not in {Kind.DECIMAL, Kind.ARRAY, Kind.MAP, Kind.STRUCT}]
names = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=8)
scalars = st.one_of(
    st.sampled_from(SIMPLE).map(ColumnType),
    st.tuples(st.integers(1, 38), st.integers(0, 38)).map(lambda at: ColumnType.decimal(max(at), min(at))),
)
types = st.recursive(
    scalars,
    lambda inner: st.one_of(
        inner.map(ColumnType.array),
        st.tuples(inner, inner).map(lambda pair: ColumnType.map(*pair)),
        st.dictionaries(names, inner, min_size=1, max_size=3).map(ColumnType.struct),
    ),
    max_leaves=6,
)


@given(types)
def test_every_type_reads_back_from_its_own_spelling(kind: ColumnType) -> None:
    assert ColumnType(str(kind)) is kind
    assert pickle.loads(pickle.dumps(kind)) == kind  # noqa: S301 - our own


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("integer", "INT"),
        (" numeric ( 10 , 2 ) ", "DECIMAL(10,2)"),
        ("decimal", "DECIMAL(10,0)"),
        ("array<map<string,long>>", "ARRAY<MAP<STRING, BIGINT>>"),
        ("struct<a int, `it``s`: timestamp_ntz>", "STRUCT<a: INT, `it``s`: TIMESTAMP_NTZ>"),
    ],
)
def test_other_spellings_mean_the_same(written: str, meant: str) -> None:
    assert ColumnType(written) == meant


@pytest.mark.parametrize("written", ["", "TEXT", "INT)", "DECIMAL(x)", "ARRAY<>", "STRUCT<a>", "VARIANT", "INT; DROP"])
def test_what_is_no_type_is_refused_with_what_to_write(written: str) -> None:
    with pytest.raises(VarveError, match=r"is no type of a column\. Write one of STRING, "):
        ColumnType(written)


def test_decimals_beyond_sparks_digits_are_refused() -> None:
    with pytest.raises(VarveError, match="1 to 38 digits"):
        ColumnType("DECIMAL(39,2)")
    with pytest.raises(VarveError, match=r"DECIMAL\(3,4\)"):
        ColumnType.decimal(3, 4)


def test_a_name_is_taken_once_former_names_included() -> None:
    with pytest.raises(VarveError, match="column sold is declared more than once"):
        Schema((Column("Sold", ColumnType.INT), Column("pieces", ColumnType.INT, was=("sold",))))
