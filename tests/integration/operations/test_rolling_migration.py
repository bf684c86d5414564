"""`/readyz` and commands of an old version while, and after, a newer one changes the tables under it."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.main import grader
from grading.store import schema
from tests.integration.webapp import School
from tests.support.services import SqliteDatabases
from tests.support.system import until

ADDS = """
from pathlib import Path
from time import sleep
import sqlalchemy as sa
from alembic import op
revision, down_revision = "{name}", "{before}"
HERE = Path(__file__).parent
def upgrade():
    op.add_column("users", sa.Column("nickname", sa.String(40), nullable=True))
    (HERE / "begun").touch()
    while not (HERE / "go").exists():
        sleep(0.005)
"""
REMOVES = """
from alembic import op
revision, down_revision = "9999", "{before}"
def upgrade():
    op.drop_column("users", "nickname")
"""


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a newer version's revisions in the place of those that this process began with."""
    schema.revisions()
    shutil.copytree(schema.MIGRATIONS, tmp_path / "migrations")
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path / "migrations")
    return tmp_path / "migrations" / "versions"


def test_an_old_web_app_stays_ready_until_tables_are_gone(database_url: str, newer: Path) -> None:
    schema.upgrade(database_url)
    school, newest = School(database_url), schema.newest_revision()
    adds = f"9998{schema.SINCE}{newest}"
    (newer / "9998.py").write_text(ADDS.format(name=adds, before=newest))

    def ready() -> tuple[int, str]:
        answer = school.client().get("/readyz")
        return answer.status_code, answer.get_json()["database"]

    assert ready() == (200, "ok")  # the files are there, the tables are not
    with ThreadPoolExecutor(1) as pool:
        upgrading = pool.submit(schema.upgrade, database_url)
        until(lambda: (newer / "begun").exists() or upgrading.done(), 30, "the upgrade begins")
        assert ready() == (200, "ok")
        (newer / "go").touch()
        upgrading.result(60)
    code, said = ready()
    assert (code, said.partition(";")[0]) == (200, "ok, and newer than this process")
    assert school.submit("anna")
    assert current(database_url).exit_code == 0
    assert "newer than this code (" in current(database_url).output

    (newer / "9999.py").write_text(REMOVES.format(before=adds))
    school.store.close()
    with pytest.raises(schema.StoreOutdated, match="but compatible"):
        schema.upgrade(database_url)  # what an old version must leave to the new one
    schema.revisions.cache_clear()
    schema.upgrade(database_url)
    schema.revisions.cache_clear()
    (newer / "9998.py").unlink()
    (newer / "9999.py").unlink()
    code, said = ready()
    school.store.close()
    assert (code, said) == (503, "newer than this process works with; start it again with the new version")


def current(url: str) -> Result:
    return CliRunner(env={"GRADER_DATABASE_URL": url}).invoke(grader, ["db", "current"])


@pytest.mark.parametrize(
    ("to", "code", "said"),
    [
        ("head", 0, "of this code"),
        ("base", 1, "has no tables."),
        ("0001", 1, "run `grader db upgrade`"),
    ],
)
def test_the_revisions_are_said_in_words(
    sqlite_databases: SqliteDatabases, to: str, code: int, said: str
) -> None:
    database_url = sqlite_databases.fresh(schema.upgrade)
    if to != "head":
        schema.downgrade(database_url, to)
    result = current(database_url)
    assert f"this code: {schema.newest_revision()}" in result.output
    assert result.exit_code == code
    assert said in f"{result.output} {result.exception}"


def test_a_revision_that_nobody_knows_is_said() -> None:
    assert schema.fit_of(None) == "older"
    assert schema.fit_of("9999") == "unknown"
    assert schema.fit_of(f"9999{schema.SINCE}9998") == "unknown"
    assert "belongs to another version of Grader" in schema.sentence("9999")
