"""Light classes behave as the standard ones do, which are made beside them here."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
import typing
from collections.abc import Callable
from threading import Barrier, Thread
from typing import Any

import pytest

from moldau import light_classes

# Type checkers see one and the same: at run time these are the light ones.
light_dataclass: Any = light_classes.dataclass
LightNamedTuple: Any = light_classes.NamedTuple


class Plain:
    """Some fields."""

    number: int
    text: str = "text"
    items: list[int] = dataclasses.field(default_factory=list)
    hidden: int = dataclasses.field(default=1, repr=False, compare=False)
    ALL: typing.ClassVar[int] = 3

    def double(self) -> int:
        return self.number * 2


class Checked:
    """One that looks at itself."""

    low: int
    high: int

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low is above high")


class Told:
    """One that says itself what it is."""

    secret: str

    def __repr__(self) -> str:
        return "Told(…)"


SHAPES = [
    {"frozen": frozen, "slots": slots, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for kw_only in (False, True)
]


def make_both(model: type, shape: dict[str, bool]) -> tuple[Any, Any]:
    """The light and the standard class of one model, each from a class of its own."""
    without = ("__dict__", "__weakref__")
    light, standard = (
        decorate(**shape)(
            type(
                model.__name__,
                model.__bases__,
                {name: copy.copy(one) for name, one in vars(model).items() if name not in without},
            )
        )
        for decorate in (light_dataclass, dataclasses.dataclass)
    )
    return light, standard


def outcome(work: Callable[[], object]) -> object:
    """What comes of it, as something that can be compared."""
    try:
        return work()
    except Exception as error:  # noqa: BLE001 whatever it is, both have it
        return type(error), str(error)


USES: list[Callable[[Any], object]] = [
    lambda cls: repr(cls(number=1)),
    lambda cls: repr(cls(number=1, items=[2], text="x")),
    lambda cls: repr(cls(1, "x")),
    lambda cls: cls(),
    lambda cls: cls(number=1, unknown=2),
    lambda cls: cls(number=1) == cls(number=1, hidden=9),
    lambda cls: cls(number=1) == cls(number=2),
    lambda cls: cls(number=1) == (1, "text", [], 1),
    lambda cls: cls(number=1) != cls(number=1),
    lambda cls: hash(cls(number=1, items=())) == hash(cls(number=1, items=())),
    lambda cls: setattr(cls(number=1), "number", 2),
    lambda cls: delattr(cls(number=1), "number"),
    lambda cls: type(outcome(lambda: setattr(cls(number=1), "unknown", 2))),
    lambda cls: repr(dataclasses.replace(cls(number=1), text="y")),
    lambda cls: dataclasses.asdict(cls(number=1)),
    lambda cls: [(one.name, one.type, one.kw_only) for one in dataclasses.fields(cls)],
    lambda cls: cls.__match_args__,
    lambda cls: cls(number=4).double(),
    lambda cls: cls.ALL,
    lambda cls: repr(copy.copy(cls(number=1))),
    lambda cls: copy.deepcopy(cls(number=1, items=[2])) == cls(number=1, items=[2]),
    lambda cls: cls(number=1).items is cls(number=1).items,
    lambda cls: hasattr(cls(number=1), "__dict__"),
    lambda cls: cls.__doc__,
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("number", range(len(USES)))
def test_a_light_dataclass_does_what_the_standard_one_does(
    number: int, shape: dict[str, bool]
) -> None:
    """Each use is the first one of its class."""
    light, standard = make_both(Plain, shape)
    use = USES[number]
    assert outcome(lambda: use(light)) == outcome(lambda: use(standard))
    assert outcome(lambda: use(light)) == outcome(lambda: use(standard))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_class_that_checks_itself_still_does(shape: dict[str, bool]) -> None:
    light, _ = make_both(Checked, shape)
    with pytest.raises(ValueError, match="above"):
        light(low=2, high=1)
    assert light(low=1, high=2).high == 2


def test_a_repr_of_its_own_is_kept() -> None:
    light, _ = make_both(Told, {"frozen": True})
    assert repr(light("x")) == "Told(…)"
    assert light("x") == light("x")


@dataclasses.dataclass(frozen=True, slots=True)
class Standard:
    """One that others would be derived from."""

    number: int


def test_what_is_special_is_refused_while_it_is_made() -> None:
    with pytest.raises(TypeError, match="takes the standard dataclass"):
        light_dataclass(type("Own", (), {"__init__": lambda self: None}))
    with pytest.raises(TypeError, match="takes the standard dataclass"):
        light_dataclass(type("Derived", (Standard,), {}))
    with pytest.raises(TypeError, match="takes the standard NamedTuple"):
        type(LightNamedTuple)("Derived", (LightNamedTuple, typing.Generic), {})


@light_classes.dataclass(frozen=True, slots=True)
class Kept:
    """Pickles find it by its name."""

    number: int
    text: str


def test_a_frozen_one_with_slots_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(1, "x"))) == Kept(1, "x")


def test_a_class_derived_from_a_frozen_one_may_have_more() -> None:
    class More(Kept):
        pass

    more = More(1, "x")
    more.other = 3  # type: ignore[attr-defined]
    assert (more.number, more.other) == (1, 3)  # type: ignore[attr-defined]
    with pytest.raises(dataclasses.FrozenInstanceError):
        more.number = 2  # type: ignore[misc]
    del more.other  # type: ignore[attr-defined]
    assert More(1, "x") != Kept(1, "x")


def test_threads_that_use_a_class_first_at_once_all_get_what_they_asked_for() -> None:
    light, _ = make_both(Plain, {"frozen": True, "slots": True})
    together, made = Barrier(8), []

    def use() -> None:
        together.wait(60)
        made.append(light(number=1))

    threads = [Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [one.number for one in made] == [1] * 8


class Light(light_classes.NamedTuple):
    """A light one."""

    number: int
    text: str | None = None
    items: tuple[NotImported, ...] = ()  # type: ignore[name-defined]  # noqa: F821

    @property
    def double(self) -> int:
        return self.number * 2

    @classmethod
    def none(cls) -> Light:
        return cls(0)


def test_a_light_tuple_is_a_named_tuple() -> None:
    assert Light(1) == (1, None, ())
    assert Light(number=1, text="x").text == "x"
    assert Light(3).double == 6
    assert Light.none() == Light(0)
    assert Light._fields == ("number", "text", "items")
    assert Light(1)._replace(number=2) == Light(2)
    assert repr(Light(1)) == "Light(number=1, text=None, items=())"
    assert Light.__annotations__ == {
        "number": "int",
        "text": "str | None",
        "items": "tuple[NotImported, ...]",
    }
    assert (Light.__doc__, Light.__module__, Light.__qualname__) == (
        "A light one.",
        __name__,
        "Light",
    )
    assert pickle.loads(pickle.dumps(Light(1))) == Light(1)
    assert type(copy.copy(Light(1))) is Light
    assert not hasattr(Light(1), "__dict__")


def test_nothing_is_compiled_before_it_is_used() -> None:
    code = """
from __future__ import annotations
import dataclasses, typing
from moldau.light_classes import NamedTuple, dataclass
def refuse(*arguments, **options):
    raise AssertionError("compiled")
dataclasses._create_fn = typing.ForwardRef.__init__ = refuse  # the first is that of 3.11 and 3.12
@dataclass(frozen=True, slots=True)
class One:
    "One."
    number: int
class Two(NamedTuple):
    number: int
assert Two(1).number == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
