"""The part that runs in a runtime's interpreter: Python 3.7 syntax, standard library only.

It also imports the runtime's framework and AWS's sagemaker-inference, by name. It cannot import
the rest of the platform (see worker/__main__.py).
"""
