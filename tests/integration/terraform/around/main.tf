terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

variable "weight" { default = 1.0 }
variable "threshold" { default = 5 }
variable "maximum" { default = 2 }

provider "aws" {}

data "aws_caller_identity" "me" {}
data "aws_region" "here" {}

resource "aws_s3_bucket" "models" {
  bucket        = "tf-models"
  force_destroy = true
}

resource "aws_s3_object" "archive" {
  bucket  = aws_s3_bucket.models.bucket
  key     = "model/readme.txt"
  content = "a model"
}

resource "aws_sagemaker_model" "echo" {
  name               = "tf-echo"
  execution_role_arn = aws_iam_role.execution.arn
  primary_container {
    image       = "echo:1"
    environment = { GREETING = "hello" }
  }
  tags = { team = "platform" }
}

resource "aws_sagemaker_endpoint_configuration" "echo" {
  name_prefix = "tf-echo-"
  production_variants {
    variant_name           = "main"
    model_name             = aws_sagemaker_model.echo.name
    initial_instance_count = 1
    instance_type          = "ml.m5.large"
    initial_variant_weight = var.weight
  }
  lifecycle { create_before_destroy = true }
}

resource "aws_sagemaker_endpoint" "echo" {
  name                 = "tf-echo"
  endpoint_config_name = aws_sagemaker_endpoint_configuration.echo.name
}

resource "aws_appautoscaling_target" "echo" {
  service_namespace  = "sagemaker"
  resource_id        = "endpoint/${aws_sagemaker_endpoint.echo.name}/variant/main"
  scalable_dimension = "sagemaker:variant:DesiredInstanceCount"
  min_capacity       = 1
  max_capacity       = var.maximum
}

resource "aws_appautoscaling_policy" "echo" {
  name               = "tf-echo"
  policy_type        = "TargetTrackingScaling"
  service_namespace  = aws_appautoscaling_target.echo.service_namespace
  resource_id        = aws_appautoscaling_target.echo.resource_id
  scalable_dimension = aws_appautoscaling_target.echo.scalable_dimension
  target_tracking_scaling_policy_configuration {
    target_value = 100
    predefined_metric_specification {
      predefined_metric_type = "SageMakerVariantInvocationsPerInstance"
    }
    scale_in_cooldown  = 60
    scale_out_cooldown = 60
  }
}

resource "aws_appautoscaling_scheduled_action" "night" {
  name               = "tf-night"
  service_namespace  = aws_appautoscaling_target.echo.service_namespace
  resource_id        = aws_appautoscaling_target.echo.resource_id
  scalable_dimension = aws_appautoscaling_target.echo.scalable_dimension
  schedule           = "cron(0 22 * * ? *)"
  scalable_target_action {
    min_capacity = 1
    max_capacity = 1
  }
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  alarm_name          = "tf-errors"
  namespace           = "AWS/SageMaker"
  metric_name         = "Invocation5XXErrors"
  dimensions          = { EndpointName = aws_sagemaker_endpoint.echo.name, VariantName = "main" }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 1
  threshold           = var.threshold
  comparison_operator = "GreaterThanThreshold"
  alarm_actions       = [aws_sns_topic.alerts.arn]
  tags                = { team = "platform" }
}

resource "aws_cloudwatch_composite_alarm" "any" {
  alarm_name = "tf-any"
  alarm_rule = "ALARM(${aws_cloudwatch_metric_alarm.errors.alarm_name})"
}

resource "aws_ecr_repository" "byoc" {
  name = "tf-byoc"
  tags = { team = "platform" }
}
