"""A fitted model as a folder that needs nothing but itself.

A model and what it remembers of its corpus come in. A folder of safetensors and JSON with a manifest goes out. When it
is loaded again, every byte is checked.
"""
