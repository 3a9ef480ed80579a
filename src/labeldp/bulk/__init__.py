"""Labels by the million: a column of a CSV or Parquet file becomes a noisy one, in a stream. Needs `labeldp[table]`."""

from labeldp.bulk.declared import DeclaredClasses
from labeldp.bulk.job import Outcome, privatize
from labeldp.bulk.order import Order

__all__ = ["DeclaredClasses", "Order", "Outcome", "privatize"]
