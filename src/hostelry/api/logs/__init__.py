"""Operations of CloudWatch Logs."""
