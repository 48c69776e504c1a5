"""Characters become words and sentences, each knowing the characters it stands on.

Texts come in; words, sentence spans and vocabularies go out.
"""
