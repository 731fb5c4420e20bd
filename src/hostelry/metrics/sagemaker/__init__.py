"""SageMaker's metrics: from loads and use to samples."""
