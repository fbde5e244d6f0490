"""``python -m bayesmf``, and the command ``bayesmf``."""

from bayesmf.cli.interrupts import leaving_at_once


def run() -> None:
    """The command line; Ctrl-C ends it without a traceback from its first moment on."""
    leaving_at_once().__enter__()  # for good: Python's own end takes a moment, too
    from bayesmf.cli.main import main

    main(complete_var="_BAYESMF_COMPLETE")


if __name__ == "__main__":
    run()
