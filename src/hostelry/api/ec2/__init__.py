"""EC2 as far as programs ask it about SageMaker's instance types: read only."""
