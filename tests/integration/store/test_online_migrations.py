"""Revisions keep nobody waiting who submits: none locks a large table of PostgreSQL for long."""

from __future__ import annotations

import io
import re
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations
from alembic.script import ScriptDirectory
from sqlalchemy import text

from bench.pages import dataset
from bench.pages.school import School as BenchSchool
from bench.pages.school import Size
from grading.documents import UploadedFile, read
from grading.documents.limits import Limits
from grading.store import Store, schema
from grading.store.learning_platforms import all_tables
from grading.store.submissions import intake
from grading.store.submissions.intake import IncomingSubmission
from migrations.online import LOCK_TIMEOUT_S
from tests.support.services import PostgresDatabases

BEFORE_THE_RULE = 20
"""The number of the last revision that was made when there was no database of years."""
OF_EACH_SUBMISSION = ("submissions", "rounds", "runs")
LARGE = frozenset(
    {
        *("audit", "outbox", "sent_messages", "blobs", "users", "identities", "memberships"),
        *(
            name
            for name, table in all_tables().tables.items()
            if {key.column.table.name for key in table.foreign_keys} & set(OF_EACH_SUBMISSION)
        ),
        *OF_EACH_SUBMISSION,
    }
)
"""Tables with a row of each submission, of each message or of each person."""
ALTER = r"ALTER TABLE (?:ONLY )?\"?(\w+)\"? .*?"
LONG = {
    r"CREATE (?:UNIQUE )?INDEX (?!CONCURRENTLY).*?ON (\w+)": "use migrations.online.create_index",
    ALTER + r"SET NOT NULL": "use migrations.online.require",
    ALTER + r"ALTER COLUMN \w+ TYPE": "it may write all rows again: add a column, and fill it",
    ALTER + r"ADD COLUMN (?!.*DEFAULT).*NOT NULL": "add it empty, fill it, require it later",
    ALTER + r"ADD COLUMN .*DEFAULT .*(?:\bnow\(|random|uuid|clock_timestamp)": "it writes all rows again",
    ALTER
    + r"ADD (?:CONSTRAINT \w+ )?(?:FOREIGN KEY|CHECK)(?!.*NOT VALID)": "add it NOT VALID, then validate",
    ALTER
    + r"ADD (?:CONSTRAINT \w+ )?(?:UNIQUE|PRIMARY KEY)(?! USING)": "make a unique index concurrently first",
    r"(?:UPDATE|DELETE FROM) (\w+) (?!.*LIMIT)": "use migrations.online.fill",
    r"INSERT INTO \w+ .*?(?:FROM|JOIN) (\w+)": "let the code fill it in, in small transactions",
}
"""What locks a large table for as long as it takes to read or to write it, and what to do instead."""


def sent_by(module: object) -> str:
    """The SQL that a revision's upgrade sends to PostgreSQL."""
    found = io.StringIO()
    options = {"as_sql": True, "output_buffer": found, "transactional_ddl": True}
    context = MigrationContext.configure(dialect_name="postgresql", opts=options)
    with context.begin_transaction(), Operations.context(context):
        module.upgrade()  # type: ignore[attr-defined]
    return found.getvalue()


def long_locks(sql: str) -> list[str]:
    """The statements that lock a large table for long, each with what to do instead."""
    statements = [" ".join(one.split()) for one in sql.split(";")]
    made = set(re.findall(r"CREATE TABLE (\w+)", sql))
    checked = set(re.findall(r"ALTER TABLE \w+ VALIDATE CONSTRAINT (\w+)_filled", sql))
    found = []
    for statement in statements:
        for pattern, instead in LONG.items():
            match = re.search(pattern, statement, re.IGNORECASE)
            if not match or match[1] not in LARGE - made:
                continue
            column = re.search(r"ALTER COLUMN (\w+) SET NOT NULL", statement)
            if column is None or f"{match[1]}_{column[1]}" not in checked:
                found.append(f"{statement}: {instead}")
    return found


def revisions() -> Iterator[tuple[str, object]]:
    """Those that were made after the rule, by name."""
    config = Config()
    config.set_main_option("script_location", str(schema.MIGRATIONS))
    for one in ScriptDirectory.from_config(config).walk_revisions():
        if int(one.revision[:4]) > BEFORE_THE_RULE:
            yield one.revision, one.module


def test_no_revision_locks_a_large_table_for_long() -> None:
    found = {name: long_locks(sent_by(module)) for name, module in revisions()}
    assert {name: why for name, why in found.items() if why} == {}


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX a ON submissions (created_at)",
        'CREATE UNIQUE INDEX "a" ON grades (id)',
        "ALTER TABLE submissions ALTER COLUMN note SET NOT NULL",
        "ALTER TABLE runs ALTER COLUMN attempt TYPE BIGINT",
        "ALTER TABLE runs ADD COLUMN a INTEGER NOT NULL",
        "ALTER TABLE runs ADD COLUMN a TIMESTAMP WITH TIME ZONE DEFAULT now() NOT NULL",
        "ALTER TABLE grades ADD CONSTRAINT a FOREIGN KEY(b) REFERENCES users (id)",
        "ALTER TABLE audit ADD CONSTRAINT a CHECK (b > 0)",
        "ALTER TABLE rounds ADD CONSTRAINT a UNIQUE (b)",
        "UPDATE submissions SET note = ''",
        "DELETE FROM audit WHERE at < '2020-01-01'",
        "INSERT INTO level_views (a) SELECT a FROM audit",
    ],
)
def test_what_locks_for_long_is_found(sql: str) -> None:
    assert len(long_locks(f"{sql};\n")) == 1


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE INDEX CONCURRENTLY a ON submissions (created_at)",
        "ALTER TABLE submissions ADD COLUMN a BOOLEAN DEFAULT false NOT NULL",
        "ALTER TABLE submissions ADD COLUMN a VARCHAR(40)",
        "ALTER TABLE grades ADD CONSTRAINT a FOREIGN KEY(b) REFERENCES users (id) NOT VALID",
        "UPDATE submissions SET a = 1 WHERE id IN (SELECT id FROM submissions WHERE a IS NULL LIMIT 5000)",
        "CREATE TABLE fresh (id INTEGER); CREATE INDEX b ON fresh (id)",
        "CREATE INDEX a ON courses (slug)",
    ],
)
def test_what_does_not_lock_for_long_is_not(sql: str) -> None:
    assert long_locks(f"{sql};\n") == []


STEPS = (
    'op.add_column("submissions", sa.Column("nickname", sa.String(40), nullable=True))',
    'op.alter_column("submissions", "nickname", server_default="new")',
    """online.fill("submissions", "id", "nickname = 'old'", "nickname is null")""",
    'online.require("submissions", "nickname", sa.String(40))',
    'online.create_index("submissions_nicknamed", "submissions", ["nickname", "id"])',
)
"""Of one column, a revision each: what was committed is not begun again. New rows get a default first."""
REVISION = """
import sqlalchemy as sa
from alembic import op
from migrations import online
revision, down_revision = "{name}", "{before}"
def upgrade():
    {step}
"""


@pytest.fixture
def newer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A newer version, whose revisions take every step of `migrations.online`. The last one before them."""
    schema.revisions()
    shutil.copytree(schema.MIGRATIONS, tmp_path / "migrations")
    before = newest = schema.newest_revision()
    for number, step in enumerate(STEPS):
        name = f"{9990 + number}{schema.SINCE}{newest}"
        revision = REVISION.format(name=name, before=before, step=step)
        (tmp_path / "migrations" / "versions" / f"{9990 + number}.py").write_text(revision)
        before = name
    monkeypatch.setattr(schema, "MIGRATIONS", tmp_path / "migrations")
    yield newest
    schema.revisions.cache_clear()


def test_the_steps_themselves_lock_for_no_long_time(newer: str) -> None:
    found = {name: long_locks(sent_by(module)) for name, module in revisions() if name > "999"}
    assert found == {name: [] for name in found}
    assert len(found) == len(STEPS)


def upgraded(url: str) -> None:
    """Upgrade as the newer version does."""
    schema.revisions.cache_clear()
    schema.upgrade(url)


def test_the_steps_change_a_table_with_rows(postgres_databases: PostgresDatabases, newer: str) -> None:
    url = postgres_databases.fresh()
    schema.upgrade(url, newer)
    with closing(Store(url)) as store:
        dataset.make(store, Size(students=2, assignments=1, submissions=4))
        upgraded(url)
        with store.read() as session:
            told = "select count(*) filter (where nickname = 'old') from submissions"
            assert session.scalar(text(told)) == 4
            valid = "select indisvalid from pg_index where indexrelid = 'submissions_nicknamed'::regclass"
            assert session.scalar(text(valid)) is True
            filled = (
                "select is_nullable from information_schema.columns"
                " where table_name = 'submissions' and column_name = 'nickname'"
            )
            assert session.scalar(text(filled)) == "NO"


@pytest.mark.soak
def test_a_table_is_changed_while_people_submit(postgres_databases: PostgresDatabases, newer: str) -> None:
    """A long query holds the table when the upgrade begins; nobody who submits waits for it."""
    url = postgres_databases.fresh()
    schema.upgrade(url, newer)
    took: list[float] = []
    over = threading.Event()
    with closing(Store(url)) as store, closing(Store(url)) as other:
        school = dataset.make(store, Size(students=100, assignments=4, submissions=30_000))
        people = [threading.Thread(target=hand_in, args=(store, school, n, over, took)) for n in range(2)]
        with other.read() as session:
            session.execute(text("select 1 from submissions limit 1"))
            for one in people:
                one.start()
            upgrade = threading.Thread(target=upgraded, args=(url,))
            upgrade.start()
            time.sleep(8)
            assert upgrade.is_alive()
        upgrade.join(300)
        over.set()
        for one in people:
            one.join(60)
        with store.read() as session:
            count = session.scalar(text("select count(*) from submissions"))
            empty = session.scalar(text("select count(*) from submissions where nickname is null"))
        assert (count, empty) == (30_000 + len(took), 0)
        print(f"{len(took)} submissions meanwhile, the slowest took {max(took):.2f} s")
        assert len(took) > 20
        assert max(took) < 3 * LOCK_TIMEOUT_S


def hand_in(store: Store, school: BenchSchool, number: int, over: threading.Event, took: list[float]) -> None:
    """Submit again and again; an error ends it, and is missed by the count."""
    content = read([UploadedFile("work.py", b"print(1)\n")], Limits())
    while not over.is_set():
        began = time.monotonic()
        with store.write() as session:
            student = school.students[number]
            given = IncomingSubmission(school.assignments[0], student, "form", content)
            intake.accept_submission(session, given)
        took.append(time.monotonic() - began)
