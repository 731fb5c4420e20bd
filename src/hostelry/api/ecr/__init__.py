"""ECR as far as programs name repositories: there is no registry behind them."""
