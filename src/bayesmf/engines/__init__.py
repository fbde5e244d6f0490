"""Where a sweep runs: threads of this process (``SideData.run``), or Ray."""
