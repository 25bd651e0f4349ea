"""The group of verbs, and what each error becomes. A verb is imported only when it is asked for or helped with."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module

import click

from gradcheck import __version__
from gradcheck._errors import GradcheckError, StaleMutant, unknown
from gradcheck._verdict import ExitCode
from gradcheck.cli.output import printable

VERBS = ("run", "merge", "gate", "list", "lint", "new", "replay", "report", "diff", "calibrate", "sanitize", "clean", "cache", "doctor")
STATUS = """\
Exit status: 0 ok · 1 a kernel is wrong · 2 usage · 3 mutants survived · 4 the suite is rotten ·
5 nothing was checked · 6 inconclusive · 70 a bug in gradcheck · 130 interrupted, can be resumed
"""


class Verbs(click.Group):
    """The verbs, each loaded from the module of its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """The verbs, in the order in which a newcomer needs them."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:  # noqa: ARG002 - click's signature
        """The verb of this name, loaded now.

        Raises:
            UsageError: there is none; the message has the near names.
        """
        if cmd_name not in VERBS:
            raise unknown("verb", cmd_name, VERBS)
        if cmd_name not in self.commands:
            verb: click.Command = import_module(f"gradcheck.cli.{cmd_name}").command
            self.add_command(verb)
        return self.commands[cmd_name]


@click.command(cls=Verbs, epilog=STATUS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="gradcheck", message="%(prog)s %(version)s")
def verbs() -> None:
    """Is the gradient of a recurrent kernel right, where is it wrong, and would your test have noticed?"""


def main(args: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status. Nothing but a finished check returns 0 or 1."""
    given = list(sys.argv[1:] if args is None else args)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal without ✓ is no reason to lose a verdict
    if "_GRADCHECK_COMPLETE" in os.environ:
        verbs.main(given, prog_name="gradcheck")  # shell completion, which exits by itself
    try:
        return _answer(given)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", ExitCode.INTERRUPTED)
    except BrokenPipeError:  # whoever read our messages is gone, and the work was stopped by it
        return ExitCode.INTERRUPTED
    except (Exception, SystemExit):  # noqa: BLE001 - the last line of defence: sys.exit(0) in a suite must not read as success
        traceback.print_exc()
        return _say(f"this is a bug in gradcheck {__version__}: please report it with the lines above", ExitCode.BUG)


def _answer(given: list[str]) -> int:
    """The exit status of one verb, or of an error that the user can mend."""
    try:
        with verbs.make_context("gradcheck", given) as context:
            return int(verbs.invoke(context))
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return ExitCode.USAGE
    except click.UsageError as error:
        verb = error.ctx.command_path if error.ctx else "gradcheck"
        return _say(f"{error.format_message()}\nTry: {verb} --help", ExitCode.USAGE)
    except GradcheckError as error:
        return _say(str(error), ExitCode.ROTTEN if isinstance(error, StaleMutant) else ExitCode.USAGE)


def _say(message: str, code: ExitCode) -> int:
    print(printable(f"gradcheck: {message}"), file=sys.stderr)
    return code
