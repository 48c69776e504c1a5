"""Raw reviews become a corpus, a split and documents.

Files and frames come in; what goes out is a `Corpus` on the disk, a `Split`, and the documents that models read.
Nothing here knows a model.
"""
