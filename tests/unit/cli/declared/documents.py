"""Documents of every kind for tests, and a later version in which each kind changes."""

SHOP = """
set: shop
models:
  fruits:
    Image: djl-inference:0.29.0-lmi
    ModelDataUrl: ./fruits
    Environment: {A: 1.10, B: "", Mode: SingleModel}
endpoints:
  llms:
    InstanceType: ml.big
    Components:
      base:
        Image: djl-inference:0.29.0-lmi
        ArtifactUrl: s3://b/base.tar.gz
        MinMemoryRequiredInMb: 1024
        NumberOfAcceleratorDevicesRequired: 1
        Adapters:
          es: s3://b/es.tar.gz
          fr: {ArtifactUrl: s3://b/fr.tar.gz, Tags: {customer: 7}}
        Scaling:
          MinCapacity: 1
          MaxCapacity: 3
          Policies:
            busy: {TargetValue: 5}
            out:
              AdjustmentType: ChangeInCapacity
              StepAdjustments: [{MetricIntervalLowerBound: 0, ScalingAdjustment: 1}]
          ScheduledActions:
            night: {Schedule: "cron(0 22 * * ? *)", MaxCapacity: 1}
      other: {ModelName: fruits, MinMemoryRequiredInMb: 1024}
  shop:
    ModelName: fruits
    InstanceType: ml.big
    InitialInstanceCount: 2
    Tags: {team: x}
    DeploymentConfig: {AutoRollbackConfiguration: {Alarms: [{AlarmName: errors}]}}
  old: {ModelName: fruits, InstanceType: ml.big}
alarms:
  busy:
    Namespace: AWS/SageMaker
    MetricName: Invocations
    Dimensions: {EndpointName: llms, VariantName: AllTraffic}
    Statistic: Sum
    Period: 60
    EvaluationPeriods: 1
    Threshold: 10
    ComparisonOperator: GreaterThanThreshold
    AlarmActions: [policy/inference-component/base/out]
  errors:
    Namespace: AWS/SageMaker
    MetricName: Invocation5XXErrors
    Dimensions: {EndpointName: shop, VariantName: AllTraffic}
    Statistic: Sum
    Period: 60
    EvaluationPeriods: 1
    Threshold: 0
    ComparisonOperator: GreaterThanThreshold
  any: {AlarmRule: 'ALARM("busy") OR ALARM("errors")'}
"""

LATER = """
set: shop
models:
  fruits:
    Image: djl-inference:0.29.0-lmi
    ModelDataUrl: ./fruits
    Environment: {A: 1.20}
endpoints:
  llms:
    InstanceType: ml.big
    InitialInstanceCount: 2
    Components:
      base:
        Image: djl-inference:0.29.0-lmi
        ArtifactUrl: s3://b/base-2.tar.gz
        MinMemoryRequiredInMb: 2048
        NumberOfAcceleratorDevicesRequired: 1
        CopyCount: 2
        Adapters: {fr: s3://b/fr-2.tar.gz, de: s3://b/de.tar.gz}
        Scaling:
          MinCapacity: 1
          MaxCapacity: 4
          Policies: {renamed: {TargetValue: 5}}
      other: {ModelName: fruits, MinMemoryRequiredInMb: 1024, CopyCount: 2}
  shop: {ModelName: fruits, InstanceType: ml.big, Tags: {team: y}}
alarms:
  errors:
    Namespace: AWS/SageMaker
    MetricName: Invocation5XXErrors
    Dimensions: {EndpointName: shop, VariantName: AllTraffic}
    Statistic: Sum
    Period: 60
    EvaluationPeriods: 2
    Threshold: 0
    ComparisonOperator: GreaterThanThreshold
  busy: {AlarmRule: 'ALARM("errors")'}
"""
