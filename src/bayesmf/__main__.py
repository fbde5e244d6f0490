"""``python -m bayesmf``."""

from bayesmf.cli import main

if __name__ == "__main__":
    main()
