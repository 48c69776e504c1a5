"""The made-up shop: reviews whose causes are known, for the demo and for tests with a known answer.

A seed comes in. Reviews, and the cause of each rating, go out.
"""
