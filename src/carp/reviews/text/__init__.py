"""Texts become words and sentences that know their characters.

Texts come in. Words, spans of sentences and vocabularies go out.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
