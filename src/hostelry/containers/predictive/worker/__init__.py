"""The part that runs in a runtime's own interpreter: Python 3.7 syntax, standard library only.

What it imports beyond that is what the runtime has: the framework and AWS's sagemaker-inference.
Nothing else of our package is found there: worker/__main__.py sees to that.
"""
