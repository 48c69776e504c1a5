"""Reviews become a corpus: cleaned, numbered, cut into words, and kept as columns that can be larger than memory.

Review records come in; a `Corpus`, its fingerprint and its statistics go out.
"""
