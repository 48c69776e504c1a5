"""The life of a model after training: new reviews come in, people are forgotten, weights are taken over.

A saved model comes in, with reviews or the id of a person. The same model goes out, changed as if it had been made so,
and a report of what that did to its answers.
"""
