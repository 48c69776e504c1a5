"""What each command does; the command line itself is put together in `carp.cli`."""
