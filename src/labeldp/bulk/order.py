"""What is asked of a file: which column is the label, what it may hold, at which epsilon, and where the answer goes."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

from labeldp import checks
from labeldp.budget import Epsilon
from labeldp.bulk.arrow import pa
from labeldp.bulk.declared import DeclaredClasses
from labeldp.bulk.tables import Table, ending
from labeldp.errors import InvalidArgument, InvalidLabels

FORMAT = "labeldp-privatize-1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One noisy column, wanted. Everything here is public.

    Attributes
    ----------
    data, out : files that end in .csv or .parquet.
    label : the column of true labels; `classes` are all that it may hold.
    ledger : the ledger that is charged `epsilon` for every label.
    id_column : a column of unique public ids, if the ledger names rows by id.
    noisy_column : what the noisy column is called.
    missing : "public" if which labels are missing may be known; otherwise none may be.
    drop : other columns to leave out of the output, such as one that tells the label.
    unchanged : the caller's word that the labels are still the ones of an earlier run, although the file was touched.
    """

    data: Path
    label: str
    classes: DeclaredClasses
    epsilon: Epsilon
    ledger: Path
    out: Path
    noisy_column: str
    id_column: str | None = None
    missing: str | None = None
    drop: tuple[str, ...] = ()
    unchanged: bool = False

    def __post_init__(self) -> None:
        ending(self.data)
        ending(self.out)
        if self.missing is not None:
            checks.one_of(("public",), missing=self.missing)
        if self.id_column == self.label:
            raise InvalidArgument("the id column must not be the label column: ids are public.")
        if not self.noisy_column:
            raise InvalidArgument("the noisy column must have a name.")

    def name(self) -> str:
        """Return the name under which the ledger knows this order, so that the same order again is the same release."""
        facts = {
            "format": FORMAT,
            "data": os.path.abspath(self.data),
            "label": self.label,
            "classes": self.classes.names,
            "epsilon": self.epsilon.units,
            "out": os.path.abspath(self.out),
            "noisy_column": self.noisy_column,
            "id_column": self.id_column,
            "missing": self.missing,
            "drop": sorted(self.drop),
        }
        return f"privatize {hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()}"

    def source(self, *, mtime_ns: int) -> str:
        """Return the certificate's words on where the labels came from, and went.

        The input is known by its path and time of change. Its size is left out: it can depend on labels.
        """
        data, out = (json.dumps(os.path.abspath(path)) for path in (self.data, self.out))
        return f"labeldp privatize --data {data} --label {json.dumps(self.label)} --out {out}, input of time {mtime_ns}"

    def other_columns(self, table: Table) -> list[str]:
        """Return the public columns of a table that fits this order."""
        wanted = [name for name in (self.label, self.id_column, *self.drop) if name is not None]
        table.check_has(wanted, never_told=[str(name) for name in self.classes.names])
        others = [name for name in table.names if name != self.label and name not in self.drop]
        if self.noisy_column in others:
            raise InvalidArgument(f"{table.path} has a column {self.noisy_column!r} already: choose a --noisy-column.")
        self._check_type(table.schema.field(self.label).type)
        return others

    def _check_type(self, kind: pa.DataType) -> None:
        value = kind.value_type if pa.types.is_dictionary(kind) else kind
        types = pa.types
        text = types.is_string(value) or types.is_large_string(value) or types.is_string_view(value)
        number = types.is_integer(value) or types.is_floating(value) or types.is_decimal(value)
        if not (text or types.is_null(value) or (not self.classes.text_only and (number or types.is_boolean(value)))):
            wanted = "text" if self.classes.text_only else "text, integers or booleans"
            raise InvalidLabels(f"labels must be {wanted} to be of the declared classes; the column's type is {kind}.")
