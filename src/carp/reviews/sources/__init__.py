"""A raw line, row or block becomes a review, or a rejection with its reason.

Files, folders and frames come in, in whatever format they are; what goes out are `Review` records on one rating
scale and a ledger of every record that was refused.
"""
