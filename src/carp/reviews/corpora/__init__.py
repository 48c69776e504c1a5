"""Reviews become a corpus: cleaned, numbered, cut into words, and stored as columns that can be larger than memory.

Review records come in. A `Corpus`, its fingerprint and its statistics go out.
"""
