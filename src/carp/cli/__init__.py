"""The command line: parse, call, print.

`entry` collects the commands and reports every error in one line. Each `*_commands` module holds related commands.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
