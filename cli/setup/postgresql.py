"""The database: a role and a database of PostgreSQL on this computer."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from cli.setup.host import Host, SetupError

NAME = "grader"
ADMINISTRATOR = "postgres"


def url(password: str) -> str:
    """The address of the database for the server's parts."""
    return f"postgresql://{NAME}:{quote(password, safe='')}@localhost/{NAME}"


def is_ours(address: str) -> bool:
    """Whether this is an address that setup writes, with whatever password."""
    found = urlsplit(address)
    if "," in found.netloc:  # several hosts, with ports that are no number together
        return False
    named = (found.scheme, found.username, found.hostname, found.port, found.path, found.query)
    return named == ("postgresql", NAME, "localhost", None, f"/{NAME}", "")


def ask(host: Host, statement: str) -> str:
    """What the administrator of the database is answered; statements never stand in a list of processes."""
    words = ("psql", "--no-psqlrc", "--quiet", "--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1")
    return host.run(*words, user=ADMINISTRATOR, stdin=statement).strip()


def answers(host: Host) -> bool:
    """Whether the server of PostgreSQL runs."""
    return host.attempt("pg_isready", "--quiet").returncode == 0


def make(host: Host, password: str) -> bool:
    """The role with this password, and its database; False when both were there.

    The encoding is named, because that of the server is what this computer had when it was installed.
    """
    role = ask(host, "SELECT 1 FROM pg_roles WHERE rolname = 'grader';")
    database = ask(host, "SELECT pg_encoding_to_char(encoding) FROM pg_database WHERE datname = 'grader';")
    if not role:
        host.journal.add("role", NAME)
        ask(host, f"CREATE ROLE {NAME} LOGIN;")
    ask(host, f"ALTER ROLE {NAME} PASSWORD '{password}';")
    if not database:
        host.journal.add("database", NAME)
        ask(
            host,
            f"CREATE DATABASE {NAME} OWNER {NAME} TEMPLATE template0 ENCODING 'UTF8' "
            "LC_COLLATE 'C.UTF-8' LC_CTYPE 'C.UTF-8';",
        )
    elif database != "UTF8":
        raise SetupError(f"The database {NAME} is not in UTF-8; rename it (ALTER DATABASE … RENAME TO …).")
    return not (role and database)
