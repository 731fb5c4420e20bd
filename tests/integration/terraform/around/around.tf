resource "aws_iam_role" "execution" {
  name = "tf-execution"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "sagemaker.amazonaws.com" }
    }]
  })
  tags = { team = "platform" }
}

resource "aws_iam_role_policy" "artifacts" {
  name = "artifacts"
  role = aws_iam_role.execution.id
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["s3:GetObject"], Resource = "*" }]
  })
}

resource "aws_iam_role_policy_attachment" "sagemaker" {
  role       = aws_iam_role.execution.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonSageMakerFullAccess"
}

resource "aws_iam_policy" "queue" {
  name = "tf-queue"
  policy = jsonencode({
    Version   = "2012-10-17"
    Statement = [{ Effect = "Allow", Action = ["sqs:SendMessage"], Resource = "*" }]
  })
}

resource "aws_iam_role_policy_attachment" "queue" {
  role       = aws_iam_role.execution.name
  policy_arn = aws_iam_policy.queue.arn
}

resource "aws_cloudwatch_log_group" "application" {
  name              = "/application/tf"
  retention_in_days = 7
  tags              = { team = "platform" }
}

resource "aws_sns_topic" "alerts" {
  name = "tf-alerts"
  tags = { team = "platform" }
}

resource "aws_sqs_queue" "alerts" {
  name                       = "tf-alerts"
  visibility_timeout_seconds = 20
}

resource "aws_sns_topic_subscription" "alerts" {
  topic_arn = aws_sns_topic.alerts.arn
  protocol  = "sqs"
  endpoint  = aws_sqs_queue.alerts.arn
}

resource "aws_kms_key" "models" {
  description             = "models"
  deletion_window_in_days = 7
}

resource "aws_kms_alias" "models" {
  name          = "alias/tf-models"
  target_key_id = aws_kms_key.models.key_id
}

resource "aws_s3_object" "secret" {
  bucket     = aws_s3_bucket.models.bucket
  key        = "secret.txt"
  content    = "kept encrypted"
  kms_key_id = aws_kms_key.models.arn
}

resource "aws_secretsmanager_secret" "token" {
  name                    = "tf-token"
  recovery_window_in_days = 0
}

resource "aws_secretsmanager_secret_version" "token" {
  secret_id     = aws_secretsmanager_secret.token.id
  secret_string = "hf_abc"
}

resource "aws_cloudwatch_dashboard" "echo" {
  dashboard_name = "tf-echo"
  dashboard_body = jsonencode({
    widgets = [{
      type   = "metric"
      x      = 0
      y      = 0
      width  = 12
      height = 6
      properties = {
        metrics = [["AWS/SageMaker", "Invocations", "EndpointName", "tf-echo", "VariantName", "main"]]
        region  = data.aws_region.here.name
        period  = 60
        stat    = "Sum"
      }
    }]
  })
}

resource "aws_iam_user" "ci" {
  name = "tf-ci"
  path = "/team/"
  tags = { team = "platform" }
}

resource "aws_iam_access_key" "ci" {
  user = aws_iam_user.ci.name
}

resource "aws_iam_user_policy" "artifacts" {
  name   = "artifacts"
  user   = aws_iam_user.ci.name
  policy = aws_iam_role_policy.artifacts.policy
}

resource "aws_iam_user_policy_attachment" "read" {
  user       = aws_iam_user.ci.name
  policy_arn = "arn:aws:iam::aws:policy/AmazonSageMakerReadOnly"
}

resource "aws_iam_service_specific_credential" "openai" {
  service_name = "bedrock.amazonaws.com"
  user_name    = aws_iam_user.ci.name
}

resource "aws_iam_openid_connect_provider" "ci" {
  url             = "https://id.example.com"
  client_id_list  = ["ci"]
  thumbprint_list = ["0123456789012345678901234567890123456789"]
  tags            = { team = "platform" }
}
