"""``python -m bayesmf``, and the command ``bayesmf``."""

import os
import sys

from bayesmf.cli.shared.interrupts import CODE, leaving_at_once


def run() -> None:
    """The command line; Ctrl-C ends it without a traceback from its first moment on."""
    leaving_at_once().__enter__()  # for good: Python's own end takes a moment, too
    from bayesmf.cli.main import main

    try:
        main(complete_var="_BAYESMF_COMPLETE")
    except SystemExit as end:
        if end.code == CODE:  # if Ctrl-C came inside an exec(), Python would end by the signal
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(CODE)
        raise


if __name__ == "__main__":
    run()
