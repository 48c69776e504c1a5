"""A raw line, row or block becomes a review, or a rejection with its reason.

Files and frames of many formats come in. `Review` records on one rating scale go out, and a ledger of every record that
was rejected.
"""
