"""Raw reviews become a corpus, a split and documents.

Files and frames come in. A `Corpus` on disk, a `Split`, and the documents that models read go out. Nothing here knows
about models.
"""
