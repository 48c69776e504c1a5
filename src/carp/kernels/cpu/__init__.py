"""CARP on the CPU: C compiled on the machine, and the Python that hands it its arguments.

Documents without padding and a model's parameters come in; viewpoints, scores, gradients and optimiser steps go out.
"""
