"""`NamedTuple` and `dataclass` as the standard library has them, made for less at import.

    from moldau.light_classes import NamedTuple, dataclass

The standard ones write code and compile it while a class is made: 0.4 ms for a frozen dataclass,
and a piece for every annotation of a NamedTuple. A start makes some two hundred such classes, and
of most of them nobody ever makes an instance. Here a dataclass gets its methods when the first of
them is called, from the standard decorator, so that they are what they would have been; and the
annotations of a NamedTuple stay the texts that they are. Type checkers see the standard ones.

For modules that a start loads. What is special (own `__init__` or `__eq__`, a base that is a
dataclass itself, `order`, Generic tuples) takes the standard ones.
"""

from __future__ import annotations

import dataclasses
from collections import namedtuple

TYPE_CHECKING = False  # as `typing` has it
if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:

    def dataclass(cls=None, /, *, frozen=False, slots=False, kw_only=False):
        """As `dataclasses.dataclass`; the methods come with the first call."""
        if cls is None:
            return lambda given: dataclass(given, frozen=frozen, slots=slots, kw_only=kw_only)
        special = {"__init__", "__eq__", "__hash__"} & vars(cls).keys()
        if special or any(map(dataclasses.is_dataclass, cls.__mro__)):
            raise TypeError(f"{cls.__qualname__} is special: it takes the standard dataclass")
        made = dataclasses.dataclass(
            init=False, repr=False, eq=False, slots=slots, kw_only=kw_only
        )(cls)
        names = ["__init__", "__eq__"]
        if "__repr__" not in vars(cls):
            names.append("__repr__")
        if frozen:
            names.append("__hash__")
            _freeze(made)
        else:
            made.__hash__ = None
        for name in names:
            setattr(made, name, _make_stub(made, name, names, frozen))
        return made

    def _make_stub(cls, name, names, frozen):
        def stub(self, /, *arguments, **options):
            _give_methods(cls, names, frozen)
            return getattr(cls, name)(self, *arguments, **options)

        stub.__name__, stub.__qualname__ = name, f"{cls.__qualname__}.{name}"
        return stub

    def _give_methods(cls, names, frozen):
        """From a class of the same fields that the standard decorator completes. Two threads at
        once give the same ones."""
        fields = dataclasses.fields(cls)
        namespace = {one.name: one for one in fields}
        namespace["__annotations__"] = {one.name: one.type for one in fields}
        namespace["__module__"], namespace["__qualname__"] = cls.__module__, cls.__qualname__
        namespace["__doc__"] = "Its methods are for another class."
        if hasattr(cls, "__post_init__"):
            namespace["__post_init__"] = cls.__post_init__
        complete = dataclasses.dataclass(frozen=frozen)(type(cls.__name__, (), namespace))
        for name in names:
            setattr(cls, name, vars(complete)[name])

    def _freeze(cls):
        """What the standard decorator gives frozen classes. With slots these need to be told how
        they are pickled, too."""
        fields = tuple(one.name for one in dataclasses.fields(cls))

        def refuse_assignment(self, name, value):
            if type(self) is cls or name in fields:
                raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
            super(cls, self).__setattr__(name, value)

        def refuse_deletion(self, name):
            if type(self) is cls or name in fields:
                raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
            super(cls, self).__delattr__(name)

        cls.__setattr__, cls.__delattr__ = refuse_assignment, refuse_deletion
        if "__slots__" in vars(cls):
            cls.__getstate__, cls.__setstate__ = _get_state, _set_state

    def _get_state(self):
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _set_state(self, state):
        for one, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)

    class _MakesTuples(type):
        def __new__(cls, name, bases, namespace):
            if not bases:  # `NamedTuple` itself
                return super().__new__(cls, name, bases, namespace)
            if bases != (NamedTuple,):
                raise TypeError(f"{name} is special: it takes the standard NamedTuple")
            fields = tuple(namespace.get("__annotations__", ()))
            defaults = [namespace.pop(one) for one in fields if one in namespace]
            made = namedtuple(name, fields, defaults=defaults, module=namespace["__module__"])
            for attribute, value in namespace.items():
                setattr(made, attribute, value)
            return made

    class NamedTuple(metaclass=_MakesTuples):
        """As `typing.NamedTuple`; what the fields are is told by texts, as it is written."""
