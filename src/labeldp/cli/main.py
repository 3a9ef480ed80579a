"""The front door of the command line: which commands exist, and how failures sound."""

from __future__ import annotations

import importlib
import sys
import traceback

import click

from labeldp import __version__
from labeldp.errors import BudgetExhausted, LabelDPError

COMMANDS = {
    "certificate": "What a ledger has released, what it cost, and what that promises.",
    "demo": "Train with and without label privacy on handwritten digits, and compare.",
    "features": "Compute features of public inputs, without labels, and keep them.",
    "plan": "What each mechanism would give at an epsilon, before any label is touched.",
    "predict": "Predict with a trained run.",
    "privatize": "Turn a column of labels in a CSV or Parquet file into a noisy one.",
    "reproduce": "The paper's tables again, and ours beside them: run a recipe, record it, compare.",
    "train": "Train a model with label privacy: releases, certificate, report.",
    "vault": "Create, raise, inspect and verify a ledger.",
}
INTERRUPTED = 130
"""What shells say of a process that Ctrl-C ended."""


class LazyCommands(click.Group):
    """Loads a command's module when the command is called, so that --help stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"labeldp.cli.{cmd_name}"), cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))


@click.group(cls=LazyCommands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="labeldp")
def labeldp() -> None:
    """Machine learning with label differential privacy: features are public, labels are not."""


def main() -> None:
    """Run a command; whatever goes wrong, no label is in what is printed."""
    try:
        labeldp(standalone_mode=False)
    except (KeyboardInterrupt, click.exceptions.Abort):
        click.echo("Stopped.", err=True)
        sys.exit(INTERRUPTED)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BudgetExhausted as error:
        _fail(str(error), 3)
    except LabelDPError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(f"{error.strerror or type(error).__name__}: {error.filename or 'input or output'}", 1)
    except Exception as error:  # a foreign message could quote a label
        _fail(
            f"An unexpected {type(error).__name__} stopped the command{_where(error)}. That is a fault of labeldp: please "
            "report this line. It holds no label.",
            1,
        )


def _where(error: BaseException) -> str:
    """Return which line of the library an error came through last, and nothing of what was there."""
    ours = [(frame.f_globals.get("__name__", ""), line) for frame, line in traceback.walk_tb(error.__traceback__)]
    ours = [(name, line) for name, line in ours if name.startswith("labeldp.")]
    return f" ({ours[-1][0]}, line {ours[-1][1]})" if ours else ""


def _fail(message: str, code: int) -> None:
    click.echo(f"Error: {message}", err=True)
    sys.exit(code)
