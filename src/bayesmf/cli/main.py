"""The command line: the commands of every group under one name."""

from __future__ import annotations

import click

import bayesmf
from bayesmf.cli import add, choose, data, explore, fit, judge, serve, study, use
from bayesmf.cli.shared.options import Cli


@click.group(cls=Cli, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(bayesmf.__version__)
def main() -> None:
    """Bayesian matrix factorization of ratings.

    DATA is the name of a data set (see `bayesmf data list`) or the path of a ratings file: csv,
    tsv, parquet, MovieLens '::' or space-separated; plain, .gz, .bz2 or .zip.
    """


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print a script with which SHELL completes commands, options, data sets and files.

    To have it in every new shell, run one of these once:

    \b
      bayesmf completion bash >> ~/.bashrc
      bayesmf completion zsh >> ~/.zshrc
      bayesmf completion fish > ~/.config/fish/completions/bayesmf.fish

    Example: source <(bayesmf completion bash)
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(main, {}, "bayesmf", "_BAYESMF_COMPLETE").source())


for group in (fit, use, add, explore, judge, choose, serve, data, study):
    for command in group.COMMANDS:
        main.add_command(command)
main.add_command(completion)
