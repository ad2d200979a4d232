"""The ``sql_txn`` policy against a real database: what SQLite does decides, not the model of it.

The database has one account; a world says what is on it. A trajectory's statements run one after the other on a connection of their own
inside an outer transaction: BEGIN, COMMIT and ROLLBACK of the trajectory are savepoints within it. If SQLite refuses a statement, if an
observation is not the one that the trajectory recorded, or if in the end no update is committed, the outer transaction is rolled back: a
rejected trajectory leaves the database as it was. An accepted one is committed.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Sequence

from stcc.formats.policy import PolicyGraph
from stcc.runtime.exact.histories import History

AMOUNT = 50
BALANCES = {"funded": 100, "overdrawn": 20}
"""What is on the account, by world."""


_SCHEMA = (
    "DROP TABLE IF EXISTS account",
    "CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL CHECK (balance >= 0))",
    "INSERT INTO account VALUES (1, 0)",
)


class RefusedError(Exception):
    """A trajectory that the database does not accept."""


class SqliteAccount:
    """One account in a database file, or in memory.

    Args:
        graph: the compiled ``sql_txn`` policy: names of actions, observations and worlds.
        path: where the database is; it is made anew.
    """

    def __init__(self, graph: PolicyGraph, path: str | os.PathLike[str] = ":memory:") -> None:
        self.graph = graph
        self._connection = sqlite3.connect(os.fspath(path), isolation_level=None)
        for statement in _SCHEMA:
            self._connection.execute(statement)

    def balance(self) -> int:
        """What is on the account."""
        return int(self._connection.execute("SELECT balance FROM account WHERE id = 1").fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def __call__(self, world: int, history: History) -> bool:
        """Whether the database accepts a trajectory in a world; it is committed then, and leaves no trace otherwise."""
        self.deposit(BALANCES[self.graph.worlds[world]])
        return self.run(history)

    def deposit(self, balance: int) -> None:
        """Set what is on the account, as the world that an attempt is in has it."""
        self._connection.execute("UPDATE account SET balance = ? WHERE id = 1", (balance,))

    def run(self, history: History) -> bool:
        """The same on the account as it is."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            _Session(self._connection, self.graph.observations).run([(self.graph.actions[action], seen) for action, seen in history])
        except (RefusedError, sqlite3.Error):
            self._connection.execute("ROLLBACK")
            return False
        self._connection.execute("COMMIT")
        return True


class _Session:
    """One trajectory's statements. ``stage`` is how far its transaction is: none, open, or committed."""

    def __init__(self, connection: sqlite3.Connection, observations: Sequence[str]) -> None:
        self.connection, self.observations = connection, observations
        self.stage, self.read, self.updated = "none", "", False

    def run(self, steps: Sequence[tuple[str, int]]) -> None:
        """Run every step; RefusedError or sqlite3.Error where it fails."""
        for number, (action, seen) in enumerate(steps):
            if action == "CLOSE":
                if number == len(steps) - 1 and self.stage == "committed" and self.updated:
                    return
                raise RefusedError("the session is closed with nothing committed")
            _STATEMENTS[action](self, self.observations[seen])
        raise RefusedError("the session is not closed")

    def begin(self, seen: str) -> None:
        """Begin the transaction; a session has one (SQLite itself would nest savepoints)."""
        self.needs("none")
        self.connection.execute("SAVEPOINT work")
        self.stage = "open"

    def select(self, seen: str) -> None:
        """Read the balance; the trajectory must have seen the same."""
        self.needs("open")
        (balance,) = self.connection.execute("SELECT balance FROM account WHERE id = 1").fetchone()
        self.read = "sufficient" if balance >= AMOUNT else "insufficient"
        if self.read != seen:
            raise RefusedError("the trajectory saw something else")

    def update(self, seen: str) -> None:
        """Withdraw, once, after a read that showed enough; the database's own CHECK refuses an overdraft."""
        self.needs("open")
        if self.read != "sufficient" or self.updated:
            raise RefusedError("the update is not allowed here")
        self.connection.execute("UPDATE account SET balance = balance - ? WHERE id = 1", (AMOUNT,))
        self.updated = True

    def commit(self, seen: str) -> None:
        """Release the savepoint."""
        self.needs("open")
        self.connection.execute("RELEASE work")
        self.stage = "committed"

    def rollback(self, seen: str) -> None:
        """Undo the work; a session that did cannot be accepted any more."""
        self.needs("open")
        self.connection.execute("ROLLBACK TO work")
        raise RefusedError("the work was rolled back")

    def needs(self, stage: str) -> None:
        """RefusedError unless the transaction is at a stage."""
        if self.stage != stage:
            raise RefusedError(f"the transaction is {self.stage}, not {stage}")


_STATEMENTS: dict[str, Callable[[_Session, str], None]] = {
    "BEGIN": _Session.begin, "SELECT": _Session.select, "UPDATE": _Session.update, "COMMIT": _Session.commit,
    "ROLLBACK": _Session.rollback,
}
