"""The same stages in several processes and on several machines.

A command comes in, with how many processes or which cluster to run it on. The same results go out as from one process:
the stages call the functions of the other packages, and none of them is written twice.
"""
