"""Framework model servers: scikit-learn, XGBoost and others as AWS's containers run them."""
