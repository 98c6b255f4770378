"""Last reports that the broker has not acknowledged, on disk."""

from __future__ import annotations

import json
import os
import sqlite3
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import ConfigurationError
from .task import Key, key_of


class Outbox:
    """A file that keeps the worker's id and its unacknowledged reports over a restart. One process at a time has it."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            # Reports may hold secrets: the file is for its owner alone, and SQLite makes those beside it in the same way.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            os.chmod(self.path, 0o600)
        except OSError as error:
            raise ConfigurationError(f"the outbox `{self.path}` cannot be opened: {error}") from error
        try:
            # Only the thread of the connection uses it, and the one that makes it, before that.
            self._db = sqlite3.connect(self.path, timeout=0.2, isolation_level=None, check_same_thread=False)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            self._db.execute("PRAGMA synchronous = FULL")
            self._db.execute("BEGIN EXCLUSIVE")
            self._db.execute("CREATE TABLE IF NOT EXISTS worker (id TEXT NOT NULL)")
            self._db.execute(
                "CREATE TABLE IF NOT EXISTS report (run TEXT, instance INTEGER, attempt INTEGER, json TEXT NOT NULL,"
                " PRIMARY KEY (run, instance, attempt))"
            )
            row = self._db.execute("SELECT id FROM worker").fetchone()
            self.worker_id: str = row[0] if row else uuid.uuid4().hex
            if row is None:
                self._db.execute("INSERT INTO worker VALUES (?)", (self.worker_id,))
            self._db.execute("COMMIT")
        except sqlite3.OperationalError as error:
            raise ConfigurationError(f"the outbox `{self.path}` cannot be opened, or another worker has it: {error}") from error
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"`{self.path}` is no outbox: {error}") from error

    def load(self) -> dict[Key, dict[str, Any]]:
        """What was not acknowledged."""
        reports = [json.loads(row[0]) for row in self._db.execute("SELECT json FROM report")]
        return {key_of(report): report for report in reports}

    def add(self, reports: Iterable[dict[str, Any]]) -> None:
        """Keeps reports; they are on disk when it returns.

        Raises:
            sqlite3.Error: they could not be stored, for example because the disk is full.
        """
        rows = [(*key_of(report), json.dumps(report)) for report in reports]
        with self._db:  # commits, or rolls back
            self._db.execute("BEGIN")
            self._db.executemany("INSERT OR REPLACE INTO report VALUES (?, ?, ?, ?)", rows)

    def remove(self, keys: Iterable[Key]) -> None:
        """Forgets reports.

        Raises:
            sqlite3.Error: they are still there.
        """
        with self._db:
            self._db.execute("BEGIN")
            self._db.executemany("DELETE FROM report WHERE run = ? AND instance = ? AND attempt = ?", list(keys))

    def close(self) -> None:
        """Lets another process have it."""
        self._db.close()
