"""Where a sweep runs, other than on the threads of this process."""
