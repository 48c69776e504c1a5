"""The command line: parse, call, print.

`entry` puts the commands together and answers every error in one line; each `*_commands` module holds commands that
belong together.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
