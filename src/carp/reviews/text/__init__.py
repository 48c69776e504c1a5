"""Characters become words and sentences, each knowing the characters it stands on.

Texts come in; words, sentence spans and vocabularies go out.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
