"""The command line: parse, call, print.

`entry` collects the commands and reports every error in one line. Each `*_commands` module holds related commands.
"""
