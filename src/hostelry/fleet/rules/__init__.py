"""Pure rules for copies: the model server of an image, variables, limits, devices, user."""
