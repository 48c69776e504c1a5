"""A corpus and a split become a fitted model.

`fitted_corpus` chooses the words and makes the documents, `loop` trains any model with early stopping, `checkpoint`
keeps where training stands. Models come in untrained and go out trained, with a log.
"""
