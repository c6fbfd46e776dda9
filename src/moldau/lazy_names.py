"""Names of a package that are imported when they are first asked for (PEP 562).

    if TYPE_CHECKING:
        from moldau.client.admin import AsyncAdmin
    else:
        __getattr__, __dir__ = load_on_demand(__name__, {"client.admin": "AsyncAdmin"})

    __all__ = ("AsyncAdmin",)

Type checkers read the first branch, programs run the second, and a test compares all three. Every
start of anything imports this, so it needs nothing.
"""

from __future__ import annotations

from sys import modules

TYPE_CHECKING = False  # as `typing` has it, without the import
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def load_on_demand(
    package: str, homes: Mapping[str, str], rooms: str = ""
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package. `homes` are modules within it, with the names
    that they define; `rooms` are modules within it that need no import statement of their own."""
    home_of = {name: home for home, names in homes.items() for name in names.split()}
    home_of |= dict.fromkeys(rooms.split(), "")

    def load(name: str) -> object:
        from importlib import import_module

        home = home_of.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if not home:
            return import_module(f"{package}.{name}")
        found: object = getattr(import_module(f"{package}.{home}"), name)
        setattr(modules[package], name, found)  # the next time it is simply there
        return found

    def list_names() -> list[str]:
        """What there is, also before it was asked for."""
        own = (name for name in vars(modules[package]) if name.startswith("__"))
        return sorted({*home_of, *own})

    return load, list_names
