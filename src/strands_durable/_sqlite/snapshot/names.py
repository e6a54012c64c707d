"""Names of large bytes and configurations. An encrypted store has names of its own, made with its key; a change set that leaves
it has the names of a store in plain text, and gets those of the store that takes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ..._records.change_sets import Row
from ..._records.codec import digest
from .. import blobs
from ..connection import Connection
from ..encryption.sealing import config_name

Tables = dict[str, list[Row]]


def outside(tables: Tables, bytes_of: Mapping[str, bytes]) -> tuple[Tables, dict[str, bytes]]:
    """Return the rows of an encrypted store, and its large bytes, with the names that they have everywhere else."""
    names = {name: blobs.digest_of(data) for name, data in bytes_of.items()}
    configs = [{**row, "digest": digest(json.loads(row["data"]))} for row in tables["configs"]]
    return {**_renamed(tables, names), "configs": configs}, {names[name]: data for name, data in bytes_of.items()}


def inside(connection: Connection, tables: Tables, names: Mapping[str, str]) -> Tables:
    """Return rows from elsewhere with the names of an encrypted store; ``names`` are those that it has given to bytes."""
    configs = [{**row, "digest": config_name(connection, row["digest"])} for row in tables.get("configs", ())]
    return {**_renamed(tables, names), "configs": configs}


def _renamed(tables: Tables, names: Mapping[str, str]) -> Tables:
    return {table: [_row(row, blobs.columns(table), names) for row in rows] for table, rows in tables.items()}


def _row(row: Row, columns: list[str], names: Mapping[str, str]) -> Row:
    texts = {column: row[column] for column in columns if isinstance(row.get(column), str)}
    return {**row, **{column: blobs.renamed(text, names) for column, text in texts.items()}} if texts else row
