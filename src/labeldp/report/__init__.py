"""The report: a run, or a comparison of methods, as one HTML file that needs nothing else."""

from labeldp.report.comparison import write_comparison
from labeldp.report.run import write_run

__all__ = ["write_comparison", "write_run"]
