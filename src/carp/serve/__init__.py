"""The service: answers over HTTP, and the explorer page that shows them.

A fitted recommender comes in; routes, their documentation and a running server go out.
"""
