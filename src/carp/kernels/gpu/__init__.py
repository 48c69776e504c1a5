"""CARP on a GPU: Triton kernels (the modules `triton_*`), and the Python that launches them.

Documents, pairs and a model's parameters on the device come in; training steps, viewpoints, scores and the best
items go out.
"""
