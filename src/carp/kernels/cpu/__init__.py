"""CARP on the CPU: C, the Python that hands it its arguments, and the same in torch for where there is no C.

Documents without padding and a model's parameters come in; viewpoints, scores, gradients and optimiser steps go out.
"""
