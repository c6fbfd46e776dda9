"""The names that packages export, for type checkers and for programs, are loaded on first use."""

from __future__ import annotations

import ast
import inspect
import pydoc
import subprocess
import sys
from importlib import import_module
from types import ModuleType

import pytest

PACKAGES = ("moldau", "moldau.schemas", "moldau.spark", "moldau.testing")


def imports_for_checkers(package: ModuleType) -> dict[str, str]:
    """Name to module, as the package's `if TYPE_CHECKING:` has them."""
    (block,) = (
        one for one in ast.parse(inspect.getsource(package)).body if isinstance(one, ast.If)
    )
    return {
        alias.name: f"{one.module}"
        for one in block.body
        if isinstance(one, ast.ImportFrom)
        for alias in one.names
        if alias.asname is None
    }


@pytest.mark.parametrize("name", PACKAGES)
def test_a_package_offers_what_type_checkers_see_of_it(name: str) -> None:
    package = import_module(name)
    homes = imports_for_checkers(package)
    assert sorted(homes) == sorted(package.__all__)
    for public, home in homes.items():
        assert getattr(package, public) is getattr(import_module(home), public)
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize("name", PACKAGES)
def test_help_and_star_imports_work_on_a_package(name: str) -> None:
    package = import_module(name)
    there: dict[str, object] = {}
    exec(f"from {name} import *", there)
    assert set(package.__all__) <= there.keys()
    shown = pydoc.plain(pydoc.render_doc(package))
    assert all(public in shown for public in package.__all__)


@pytest.mark.parametrize("name", PACKAGES)
def test_a_name_that_a_package_does_not_have_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{name}' has no attribute 'produser'"):
        _ = import_module(name).produser


def test_subpackages_and_names_are_imported_on_first_use() -> None:
    program = (
        "import sys, moldau\n"
        "print(sorted(one for one in sys.modules if one.startswith('moldau')))\n"
        "moldau.errors.KafkaError, moldau.TopicPartition\n"
        "assert 'TopicPartition' in vars(moldau) and 'moldau.client' not in sys.modules\n"
    )
    command = [sys.executable, "-c", program]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "['moldau']"
