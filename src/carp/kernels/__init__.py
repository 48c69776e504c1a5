"""The mathematics of `models`, fast.

`dispatch` chooses between the CPU's kernels (`cpu`), the GPU's (`gpu`) and the plain model; `best_items` ranks a whole
catalogue. Models, documents and pairs come in; the same numbers as from the plain model go out, or None where only the
plain path is there.
"""

from carp.moved import moved_names

__getattr__ = moved_names(__name__)
