"""A Delta table, loaded exactly once: each commit carries the query and the batch it is of.

Spark stages the files, they are renamed into the table, and one commit of the `deltalake` package
adds them all together with the version `(query, batch)`. A batch whose version the table has is not
loaded again; files of an attempt that never committed are no part of the table. A shell.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

import pyarrow as pa

from moldau.errors import MissingExtraError
from moldau.spark.pipeline.checkpoint import FILES
from moldau.spark.pipeline.lake import Lake, Loaded, Staging, count_rows, read_columns
from moldau.spark.pipeline.rules.lake import NO_VALUE, Move, partition_values

try:
    import deltalake
    from deltalake.transaction import AddAction, RemoveAction
except ImportError as error:
    raise MissingExtraError(
        "a Delta table needs deltalake, which is not installed: pip install 'moldau[delta]'"
    ) from error


class DeltaLake(Lake):
    """Commits batches to one table."""

    def claim(self, *, has_progress: bool) -> None:
        """Take the table; raises ConfigurationError."""
        super().claim(has_progress=has_progress)
        version = self._find_version()
        if version is not None and not has_progress:
            self.refuse_empty_checkpoint(version)

    def is_loaded(self, batch_id: int) -> bool:
        version = self._find_version()
        return version is not None and version >= batch_id

    def load_batch(self, batch_id: int, staging: Staging) -> Loaded:
        """Commit what was staged for a batch."""
        moves, loaded = self.inspect_staged(staging, batch_id)
        if moves:
            self.sync_staged(moves)
            table = self._require_table(moves[0])
            actions: list[AddAction | RemoveAction] = [self._place(move) for move in moves]
            for folder in {(self.folder / move.published).parent for move in moves}:
                FILES.sync_folder(folder)
            transaction = deltalake.Transaction(self.query_id, batch_id)
            table.create_write_transaction(
                actions,
                mode="append",
                schema=table.schema(),
                partition_by=list(partition_values(moves[0].published)),
                commit_properties=deltalake.CommitProperties(app_transactions=[transaction]),
            )
        self.remove_staging(staging)
        return loaded

    def compact(self, folders: Iterable[str], *, is_closed: bool) -> int:
        """Merge small files of the whole table; how many files there are fewer."""
        table = self._find_table()
        if table is None:
            return 0
        counts = table.optimize.compact(target_size=self._target_bytes)
        return int(counts["numFilesRemoved"]) - int(counts["numFilesAdded"])

    def find_folders(self) -> list[str]:
        return []

    def _place(self, move: Move) -> AddAction:
        path = self.folder / move.published
        path.parent.mkdir(parents=True, exist_ok=True)
        (self.folder / move.staged).replace(path)
        details = path.stat()
        return AddAction(
            path=move.published,
            size=details.st_size,
            partition_values=_null_where_missing(partition_values(move.published)),
            modification_time=int(details.st_mtime * 1000),
            data_change=True,
            stats=json.dumps({"numRecords": count_rows(path)}),
        )

    def _find_version(self) -> int | None:
        """The last batch of this query that the table has."""
        table = self._find_table()
        return None if table is None else table.transaction_version(self.query_id)

    def _find_table(self) -> deltalake.DeltaTable | None:
        folder = str(self.folder)
        return deltalake.DeltaTable(folder) if deltalake.DeltaTable.is_deltatable(folder) else None

    def _require_table(self, move: Move) -> deltalake.DeltaTable:
        """The table, with all columns of the files; made when there is none."""
        columns = read_columns(self.folder / move.staged)
        for name in partition_values(move.published):
            columns = columns.append(pa.field(name, pa.string()))
        table = self._find_table()
        if table is None:
            return deltalake.DeltaTable.create(
                str(self.folder),
                schema=columns,
                partition_by=list(partition_values(move.published)) or None,
            )
        wanted = deltalake.Schema.from_arrow(columns).fields
        known = {field.name for field in table.schema().fields}
        new = [field for field in wanted if field.name not in known]
        if new:
            table.alter.add_columns(new)
        return table


def _null_where_missing(values: Mapping[str, str]) -> dict[str, str | None]:
    """Rows without a time are in folders that Spark gives a name; in a table it is null."""
    return {name: None if value == NO_VALUE else value for name, value in values.items()}
