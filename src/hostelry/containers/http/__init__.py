"""HTTP that the model servers share."""
