terraform {
  required_providers {
    aws = { source = "hashicorp/aws" }
  }
}

variable "version_served" { default = "v1" }
variable "policy" { default = "LINEAR" }

provider "aws" {}

locals {
  versions = toset(["v1", var.version_served])
}

resource "aws_iam_role" "execution" {
  name = "guarded-execution"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRole"
      Principal = { Service = "sagemaker.amazonaws.com" }
    }]
  })
}

resource "aws_s3_bucket" "captured" {
  bucket        = "guarded-captured"
  force_destroy = true
}

resource "aws_sagemaker_model" "echo" {
  for_each           = local.versions
  name               = "guarded-${each.key}"
  execution_role_arn = aws_iam_role.execution.arn
  primary_container {
    image = "echo:1"
    environment = { ECHO_VERSION = each.key }
  }
}

resource "aws_sagemaker_endpoint_configuration" "blue_green" {
  name_prefix = "guarded-"
  production_variants {
    variant_name           = "main"
    model_name             = aws_sagemaker_model.echo[var.version_served].name
    initial_instance_count = 2
    instance_type          = "ml.m5.large"
    initial_variant_weight = 3
  }
  production_variants {
    variant_name           = "second"
    model_name             = aws_sagemaker_model.echo[var.version_served].name
    initial_instance_count = 2
    instance_type          = "ml.m5.large"
    initial_variant_weight = 1
  }
  data_capture_config {
    enable_capture              = true
    initial_sampling_percentage = 100
    destination_s3_uri          = "s3://${aws_s3_bucket.captured.bucket}/captured"
    capture_options { capture_mode = "Input" }
    capture_options { capture_mode = "Output" }
    capture_content_type_header {
      json_content_types = ["application/json"]
    }
  }
  lifecycle { create_before_destroy = true }
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  alarm_name          = "guarded-errors"
  namespace           = "AWS/SageMaker"
  metric_name         = "Invocation5XXErrors"
  dimensions          = { EndpointName = "guarded", VariantName = "main" }
  statistic           = "Sum"
  period              = 10
  evaluation_periods  = 1
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
}

resource "aws_sagemaker_endpoint" "guarded" {
  name                 = "guarded"
  endpoint_config_name = aws_sagemaker_endpoint_configuration.blue_green.name
  deployment_config {
    dynamic "blue_green_update_policy" {
      for_each = var.policy == "ROLLING" ? [] : [1]
      content {
        traffic_routing_configuration {
          type                     = var.policy
          wait_interval_in_seconds = 60
          dynamic "canary_size" {
            for_each = var.policy == "CANARY" ? [1] : []
            content {
              type  = "INSTANCE_COUNT"
              value = 1
            }
          }
          dynamic "linear_step_size" {
            for_each = var.policy == "LINEAR" ? [1] : []
            content {
              type  = "CAPACITY_PERCENT"
              value = 50
            }
          }
        }
        termination_wait_in_seconds          = 60
        maximum_execution_timeout_in_seconds = 1200
      }
    }
    dynamic "rolling_update_policy" {
      for_each = var.policy == "ROLLING" ? [1] : []
      content {
        maximum_batch_size {
          type  = "CAPACITY_PERCENT"
          value = 50
        }
        rollback_maximum_batch_size {
          type  = "INSTANCE_COUNT"
          value = 1
        }
        wait_interval_in_seconds             = 60
        maximum_execution_timeout_in_seconds = 1200
      }
    }
    auto_rollback_configuration {
      alarms { alarm_name = aws_cloudwatch_metric_alarm.errors.alarm_name }
    }
  }
}

resource "aws_sagemaker_endpoint_configuration" "shadowed" {
  name = "shadowed"
  production_variants {
    variant_name           = "now"
    model_name             = aws_sagemaker_model.echo["v1"].name
    initial_instance_count = 1
    instance_type          = "ml.m5.large"
    initial_variant_weight = 1
  }
  shadow_production_variants {
    variant_name           = "next"
    model_name             = aws_sagemaker_model.echo["v1"].name
    initial_instance_count = 1
    instance_type          = "ml.m5.large"
    initial_variant_weight = 0.5
  }
}

resource "aws_sagemaker_endpoint" "shadowed" {
  name                 = "shadowed"
  endpoint_config_name = aws_sagemaker_endpoint_configuration.shadowed.name
}
