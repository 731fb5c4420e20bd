"""Framework model servers: scikit-learn, XGBoost and others as AWS's containers run them.

The front is the HTTP process. The zygote is a process that has imported the framework. It forks the
workers, which run models.
"""
