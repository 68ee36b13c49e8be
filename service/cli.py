"""The `airlock` command: a thin, lazily loaded group over `service.commands`."""

import importlib
import sys

import click

COMMANDS = {
    "build": "make a bundle from any ONNX classifier",
    "export": "write a self-contained ONNX graph with the decision inside",
    "inspect": "say what a model or a bundle is and which scores are possible",
    "scores": "list the scoring functions",
    "compare": "fit every possible score and recommend a pair",
    "score": "batch scoring job: files in, score table out",
    "evaluate": "every metric of a score table",
    "calibrate": "choose, validate and store a policy",
    "recalibrate": "a new policy from new data or the ledger",
    "policies": "policy history and switch",
    "report": "the offline report, one HTML page",
    "serve": "the HTTP service",
    "ledger": "export, count or prune recorded decisions",
}


class LazyGroup(click.Group):
    """Imports a command's module only when it is called, so that start-up stays fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"service.commands.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="airlock-gate", prog_name="airlock")
def airlock() -> None:
    """A gate with two doors in front of an ONNX classifier.

    Exit codes: 0 done, 1 refused with a reason, 2 bad usage.
    """


def main() -> None:
    """Run the command; a refusal is one sentence on stderr and exit code 1."""
    from calibration.errors import CalibrationError
    from models.errors import ModelsError

    try:
        airlock()
    except (ModelsError, CalibrationError) as refusal:
        click.echo(f"airlock: {refusal}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
