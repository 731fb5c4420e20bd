"""Documents of every kind for tests, and a later version of them in which each kind changes."""

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

EVERY = """
models:
  m: {Image: "djl-inference:0.29.0-lmi", Tags: {a: "1"}}
  pipeline: {Containers: [{Image: "a:1"}, {Image: "b:1", Environment: {X: ""}}]}
  many: {Image: "c:1", Mode: MultiModel, ModelDataUrl: s3://b/many/}
endpoints:
  serverless:
    ModelName: m
    ServerlessConfig: {MemorySizeInMB: 2048, MaxConcurrency: 5, ProvisionedConcurrency: 1}
  async:
    ModelName: m
    InstanceType: ml.big
    AsyncInferenceConfig:
      OutputConfig: {S3OutputPath: s3://b/out/}
      ClientConfig: {MaxConcurrentInvocationsPerInstance: 2}
  captured:
    ProductionVariants:
      - {VariantName: one, ModelName: m, InstanceType: ml.big, InitialVariantWeight: 0.25}
      - {VariantName: two, ModelName: pipeline, InstanceType: ml.big, InitialInstanceCount: 2}
    DataCaptureConfig:
      EnableCapture: true
      InitialSamplingPercentage: 50
      DestinationS3Uri: s3://b/capture/
      CaptureOptions: [{CaptureMode: Input}, {CaptureMode: Output}]
    MetricsConfig: {EnableEnhancedMetrics: true}
    Tags: {"hostelry:responsive": "off"}
  shadowed:
    ProductionVariants: [{VariantName: main, ModelName: m, InstanceType: ml.big}]
    ShadowProductionVariants:
      - {VariantName: next, ModelName: m, InstanceType: ml.big, InitialInstanceCount: 1,
         InitialVariantWeight: 0.5}
    DeploymentConfig:
      BlueGreenUpdatePolicy:
        TrafficRoutingConfiguration: {Type: ALL_AT_ONCE, WaitIntervalInSeconds: 0}
        MaximumExecutionTimeoutInSeconds: 600
  fleet:
    VariantName: variant-1
    InstanceType: ml.big
    InitialInstanceCount: 1
    ManagedInstanceScaling: {Status: ENABLED, MinInstanceCount: 1, MaxInstanceCount: 3}
    RoutingConfig: {RoutingStrategy: LEAST_OUTSTANDING_REQUESTS}
    Components:
      typed:
        Specifications:
          - InstanceType: ml.big
            ModelName: m
            ComputeResourceRequirements: {MinMemoryRequiredInMb: 1024}
      whole:
        Image: "djl-inference:0.29.0-lmi"
        Environment: {A: "1"}
        MinMemoryRequiredInMb: 1024
        MaxMemoryRequiredInMb: 2048
        NumberOfCpuCoresRequired: 0.5
        StartupParameters: {ModelDataDownloadTimeoutInSeconds: 600}
        SchedulingConfig: {PlacementStrategy: SPREAD}
        Tags: {customer: acme}
alarms:
  math:
    Metrics:
      - {Id: e, Expression: m1 / 2, Label: half}
      - Id: m1
        ReturnData: false
        MetricStat:
          Stat: p99
          Period: 60
          Metric:
            Namespace: AWS/SageMaker
            MetricName: ModelLatency
            Dimensions: [{Name: VariantName, Value: one}, {Name: EndpointName, Value: captured}]
    EvaluationPeriods: 3
    DatapointsToAlarm: 2
    Threshold: 0.5
    ComparisonOperator: LessThanThreshold
    TreatMissingData: breaching
    ActionsEnabled: false
    AlarmDescription: "1e5"
    Tags: {t: x}
  suppressed:
    AlarmRule: ALARM("math")
    ActionsSuppressor: math
    ActionsSuppressorWaitPeriod: 60
    ActionsSuppressorExtensionPeriod: 0
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
