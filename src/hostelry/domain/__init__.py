"""Pure: frozen values of the control plane, status tables and validation."""
