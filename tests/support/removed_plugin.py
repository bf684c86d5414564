"""Removes one engine after the other from a copy of this tree, and works with what is left. A program.

    python tests/support/removed_plugin.py TREE PLUGIN=NAME…

NAME is the engine's in config.toml, empty for a part of another one. TREE is a copy without any of the
engines' folders, and has `without/PLUGIN` for each: the folder of engines with all others, and what is
announced without it. First what names engines is imported; then each case is
a fork, which shares that and knows only the others. Ends with status 1 where something fails.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

BUILT_ON = {"remote_prefill": ("mlx",), "sharded": ("mlx",), "speculative": ("mlx",)}
"""What an engine cannot work without, beside what all share."""
ENGINES = "workers.machine.engines"
LOADED = ("workers.machine.", "cli.main", "cli.doctor.machines")
"""Imported whatever they name: the cases use them."""


def modules(folder: Path, package: str) -> list[tuple[Path, str]]:
    """All modules of a package, with their names."""
    found = []
    for place, _, files in os.walk(folder, followlinks=True):
        for path in (Path(place, file) for file in files if file.endswith(".py")):
            inner = path.relative_to(folder).with_suffix("").parts
            found.append((path, ".".join((package, *inner)).removesuffix(".__init__")))
    return found


def rest(tree: Path) -> None:
    """All that is no engine and names the package of engines, so that nothing else could load one.

    Whatever loads an engine by itself fails here, as there is none.
    """
    for package in ("cli", "workers", "app", "grading"):
        for path, name in modules(tree / package, package):
            if name.startswith(LOADED) or ENGINES in path.read_text("utf-8"):
                importlib.import_module(name)
    for name in ("click.testing", "requests", "tests.support.engines"):  # shared by the cases
        importlib.import_module(name)


def without(place: Path, plugin: str, kept: Iterable[str], name: str) -> None:
    """Work where one engine is neither there nor announced; `name` is empty for a part of another one."""
    sys.path.insert(0, str(place))
    sys.modules[ENGINES].__path__ = [str(place / "engines")]
    for one in kept:
        if plugin not in (one, *BUILT_ON.get(one, ())):
            importlib.import_module(f"{ENGINES}.{one}")
            for _, inner in modules(place / "engines" / one, f"{ENGINES}.{one}"):
                importlib.import_module(inner)
    commands()
    if name:
        unknown(name)
    elif plugin == "speculative":
        opened(machine("mlx")).close()
    grade("instant" if plugin != "instant" else "rules")


def commands() -> None:
    """The command line, the shipped configuration and the words of what is installed."""
    from click.testing import CliRunner

    from cli.main import grader
    from grading.config.settings import load
    from grading.shared.plugin_messages import load_installed_messages

    assert CliRunner().invoke(grader, ["--help"]).exit_code == 0
    assert load(Path("config.toml"), {}).machines
    with fails_on_error_logs():
        load_installed_messages()


@contextmanager
def fails_on_error_logs() -> Iterator[None]:
    """What is logged as an error becomes one."""
    seen: list[logging.LogRecord] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = seen.append  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    yield
    assert not seen, [record.getMessage() for record in seen]


def machine(engine: str) -> Any:
    """A machine that grades with it."""
    from grading.config.machines import Machine, Placement

    return Machine(name="one", stages={"analysis": Placement(engine=engine, model="none")})


def opened(one: Any) -> Any:
    """The engine of a machine, as its worker opens it."""
    from workers.machine.engines import open_engines

    (engine,) = open_engines(one).values()
    return engine


def unknown(name: str) -> None:
    """Who still names it is told that it is not there, by the worker and by the doctor."""
    from cli.doctor.machines import unknown_engines
    from grading.domain.errors import ConfigError

    assert [one.code for one in unknown_engines("machine one", machine(name))] == ["engine_unknown"]
    said = ""
    try:
        opened(machine(name))
    except ConfigError as error:
        said = error.message
    assert "no such engine here" in said, name


def grade(name: str) -> None:
    """One stage with another engine."""
    from cli.doctor.machines import unknown_engines
    from tests.support.engines import job
    from workers.machine.stages.run import run_stage

    assert not list(unknown_engines("machine one", machine(name)))
    result = run_stage(job(), opened(machine(name)), "none", "one", lambda *_: None)
    assert result.ok, result


def forked(place: Path, plugin: str, engines: Mapping[str, str]) -> bool:
    """Whether a case went well in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            without(place, plugin, engines, engines[plugin])
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    """See the module."""
    tree = Path(sys.argv[1])
    engines = dict(one.split("=") for one in sys.argv[2:])
    sys.path.insert(0, str(tree))
    rest(tree)
    failed = [one for one in engines if not forked(tree / "without" / one, one, engines)]
    if failed:
        sys.exit(f"It does not work without {', '.join(failed)}.")


if __name__ == "__main__":
    main()
