"""The rooms of the house: imports point one way, folders and functions stay readable.

``python tests/house/test_rooms.py`` draws the import graph, and lists folders and long functions.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import bayesmf

ROOT = Path(bayesmf.__file__).parent
ORDER = [
    "errors", "choices", "checks", "compiled", "machine", "data", "random", "kernels", "model",
    "sweep", "evaluation", "fitted", "inference", "engines", "study", "report", "serve", "sklearn",
    "cli", "__init__", "__main__",
]  # fmt: skip
"""A room may import those before it."""
MOST_MODULES, MOST_LINES = 12, 60


def modules() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield path.relative_to(ROOT), ast.parse(path.read_text(encoding="utf-8"))


def room_of(path: Path) -> str:
    return path.parts[0] if len(path.parts) > 1 else path.stem


def imports(tree: ast.Module) -> Iterator[str]:
    """Every module of the package that is imported anywhere, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def arrows() -> Counter[tuple[str, str]]:
    """How often one room imports another; names taken from ``bayesmf`` itself do not count."""
    found: Counter[tuple[str, str]] = Counter()
    for path, tree in modules():
        for name in imports(tree):
            package, _, rest = name.partition(".")
            room = rest.partition(".")[0]
            if package == "bayesmf" and room in ORDER and room != room_of(path):
                found[room_of(path), room] += 1
    return found


def functions() -> Iterator[tuple[int, str]]:
    for path, tree in modules():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield (node.end_lineno or 0) - node.lineno + 1, f"{path}:{node.name}"


def folders() -> dict[str, list[int]]:
    found: dict[str, list[int]] = defaultdict(list)
    for path, _ in modules():
        found[str(path.parent)].append(len((ROOT / path).read_text(encoding="utf-8").splitlines()))
    return found


def against_the_order(found: Counter[tuple[str, str]]) -> list[str]:
    return [f"{a} imports {b}" for a, b in found if ORDER.index(b) > ORDER.index(a)]


def test_every_module_is_in_a_room():
    assert {room_of(path) for path, _ in modules()} <= set(ORDER)


def test_imports_point_one_way():
    assert against_the_order(arrows()) == []


def test_an_arrow_against_the_order_is_noticed():
    assert against_the_order(Counter({("model", "inference"): 1, ("cli", "data"): 1})) == [
        "model imports inference"
    ]


def test_inference_never_prints_and_only_some_rooms_touch_a_disk():
    for path, tree in modules():
        if room_of(path) in ("random", "kernels", "model", "sweep", "inference", "engines"):
            calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
            names = {c.id for c in calls if isinstance(c, ast.Name)}
            assert "print" not in names, path
            if path.name != "checkpoint.py":
                assert "open" not in names, path


@pytest.mark.parametrize("folder", sorted(folders()))
def test_folders_are_small(folder):
    assert len(folders()[folder]) <= MOST_MODULES


def test_functions_are_short():
    assert [name for lines, name in functions() if lines > MOST_LINES] == []


def test_the_stub_lists_what_can_be_imported():
    assert bayesmf.__all__ == sorted(bayesmf.__all__)
    for name in bayesmf.__all__:
        assert getattr(bayesmf, name).__module__.startswith("bayesmf")


def test_the_design_page_has_this_order():
    page = ROOT.parents[1] / "docs" / "design.md"
    if not page.is_file():
        pytest.skip("the documents are not in this copy")
    rooms = [room for room in ORDER if not room.startswith("__")]
    assert " -> ".join(rooms) in " ".join(page.read_text(encoding="utf-8").split())


if __name__ == "__main__":
    graph = arrows()
    for room in ORDER:
        used = [f"{b} {n}" for (a, b), n in sorted(graph.items()) if a == room]
        print(f"{room:12} <- {', '.join(used)}")
    for name, lines in sorted(folders().items()):
        print(f"{name:26} {len(lines):3} modules {sum(lines):6} lines")
    for lines, name in sorted(functions(), reverse=True)[:10]:
        print(f"{lines:4} {name}")
