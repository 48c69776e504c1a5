"""Are the explanations true? Measured on held-out pairs, against chance.

A fitted recommender comes in; figures with their intervals go out.
"""
