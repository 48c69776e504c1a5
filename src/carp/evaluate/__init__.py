"""How good predictions are, and how sure one can be of a difference.

Ratings, predicted and true, come in; errors, intervals, tests and the evaluation of a fitted model go out.
"""
