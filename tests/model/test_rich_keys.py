"""Rich keys: typed fields, values like any other, and no code of their own."""

from __future__ import annotations

import copy
import datetime as dt
import pickle

import pendulum
import pytest
from hypothesis import given
from hypothesis import strategies as st

from varve.model.errors import VarveError
from varve.model.partitions.dimension import DynamicDimension, StaticDimension
from varve.model.partitions.key import Interval, PartitionKey, PartitionKeyType, escape, text_of, value_of
from varve.model.partitions.partitioning import Partitioning


class Position(PartitionKey):
    x: float
    y: float
    z: float = 0.0

    def moved(self) -> Position:
        return Position(self.x + 1, self.y, self.z)


class Booking(PartitionKey):
    name: str
    seats: int
    day: dt.date
    span: Interval
    place: Position


class Setting(PartitionKey):
    """Every kind of field that is easily taken for another one."""

    ratio: float
    at: dt.datetime
    final: bool
    cell: tuple[int, float, str, bool]
    nested: tuple[tuple[dt.datetime, bool], Position]


class Shown(PartitionKey):
    name: str

    def __str__(self) -> str:
        return "always the same"


TEXTS = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")) | st.sampled_from("|,[]~%.\"'/=😀"), max_size=20
)
numbers = st.floats(allow_nan=False, allow_infinity=False)
moments = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))  # noqa: DTZ001
positions = st.builds(Position, numbers, numbers, numbers)
spans = st.builds(
    lambda start, length: Interval(pendulum.instance(start), pendulum.instance(start) + length),
    moments, st.timedeltas(dt.timedelta(microseconds=1), dt.timedelta(days=400)),
)  # fmt: skip
settings_of = st.builds(
    Setting,
    numbers,
    moments.map(lambda at: at.replace(microsecond=0)),
    st.booleans(),
    st.tuples(st.integers(), numbers, TEXTS, st.booleans()),
    st.tuples(st.tuples(moments.map(lambda at: at.replace(microsecond=0)), st.booleans()), positions),
)
bookings = st.builds(Booking, TEXTS, st.integers(), st.dates(), spans, positions)


def test_a_rich_key_takes_its_fields_in_order_or_by_name_with_defaults() -> None:
    assert Position(1, y=2) == Position(x=1.0, y=2.0, z=0.0)
    assert (Position(1, 2).x, Position(1, 2).z, Position(1, 2)["y"]) == (1.0, 0.0, 2.0)
    assert Position(1, 2).moved() == Position(2, 2)
    assert str(Position(1, 2.5)) == "1.0,2.5,0.0"
    assert Position(-0.0, 0) == Position(0.0, 0)


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: Position(1), "its fields are x, y, z; given 1"),
        (lambda: Position(1, 2, 3, 4), "its fields are x, y, z"),
        (lambda: Position(1, 2, w=4), "its fields are x, y, z"),
        (lambda: Position("1", 2), "Position: x is a float, given '1'"),
        (lambda: Position(True, 2), "no value of a partition key"),
        (lambda: Position(float("nan"), 2), "finite"),
        (lambda: Booking(1, 2, 3, 4, 5), "Booking: name is a str, given 1"),
        (lambda: PartitionKey.of(at=dt.datetime(2013, 1, 1)), "with a time zone"),  # noqa: DTZ001
        (lambda: PartitionKey.of(at=None), "no value of a partition key"),
        (lambda: PartitionKey.of(name="a\0b"), "control characters"),
        (lambda: PartitionKey.of(name="\ud800"), "control characters"),
        (lambda: Interval(pendulum.datetime(2013, 1, 1), pendulum.datetime(2013, 1, 1)), "is not after its start"),
    ],
)
def test_a_value_that_no_key_can_hold_is_refused(call: object, problem: str) -> None:
    with pytest.raises(VarveError, match=problem):
        call()  # type: ignore[operator]


MOMENT = pendulum.datetime(2026, 11, 23, 9, 30, tz="America/New_York")
SETTING = (0.5, MOMENT, True, (1, 2, "a", False), ((MOMENT, True), Position(1, 2)))


def test_fields_of_fractions_moments_truth_values_and_tuples_have_one_text_each() -> None:
    setting = Setting(*SETTING)
    assert setting.text == (
        "0.5,2026-11-23 14:30:00,true,1%2C2.0%2Ca%2Cfalse,2026-11-23 14:30:00%252Ctrue%2C1.0%252C2.0%252C0.0"
    )
    assert (setting.final, setting.cell, type(setting.at)) == (True, (1, 2.0, "a", False), dt.datetime)
    # The same moment of another zone is the same key, and so is the other zero.
    there = Setting(*(MOMENT.in_timezone("Asia/Tokyo") if value is MOMENT else value for value in SETTING))
    assert there == setting
    assert hash(there) == hash(setting)
    assert Setting(-0.0, *SETTING[1:]) == Setting(0.0, *SETTING[1:])
    assert Setting(-0.0, *SETTING[1:]).text.startswith("0.0,")


@pytest.mark.parametrize(
    ("place", "value", "problem"),
    [
        (0, float("nan"), "partition key Setting: ratio: nan is no value of a partition key.*finite floats"),
        (0, float("inf"), "Setting: ratio: inf is no value"),
        (0, True, "Setting: ratio: True is no value"),
        (1, dt.datetime(2026, 11, 23), "Setting: at: .*moments in whole seconds with a time zone"),  # noqa: DTZ001
        (1, dt.datetime(2026, 11, 23, microsecond=1, tzinfo=dt.UTC), "Setting: at: .*whole seconds"),
        (1, dt.date(2026, 11, 23), "Setting: at is a datetime, given"),
        (2, 1, "Setting: final is a bool, given 1"),
        (3, (1, 2.0, "a"), r"Setting: cell is a tuple\[int, float, str, bool\], given"),
        (3, (1, float("nan"), "a", True), "Setting: cell: nan is no value"),
        (3, (True, 2.0, "a", True), "Setting: cell: True is no value"),
        (3, (1, 2.0, "a\n", True), "Setting: cell: .*control characters"),
    ],
)
def test_a_field_of_another_type_is_refused_with_its_name(place: int, value: object, problem: str) -> None:
    with pytest.raises(VarveError, match=problem):
        Setting(*SETTING[:place], value, *SETTING[place + 1 :])


@given(settings_of, settings_of)
def test_such_keys_read_back_exactly_from_dagster_paths_and_text(one: Setting, other: Setting) -> None:
    assert value_of(text_of(one), Setting) == one
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    assert (text_of(one) == text_of(other)) == (one == other)
    for dimension in (StaticDimension("setting", (one,)), DynamicDimension("setting", "settings", Setting)):
        partitioning = Partitioning((dimension, StaticDimension("store", ("a", "b"))))
        key = partitioning.key([one, "a"])
        # A key of a set is refused where its folder's name would be too long.
        if isinstance(dimension, StaticDimension) or len(f"setting={escape(one.text)}".encode()) <= 255:
            assert partitioning.from_dagster(partitioning.to_dagster(key)) == key
            assert partitioning.from_path(key.path) == key


@pytest.mark.parametrize("text", ["True", "1", "TRUE"])
def test_another_spelling_of_a_truth_value_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=text):
        value_of(text, bool)


def runs(*args: object, **kwargs: object) -> None:
    pytest.fail("a key ran code of its own")


HOOKS = (
    "__init__", "__new__", "__eq__", "__hash__", "__lt__", "__reduce__", "__reduce_ex__", "__getattr__",
    "__getattribute__", "__setattr__", "__init_subclass__", "__class_getitem__", "__post_init__", "__set_name__",
    "__copy__", "__deepcopy__", "__setstate__", "__getstate__", "__slots__", "__format__", "__call__",
)  # fmt: skip


@pytest.mark.parametrize("name", [*HOOKS, "path", "values", "fields", "text", "of"])
def test_a_class_that_would_run_code_of_its_own_or_hide_ours_is_refused(name: str) -> None:
    with pytest.raises(VarveError, match=rf"partition key Bad: .* but not {name}: a key runs no code"):
        PartitionKeyType("Bad", (PartitionKey,), {"__annotations__": {"x": int}, name: runs})


def test_no_code_runs_by_a_metaclass_another_base_or_a_descriptor() -> None:
    class Meta(PartitionKeyType):
        pass

    class Mixin:
        def __init__(self) -> None:
            runs()

    class Descriptor:
        __set__ = __get__ = __set_name__ = runs

    with pytest.raises(VarveError, match="no other base and no metaclass"):
        Meta("Bad", (PartitionKey,), {"__annotations__": {"x": int}})
    with pytest.raises(VarveError, match="no other base and no metaclass"):
        PartitionKeyType("Bad", (Mixin, PartitionKey), {"__annotations__": {"x": int}})
    with pytest.raises(VarveError, match="a key class is not extended"):
        PartitionKeyType("Bad", (Position,), {"__annotations__": {"w": int}})
    # A descriptor as a default is no value of its field, and is never bound.
    with pytest.raises(VarveError):
        PartitionKeyType("Bad", (PartitionKey,), {"__annotations__": {"x": int}, "x": Descriptor()})


@pytest.mark.parametrize("kind", [list, dict, object, bytes, tuple, tuple[int, ...], tuple[int, bytes], tuple[()]])
def test_a_field_of_a_type_that_no_key_has_is_refused(kind: type) -> None:
    with pytest.raises(VarveError, match="fields are of str, int, float, bool, date"):
        PartitionKeyType("Bad", (PartitionKey,), {"__annotations__": {"x": kind}})


def test_a_rich_key_without_fields_is_refused() -> None:
    with pytest.raises(VarveError, match="it has no fields"):
        PartitionKeyType("Bad", (PartitionKey,), {})


@pytest.mark.parametrize("key", [PartitionKey.of(a="1", b=2), Position(1, 2)])
def test_a_key_is_immutable(key: PartitionKey) -> None:
    for name in ("fields", "x", "new"):
        with pytest.raises(AttributeError):
            setattr(key, name, 1)
        with pytest.raises(AttributeError):
            delattr(key, name)


@given(bookings, bookings)
def test_rich_keys_are_equal_ordered_hashed_copied_and_pickled_by_value(one: Booking, other: Booking) -> None:
    for twin in (pickle.loads(pickle.dumps(one)), copy.copy(one), copy.deepcopy(one)):  # noqa: S301
        assert twin == one
        assert hash(twin) == hash(one)
        assert type(twin) is Booking
    assert (one == other) == (one.fields == other.fields)
    assert (one < other) + (one == other) + (one > other) == 1
    assert (one <= other) == (not one > other)
    assert sorted([one, other]) == sorted([other, one])


def test_a_rich_key_is_unlike_a_plain_one_with_the_same_fields() -> None:
    assert Position(1, 2, 3) != PartitionKey.of(x=1.0, y=2.0, z=3.0)
    with pytest.raises(TypeError):
        assert Position(1, 2) < PartitionKey.of(x=1.0)


@given(bookings)
def test_a_rich_key_is_read_back_from_its_text_dagster_and_a_path(booking: Booking) -> None:
    assert value_of(text_of(booking), Booking) == booking
    partitioning = Partitioning((DynamicDimension("booking", "bookings", Booking), StaticDimension("shard", (1, 2))))
    key = partitioning.key([booking, 2])
    assert partitioning.from_dagster(partitioning.to_dagster(key)) == key
    if len(key.path.encode()) < 200:
        assert partitioning.from_path(key.path) == key


def test_a_key_is_spelt_by_its_fields_whatever_its_own_str_says() -> None:
    dimension = StaticDimension("shown", (Shown("a"), Shown("b")))
    dimension.check()
    assert [PartitionKey.of(shown=key).path for key in dimension.members] == ["shown=a", "shown=b"]
    assert dimension.parse("b") == Shown("b")


@pytest.mark.parametrize("text", ["1,2,3", "1.0,2.0", "1.0,2.0,3.0,4.0", "a,b,c", "nan,0.0,0.0", "1.0, 2.0,3.0", ""])
def test_a_text_that_no_rich_key_has_is_refused(text: str) -> None:
    with pytest.raises(VarveError, match="no key of dimension place"):
        DynamicDimension("place", "places", Position).parse(text)
