"""A fitted model as a folder that needs nothing but itself.

A model and what it remembers of its corpus come in; a bundle of safetensors and JSON under a manifest goes out, and
comes back checked byte by byte.
"""
