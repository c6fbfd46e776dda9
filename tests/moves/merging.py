"""Puts the code of several modules into one."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

from moves import MoveMap, Target
from moves.code import (
    Comprehension,
    Edit,
    Function,
    Import,
    Source,
    find_bound,
    find_called,
    find_globals,
    find_import_time,
    find_locals,
    is_type_checking,
    show_alias,
    walk_scope,
)

BUILTINS = frozenset(dir(builtins))
FLAG = "TYPE_CHECKING"
EMPTY_BLOCK = re.compile(rf"^if {FLAG}:\n(?=\n*(?:\S|\Z))", re.MULTILINE)
"""All that it imported is in the same module now."""
COMMENT_COLUMNS = 98
REST = "(rest)"


class Problems(list[str]):
    """What keeps modules from being merged; `notes` are for people to look at."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[str] = []


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """A statement at the top of a module, with the comments before it."""

    module: str
    text: str
    nodes: tuple[ast.stmt, ...]
    bound: frozenset[str]
    needed: frozenset[str]
    """Names that have to be there when the statement is run."""
    called: frozenset[str]
    mentioned: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of the modules that are merged, with the imports of its siblings taken out."""

    module: str
    docstring: str
    imports: tuple[str, ...]
    typing_imports: tuple[str, ...]
    items: tuple[Item, ...]
    origins: Mapping[str, tuple[str, ...]]
    """Imported names, and where they come from."""
    has_own_flag: bool


def merge(target: Target, texts: Mapping[str, str], moves: MoveMap, problems: Problems) -> str:
    """The text of the new module. `texts` are the old modules'."""
    siblings = frozenset(target.sources)
    prepared = {one: prepare(one, texts[one], siblings, moves, problems) for one in target.sources}
    if len(prepared) == 1 and target.docstring is None:
        return prepared[target.sources[0]]
    parts = [read_part(one, text, moves) for one, text in prepared.items()]
    dropped = _find_clashes(target, parts, problems)
    items = order_items([item for part in parts for item in part.items if item not in dropped])
    own_flag = all(one.has_own_flag or not one.typing_imports for one in parts) and any(
        one.has_own_flag for one in parts
    )
    text = "\n".join(
        (
            _docstring(target, parts),
            *_future(target, prepared.values(), problems),
            *(text for part in parts for text in part.imports),
            *((f"\n{FLAG} = False  # as `typing` has it, without the import",) if own_flag else ()),
            _typing_block(parts, problems),
            "\n",
            *_with_headings(target, parts, items),
        )
    )
    return drop_redundant_imports(text.rstrip() + "\n") if len(parts) > 1 else text.rstrip() + "\n"


def _docstring(target: Target, parts: Sequence[Part]) -> str:
    text = target.docstring if target.docstring is not None else parts[0].docstring
    if not text:
        return ""
    if "\n" in text:
        text += "\n"
    return f'"""{text}"""\n'


def _future(target: Target, texts: Iterable[str], problems: Problems) -> Iterator[str]:
    """Annotations are evaluated, or they are not: in a module it is one or the other."""
    line = "from __future__ import annotations"
    having = [line in text.splitlines() for text in texts if text.strip()]
    if any(having):
        yield line + "\n"
        if not all(having):
            problems.notes.append(f"{target.name}: annotations of all parts are texts now")


def _typing_block(parts: Sequence[Part], problems: Problems) -> str:
    """The imports for type checkers, without those that the program makes as well."""
    made = {
        (origin, name)
        for part in parts
        for text in part.imports
        for name, origin in find_origins(ast.parse(textwrap.dedent(text)).body)
    }
    lines = []
    for text in (text for part in parts for text in part.typing_imports):
        source = Source(textwrap.dedent(text))
        edits = []
        for node in source.tree.body:
            kept = [
                one
                for one in node.names  # type: ignore[attr-defined]
                if (_origin_of(node, one), _local_of(node, one)) not in made
            ]
            edits += keep_aliases(source, node, kept)
        rest = source.edited(edits)
        if rest.strip():
            lines.append(textwrap.indent(rest.strip("\n"), "    "))
    return "\n".join((f"\nif {FLAG}:", *lines)) if lines else ""


def _with_headings(target: Target, parts: Sequence[Part], items: Sequence[Item]) -> Iterator[str]:
    texts = {one.module: _comment_for(target, one) for one in parts}
    for item in items:
        heading = texts.pop(item.module, "")
        if heading:
            yield "\n\n" + heading + "\n"
        yield item.text


def _comment_for(target: Target, part: Part) -> str:
    """The docstring of an old module that says more than what the module is."""
    text = target.comments.get(part.module)
    if text is None:
        is_kept = target.docstring is None and part.module == target.sources[0]
        text = "" if is_kept or "\n\n" not in part.docstring else part.docstring
    elif text == REST:
        text = part.docstring.partition("\n\n")[2]
    return "\n".join(f"# {line}".rstrip() for line in _fit(text))


def _fit(text: str) -> Iterator[str]:
    """The lines of a text; paragraphs with lines that are too long are broken anew."""
    for paragraph in text.split("\n\n") if text else ():
        if text.index(paragraph):
            yield ""
        lines = paragraph.splitlines()
        if any(len(one) > COMMENT_COLUMNS for one in lines) and not paragraph.startswith(" "):
            lines = textwrap.wrap(paragraph, COMMENT_COLUMNS)
        yield from lines


# An old module without the imports of its siblings


def prepare(
    module: str, text: str, siblings: frozenset[str], moves: MoveMap, problems: Problems
) -> str:
    """The module with its new names; what siblings define is taken for its own."""
    source = Source(text)
    parents = {
        id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)
    }
    edits = list(_rename_own(module, source, moves))
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            problems += [
                f"{module}:{node.lineno} imports its sibling as `import {one.name}`"
                for one in node.names
                if one.name in siblings
            ]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            kept = []
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                scope = _scope_of(node, parents, source.tree)
                if whole in siblings:
                    edits += _flatten(module, source, scope, parents, whole, alias, moves, problems)
                elif node.module in siblings:
                    local = alias.asname or alias.name
                    new = moves.new_name(node.module, alias.name)
                    edits += _use_global(module, source, scope, parents, local, new, problems)
                else:
                    kept.append(alias)
            lines = source.lines[node.lineno - 1 : node.end_lineno]
            if len(kept) < len(node.names) and any("#" in line for line in lines):
                problems.notes.append(f"{module}:{node.lineno} an import goes, and its comment")
            edits += keep_aliases(source, node, kept, parents)
    return EMPTY_BLOCK.sub("", source.edited(edits))


def _rename_own(module: str, source: Source, moves: MoveMap) -> Iterator[Edit]:
    names = {name: new for (home, name), new in moves.renames.items() if home == module}
    if not names:
        return
    for name in find_globals(source.tree):
        if name.id in names:
            yield (*source.span(name), names[name.id])
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Global) and names.keys() & set(node.names):
            words = ", ".join(names.get(one, one) for one in node.names)
            yield (*source.span(node), f"global {words}")
    for node in walk_scope(source.tree.body):
        if isinstance(node, Function | ast.ClassDef) and node.name in names:
            yield (*source.name_span(node), names[node.name])
        elif isinstance(node, Import):
            for alias in node.names:
                if (alias.asname or alias.name) in names:
                    new = names[alias.asname or alias.name]
                    yield (*source.span(alias), f"{alias.name} as {new}")


def _scope_of(
    node: ast.AST, parents: Mapping[int, ast.AST], tree: ast.Module
) -> Function | ast.ClassDef | ast.Module:
    while id(node) in parents:
        node = parents[id(node)]
        if isinstance(node, Function | ast.ClassDef):
            return node
    return tree


def _names_of(scope: Function | ast.ClassDef | ast.Module, local: str) -> Iterator[ast.Name]:
    """Where a name that is imported in this scope is used."""
    if isinstance(scope, ast.Module):
        yield from (one for one in find_globals(scope) if one.id == local)
    else:
        yield from (one for one in ast.walk(scope) if isinstance(one, ast.Name) and one.id == local)


def _is_hidden(
    node: ast.AST, name: str, parents: Mapping[int, ast.AST], imported: Iterable[str] = ()
) -> bool:
    """Whether a function around this place has a local of that name."""
    while id(node) in parents:
        node = parents[id(node)]
        if isinstance(node, Function | ast.Lambda) and name in find_locals(node):
            return name not in imported
        if isinstance(node, Comprehension) and name in set(
            find_bound(one.target for one in node.generators)
        ):
            return True
    return False


def _use_global(
    module: str,
    source: Source,
    scope: Function | ast.ClassDef | ast.Module,
    parents: Mapping[int, ast.AST],
    local: str,
    new: str,
    problems: Problems,
) -> Iterator[Edit]:
    """What was imported from a sibling is now at the top of the same module."""
    if isinstance(scope, Function):
        arguments = {one.arg for one in ast.walk(scope.args) if isinstance(one, ast.arg)}
        bindings = [one for one in find_bound(scope.body) if one == local]
        imports = [
            alias
            for node in walk_scope(scope.body)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
            if (alias.asname or alias.name) == local
        ]
        if local in arguments or len(bindings) > len(imports):
            problems.append(
                f"{module}:{scope.lineno} `{scope.name}` imports `{local}` and binds it again"
            )
    if local == new:
        return
    for name in _names_of(scope, local):
        if _is_hidden(name, new, parents):
            problems.append(f"{module}:{name.lineno} `{new}` would be another thing here")
        yield (*source.span(name), new)


def _flatten(
    module: str,
    source: Source,
    scope: Function | ast.ClassDef | ast.Module,
    parents: Mapping[int, ast.AST],
    sibling: str,
    alias: ast.alias,
    moves: MoveMap,
    problems: Problems,
) -> Iterator[Edit]:
    """`sibling.name` becomes `name`."""
    for name in _names_of(scope, alias.asname or alias.name):
        above = parents[id(name)]
        if not isinstance(above, ast.Attribute):
            problems.append(f"{module}:{name.lineno} uses the module `{sibling}` as a value")
            continue
        new = moves.new_name(sibling, above.attr)
        if _is_hidden(above, new, parents):
            problems.append(f"{module}:{name.lineno} `{new}` would be another thing here")
        yield (*source.span(above), new)


def keep_aliases(
    source: Source,
    node: ast.stmt,
    kept: Sequence[ast.alias],
    parents: Mapping[int, ast.AST] | None = None,
) -> Iterator[Edit]:
    """Edits that leave an import with these names only."""
    assert isinstance(node, Import)
    if len(kept) == len(node.names):
        return
    if kept:
        names = ", ".join(show_alias(one.name, one.asname) for one in kept)
        if isinstance(node, ast.ImportFrom):
            yield (*source.span(node), f"from {'.' * node.level}{node.module or ''} import {names}")
        else:
            yield (*source.span(node), f"import {names}")
        return
    above = (parents or {}).get(id(node))
    block = next(
        (
            body
            for body in (getattr(above, key, None) for key in ("body", "orelse", "finalbody"))
            if isinstance(body, list) and node in body
        ),
        [],
    )
    is_alone = above is not None and not isinstance(above, ast.Module) and len(block) == 1
    if is_alone and not is_type_checking(above):  # type: ignore[arg-type]  # it has a body
        yield (*source.span(node), "pass")
        return
    first, last = node.lineno, node.end_lineno or node.lineno
    start = block.index(node) if node in block else 0
    while start and isinstance(block[start - 1], Import):
        start -= 1
    line = block[start].lineno if block else first
    before = source.lines[line - 2].strip() if line > 1 else ""
    after = source.lines[last].strip() if last < len(source.lines) else ""
    if last < len(source.lines) and not after and (not before or before.endswith((":", '"""'))):
        last += 1  # the empty line between imports and code: if some are left, it is written again
    yield (*source.line_span(first, last), "")


# What is in a module


def read_part(module: str, text: str, moves: MoveMap) -> Part:
    source = Source(text)
    body = source.tree.body
    docstring = ast.get_docstring(source.tree) or ""
    place = 1 if docstring else 0
    # Before the first statement that is no import: comments above an import stay with it.
    end_line = (body[0].end_lineno or 0) if docstring else 0
    imports: list[str] = []
    typing_imports: list[str] = []
    origins: dict[str, tuple[str, ...]] = {}
    has_own_flag = False
    while place < len(body):
        node = body[place]
        if is_type_checking(node):
            assert isinstance(node, ast.If)
            first, last = node.lineno + 1, node.end_lineno or 0
            typing_imports.append("\n".join(source.lines[first - 1 : last]))
            origins.update(find_origins(node.body, moves))
        elif isinstance(node, Import):
            if not (isinstance(node, ast.ImportFrom) and node.module == "__future__"):
                lines = source.lines[end_line : node.end_lineno]
                imports.append("\n".join(one for one in lines if one.strip()))
                origins.update(find_origins([node], moves))
        elif (
            isinstance(node, ast.Assign)
            and ast.unparse(node.targets) == FLAG
            and FLAG not in origins
        ):
            has_own_flag = True
        else:
            break
        end_line = node.end_lineno or node.lineno
        place += 1
    return Part(
        module=module,
        docstring=inspect.cleandoc(docstring),
        imports=tuple(imports),
        typing_imports=tuple(typing_imports),
        items=tuple(_cut_items(module, source, body[place:], end_line)),
        origins=origins,
        has_own_flag=has_own_flag,
    )


def _cut_items(
    module: str, source: Source, body: Sequence[ast.stmt], end_line: int
) -> Iterator[Item]:
    groups: list[list[ast.stmt]] = []
    for node in body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if is_text and groups:  # the description of the name above
            groups[-1].append(node)
        else:
            groups.append([node])
    for group in groups:
        last = group[-1].end_lineno or group[-1].lineno
        if group is groups[-1]:
            last = len(source.lines)
        lines = source.lines[end_line:last]
        end_line = last
        yield Item(
            module=module,
            text="\n".join(lines).rstrip(),
            nodes=tuple(group),
            bound=frozenset(find_bound(group)),
            needed=frozenset(one.id for node in group for one in find_import_time(node)),
            called=frozenset(name for node in group for name in find_called(node)),
            mentioned=frozenset(one.id for node in group for one in find_globals(node)),
        )


def find_origins(
    nodes: Iterable[ast.AST], moves: MoveMap | None = None
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for node in nodes:
        if isinstance(node, Import):
            for alias in node.names:
                yield _local_of(node, alias), _origin_of(node, alias, moves)


def _local_of(node: ast.AST, alias: ast.alias) -> str:
    if isinstance(node, ast.Import):
        return alias.asname or alias.name.partition(".")[0]
    return alias.asname or alias.name


def _origin_of(node: ast.AST, alias: ast.alias, moves: MoveMap | None = None) -> tuple[str, ...]:
    if isinstance(node, ast.Import):
        return ("import", alias.name if alias.asname else alias.name.partition(".")[0])
    assert isinstance(node, ast.ImportFrom)
    module, name = node.module or "", alias.name
    if moves is not None and module in moves.homes:
        module, name = moves.homes[module], moves.new_name(module, name)
    return ("from", "." * node.level + module, name)


def _find_clashes(target: Target, parts: Sequence[Part], problems: Problems) -> set[Item]:
    """Problems for names that mean two things. The items that say the same again are returned."""
    dropped: set[Item] = set()
    homes: dict[str, list[tuple[str, Item | tuple[str, ...]]]] = defaultdict(list)
    for part in parts:
        for name, origin in part.origins.items():
            homes[name].append((part.module, origin))
        for item in part.items:
            for name in sorted(item.bound):
                homes[name].append((part.module, item))
    for name, found in sorted(homes.items()):
        modules = {module for module, _ in found}
        first_module, first = found[0]
        others = [one for one in found if one[0] != first_module]
        if len(modules) < 2 or all(one == first for _, one in others):
            continue
        if all(_says_the_same(first, one) for _, one in others):
            dropped.update(one for _, one in others if isinstance(one, Item))
            problems.notes.append(f"{target.name}: `{name}` of {_listed(modules)} is kept once")
        else:
            problems.append(f"{target.name}: `{name}` means two things in {_listed(modules)}")
    own = {
        part.module: {*part.origins, *(n for i in part.items for n in i.bound)} for part in parts
    }
    everything = set().union(*own.values())
    for part in parts:
        used = {name for item in part.items for name in item.mentioned}
        for name in sorted(used & BUILTINS & everything - own[part.module]):
            problems.append(
                f"{target.name}: {part.module} uses the builtin `{name}`, a sibling defines it"
            )
    return dropped


def _says_the_same(one: Item | tuple[str, ...], other: Item | tuple[str, ...]) -> bool:
    if not isinstance(one, Item) or not isinstance(other, Item):
        return False
    if not all(
        isinstance(node, ast.Assign | ast.AnnAssign) for node in (one.nodes[0], other.nodes[0])
    ):
        return False
    return ast.dump(one.nodes[0]) == ast.dump(other.nodes[0])


def _listed(modules: Iterable[str]) -> str:
    return ", ".join(sorted(modules))


# What is needed comes first


def order_items(items: Sequence[Item]) -> list[Item]:
    """The items in their order, but none before what it needs when it is run."""
    items = _order_modules(items)
    place = {id(item): number for number, item in enumerate(items)}
    homes = {name: item for item in reversed(items) for name in item.bound}
    done: set[int] = set()
    ordered: list[Item] = []

    def put(item: Item, under_way: frozenset[int]) -> None:
        if id(item) in done or id(item) in under_way:
            return
        for name in sorted(_needs_of(item, homes, place)):
            put(homes[name], under_way | {id(item)})
        done.add(id(item))
        ordered.append(item)

    for item in items:
        put(item, frozenset())
    return [one for one in ordered if not _is_main(one)] + [one for one in ordered if _is_main(one)]


def _is_main(item: Item) -> bool:
    return isinstance(item.nodes[0], ast.If) and "__name__" in item.mentioned


def _needs_of(item: Item, homes: Mapping[str, Item], place: Mapping[int, int]) -> set[str]:
    """Names that are needed when an item is run: also by what it calls."""
    needs: set[str] = set()
    left = [item.needed]
    while left:
        for name in left.pop():
            home = homes.get(name)
            if home is None or home is item or name in needs:
                continue
            needs.add(name)
            if name in item.called:
                # In a module of its own this came first, or is not needed by the call.
                later = {
                    one
                    for one in home.mentioned
                    if one in homes
                    and homes[one].module == item.module
                    and place[id(homes[one])] > place[id(item)]
                }
                left.append(home.mentioned - later)
    return needs


def _order_modules(items: Sequence[Item]) -> list[Item]:
    """The modules in the order of the map, unless one needs another that comes later."""
    modules = list(dict.fromkeys(item.module for item in items))
    homes = {name: item for item in reversed(items) for name in item.bound}
    place = {id(item): number for number, item in enumerate(items)}
    needs: dict[str, set[str]] = {one: set() for one in modules}
    for item in items:
        for name in _needs_of(item, homes, place):
            if homes[name].module != item.module:
                needs[item.module].add(homes[name].module)
    sorter = TopologicalSorter(needs)
    try:
        sorter.prepare()
    except CycleError:
        return list(items)
    order: list[str] = []
    ready: set[str] = set()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready, key=modules.index)
        ready.remove(first)
        order.append(first)
        sorter.done(first)
    return [item for module in order for item in items if item.module == module]


def drop_redundant_imports(text: str) -> str:
    """Without imports inside functions that the merged module has at its top."""
    source = Source(text)
    made = {
        (origin, name)
        for node in source.tree.body
        if isinstance(node, Import)
        for name, origin in find_origins([node])
    }
    parents = {
        id(child): node for node in ast.walk(source.tree) for child in ast.iter_child_nodes(node)
    }
    edits: list[Edit] = []
    for function in ast.walk(source.tree):
        if not isinstance(function, Function):
            continue
        bound = list(find_bound(function.body))
        for node in walk_scope(function.body):
            if isinstance(node, ast.ImportFrom):
                kept = [
                    one
                    for one in node.names
                    if (_origin_of(node, one), _local_of(node, one)) not in made
                    or bound.count(_local_of(node, one)) > 1
                ]
                edits += keep_aliases(source, node, kept, parents)
    return source.edited(edits)
