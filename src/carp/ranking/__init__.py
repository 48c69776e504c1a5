"""Which things to recommend to whom.

A fitted corpus and ratings of all things come in; lists of things go out, best first: by predicted rating alone, or by
what suits the person.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
