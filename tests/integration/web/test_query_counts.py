"""No page or API list sends more queries where there are more rows; new routes need no word here."""

from __future__ import annotations

from pathlib import Path

from app import Services
from bench.pages.dataset import add_activity, make
from bench.pages.page_times import PageTimer, grown
from bench.pages.school import Size
from grading.store import Store
from grading.store.learning_platforms import all_tables
from tests.integration.webapp import FakeDispatch, configuration, make_app

GROWS: dict[str, str] = {}
"""Pages whose queries may grow, with the reason."""


def timer(folder: Path, name: str, size: Size, extra: int) -> PageTimer:
    store = Store(f"sqlite:///{folder / name}.db")
    all_tables().create_all(store.engine)
    school = make(store, size)
    add_activity(store, school, extra)
    services = Services(configuration(), store, FakeDispatch(), secret_key="only for tests")
    return PageTimer(make_app(services), store, school)


def test_no_query_count_grows_with_rows(tmp_path: Path) -> None:
    few = timer(tmp_path, "few", Size(students=5, assignments=2, submissions=20, audit=10), 10)
    many = timer(tmp_path, "many", Size(students=20, assignments=4, submissions=100, audit=40), 40)
    before, after = few.queries(), many.queries()
    filtered = {url: few.ask("admin", url) for endpoint, url in few.pages() if "?" in endpoint}
    for one in (few, many):
        one.store.close()
    assert set(filtered.values()) == {200}, filtered
    assert len(after) > 60
    broken = {page: status for page, (status, _) in after.items() if status >= 500}
    assert broken == {}
    assert few.left_out == set(), "say in bench/pages/dataset.py what the arguments of these are"
    found = [line for line in grown(before, after) if line.split()[0] not in GROWS]
    assert found == []
